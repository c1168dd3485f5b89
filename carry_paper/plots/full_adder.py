"""The circuit of a full adder, and the truth tables of its parts (Fig. 26)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure

from carry_core.sums import Layout
from carry_paper.plots.sides import Arrays
from carry_paper.plots.style import ACCURACY, FAINT, INK, colour_bar, draw_box, number_map

CIRCUIT_WIDTH, CIRCUIT_HEIGHT = 4, 3.1
GATE = 1.1, 0.58  # width and height

# The rows of a carry's truth table: the cases of a column's digit sum.
CASES = ("0–8", "9, no carry-in", "9, carry-in", "10–18")
CARRY_INS = ("no carry-in", "carry-in")


def draw_circuit(figure: SubFigure, side: Arrays) -> None:
    """Draw a column of the full adder, with the network's parts in place of its wires.

    `side` has the share of agreeing sums of each part, as `agreement_…`, and as
    `early_by_column` of carry-ins before the last attention.
    """
    ax = figure.add_axes((0, 0, 1, 0.93))
    ax.set(xlim=(0, CIRCUIT_WIDTH), ylim=(0, CIRCUIT_HEIGHT))
    ax.axis("off")
    for y, down, x, name in ((2.3, 1.25, 0.4, "a"), (2.1, 1.05, 0.52, "b")):
        ax.text(0.1, y, f"${name}_i$", va="center")
        _wire(ax, (0.28, y), (0.75, y))
        _wire(ax, (x, y), (x, down), (0.75, down))
    _wire(ax, (1.85, 2.2), (2.55, 2.2))
    _wire(ax, (3.65, 2.2), (3.82, 2.2))
    _wire(ax, (3.1, 2.72), (3.1, 2.49))
    _wire(ax, (2.05, 2.2), (2.05, 1.02), (2.2, 1.02))
    _wire(ax, (1.3, 0.86), (1.3, 0.78), (2.2, 0.78))
    _wire(ax, (3.3, 0.9), (3.55, 0.9), (3.55, 0.3))
    bypass = [1.97, 1.97, 3.72, 3.72], [2.2, 1.72, 1.72, 2.2]
    ax.plot(*bypass, color=INK, linewidth=0.9, linestyle=(0, (2.5, 1.5)))
    ax.text(1.92, 2.28, "s′ᵢ", va="center")
    ax.text(3.84, 2.2, "$s_i$", va="center")
    ax.text(2.72, 2.8, "$c_i$ from the right", va="center")
    ax.text(3.7, 0.18, "$c_{i-1}$ to the left", ha="right", va="center")

    _gate(ax, 1.3, 2.2, "XOR: layer 0\nsum mod 10", float(side["agreement_ones"]))
    _gate(ax, 1.3, 1.15, "AND: layer 0\n10 or more", float(side["agreement_tens"]))
    _gate(ax, 3.1, 2.2, "XOR: final MLP\nthe digit", float(side["agreement_digit"]))
    _gate(ax, 2.75, 0.9, "OR: last attn.\ncarry-in", float(side["agreement_carry"]))
    ablated = f"MLP ablated: {side['agreement_bypassed']:.3f}"
    ax.text(2.85, 1.66, ablated, ha="center", va="top", fontsize=7.5)
    before = " and ".join(f"{share:.2f}" for share in side["early_by_column"])
    ax.text(2.75, 0.58, f"(before it: {before})", ha="center", va="top", fontsize=7.5)


def _wire(ax: Axes, *points: tuple[float, float]) -> None:
    """Draw a line through the points, with an arrow at its end."""
    ax.plot(*zip(*points, strict=True), color=FAINT, linewidth=0.9)
    arrow = {"arrowstyle": "-|>", "color": FAINT, "linewidth": 0}
    ax.annotate("", points[-1], points[-2], arrowprops=arrow)


def _gate(ax: Axes, x: float, y: float, text: str, share: float) -> None:
    """Draw a box coloured by the share of sums for which the part agrees."""
    ink = draw_box(ax, (x, y), GATE, ACCURACY(share), edgecolor=FAINT, linewidth=0.8)
    look: dict[str, Any] = {"ha": "center", "va": "center", "color": ink, "linespacing": 1.2}
    ax.text(x, y, f"{text}\n{share:.3f}", fontsize=7.5, **look)


def draw_tables(figure: SubFigure, side: Arrays, layout: Layout) -> None:
    """Draw seven truth tables: half adder and carry line above, digits below.

    `side` has the tables of `findings.adder.truth_tables`.
    """
    parts: Any = figure.subfigures(2, 1, height_ratios=[2.6, 1.1])
    above, below = parts
    widths = {"tens": 5, "ones": 5, "early": 2, "carry": 2}
    mosaic: Any = [[name for name, width in widths.items() for _ in range(width)]]
    axes: dict[Any, Axes] = above.subplot_mosaic(mosaic)
    axes |= below.subplot_mosaic([["digit", "bypassed", "leaky"]])

    digits = [str(digit) for digit in range(10)]
    positions = [name.removeprefix("pos") for name in layout.position_names[:-1]]
    half_adder = (digits, "digit of b")
    carry_line = (positions, "position")
    answer = (digits, "digit sum mod 10")
    panels: dict[str, tuple[str, Sequence[str], Sequence[str], str]] = {
        "tens": ("10 or more", digits, *half_adder),
        "ones": ("sum mod 10", digits, *half_adder),
        "early": ("carry-in\nbefore", CASES, *carry_line),
        "carry": ("carry-in\nafter", CASES, *carry_line),
        "digit": ("digit, intact", CARRY_INS, *answer),
        "bypassed": ("final MLP ablated", CARRY_INS, *answer),
        "leaky": ("decision head ablated", CARRY_INS, *answer),
    }
    for name, (title, rows, columns, label) in panels.items():
        words = np.where(side[name] < 0, "", side[name].astype(str))
        number_map(axes[name], pd.DataFrame(side[f"{name}_share"], rows, columns), words)
        axes[name].set(title=title, xlabel=label)
        axes[name].tick_params(labelleft=name not in ("carry", "bypassed", "leaky"))
    axes["tens"].set_ylabel("digit of a")
    colour_bar(above, list(axes.values())[:4], ACCURACY, "share correct", location="right")
