"""Digits as a pentagon of pairs in the residual stream (Fig. 17)."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from jaxtyping import Bool, Complex, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from torch import Tensor

from carry_core import tasks
from carry_core.page import FAINT, INK, WIDTH, number, styled
from carry_core.pentagon import Pentagon, centres
from carry_core.plots.common import DIGIT_COLOURS, class_colours, dots, panel

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
    classes = [tasks.name(p) for p in tasks.patterns(n_digits)]
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
