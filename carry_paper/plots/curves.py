"""Learning curves (Fig. 2, 8 to 12), and language models from layer to layer (Fig. 6, App. G)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from carry_core.runs import History
from carry_core.sums import Layout
from carry_paper.findings import dynamics
from carry_paper.plots.attention import number_marks, query_marks, sum_map
from carry_paper.plots.sides import AUTHORS, Arrays
from carry_paper.plots.style import (
    ATTENTION,
    CLASS_COLOURS,
    DASHED,
    DOTTED,
    INK,
    TEST,
    TRAIN,
    WIDTH,
    colour_bar,
    legend_below,
    position_label,
    with_data,
)

ORDINALS = ("first", "second", "third", "fourth", "fifth")


def draw_runs(
    ax: Axes, epochs: NDArray[Any], rows: NDArray[Any], colour: str, label: str = ""
) -> None:
    """Draw each run thin, and their mean bold where there are several."""
    rows = rows[~np.isnan(rows).all(1)]
    has_several_runs = len(rows) > 1
    ax.plot(epochs, rows.T, color=colour, linewidth=0.5 if has_several_runs else 1.2)
    if has_several_runs:
        ax.plot(epochs, pd.DataFrame(rows).mean(), color=colour, linewidth=2)
    ax.plot([], [], color=colour, linewidth=1.6, label=label)  # for a legend


def plain_log(ax: Axes) -> None:
    """Set a logarithmic scale, with ticks at 1, 2 and 5 too if it spans few powers of ten."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    if high / low < 100:
        ax.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_locator(NullLocator())


PANELS = {  # of Fig. 8 to 12: the curves of each with their colours and labels
    "loss": {"train_loss": (TRAIN, "train"), "test_loss": (TEST, "test")},
    "exact match": {"train_whole": (TRAIN, ""), "test_whole": (TEST, "")},
    "squared norm of the weights": {"weight_norm": (INK, "")},
}


def thinned(history: History) -> dict[str, NDArray[Any]]:
    """Return the curves of Fig. 8 to 12 `[run, epoch]` at up to 150 epochs, and the `epoch`.

    The first and the last tested epoch are among them.
    """
    tested = history["epochs"]
    rows = nearest_rows(tested, np.linspace(1, tested[-1], min(150, tested[-1])))
    names = [name for panel in PANELS.values() for name in panel if name in history]
    return {"epoch": tested[rows]} | {name: history[name][:, rows] for name in names}


def nearest_rows(tested: NDArray[Any], epochs: NDArray[Any]) -> NDArray[Any]:
    """Return rows of curves at some epochs, or at the next ones tested; none twice."""
    return np.unique(np.searchsorted(tested, epochs.round()))


def draw_alike(sides: Mapping[str, Arrays]) -> Callable[[SubFigure, Arrays], None]:
    """Return `draw_curves` with the same scales on each side."""
    limits = {"exact match": (0.0, 1.03)}
    for title in PANELS.keys() - limits:
        curves = [side[name] for side in sides.values() for name in PANELS[title] if name in side]
        low = min(float(np.nanmin(rows)) for rows in curves)
        high = max(float(np.nanmax(rows)) for rows in curves)
        limits[title] = (0.9 * low, 1.1 * high) if title == "loss" else (0.0, 1.03 * high)
    return partial(draw_curves, limits=limits)


TRAININGS: dict[str, dict[str, Any]] = {
    # wide, so that curves on top of it do not hide it
    AUTHORS: {"color": TRAIN, "linewidth": 3.5, "solid_capstyle": "round", "zorder": 1},
    "ours, paper": {"color": CLASS_COLOURS[3], "linewidth": 0.8},
    "ours, quick": {"color": CLASS_COLOURS[0], "linewidth": 0.8},
    "ours, minute": {"color": CLASS_COLOURS[2], "linewidth": 0.8},
}


