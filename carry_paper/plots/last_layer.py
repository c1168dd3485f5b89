"""Parts of the last layer that hold the carry-in and the digit sum, run by run."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import SubFigure

from carry_paper.plots.hover import name_cells, name_dots
from carry_paper.plots.style import ACCURACY, CLASS_COLOURS, DASHED, INK, colour_bar, number_map

# The columns of one figure for one group.
PARTS = {
    "one head": "best head\nalone",
    "heads together": "whole\nattention",
    "earlier": "stream that\nenters",
    "final MLP": "final\nMLP",
    "past the MLP": "past the\nfinal MLP",
}


def draw_parts(
    figure: SubFigure, frame: pd.DataFrame, links: Mapping[tuple[str, str], str] | None = None
) -> None:
    """Draw the interchange accuracy of the carry-in: a row for each run, a column for each part.

    `frame` is that of `typology.who_decides`; `links` are by one of its columns and a run.
    """
    ax = figure.subplots()
    table = frame[list(PARTS)].rename(columns=PARTS, index="run {}".format)
    cells = number_map(ax, table)
    addresses = []
    if links:
        addresses = [links.get((part, str(run)), "") for run in frame.index for part in PARTS]
    columns = [name.replace("\n", " ") for name in PARTS.values()]
    name_cells(cells, list(table.index), columns, addresses)
    colour_bar(figure, ax, ACCURACY, "interchange accuracy of the carry-in")


def draw_groups(figure: SubFigure, counts: pd.DataFrame) -> None:
    """Draw in how many runs of each group (rows) something is so (columns).

    `counts` has all `runs` of the group in a column of their own, NaN for a group without runs.
    """
    ax = figure.subplots()
    shares = counts.drop(columns="runs")
    words = (
        shares.map("{:.0f}".format) + counts["runs"].map(" of {:.0f}".format).to_numpy()[:, None]
    )
    shares = shares.div(counts["runs"], axis=0)
    shares.columns = shares.columns.str.replace(" ", "\n")
    number_map(ax, shares, words)
    ax.tick_params(labeltop=True, labelbottom=False, labelsize=6.5)
    for place in np.flatnonzero(counts["runs"].isna()):
        ax.text(shares.shape[1] / 2, place + 0.5, "not released", ha="center", va="center")


def draw_costs(figure: SubFigure, frame: pd.DataFrame, limits: tuple[float, float]) -> None:
    """Draw a point for each run: the `cost` of its decision head and its `separation` by the axis.

    Each point's number stands left of it; numbers of points that lie together are joined. `limits`
    has the criterion of each axis.
    """
    ax = figure.subplots()
    ax.axvline(limits[0], **DASHED)
    ax.axhline(limits[1], **DASHED)
    look: dict[str, Any] = {"s": 36, "color": CLASS_COLOURS[0], "edgecolors": INK}
    dots = ax.scatter(frame.cost, frame.separation, clip_on=False, **look)
    name_dots(dots, "run {index}: cost {cost:.2f}, separation {separation:.2f}", frame)
    for _, near in frame.groupby([frame.cost.round(1), frame.separation.round(1)]):
        point = (near.cost.min(), near.separation.mean())
        beside: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "va": "center"}
        ax.annotate(", ".join(near.index), point, (-6, 0), fontsize=9, **beside)
    ax.set(xlim=(0, 1), ylim=(0.5, 1.03))
    ax.set(xlabel="cost of the decision head", ylabel="separation by the axis")
