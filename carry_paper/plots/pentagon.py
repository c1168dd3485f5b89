"""The digits as a pentagon of pairs (Fig. 17)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from numpy.typing import NDArray

from carry_paper.plots.planes import NUMERAL, scatter
from carry_paper.plots.sides import Arrays
from carry_paper.plots.style import DIGIT_COLOURS, INK


def draw_run(figure: SubFigure, side: Arrays, class_colours: Sequence[str]) -> None:
    """Draw a run's sums on the leading plane and on the next axes, by class and by digit.

    `side` has the `points` of sums on three axes, with the axes' `share` of the variance; of each
    sum its `digit`, its `carry_class` and whether it has a carry-in (`arrives`); and the `middles`
    of the digits without and with a carry-in.
    """
    all_sums = np.ones(len(side["digit"]), bool)
    carry_in = side["arrives"]
    leading, following = (0, 1), (1, 2)
    panels = [
        ("by carry class", leading, all_sums, "carry_class", class_colours, None),
        ("no carry-in, by digit", leading, ~carry_in, "digit", DIGIT_COLOURS, side["middles"][0]),
        ("carry-in, by digit", leading, carry_in, "digit", DIGIT_COLOURS, side["middles"][1]),
        ("by digit, next axes", following, all_sums, "digit", DIGIT_COLOURS, None),
    ]
    for ax, panel in zip(figure.subplots(1, len(panels)), panels, strict=True):
        title, axes, sums, label, colours, middles = panel
        x, y = side["points"][sums][:, axes].T
        scatter(ax, x, y, side[label][sums], colours)
        ax.set_aspect("equal", adjustable="datalim")
        ax.set_title(title)
        shares = " · ".join(f"axis {axis + 1}: {side['share'][axis]:.0%}" for axis in axes)
        ax.set_xlabel(shares, fontsize=7, labelpad=1.5)
        if middles is not None:
            _corners(ax, middles)


def draw_runs(figure: SubFigure, side: Arrays) -> None:
    """Draw a column for each run: its digits in the leading plane, and below in the best one.

    For both planes, `side` has the digits' middles (`all_middles`), the axes (`planes`), the
    `scores`, and the scores that `shuffled` labels reach.
    """
    axes: Any = figure.subplots(2, len(side["runs"]), squeeze=False)
    for i, run in enumerate(side["runs"]):
        for row, ax in enumerate(axes[:, i]):
            _corners(ax, side["all_middles"][i, row], size=7)
            ax.set(xticks=[], yticks=[])
            ax.set_aspect("equal", adjustable="datalim")
            ax.margins(0.2)
            ax.spines[:].set_visible(True)
            plane = side["planes"][i, row]
            score = side["scores"][i, row]
            chance = side["shuffled"][i, row]
            text = f"axes {plane[0]}, {plane[1]}\n{score:.2f} ({chance:.2f})"
            ax.set_xlabel(text, fontsize=7.5)
        axes[0, i].set_title(f"run {run}")
    for ax, name in zip(axes[:, 0], ("leading", "best"), strict=True):
        ax.set_ylabel(name)


def _corners(ax: Axes, middles: NDArray[Any], size: float = 8) -> None:
    """Draw the digits at their middles `[digit, 2]`, and lines from pair to pair.

    The two digits of a pair stand beside their middles, so that they do not hide each other.
    """
    corners = np.nanmean(np.stack([middles[:5], middles[5:]]), 0)
    ax.plot(*corners[[0, 1, 2, 3, 4, 0]].T, color=INK, linewidth=0.9)
    ax.plot(*middles.T, " ")  # room for every digit
    look: dict[str, Any] = {"fontsize": size, "weight": "bold", "color": INK, "gid": NUMERAL}
    look |= {"textcoords": "offset points", "ha": "center", "va": "center"}
    for digit, middle in enumerate(middles):
        if np.isfinite(middle).all():
            left = size / 2 * (-1 if digit < 5 else 1)
            ax.annotate(str(digit), middle, (left, 0), **look)
