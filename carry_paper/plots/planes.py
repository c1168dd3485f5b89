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
from carry_paper.plots.style import DIGIT_COLOURS, INK, class_colours, name_grid

# what stands on points: the built page gives it an outline in the ground's colour
NUMERAL = "numeral"
NEAR = 0.08  # of a panel's width or height: names nearer than that would hide each other
OFTEN, SELDOM = "#D1352B", "#7C93B8"  # neurons that are most often active, and the others
# of a grid, such as (0, "MLP") for what is after the MLP of layer 0
Rows = Sequence[tuple[int, str]]
# share of a label's sums nearer to its own centre than to another's, from which on its name is
# written
APART = 0.5


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
    """Write the name of each label that has a place of its own at the middle of its points."""
    points, kinds = np.stack([x, y], 1), np.unique(label)
    centres = np.array([np.median(points[label == kind], 0) for kind in kinds])
    nearest = kinds[((points[:, None] - centres) ** 2).sum(-1).argmin(1)]
    written = np.empty((0, 2))
    for kind, at in zip(kinds, centres, strict=True):
        free = (abs(written - at) > NEAR * np.ptp(points, 0)).any(1).all()
        if free and (nearest[label == kind] == kind).mean() >= APART:
            ax.annotate(
                names[kind], at, ha="center", va="center", weight="bold", color=INK, gid=NUMERAL
            )
            written = np.vstack([written, at])


def plane_arrays(planes: Sequence[Plane], drawn: slice = slice(None)) -> dict[str, NDArray[Any]]:
    """Return what `plane_grid` draws of the planes of `geometry.journey`, of the `drawn` sums."""
    about = {
        key: np.array([getattr(plane, key) for plane in planes])
        for key in ("layer", "after", "position")
    }
    x, y = np.array([plane.points[drawn, :2].T.numpy() for plane in planes]).swapaxes(0, 1)
    share = np.array([plane.share[:2] for plane in planes])
    return about | {
        "share": share,
        "digit": np.array([plane.digit[drawn].numpy() for plane in planes]),
        "x": x,
        "y": y,
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
    number = np.unique(planes["position"], return_inverse=True)[1]
    places: dict[int, tuple[str, str]] = {}
    for i, (layer, after) in enumerate(
        zip(planes["layer"].tolist(), planes["after"].tolist(), strict=True)
    ):
        if not rows:
            places[i] = (f"after {after}", f"layer {layer}, pos. {planes['position'][i]}")
        elif (layer, after) in rows:
            places[i] = (f"layer {layer},\nafter {after}", f"position {number[i]}")
    left, top = (list(dict.fromkeys(titles)) for titles in zip(*places.values(), strict=True))
    axes = figure.subplots(len(left), len(top), squeeze=False)
    for i, (row, column) in places.items():
        ax = axes[left.index(row), top.index(column)]
        x, y, label = (
            planes["x"][i],
            planes["y"][i],
            planes[hue] if planes[hue].ndim == 1 else planes[hue][i],
        )
        scatter(ax, x, y, label, colours)
        if len(names) == 10:
            name_centres(ax, x, y, label, names)
        ax.set_xlabel(" · ".join(f"{s:.0%}" for s in planes["share"][i]), labelpad=1.5, fontsize=7)
    for ax, title in zip(axes[0], top, strict=True):
        ax.set_title(title.replace(", ", "\n") if len(top) > 7 else title)
    for ax, title in zip(axes[:, 0], left, strict=True):
        ax.set_ylabel(title)


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

    The `chosen` neurons `[class, position, neuron]` are filled.
    """
    n_classes, n_positions = side["chosen"].shape[:2]  # [class, position, neuron]
    # [class, position], [neuron, axis]
    carry_in, (x, y) = carries.carry_in(n_positions), side["points"].T
    axes: Any = figure.subplots(n_positions, n_classes, sharex=True, sharey=True, squeeze=False)
    size = min(14.0, 1800 / len(x))
    for j, i in np.ndindex(n_classes, n_positions):
        ax, chosen = axes[i, j], side["chosen"][j, i].astype(bool)
        ax.scatter(
            x[~chosen],
            y[~chosen],
            s=size,
            c="none",
            edgecolors=SELDOM,
            linewidths=0.7,
            rasterized=True,
        )
        ax.scatter(
            x[chosen], y[chosen], s=size, color=OFTEN, alpha=0.75, linewidths=0, rasterized=True
        )
        ax.set(xticks=[0], yticks=[0], xticklabels=[], yticklabels=[])
        ax.spines[:].set_visible(True)
        if carry_in[j, i]:
            ax.spines[:].set(linewidth=2, color=INK)
    name_grid(
        axes,
        [name.replace("pos", "pos. ") for name in side["positions"]],
        side["classes"],
        ("normal", "bold"),
    )
    # of their squares
    shares = [f"axis {i} of the weights: {share:.0%}" for i, share in enumerate(side["share"], 1)]
    figure.supxlabel(" · ".join(shares), fontsize=7.5)


def dots(names: Sequence[str], colours: Sequence[str]) -> list[Line2D]:
    """Return entries of a legend, dots of some colours."""
    pairs = zip(names, colours, strict=True)
    return [
        Line2D([], [], linestyle="", marker="o", markersize=5, color=colour, label=name)
        for name, colour in pairs
    ]
