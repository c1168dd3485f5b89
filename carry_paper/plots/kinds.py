"""Kinds of runs: their shares, the values of a run's parts, and how these form in training."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from carry_paper.findings import typology
from carry_paper.plots.style import CLASS_COLOURS, FAINT, WIDTH, style

COLOURS = dict(zip(typology.KINDS, CLASS_COLOURS, strict=False))
# Columns of the table of runs (`typology.who_decides`) and what panels call them.
PARTS = {
    "one head": "best head\nalone",
    "heads together": "all heads\ntogether",
    "earlier": "stream that\nenters",
}
WAY = {
    "digit_sum": "digit sums",
    "one head": "best head",
    "earlier": "stream that enters",
    "final MLP": "final MLP",
}
MARKERS = ("o", "s", "D")
DASHES = (0, (3, 2))
EPOCH_TICKS = (1, 3, 10, 30, 60)


@style()
def shares_and_runs(shares: Mapping[str, pd.DataFrame], runs: pd.DataFrame) -> Figure:
    """Return a figure of the share of each kind, and of each part's value in each run.

    Args:
        shares: By the name of a set of runs, the `share` of each kind, its interval from
            `low` to `high`, and the number of `runs`.
        runs: The `kind` of each run of the first set, and the columns of `PARTS`.
    """
    figure = Figure(figsize=(WIDTH, 3.1), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.05))
    _draw_shares(left, list(shares.values()))
    for i, name in enumerate(shares):
        colour = "white" if i else FAINT
        left.scatter([], [], marker=MARKERS[i], c=colour, edgecolors=FAINT, label=name)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=3)
    for x, column in enumerate(PARTS):
        _dots(right, x, runs, column)
    right.axhline(typology.DECIDES, color=FAINT, linewidth=0.8, linestyle=DASHES)
    right.set_xticks(range(len(PARTS)), list(PARTS.values()))
    right.set(ylabel="interchange accuracy", ylim=(-0.04, 1.04))
    right.tick_params(axis="x", length=0)
    return figure


def _draw_shares(ax: Axes, shares: Sequence[pd.DataFrame]) -> None:
    """Draw the share of each kind with its interval, a point for each set of runs."""
    colours = list(COLOURS.values())
    for i, table in enumerate(shares):
        y = np.arange(len(table)) + 0.24 * (i - (len(shares) - 1) / 2)
        ax.hlines(y, table.low, table.high, color=colours, linewidth=1 if i else 2.4)
        ax.scatter(
            table.share,
            y,
            s=24,
            c="white" if i else colours,
            edgecolors=colours,
            zorder=3,
            marker=MARKERS[i],
        )
        n_runs = table.runs.sum()
        for height, n, end in zip(y, table.runs, table.high, strict=True):
            ax.text(end + 0.02, height, f"{n} of {n_runs}", va="center", fontsize=7)
    ax.set_yticks(range(len(typology.KINDS)), list(typology.KINDS))
    ax.set(xlim=(0, 1.22), ylim=(len(typology.KINDS) - 0.5, -0.5), xlabel="share of runs")
    ax.set_xticks([0, 0.5, 1])


def _dots(ax: Axes, x: int, rows: pd.DataFrame, column: str) -> None:
    """Draw a dot for each run, spread a little to both sides of `x`."""
    spread = np.random.default_rng(0).permutation(np.linspace(-0.3, 0.3, len(rows)))
    ax.scatter(x + spread, rows[column], s=18, c=rows.kind.map(COLOURS), linewidths=0)


@style()
def power_curve(power: "pd.Series[float]", kind: str, share: float, target: float) -> Figure:
    """Return a figure of a test's power, by the share of a kind among the runs drawn from.

    Args:
        power: The power by share.
        kind: The kind.
        share: Its share among the judged runs.
        target: The power from which on the test would have noticed.
    """
    figure = Figure(figsize=(0.6 * WIDTH, 2), layout="constrained")
    ax = figure.subplots()
    ax.plot(power.index, power, color=COLOURS[kind])
    ax.axhline(target, color=FAINT, linewidth=0.8, linestyle=DASHES)
    ax.axvline(share, color=FAINT, linewidth=0.8, linestyle=":")
    ax.set(xlim=(0, 1), ylim=(0, 1.03))
    ax.set(xlabel=f"share of runs of the kind “{kind}”", ylabel="power")
    return figure


@style()
def strips(runs: pd.DataFrame, titles: Mapping[str, str]) -> Figure:
    """Return a figure with a panel for each of eight columns, and a strip for each kind of run."""
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    kinds = [kind for kind in typology.KINDS if (runs.kind == kind).any()]
    names = [kind.replace(" ", "\n") for kind in kinds]
    for ax, (column, title) in zip(figure.subplots(2, 4).flat, titles.items(), strict=True):
        for x, kind in enumerate(kinds):
            _dots(ax, x, runs[runs.kind == kind], column)
        ax.set_title(title)
        ax.set_xticks(range(len(kinds)), names)
        ax.tick_params(axis="x", length=0)
    return figure


@style()
def ways(rows: pd.DataFrame) -> Figure:
    """Return a figure with a panel for each run: the values of the parts of `WAY`, by epoch."""
    by_run = rows.groupby("run")
    figure = Figure(figsize=(WIDTH, 2.1), layout="constrained")
    panels = figure.subplots(1, len(by_run), sharey=True, squeeze=False)[0]
    for ax, (number, rows_of_run) in zip(panels, by_run, strict=True):
        for (column, label), colour in zip(WAY.items(), CLASS_COLOURS, strict=False):
            values = rows_of_run[column].fillna(0)
            ax.plot(rows_of_run.epoch, values, color=colour, marker="o", markersize=2, label=label)
        ax.axhline(typology.DECIDES, color=FAINT, linewidth=0.8, linestyle=DASHES)
        title = f"run {number}: {rows_of_run.kind.iloc[-1]}"
        ax.set(xscale="log", xlabel="epoch", ylim=(-0.04, 1.04), title=title)
        ax.set_xticks(EPOCH_TICKS, EPOCH_TICKS)
        ax.minorticks_off()
    panels[0].set_ylabel("interchange accuracy")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(WAY)
    )
    return figure
