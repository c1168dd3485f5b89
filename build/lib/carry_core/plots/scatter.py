"""Points in a plane: the residual stream (Fig. 4, 7, 16, 19, 22, 24), the pentagon (Fig. 17), two kinds of runs."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Bool, Complex, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from torch import Tensor

from carry_core import carries
from carry_core.findings.geometry import CENTROID_ACCURACY, Plane, apart, mean_order, pocket_accuracy
from carry_core.findings.pentagon import Pentagon, centres
from carry_core.plots.style import (
    DIGIT_COLOURS,
    FAINT,
    INK,
    WIDTH,
    Table,
    class_colours,
    dots,
    number,
    panel,
    styled,
)


def mark_pockets(ax: Axes, plane: Plane) -> None:
    """Write each digit on the middle of its sums."""
    for digit in plane.digit.unique().tolist():
        x, y = plane.points[plane.digit == digit, :2].median(0).values.tolist()
        outline = [withStroke(linewidth=1.6, foreground="white")]
        ax.text(x, y, str(digit), ha="center", va="center", fontsize=6.5, weight="bold", path_effects=outline)


@styled
def pca_grid(planes: Sequence[Plane], n_digits: int = 3) -> Figure:
    """The journey of the residual stream on its two leading axes (Fig. 4, 7): rows as in the paper.

    After the attention and after the MLP coloured by digit, then both coloured by class. Each axis has its own scale.
    """
    classes = [carries.paper_name(p) for p in carries.patterns(n_digits)]
    last = max(plane.layer for plane in planes)
    what = "answer digit" + (f" (layer {last}), digit sum mod 10 (layer 0)" if last else "")
    halves: list[tuple[str, str, Sequence[str], Sequence[str]]] = [
        ("digit", what, [str(d) for d in range(10)], DIGIT_COLOURS),
        ("task", "carry class", classes, class_colours(len(classes))),
    ]
    n_columns = len(planes) // 2
    left, gap, title, foot, key_height = 0.42, 0.1, 0.25, 0.19, 0.44  # inches
    side = min(1.5, (WIDTH - left - 0.02 - gap * (n_columns - 1)) / n_columns)
    left = max(left, (WIDTH - n_columns * (side + gap) + gap) / 2)  # few columns stand in the middle
    figure = Figure(figsize=(WIDTH, title + 4 * (side + foot) + 2 * key_height))
    for half, (key, legend, names, colours) in enumerate(halves):
        rgb = np.array([mpl.colors.to_rgb(c) for c in colours])
        start = title + half * (2 * (side + foot) + key_height)
        for i, plane in enumerate(planes):
            column, row = divmod(i, 2)
            ax = panel(figure, left + column * (side + gap), start + row * (side + foot), side, side)
            x, y = plane.points[:, :2].numpy().T
            size = min(max(12_000 / len(x), 1.2), 6)
            ax.scatter(x, y, c=rgb[getattr(plane, key).numpy()], s=size, linewidths=0, rasterized=True)
            ax.set(xticks=[], yticks=[])
            ax.set_xlabel(
                " · ".join(f"{100 * s:.0f}%" for s in plane.share[:2]), fontsize=6.5, color=FAINT, labelpad=1.5
            )
            if key == "digit" and pocket_accuracy(plane.points, plane.digit) >= CENTROID_ACCURACY:
                mark_pockets(ax, plane)
            if half == row == 0:
                ax.set_title(f"layer {plane.layer}, pos. {plane.position}")
            if column == 0:
                ax.set_ylabel(f"after {plane.after}\nby {key if key == 'digit' else 'class'}")
        below = 1 - (start + 2 * (side + foot)) / figure.get_size_inches()[1]
        figure.legend(
            handles=dots(names, colours), title=legend, loc="upper center", bbox_to_anchor=(0.5, below), ncols=10,
            columnspacing=1.0, borderaxespad=0.0,
        )  # fmt: skip
    return figure


def table_of_planes(planes: Sequence[Plane]) -> Table:
    """What is apart in Fig. 4's planes, and what lies in pockets: `geometry.apart` and `geometry.pocket_accuracy`."""
    rows, layers = [], [plane.layer for plane in planes[::2]]
    for after, chosen in (("attention", planes[::2]), ("MLP", planes[1::2])):
        rows.append([f"apart, after {after}", *(number(apart(plane)) for plane in chosen)])
        for what, label in (("digit", "digit"), ("class", "task")):
            found = [pocket_accuracy(plane.points, getattr(plane, label)) for plane in chosen]
            rows.append([f"pockets by {what}, after {after}", *map(number, found)])
    spans = [("", 1), *((f"layer {layer}", layers.count(layer)) for layer in sorted(set(layers)))]
    return Table(["", *(f"pos. {plane.position}" for plane in planes[::2])], rows, spans)


