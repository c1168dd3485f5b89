"""What the figures of neurons show: their data and labels, not their pixels."""

from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure

from carry_core import carries
from carry_core.plots.neurons import draw_neurons

NAMES = ["pos7", "pos8", "pos9"]


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.findobj(mpl.text.Text) if text.get_text()]


def test_draw_neurons_fills_the_chosen_neurons_and_frames_the_cells_with_a_carry_in():
    generator = torch.Generator().manual_seed(0)
    points, chosen = torch.randn(20, 2, generator=generator), torch.rand(5, 3, 20, generator=generator) < 0.4
    side = {"points": points.numpy(), "share": np.array([0.31, 0.12]), "chosen": chosen.numpy()}
    figure = Figure()
    draw_neurons(figure.subfigures(), side | {"classes": np.array(list("abcde")), "positions": np.array(NAMES)})
    for i, ax in enumerate(figure.findobj(mpl.axes.Axes)):
        pos, task = divmod(i, 5)
        others, filled = ax.collections
        np.testing.assert_allclose(filled.get_offsets(), points[chosen[task, pos]])
        np.testing.assert_allclose(others.get_offsets(), points[~chosen[task, pos]])
        assert (ax.spines["left"].get_linewidth() > 1) == bool(carries.carry_in(3)[task, pos])
    assert {"a", "e", "pos. 8"} <= set(texts(figure))
