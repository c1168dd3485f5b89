"""Runs of your own beside ours: a strip for each question, and the first layer's attention."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from numpy.typing import NDArray

from carry_core.sums import Layout
from carry_paper.plots.attention import map_grid, query_marks
from carry_paper.plots.style import CLASS_COLOURS, FAINT, INK, WIDTH, legend_below, name_grid, style

STRIP = 0.42  # inches: the height of a strip
YOURS = CLASS_COLOURS[3]


class Strip(NamedTuple):
    """The answers to a question."""

    question: str  # in words
    paper: float | None  # the printed number, if any
    seeds: Sequence[float]  # our runs' values
    yours: Mapping[str, float]  # by run


@style()
def strips(rows: Sequence[Strip]) -> Figure:
    """Return a figure with a strip for each question: our runs, the paper's number, your runs."""
    figure = Figure(figsize=(WIDTH, STRIP * len(rows) + 0.7), layout="constrained")
    axes = figure.subplots(len(rows), 1, squeeze=False)
    for ax, row in zip(axes[:, 0], rows, strict=True):
        ax.plot([0, 1], [0, 0], " ")  # all of these are on the strip
        ax.plot(row.seeds, [0] * len(row.seeds), "|", color=FAINT, markersize=9, label="our runs")
        if row.paper is not None:
            ax.plot(row.paper, 0, "D", color=INK, fillstyle="none", label="the paper")
        for run, value in row.yours.items():
            ax.plot(value, 0, "o", color=YOURS, label="your runs, by number")
            ax.annotate(run, (value, 0), (0, 4), textcoords="offset points", ha="center", size=7)
        ax.margins(x=0.06)
        ax.set(ylim=(-0.6, 0.9), yticks=[])
        ax.spines["left"].set_visible(False)
    name_grid(axes, [row.question for row in rows], [], ("normal", "normal"))
    legend_below(figure)
    return figure


@style()
def first_layers(attention: Mapping[str, NDArray[Any]], layout: Layout) -> Figure:
    """Return maps of the first layer's attention, runs (rows) by heads (columns).

    `attention` has the mean of each run, `[head, query, key]`.
    """
    n_heads = len(next(iter(attention.values())))
    height = 2.0 * len(attention) + 0.9
    figure = Figure(figsize=(min(WIDTH, 2.4 * n_heads), height), layout="constrained")
    rows = {f"run {run}": patterns for run, patterns in attention.items()}
    heads = [f"head 0:{head}" for head in range(n_heads)]
    map_grid(figure, rows, heads, layout, query_marks(layout))
    return figure
