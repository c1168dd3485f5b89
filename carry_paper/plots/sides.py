"""The author's side of a figure and ours, drawn by the same code."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Required, TypedDict, Unpack

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray

from carry_paper.plots.style import WIDTH, style

AUTHORS = "author’s weights"
OURS = "our weights"
Arrays = Mapping[str, NDArray[Any]]  # what a figure draws of a side


class Layout(TypedDict, total=False):
    """The layout of a figure's sides.

    Attributes:
        height: The height of a side, in inches.
        stacked: True if the author's side is above ours, not left of it.
        titles: The title of a side, by its name, where that is not the name itself.
        legend: Entries of a legend below all sides.
    """

    height: Required[float]
    stacked: bool
    titles: Mapping[str, str]
    legend: Sequence[Artist]


@style()
def subfigures(
    sides: Mapping[str, Any],
    draw: Callable[[SubFigure, Any], None],
    **layout: Unpack[Layout],
) -> Figure:
    """Return a figure in which each side is drawn by the same code.

    A side's title is its name, with the `run` that its arrays name; or that of `titles`.

    Args:
        sides: The data of each side by its name, as from `pages.author_side.beside`.
        draw: Draws the data of a side.
        layout: See `Layout`.
    """
    n_rows = len(sides) if layout.get("stacked") else 1
    n_columns = 1 if layout.get("stacked") else len(sides)
    legend = layout.get("legend", ())
    figure = Figure(figsize=(WIDTH, layout["height"] * n_rows), layout="constrained")
    parts = figure.subfigures(n_rows, n_columns, squeeze=False).flatten()
    for part, (name, data) in zip(parts, sides.items(), strict=True):
        part.suptitle(_title(name, data, layout.get("titles")), weight="bold")
        draw(part, data)
    if legend:
        figure.legend(handles=legend, loc="outside lower center", ncols=15, columnspacing=1.0)
    return figure


def _title(name: str, data: Any, titles: Mapping[str, str] | None) -> str:
    """Return the title of a side."""
    if titles is not None:
        return titles.get(name, name)
    is_of_one_run = isinstance(data, dict) and np.ndim(data.get("run", [])) == 0
    return f"{name}, run {data['run']}" if is_of_one_run else name
