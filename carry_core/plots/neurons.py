"""The last MLP's neurons on the singular axes of its weights, and boards of cosines (Fig. 13, 14, Sec. 5)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator
from numpy.typing import NDArray
from torch import Tensor

from carry_core import carries
from carry_core.findings.neurons import Board
from carry_core.plots.style import FAINT, INK, WIDTH, panel, position, styled

OFTEN, SELDOM = "#D1352B", "#7C93B8"
COSINES = "RdBu_r"
STRIP = ListedColormap(["#E5E7EB", INK])


def draw_neurons(figure: SubFigure, side: Mapping[str, NDArray[Any]]) -> None:
    """Neurons on the two leading singular axes: positions by classes, the chosen ones filled (Fig. 13, 14).

    Heavy frames mark the cells with a carry-in. For `page.subfigures`.

    Args:
        figure: to draw into.
        side: `points` [neuron, axis], `share` [axis] of the squared weights, `chosen` [class, position, neuron], and
            the names of `classes` and `positions`.
    """
    n_classes, n_positions = side["chosen"].shape[:2]
    carry_in, (x, y) = carries.carry_in(n_positions), side["points"].T
    axes: Any = figure.subplots(n_positions, n_classes, sharex=True, sharey=True, squeeze=False)
    size = min(14.0, 1800 / len(x))
    for j, i in np.ndindex(n_classes, n_positions):
        ax, chosen = axes[i, j], side["chosen"][j, i].astype(bool)
        ax.scatter(x[~chosen], y[~chosen], s=size, c="none", edgecolors=SELDOM, linewidths=0.7, rasterized=True)
        ax.scatter(x[chosen], y[chosen], s=size, color=OFTEN, alpha=0.75, linewidths=0, rasterized=True)
        ax.set(xticks=[0], yticks=[0], xticklabels=[], yticklabels=[])
        ax.spines[:].set_visible(True)
        if carry_in[j, i]:
            ax.spines[:].set(linewidth=2, color=INK)
    for ax, name in zip(axes[0], side["classes"], strict=True):
        ax.set_title(name, weight="bold")
    for ax, name in zip(axes[:, 0], side["positions"], strict=True):
        ax.set_ylabel(position(name), rotation=0, ha="right", va="center")
    shares = [f"axis {i + 1} of the weights: {share:.0%}" for i, share in enumerate(side["share"])]
    figure.supxlabel(" · ".join(shares), fontsize=7.5)


@styled
def board_grid(columns: Sequence[tuple[str, Sequence[Board]]]) -> Figure:
    """Cosines between sums with one outcome: a row for each position, a column for each ablation (Sec. 5).

    The strip on top of a board is dark where a one arrives.
    """
    n_rows, n_columns = len(columns[0][1]), len(columns)
    left, right, gap, title, strip = 0.6, 0.75, 0.2, 0.24, 0.09  # inches
    side = min(2.3, (WIDTH - left - right - gap * (n_columns - 1)) / n_columns)
    total = left + n_columns * (side + gap) - gap + right
    figure = Figure(figsize=(total, title + n_rows * (strip + side + gap)))
    for j, (name, found) in enumerate(columns):
        for i, board in enumerate(found):
            x, top = left + j * (side + gap), title + i * (strip + side + gap)
            over = panel(figure, x, top, side, strip)
            over.imshow(board.arrives[None].numpy().astype(int), cmap=STRIP, vmin=0, vmax=1, aspect="auto",
                        interpolation="nearest")  # fmt: skip
            ax = panel(figure, x, top + strip, side, side)
            ax.imshow(board.cosine.numpy(), cmap=COSINES, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
            for each in (over, ax):
                each.set(xticks=[], yticks=[])
            if i == 0:
                over.set_title(name)
            if j == 0:
                ax.set_ylabel(f"pos. {board.position}", rotation=0, ha="right", va="center")
    bar = figure.colorbar(
        ScalarMappable(Normalize(-1, 1), COSINES),
        cax=panel(figure, total - right + 0.15, title + strip, 0.1, min(side, 1.6)), ticks=np.array([-1, 0, 1]),
    )  # fmt: skip
    bar.set_label("cosine")
    return figure


KINDS = ("#2381A0", "o", 2.6, "a one arrives in some sums"), ("#D55E00", "^", 3.2, "in all or in none")


@styled
def squashing_by_outcome(
    ratio: Float[Tensor, "run outcome pos"],
    outcomes: Sequence[int],
    mixed: Bool[Tensor, "outcome pos"],
    names: Sequence[str],
    shown: int = 74,
) -> Figure:
    """The final MLP's squashing of each outcome: a dot for the median run, a line from the lowest to the highest.

    Args:
        ratio: as `heads.squashing`.
        outcomes: which.
        mixed: whether at this position a one arrives in some of the outcome's sums and not in others.
        names: of the positions.
        shown: the outcome that gets a ring and its number.
    """
    figure = Figure(figsize=(WIDTH, 2.7), layout="constrained")
    axes = figure.subplots(1, len(names), sharey=True)
    x = np.array(outcomes)
    for i, (ax, name) in enumerate(zip(np.atleast_1d(axes), names, strict=True)):
        here = ratio[..., i].double().numpy()
        low, middle, high = here.min(0), np.median(here, 0), here.max(0)
        for side, (colour, marker, size, _) in zip((mixed[:, i].numpy(), ~mixed[:, i].numpy()), KINDS, strict=True):
            ax.vlines(x[side], low[side], high[side], color=colour, linewidth=0.7, alpha=0.35)
            ax.plot(x[side], middle[side], linestyle="", marker=marker, markersize=size, color=colour)
        ax.axhline(1, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
        if shown in outcomes:
            at = list(outcomes).index(shown)
            ax.plot(shown, middle[at], marker="o", markersize=8, markerfacecolor="none", markeredgecolor=INK)
            leader = {"arrowstyle": "-", "color": INK, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 4}
            ax.annotate(
                str(shown), (shown, middle[at]), xytext=(shown, 0.02), textcoords=("data", "axes fraction"),
                ha="center", fontsize=7.5, arrowprops=leader,
            )  # fmt: skip
        ax.set(yscale="log", title=position(name), xlabel="outcome", xlim=(0, 1.02 * x.max()))
        ax.yaxis.set_major_locator(FixedLocator([0.03, 0.1, 0.3, 1, 3]))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter("{x:g}")
    low, high = np.atleast_1d(axes)[0].get_ylim()
    np.atleast_1d(axes)[0].set_ylim(0.7 * low, high)  # for the number, below all dots
    np.atleast_1d(axes)[0].set_ylabel("spread of cosines,\nafter the MLP to before")
    entries = [
        Line2D([], [], linestyle="", marker=marker, markersize=1.6 * size, color=colour, label=text)
        for colour, marker, size, text in KINDS
    ]
    figure.legend(handles=entries, loc="outside lower center", ncols=2)
    return figure
