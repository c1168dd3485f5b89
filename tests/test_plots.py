"""What the figures show: their data, labels and colours, not their pixels."""

import itertools
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from carry_core.model import ModelConfig
from carry_core.plots.attention import attention_grid
from carry_core.plots.outcomes import accuracy_map
from carry_core.plots.style import CLASS_COLOURS, DIGIT_COLOURS


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.findobj(mpl.text.Text) if text.get_text()]


# ---------------------------------------------------------------- colours


def lab(colour: str, seen_as: np.ndarray) -> np.ndarray:
    """Oklab coordinates times 100 of a colour as a reader with this kind of sight sees it."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_lms = np.array([[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]])
    to_lab = np.array([[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]])
    return 100 * to_lab @ np.cbrt(to_lms @ np.clip(seen_as @ linear, 0, 1))


SIGHT = {  # Machado, Oliveira and Fernandes (2009), severity 1
    "full": np.eye(3),
    "protan": np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]),
    "deutan": np.array([[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]),
    "tritan": np.array([[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]),
}


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("palette", [CLASS_COLOURS, DIGIT_COLOURS], ids=["classes", "digits"])
def test_colours_are_apart_in_every_eye(palette, sight):
    seen = [lab(colour, SIGHT[sight]) for colour in palette]
    assert (
        min(np.linalg.norm(x - y) for x, y in itertools.combinations(seen, 2)) > 4
    )  # about twice what can just be noticed


# ---------------------------------------------------------------- figures


def test_attention_grid_shows_every_head_and_of_the_last_layer_the_answer_rows(config: ModelConfig):
    layout, names = config.layout, ["one", "two", "three"]
    shape = (len(names), config.layers, config.heads, layout.length, layout.length)
    pattern = np.random.default_rng(0).random(shape)
    figure = Figure().subfigures()
    attention_grid(figure, {"attention": pattern, "classes": np.array(names), "decision_head": np.array(1)}, layout)
    panels = [(l, h, t) for l in range(config.layers) for h in range(config.heads) for t in range(len(names))]
    for ax, (l, h, t) in zip(figure.axes, panels, strict=True):
        rows = list(layout.answer) if l == config.layers - 1 else slice(None)
        np.testing.assert_array_equal(ax.images[0].get_array(), pattern[t, l, h][rows])
        assert ax.images[0].get_clim() == (0, 1)
    assert {*names, f"{config.layers - 1}:1 ★"} <= set(texts(figure))


def test_an_accuracy_map_has_its_numbers_in_blocks_readable_on_light_and_dark():
    columns = pd.MultiIndex.from_tuples([("carry-in", 0), ("carry-in", 1), ("none", 0)])
    table = pd.DataFrame([[0.05, 1.0, 0.5], [0.25, 0.75, 0.0]], ["intact", "MLP 1"], columns)
    figure = Figure().subfigures()
    accuracy_map(figure, table)
    first, second = figure.axes
    assert [ax.get_title() for ax in figure.axes] == ["carry-in", "none"]
    assert [text.get_text() for text in first.texts] == ["0.05", "1.00", "0.25", "0.75"]
    assert [text.get_color() for text in first.texts[:2]] == ["#FEFEFE", "#262626"]
    assert [text.get_text() for text in first.get_yticklabels()] == ["intact", "MLP 1"]
    assert [text.get_text() for text in second.get_yticklabels()] == []
