"""Language models: how the residual stream is ordered from layer to layer (Fig. 6, App. G)."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from carry_core.plots.style import CLASS_COLOURS, FAINT, WIDTH, panel, styled

ORDINALS = ("first", "second", "third", "fourth", "fifth")


@styled
def separation_curves(separations: pd.DataFrame) -> Figure:
    """`streams.separations` from layer to layer, one panel for each digit of the answer (Sec. 6, App. G)."""
    figure = Figure(figsize=(WIDTH, 2.45))
    left, gap, top, foot = 0.42, 0.12, 0.25, 0.85  # inches
    digits = separations.set_index(["layer", "after"]).groupby("output")
    wide = (WIDTH - left - 0.1 - gap * (len(digits) - 1)) / len(digits)
    measured = "accuracy, or correlation" if "order of the digit" in separations else "accuracy"
    lines: list[Any] = []
    for i, (output, measures) in enumerate(digits):
        ax = panel(figure, left + i * (wide + gap), top, wide, 2.45 - top - foot)
        lines = []
        for colour, (label, values) in zip(CLASS_COLOURS, measures.drop(columns="output").items(), strict=False):
            layers = np.arange(len(values)) / 2
            lines += ax.plot(layers, values, color=colour, marker="o", markersize=2.5, label=label)
        n = len(measures) // 2
        ax.set(ylim=(-0.03, 1.03), xlim=(-0.25, n - 0.25), yticks=[0, 0.5, 1], xlabel="layer")
        ax.set_xticks(range(0, n, 1 if n <= 8 else 8))
        ax.set_yticklabels(["0", "½", "1"] if i == 0 else [])
        ax.set_ylabel(measured if i == 0 else "")
        ax.axhline(0.5, color=FAINT, linewidth=0.5, zorder=0)
        ax.set_title(f"{ORDINALS[output]} digit")
    figure.legend(handles=lines, loc="lower center", ncols=len(lines))
    return figure
