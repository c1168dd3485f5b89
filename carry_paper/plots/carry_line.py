"""The coordinate along the carry line: its early and late parts, and the late share of all runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from carry_paper.findings.carry_line import WRITTEN_LATE
from carry_paper.plots.hover import name_dots
from carry_paper.plots.style import CLASS_COLOURS, FAINT, INK, WIDTH, with_data

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
    ax.axvline(9, color=FAINT, linewidth=0.5, linestyle=(0, (1, 2)))
    for chain, of in rows.groupby("chain"):
        dashes = DASHES[int(chain)]
        ax.plot(of.digit_sum, of.early + of.late, color=INK, linewidth=0.7, linestyle=dashes)
        ax.plot(of.digit_sum, of.early, color=EARLY, linestyle=dashes)
        ax.plot(of.digit_sum, of.late, color=LATE, linestyle=dashes)
    ax.set_xticks(DIGIT_SUM_TICKS)
    ax.set_xlim(-0.5, 18.5)


def legend_entries() -> list[Line2D]:
    """Return the entries of a legend for `draw_profile`."""
    entries = []
    for label, colour in (("early part", EARLY), ("late part", LATE), ("their sum", INK)):
        entries.append(Line2D([], [], color=colour, label=label))
    labels = {0: "no carry into the next column", 1: "a carry into it"}
    for chain, label in labels.items():
        entry = Line2D([], [], color=FAINT, label=label)
        entry.set(linestyle=DASHES[chain])
        entries.append(entry)
    return entries


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
    figure.legend(handles=legend_entries(), loc="outside lower center", ncols=5)
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
        y = of.group.map(in_order.index) + shift[source]
        look: dict[str, Any] = {"color": COLOURS[source], "marker": MARKERS[bool(on_line)]}
        dots = ax.scatter(of.late, y, s=20, linewidths=0, **look)
        rows = zip(of.group, of.run, of.late, strict=True)
        owner = "author’s" if source == "author" else "our"
        name_dots(dots, [f"{group}, {owner} run {run}: {late:.2f}" for group, run, late in rows])
    for edge in (1 - WRITTEN_LATE, WRITTEN_LATE):
        ax.axvline(edge, color=FAINT, linewidth=0.8, linestyle=(0, (3, 2)))
    for y, group in enumerate(in_order):
        ax.text(0.07, y + 0.22, names[group], fontsize=7.5)
    ax.set_yticks([])
    ax.spines.left.set_visible(False)
    ax.set(xlabel="late share", xlim=(-0.02, 1.03), ylim=(-0.6, len(in_order) - 0.4))
    entries = []
    for source, label in (("ours", "ours"), ("author", "the author’s")):
        for on_line, words in ((True, "on one line"), (False, "not")):
            entry = Line2D([], [], linestyle="none", label=f"{label}, {words}")
            entry.set(color=COLOURS[source], marker=MARKERS[on_line])
            entries.append(entry)
    figure.legend(handles=entries, loc="outside lower center", ncols=4)
    return figure
