"""The house style of figures, their SVG, colours of classes and digits."""

import base64
import io
import re
from collections.abc import Iterable, Sequence
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
MAP_CELLS = 2_000  # of a heat map that says its values
INK, FAINT = "#1F2430", "#6B7280"
# Apart for colour-blind readers too, and each 3:1 or more against white and against the dark theme.
# # The classes have about Okabe and Ito's hues, in the order of the paper's tables; ten digits take
# a numeral beside the colour.
CLASS_COLOURS = ("#1E669A", "#AD8F0A", "#2CA667", "#C75301", "#D471B4")
DIGIT_COLOURS: tuple[str, ...] = ("#1F4EFE", "#C4855F", "#8939CD", "#26830A", "#D55790")
DIGIT_COLOURS += ("#7A7962", "#3B85FC", "#BC04A1", "#A882CE", "#E43704")
STYLE = {
    "font.sans-serif": ["DejaVu Sans", "Verdana"], "font.size": 8.5, "axes.titlesize": 8.5, "figure.titlesize": 9,
    "xtick.labelsize": 7.5, "ytick.labelsize": 7.5, "legend.fontsize": 8, "lines.linewidth": 1.2,
    "axes.edgecolor": FAINT, "axes.linewidth": 0.6, "axes.labelcolor": INK, "text.color": INK, "axes.titlepad": 4,
    "xtick.color": INK, "ytick.color": INK, "xtick.major.width": 0.6, "ytick.major.width": 0.6,
    "xtick.major.size": 2.5, "ytick.major.size": 2.5, "legend.frameon": False, "legend.handletextpad": 0.4,
    "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none", "svg.hashsalt": "carry",
    "axes.prop_cycle": f"cycler('color', {list(CLASS_COLOURS)})",
}  # fmt: skip
# The house style, for what is drawn inside `with style():`, or by a function that is decorated with
# `@style()`.
style = partial(matplotlib.style.context, ["default", STYLE])


@style()
def svg(figure: Figure, alt: str = "") -> str:
    """The figure as SVG text; the same figure gives the same text. `alt` becomes its `dc:title`.

    A map's id says, for the built page, whether something is written on it, how many columns it
    has, and its values.
    """
    for part in cast(
        list[Any], figure.findobj(lambda part: isinstance(part, AxesImage | QuadMesh))
    ):
        values: Any = np.ma.filled(np.ma.asarray(part.get_array(), dtype=float), np.nan)
        # bars of colours are, and would have no id
        part.set_rasterized(part.get_rasterized() and part.axes.texts)
        if values.ndim == 2:
            cells = (
                [f"{x:.2g}" for x in values.flat]
                if min(values.shape) > 1 and values.size <= MAP_CELLS
                else []
            )
            part.set_gid(
                f"{'written' if part.axes.texts else 'map'} {values.shape[1]} {' '.join(cells)}"
            )
    text = io.StringIO()
    figure.savefig(
        text, format="svg", metadata={"Date": None, "Creator": None, "Title": alt}, dpi=SVG_DPI
    )
    return re.sub(r"(?<=data:image/png;base64,)[A-Za-z0-9+/=\s]+", _smaller, text.getvalue())


def _smaller(found: re.Match[str]) -> str:
    """A picture inside an SVG, such as a cloud of points, in 256 colours."""
    data, small = base64.b64decode(found[0]), io.BytesIO()
    Image.open(io.BytesIO(data)).quantize(256, Image.Quantize.FASTOCTREE).save(
        small, "PNG", optimize=True
    )
    return min(base64.b64encode(small.getvalue()).decode(), found[0], key=len)


def class_colours(n_classes: int) -> tuple[str, ...]:
    """A colour for each carry class; up to five, as three digits have, are fixed ones."""
    if n_classes <= len(CLASS_COLOURS):
        return CLASS_COLOURS[:n_classes]
    return tuple(sns.husl_palette(n_classes, s=0.95, l=0.55).as_hex())


def name_grid(
    axes: Any, left: Iterable[str], top: Iterable[str], weights: Sequence[str] = ("bold", "bold")
) -> None:
    """Write names on the left of a grid's rows and on top of its columns, in these two font weights."""
    for ax, name in zip(axes[:, 0], left, strict=True):
        ax.set_ylabel(name, rotation=0, ha="right", va="center", weight=weights[0])
    for ax, name in zip(axes[0], top, strict=False):
        ax.set_title(name, weight=weights[1])
