"""What the figures of learning curves and of a transition show: their data, not their pixels."""

from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from carry_core.plots.curves import draw_curves, ends, thinned

EPOCHS = 50
RUNS = [3, 5]


def lines(ax: Any) -> list[np.ndarray]:
    """The curves of a panel, without marks at single epochs and dots."""
    return [line.get_ydata() for line in ax.lines if len(line.get_xdata()) > 2]


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


# ---------------------------------------------------------------- all runs


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
