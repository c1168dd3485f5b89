"""Digits under an ablation: a bar for each run (Tab. 1, 3, 4, 5)."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from carry_paper.plots.hover import VALUE
from carry_paper.plots.sides import AUTHORS, OURS, SIDE
from carry_paper.plots.style import (
    CORRECT,
    INK,
    TOO_LARGE,
    TOO_SMALL,
    WIDTH,
    WRONG,
    name_grid,
    position_label,
    with_data,
)

OUTCOMES = {
    "correct": CORRECT,
    "one too large (no carry-in)": TOO_LARGE,
    "one too small (carry-in)": TOO_SMALL,
    "otherwise wrong": WRONG,
}
WORDS = {
    CORRECT: "correct",
    TOO_LARGE: "one too large",
    TOO_SMALL: "one too small",
    WRONG: "otherwise wrong",
}
PAPER: dict[str, Any] = {"color": "black", "linewidth": 1.3, "linestyle": (0, (2.5, 1.2))}
MOST_NUMBERED = 4  # columns of panels below which the numbers of all runs have room
MOST_ABREAST = 6  # columns of panels below which names of two words, and of two sides, have room
NAMED_PANEL = 1.7  # width of the first of many panels, which has the names of the rows, in panels
VISIBLE = 0.002  # smaller parts of a bar are not drawn, which keeps the page light
SHORT_NAMES = {AUTHORS: "author’s", OURS: "ours"}
RUN_OF = {AUTHORS: "author’s run", OURS: "our run"}


Links = Mapping[tuple[str, str], str]
# The two kinds of digits, as they are called in a frame of `by_carry_in`.
CARRY_INS = ["carry-in", "no carry-in"]


def by_carry_in(cells: pd.DataFrame, part: str = "ablation") -> pd.DataFrame:
    """Return means of `accuracy`'s cells by `part` and run, with and without a carry-in.

    Positions that never have a carry-in are left out.
    """
    cells = cells[cells.groupby("position").carry_in.transform("any")]
    groups = cells.groupby(["carry_in", part, "run"], as_index=False, sort=False, observed=True)
    means = groups[["accuracy", "corrected"]].mean()
    with_carry_in, without = CARRY_INS
    means["carry_in"] = means.carry_in.map({True: with_carry_in, False: without})
    return means.sort_values("carry_in", kind="stable")


def labelled(cells: pd.DataFrame, part: str, labels: Mapping[str, str] | None) -> pd.DataFrame:
    """Return the cells whose `part` has a label, with the label, in the labels' order; or all."""
    if labels is None:
        return cells.astype({part: str})
    cells = cells[cells[part].isin(labels)]
    places = cells[part].astype(str).map({name: place for place, name in enumerate(labels)})
    in_order = cells.iloc[places.to_numpy().argsort(kind="stable")]
    return in_order.assign(**{part: in_order[part].astype(str).map(labels)})


def carry_bars(
    sides: Mapping[str, pd.DataFrame],
    part: str = "ablation",
    labels: Mapping[str, str] | None = None,
    links: Links | None = None,
) -> Figure:
    """Return a figure of digits with a carry-in, and below of the others, run by run.

    Args:
        sides: `accuracy`'s cells by source, with the number of the `run`.
        part: The column that says what is ablated, a column of the figure for each.
        labels: The parts that are drawn, in their order, and what they are called; all as
            they are if None.
        links: The links of our bars, by the name of the part in the cells and by run.
    """
    means = {
        side: by_carry_in(labelled(cells, part, labels), part) for side, cells in sides.items()
    }
    return _bars_by_part(means, part, _with_labels(links, labels))


def cell_bars(
    sides: Mapping[str, pd.DataFrame],
    part: str = "ablation",
    labels: Mapping[str, str] | None = None,
    links: Links | None = None,
) -> Figure:
    """Return a figure of every cell, run by run: classes by parts and positions (Tab. 1, 3, 4, 5).

    Cells with a carry-in are framed. The arguments are those of `carry_bars`; as `paper`,
    `sides` may have the printed cells.
    """
    tables = {side: labelled(cells, part, labels) for side, cells in sides.items()}
    n_columns = len(pd.concat(tables.values())[[part, "position"]].drop_duplicates())
    titled = {}
    for side, table in tables.items():
        names = table[part].str.replace(" ", "\n") if n_columns > MOST_ABREAST else table[part]
        titled[side] = table.assign(column=names + "\n" + table.position.map(position_label))
    return _bars_by_cell(titled, part, _with_labels(links, labels))


def _with_labels(links: Links | None, labels: Mapping[str, str] | None) -> Links:
    """Return links by the label of a part, which the figure has in place of its name."""
    return {((labels or {}).get(name, name), run): to for (name, run), to in (links or {}).items()}


