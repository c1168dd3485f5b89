"""Accuracy and staircases on longer sums, by epoch and by position (Fig. 20, 24, App. H)."""

from typing import Any

import pandas as pd
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator

from carry_paper.plots.hover import name_bars
from carry_paper.plots.sides import AUTHORS, OURS, Arrays
from carry_paper.plots.style import ACCURACY, CLASS_COLOURS, FAINT, INK, colour_bar, number_map

COLOURS = {"unprimed": CLASS_COLOURS[0], "primed": CLASS_COLOURS[3]}
SIDES = {AUTHORS: CLASS_COLOURS[0], OURS: CLASS_COLOURS[3]}
STEPS = {"weakest long": ("-", CLASS_COLOURS[0]), "weakest trained": ("--", CLASS_COLOURS[3])}
BEST: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 5, "color": INK, "zorder": 3}


def draw_exact_match(figure: SubFigure, side: Arrays) -> None:
    """Draw the exact match on long sums by epoch, with a dot at the best of each unprimed run.

    `side` has by training the `epoch` and the `exact match` `[run, epoch]`, and of each run the
    `fate`, the columns of `lengths.forgetting`.
    """
    ax = figure.subplots()
    for name, colour in COLOURS.items():
        if f"{name} epoch" in side:
            exact_match = side[f"{name} exact match"]
            ax.plot(side[f"{name} epoch"], exact_match.T, color=colour, label=name)
    unprimed = side["fate group"] == "unprimed"
    label = "best epoch of an unprimed run"
    ax.plot(side["fate peak"][unprimed], side["fate best"][unprimed], **BEST, label=label)
    ax.set(ylim=(-0.03, 1.03), xlim=(0, None), xlabel="epoch", ylabel="exact match")
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))


def draw_positions(figure: SubFigure, side: Arrays, n_long: int) -> None:
    """Draw the accuracy at each position by epoch; the leading `n_long` positions are long.

    `side` has by training the `epoch` and the `digits` `[run, epoch, position]`.
    """
    n_positions = next(side[key].shape[-1] for key in side if key.endswith(" digits"))
    axes = figure.subplots(1, n_positions, sharey=True)
    for i, ax in enumerate(axes):
        for name, colour in COLOURS.items():
            if f"{name} epoch" in side:
                accuracy = side[f"{name} digits"][..., i]
                look: dict[str, Any] = {"color": colour, "linewidth": 0.8, "label": name}
                ax.plot(side[f"{name} epoch"], accuracy.T, **look)
        ax.set(title=f"position {i}\n({'long' if i < n_long else 'trained'})", xlabel="epoch")
        ax.set(ylim=(-0.03, 1.03), xlim=(0, None))
        ax.xaxis.set_major_locator(MaxNLocator(2, integer=True))
    axes[0].set_ylabel("accuracy")


def draw_stairs(figure: SubFigure, side: pd.DataFrame, bar: float) -> None:
    """Draw the weakest step of each kind of staircase by epoch, run by run, and the bar.

    The leading positions are drawn solid, the trained ones dashed.
    """
    kinds = side.staircase.unique()
    axes = figure.subplots(1, len(kinds), sharey=True)
    for ax, kind in zip(axes, kinds, strict=True):
        for _, of_run in side[side.staircase == kind].groupby("run"):
            for step, (dash, colour) in STEPS.items():
                ax.plot(of_run.epoch, of_run[step], f"o{dash}", color=colour, markersize=3)
        ax.axhline(bar, color=FAINT, linewidth=0.8)
        ax.set(title=kind.replace(" in layer", "\nin layer"), ylim=(0, 1), xlabel="epoch")
    axes[0].set_ylabel("attention of the weakest step")


def draw_digits(figure: SubFigure, cells: pd.DataFrame, rows: str) -> None:
    """Draw maps of correct digits, the mean over runs: the values of `rows` by positions.

    There is a map for each kind of `digits`.
    """
    table = cells.pivot_table("accuracy", rows, ["digits", "position"], sort=False)
    if rows == "epoch":
        table = table.rename(index="epoch {}".format)
    blocks = {name: table[name] for name in sorted(table.columns.unique(0))}
    widths = [block.shape[1] for block in blocks.values()]
    axes = figure.subplots(1, len(blocks), width_ratios=widths, squeeze=False)
    for ax, (name, block) in zip(axes[0], blocks.items(), strict=True):
        number_map(ax, block)
        ax.set(title=name, xlabel="position")
        ax.tick_params(labelleft=ax is axes[0, 0])
    colour_bar(figure, axes, ACCURACY, "share of correct digits", location="right")


def draw_moves(figure: SubFigure, moved: pd.DataFrame) -> None:
    """Draw bars of how far each part moves in finetuning, the mean over the runs of each side."""
    titles = {
        "over its own norm": "over its own norm",
        "share of the way": "share of the squared distance",
    }
    parts = moved.part.str.replace(r"(.*) (\d)$", r"layer \2: \1", regex=True)
    means = moved.assign(part=parts).pivot_table([*titles], "part", "side", sort=False)
    for ax, (column, title) in zip(figure.subplots(1, 2, sharey=True), titles.items(), strict=True):
        table = means[column]
        table.plot.barh(ax=ax, color=SIDES, width=0.8, legend=False, title=title, ylabel="")
        for bars, side in zip(ax.containers, table, strict=True):
            name_bars(bars, [f"{part}: {side} {x:.2f}" for part, x in table[side].items()])
    ax.invert_yaxis()