def table_of_orders(orders: Mapping[str, Mapping[int, Mapping[str, Sequence[float]]]]) -> Table:
    """How well digits stand in order, group by group and run by run: `geometry.orders_of_runs` of each group."""
    rows = []
    for group, found in orders.items():
        for run, each in found.items():
            values = [", ".join(map(number, x)) for x in each.values()]
            rows.append([group, f"{run}", *values, number(mean_order(each))])
    return Table(["group", "run", "after attention", "after MLP", "mean"], rows)


@styled
def journey_grid(planes: Sequence[Plane], patterns: Sequence[str], n_digits: int) -> Figure:
    """The residual stream at the answer's positions (columns), layer by layer, by class and by digit (Fig. 19, 22, 24).

    Args:
        planes: as `geometry.journey` gives them for `longer.answer_columns`.
        patterns: the classes that the sums are of.
        n_digits: of the sums.
    """
    layers = sorted({plane.layer for plane in planes})
    every = carries.patterns(n_digits)
    where = torch.full((len(every),), -1)
    where[[every.index(p) for p in patterns]] = torch.arange(len(patterns))
    names = [carries.paper_name(p) for p in patterns]
    halves: list[tuple[str, str, Sequence[str], Sequence[str]]] = [
        ("task", "carry class", names, class_colours(len(names))),
        ("digit", "digit sum mod 10, in the last layer the answer's digit", list("0123456789"), DIGIT_COLOURS),
    ]
    left, gap, title, foot, key = 0.62, 0.09, 0.22, 0.17, 0.2 + 0.16 * -(-len(names) // 7)  # inches
    side = min(1.4, (WIDTH - left - 0.02 - gap * (n_digits - 1)) / n_digits)
    n_rows = 2 * len(layers)
    total = left + n_digits * (side + gap)
    figure = Figure(figsize=(total, title + 2 * (n_rows * (side + foot) + key + 0.1)))
    for half, (label, legend, entries, colours) in enumerate(halves):
        rgb = np.array([mpl.colors.to_rgb(c) for c in colours])
        start = title + half * (n_rows * (side + foot) + key + 0.1)
        for i, plane in enumerate(planes):
            block, after = divmod(i, 2)
            layer, column = divmod(block, n_digits)
            row = 2 * layer + after
            ax = panel(figure, left + column * (side + gap), start + row * (side + foot), side, side)
            colour = where[plane.task] if label == "task" else plane.digit
            x, y = plane.points[:, :2].numpy().T
            size = min(max(9_000 / len(x), 1.0), 5)
            # without antialiasing a panel has a third of the bytes
            ax.scatter(x, y, c=rgb[colour.numpy()], s=size, linewidths=0, rasterized=True, antialiased=False)
            ax.set(xticks=[], yticks=[])
            ax.set_xlabel(" · ".join(f"{100 * s:.0f}%" for s in plane.share[:2]), fontsize=6, color=FAINT, labelpad=1)
            if half == row == 0:
                ax.set_title(f"position {column}")
            if column == 0:
                ax.set_ylabel(f"layer {plane.layer}\n{plane.after}", fontsize=7.5)
        below = 1 - (start + n_rows * (side + foot)) / figure.get_size_inches()[1]
        figure.legend(
            handles=dots(entries, colours), title=legend, loc="upper center", bbox_to_anchor=(0.5, below),
            ncols=10 if label == "digit" else 7, columnspacing=1.0, borderaxespad=0.0,
        )  # fmt: skip
    return figure


DIGIT = 0.1  # inches that a digit takes
LARGE, MEDIUM, SMALL = 2_500, 1_250, 500  # dots in a panel at most; all sums count for what is computed


def moved_apart(
    places: Complex[np.ndarray, " digit"], least: float, rounds: int = 200
) -> Complex[np.ndarray, " digit"]:
    """The places of labels, moved as little as it takes until no two are nearer to each other than `least`."""
    moved = places.copy()
    for _ in range(rounds):
        gap = moved[:, None] - moved[None]
        far = np.abs(gap)
        np.fill_diagonal(far, np.inf)
        if not (far < least).any():
            break
        which = np.arange(len(moved))
        away = np.where(far > 0, gap / np.where(far > 0, far, 1), np.sign(which[:, None] - which[None]))
        moved = moved + (np.where(far < least, (least - far) / 2 + 0.01 * least, 0) * away).sum(1)
    return moved


def _cloud(
    ax: Axes, found: Pentagon, axes: tuple[int, int], label: Int[Tensor, " sums"], colours: Sequence[str],
    which: Bool[Tensor, " sums"] | None = None, most: int | None = None,
) -> None:  # fmt: skip
    rgb = np.array([mpl.colors.to_rgb(colour) for colour in colours])
    chosen = found.points if which is None else found.points[which]
    kinds = label if which is None else label[which]
    x, y = chosen[:most, axes].numpy().T
    ax.scatter(x, y, c=rgb[kinds[:most].numpy()], s=min(max(12_000 / len(x), 1.2), 5), linewidths=0, rasterized=True)
    ax.set(xticks=[], yticks=[])
    ax.set_aspect("equal", adjustable="datalim")


def _corners(ax: Axes, found: Pentagon, axes: tuple[int, int], which: Bool[Tensor, " sums"]) -> None:
    """Each digit on the middle of its sums or beside it, and lines from each pair of digits to the next."""
    middle = centres(found.points[which][:, axes], found.digit[which]).numpy()
    vertex = np.array([np.nanmean(middle[[d, d + 5]]) for d in (0, 1, 2, 3, 4, 0)])
    ax.plot(vertex.real, vertex.imag, color=INK, linewidth=0.7, alpha=0.7)
    inch = 1.1 * max(ax.dataLim.width, ax.dataLim.height) / (ax.get_window_extent().width / ax.figure.dpi)
    for digit, place in enumerate(moved_apart(middle, DIGIT * inch)):
        if place == place:
            outline = [withStroke(linewidth=1.6, foreground="white")]
            ax.text(place.real, place.imag, str(digit), ha="center", va="center", fontsize=6.5, weight="bold",
                    path_effects=outline)  # fmt: skip


def _named(ax: Axes, found: Pentagon, axes: tuple[int, int]) -> None:
    text = " · ".join(f"axis {i + 1}: {100 * found.share[i]:.0f}%" for i in axes)
    ax.set_xlabel(text, fontsize=6.5, color=FAINT, labelpad=1.5)


@styled
def pentagon_panels(found: Pentagon, n_digits: int = 3) -> Figure:
    """One run: by class, by digit, and by digit on the next axes; below, with and without an arriving one (Fig. 17).

    A panel has `LARGE` or `MEDIUM` dots at most, which keeps the page light.
    """
    classes = [carries.paper_name(p) for p in carries.patterns(n_digits)]
    colours = class_colours(len(classes))
    gap, title, foot, key = 0.14, 0.24, 0.19, 0.5  # inches
    wide, narrow = (WIDTH - 0.04 - 2 * gap) / 3, (WIDTH - 0.04 - 3 * gap) / 4
    figure = Figure(figsize=(WIDTH, title + wide + foot + key + title + narrow + foot))
    upper: list[tuple[str, tuple[int, int], Tensor, Sequence[str]]] = [
        ("by carry class", (0, 1), found.task, colours),
        ("by digit of the answer", (0, 1), found.digit, DIGIT_COLOURS),
        ("by digit, next axes", (1, 2), found.digit, DIGIT_COLOURS),
    ]
    for i, (name, axes, label, palette) in enumerate(upper):
        ax = panel(figure, 0.02 + i * (wide + gap), title, wide, wide)
        _cloud(ax, found, axes, label, palette, most=LARGE)
        _named(ax, found, axes)
        ax.set_title(name)
    top = title + wide + foot
    lower = [(where, what) for where in ("none arrives", "a one arrives") for what in ("class", "digit")]
    for i, (where, what) in enumerate(lower):
        ax = panel(figure, 0.02 + i * (narrow + gap), top + key + title, narrow, narrow)
        which = found.arrives if where == "a one arrives" else ~found.arrives
        by_class = what == "class"
        label, palette = (found.task, colours) if by_class else (found.digit, DIGIT_COLOURS)
        _cloud(ax, found, (0, 1), label, palette, which, MEDIUM)
        if not by_class:
            _corners(ax, found, (0, 1), which)
        _named(ax, found, (0, 1))
        ax.set_title(f"{where}, by {what}")
    down = figure.get_size_inches()[1]
    for x, names, palette, columns in ((0.02, classes, colours, 5), (0.5, [*map(str, range(10))], DIGIT_COLOURS, 10)):
        figure.legend(
            handles=dots(names, palette), loc="upper left", bbox_to_anchor=(x, 1 - (top + 0.06) / down), ncols=columns,
            columnspacing=0.7, borderaxespad=0.0, handletextpad=0.0,
        )  # fmt: skip
    return figure


@styled
def pentagon_runs(runs: Mapping[int, Pentagon]) -> Figure:
    """Every run: the sums at which none arrives, by digit, in the leading plane and in the plane with the best score.

    Below each panel its score and, in brackets, what 0.99 of shuffled labels stay below.
    """
    left, gap, title, foot = 0.62, 0.1, 0.24, 0.32  # inches
    side = min(1.5, (WIDTH - left - 0.02 - gap * (len(runs) - 1)) / len(runs))
    figure = Figure(figsize=(left + len(runs) * (side + gap), title + 2 * (side + foot)))
    for i, (run, found) in enumerate(runs.items()):
        rows = [((0, 1), found.score, found.chance), (found.plane, found.best, found.best_chance)]
        for row, (axes, score, chance) in enumerate(rows):
            ax = panel(figure, left + i * (side + gap), title + row * (side + foot), side, side)
            _cloud(ax, found, axes, found.digit, DIGIT_COLOURS, ~found.arrives, SMALL)
            _corners(ax, found, axes, ~found.arrives)
            ax.set_xlabel(
                f"axes {axes[0] + 1}, {axes[1] + 1}\n{number(score)} ({number(chance)})", fontsize=6.5, labelpad=1.5
            )
            if row == 0:
                ax.set_title(f"run {run}")
            if i == 0:
                ax.set_ylabel(("leading\nplane", "best\nplane")[row], rotation=0, ha="right", va="center")
    return figure


SOURCE_MARKS = {"author": ("o", "#7A1F5C", "author’s weights"), "ours": ("s", "#2381A0", "ours")}


def together(
    runs: Mapping[str, tuple[float, float]], near: tuple[float, float] = (0.03, 0.02)
) -> dict[tuple[float, float], str]:
    """The runs' numbers by their points; those of points too near each other for two labels are joined."""
    named: dict[tuple[float, float], str] = {}
    for run, point in runs.items():
        same = [p for p in named if all(abs(x - y) < d for x, y, d in zip(p, point, near, strict=True))]
        named[same[0] if same else point] = f"{named[same[0]]}, {run}" if same else run
    return named


@styled
def two_kinds(points: Mapping[str, Mapping[str, tuple[float, float]]], limits: tuple[float, float]) -> Figure:
    """Each run by what its decision head costs and by how well its leading axis separates (Sec. 4 and 4.1).

    Args:
        points: by source and run, cost and separation.
        limits: the cost from which a head counts, and the separation from which an axis does.
    """
    figure = Figure(figsize=(5.6, 4.6), layout="constrained")
    ax = figure.subplots()
    ax.axvline(limits[0], color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
    ax.axhline(limits[1], color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
    for source, runs in points.items():
        marker, colour, label = SOURCE_MARKS[source]
        x, y = np.array([*runs.values()]).reshape(-1, 2).T
        ax.plot(x, y, linestyle="", marker=marker, markersize=6, color=colour, alpha=0.8, label=label, clip_on=False)
        side = -1 if source == "author" else 1
        for (at, height), named in together(runs).items():
            ax.annotate(
                named, (at, height), xytext=(0, 6 * side), textcoords="offset points", ha="center",
                va="bottom" if side > 0 else "top", fontsize=7, color=colour,
            )  # fmt: skip
    ax.set(
        xlim=(0, 1), ylim=(0.5, 1.05), xlabel="whole answers that the decision head costs more than the other head",
        ylabel="leading axis tells whether\na one arrives",
    )  # fmt: skip
    ax.legend(loc="lower right", handlelength=1)
    return figure
