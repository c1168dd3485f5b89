"""Points in a plane: the residual stream (Fig. 4, 7, 16, 19, 22, 24), two kinds of runs."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from carry_core import carries
from carry_core.findings.geometry import CENTROID_ACCURACY, Plane, apart, pocket_accuracy
from carry_core.plots.style import (
    DIGIT_COLOURS,
    FAINT,
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
