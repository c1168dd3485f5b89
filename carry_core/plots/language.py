"""Language models: how the residual stream is ordered from layer to layer (Fig. 6, App. G)."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from carry_core.plots.style import CLASS_COLOURS, FAINT, WIDTH, style

ORDINALS = ("first", "second", "third", "fourth", "fifth")


@style()
def separation_curves(separations: pd.DataFrame) -> Figure:
    """`Survey.separations` from layer to layer, one panel for each digit of the answer (Sec. 6, App. G)."""
    figure = Figure(figsize=(WIDTH, 2.45), layout="constrained")
    digits = separations.set_index(["layer", "after"]).groupby("output")
    axes = figure.subplots(1, len(digits), sharey=True, squeeze=False)[0]
    for ax, (output, measures) in zip(axes, digits, strict=True):
        for colour, (label, values) in zip(CLASS_COLOURS, measures.drop(columns="output").items(), strict=False):
            ax.plot(np.arange(len(values)) / 2, values, color=colour, marker="o", markersize=2.5, label=label)
        n = len(measures) // 2
        ax.axhline(0.5, color=FAINT, linewidth=0.5, zorder=0)
        ax.set(ylim=(-0.03, 1.03), xlim=(-0.25, n - 0.25), xlabel="layer", title=f"{ORDINALS[output]} digit")
        ax.set_xticks(range(0, n, 1 if n <= 8 else 8))
        ax.spines[:].set_visible(True)
    axes[0].set_yticks([0, 0.5, 1], ["0", "½", "1"])
    axes[0].set_ylabel("accuracy, or correlation" if "order of the digit" in separations else "accuracy")
    figure.legend(handles=axes[0].get_legend_handles_labels()[0], loc="outside lower center", ncols=len(CLASS_COLOURS))
    return figure
