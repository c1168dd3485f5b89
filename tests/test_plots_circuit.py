"""What the figures of neurons and of the circuit show: their data, labels and colours, not their pixels."""

from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.colors import to_rgb

from carry_core import neurons, plots, tasks
from carry_core.plots.neurons import OFTEN

NAMES = ["pos7", "pos8", "pos9"]


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.findobj(mpl.text.Text) if text.get_text()]


# ---------------------------------------------------------------- neurons


def test_neuron_grid_fills_the_chosen_neurons_and_frames_the_cells_where_a_one_arrives():
    generator = torch.Generator().manual_seed(0)
    points, often = torch.randn(20, 2, generator=generator).double(), torch.rand(5, 3, 20, generator=generator).double()
    axis = neurons.CarryAxis(points, (0.31, 0.12), often, 0.9)
    chosen = neurons.most_often(often, 8)
    figure = plots.neuron_grid(axis, chosen, NAMES)
    assert len(figure.axes) == 15
    for i, ax in enumerate(figure.axes):
        pos, task = divmod(i, 5)
        others, filled = ax.collections
        np.testing.assert_allclose(filled.get_offsets(), points[chosen[task, pos]])
        np.testing.assert_allclose(others.get_offsets(), points[~chosen[task, pos]])
        np.testing.assert_allclose(filled.get_facecolors()[0, :3], to_rgb(OFTEN))
        assert not len(others.get_facecolors())
        assert (ax.spines["left"].get_linewidth() > 1) == bool(tasks.carry_arrives(3)[task, pos])
    assert {"NC", "C all con.", "pos. 8", "the 8 most often active", "axis 1: 31% · axis 2: 12%"} <= set(texts(figure))


def test_board_grid_shows_the_cosines_under_where_a_one_arrives():
    def boards(seed: int) -> list[neurons.Board]:
        cosine = 2 * torch.rand(2, 6, 6, generator=torch.Generator().manual_seed(seed)).double() - 1
        arrives = torch.tensor([[True] * 3 + [False] * 3, [True, False] * 3])
        return [neurons.Board(7 + i, arrives[i], cosine[i]) for i in range(2)]

    columns = [("intact", boards(0)), ("without", boards(1))]
    figure = plots.board_grid(columns)
    images = [ax.images[0] for ax in figure.axes if ax.images]
    expected = [part for _, found in columns for b in found for part in (b.arrives[None], b.cosine)]
    assert len(images) == len(expected) == 8
    for image, data in zip(images, expected, strict=True):
        np.testing.assert_array_equal(image.get_array(), data)
    assert {image.get_clim() for image in images[1::2]} == {(-1, 1)}
    assert {"intact", "without", "pos. 7", "pos. 8", "cosine"} <= set(texts(figure))
