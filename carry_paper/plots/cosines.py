"""Cosines between sums of equal outcome: checkerboards (Fig. 14) and squashing (Sec. 4)."""

from typing import Any

import pandas as pd
from matplotlib.figure import SubFigure
from matplotlib.ticker import FixedLocator, NullLocator

from carry_core.sums import Layout
from carry_paper.findings.heads import SQUASHED_OUTCOME
from carry_paper.plots.sides import Arrays
from carry_paper.plots.style import ATTENTION, CLASS_COLOURS, DASHED, INK, colour_bar


def draw_boards(figure: SubFigure, side: Arrays, layout: Layout) -> None:
    """Draw the cosines intact and ablated, a row for each position, with a strip of carry-ins.

    `side` has the cosines in `percent` `[state, position, sum, sum]`, the second numbers `b`
    and the `carry_in` `[position, sum]` of the sums, and the number of ablated `neurons`.
    """
    n_positions = side["percent"].shape[1]
    heights = [0.06, 1] * n_positions
    axes: Any = figure.subplots(2 * n_positions, 2, height_ratios=heights, squeeze=False)
    lowest, highest = side["b"][[0, -1]]
    low, high = lowest - 0.5, highest + 0.5
    look: dict[str, Any] = {"cmap": ATTENTION, "vmin": 0, "vmax": 1, "aspect": "auto"}
    for state, name in enumerate(("intact", f"without {side['neurons']} neurons")):
        for i in range(n_positions):
            strip, ax = axes[2 * i : 2 * i + 2, state]
            carry_in = side["carry_in"][i][None]
            strip.imshow(carry_in, cmap="Greys", vmin=-0.1, vmax=1.2, aspect="auto")
            strip.set(xticks=[], yticks=[])
            cosines = side["percent"][state, i] / 100
            ax.imshow(cosines, extent=(low, high, high, low), **look)
            ax.tick_params(labelbottom=i == n_positions - 1, labelleft=state == 0)
            if i == 0:
                strip.set_title(name)
            if state == 0:
                ax.set_ylabel(f"pos. {layout.answer[i]}\n\nb")
    for ax in axes[-1]:
        ax.set_xlabel("b")
    colour_bar(figure, axes, ATTENTION, "cosine")


# Colour, marker and marker size of outcomes whose sums differ in their carry-in, and of the others.
MIXED, ALIKE = (CLASS_COLOURS[0], "o", 3.0), (CLASS_COLOURS[3], "^", 3.4)
THE_PAPERS: dict[str, Any] = {
    "linestyle": "",
    "marker": "o",
    "markersize": 9,
    "color": "none",
    "markeredgecolor": INK,
}


def draw_squashing(figure: SubFigure, frame: pd.DataFrame, layout: Layout) -> None:
    """Draw a panel for each position: the median run of each outcome, and the runs' range.

    `frame` has the `ratio` of the spreads after and before the final MLP by `run`, `outcome`
    and `position`, and whether the outcome's sums are `mixed` in their carry-in there.
    """
    axes = figure.subplots(1, len(layout.position_names), sharey=True)
    runs = frame.groupby(["position", "outcome", "mixed"], sort=False).ratio
    ratios = runs.agg(["min", "median", "max"]).reset_index()
    for ax, position in zip(axes, layout.position_names, strict=True):
        at_position = ratios[ratios.position == position]
        for mixed, (colour, marker, size) in ((True, MIXED), (False, ALIKE)):
            rows = at_position[at_position.mixed == mixed]
            look: dict[str, Any] = {"marker": marker, "markersize": size, "color": colour}
            ax.vlines(rows.outcome, rows["min"], rows["max"], color=colour, linewidth=0.7)
            label = "some with a carry-in" if mixed else "all or none with one"
            ax.plot(rows.outcome, rows["median"], linestyle="", label=label, **look)
        paper = at_position[at_position.outcome == SQUASHED_OUTCOME]
        ax.plot(paper.outcome, paper["median"], label=str(SQUASHED_OUTCOME), **THE_PAPERS)
        ax.axhline(1, **DASHED)
        ax.set(yscale="log", title=position.replace("pos", "position "), xlabel="outcome")
        ax.yaxis.set_major_locator(FixedLocator([0.03, 0.1, 0.3, 1, 3]))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter("{x:g}")
    axes[0].set_ylabel("spread, after to before")
