"""Digits under an ablation: a bar for each run (Tab. 1, 3, 4, 5)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from carry_paper.plots.hover import name_bars
from carry_paper.plots.sides import AUTHORS, OURS
from carry_paper.plots.style import (
    INK,
    OUTCOMES,
    WIDTH,
    legend_below,
    name_grid,
    parts_beside,
    position_label,
    with_data,
)

PAPER: dict[str, Any] = {"color": "black", "linewidth": 1.3, "linestyle": (0, (2.5, 1.2))}
MOST_NUMBERED = 4  # columns of panels below which the numbers of all runs have room
MOST_ABREAST = 6  # columns of panels below which names of two words, and of two sides, have room
NAMED_PANEL = 1.7  # width of the first of many panels, which has the names of the rows, in panels
VISIBLE = 0.002  # smaller parts of a bar are not drawn, which keeps the page light
SHORT_NAMES = {AUTHORS: "author’s", OURS: "ours"}
RUN_OF = {AUTHORS: "author’s run", OURS: "our run"}

Links = Mapping[tuple[str, str], str]
Labels = Mapping[str, str]
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


def labelled(cells: pd.DataFrame, part: str, labels: Labels | None) -> pd.DataFrame:
    """Return the cells whose `part` has a label, with the label, in the labels' order; or all."""
    cells = cells.astype({part: str})
    if labels is None:
        return cells
    cells = cells[cells[part].isin(labels)]
    in_order = cells.iloc[cells[part].map([*labels].index).argsort(kind="stable")]
    return in_order.assign(**{part: in_order[part].map(labels)})


