"""The data of a figure as a table: what its lines, points, bars and cells show.

One function reads every figure, whatever drew it, from what is in its panels. So the table has
exactly what can be seen, before it is rounded to pixels.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.category import StrCategoryFormatter
from matplotlib.collections import Collection, LineCollection, PathCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.ticker import FixedFormatter, FuncFormatter
from numpy.typing import NDArray

COLOUR_BAR = "<colorbar>"  # matplotlib's label of such a panel
NAMELESS = "_"  # begins the labels that matplotlib makes up
HALF_A_MARK = 0.5  # on an axis of names, which stand one apart


class Item(NamedTuple):
    """A row of the table: a point, a bar or a cell; its fields are the columns.

    Attributes:
        side: The title of the part of the figure: whose weights, and which run.
        panel: The panel's title, or the one at the top of its column.
        left: The label on the panel's left, or on the left of its row of panels.
        below: The label below the panel, or below its column of panels.
        kind: `line`, `points`, `bar`, `cell`, `span` (a line from end to end), `across` and
            `up` (a line through the whole panel), or `text`.
        number: The number of the line, bars, cells or whatever it is within the panel.
        series: Its label in the legend, or what is written there.
        x: Its place from left to right: a number, or the mark on the axis.
        y: Its place from bottom to top, likewise.
        value: The value of a cell, or the length of a bar.
    """

    side: str
    panel: str
    left: str
    below: str
    kind: str
    number: int
    series: str
    x: Any
    y: Any
    value: Any = None


def table(figure: Figure) -> pd.DataFrame:
    """Return the data of a figure, with a row for each `Item`."""
    items: list[Item] = []
    legends = _colours_in_legends(figure)
    panels = [ax for ax in figure.axes if ax.get_visible() and ax.get_label() != COLOUR_BAR]
    for ax in panels:
        head = Head.of(ax, panels)
        for number, (kind, drawn) in enumerate(_drawn(ax, legends, head), 1):
            for entry in drawn:
                words = (entry.side or head.side, head.panel, head.left, head.below)
                items.append(Item(*words, kind, number, *entry[:4]))
    return pd.DataFrame(items, columns=Item._fields)


# ---- the words around a panel


class Head(NamedTuple):
    """The words around a panel, and the marks on its axes by place."""

    side: str
    panel: str
    left: str
    below: str
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
            below=_first(_words(other.get_xlabel()) for other in [ax, *reversed(in_column)]),
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


# ---- what is drawn in a panel


class Place(NamedTuple):
    """The fields of an `Item` that may differ in a line, bars or cells; no `side`: the panel's."""

    series: str
    x: Any
    y: Any
    value: Any = None
    side: str = ""


def _drawn(ax: Axes, legends: Mapping[str, str], head: Head) -> Iterator[tuple[str, list[Place]]]:
    """Yield each thing that is drawn in a panel: its kind, and its points, bars or cells."""
    named = _colours_of(*ax.get_legend_handles_labels())
    names = {**legends, **named}
    for line in ax.lines:
        yield _line(ax, line, names, head)
    for collection in ax.collections:
        yield from _collection(collection, names, head)
    for image in ax.images:
        yield "cell", _cells(image, head)
    for container in ax.containers:
        if isinstance(container, BarContainer):
            yield "bar", _bars(container, names, head)
    if not _n_cells(ax, 0):  # on a map, its own numbers are written
        yield from _texts(ax)


def _collection(
    collection: Collection, names: Mapping[str, str], head: Head
) -> Iterator[tuple[str, list[Place]]]:
    """Yield what a collection shows: cells, points, or lines from end to end."""
    if isinstance(collection, QuadMesh):
        yield "cell", _cells(collection, head)
    elif isinstance(collection, PathCollection):
        yield "points", _points(collection, names, head)
    elif isinstance(collection, LineCollection):
        yield "span", _spans(collection, names, head)


def _texts(ax: Axes) -> Iterator[tuple[str, list[Place]]]:
    """Yield the texts in a panel, at the place that they are about."""
    for text in ax.texts:
        words = _words(text.get_text())
        if words:
            x, y = text.xy if isinstance(text, Annotation) else text.get_position()
            yield "text", [Place(words, x, y)]


def _line(ax: Axes, line: Line2D, names: Mapping[str, str], head: Head) -> tuple[str, list[Place]]:
    """Return a line's kind and points."""
    series = _series(line, line.get_color(), names)
    xs, ys = (np.asarray(values, dtype=float) for values in line.get_data(orig=False))
    if line.get_transform() == ax.get_yaxis_transform():
        return "across", [Place(series, None, ys[0])]
    if line.get_transform() == ax.get_xaxis_transform():
        return "up", [Place(series, xs[0], None)]
    places = zip(_places(xs, head.marks[0]), _places(ys, head.marks[1]), strict=True)
    return "line", [Place(series, x, y) for x, y in places]


