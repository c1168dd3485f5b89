"""Which groups were trained, and how their training compares with the paper's (App. A)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from carry_core import runs
from carry_core.dynamics import finished
from carry_core.groups import CAMPAIGN, GROUPS, RECIPES, reached
from carry_core.page import WIDTH, Table, number, styled
from carry_core.plots.curves import plain_log

COLOURS = ("#2381A0", "#7A1F5C")


def table_of_groups() -> Table:
    """Every group of the paper and what there is of it from us: runs, recipe, epochs, time, and how well it adds.

    The accuracy is that of whole answers on the test sums after the last epoch, the lowest of the runs.
    """
    rows = []
    for name in CAMPAIGN:
        group = GROUPS[name]
        if not (runs.folder("ours") / f"{name}.safetensors").exists():
            rows.append([name, f"0 of {group.n_runs}", *["–"] * 5])
            continue
        record, history = runs.load(name).record, runs.history(name)
        last = [float(finished(curve)[-1]) for curve in history["test_whole"]]
        minutes = [run["seconds"] / 60 for run in record["runs"]]
        precisions = ", ".join(sorted({run["precision"] for run in record["runs"]}))
        took = f"{min(minutes):.0f}–{max(minutes):.0f}" if len(minutes) > 1 else f"{minutes[0]:.0f}"
        epochs = reached(name, record["recipe"], record["epochs"])
        outcome = [record["recipe"], epochs, precisions, took, number(min(last), 4)]
        rows.append([name, f"{len(minutes)} of {group.n_runs}", *outcome])
    return Table(["group", "runs", "recipe", "epochs", "precision", "minutes a run", "lowest accuracy"], rows)


def steps(history: Mapping[str, NDArray[Any]], group: str) -> NDArray[np.int64]:
    """Optimiser steps after each epoch of a history."""
    return np.arange(1, history["test_loss"].shape[1] + 1) * GROUPS[group].steps


@styled
def trainings(histories: Mapping[str, Mapping[str, NDArray[Any]]], group: str) -> Figure:
    """Test loss, accuracy of whole answers and squared norm against optimiser steps, one colour a training.

    Args:
        histories: by what they are called, as `runs.history` returns them.
        group: which group they are of.
    """
    figure = Figure(figsize=(WIDTH, 2.3), layout="constrained")
    panels = {"test_loss": "test loss", "test_whole": "test accuracy, whole answer", "weight_norm": "squared norm"}
    for ax, (key, title) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        for colour, (name, history) in zip(COLOURS, histories.items(), strict=False):
            at = steps(history, group)
            for i, curve in enumerate(history[key]):
                ax.plot(at, curve, color=colour, linewidth=0.9, alpha=0.7, label=name if i == 0 else None)
        ax.set(title=title, xlabel="optimiser steps", xscale="log")
        if key == "test_loss":
            plain_log(ax)
        else:
            ax.set_ylim(0)
    figure.axes[1].legend(loc="lower right", handlelength=1.2)
    return figure


def table_of_norms(histories: Mapping[str, Mapping[str, NDArray[Any]]], group: str) -> Table:
    """The squared norm along each training, run by run."""
    wanted = sorted({round(share * RECIPES["paper"].epochs(GROUPS[group])) for share in (0.001, 0.02, 0.06, 0.09, 1)})
    rows = []
    for name, history in histories.items():
        for run, curve in zip(history["runs"].tolist(), history["weight_norm"], strict=True):
            known = finished(curve)
            found = [number(known[epoch - 1], 0) if epoch <= len(known) else "–" for epoch in wanted]
            rows.append([f"{name}, run {run}", *found])
    return Table(["", *(f"epoch {epoch}" for epoch in wanted)], rows)
