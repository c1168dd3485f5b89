"""The map of settings: in what share of a cell's runs the algorithm is there."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from carry_paper.findings.cell_map import HALF
from carry_paper.plots.style import CLASS_COLOURS, DASHED, FAINT, INK, OPEN, WIDTH, with_data

COLOURS = {
    "holds": CLASS_COLOURS[2],
    "can't tell": FAINT,
    "does not hold": CLASS_COLOURS[3],
    "does not learn": CLASS_COLOURS[4],
}


@with_data
def cells_of_map(rows: pd.DataFrame) -> Figure:
    """Return a figure of the map: a row for each cell, with the share of runs that show it.

    `rows` has, by `factor` and `setting`, the fields of `cell_map.summary`, and `tried` for
    settings that the paper tried.
    """
    by_factor = list(rows.groupby("factor", sort=False))
    heights = [len(of) for _, of in by_factor]
    height = 0.27 * sum(heights) + 0.28 * len(heights) + 0.7
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    for ax, (factor, of) in zip(panels[:, 0], by_factor, strict=True):
        _draw_factor(ax, of.reset_index(drop=True))
        ax.set_title(factor, loc="left", weight="bold")
    panels[-1, 0].set_xlabel("share of the runs that learn", loc="left")
    return figure


def _draw_factor(ax: Axes, cells: pd.DataFrame) -> None:
    """Draw the cells of a factor, each as a dot with its interval and its counts."""
    ax.axvline(HALF, **DASHED)
    for y, cell in cells.iterrows():
        colour = COLOURS[cell.verdict]
        words = f"{cell.show} of {cell.learn}, {cell.verdict}"
        if cell.verdict == "does not learn":
            words = f"{cell.learn} of {cell.runs} learn"
        else:
            ax.hlines(y, cell.low, cell.high, color=colour, linewidth=2)
            face = colour if cell.tried else OPEN
            ax.scatter(cell.show / cell.learn, y, s=30, c=face, edgecolors=colour, zorder=3)
        ax.text(1.05, y, words, va="center", fontsize=7.5, color=INK)
    ax.set_yticks(range(len(cells)), [f"{setting:g}" for setting in cells.setting])
    ax.tick_params(axis="y", length=0)
    # A phone shows the left half, so that is where the dots are.
    ax.set(xlim=(-0.02, 2.1), ylim=(len(cells) - 0.5, -0.5))
    ax.set_xticks([0, 0.5, 1])
    ax.spines.bottom.set_bounds(0, 1)
