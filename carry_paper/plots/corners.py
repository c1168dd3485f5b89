"""The corners of a run in the plane of carry and nine, and the place of the nine in many runs."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from carry_paper.findings.corners import STATES
from carry_paper.plots.hover import name_dots
from carry_paper.plots.planes import dots as legend_dots
from carry_paper.plots.style import (
    CLASS_COLOURS,
    DOTTED,
    WIDTH,
    legend_below,
    parts_beside,
    with_data,
)

COLOURS = dict(zip(STATES, (CLASS_COLOURS[i] for i in (0, 1, 4, 3)), strict=True))
LABELS = {
    "low": "less than nine",
    "nine": "nine, without a carry",
    "nine+carry": "nine, with a carry",
    "high": "ten or more",
}
DOTS = 120  # of each state in a panel
ABREAST = 2  # panels on a phone


@with_data
def in_the_plane(runs: Mapping[str, pd.DataFrame]) -> Figure:
    """Return a figure of sums in the plane of carry and nine, a panel for each run.

    `runs` has the rows of `corners.coordinates`, by the title of the panel. The built page has all
    panels in a row, and on a phone two.
    """
    abreast = min(ABREAST, len(runs)) or 1
    figure = Figure(figsize=(WIDTH, 3.1), layout="constrained")
    parts = parts_beside(figure, max(1, -(-len(runs) // abreast)))  # one is empty without a run
    first = None
    for i, (title, rows) in enumerate(runs.items()):
        part, place = parts[i // abreast], i % abreast
        ax = part.add_subplot(1, abreast, place + 1, sharex=first, sharey=first)
        first = first or ax
        _draw_run(ax, rows)
        ax.set(title=title, ylabel="" if place else "towards nine")
        ax.tick_params(labelleft=not place)
    entries = legend_dots([*LABELS.values()], [*COLOURS.values()])
    for part in parts:
        legend_below(part, entries, 2, title="the next column adds to", fontsize=7)
    return figure


def _draw_run(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw the sums of a run, and the mean of each state as a cross."""
    for at in (0, 1):
        ax.axvline(at, **DOTTED)
    for state in STATES:
        of = rows[rows.state == state]
        dots = of.sample(min(DOTS, len(of)), random_state=0)
        look: dict[str, Any] = {"s": 7, "color": COLOURS[state], "alpha": 0.45}
        ax.scatter(dots.carry, dots.nine, linewidths=0, rasterized=True, **look)
        ax.scatter(of.carry.mean(), of.nine.mean(), s=60, marker="P", color=COLOURS[state])
    ax.set(xlabel="towards ≥ 10", xticks=(0, 0.5, 1))


@with_data
def place_by_late_share(runs: pd.DataFrame) -> Figure:
    """Return a figure of the place of the nine by the late share, a dot for each run.

    `runs` has the `name`, `kind`, `late` share and place of the `nine` of each.
    """
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    ax = figure.subplots()
    for colour, (kind, of) in zip(CLASS_COLOURS, runs.groupby("kind", sort=False), strict=False):
        dots = ax.scatter(of.late, of.nine, s=20, color=colour, linewidths=0, label=kind)
        name_dots(dots, "{name}: late {late:.2f}, nine {nine:.2f}", of)
    for at in (0, 1):
        ax.axhline(at, **DOTTED)
    ax.set(xlabel="late share of the carry", ylabel="place of the nine")
    legend_below(figure)
    return figure
