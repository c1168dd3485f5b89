"""The house style of figures, their SVG, colours of classes and digits."""

import base64
import io
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import QuadMesh
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FixedLocator
from PIL import Image

from carry_paper.plots.hover import name_panels

WIDTH = 8.0  # inches: a page's column at its natural size
SVG_DPI = 120  # of pictures inside an SVG
STEPS_OF_A_BAR = 50  # colours in a bar of colours
PLACES = ("thousands", "hundreds", "tens", "units")
INK, FAINT = "#1F2430", "#6B7280"
# Apart for colour-blind readers too, and each 3:1 or more against white and against the dark theme.
# The classes have about Okabe and Ito's hues, in the order of the paper's tables; ten digits take a
# numeral beside the colour.
CLASS_COLOURS = ("#1E669A", "#AD8F0A", "#2CA667", "#C75301", "#D471B4")
DIGIT_COLOURS = (
    *("#1F4EFE", "#C4855F", "#8939CD", "#26830A", "#D55790"),
    *("#7A7962", "#3B85FC", "#BC04A1", "#A882CE", "#E43704"),
)
# What becomes of a digit. A digit that is too large has a carry too many, or one too small has a
# carry too few; where both are counted together it is off by one.
CORRECT, TOO_LARGE, TOO_SMALL, WRONG = "#17806A", "#D2600A", "#7D6BB8", "#8C94A2"
OUTCOMES = {
    "correct": CORRECT,
    "one too large": TOO_LARGE,
    "one too small": TOO_SMALL,
    "other": WRONG,
}
OFF_BY_ONE = "#B0527A"
TRAIN, TEST = "#8A8D93", "#7A1F5C"  # curves of training sums and of test sums
# Lines that a figure is compared with.
DASHED: dict[str, Any] = {"color": FAINT, "linewidth": 0.9, "linestyle": (0, (3, 2))}
DOTTED: dict[str, Any] = {"color": FAINT, "linewidth": 0.7, "linestyle": (0, (1, 2))}
OPEN = "#FDFDFD"  # inside dots that are not filled: the page's own, which hides what is below
# Zero is white in all maps. Attention is blue, and so are cosines and counts of heads; shares of
# correct digits are green. `#FFFFFF` itself would be the ground, which is dark in the dark theme.
ATTENTION = LinearSegmentedColormap.from_list(
    "attention", ["#FEFEFE", "#BFD9F0", "#62A3D5", "#1F66AD", "#08264F"]
)
ACCURACY = LinearSegmentedColormap.from_list(
    "accuracy", ["#FEFEFE", "#D6EDE6", "#9FD2C3", "#58AE97", "#187F6B"]
)
# Text on boxes, whose colours are the same in the dark theme; and numbers on the cells of a map,
# whose colours become their negatives there: no map has these two.
ON_DARK, ON_LIGHT = "#FCFCFC", "#20242E"
ON_DARK_CELL, ON_LIGHT_CELL = "#FEFDFC", "#21252F"
DARK = 0.28  # luminance, below which white numbers have the better contrast in both themes
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
Data = TypeVar("Data")
Options = ParamSpec("Options")


def with_data(
    draw: Callable[Concatenate[Data, Options], Figure],
) -> Callable[Concatenate[Data, Options], Figure]:
    """Have a function draw in the house style, and keep its first argument as the figure's `data`.

    `pages.show` writes them as CSV.
    """

    @style()
    @wraps(draw)
    def drawn(data: Data, /, *others: Options.args, **options: Options.kwargs) -> Figure:
        figure = draw(data, *others, **options)
        figure.data = data  # type: ignore[attr-defined]
        return figure

    return drawn


@style()
def svg(figure: Figure, alt: str = "") -> str:
    """Return a figure as SVG text; the same figure gives the same text.

    Its ids have the names and values of what it shows (`plots.hover`), and the figure keeps them.
    `alt` becomes the `dc:title`.
    """
    text = io.StringIO()
    metadata = {"Date": None, "Creator": None, "Title": alt}
    name_panels(figure)
    figure.savefig(text, format="svg", metadata=metadata, dpi=SVG_DPI)
    return re.sub(r"(?<=data:image/png;base64,)[A-Za-z0-9+/=\s]+", _smaller, text.getvalue())


def _smaller(picture: re.Match[str]) -> str:
    """Return a picture inside an SVG, such as a cloud of points, in 256 colours at most."""
    image = Image.open(io.BytesIO(base64.b64decode(picture[0])))
    reduced = image.quantize(256, Image.Quantize.FASTOCTREE)
    in_use: list[int] = np.unique(np.asarray(reduced)).tolist()  # a file lists unused ones, too
    small = io.BytesIO()
    reduced.remap_palette(in_use).save(small, "PNG", optimize=True)
    return min(base64.b64encode(small.getvalue()).decode(), picture[0], key=len)