def _points(part: PathCollection, names: Mapping[str, str], head: Head) -> list[Place]:
    """Return the points of a scatter plot, whose series may differ from point to point."""
    points = _plain(part.get_offsets())
    xs, ys = _places(points[:, 0], head.marks[0]), _places(points[:, 1], head.marks[1])
    faces: Any = part.get_facecolor()
    colours: Any = faces if len(faces) else part.get_edgecolor()
    values: Any = part.get_array()
    entries = []
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        series = _series(part, colours[i % len(colours)] if len(colours) else "none", names)
        entries.append(Place(series, x, y, None if values is None else values[i]))
    return entries


def _spans(part: LineCollection, names: Mapping[str, str], head: Head) -> list[Place]:
    """Return both ends of each line of a collection."""
    colours: Any = part.get_colors()
    entries = []
    for i, ends in enumerate(part.get_segments()):
        series = _series(part, colours[i % len(colours)], names)
        xs, ys = np.asarray(ends, dtype=float).T
        places = zip(_places(xs, head.marks[0]), _places(ys, head.marks[1]), strict=True)
        entries += [Place(series, x, y) for x, y in places]
    return entries


def _bars(container: BarContainer, names: Mapping[str, str], head: Head) -> list[Place]:
    """Return a bar for each mark, with its length as its value.

    A bar's own label is the side that it is of, where both sides are in a panel.
    """
    entries: list[Place] = []
    for bar in container.patches:
        series = _series(container, bar.get_facecolor(), names)
        label = str(bar.get_label())
        side = "" if label.startswith(NAMELESS) else label
        if container.orientation == "horizontal":
            y = _mark(bar.get_y() + bar.get_height() / 2, head.marks[1])
            entries.append(Place(series, None, y, bar.get_width(), side))
        else:
            x = _mark(bar.get_x() + bar.get_width() / 2, head.marks[0])
            entries.append(Place(series, x, None, bar.get_height(), side))
    return [entry for entry in entries if not np.isnan(entry.value)]


def _mark(place: float, marks: Mapping[float, str]) -> Any:
    """Return the mark at a place, or the place where there is none."""
    return marks.get(round(float(place), 6), float(place))


def _cells(part: AxesImage | QuadMesh, head: Head) -> list[Place]:
    """Return the cells of a map."""
    values = _plain(part.get_array())
    if values.ndim != 2:
        return []
    across, up = middles(part, values.shape)
    xs, ys = _marked(across, head.marks[0]), _marked(up, head.marks[1])
    return [Place("", xs[j], ys[i], value) for (i, j), value in np.ndenumerate(values)]


def _plain(values: Any) -> NDArray[Any]:
    """Return numbers with NaN in place of those that are masked."""
    plain: NDArray[Any] = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)
    return plain


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


def _marked(places: NDArray[Any], marks: Mapping[float, str]) -> list[Any]:
    """Return the marks at some places; the places, unless each has a mark of its own."""
    names = [marks.get(round(float(place), 6)) for place in places]
    return list(places) if None in names or len({*names}) < len(names) else names


def _places(values: NDArray[Any], marks: Mapping[float, str]) -> list[Any]:
    """Return numbers on an axis, or the names that stand there instead of numbers.

    Points that are spread around a name to both sides have that name.
    """
    named = [any(letter.isalpha() for letter in text) for text in marks.values()]
    if not named or not all(named):
        return list(values)
    middles = np.array(list(marks))
    distances = abs(np.asarray(values, dtype=float)[:, None] - middles)
    if not len(values) or not (distances.min(1) < HALF_A_MARK).all():
        return list(values)
    texts = list(marks.values())
    return [texts[i] for i in distances.argmin(1)]


# ---- names from legends


def _series(part: Any, colour: Any, names: Mapping[str, str]) -> str:
    """Return the name of a part: its label, or that of its colour in a legend; or ""."""
    label = str(part.get_label())
    if label and not label.startswith(NAMELESS):
        return _words(label)
    return names.get(_hex(colour), "")


def _hex(colour: Any) -> str:
    """Return a colour as text; "" if it is none."""
    if isinstance(colour, str) and colour == "none":
        return ""
    return to_hex(colour)


def _colours_of(handles: Any, labels: Any) -> dict[str, str]:
    """Return the labels of a legend by colour, where a colour has one label alone."""
    by_colour: dict[str, set[str]] = {}
    for handle, label in zip(handles, labels, strict=True):
        for method in ("get_color", "get_facecolor"):
            if hasattr(handle, method):
                colours = np.atleast_2d(cast(Any, getattr(handle, method)()))
                colour = colours[0] if colours.dtype.kind == "f" else getattr(handle, method)()
                if len(colours) == 1:
                    by_colour.setdefault(_hex(colour), set()).add(_words(str(label)))
                break
    return {colour: labels.pop() for colour, labels in by_colour.items() if len(labels) == 1}


def _colours_in_legends(figure: Figure) -> dict[str, str]:
    """Return the labels in the legends below a figure and its sides, by colour."""
    names: dict[str, str] = {}
    parts: list[Any] = [figure]
    while parts:
        part = parts.pop()
        parts += part.subfigs
        for legend in part.legends:
            texts = [text.get_text() for text in legend.get_texts()]
            names |= _colours_of(legend.legend_handles, texts)
    return names
