"""Clouds: the residual stream on principal axes (Fig. 4, 7, 16, 19, …), neurons (Fig. 13, 14)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from carry_core import carries
from carry_paper.findings.geometry import Plane
from carry_paper.plots.sides import Arrays, subfigures
from carry_paper.plots.style import (
    DIGIT_COLOURS,
    INK,
    class_colours,
    name_grid,
    position_label,
)

# The id of text on points, to which the built page gives an outline in the ground's colour.
NUMERAL = "numeral"
NEAR = 0.08  # of a panel's width or height: names nearer than that would hide each other
MOST_ACTIVE, OTHER = "#D1352B", "#7C93B8"  # neurons
# Some rows of a grid, such as (0, "MLP") for the stream after the MLP of layer 0.
Rows = Sequence[tuple[int, str]]
# A label's name is written if this share of its sums is nearer to its centre than to another's.
NAMED_SHARE = 0.5


def scatter(
    ax: Axes, x: NDArray[Any], y: NDArray[Any], label: NDArray[Any], colours: Sequence[str]
) -> None:
    """Draw points coloured by label, in random order."""
    order = np.random.default_rng(0).permutation(len(x))  # else the last labels hide the first
    size = float(np.clip(6_000 / len(x), 1.5, 8))
    ax.scatter(
        x[order], y[order], c=np.array(colours)[label[order]], s=size, linewidths=0, rasterized=True
    )
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(True)


def name_centres(
    ax: Axes, x: NDArray[Any], y: NDArray[Any], label: NDArray[Any], names: Sequence[str]
) -> None:
    """Write the name of each label that is separated from others at the middle of its points."""
    points = np.stack([x, y], 1)
    kinds = np.unique(label)
    centres = np.array([np.median(points[label == kind], 0) for kind in kinds])
    squared_distance = ((points[:, None] - centres) ** 2).sum(-1)  # [point, kind]
    nearest = kinds[squared_distance.argmin(1)]
    look: dict[str, Any] = {"ha": "center", "va": "center", "weight": "bold", "color": INK}
    written = np.empty((0, 2))
    for kind, centre in zip(kinds, centres, strict=True):
        is_free = (abs(written - centre) > NEAR * np.ptp(points, 0)).any(1).all()
        if is_free and (nearest[label == kind] == kind).mean() >= NAMED_SHARE:
            ax.annotate(names[kind], centre, gid=NUMERAL, **look)
            written = np.vstack([written, centre])


def plane_arrays(
    planes: Sequence[Plane], selection: slice = slice(None)
) -> dict[str, NDArray[Any]]:
    """Return the arrays that `plane_grid` draws of `geometry.journey`, for the selected sums."""
    points = np.array([plane.points[selection, :2].numpy() for plane in planes])
    return {
        "layer": np.array([plane.layer for plane in planes]),
        "after": np.array([plane.after for plane in planes]),
        "position": np.array([plane.position for plane in planes]),
        "share": np.array([plane.share[:2] for plane in planes]),
        "digit": np.array([plane.digit[selection].numpy() for plane in planes]),
        "x": points[:, :, 0],
        "y": points[:, :, 1],
    }


def plane_grid(
    figure: SubFigure,
    planes: Arrays,
    hue: str,
    names: Sequence[str],
    colours: Sequence[str],
    rows: Rows = (),
) -> None:
    """Draw planes in a grid, in rows after the attention and after the MLP.

    Columns are layers and positions; or, with some `rows`, positions, numbered from 0.

    Args:
        figure: The figure.
        planes: `x`, `y` `[plane, sums]`, `share` `[plane, 2]` of the variance, `layer`,
            `position`, `after` `[plane]`, and what `hue` names, `[plane, sums]` or `[sums]`.
        hue: The name of the labels 0, 1, …
        names: The labels' names.
        colours: The labels' colours.
        rows: The steps that are drawn; all if there are none.
    """
    titles = _titles(planes, rows)
    row_titles = list(dict.fromkeys(row for row, _ in titles.values()))
    column_titles = list(dict.fromkeys(column for _, column in titles.values()))
    axes = figure.subplots(len(row_titles), len(column_titles), squeeze=False)
    for i, (row, column) in titles.items():
        ax = axes[row_titles.index(row), column_titles.index(column)]
        x = planes["x"][i]
        y = planes["y"][i]
        label = planes[hue] if planes[hue].ndim == 1 else planes[hue][i]
        scatter(ax, x, y, label, colours)
        if len(names) == 10:
            name_centres(ax, x, y, label, names)
        shares = " · ".join(f"{share:.0%}" for share in planes["share"][i])
        ax.set_xlabel(shares, labelpad=1.5, fontsize=7)
    for ax, title in zip(axes[0], column_titles, strict=True):
        ax.set_title(title.replace(", ", "\n") if len(column_titles) > 7 else title)
    for ax, title in zip(axes[:, 0], row_titles, strict=True):
        ax.set_ylabel(title)


def _titles(planes: Arrays, rows: Rows) -> dict[int, tuple[str, str]]:
    """Return the titles of row and column of each plane that is drawn, by its number."""
    place = np.unique(planes["position"], return_inverse=True)[1]
    steps = zip(planes["layer"].tolist(), planes["after"].tolist(), strict=True)
    titles = {}
    for i, (layer, after) in enumerate(steps):
        if not rows:
            titles[i] = (f"after {after}", f"layer {layer}, pos. {planes['position'][i]}")
        elif (layer, after) in rows:
            titles[i] = (f"layer {layer},\nafter {after}", f"position {place[i]}")
    return titles


def plane_figure(
    sides: Mapping[str, Arrays],
    classes: Sequence[str] = (),
    *,
    height: float,
    stacked: bool = True,
    rows: Rows = (),
) -> Figure:
    """Return a figure with the planes of each side, coloured by digit.

    They are coloured by `carry_class` if the names of `classes` are given.
    """
    hue, names = ("carry_class", classes) if classes else ("digit", "0123456789")
    colours = class_colours(len(classes)) if classes else DIGIT_COLOURS

    def draw(figure: SubFigure, side: Arrays) -> None:
        plane_grid(figure, side, hue, names, colours, rows)

    return subfigures(sides, draw, height=height, stacked=stacked, legend=dots(names, colours))


def draw_neurons(figure: SubFigure, side: Arrays) -> None:
    """Draw neurons on the weights' two leading singular axes, positions by classes (Fig. 13, 14).

    `side` has their `points` `[neuron, axis]`, the axes' `share` of the squared weights, and the
    `chosen` neurons `[class, position, neuron]`, which are filled. Cells with a carry-in are
    framed.
    """
    n_classes, n_positions = side["chosen"].shape[:2]
    carry_in = carries.carry_in(n_positions)  # [class, position]
    x, y = side["points"].T
    axes: Any = figure.subplots(n_positions, n_classes, sharex=True, sharey=True, squeeze=False)
    size = min(14.0, 1800 / len(x))
    empty: dict[str, Any] = {"c": "none", "edgecolors": OTHER, "linewidths": 0.7}
    filled: dict[str, Any] = {"color": MOST_ACTIVE, "alpha": 0.75, "linewidths": 0}
    for j, i in np.ndindex(n_classes, n_positions):
        ax = axes[i, j]
        is_chosen = side["chosen"][j, i].astype(bool)
        ax.scatter(x[~is_chosen], y[~is_chosen], s=size, rasterized=True, **empty)
        ax.scatter(x[is_chosen], y[is_chosen], s=size, rasterized=True, **filled)
        ax.set(xticks=[0], yticks=[0], xticklabels=[], yticklabels=[])
        ax.spines[:].set_visible(True)
        if carry_in[j, i]:
            ax.spines[:].set(linewidth=2, color=INK)
    positions = [position_label(name) for name in side["positions"]]
    name_grid(axes, positions, side["classes"], ("normal", "bold"))
    shares = [f"axis {i} of the weights: {share:.0%}" for i, share in enumerate(side["share"], 1)]
    figure.supxlabel(" · ".join(shares), fontsize=7.5)


def dots(names: Sequence[str], colours: Sequence[str]) -> list[Line2D]:
    """Return entries of a legend, dots of some colours."""
    pairs = zip(names, colours, strict=True)
    return [
        Line2D([], [], linestyle="", marker="o", markersize=5, color=colour, label=name)
        for name, colour in pairs
    ]