@with_data
def draw_trainings(curves: pd.DataFrame) -> Figure:
    """Return a figure of loss, exact match and squared norm by step, with a dot at each run's end.

    `curves` has these of each `training`, `run` and `step`.
    """
    figure = Figure(figsize=(WIDTH, 2.7), layout="constrained")
    quantities = ("loss", "exact match", "squared norm")
    for ax, quantity in zip(figure.subplots(1, 3), quantities, strict=True):
        for (training, _), curve in curves.groupby(["training", "run"], sort=False):
            values, look = curve.dropna(subset=quantity), TRAININGS[training]
            ax.plot(values["step"], values[quantity], label=training, **look)
            ax.plot(values["step"].tail(1), values[quantity].tail(1), "o", color=look["color"])
        ax.set(title=quantity, xlabel="optimiser steps", xscale="log")
        if quantity == "loss":
            plain_log(ax)
        else:
            ax.set_ylim(0)
    legend_below(figure)
    return figure


def draw_curves(
    figure: SubFigure, curves: Arrays, limits: Mapping[str, tuple[float, float]]
) -> None:
    """Draw loss, exact match and squared norm of each run, and their mean, bold (Fig. 8 to 12).

    `limits` has the ends of the scales of the panels, by their titles.
    """
    axes = figure.subplots(3, 1, sharex=True)
    for ax, (title, panel) in zip(axes, PANELS.items(), strict=True):
        for name, (colour, label) in panel.items():
            if name in curves:  # the author's histories of n2_s0.1_w0.2 have no exact matches
                draw_runs(ax, curves["epoch"], curves[name], colour, label)
        ax.set(title=title, ylim=limits[title])
    plain_log(axes[0])
    axes[-1].set_xlabel("epoch")


