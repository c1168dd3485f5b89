"""Parts of the last layer that hold the carry-in and the digit sum, run by run."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure, SubFigure

from carry_paper.plots.hover import name_cells, name_dots
from carry_paper.plots.sides import AUTHORS, OURS
from carry_paper.plots.style import (
    ACCURACY,
    CLASS_COLOURS,
    FAINT,
    INK,
    WIDTH,
    colour_bar,
    with_data,
    write_numbers,
)

# Columns of `typology.who_decides` and what they are called under a map.
CARRY_IN = {
    "earlier": "enters",
    "one head": "best head",
    "heads together": "attention",
    "final MLP": "MLP",
    "past the MLP": "past it",
}
# The same of the digit sum.
DIGIT_SUM = {
    "enters, digit sum": "enters",
    "attention, digit sum": "attention",
    "MLP, digit sum": "MLP",
    "past the MLP, digit sum": "past it",
}
COLUMNS = [*CARRY_IN, *DIGIT_SUM]
LABELS = [*CARRY_IN.values(), "", *DIGIT_SUM.values()]
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

    Args:
        figure: The place for the map.
        frame: The frame of `typology.who_decides`.
        links: The links of cells, by a column of the frame and a run.
    """
    import seaborn as sns

    ax = figure.subplots()
    look: dict[str, Any] = {"vmin": 0, "vmax": 1, "cmap": ACCURACY, "annot": True, "fmt": ".2f"}
    table = frame[list(PARTS)].rename(columns=PARTS, index="run {}".format)
    sns.heatmap(table, ax=ax, cbar=False, linewidths=1, **look)
    cells = ax.collections[0]
    assert isinstance(cells, QuadMesh)
    columns = [name.replace("\n", " ") for name in PARTS.values()]
    addresses = []
    if links:
        addresses = [links.get((part, str(run)), "") for run in frame.index for part in PARTS]
    name_cells(cells, list(table.index), columns, addresses)
    write_numbers(ax)
    ax.tick_params(length=0, rotation=0)
    ax.set(xlabel="", ylabel="")
    colour_bar(figure, ax, ACCURACY, "interchange accuracy of the carry-in")


@with_data
def group_maps(
    frames: Mapping[str, Mapping[str, pd.DataFrame]], names: Mapping[str, str]
) -> Figure:
    """Return a figure with a map for each group and side, a row for each run.

    Args:
        frames: By group and side, the interchange accuracies of each run (`COLUMNS`), and
            whether it works as the paper's model does (`same`).
        names: The name of each group.
    """
    sides = [side for side in (AUTHORS, OURS) if any(side in group for group in frames.values())]
    figure = Figure(figsize=(WIDTH, 0.29 * len(frames) + 1.4), layout="constrained")
    axes = figure.subplots(len(frames), len(sides), squeeze=False)
    for (group, frame_by_side), row in zip(frames.items(), axes, strict=True):
        row[0].set_ylabel(names[group], rotation=0, ha="right", va="center", fontsize=7.5)
        for side, ax in zip(sides, row, strict=True):
            ax.set(xticks=[], yticks=[], frame_on=False)
            if side in frame_by_side:
                _draw_runs(ax, frame_by_side[side])
            else:
                text = "not released" if side == AUTHORS else "no map"
                ax.text(0.5, 0.4, text, ha="center", transform=ax.transAxes)
    for side, ax in zip(sides, axes[0], strict=True):
        ax.set_title(f"{side}\n", weight="bold")
        ax.text(0.25, 1.06, "carry-in", ha="center", va="bottom", transform=ax.transAxes)
        ax.text(0.8, 1.06, "digit sum", ha="center", va="bottom", transform=ax.transAxes)
    for ax in axes[-1]:
        centres = np.arange(len(LABELS)) + 0.5
        ax.set_xticks(centres, LABELS, rotation=60, ha="right", rotation_mode="anchor")
        ax.tick_params(length=0)
    colour_bar(figure, axes, ACCURACY, "interchange accuracy")
    return figure


def _draw_runs(ax: Axes, frame: pd.DataFrame) -> None:
    """Draw a group's runs: the carry-in's parts, a gap, the digit sum's; and how many agree."""
    table = np.insert(frame[COLUMNS].to_numpy(), len(CARRY_IN), np.nan, axis=1)
    cells = ax.pcolormesh(table, cmap=ACCURACY, vmin=0, vmax=1, edgecolors="white", linewidth=0.4)
    columns = [f"carry-in, {name}" for name in CARRY_IN.values()]
    columns += ["", *(f"digit sum, {name}" for name in DIGIT_SUM.values())]
    name_cells(cells, [f"run {run}" for run in frame.index], columns)
    ax.set(ylim=(len(table), 0), xlim=(0, len(LABELS)))
    text = f"{frame.same.sum()} of {len(frame)}"
    ax.text(len(LABELS) + 0.2, len(table) / 2, text, va="center")


def draw_costs(figure: SubFigure, frame: pd.DataFrame, limits: tuple[float, float]) -> None:
    """Draw a point for each run: the `cost` of its decision head and its `separation` by the axis.

    Each point's number stands left of it; numbers of points that lie together are joined.

    Args:
        figure: The figure.
        frame: A row for each run.
        limits: The criterion of each.
    """
    ax = figure.subplots()
    dashes = (0, (4, 3))
    ax.axvline(limits[0], color=FAINT, linewidth=0.8, linestyle=dashes)
    ax.axhline(limits[1], color=FAINT, linewidth=0.8, linestyle=dashes)
    look: dict[str, Any] = {"s": 36, "color": CLASS_COLOURS[0], "edgecolors": INK}
    dots = ax.scatter(frame.cost, frame.separation, clip_on=False, **look)
    values = zip(frame.index, frame.cost, frame.separation, strict=True)
    name_dots(dots, [f"run {run}: cost {x:.2f}, separation {y:.2f}" for run, x, y in values])
    for _, near in frame.groupby([frame.cost.round(1), frame.separation.round(1)]):
        point = (near.cost.min(), near.separation.mean())
        beside: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "va": "center"}
        ax.annotate(", ".join(near.index), point, (-6, 0), fontsize=9, **beside)
    ax.set(xlim=(0, 1), ylim=(0.5, 1.03))
    ax.set(xlabel="cost of the decision head", ylabel="separation by the axis")