@with_data
def _bars_by_part(sides: Mapping[str, pd.DataFrame], part: str, links: Links) -> Figure:
    """Return a figure with a panel for each part, of digits with a carry-in above the others.

    The built page puts the panels below each other where there is no room beside.
    """
    all_cells = pd.concat(sides.values())
    rows, names = all_cells["carry_in"].unique(), all_cells[part].unique()
    runs = _runs_of(sides)
    figure = Figure(figsize=(WIDTH, 0.95 * len(rows) + 0.9), layout="constrained")
    has_room = len(names) <= MOST_NUMBERED
    # Where rows are named once, the first panel has their names beside its bars.
    widths = [1.0 if has_room else NAMED_PANEL] + [1.0] * (len(names) - 1)
    panels = figure.subfigures(1, len(names), squeeze=False, width_ratios=widths)[0]
    look: dict[str, Any] = {"loc": "outside lower center", "columnspacing": 0.8, "fontsize": 7.5}
    handles = [Patch(color=colour, label=text) for colour, text in WORDS.items()]
    for i, (panel, name) in enumerate(zip(panels, names, strict=True)):
        axes = panel.subplots(len(rows), 1, squeeze=False)
        for (row, _), ax in np.ndenumerate(axes):
            ax.label_outer()
            cells = {
                side: frame[(frame.carry_in == rows[row]) & (frame[part] == name)]
                for side, frame in sides.items()
            }
            wrong = TOO_SMALL if rows[row] == CARRY_INS[0] else TOO_LARGE
            bars_of_runs = _bars(ax, cells, runs, (CORRECT, wrong, WRONG), has_room=has_room)
            _link(bars_of_runs, name, links)
        _name_sides(axes[-1, 0], runs, abreast=has_room)
        is_named = has_room or i == 0
        title = name if len(names) == 2 else name.replace(" ", "\n", 1)
        name_grid(axes, rows if is_named else [""] * len(rows), [title], ("bold", "normal"))
        if has_room:
            panel.legend(handles=handles, ncols=2, handlelength=1.0, **look)
            panel.set_gid(f"{SIDE}{i}")
    if not has_room:
        figure.legend(handles=handles, ncols=len(handles), **look)
    return figure


def _link(drawn: Mapping[str, Mapping[str, list[Rectangle]]], name: str, links: Links) -> None:
    """Give our bars of a part the links of their runs."""
    for run, bars in drawn.get(OURS, {}).items():
        for bar in bars:
            bar.set_url(links.get((name, run)))


