"""Runs of your own beside ours: a strip for each question, and the first layer's attention."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from carry_core.sums import Layout
from carry_paper.plots.attention import attention_bar, attention_map, number_marks, query_marks
from carry_paper.plots.style import CLASS_COLOURS, FAINT, INK, WIDTH, name_grid, style

STRIP = 0.42  # inches: the height of a strip
YOURS = CLASS_COLOURS[3]
MARGIN = 0.06  # beyond the ends of a strip, as a share of it


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
        ax.plot(row.seeds, np.zeros(len(row.seeds)), "|", color=FAINT, markersize=9, alpha=0.6)
        if row.paper is not None:
            ax.plot([row.paper], [0], "D", color=INK, markersize=5, fillstyle="none")
        for run, value in row.yours.items():
            ax.plot([value], [0], "o", color=YOURS, markersize=5, alpha=0.9)
            ax.annotate(run, (value, 0), (0, 4), textcoords="offset points", ha="center", size=7)
        values = [*row.seeds, *row.yours.values(), 0.0, 1.0]
        if row.paper is not None:
            values.append(row.paper)
        low, high = min(values), max(values)
        beyond = MARGIN * (high - low)
        ax.set(xlim=(low - beyond, high + beyond), ylim=(-0.6, 0.9), yticks=[])
        ax.spines["left"].set_visible(False)
    name_grid(axes, [row.question for row in rows], [], ("normal", "normal"))
    marks: list[tuple[str, dict[str, Any]]] = [
        ("our runs", {"marker": "|", "color": FAINT}),
        ("the paper", {"marker": "D", "color": INK, "fillstyle": "none"}),
        ("your runs, by number", {"marker": "o", "color": YOURS}),
    ]
    entries = [Line2D([], [], linestyle="", label=label, **look) for label, look in marks]
    figure.legend(handles=entries, loc="outside lower center", ncols=3)
    return figure


@style()
def first_layers(attention: Mapping[str, NDArray[Any]], layout: Layout) -> Figure:
    """Return maps of the first layer's attention, runs (rows) by heads (columns).

    `attention` has the mean of each run, `[head, query, key]`.
    """
    n_heads = len(next(iter(attention.values())))
    height = 2.0 * len(attention) + 0.9
    figure = Figure(figsize=(min(WIDTH, 2.4 * n_heads), height), layout="constrained")
    axes = figure.subplots(len(attention), n_heads, squeeze=False)
    keys, queries = number_marks(layout), query_marks(layout)
    for row, patterns in zip(axes, attention.values(), strict=True):
        for head, ax in enumerate(row):
            attention_map(ax, patterns[head], {} if head else queries, keys)
    names = [f"run {run}" for run in attention]
    name_grid(axes, names, [f"head 0:{head}" for head in range(n_heads)])
    attention_bar(figure, axes)
    return figure
