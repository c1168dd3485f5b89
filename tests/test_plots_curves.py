"""What the figures of learning curves, transitions and the final MLP's evolution show: their data, not their pixels."""

from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch

from carry_core import dynamics, geometry, plots, tasks, transitions
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
    assert [tick.get_text() for tick in lowest.get_xticklabels()] == Layout().marks()


def test_the_table_of_transitions_has_a_dash_for_never():
    nan = float("nan")
    found = {
        0: transitions.Transition(60, 60, 27.0, 0.654, (29.0, 30.0), 26.0, 0.3, 0.0148),
        4: transitions.Transition(60, 60, 18.0, 0.3, (nan, 2.0), nan),
    }
    table = plots.table_of_transitions(found)
    assert table.rows == [
        ["0", "27", "0.65", "29", "30", "-2", "26", "30.0%", "1.5%"],
        ["4", "18", "0.30", "–", "2", "16", "–", "–", "–"],
    ]
    assert len(table.header) == len(table.rows[0]) == sum(width for _, width in table.spans)


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


def test_behind_a_training_that_stopped_early_nothing_stands(history):
    evolutions, loss = dynamics.evolutions(history), history["test_loss"][0]
    kink = dynamics.kink(loss, whole=10 * len(loss))
    assert kink.end == len(loss)
    for ax in plots.evolution(history, evolutions, 3, kink).axes:
        assert "last" not in [label.get_text() for label in ax.get_xticklabels()]
        assert ax.get_xlim()[1] < 1.1 * len(loss)
        assert all(len(line.get_xdata()) > 1 for line in ax.lines)


