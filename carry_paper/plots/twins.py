"""Twins beside their bases: what moves the late share, and how it settles in training."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from carry_paper.plots.hover import name_dots
from carry_paper.plots.style import (
    CLASS_COLOURS,
    DASHED,
    DOTTED,
    FAINT,
    INK,
    WIDTH,
    parts_beside,
    with_data,
)

FACTOR = CLASS_COLOURS[0]
DOT = 16
ABREAST = 3  # panels on a phone
ENDS = "run {run}: {base:.2f}, and {twin:.2f} in its twin"


@with_data
def changes(pairs: pd.DataFrame, names: Mapping[str, str], what: str, unrelated: float) -> Figure:
    """Return a figure of how far twins are from their bases: a row of dots for each thing new.

    Args:
        pairs: A row for each twin that learns: what is `new`, its `run`, the outcome of the `base`
            and of the `twin`, and the absolute `change`.
        names: What is new in words, from the floor on, in the order of the rows.
        what: The outcome in words.
        unrelated: The mean change between runs that share nothing.
    """
    figure = Figure(figsize=(WIDTH, 0.58 * len(names) + 0.8), layout="constrained")
    ax = figure.subplots()
    for y, (new, name) in enumerate(names.items()):
        of = pairs[pairs.new == new]
        # Above its row, so that a phone, which shows the left half, shows the means.
        ax.text(-0.01, y - 0.38, name, va="bottom")
        spread = np.random.default_rng(0).permutation(np.linspace(-0.22, 0.22, len(of)))
        dots = ax.scatter(of.change, y + spread, s=DOT, c=FACTOR, linewidths=0)
        name_dots(dots, f"{name}, {ENDS}", of)
        mean = of.change.mean()
        ax.vlines(mean, y - 0.3, y + 0.3, color=INK, linewidth=2.2, zorder=3)
        ax.text(mean + 0.008, y + 0.32, f"{mean:.2f}", va="bottom", fontsize=8, weight="bold")
        if not y:
            ax.axvline(mean, **DASHED)
    ax.axvline(unrelated, **DOTTED)
    top = ax.get_xaxis_transform()
    ax.text(unrelated, 1.01, "any two bases", transform=top, ha="center", fontsize=7.5, color=FAINT)
    ax.set_yticks([])
    ax.spines.left.set_visible(False)
    ax.set(xlim=(-0.02, 1.02), ylim=(len(names) - 0.55, -0.8))
    ax.set_xlabel(f"change of the {what}, from base to twin", loc="left")
    return figure


@with_data
def bases_and_twins(pairs: pd.DataFrame, names: Mapping[str, str], what: str) -> Figure:
    """Return a figure with a panel for each thing new: twins against their bases.

    The arguments are as in `changes`. On a phone the built page has the panels in two rows.
    """
    figure = Figure(figsize=(WIDTH, 1.9), layout="constrained")
    parts = parts_beside(figure, -(-len(names) // ABREAST))
    for i, (new, name) in enumerate(names.items()):
        part, place = parts[i // ABREAST], i % ABREAST
        ax, of = part.add_subplot(1, ABREAST, place + 1), pairs[pairs.new == new]
        ax.plot([0, 1], [0, 1], **DASHED)
        dots = ax.scatter(of.base, of.twin, s=DOT, c=FACTOR, linewidths=0)
        name_dots(dots, ENDS, of)
        ax.set(xlim=(-0.05, 1.07), ylim=(-0.05, 1.07), aspect="equal", title=name)
        ax.set(xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
        ax.tick_params(labelleft=not place)
        if not place:
            ax.set_ylabel(f"{what} of the twin")
            ax.set_xlabel(f"{what} of the base", loc="left")
    return figure


@with_data
def on_the_way(way: pd.DataFrame, floor: float) -> Figure:
    """Return a figure of how far runs are, after some epochs, from what they become.

    `way` is as from `twins.on_the_way`, and `floor` the mean change of the floor's twins.
    """
    figure = Figure(figsize=(WIDTH, 2.1), layout="constrained")
    left, right = figure.subplots(1, 2)
    measured = way[way.change.notna()]
    left.vlines(measured.index, measured.low, measured.high, color=FACTOR, linewidth=1)
    left.plot(measured.index, measured.change, color=FACTOR, marker="o", markersize=4)
    left.axhline(floor, **DASHED)
    left.set(ylim=(0, None), ylabel="change of the late share\nto the end")
    right.plot(measured.index, measured["rank"], color=FACTOR, marker="o", markersize=4)
    right.set(ylim=(min(0, measured["rank"].min()), 1.05), ylabel="rank correlation\nwith the end")
    for ax in (left, right):
        ax.set(xlim=(0, 101), xlabel="epoch, of 100")
    return figure