def transition_arrays(
    history: History, run: int, map_epochs: Sequence[int]
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a run that `draw_transition` draws.

    They are its curves at every fifth epoch, and its attention at the `map_epochs`.
    """
    i = list(history["runs"]).index(run)
    tested = history["epochs"]
    drawn_epochs = tested % 5 == 0
    names = ("train_loss", "test_loss", "test_accuracy", "weight_norm")
    arrays = {name: history[name][i, drawn_epochs] for name in names}
    return arrays | {
        "epoch": tested[drawn_epochs],
        "run": np.array(run),
        "shown": np.array(map_epochs),
        "attention": history["pattern"][i, np.searchsorted(tested, map_epochs)],
    }


def draw_transition(figure: SubFigure, curves: Arrays, layout: Layout) -> None:
    """Draw a one-layer run's curves, and below its attention at some epochs (Fig. 2, 10).

    `curves` are those of `transition_arrays`.
    """
    map_epochs = curves["shown"]  # [map]
    heads = curves["attention"].shape[1]  # [map, head, query, key]
    maps = [[f"{head} at {epoch}" for epoch in map_epochs] for head in range(heads)]
    names = ["loss", "correct digits", "squared norm"]
    mosaic: Any = [*([name] * len(map_epochs) for name in names), *maps]
    axes = figure.subplot_mosaic(mosaic, height_ratios=[1, 1, 1, *[1.4] * heads])
    epoch = curves["epoch"]
    for name, colour in (("train", TRAIN), ("test", TEST)):
        axes["loss"].plot(epoch, curves[f"{name}_loss"], color=colour, label=name)
    plain_log(axes["loss"])
    for name, curve, dash in zip(
        layout.position_names, curves["test_accuracy"].T, ("-", "--", ":"), strict=True
    ):
        label = position_label(name)
        axes["correct digits"].plot(epoch, curve, linestyle=dash, label=label)
    axes["squared norm"].plot(epoch, curves["weight_norm"], color=INK)
    axes["squared norm"].set(ylim=(0, None), xlabel="epoch")
    axes["correct digits"].set(ylim=(0, 1.03))
    for name in names:
        axes[name].set_title(name, loc="left")
        axes[name].xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes[name].tick_params(labelbottom=name == names[-1])
        for map_epoch in map_epochs:
            axes[name].axvline(map_epoch, **DASHED)
    axes["loss"].legend(loc="upper right")
    axes["correct digits"].legend(loc="lower right", ncols=3)  # below the curves, which end near 1
    for i, head in np.ndindex(len(map_epochs), heads):
        ax = axes[f"{head} at {map_epochs[i]}"]
        queries = {} if i else query_marks(layout)
        keys = number_marks(layout) if head == heads - 1 else {}
        sum_map(ax, curves["attention"][i, head], layout, queries, keys)
        ax.set_title(f"0:{head}, epoch {map_epochs[i]}")
    colour_bar(figure, [axes[name] for row in maps for name in row], ATTENTION, "attention")


def draw_one_run(figure: SubFigure, curves: Arrays, position_names: Sequence[str]) -> None:
    """Draw one run's accuracy of each digit, test loss and squared norm (Fig. 11).

    `curves` has the `digits` of the run, `[epoch, position]`, and its row `of_run` in the other
    curves.
    """
    digits, loss, norm = figure.subplots(1, 3)
    epoch = curves["epoch"]
    of_run = [int(curves["of_run"])]
    names = position_names[: curves["digits"].shape[1]]
    for name, curve, dash in zip(names, curves["digits"].T, ("-", "--", ":", "-."), strict=False):
        digits.plot(epoch, curve, dash, color=TEST, label=position_label(name))
    draw_runs(loss, epoch, curves["test_loss"][of_run], TEST)
    draw_runs(norm, epoch, curves["weight_norm"][of_run], INK)
    digits.set(title="accuracy of each digit", xlabel="epoch", ylim=(0, 1.03))
    loss.set(title="test loss", xlabel="epoch")
    norm.set(title="squared norm", xlabel="epoch", ylim=(0, None))
    plain_log(loss)
    digits.legend(loc="lower right")


def ends(history: History) -> pd.DataFrame:
    """Return the best and the last values of each run (Fig. 8 to 12).

    They are its exact match and loss on the test sums, and the squared norm of its weights.
    """
    columns: dict[tuple[str, str], list[Any]] = {}
    extremes = {
        "exact match": ("test_whole", "best", "idxmax"),
        "loss": ("test_loss", "lowest", "idxmin"),
    }
    for name, (key, extreme, method) in extremes.items():
        if key in history:
            curves = dynamics.curves(history, key)
            epochs = {run: getattr(curve, method)() for run, curve in curves.items()}
            columns[name, extreme] = [curve[epochs[run]] for run, curve in curves.items()]
            columns[name, "epoch"] = [*epochs.values()]
            columns[name, "at the end"] = [curve.iloc[-1] for curve in curves.values()]
    norms = [norm.round().astype(int) for norm in dynamics.curves(history, "weight_norm").values()]
    columns["squared norm", "at the start"] = [norm.iloc[0] for norm in norms]
    columns["squared norm", "at the end"] = [norm.iloc[-1] for norm in norms]
    return pd.DataFrame(columns, pd.Index(history["runs"], name="run"))


@with_data
def separation_curves(separations: pd.DataFrame) -> Figure:
    """Return a figure of `Survey.separations` from layer to layer (Sec. 6, App. G).

    There is a panel for each digit of the answer.
    """
    figure = Figure(figsize=(WIDTH, 2.45), layout="constrained")
    digits = separations.set_index(["layer", "after"]).groupby("output")
    axes = figure.subplots(1, len(digits), sharey=True, squeeze=False)[0]
    for ax, (output, measures) in zip(axes, digits, strict=True):
        lines = zip(CLASS_COLOURS, measures.drop(columns="output").items(), strict=False)
        for colour, (label, values) in lines:
            layers = np.arange(len(values)) / 2
            ax.plot(layers, values, "o-", color=colour, markersize=2.5, label=label)
        n = len(measures) // 2
        ax.axhline(0.5, **DOTTED)
        ax.set(title=f"{ORDINALS[output]} digit", xlabel="layer")
        ax.set(xlim=(-0.25, n - 0.25), ylim=(-0.03, 1.03))
        ax.set_xticks(range(0, n, 1 if n <= 8 else 8))
        ax.spines[:].set_visible(True)
    axes[0].set_yticks([0, 0.5, 1], ["0", "½", "1"])
    axes[0].set_ylabel("accuracy")
    legend_below(figure)
    return figure
