"""The author's side of a figure and ours, drawn by the same code."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Required, TypedDict, Unpack

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray

from carry_paper.plots.style import WIDTH, legend_below, parts_beside, with_data

AUTHORS = "author’s weights"
OURS = "our weights"
IN_A_ROW = 15  # entries of a legend below a whole figure
Arrays = Mapping[str, NDArray[Any]]  # what a figure draws of a side


class Layout(TypedDict, total=False):
    """The layout of a figure's sides.

    Attributes:
        height: The height of a side, in inches.
        stacked: True if the author's side is above ours, not left of it.
        titles: The title of a side, by its name, where that is not the name itself.
        legend: Entries of a legend below all sides; all labels of the panels if there are none.
        link: An address that our panels open, in the built page; None if there is none.
    """

    height: Required[float]
    stacked: bool
    titles: Mapping[str, str]
    legend: Sequence[Artist]
    link: str | None


@with_data
def subfigures(
    sides: Mapping[str, Any],
    draw: Callable[[SubFigure, Any], None],
    **layout: Unpack[Layout],
) -> Figure:
    """Return a figure in which each of some sides, by their names, is drawn by the same code.

    A side's title is its name, with the `run` that its arrays name; or that of `titles`.
    """
    is_stacked = layout.get("stacked", False) or len(sides) == 1
    n_rows = len(sides) if is_stacked else 1
    n_columns = 1 if is_stacked else len(sides)
    figure = Figure(figsize=(WIDTH, layout["height"] * n_rows), layout="constrained")
    beside: list[Any] = [] if is_stacked else parts_beside(figure, n_columns)
    parts = beside or figure.subfigures(n_rows, squeeze=False)[:, 0]
    for part, (name, data) in zip(parts, sides.items(), strict=True):
        part.suptitle(_title(name, data, layout.get("titles")), weight="bold")
        draw(part, data)
        for ax in part.axes if name == OURS else ():
            ax.set_url(layout.get("link"))
    for part in beside or [figure]:
        legend_below(part, layout.get("legend", ()), IN_A_ROW // n_columns)
    return figure


def _title(name: str, data: Any, titles: Mapping[str, str] | None) -> str:
    """Return the title of a side."""
    if titles is not None:
        return titles.get(name, name)
    is_of_one_run = isinstance(data, dict) and np.ndim(data.get("run", [])) == 0
    return f"{name}, run {data['run']}" if is_of_one_run else name
