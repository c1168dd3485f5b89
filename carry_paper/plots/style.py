"""The house style of figures, their SVG, colours of classes and digits."""

import base64
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import matplotlib.style
import numpy as np
import seaborn as sns
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from PIL import Image

WIDTH = 8.0  # inches: a page's column at its natural size
SVG_DPI = 120  # of pictures inside an SVG
LARGEST_NAMED_MAP = 2_000  # cells: a larger heat map does not say its values
INK, FAINT = "#1F2430", "#6B7280"
# Apart for colour-blind readers too, and each 3:1 or more against white and against the dark theme.
# The classes have about Okabe and Ito's hues, in the order of the paper's tables; ten digits take a
# numeral beside the colour.
CLASS_COLOURS = ("#1E669A", "#AD8F0A", "#2CA667", "#C75301", "#D471B4")
DIGIT_COLOURS = (
    *("#1F4EFE", "#C4855F", "#8939CD", "#26830A", "#D55790"),
    *("#7A7962", "#3B85FC", "#BC04A1", "#A882CE", "#E43704"),
)
STYLE = {
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.prop_cycle": f"cycler('color', {list(CLASS_COLOURS)})",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlepad": 4,
    "axes.titlesize": 8.5,
    "figure.titlesize": 9,
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "font.size": 8.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handletextpad": 0.4,
    "lines.linewidth": 1.2,
    "svg.fonttype": "none",
    "svg.hashsalt": "carry",
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 7.5,
    "xtick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.color": INK,
    "ytick.labelsize": 7.5,
    "ytick.major.size": 2.5,
    "ytick.major.width": 0.6,
}
# The house style, for what is drawn inside `with style():`, or by a function that is decorated with
# `@style()`.
style = partial(matplotlib.style.context, ["default", STYLE])


@style()
def svg(figure: Figure, alt: str = "") -> str:
    """Return a figure as SVG text; the same figure gives the same text.

    A map's id says, for the built page, whether something is written on it, how many columns it
    has, and its values. `alt` becomes the `dc:title`.
    """
    text = io.StringIO()
    metadata = {"Date": None, "Creator": None, "Title": alt}
    with maps_with_ids(figure):
        figure.savefig(text, format="svg", metadata=metadata, dpi=SVG_DPI)
    return re.sub(r"(?<=data:image/png;base64,)[A-Za-z0-9+/=\s]+", _smaller, text.getvalue())


@contextmanager
def maps_with_ids(figure: Figure) -> Iterator[None]:
    """Give the maps of a figure ids, and leave the figure as it was."""
    maps = cast(list[Any], figure.findobj(lambda part: isinstance(part, AxesImage | QuadMesh)))
    before = [(part, part.get_rasterized(), part.get_gid()) for part in maps]
    for part in maps:
        # The bars of colours are rasterized too, and a rasterized part would have no id.
        part.set_rasterized(part.get_rasterized() and part.axes.texts)
        gid = _map_id(part)
        if gid:
            part.set_gid(gid)
    try:
        yield
    finally:
        for part, rasterized, gid in before:
            part.set_rasterized(rasterized)
            part.set_gid(gid)


def _map_id(part: Any) -> str:
    """Return the id of a heat map; nothing for a picture of another kind."""
    values: Any = np.ma.filled(np.ma.asarray(part.get_array(), dtype=float), np.nan)
    if values.ndim != 2:
        return ""
    kind = "written" if part.axes.texts else "map"
    is_named = min(values.shape) > 1 and values.size <= LARGEST_NAMED_MAP
    cells = " ".join(f"{x:.2g}" for x in values.flat) if is_named else ""
    return f"{kind} {values.shape[1]} {cells}"


def _smaller(picture: re.Match[str]) -> str:
    """Return a picture inside an SVG, such as a cloud of points, in 256 colours."""
    image = Image.open(io.BytesIO(base64.b64decode(picture[0])))
    small = io.BytesIO()
    image.quantize(256, Image.Quantize.FASTOCTREE).save(small, "PNG", optimize=True)
    return min(base64.b64encode(small.getvalue()).decode(), picture[0], key=len)


def class_colours(n_classes: int) -> tuple[str, ...]:
    """Return a colour for each carry class; up to five, as three digits have, are fixed ones."""
    if n_classes <= len(CLASS_COLOURS):
        return CLASS_COLOURS[:n_classes]
    return tuple(sns.husl_palette(n_classes, s=0.95, l=0.55).as_hex())


def name_grid(
    axes: Any, left: Iterable[str], top: Iterable[str], weights: Sequence[str] = ("bold", "bold")
) -> None:
    """Write names on the left of a grid's rows and on top of its columns, in these two weights."""
    for ax, name in zip(axes[:, 0], left, strict=True):
        ax.set_ylabel(name, rotation=0, ha="right", va="center", weight=weights[0])
    for ax, name in zip(axes[0], top, strict=False):
        ax.set_title(name, weight=weights[1])
