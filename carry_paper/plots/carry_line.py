"""The coordinate along the carry line: its early and late parts, and the late share of all runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from carry_paper.findings.carry_line import WRITTEN_LATE
from carry_paper.plots.hover import name_dots
from carry_paper.plots.style import (
    CLASS_COLOURS,
    DASHED,
    DOTTED,
    FAINT,
    INK,
    WIDTH,
    legend_below,
    with_data,
)

EARLY, LATE = CLASS_COLOURS[0], CLASS_COLOURS[3]
COLOURS = {"author": CLASS_COLOURS[0], "ours": CLASS_COLOURS[3]}  # as in the strips of a box
DASHES = {0: "-", 1: "--"}  # without a carry into the next column, and with one
DIGIT_SUM_TICKS = (0, 4, 9, 14, 18)
MARKERS = {True: "o", False: "X"}  # whether the carry is on one line


def draw_profile(ax: Axes, profile: Sequence[Mapping[str, float | int]]) -> None:
    """Draw a column's coordinate by the digit sum of the next column, early part and late part.

    `profile` has the rows of `carry_line.profile`.
    """
    rows = pd.DataFrame(profile)
    ax.axhline(0, color=FAINT, linewidth=0.5)
    ax.axvline(9, **DOTTED)
    for chain, of in rows.groupby("chain"):
        look: dict[str, Any] = {"linestyle": DASHES[int(chain)]}
        ax.plot(of.digit_sum, of.early, color=EARLY, label="early part", **look)
        ax.plot(of.digit_sum, of.late, color=LATE, label="late part", **look)
        both = of.early + of.late
        ax.plot(of.digit_sum, both, color=INK, linewidth=0.7, label="their sum", **look)
    for chain, label in enumerate(("no carry into the next column", "a carry into it")):
        ax.plot([], [], color=FAINT, linestyle=DASHES[chain], label=label)
    ax.set_xticks(DIGIT_SUM_TICKS)
    ax.set_xlim(-0.5, 18.5)


@with_data
def two_runs(columns: pd.DataFrame) -> Figure:
    """Return a figure of a few columns' coordinates: rows of the stored lines, with a `title`."""
    figure = Figure(figsize=(WIDTH, 3.1), layout="constrained")
    axes = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for ax, column in zip(axes, columns.to_dict("records"), strict=True):
        draw_profile(ax, column["profile"])
        ax.set_title(column["title"])
        ax.set_xlabel("digit sum of the next column")
    axes[0].set_ylabel("coordinate along the line")
    legend_below(figure)
    return figure


@with_data
def late_shares(runs: pd.DataFrame, names: Mapping[str, str]) -> Figure:
    """Return a figure of the late share of all runs, a row of points for each group.

    `runs` has the `group`, `run`, `source`, `late` and `on_line` of each run that has a line.
    """
    in_order = list(runs.groupby("group").late.median().sort_values().index)
    figure = Figure(figsize=(WIDTH, 0.38 * len(in_order) + 1.1), layout="constrained")
    ax = figure.subplots()
    shift = {"author": 0.12, "ours": -0.15}
    for (source, on_line), of in runs.groupby(["source", "on_line"]):
        owner = "author’s" if source == "author" else "our"
        words = f"{owner} runs, {'' if on_line else 'not '}on one line"
        y = of.group.map(in_order.index) + shift[source]
        look: dict[str, Any] = {"color": COLOURS[source], "marker": MARKERS[bool(on_line)]}
        dots = ax.scatter(of.late, y, s=20, linewidths=0, label=words, **look)
        name_dots(dots, f"{{group}}, {owner} run {{run}}: {{late:.2f}}", of)
    for edge in (1 - WRITTEN_LATE, WRITTEN_LATE):
        ax.axvline(edge, **DASHED)
    for y, group in enumerate(in_order):
        ax.text(0.07, y + 0.32, names[group], fontsize=7.5)
    ax.set_yticks([])
    ax.spines.left.set_visible(False)
    ax.set(xlabel="late share", xlim=(-0.02, 1.03), ylim=(-0.6, len(in_order) - 0.4))
    legend_below(figure)
    return figure