def carry_bars(
    sides: Mapping[str, pd.DataFrame],
    part: str = "ablation",
    labels: Labels | None = None,
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
    labels: Labels | None = None,
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


def _with_labels(links: Links | None, labels: Labels | None) -> Links:
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
    has_room = len(names) <= MOST_NUMBERED
    figure = Figure(figsize=(WIDTH, 0.95 * len(rows) + 0.9), layout="constrained")
    if has_room:
        parts = parts_beside(figure, len(names))
    else:  # the first panel has the names of the rows beside its bars
        widths = [NAMED_PANEL] + [1.0] * (len(names) - 1)
        parts = figure.subfigures(1, len(names), squeeze=False, width_ratios=widths)[0]
    for i, (figure_part, name) in enumerate(zip(parts, names, strict=True)):
        axes = figure_part.subplots(len(rows), 1, squeeze=False)
        for row, ax in zip(rows, axes[:, 0], strict=True):
            cells = {
                side: frame[(frame.carry_in == row) & (frame[part] == name)]
                for side, frame in sides.items()
            }
            _bars(ax, cells, runs, _links_of(links, name), has_room=has_room)
        _name_sides(axes[-1, 0], runs, abreast=has_room)
        is_named = has_room or i == 0
        title = name if len(names) == 2 else name.replace(" ", "\n", 1)
        name_grid(axes, rows if is_named else [""] * len(rows), [title], ("bold", "normal"))
    for with_legend in parts if has_room else [figure]:
        legend_below(with_legend, ncols=2 if has_room else 4, handlelength=1.0, fontsize=7.5)
    return figure


@with_data
def _bars_by_cell(sides: Mapping[str, pd.DataFrame], part: str, links: Links) -> Figure:
    """Return a figure with a panel of bars for each carry class and `column`.

    They show the share of digits that are correct (`accuracy`), off by exactly one
    (`corrected`: without a carry-in one too large, with one too small), and all others.
    """
    measured = {side: cells for side, cells in sides.items() if side != "paper"}
    all_cells = pd.concat(measured.values())
    rows, columns = all_cells["carry_class"].unique(), all_cells["column"].unique()
    parts = all_cells.groupby("column")[part].first()
    runs = _runs_of(measured)
    figure = Figure(figsize=(WIDTH, 0.7 * len(rows) + 0.9), layout="constrained")
    # All panels get the same limits. If they shared them, each bar would go through all panels.
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for (i, j), ax in np.ndenumerate(axes):
        panel = {}
        for side, cells in sides.items():
            panel[side] = cells[(cells.carry_class == rows[i]) & (cells.column == columns[j])]
        for y in panel.pop("paper", all_cells[:0]).accuracy:
            ax.axhline(y, **PAPER, clip_on=False, label="correct, in the paper")
        of_part = _links_of(links, parts[columns[j]])
        _bars(ax, panel, runs, of_part, has_room=len(columns) <= MOST_NUMBERED)
        if i == len(rows) - 1:
            _name_sides(ax, runs, abreast=len(columns) <= MOST_ABREAST)
        if any(cells.carry_in.any() for cells in panel.values()):
            ax.spines[:].set(visible=True, linewidth=2, color=INK)
    name_grid(axes, rows, columns, ("bold", "normal"))
    legend_below(figure, handlelength=1.2)
    return figure


def intervention_bars(
    figure: SubFigure,
    frame: pd.DataFrame,
    parts: Sequence[str],
    interventions: Sequence[str],
    links: Links | None = None,
) -> None:
    """Draw parts (rows) by interventions (columns), with a bar for each run.

    `frame` has for each `run`, part (`component`), `intervention` and `carry_in` the share of each
    outcome: `right`, `one too large`, `one too small`, `other`. A bar is their mean: half of its
    digits have a carry-in. `links` have the address of a bar by the intervention and the run.
    """
    axes = figure.subplots(len(parts), len(interventions), sharex=True, sharey=True, squeeze=False)
    keys = ["component", "intervention", "run"]
    shares = frame.rename(columns={"right": "correct"}).groupby(keys)[[*OUTCOMES]].mean()
    numbers = sorted(frame.run.unique())
    for (i, j), ax in np.ndenumerate(axes):
        cells = shares.loc[parts[i], interventions[j]].reindex(numbers)
        _stack(ax, 0, cells, "run", _links_of(links or {}, interventions[j]))
        title = interventions[j] if len(parts) == 1 else f"{parts[i]}: {interventions[j]}"
        ax.set(title=title, ylim=(0, 1), yticks=[0, 0.5, 1])
        ax.set_xticks(range(len(numbers)), numbers)
        ax.tick_params(length=0)
    axes[-1, 0].set_xlabel("run", loc="left")


def _runs_of(sides: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Return the numbers of all runs of each side."""
    return {side: cells.run.astype(str).unique() for side, cells in sides.items()}


def _links_of(links: Links, name: str) -> dict[str, str]:
    """Return the links of a part's bars, by run."""
    return {run: address for (part, run), address in links.items() if part == name}


def _bars(
    ax: Axes,
    sides: Mapping[str, pd.DataFrame],
    runs: Mapping[str, Any],
    links: Mapping[str, str],
    *,
    has_room: bool,
) -> None:
    """Draw the runs of each side, with a gap between sides; blank where nothing was measured.

    With `has_room`, each run's number is below its bar, else that of each side's first and last.
    `links` are those of our bars.
    """
    start = 0
    numbers = {}
    for side, cells in sides.items():
        by_run = cells.set_index(cells.run.astype(str)).reindex(runs[side])
        has_carry_in = by_run.carry_in.isin([True, CARRY_INS[0]])
        shares = pd.DataFrame({"correct": by_run.accuracy})
        shares["one too large"] = by_run.corrected.mask(has_carry_in, 0)
        shares["one too small"] = by_run.corrected.where(has_carry_in, 0)
        shares["other"] = 1 - by_run.accuracy - by_run.corrected
        _stack(ax, start, shares, RUN_OF.get(side, side), links if side == OURS else {})
        for i, run in enumerate(shares.index):
            if has_room or i in (0, len(shares) - 1):
                numbers[start + i] = run
        start += len(shares) + 1
    ax.set(xlim=(-0.6, start - 1.4), ylim=(0, 1), yticks=[0, 0.5, 1])
    ax.set_xticks([*numbers], [*numbers.values()])
    ax.tick_params(length=0, pad=2)
    ax.label_outer()


def _stack(
    ax: Axes, start: int, shares: pd.DataFrame, owner: str, links: Mapping[str, str]
) -> None:
    """Draw a bar for each run, the rows of `shares`, with its outcomes on top of each other."""
    below = np.zeros(len(shares))
    for (outcome, heights), colour in zip(shares.fillna(0).items(), OUTCOMES.values(), strict=True):
        places = range(start, start + len(shares))
        bars = ax.bar(places, heights, 0.86, bottom=below, color=colour, label=outcome)
        below += heights.to_numpy()
        names = [f"{owner} {run}: {outcome} {height:.2f}" for run, height in heights.items()]
        name_bars(bars, names)
        for bar, (run, height) in zip(bars, heights.items(), strict=True):
            bar.set_url(links.get(str(run)))
            if height <= VISIBLE:
                bar.remove()


def _name_sides(ax: Axes, runs: Mapping[str, Any], *, abreast: bool) -> None:
    """Name the sides below their bars; if they are not abreast, each in a line of its own."""
    start = 0
    for line, (side, numbers) in enumerate(runs.items()):
        middle = start + (len(numbers) - 1) / 2
        below = -13 if abreast else -13 - 10 * line
        look: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "top"}
        ax.annotate(SHORT_NAMES.get(side, side), (middle, 0), (0, below), size=8, **look)
        start += len(numbers) + 1
