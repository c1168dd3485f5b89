"""The residual stream on its two leading principal axes, a panel for each layer and position (Fig. 4, 7, 16, 19, …)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba_array
from matplotlib.figure import SubFigure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from carry_core.findings.geometry import Plane

# These two stay as they are in the dark theme, where black and white change.
NUMERAL, GROUND = "#010101", "#FEFEFE"
DISC = {"boxstyle": "circle,pad=0.08", "facecolor": GROUND, "edgecolor": "none", "alpha": 0.85}
APART = 0.5  # share of a label's sums nearer to its own centre than to another's, from which on its name is written


def scatter(ax: Axes, x: NDArray[Any], y: NDArray[Any], label: NDArray[Any], colours: Sequence[str]) -> None:
    """Points coloured by label in random order, and each label's number at the middle of its points."""
    order = np.random.default_rng(0).permutation(len(x))  # else the last labels hide the first
    size = float(np.clip(6_000 / len(x), 1.5, 8))
    ax.scatter(x[order], y[order], c=to_rgba_array(colours)[label[order]], s=size, linewidths=0, rasterized=True)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(True)


def name_centres(ax: Axes, x: NDArray[Any], y: NDArray[Any], label: NDArray[Any], names: Sequence[str]) -> None:
    """Write the name of each label that has a place of its own at the middle of its points."""
    points, kinds = np.stack([x, y], 1), np.unique(label)
    centres = np.array([np.median(points[label == kind], 0) for kind in kinds])
    nearest = kinds[((points[:, None] - centres) ** 2).sum(-1).argmin(1)]
    for kind, (left, up) in zip(kinds, centres, strict=True):
        if (nearest[label == kind] == kind).mean() >= APART:
            ax.text(left, up, names[kind], ha="center", va="center", weight="bold", color=NUMERAL, bbox=DISC)


def plane_arrays(planes: Sequence[Plane], every: int = 1) -> dict[str, NDArray[Any]]:
    """What `plane_grid` takes, of every so many of the sums; a plane's position is its place among all.

    Args:
        planes: as `geometry.journey` gives them.
        every: of how many sums one is drawn.
    """
    positions = sorted({plane.position for plane in planes})
    x, y = np.array([plane.points[::every, :2].T.numpy() for plane in planes]).swapaxes(0, 1)
    return {
        "layer": np.array([plane.layer for plane in planes]),
        "after": np.array([plane.after for plane in planes]),
        "position": np.array([positions.index(plane.position) for plane in planes]),
        "share": np.array([plane.share[:2] for plane in planes]),
        "digit": np.array([plane.digit[::every].numpy() for plane in planes]),
        "x": x,
        "y": y,
    }


def plane_grid(
    figure: SubFigure,
    planes: Mapping[str, NDArray[Any]],
    hue: str,
    names: Sequence[str],
    colours: Sequence[str],
    rows: Sequence[tuple[int, str]] = (),
) -> None:
    """Rows after the attention and after the MLP, columns by layer and position; or some `rows`, columns by position.

    Args:
        figure: to draw in.
        planes: `x`, `y` `[plane, sums]`, `share` `[plane, 2]` of the variance, `layer`, `position`, `after` `[plane]`,
            and what `hue` names, `[plane, sums]` or `[sums]`.
        hue: what the points are coloured by.
        names: of its values, 0, 1, …
        colours: of the same.
        rows: layers and what of them, such as `(0, "MLP")`.
    """
    places: dict[int, tuple[str, str]] = {}
    for i, (layer, after) in enumerate(zip(planes["layer"].tolist(), planes["after"].tolist(), strict=True)):
        if not rows:
            places[i] = (f"after {after}", f"layer {layer}, pos. {planes['position'][i]}")
        elif (layer, after) in rows:
            places[i] = (f"layer {layer},\nafter {after}", f"position {planes['position'][i]}")
    left, top = (list(dict.fromkeys(titles)) for titles in zip(*places.values(), strict=True))
    axes = figure.subplots(len(left), len(top), squeeze=False)
    for i, (row, column) in places.items():
        ax = axes[left.index(row), top.index(column)]
        x, y, label = planes["x"][i], planes["y"][i], planes[hue] if planes[hue].ndim == 1 else planes[hue][i]
        scatter(ax, x, y, label, colours)
        if len(names) == 10:
            name_centres(ax, x, y, label, names)
        ax.set_xlabel(" · ".join(f"{s:.0%}" for s in planes["share"][i]), labelpad=1.5, fontsize=7)
    for ax, title in zip(axes[0], top, strict=True):
        ax.set_title(title.replace(", ", "\n") if len(top) > 7 else title)
    for ax, title in zip(axes[:, 0], left, strict=True):
        ax.set_ylabel(title)


def dots(names: Sequence[str], colours: Sequence[str]) -> list[Line2D]:
    """Entries of a legend."""
    look: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 5}
    return [Line2D([], [], **look, color=colour, label=name) for name, colour in zip(names, colours, strict=True)]