def test_what_is_known_of_the_last_epoch_only_is_a_dot(history):
    every = dynamics.evolutions(history)
    last = {
        run: dynamics.Evolution(*(getattr(e, name)[-1:] for name in ("epochs", "accuracy", "corrected", "correlation")))
        for run, e in every.items()
    }
    correlation, accuracy, loss = plots.evolution(history, last, 3, dynamics.kink(history["test_loss"][0])).axes
    assert lines(correlation) == lines(accuracy) == []
    assert len(lines(loss)) == 3
    dots = [line.get_ydata()[0] for line in accuracy.lines if len(line.get_xdata()) == 1]
    assert dots == [history[f"test_ablated_{kind}"][0, -1, 1, 0] for kind in ("accuracy", "corrected")]
    for k, ax in enumerate(plots.evolution_grid(last, 3).axes):
        task, pos = divmod(k, 3)
        points = {(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines if len(line.get_xdata()) == 1}
        kinds = ("accuracy", "corrected")
        ends = ((0, 50), (1, 40))
        assert points == {
            (end, history[f"test_ablated_{kind}"][i, end - 1, task, pos]) for kind in kinds for i, end in ends
        }
        assert len(ax.lines) == 4


def test_the_grid_has_each_cell_of_each_run_and_frames_where_a_one_arrives(history):
    figure = plots.evolution_grid(dynamics.evolutions(history), 3)
    assert len(figure.axes) == 15
    for k, ax in enumerate(figure.axes):
        task, pos = divmod(k, 3)
        other, shown = (
            [history[f"test_ablated_{kind}"][i, :end, task, pos] for kind in ("accuracy", "corrected")]
            for i, end in ((1, 40), (0, 50))
        )
        for curve, expected in zip(lines(ax), [*other, *shown], strict=True):
            np.testing.assert_array_equal(curve, expected)
        assert (ax.spines["left"].get_linewidth() > 1) == tasks.carry_arrives(3)[task, pos]
    assert {tasks.name(p) for p in tasks.patterns(3)} | {"pos. 7", "pos. 8", "pos. 9"} <= set(texts(figure))


@pytest.mark.parametrize(("n", "step"), [(100, 1), (101, 2), (250, 3), (1000, 10)])
def test_the_grid_draws_no_more_than_a_hundred_epochs_and_the_last(n, step):
    values = np.random.default_rng(0).random((n, 5, 3))
    found = dynamics.Evolution(np.arange(1, n + 1), values, values, values[:, 0, 0])
    ax = plots.evolution_grid({0: found}, 0).axes[4]
    for line in ax.lines:
        epochs = line.get_xdata()
        assert (epochs[-1], len(epochs)) == (n, -(-n // step))
        assert set(np.diff(epochs)) == {step}
        np.testing.assert_array_equal(line.get_ydata(), values[epochs - 1, 1, 1])


def test_of_more_digits_the_grid_shows_five_classes():
    values = np.random.default_rng(0).random((2, 13, 4))
    found = dynamics.Evolution(np.array([1, 2]), values, values, np.array([0.1, 0.2]))
    figure = plots.evolution_grid({0: found}, 0)
    assert len(figure.axes) == 5 * 4
    assert set(tasks.patterns(4)[:5]) <= set(texts(figure))


def test_the_table_of_kinks_has_fit_interval_and_other_windows(history):
    kink = dynamics.Kink(6, 24, 0.1971, (0.15, 0.2449), 0.7149, -1.0)
    nan = float("nan")
    found = {0: dynamics.Carrying(60, kink, 3.0, 0.049), 2: dynamics.Carrying(60, kink, nan, nan)}
    later = dynamics.Kink(14, 60, 0.1, (0.0, 0.2), 0.5, -1.0)
    table = plots.table_of_kinks(found, {0.2: {0: kink, 2: later}, 1.0: {0: later, 2: kink}})
    fit = ["0.197\n0.150 to 0.245", "0.71"]
    assert table.rows == [["0", "6", "3\nfell by 0.05", *fit, "6", "14"], ["2", "6", "–\nfell by –", *fit, "14", "6"]]
    assert table.header[-2:] == ["kink in the first 20%", "kink in all epochs"]


@pytest.mark.parametrize(("lowest", "marks"), [(0.03, ["0.05", "0.1", "0.2", "0.5", "1"]), (1e-5, None)])
def test_a_loss_over_few_powers_of_ten_is_marked_in_plain_numbers(history, lowest, marks):
    for part in ("train_loss", "test_loss"):
        history[part] = np.clip(history[part], 0.03, 1)
    history["test_loss"][:, 5] = lowest
    figure = plots.learning_curves(history)
    figure.draw_without_rendering()
    loss = figure.axes[0]
    low, high = loss.get_ylim()
    shown = [t.get_text() for t in loss.get_yticklabels() if low <= t.get_position()[1] <= high]
    assert (shown == marks) if marks else all("10^" in text for text in shown)


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


def test_the_table_of_orders_has_a_row_for_each_run_of_each_group():
    one = {"attention": [0.1, 0.2, 0.3], "MLP": [0.4, 0.5, 0.6]}
    other = {"attention": [1.0, 1.0, 1.0], "MLP": [0.0, 0.0, 0.0]}
    table = plots.table_of_orders({"a": {0: one, 4: other}, "b": {0: other}})
    assert table.rows[0] == ["a", "0", "0.10, 0.20, 0.30", "0.40, 0.50, 0.60", "0.35"]
    assert [row[:2] + row[-1:] for row in table.rows] == [["a", "0", "0.35"], ["a", "4", "0.50"], ["b", "0", "0.50"]]
    assert geometry.mean_order(one) == pytest.approx(0.35)


def test_few_columns_of_planes_stand_in_the_middle_and_a_scale_is_no_taller_than_its_maps():
    digit = torch.arange(60) % 10
    points = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    plane = geometry.Plane(0, "MLP", 7, points, (0.5, 0.3), digit, digit % 5, digit > 4)
    boxes = [ax.get_position() for ax in plots.pca_grid([plane] * 6).axes]
    assert min(box.x0 for box in boxes) == pytest.approx(1 - max(box.x1 for box in boxes))
    for columns in (1, 2, 6):
        *maps, scale = plots.attention_grid(torch.rand(columns, 1, 2, 10, 10), ["x"] * columns, Layout()).axes
        assert scale.get_position().y0 >= min(ax.get_position().y0 for ax in maps) - 1e-9
        assert scale.get_position().y1 <= 1
