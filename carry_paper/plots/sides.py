"""Draw the author's side of a figure and ours by the same code."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray

from carry_paper.plots.style import WIDTH, style

AUTHORS, OURS = "author’s weights", "our weights"
Arrays = Mapping[str, NDArray[Any]]  # what a figure draws of a source


@style()
def subfigures(
    sides: Mapping[str, Any],
    draw: Callable[[SubFigure, Any], None],
    height: float,
    *,
    stacked: bool = False,
    titles: Mapping[str, str] | None = None,
    legend: Sequence[Artist] = (),
) -> Figure:
    """A figure in which the author's side and ours, as `beside` gives them, are drawn by the same code.

    A part is so many inches high; `stacked`, the author's is above ours. Unless `titles` are given,
    its title is the side's name, with the `run` that its arrays name. The `legend` stands below all
    parts.
    """
    n = len(sides)
    figure = Figure(figsize=(WIDTH, height * n if stacked else height), layout="constrained")
    parts = figure.subfigures(n if stacked else 1, 1 if stacked else n, squeeze=False).flatten()
    for part, (name, data) in zip(parts, sides.items(), strict=True):
        of_run = isinstance(data, dict) and np.ndim(data.get("run", [])) == 0
        title = (
            f"{name}, run {data['run']}"
            if of_run and titles is None
            else (titles or {}).get(name, name)
        )
        part.suptitle(title, weight="bold")
        draw(part, data)
    if legend:
        figure.legend(handles=legend, loc="outside lower center", ncols=15, columnspacing=1.0)
    return figure
