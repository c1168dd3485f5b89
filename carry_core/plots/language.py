"""Language models: answers without heads, who wins the staircases, attention and residual stream (Tab. 2, Fig. 6)."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from carry_core.findings.geometry import Plane
from carry_core.llm.model import Heads, format_heads
from carry_core.llm.streams import Separation
from carry_core.plots.attention import ATTENTION
from carry_core.plots.style import CLASS_COLOURS, DIGIT_COLOURS, FAINT, WIDTH, dots, panel, styled

DRAWN = 500  # sums in each panel of a scatter plot, at most
ORDINALS = ("first", "second", "third", "fourth", "fifth")


@styled
def attention_maps(
    shown: Heads,
    mean: Float[Tensor, "shown query key"],
    std: Float[Tensor, "shown query key"],
    marks: Sequence[str],
) -> Figure:
    """Attention of heads between tokens, averaged over prompts, and its standard deviation (Fig. 6, top)."""
    columns = min(4, len(shown))
    blocks = -(-len(shown) // columns)
    left, right, gap, title, between = 0.55, 0.75, 0.16, 0.22, 0.12  # inches
    side = (WIDTH - left - right - gap * (columns - 1)) / columns
    block = title + 2 * side + between + 0.2
    figure = Figure(figsize=(WIDTH, block * blocks))
    ticks, size = range(len(marks)), 6
    for i, head in enumerate(shown):
        row, column = divmod(i, columns)
        for j, (what, values) in enumerate((("mean", mean), ("std", std))):
            x, y = left + column * (side + gap), row * block + title + j * (side + between)
            ax = panel(figure, x, y, side, side)
            ax.imshow(values[i].numpy(), cmap=ATTENTION, vmin=0, vmax=1 if what == "mean" else 0.5)
            ax.set_xticks(ticks, marks if j else [""] * len(marks), fontsize=size)
            ax.set_yticks(ticks, marks if column == 0 else [""] * len(marks), fontsize=size)
            ax.tick_params(length=0, pad=1.5)
            if j == 0:
                ax.set_title(format_heads((head,)), weight="bold")
            if column == 0:
                ax.set_ylabel(what, labelpad=4)
    for j, (label, top) in enumerate((("mean", 1.0), ("standard deviation", 0.5))):
        cax = panel(figure, WIDTH - right + 0.12, title + j * (side + between), 0.1, side)
        figure.colorbar(ScalarMappable(Normalize(0, top), ATTENTION), cax=cax).set_label(label)
    return figure


@styled
def stream_grid(planes: Sequence[Plane]) -> Figure:
    """A layer's residual stream at each digit of the answer, by digit and by whether a one arrives (Fig. 6, bottom).

    Up to `DRAWN` sums are drawn.

    Args:
        planes: after attention and after MLP, digit by digit.
    """
    columns = len(planes) // 2
    left, gap, title, foot, key = 0.42, 0.1, 0.25, 0.19, 0.44  # inches
    side = min(1.7, (WIDTH - left - 0.02 - gap * (columns - 1)) / columns)
    figure = Figure(figsize=(left + 0.02 + columns * (side + gap), title + 4 * (side + foot) + 2 * key))
    halves = [
        ("digit", "digit of the answer", [str(d) for d in range(10)], DIGIT_COLOURS),
        ("split", "", ["none arrives", "a one arrives"], CLASS_COLOURS[:2]),
    ]
    for half, (attribute, legend, names, colours) in enumerate(halves):
        rgb = np.array([mpl.colors.to_rgb(c) for c in colours])
        start = title + half * (2 * (side + foot) + key)
        for i, plane in enumerate(planes):
            column, row = divmod(i, 2)
            ax = panel(figure, left + column * (side + gap), start + row * (side + foot), side, side)
            labels = getattr(plane, attribute)[:DRAWN].long().numpy()
            x, y = plane.points[:DRAWN, :2].numpy().T
            ax.scatter(x, y, c=rgb[labels], s=4, linewidths=0, rasterized=True)
            ax.set(xticks=[], yticks=[])
            ax.set_xlabel(
                " · ".join(f"{100 * s:.0f}%" for s in plane.share[:2]), fontsize=6.5, color=FAINT, labelpad=1.5
            )
            if half == row == 0:
                ax.set_title(f"{ORDINALS[plane.position]} digit")
            if column == 0:
                ax.set_ylabel(f"after {plane.after}")
        below = 1 - (start + 2 * (side + foot)) / figure.get_size_inches()[1]
        figure.legend(
            handles=dots(names, colours), title=legend or None, loc="upper center", bbox_to_anchor=(0.5, below),
            ncols=10, columnspacing=1.0, borderaxespad=0.0,
        )  # fmt: skip
    return figure


@styled
def separation_curves(found: Sequence[Separation]) -> Figure:
    """How the stream is ordered from layer to layer, one panel for each digit of the answer (Sec. 6, App. G)."""
    figure = Figure(figsize=(WIDTH, 2.45))
    left, gap, top, foot = 0.42, 0.12, 0.25, 0.85  # inches
    wide = (WIDTH - left - 0.1 - gap * (len(found) - 1)) / len(found)
    ordered = any(label.startswith("order") for separation in found for label in separation.values)
    measured = "accuracy, or correlation" if ordered else "accuracy"
    lines: list[Any] = []
    for i, separation in enumerate(found):
        ax = panel(figure, left + i * (wide + gap), top, wide, 2.45 - top - foot)
        lines = []
        for colour, (label, values) in zip(CLASS_COLOURS, separation.values.items(), strict=False):
            layers = np.arange(len(values)) / 2
            lines += ax.plot(layers, values, color=colour, marker="o", markersize=2.5, label=label)
        n = len(values) // 2
        every = 1 if n <= 8 else 8
        ax.set(ylim=(-0.03, 1.03), xlim=(-0.25, n - 0.25), yticks=[0, 0.5, 1], xlabel="layer")
        ax.set_xticks(range(0, n, every))
        ax.set_yticklabels(["0", "½", "1"] if i == 0 else [])
        ax.set_ylabel(measured if i == 0 else "")
        ax.axhline(0.5, color=FAINT, linewidth=0.5, zorder=0)
        ax.set_title(f"{ORDINALS[separation.output]} digit")
    figure.legend(handles=lines, loc="lower center", ncols=len(lines))
    return figure
