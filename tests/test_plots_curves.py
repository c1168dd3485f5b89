"""What the figures of learning curves, transitions and the final MLP's evolution show: their data, not their pixels."""

from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from carry_core import plots
from carry_core.findings import dynamics
from carry_core.sums import Layout

EPOCHS = 50
RUNS = [3, 5]


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.findobj(mpl.text.Text) if text.get_text()]


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
        "test_ablated_accuracy": rng.random((2, EPOCHS, 5, 3)),
        "test_ablated_corrected": rng.random((2, EPOCHS, 5, 3)),
    }
    for values in found.values():
        values[1, 40:] = np.nan
    return found | {"runs": np.array(RUNS)}


# ---------------------------------------------------------------- the transition


@pytest.mark.parametrize(("run", "end"), [(3, 50), (5, 40)])
def test_the_transition_shows_one_runs_curves_and_its_maps(history, run, end):
    i, epochs = RUNS.index(run), (4, 20, 33)
    figure = plots.transition(history, run, epochs, Layout())
    loss, accuracy, norm = figure.axes[:3]
    for ax, expected in (
        (loss, [history["train_loss"][i], history["test_loss"][i]]),
        (accuracy, list(history["test_accuracy"][i].T)),
        (norm, [history["weight_norm"][i]]),
    ):
        np.testing.assert_array_equal(lines(ax), [curve[:end] for curve in expected])
        assert marked(ax) == list(epochs)
    images = [ax.images[0] for ax in figure.axes if ax.images]
    wanted = [history["pattern"][i, epoch - 1, head] for epoch in epochs for head in range(2)]
    assert len(images) == len(wanted)
    for image, pattern in zip(images, wanted, strict=True):
        np.testing.assert_array_equal(image.get_array(), pattern)
        assert image.get_clim() == (0, 1)
    assert {f"0:{head}, epoch {epoch}" for epoch in epochs for head in range(2)} <= set(texts(figure))
    assert {"pos. 7", "pos. 8", "pos. 9", "train", "test"} <= set(texts(figure))
    lowest = figure.axes[3 + len(images) - 1]
    assert [tick.get_text() for tick in lowest.get_xticklabels()] == Layout().tick_labels()


# ---------------------------------------------------------------- the evolution


def test_the_evolution_shows_every_runs_correlation_and_one_runs_accuracies_and_loss(history):
    evolutions = dynamics.evolutions(history)
    kink = dynamics.kink(history["test_loss"][0])
    correlation, accuracy, loss = plots.evolution(history, evolutions, 3, kink).axes
    for found, curve in zip(evolutions.values(), lines(correlation), strict=True):
        np.testing.assert_array_equal(curve, found.correlation[: kink.end])
    np.testing.assert_array_equal(
        lines(accuracy),
        [history[f"test_ablated_{kind}"][0, : kink.end, 1, 0] for kind in ("accuracy", "corrected")],
    )
    train, test, fitted = lines(loss)
    np.testing.assert_array_equal(train, history["train_loss"][0, : kink.end])
    np.testing.assert_array_equal(test, history["test_loss"][0, : kink.end])
    np.testing.assert_array_equal(fitted, kink.curve()[1])
    for ax in (correlation, accuracy, loss):
        assert marked(ax) == [kink.epoch]
    dots = [line.get_ydata()[0] for line in correlation.lines if len(line.get_xdata()) == 1]
    assert dots == [found.correlation[-1] for found in evolutions.values()]
    assert accuracy.get_title() == "accuracy of C@1 at pos. 7"
    assert correlation.get_xticklabels()[-1].get_text() == "last"


# ---------------------------------------------------------------- tables of curves and orders


def test_the_table_of_curves_has_best_and_last_of_every_run(history):
    table = plots.table_of_curves(history)
    for i, (row, end) in enumerate(zip(table.rows, (50, 40), strict=True)):
        whole, loss, norm = (history[key][i, :end] for key in ("test_whole", "test_loss", "weight_norm"))
        assert row[0] == str(RUNS[i])
        assert row[1] == f"{max(whole):.4f}\n{list(whole).index(max(whole)) + 1}"
        assert row[2] == f"{whole[-1]:.4f}\n{end}"
        assert row[3] == f"{min(loss):.1e}\n{list(loss).index(min(loss)) + 1}"
        assert row[4] == f"{loss[-1]:.1e}"
        assert [float(x.split("\n")[0]) for x in row[5:]] == [round(x) for x in (norm[0], min(norm), norm[-1])]
    assert len(table.header) == len(table.rows[0]) == sum(width for _, width in table.spans)
