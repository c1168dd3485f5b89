"""The last MLP's neurons on the singular axes of its weights, and boards of cosines (Fig. 13, 14, Sec. 5)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from carry_core import tasks
from carry_core.neurons import Board, Carriers, CarryAxis
from carry_core.page import FAINT, INK, WIDTH, Table, number, styled
from carry_core.plots.common import panel, position

OFTEN, SELDOM = "#D1352B", "#7C93B8"
COSINES = "RdBu_r"
STRIP = ListedColormap(["#E5E7EB", INK])


@styled
def neuron_grid(axis: CarryAxis, chosen: Bool[Tensor, "task pos neuron"], names: Sequence[str]) -> Figure:
    """Neurons on the two leading singular axes: classes by answer positions, the chosen ones filled (Fig. 13, 14).

    Heavy frames stand where a one arrives.
    """
    n_tasks, n_positions = chosen.shape[:2]
    patterns = tasks.patterns(n_positions)
    arrives = tasks.carry_arrives(n_positions)
    left, gap, title, foot = 0.56, 0.1, 0.22, 0.44  # inches
    width = (WIDTH - left - 0.02 - gap * (n_tasks - 1)) / n_tasks
    height = 0.72 * width
    figure = Figure(figsize=(WIDTH, title + n_positions * (height + gap) + foot))
    x, y = axis.points.numpy().T
    size = min(14.0, 1800 / len(x))
    for pos in range(n_positions):
        for task in range(n_tasks):
            ax = panel(figure, left + task * (width + gap), title + pos * (height + gap), width, height)
            red = chosen[task, pos].numpy()
            many = len(x) > 200  # then drawn as an image, or the page would get heavy
            ax.scatter(x[~red], y[~red], s=size, facecolors="none", edgecolors=SELDOM, linewidths=0.7, rasterized=many)
            ax.scatter(x[red], y[red], s=size, color=OFTEN, alpha=0.75, linewidths=0, rasterized=many)
            ax.set(xticks=[0], yticks=[0], xticklabels=[], yticklabels=[])
            ax.margins(0.08)
            if arrives[task, pos]:
                ax.spines[:].set(linewidth=2, color=INK)
            if pos == 0:
                ax.set_title(tasks.name(patterns[task]), weight="bold")
            if task == 0:
                ax.set_ylabel(position(names[pos]), rotation=0, ha="right", va="center")
    down = figure.get_size_inches()[1]
    figure.text(
        (left + WIDTH) / 2 / WIDTH, (foot + gap - 0.06) / down,
        " · ".join(f"axis {i + 1}: {100 * share:.0f}%" for i, share in enumerate(axis.share)),
        ha="center", va="top", fontsize=6.5, color=FAINT,
    )  # fmt: skip
    marker: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 4.5}
    entries = [
        Line2D([], [], color=OFTEN, label=f"the {int(chosen[0, 0].sum())} most often active", **marker),
        Line2D([], [], markerfacecolor="none", markeredgecolor=SELDOM, label="the others", **marker),
    ]
    figure.legend(handles=entries, loc="lower center", ncols=2)
    return figure


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


def table_of_carriers(found: Mapping[int, Carriers]) -> Table:
    """The carry axis of each run, what is right without its carry neurons, and the gap of the checkerboard (Sec. 5)."""
    rows = []
    for run, c in found.items():
        shares = [number(x, 3) for x in (c.carry, c.corrected, c.rest, *c.gaps)]
        rows.append([f"{run}", number(c.correlation, 3), f"{c.count}", *shares])
    spans = [("", 3), ("right without the carry neurons", 3), ("gap", 2)]
    header = ["run", "correlation", "carry neurons", "a one arrives", "corrected", "elsewhere"]
    return Table([*header, "intact", "without"], rows, spans)
