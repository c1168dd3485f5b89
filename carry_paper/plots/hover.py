"""Names of what a figure shows, for the built page, which says them where one points.

An SVG holds them as ids: of a panel, of a bar or a point, of a map's rows, columns and values.
`book/_ext/inline_svg.py` turns them into attributes of the page, which `book/_static/figures.js`
reads.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import FixedFormatter, FuncFormatter

COLOUR_BAR = "<colorbar>"  # matplotlib's label of such a panel

PANEL, VALUE, DOTS, MAP = "panel ", "value ", "dots ", "map "  # begin the ids
LARGEST_NAMED_MAP = 2_000  # cells: a larger heat map does not say its values
BETWEEN = "|"  # names in a list, and the name and the link of a panel
SEPARATOR = ";"  # of a map's number of columns, names of rows and columns, values and links


# ---- names that a figure gives


def name_bars(bars: Iterable[Artist], names: Iterable[str]) -> None:
    """Name each bar."""
    for bar, name in zip(bars, names, strict=True):
        bar.set_gid(VALUE + _on_one_line(name))


def name_dots(dots: PathCollection, name: str, rows: pd.DataFrame) -> None:
    """Name each dot by a format such as `run {index}: {late:.2f}`, which its row fills in."""
    fields = rows.reset_index(names="index").to_dict("records")
    dots.set_gid(DOTS + BETWEEN.join(name.format_map(row) for row in fields))


def name_cells(
    image: AxesImage | QuadMesh,
    rows: Sequence[str],
    columns: Sequence[str],
    links: Sequence[str] = (),
) -> None:
    """Name the rows and the columns of a map.

    With `links`, one for each cell, row by row; "" where there is none.
    """
    values: Any = np.ma.filled(np.ma.asarray(image.get_array(), dtype=float), np.nan)
    fields = [str(values.shape[1])]
    if min(values.shape) > 1 and values.size <= LARGEST_NAMED_MAP:
        numbers = " ".join(f"{round(x, 3):g}" for x in values.flat)
        fields += [BETWEEN.join(rows), BETWEEN.join(columns), numbers, BETWEEN.join(links)]
    image.set_gid(f"{MAP}{image.get_cmap().name} {SEPARATOR.join(fields)}")


# ---- names that are made from the words around a panel


def name_panels(figure: Figure) -> None:
    """Name each panel of a figure, and the maps in it that have no names of their own."""
    panels = [ax for ax in figure.axes if ax.get_visible() and ax.get_label() != COLOUR_BAR]
    for ax in panels:
        name = ", ".join(dict.fromkeys(filter(None, _words_around(ax, panels))))
        ax.set_gid(BETWEEN.join(filter(None, (PANEL + name, ax.get_url()))))
        for part in [*ax.images, *ax.collections]:
            if isinstance(part, AxesImage | QuadMesh) and part.get_gid() is None:
                values: Any = part.get_array()
                n_rows, n_columns = values.shape
                name_cells(part, _marks(ax.yaxis, n_rows), _marks(ax.xaxis, n_columns))


def _words_around(ax: Axes, panels: Sequence[Axes]) -> Iterator[str]:
    """Yield the titles around a panel: of the parts of the figure, its column's and its row's."""
    titles: list[str] = []
    part: Any = ax.get_figure(root=False)
    while part is not None:
        titles.insert(0, part.get_suptitle())
        part = None if isinstance(part, Figure) else part._parent
    yield from map(_on_one_line, titles)
    in_column = [ax, *(other for other in panels if _is_beside(ax, other, "colspan"))]
    above = [other.get_title(loc) for other in in_column for loc in ("center", "left", "right")]
    in_row = [ax, *(other for other in panels if _is_beside(ax, other, "rowspan"))]
    for texts in (above, [other.get_ylabel() for other in in_row]):
        yield _on_one_line(next(filter(None, texts), ""))


def _on_one_line(text: str) -> str:
    """Return a text without its breaks."""
    return " ".join(text.split())


def _is_beside(ax: Axes, other: Axes, span: str) -> bool:
    """Return True if two panels are in one row (`rowspan`) or column of a grid."""
    place, other_place = ax.get_subplotspec(), other.get_subplotspec()
    if place is None or other_place is None:
        return False
    in_one_grid = place.get_gridspec() is other_place.get_gridspec()
    return in_one_grid and bool(getattr(place, span) == getattr(other_place, span))


def _marks(axis: Axis, n: int) -> list[str]:
    """Return the words on an axis if they are `n`, one for each row or column of a map."""
    formatter = axis.get_major_formatter()
    if not isinstance(formatter, FixedFormatter | FuncFormatter):
        return []
    ticks = formatter.format_ticks(axis.get_majorticklocs().tolist())
    words = [_on_one_line(str(tick)) for tick in ticks]  # a fixed one may be a number
    return words if len(words) == n and all(words) else []
