"""The last MLP's neurons on the singular axes of its weights, and boards of cosines (Fig. 13, 14, Sec. 5)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import SubFigure
from numpy.typing import NDArray

from carry_core import carries
from carry_core.plots.style import INK, position

OFTEN, SELDOM = "#D1352B", "#7C93B8"


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
