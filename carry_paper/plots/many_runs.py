"""Many runs by who writes their carry: shares of runs, what goes with it, how it forms."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from carry_paper.findings import line_table, typology
from carry_paper.findings.carry_line import WRITTEN_LATE
from carry_paper.plots.hover import name_dots
from carry_paper.plots.style import (
    CLASS_COLOURS,
    DASHED,
    FAINT,
    OPEN,
    WIDTH,
    legend_below,
    with_data,
)

COLOURS = dict(zip(line_table.WORDS, CLASS_COLOURS, strict=False))
# Columns of `typology.who_decides` and `typology.abstraction`, and what panels call them.
WAY = {
    "digit_sum": "digit sums",
    "one head": "best head",
    "earlier": "stream that enters",
    "final MLP": "final MLP",
}
MARKERS = ("o", "s", "D")
EPOCH_TICKS = (1, 3, 10, 30, 60)


@with_data
def shares_and_runs(shares: Mapping[str, pd.DataFrame], runs: pd.DataFrame) -> Figure:
    """Return a figure of the share of runs of each word, and of each run's late share and writers.

    Args:
        shares: By the name of a set of runs, the `share` of each word, its interval from
            `low` to `high`, and the number of `runs`.
        runs: The word (`who`), the `late` share and the number of `writers` of each run of the
            first set.
    """
    figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.05))
    n_runs = sum(table.runs for table in shares.values())
    drawn = [word for word in line_table.WORDS if n_runs[word]]
    _draw_shares(left, [table.loc[drawn] for table in shares.values()])
    for i, name in enumerate(shares):
        colour = OPEN if i else FAINT
        left.scatter([], [], marker=MARKERS[i], c=colour, edgecolors=FAINT, label=name)
    legend_below(figure, loc="outside lower left")

    by_count = runs[runs.late.notna()].groupby("writers")
    for x, (_, of) in enumerate(by_count):
        spread = np.random.default_rng(0).permutation(np.linspace(-0.3, 0.3, len(of)))
        _dots(right, x + spread, of, "late")
    right.axhline(WRITTEN_LATE, **DASHED)
    counts = [f"{count:.0f}" for count in by_count.groups]
    right.set_xticks(range(len(counts)), counts)
    right.set(xlabel="heads that write the coordinate", ylabel="late share")
    right.set(xlim=(-0.6, len(counts) - 0.4), ylim=(-0.04, 1.08))
    right.tick_params(axis="x", length=0)
    return figure


def _draw_shares(ax: Axes, shares: Sequence[pd.DataFrame]) -> None:
    """Draw the share of each word with its interval, a point for each set of runs."""
    words = list(shares[0].index)
    colours = [COLOURS[word] for word in words]
    for i, table in enumerate(shares):
        y = np.arange(len(table)) + 0.24 * (i - (len(shares) - 1) / 2)
        ax.hlines(y, table.low, table.high, color=colours, linewidth=1 if i else 2.4)
        look: dict[str, Any] = {"c": OPEN if i else colours, "edgecolors": colours}
        ax.scatter(table.share, y, s=24, zorder=3, marker=MARKERS[i], **look)
        n_runs = table.runs.sum()
        for height, n, end in zip(y, table.runs, table.high, strict=True):
            ax.text(end + 0.02, height, f"{n} of {n_runs}", va="center", fontsize=7)
    ax.set_yticks(range(len(words)), words)
    ax.set(xlim=(0, 1.22), ylim=(len(words) - 0.5, -0.5), xlabel="share of runs")
    ax.set_xticks([0, 0.5, 1])


def _dots(ax: Axes, x: Any, runs: pd.DataFrame, column: str) -> None:
    """Draw a dot for each run at some places, in the colour of its word."""
    dots = ax.scatter(x, runs[column], s=16, c=runs.who.map(COLOURS), linewidths=0)
    name_dots(dots, "run {index}, {who}: {value:.2f}", runs.assign(value=runs[column]))


@with_data
def against_late_share(runs: pd.DataFrame, titles: Mapping[str, str]) -> Figure:
    """Return a figure with a panel for each of eight columns, against the late share of each run.

    `runs` have their `late` share and the word for it (`who`).
    """
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    for ax, (column, title) in zip(figure.subplots(2, 4).flat, titles.items(), strict=True):
        _dots(ax, runs.late, runs, column)
        ax.set(title=title, xlim=(-0.05, 1.08), xticks=(0, 0.5, 1))
    figure.supxlabel("late share")
    return figure


@with_data
def ways(rows: pd.DataFrame) -> Figure:
    """Return a figure with a panel for each run: the values of the parts of `WAY`, by epoch.

    `rows` are those of snapshots, each with its run's word (`who`).
    """
    by_run = rows.groupby("run")
    figure = Figure(figsize=(WIDTH, 2.1), layout="constrained")
    panels = figure.subplots(1, len(by_run), sharey=True, squeeze=False)[0]
    for ax, (number, rows_of_run) in zip(panels, by_run, strict=True):
        for (column, label), colour in zip(WAY.items(), CLASS_COLOURS, strict=False):
            values = rows_of_run[column].fillna(0)
            ax.plot(rows_of_run.epoch, values, color=colour, marker="o", markersize=2, label=label)
        ax.axhline(typology.DECIDES, **DASHED)
        title = f"run {number}: {rows_of_run.who.iloc[-1]}"
        ax.set(xscale="log", xlabel="epoch", ylim=(-0.04, 1.04), title=title)
        ax.set_xticks(EPOCH_TICKS, EPOCH_TICKS)
        ax.minorticks_off()
    panels[0].set_ylabel("interchange accuracy")
    legend_below(figure)
    return figure
