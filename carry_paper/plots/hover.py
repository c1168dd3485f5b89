"""Names of what a figure shows, for the built page, which says them where one points.

An SVG holds them as ids: of a panel, of a bar, of a map's rows, columns and values. They are made
from the words around a panel, as the data of a figure are (`plots.drawn`).
`book/_ext/inline_svg.py` turns them into attributes of the page, which `book/_static/figures.js`
reads.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from carry_paper.plots.drawn import COLOUR_BAR, Head, middles

PANEL, VALUE, DOTS, MAP = "panel ", "value ", "dots ", "map "  # begin the ids
LARGEST_NAMED_MAP = 2_000  # cells: a larger heat map does not say its values
BETWEEN = "|"  # names in a list
SEPARATOR = ";"  # of a map's number of columns, names of rows and columns, values and links


def name_cells(
    image: AxesImage | QuadMesh,
    rows: Sequence[str],
    columns: Sequence[str],
    links: Sequence[str] = (),
) -> None:
    """Name the rows and the columns of a map, where the marks on its axes do not.

    With `links`, one for each cell, row by row; "" where there is none.
    """
    image.set_gid("\n".join(map(BETWEEN.join, (rows, columns, links))))


def name_dots(dots: PathCollection, names: Sequence[str]) -> None:
    """Name each point of a scatter plot."""
    dots.set_gid(DOTS + BETWEEN.join(names))


@contextmanager
def names_as_ids(figure: Figure) -> Iterator[None]:
    """Give ids to the panels, bars and maps of a figure, and leave the figure as it was."""
    panels = [ax for ax in figure.axes if ax.get_visible() and ax.get_label() != COLOUR_BAR]
    heads = {ax: Head.of(ax, panels) for ax in panels}
    named: list[Any] = []
    for ax in figure.axes:
        named += [ax, *ax.images, *ax.patches]
        named += [part for part in ax.collections if isinstance(part, QuadMesh)]
    before = [(part, part.get_gid(), part.get_rasterized()) for part in named]
    for ax, head in heads.items():
        ax.set_gid(PANEL + _panel(head))
        for bars in ax.containers:
            if isinstance(bars, BarContainer):
                _name_bars(bars, head)
    for ax in figure.axes:
        for part in [*ax.images, *(x for x in ax.collections if isinstance(x, QuadMesh))]:
            _name_map(part, heads.get(ax))
    try:
        yield
    finally:
        for part, gid, rasterized in before:
            part.set_gid(gid)
            part.set_rasterized(rasterized)


def _panel(head: Head) -> str:
    """Return the name of a panel: its side, title and row, none of them twice."""
    return ", ".join(dict.fromkeys(word for word in (head.side, head.panel, head.left) if word))


def _name_bars(bars: BarContainer, head: Head) -> None:
    """Name bars that have no name of their own: their series, place and length."""
    across, up = head.marks
    label = str(bars.get_label())
    series = "" if label.startswith("_") else f"{label} "
    for bar in bars.patches:
        if bar.get_gid() is not None:
            continue
        if bars.orientation == "horizontal":
            place, length = bar.get_y() + bar.get_height() / 2, bar.get_width()
            mark = _nearest(up, place)
        else:
            place, length = bar.get_x() + bar.get_width() / 2, bar.get_height()
            mark = _nearest(across, place)
        bar.set_gid(f"{VALUE}{f'{mark}: ' if mark else ''}{series}{length:.2f}")


def _nearest(marks: Mapping[float, str], place: float) -> str:
    """Return the mark that is nearest to a place on an axis; "" if there are none."""
    return marks[min(marks, key=lambda mark: abs(mark - place))] if marks else ""


def _name_map(part: Any, head: Head | None) -> None:
    """Give a map its id; none to a picture of another kind, or to a bar of colours."""
    values: Any = np.ma.filled(np.ma.asarray(part.get_array(), dtype=float), np.nan)
    if head is None or values.ndim != 2:
        return
    part.set_rasterized(False)  # a rasterized part would have no id
    fields = [str(values.shape[1])]
    if min(values.shape) > 1 and values.size <= LARGEST_NAMED_MAP:
        given = str(part.get_gid() or "")
        rows, columns, links = given.split("\n") if given else (*_marks(part, head), "")
        numbers = " ".join(f"{round(x, 3):g}" for x in values.flat)
        fields += [rows, columns, numbers, links]
    part.set_gid(f"{MAP}{part.get_cmap().name} {SEPARATOR.join(fields)}")


def _marks(part: Any, head: Head) -> tuple[str, str]:
    """Return the marks at a map's rows and columns; no names where some lack a mark."""
    across, up = middles(part, part.get_array().shape)
    lists = []
    for places, marks in ((up, head.marks[1]), (across, head.marks[0])):
        words = [marks.get(round(float(place), 6), "") for place in places]
        lists.append(BETWEEN.join(words) if all(words) else "")
    return lists[0], lists[1]
