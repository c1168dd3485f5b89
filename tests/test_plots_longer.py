"""What the figures and tables of longer sums show: their data, labels and colours, not their pixels."""

from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch

from carry_core import plots
from carry_core.sums import Layout

NAN = float("nan")


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.findobj(mpl.text.Text) if text.get_text()]


@pytest.mark.parametrize(("n_tasks", "across"), [(13, 7), (89, 10), (5, 5)])
def test_every_class_has_a_tile_with_one_head_over_the_other(n_tasks, across):
    layout = Layout(4)
    pattern = torch.rand(n_tasks, 2, 2, layout.length, layout.length, generator=torch.Generator().manual_seed(0))
    figure = plots.attention_tiles(pattern, [f"class {i}" for i in range(n_tasks)], layout)
    assert [ax.get_title() for ax in figure.axes] == [f"class {i}" for i in range(n_tasks)]
    assert len({round(ax.get_position().x0, 4) for ax in figure.axes}) == across
    for task in (0, n_tasks - 1):
        shown = np.asarray(figure.axes[task].images[0].get_array())
        answer = list(layout.answer)
        assert shown == pytest.approx(torch.cat([pattern[task, 1, 0, answer], pattern[task, 1, 1, answer]]).numpy())
