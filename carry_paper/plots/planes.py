"""Clouds: the residual stream on principal axes (Fig. 4, 7, 16, 19, …), neurons (Fig. 13, 14)."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from carry_core import carries
from carry_paper.findings.geometry import Plane
from carry_paper.plots.sides import Arrays, subfigures
from carry_paper.plots.style import (
    CLASS_COLOURS,
    DIGIT_COLOURS,
    INK,
    PLACES,
    class_colours,
    name_grid,
    position_label,
)

# The id of text on points, to which the built page gives an outline in the ground's colour.
NUMERAL = "numeral"
NEAR = 0.08  # of a panel's width or height: names nearer than that would hide each other
NO, _, NINE, YES, _ = CLASS_COLOURS  # the two sides of a decision, and the nines
MOST_ACTIVE, OTHER = "#D1352B", "#7C93B8"  # neurons
# Some rows of a grid, such as (0, "MLP") for the stream after the MLP of layer 0.
Rows = Sequence[tuple[int, str]]
# A label's name is written if this share of its sums is nearer to its centre than to another's.
NAMED_SHARE = 0.5
THRESHOLD: dict[str, Any] = {"color": INK, "linewidth": 1.1, "linestyle": (0, (4, 2))}
MOST_BESIDE = 3  # columns of planes with which two sides stand beside each other


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

    `planes` has `x`, `y` `[plane, sums]`, `share` `[plane, 2]` of the variance, `layer`,
    `position`, `after` `[plane]`, and the labels 0, 1, … that `hue` names, `[plane, sums]` or
    `[sums]`.
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
    rows: Rows = (),
    link: str | None = None,
) -> Figure:
    """Return a figure with the planes of each side, coloured by digit.

    They are coloured by `carry_class` if the names of `classes` are given. The `link` is as in
    `sides.Layout`.
    """
    hue, names = ("carry_class", classes) if classes else ("digit", "0123456789")
    colours = class_colours(len(classes)) if classes else DIGIT_COLOURS

    def draw(figure: SubFigure, side: Arrays) -> None:
        plane_grid(figure, side, hue, names, colours, rows)

    columns = {column for side in sides.values() for _, column in _titles(side, rows).values()}
    stacked = len(columns) > MOST_BESIDE
    legend = dots(names, colours)
    return subfigures(sides, draw, height=height, stacked=stacked, legend=legend, link=link)


class Decision(NamedTuple):
    """What a layer decides, and where in it this is looked at.

    Attributes:
        layer: The layer.
        after: `attention` or `MLP`.
        carry_in: True if the decision is a carry-in, False if it is a digit sum of ten or more.
    """

    layer: int
    after: str
    carry_in: bool

    def of_column(self, patterns: Sequence[str], column: int) -> NDArray[np.bool_]:
        """Return True for each carry class in which this holds at a column."""
        if self.carry_in:
            is_last = column + 1 == len(patterns[0])
            return np.array([not is_last and name[column + 1] != "0" for name in patterns])
        return np.array([name[column] == "1" for name in patterns])


def decision_figure(
    sides: Mapping[str, Arrays],
    patterns: Sequence[str],
    decisions: Sequence[Decision],
    *,
    height: float,
    columns: Mapping[int, str] | None = None,
    link: str | None = None,
) -> Figure:
    """Return a figure with a row of planes for each decision, in two colours (Fig. 4, 7, 16, …).

    A line is the best threshold on the better axis, and its accuracy is below the plane. Digit sums
    of nine have a colour of their own where ten or more is decided.

    `sides` have the arrays of `plane_grid`, with the `carry_class` of each sum, which counts the
    `patterns`. `columns` are those of the sum that are drawn, with their titles, all if None; those
    in which a row has nothing to decide are left out. `height` and `link` are as in `sides.Layout`.
    """
    titles = columns or _column_titles(len(patterns[0]))
    open_cells = [[i for i in titles if _is_open(decision, patterns, i)] for decision in decisions]
    n_columns = max(1, *map(len, open_cells))

    def draw(figure: SubFigure, side: Arrays) -> None:
        axes = figure.subplots(len(decisions), n_columns, squeeze=False)
        for row, decision, numbers in zip(axes, decisions, open_cells, strict=True):
            for ax in row[len(numbers) :]:
                ax.axis("off")
            for ax, column in zip(row, numbers, strict=False):
                _draw_decision(ax, side, decision, patterns, column)
                ax.set_title(titles[column])
            what = "carry-in?" if decision.carry_in else "ten or more?"
            row[0].set_ylabel(f"{what}\nlayer {decision.layer}, after {decision.after}")

    names = {"yes": YES, "no": NO, "no: nine": NINE}
    if all(decision.carry_in for decision in decisions):
        del names["no: nine"]
    legend = dots([*names], [*names.values()])
    legend.append(Line2D([], [], **THRESHOLD, label="best threshold"))
    stacked = n_columns > MOST_BESIDE
    return subfigures(sides, draw, height=height, legend=legend, stacked=stacked, link=link)


def _is_open(decision: Decision, patterns: Sequence[str], column: int) -> bool:
    """Return True if a decision at a column depends on the carry class."""
    holds = decision.of_column(patterns, column)
    return bool(holds.any() and not holds.all())


def _draw_decision(
    ax: Axes, side: Arrays, decision: Decision, patterns: Sequence[str], column: int
) -> None:
    """Draw a plane by whether something is decided at a column, with the best threshold."""
    in_layer = np.asarray(side["layer"]) == decision.layer
    position = np.unique(np.asarray(side["position"])[in_layer])[column]
    is_drawn = in_layer & (np.asarray(side["after"]) == decision.after)
    (i,) = np.flatnonzero(is_drawn & (np.asarray(side["position"]) == position))
    holds = decision.of_column(patterns, column)[np.asarray(side["carry_class"])]
    is_nine = ~holds & (np.asarray(side["digit"][i]) == 9) & (not decision.carry_in)
    x, y = side["x"][i], side["y"][i]
    scatter(ax, x, y, np.where(is_nine, 2, ~holds), (YES, NO, NINE))
    if 0 < holds.sum() < len(holds):
        axis, threshold, accuracy = best_threshold(np.stack([x, y]), holds)
        (ax.axhline if axis else ax.axvline)(threshold, **THRESHOLD)
        ax.set_xlabel(f"axis {axis + 1}: accuracy {accuracy:.2f}", labelpad=2)


def best_threshold(
    points: NDArray[np.floating[Any]], positive: NDArray[np.bool_]
) -> tuple[int, float, float]:
    """Return the axis and the place of the best threshold, and its balanced accuracy.

    `points` are `[axis, sums]`. The threshold may separate in either direction.
    """
    import scipy

    tests = [scipy.stats.ks_2samp(x[positive], x[~positive], method="asymp") for x in points]
    axis = int(np.argmax([test.statistic for test in tests]))
    below = float(tests[axis].statistic_location)
    above = points[axis][points[axis] > below]
    threshold = (below + float(above.min())) / 2 if len(above) else below
    return axis, threshold, 0.5 + 0.5 * float(tests[axis].statistic)


def _column_titles(width: int) -> dict[int, str]:
    """Return the names of a sum's columns."""
    names = PLACES[-width:] if width <= len(PLACES) else [f"position {i}" for i in range(width)]
    return dict(enumerate(names))


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
