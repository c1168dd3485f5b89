"""Language models: how the residual stream is ordered from layer to layer (Fig. 6, App. G)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from carry_core.llm.streams import Separation
from carry_core.plots.style import CLASS_COLOURS, FAINT, WIDTH, panel, styled

ORDINALS = ("first", "second", "third", "fourth", "fifth")


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
