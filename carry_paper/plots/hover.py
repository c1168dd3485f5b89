"""Names of what a figure shows, for the built page, which says them where one points.

An SVG holds them as ids: of a panel, of a bar, of a map's rows, columns and values. They are made
from the words around a panel.
`book/_ext/inline_svg.py` turns them into attributes of the page, which `book/_static/figures.js`
reads.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.category import StrCategoryFormatter
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import FixedFormatter, FuncFormatter
from numpy.typing import NDArray

COLOUR_BAR = "<colorbar>"  # matplotlib's label of such a panel

PANEL, VALUE, DOTS, MAP = "panel ", "value ", "dots ", "map "  # begin the ids
LARGEST_NAMED_MAP = 2_000  # cells: a larger heat map does not say its values
BETWEEN = "|"  # names in a list, and the name and the link of a panel
SEPARATOR = ";"  # of a map's number of columns, names of rows and columns, values and links


# ---- the words around a panel


class Head(NamedTuple):
    """The words around a panel, and the marks on its axes by place."""

    side: str
    panel: str
    left: str
    marks: tuple[Mapping[float, str], Mapping[float, str]]

    @staticmethod
    def of(ax: Axes, panels: list[Axes]) -> "Head":
        """Return the words around one of the panels; what it lacks is its row's or column's."""
        in_row = [ax, *(other for other in panels if _is_beside(ax, other, "rowspan"))]
        in_column = [ax, *(other for other in panels if _is_beside(ax, other, "colspan"))]
        return Head(
            side=_side(ax),
            panel=_first(_title(other) for other in in_column),
            left=_first(_words(other.get_ylabel()) for other in in_row),
            marks=(_marks_of(ax, in_column, 1), _marks_of(ax, in_row, 0)),
        )


def _words(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())


def _first(texts: Iterable[str]) -> str:
    """Return the first text that is not empty; "" if all are."""
    return next((text for text in texts if text), "")


def _title(ax: Axes) -> str:
    """Return a panel's title, wherever it stands above the panel."""
    return _first(_words(ax.get_title(loc)) for loc in ("center", "left", "right"))


def _side(ax: Axes) -> str:
    """Return the titles of the parts of the figure that a panel is in, the outermost first."""
    titles: list[str] = []
    part: Any = ax.get_figure(root=False)
    while part is not None:
        title = _words(part.get_suptitle())
        if title:
            titles.insert(0, title)
        part = None if isinstance(part, Figure) else part._parent
    return ", ".join(titles)


def _is_beside(ax: Axes, other: Axes, span: str) -> bool:
    """Return True if two panels are in one row (`rowspan`) or column of a grid."""
    place, other_place = ax.get_subplotspec(), other.get_subplotspec()
    if place is None or other_place is None or ax is other:
        return False
    same_grid = place.get_gridspec() is other_place.get_gridspec()
    return same_grid and getattr(place, span) == getattr(other_place, span)


def _marks_of(ax: Axes, others: list[Axes], dimension: int) -> Mapping[float, str]:
    """Return the words at places on an axis, or those of a panel as long beside it."""
    for other in others:
        axis = other.xaxis if dimension else other.yaxis
        marks = _marks(axis)
        alike = _n_cells(other, dimension) == _n_cells(ax, dimension)
        if marks and (other is ax or alike):
            return marks
    return {}


def _n_cells(ax: Axes, dimension: int) -> int:
    """Return the number of columns (1) or rows (0) of a panel's map; 0 if it has none."""
    for part in [*ax.images, *ax.collections]:
        values = part.get_array() if isinstance(part, AxesImage | QuadMesh) else None
        if values is not None and values.ndim == 2:
            return int(values.shape[dimension])
    return 0


def _marks(axis: Axis) -> dict[float, str]:
    """Return the words that were written at places on an axis; empty if it has numbers."""
    has_words = isinstance(axis.get_major_formatter(), FixedFormatter | FuncFormatter)
    if not has_words and not isinstance(axis.get_major_formatter(), StrCategoryFormatter):
        return {}
    marks = {}
    for place, label in zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=False):
        text = _words(label.get_text())
        if text:
            marks[round(float(place), 6)] = text
    return marks


def middles(
    part: AxesImage | QuadMesh, shape: tuple[int, ...]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the places of the middles of a map's columns and rows."""
    n_rows, n_columns = shape
    if isinstance(part, QuadMesh):
        corners = np.asarray(part.get_coordinates())  # [row, column, axis]
        xs, ys = corners[0, :, 0], corners[:, 0, 1]
        return (xs[1:] + xs[:-1]) / 2, (ys[1:] + ys[:-1]) / 2
    left, right, bottom, top = part.get_extent()
    if part.origin == "upper":
        bottom, top = top, bottom
    across = np.linspace(left, right, 2 * n_columns + 1)[1::2]
    up = np.linspace(bottom, top, 2 * n_rows + 1)[1::2]
    return across, up


# ---- names as ids


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
        ax.set_gid(BETWEEN.join(filter(None, (PANEL + _panel(head), ax.get_url()))))
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
        rows, columns, links = given.split("\n") if given else (*_names_of_cells(part, head), "")
        numbers = " ".join(f"{round(x, 3):g}" for x in values.flat)
        fields += [rows, columns, numbers, links]
    part.set_gid(f"{MAP}{part.get_cmap().name} {SEPARATOR.join(fields)}")


def _names_of_cells(part: Any, head: Head) -> tuple[str, str]:
    """Return the marks at a map's rows and columns; no names where some lack a mark."""
    across, up = middles(part, part.get_array().shape)
    lists = []
    for places, marks in ((up, head.marks[1]), (across, head.marks[0])):
        words = [marks.get(round(float(place), 6), "") for place in places]
        lists.append(BETWEEN.join(words) if all(words) else "")
    return lists[0], lists[1]