def class_colours(n_classes: int) -> tuple[str, ...]:
    """Return a colour for each carry class; up to five, as three digits have, are fixed ones."""
    if n_classes <= len(CLASS_COLOURS):
        return CLASS_COLOURS[:n_classes]
    import seaborn as sns

    return tuple(sns.husl_palette(n_classes, s=0.95, l=0.55).as_hex())


def parts_beside(figure: Figure, n: int) -> list[SubFigure]:
    """Return `n` parts of a figure, which the built page stacks where there is no room for all."""
    parts: list[SubFigure] = figure.subfigures(1, n, squeeze=False)[0].tolist()
    for i, part in enumerate(parts):
        part.set_gid(f"side-{i}")
    return parts


def name_grid(
    axes: Any, left: Iterable[str], top: Iterable[str], weights: Sequence[str] = ("bold", "bold")
) -> None:
    """Write names on the left of a grid's rows and on top of its columns, in these two weights."""
    for ax, name in zip(axes[:, 0], left, strict=True):
        ax.set_ylabel(name, rotation=0, ha="right", va="center", weight=weights[0])
    for ax, name in zip(axes[0], top, strict=False):
        ax.set_title(name, weight=weights[1])


def colour_bar(
    figure: Any,
    axes: Any,
    colours: Colormap,
    label: str,
    *,
    norm: Normalize | None = None,
    location: Literal["right", "bottom"] = "bottom",
) -> Axes:
    """Draw a bar of colours beside or below some panels of maps, and return its panel.

    `label` says what is measured; `norm` has the values of the palette's ends, 0 and 1 if None.
    """
    scale = norm or Normalize(0, 1)
    aspect = 45 if location == "bottom" else 30
    bar = figure.colorbar(
        ScalarMappable(scale, colours.resampled(STEPS_OF_A_BAR)),
        ax=axes,
        location=location,
        aspect=aspect,
        shrink=0.7,
        pad=0.02,
        label=label,
    )
    bar.outline.set_linewidth(0.4)
    bar.ax.tick_params(length=1.5, pad=1.5)
    if norm is None:
        bar.locator = FixedLocator([0, 0.5, 1])
    panel: Axes = bar.ax
    panel.set_gid(f"scale {colours.name}")
    return panel


def position_label(name: str) -> str:
    """Return the short name of an answer position in a figure: `pos. 7` for `pos7`."""
    return re.sub(r"^pos(?=\d)", "pos. ", name)


def is_dark(colour: Any) -> bool:
    """Return True if white text on a colour has the better contrast."""
    from seaborn.utils import relative_luminance

    return bool(relative_luminance(colour) < DARK)


def draw_box(
    ax: Axes, centre: tuple[float, float], size: tuple[float, float], colour: Any, **look: Any
) -> str:
    """Draw a box with round corners, and return the colour of text on it."""
    (x, y), (width, height) = centre, size
    corner = x - width / 2, y - height / 2
    round_corners = "round,pad=0,rounding_size=0.05"
    ax.add_patch(FancyBboxPatch(corner, width, height, round_corners, facecolor=colour, **look))
    return ON_DARK if is_dark(colour) else ON_LIGHT


def number_map(ax: Axes, shares: pd.DataFrame, words: Any = None) -> QuadMesh:
    """Draw a map of shares from 0 to 1, with these numbers or some `words` on its cells.

    They have their best contrast in the dark theme, too. Returns the cells.
    """
    import seaborn as sns

    look: dict[str, Any] = {"vmin": 0, "vmax": 1, "cmap": ACCURACY, "cbar": False, "linewidths": 1}
    look |= {"xticklabels": True, "yticklabels": True}  # all, where they are dense as well
    look |= {"annot": True, "fmt": ".2f"} if words is None else {"annot": words, "fmt": ""}
    sns.heatmap(shares, ax=ax, annot_kws={"size": 7.5}, **look)
    ax.tick_params(length=0, rotation=0)
    ax.set(xlabel="", ylabel="")
    (cells,) = ax.collections
    assert isinstance(cells, QuadMesh)
    cells.update_scalarmappable()
    colours = cells.get_facecolor()
    for text in ax.texts:
        column, row = map(int, text.get_position())
        on_dark = is_dark(colours[row * shares.shape[1] + column])
        text.set_color(ON_DARK_CELL if on_dark else ON_LIGHT_CELL)
    return cells


def legend_below(
    part: Figure | SubFigure, entries: Sequence[Artist] = (), ncols: int = 5, **look: Any
) -> None:
    """Draw a legend below a figure or a part of one.

    Without `entries` it has each label in the panels once, but for panels with their own legend.
    """
    by_label: dict[str, Artist] = {}
    for ax in part.axes:
        if ax.get_legend() is None:
            for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
                by_label.setdefault(label, handle)
    if handles := [*entries] or [*by_label.values()]:
        usual: dict[str, Any] = {"loc": "outside lower center", "columnspacing": 1.0}
        part.legend(handles=handles, ncols=ncols, **usual | look)
