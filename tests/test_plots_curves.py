"""What the figures of learning curves and of a transition show: their data, not their pixels."""

import itertools
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from carry_core.plots.curves import draw_curves, draw_transition, ends, thinned
from carry_core.sums import Layout

EPOCHS = 50
RUNS = [3, 5]


def lines(ax: Any) -> list[np.ndarray]:
    """The curves of a panel, without marks at single epochs and dots."""
    return [line.get_ydata() for line in ax.lines if len(line.get_xdata()) > 2]


def marked(ax: Any) -> list[float]:
    """Epochs at which a vertical line stands."""
    return [line.get_xdata()[0] for line in ax.lines if list(line.get_ydata()) == [0, 1]]


@pytest.fixture
def history() -> dict[str, np.ndarray]:
    """Two runs, the second 10 epochs shorter."""
    rng = np.random.default_rng(0)
    found = {
        f"{part}_{curve}": rng.random((2, EPOCHS, *shape)) + 0.01
        for part in ("train", "test")
        for curve, shape in {"loss": (), "whole": (), "accuracy": (3,)}.items()
    }
    found |= {
        "weight_norm": 1000 + rng.random((2, EPOCHS)),
        "pattern": rng.random((2, EPOCHS, 2, 10, 10)),
    }
    for values in found.values():
        values[1, 40:] = np.nan
    return found | {"runs": np.array(RUNS)}


# ---------------------------------------------------------------- the transition


def test_a_transition_has_one_runs_curves_and_its_maps(history):
    epochs, figure = [4, 20, 33], Figure().subfigures()
    one = {name: curve[0] for name, curve in history.items() if name != "runs"}
    attention = one["pattern"][[epoch - 1 for epoch in epochs]]
    drawn = one | {"epoch": np.arange(1, EPOCHS + 1), "shown": np.array(epochs), "attention": attention}
    draw_transition(figure, drawn, Layout())
    panels = {ax.get_title(loc="left") or ax.get_title(): ax for ax in figure.axes}
    for name, expected in (
        ("loss", [one["train_loss"], one["test_loss"]]),
        ("digits right", list(one["test_accuracy"].T)),
        ("squared norm", [one["weight_norm"]]),
    ):
        np.testing.assert_array_equal(lines(panels[name]), expected)
        assert marked(panels[name]) == epochs
    for (k, epoch), head in itertools.product(enumerate(epochs), range(2)):
        (image,) = panels[f"0:{head}, epoch {epoch}"].images
        np.testing.assert_array_equal(image.get_array(), attention[k, head])
        assert image.get_clim() == (0, 1)


# ---------------------------------------------------------------- all runs


def test_every_run_is_drawn_and_the_mean_of_those_that_are_known(history):
    figure = Figure().subfigures()
    draw_curves(figure, thinned(history, EPOCHS))
    loss, exact, norm = figure.axes
    assert loss.get_yscale() == "log"
    curves = lines(loss)  # two runs and their mean, train and test
    np.testing.assert_array_equal(curves[3], history["test_loss"][0])
    np.testing.assert_allclose(curves[5], np.nanmean(history["test_loss"], 0))
    np.testing.assert_allclose(lines(norm)[2], np.nanmean(history["weight_norm"], 0))
    assert exact.get_ylim()[0] <= 0 < 1 <= exact.get_ylim()[1]


def test_thinned_curves_keep_the_first_and_the_last_epoch(history):
    curves = thinned(history, 7)
    assert curves["epoch"][[0, -1]].tolist() == [1, EPOCHS]
    np.testing.assert_array_equal(curves["test_loss"], history["test_loss"][:, curves["epoch"] - 1])


def test_the_ends_have_best_and_last_of_every_run(history):
    table = ends(history)
    for i, end in enumerate((50, 40)):
        whole, loss, norm = (history[key][i, :end] for key in ("test_whole", "test_loss", "weight_norm"))
        row = table.loc[RUNS[i]]
        assert list(row["exact match"]) == [max(whole), list(whole).index(max(whole)) + 1, whole[-1]]
        assert list(row["loss"]) == [min(loss), list(loss).index(min(loss)) + 1, loss[-1]]
        assert list(row["squared norm"]) == [norm[0], norm[-1]]


def test_a_history_without_exact_matches_has_its_other_curves(history):
    known = {name: curve for name, curve in history.items() if not name.endswith("_whole")}
    figure = Figure().subfigures()
    draw_curves(figure, thinned(known))
    assert lines(figure.axes[0])
    assert not lines(figure.axes[1])
    assert set(ends(known).columns.get_level_values(0)) == {"loss", "squared norm"}