def _runs_of(sides: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Return the numbers of all runs of each side."""
    return {side: cells.run.astype(str).unique() for side, cells in sides.items()}


@with_data
def _bars_by_cell(sides: Mapping[str, pd.DataFrame], part: str, links: Links) -> Figure:
    """Return a figure with a panel of bars for each carry class and `column`.

    They show the share of digits that are correct (`accuracy`), off by exactly one
    (`corrected`: without a carry-in one too large, with one too small), and otherwise wrong.
    """
    measured = {side: cells for side, cells in sides.items() if side != "paper"}
    all_cells = pd.concat(measured.values())
    rows, columns = all_cells["carry_class"].unique(), all_cells["column"].unique()
    runs = _runs_of(measured)
    figure = Figure(figsize=(WIDTH, 0.7 * len(rows) + 0.9), layout="constrained")
    # All panels get the same limits. If they shared them, each bar would go through all panels.
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for (i, j), ax in np.ndenumerate(axes):
        ax.label_outer()
        panel = {}
        for side, cells in sides.items():
            panel[side] = cells[(cells.carry_class == rows[i]) & (cells.column == columns[j])]
        for y in panel.pop("paper", all_cells[:0]).accuracy:
            ax.axhline(y, **PAPER, clip_on=False)
        has_carry_in = any(bool(cells.carry_in.any()) for cells in panel.values())
        colours = (CORRECT, TOO_SMALL if has_carry_in else TOO_LARGE, WRONG)
        drawn = _bars(ax, panel, runs, colours, has_room=len(columns) <= MOST_NUMBERED)
        of_column = all_cells[all_cells.column == columns[j]]
        _link(drawn, of_column[part].iloc[0], links)
        if i == len(rows) - 1:
            _name_sides(ax, runs, abreast=len(columns) <= MOST_ABREAST)
        if has_carry_in:
            ax.spines[:].set(visible=True, linewidth=2, color=INK)
    name_grid(axes, rows, columns, ("bold", "normal"))
    entries: list[Any] = [Patch(color=colour, label=text) for text, colour in OUTCOMES.items()]
    entries += [Line2D([], [], **PAPER, label="correct, in the paper")] if "paper" in sides else []
    figure.legend(
        handles=entries, loc="outside lower center", ncols=5, columnspacing=1.2, handlelength=1.2
    )
    return figure


# The names of outcomes in a frame of interventions, and their colours.
INTERVENED = {
    "right": CORRECT,
    "one too large": TOO_LARGE,
    "one too small": TOO_SMALL,
    "other": WRONG,
}


def intervention_bars(
    figure: SubFigure,
    frame: pd.DataFrame,
    parts: Sequence[str],
    interventions: Sequence[str],
    links: Links | None = None,
) -> None:
    """Draw parts (rows) by interventions (columns), with a bar for each run.

    `frame` has for each `run`, part (`component`), `intervention` and `carry_in` the share of each
    outcome of `INTERVENED`. A bar is their mean: half of its digits have a carry-in. `links` have
    the address of a bar by the intervention and the run.
    """
    axes = figure.subplots(len(parts), len(interventions), sharex=True, sharey=True, squeeze=False)
    keys = ["component", "intervention", "run"]
    shares = frame.groupby(keys)[[*INTERVENED]].mean()
    numbers = sorted(frame.run.unique())
    for (i, j), ax in np.ndenumerate(axes):
        cells = shares.loc[parts[i], interventions[j]].reindex(numbers)
        below = np.zeros(len(cells))
        for outcome, colour in INTERVENED.items():
            bars = ax.bar(range(len(cells)), cells[outcome], 0.8, bottom=below, color=colour)
            bars.set_label(outcome)
            below += cells[outcome].to_numpy()
            for bar, run in zip(bars, numbers, strict=True):
                share = bar.get_height()
                bar.set_gid(f"{VALUE}run {run}: {outcome} {share:.2f}")
                bar.set_url((links or {}).get((interventions[j], str(run))))
                if share <= VISIBLE:
                    bar.remove()
        title = interventions[j] if len(parts) == 1 else f"{parts[i]}: {interventions[j]}"
        ax.set(title=title, ylim=(0, 1), yticks=[0, 0.5, 1])
        ax.set_xticks(range(len(numbers)), numbers)
        ax.tick_params(length=0)
    axes[-1, 0].set_xlabel("run", loc="left")


def intervention_legend() -> list[Patch]:
    """Return the entries of the legend of `intervention_bars`."""
    labels = ("correct", "too large", "too small", "other")
    return [
        Patch(color=colour, label=label)
        for label, colour in zip(labels, INTERVENED.values(), strict=True)
    ]


def _bars(
    ax: Axes,
    sides: Mapping[str, pd.DataFrame],
    runs: Mapping[str, Any],
    colours: Sequence[str],
    *,
    has_room: bool,
) -> dict[str, dict[str, list[Rectangle]]]:
    """Draw the runs of each side, with a gap between sides; blank where nothing was measured.

    `colours` are those of correct digits, of those off by one, and of the others. With `has_room`,
    each run's number is below its bar. Returns the bars by side and run.
    """
    gap = pd.DataFrame(index=[""])
    blocks: list[pd.DataFrame] = []
    sides_of_bars: list[str] = []
    start = 0
    for side, cells in sides.items():
        by_run = cells.set_index(cells.run.astype(str))[["accuracy", "corrected"]]
        shares = by_run.reindex(runs[side])
        shares = shares.assign(wrong=1 - shares.sum(axis=1, skipna=False))
        blocks += [shares, gap]
        sides_of_bars += [side] * len(shares) + [""]
        start += len(shares) + 1
    bars = pd.concat(blocks[:-1])
    n_bars = len(bars)
    below = np.zeros(n_bars)
    # `DataFrame.plot` would look at all panels for each of them: seconds where there are thirty.
    for (kind, heights), colour in zip(bars.fillna(0.0).items(), colours, strict=True):
        ax.bar(range(n_bars), heights, 0.86, bottom=below, color=colour, label=kind)
        below += heights
    ax.set_xticks(range(n_bars), bars.index)
    words = [WORDS[colour] for colour in colours]
    drawn: dict[str, dict[str, list[Rectangle]]] = {}
    for i, bar in enumerate(cast(list[Rectangle], [*ax.patches])):
        share = bar.get_height()
        if share > VISIBLE:
            side, run = sides_of_bars[i % n_bars], bars.index[i % n_bars]
            bar.set_gid(f"{VALUE}{RUN_OF.get(side, side)} {run}: {words[i // n_bars]} {share:.2f}")
            drawn.setdefault(side, {}).setdefault(str(run), []).append(bar)
        else:
            bar.remove()
    ax.set(xlim=(-0.6, start - 1.4), ylim=(0, 1), yticks=[0, 0.5, 1], xlabel="")
    ax.tick_params(which="both", length=0, pad=2)
    ax.set_xticks(*_named_bars([str(run) for run in bars.index], has_room))
    return drawn


def _name_sides(ax: Axes, runs: Mapping[str, Any], *, abreast: bool) -> None:
    """Name the sides below their bars; if they are not abreast, each in a line of its own."""
    start = 0
    for line, (side, numbers) in enumerate(runs.items()):
        place = (0, -13 if abreast else -13 - 10 * line)
        ax.annotate(
            SHORT_NAMES.get(side, side),
            (start + (len(numbers) - 1) / 2, 0),
            xytext=place,
            textcoords="offset points",
            size=8,
            ha="center",
            va="top",
        )
        start += len(numbers) + 1


def _named_bars(runs: Sequence[str], has_room: bool) -> tuple[list[int], list[str]]:
    """Return the places and names of the bars that are named: all, or each side's first and last.

    A run without a name (``) is the gap between two sides.
    """
    places = []
    for i, run in enumerate(runs):
        is_at_an_end = i in (0, len(runs) - 1) or not runs[i - 1] or not runs[i + 1]
        if run and (has_room or is_at_an_end):
            places.append(i)
    return places, [runs[i] for i in places]
