"""Language models: their answers, and the heads with staircases (Tab. 2, Fig. 6)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from carry_paper.plots.attention import attention_map
from carry_paper.plots.hover import name_bars
from carry_paper.plots.sides import Arrays
from carry_paper.plots.style import (
    ATTENTION,
    CORRECT,
    OFF_BY_ONE,
    WIDTH,
    WRONG,
    colour_bar,
    legend_below,
    with_data,
)

N_FRAMED = 8  # heads with the most cells
FRAME = "#C75301"


@with_data
def answer_bars(answers: pd.DataFrame) -> Figure:
    """Return a figure with a bar of right and wrong answers for each model or ablation.

    `answers` has the `model`, the `kind` of ablation (or "intact") and its `heads`, the share
    of `right` answers, and of carrying mistakes among the others (`carry_share`). Those of one
    model and kind stand together.
    """
    blocks = answers.model + answers.kind
    block = (blocks != blocks.shift()).cumsum() - 1
    y = np.arange(len(answers)) + 0.6 * block
    carrying = ((1 - answers.right) * answers.carry_share).fillna(0)
    figure = Figure(figsize=(WIDTH, 0.18 * (y.max() + 1) + 0.8), layout="constrained")
    ax = figure.subplots()
    kinds = answers.kind.where(answers.kind != "intact", answers.model + ", intact")
    names = kinds.str.cat(answers.heads, "  ").str.strip()
    kinds_of_answers = {
        "correct": (CORRECT, answers.right),
        "carrying mistake": (OFF_BY_ONE, carrying),
        "other mistake (Alpaca: any)": (WRONG, 1 - answers.right - carrying),
    }
    start = 0 * answers.right
    for label, (colour, shares) in kinds_of_answers.items():
        bars = ax.barh(y, shares, left=start, color=colour, label=label)
        of_bars = zip(names, shares, strict=True)
        name_bars(bars, [f"{name}: {label} {share:.2f}" for name, share in of_bars])
        start = start + shares
    ax.set_yticks(y, names)
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(0, 1), ylim=(y.max() + 0.6, -0.6), xlabel="share of the prompts")
    ax.spines[:].set_visible(False)
    legend_below(figure)
    return figure


@with_data
def wins_map(wins: Mapping[str, NDArray[Any]]) -> Figure:
    """Return a figure with a map for each model: the cells that a head wins, `[layer, head]`.

    The most frequent winners have frames.
    """
    figure = Figure(figsize=(WIDTH, 1.1 + WIDTH / max(len(wins), 2)), layout="constrained")
    axes = figure.subplots(1, len(wins), squeeze=False)[0]
    norm = LogNorm(1, max(counts.max() for counts in wins.values()))
    for ax, (title, counts) in zip(axes, wins.items(), strict=True):
        ax.imshow(np.ma.masked_equal(counts, 0), cmap=ATTENTION, norm=norm)
        framed = np.argsort(-counts, axis=None, kind="stable")[:N_FRAMED]
        for layer, head in zip(*np.unravel_index(framed, counts.shape), strict=True):
            corner = (head - 0.5, layer - 0.5)
            frame = Rectangle(corner, 1, 1, fill=False, ec=FRAME, lw=1.5, clip_on=False)
            ax.add_patch(frame)
        ylabel = "layer" if ax is axes[0] else ""
        ax.set(title=f"{title}: {(counts > 0).sum()} heads", xlabel="head", ylabel=ylabel)
    colour_bar(figure, axes, ATTENTION, "cells won", norm=norm)
    return figure


STATISTICS = {"mean": ("attention", 1), "std": ("deviation", 0.5)}  # and the highest value


def head_maps(
    figure: SubFigure, side: Arrays, heads: Sequence[str], statistics: Sequence[str] = ("mean",)
) -> None:
    """Draw a map for each head, the mean above the standard deviation (`std`) if both are given.

    `side` has these statistics of the attention `[head, query, key]` of its `heads`, and the
    `marks` of the tokens, which are written where there is room.
    """
    axes = figure.subplots(len(statistics), len(heads), squeeze=False)
    marks = dict(enumerate(side["marks"] if len(heads) < 3 else [""] * len(side["marks"])))
    for row, statistic in zip(axes, statistics, strict=True):
        label, highest = STATISTICS[statistic]
        for ax, head in zip(row, heads, strict=True):
            pattern = side[statistic][list(side["heads"]).index(head)]
            attention_map(ax, pattern, marks, marks, highest)
            if statistic == statistics[0]:
                ax.set_title(head)
        row[0].set_ylabel(statistic if len(statistics) > 1 else "")
        scale = Normalize(0, highest)
        colour_bar(figure, row, ATTENTION, label, norm=scale, location="right")
