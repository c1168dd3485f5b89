"""Which groups were trained, and how their training compares with the paper's (App. A)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from carry_core import trainings
from carry_core.dynamics import finished
from carry_core.groups import CAMPAIGN, GROUPS, MAIN, reached
from carry_core.page import WIDTH, Table, number, styled
from carry_core.plots.curves import plain_log
from carry_core.trainings import Training

MOMENTS = (0.001, 0.02, 0.06, 0.09, 1.0)  # of the paper's epochs: of 1000 the first, 20, 60 (the end of quick), 90, all
COLOURS = {"author": "#6B7280", "paper": "#7A1F5C", "quick": "#2381A0"}


def table_of_groups() -> Table:
    """Every group of the paper and what there is of it from us: runs, recipe, epochs, time, and how well it adds.

    A group that was trained by both recipes has a line for each, the one that the pages use first.

    The accuracy is that of whole answers on the test sums after the last epoch, the lowest of the runs.
    """
    rows = []
    for name in CAMPAIGN:
        there = trainings.ours(name)
        if not there:
            rows.append([name, f"0 of {GROUPS[name].n_runs}", *["–"] * 5])
        for recipe, training in there.items():
            last = [float(finished(curve)[-1]) for curve in training.history["test_whole"]]
            each = training.runs.record["runs"]
            minutes = [run["seconds"] / 60 for run in each]
            precisions = ", ".join(sorted({run["precision"] for run in each}))
            took = "–".join(dict.fromkeys(f"{end(minutes):.0f}" for end in (min, max)))
            epochs = reached(name, recipe, training.runs.record["epochs"])
            rows.append([
                name, f"{len(each)} of {GROUPS[name].n_runs}", recipe, epochs, precisions, took, number(min(last), 4)
            ])  # fmt: skip
    return Table(["group", "runs", "recipe", "epochs", "precision", "minutes a run", "lowest accuracy"], rows)


def steps(history: Mapping[str, NDArray[Any]], group: str) -> NDArray[np.int64]:
    """Optimiser steps after each epoch of a history."""
    return np.arange(1, history["test_loss"].shape[1] + 1) * GROUPS[group].steps


@styled
def training_curves(found: Mapping[str, Training], group: str) -> Figure:
    """Test loss, accuracy of whole answers and squared norm against optimiser steps, one colour a training.

    Args:
        found: trainings of the group by what they are called; those without learning curves are left out.
        group: which group they are of.
    """
    figure = Figure(figsize=(WIDTH, 2.5), layout="constrained")
    panels = {"test_loss": "test loss", "test_whole": "test accuracy, whole answer", "weight_norm": "squared norm"}
    for ax, (key, title) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        for name, training in found.items():
            if not training.history:
                continue
            at, colour = steps(training.history, group), COLOURS[training.kind]
            for i, curve in enumerate(training.history[key]):
                ax.plot(at, curve, color=colour, linewidth=0.9, alpha=0.7, label=name if i == 0 else None)
        ax.set(title=title, xlabel="optimiser steps", xscale="log")
        if key == "test_loss":
            plain_log(ax)
        else:
            ax.set_ylim(0)
    lines, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=len(names), handlelength=1.2)
    return figure


def table_of_norms(found: Mapping[str, Training], group: str) -> Table:
    """The squared norm along each training, run by run, at epochs of the recipe of the paper."""
    wanted = sorted({max(1, round(share * GROUPS[group].epochs)) for share in MOMENTS})
    rows = []
    for name, training in found.items():
        if not training.history:
            continue
        for run, curve in zip(training.history["runs"].tolist(), training.history["weight_norm"], strict=True):
            known = finished(curve)
            values = [number(known[epoch - 1], 0) if epoch <= len(known) else "–" for epoch in wanted]
            rows.append([f"{name}, run {run}", *values])
    return Table(["", *(f"epoch {epoch}" for epoch in wanted)], rows)


def table_of_costs(found: Mapping[str, Any] | None) -> Table:
    """A training step of ours beside the plain one's, from what `carry bench train --save` wrote."""
    header = ["device", "runs", "layers", "precision", "plain", "ours", "ratio", "floor", "share"]
    rows = []
    for row in (found or {"rows": []})["rows"]:
        plain, ratio = "–", "–"
        if "ratio" in row:
            plain = f"{number(row['plain fp32, ms'], 0)} ms"
            ratio = (
                f"{number(row['ratio'], 1)}\n{number(row['ratio, lowest'], 1)} to {number(row['ratio, highest'], 1)}"
            )
        ours, floor = (f"{row[key]:.3g} ms" for key in ("ours, ms", "floor, ms"))
        if "binds" in row:
            others = {name: row[f"floor of {name}, ms"] for name in ("bytes", "launches")}
            each = sorted(({"operations": row["floor, ms"]} | others).items(), key=lambda floor: -floor[1])
            floor = "\n".join(f"{value:.3g} ms ({name})" for name, value in each)
        share = f"{100 * row['share of matmul peak']:.0f}%"
        rows.append(
            [row["device"], *map(str, (row["runs"], row["layers"])), row["precision"], plain, ours, ratio, floor, share]
        )
    if all(row[0].startswith("cpu") for row in rows):
        main = GROUPS[MAIN]
        rows.append(["a GPU", f"{main.n_runs}", f"{main.config.layers}", "fp32", "–", "not measured", "–", "–", "–"])
    return Table(header, rows)


def table_of_insides(found: Mapping[str, Sequence[Mapping[str, float]]]) -> Table:
    """What the runs of each training do: the mean, and in small type the runs if there are several.

    Args:
        found: of each training, `trainings.inside` of its runs.
    """
    quantities = next(iter(found.values()), [{}])[0]
    rows: list[list[str]] = []
    for quantity in quantities:
        cells = []
        for values in ([run[quantity] for run in training] for training in found.values()):
            told = [number(x, 2) for x in values] if len(values) > 1 else []
            lines = [" ".join(told[i : i + 3]) for i in range(0, len(told), 3)]
            cells.append("\n".join([number(sum(values) / len(values), 3), *lines]))
        rows.append([quantity, *cells])
    return Table(["", *found], rows)
