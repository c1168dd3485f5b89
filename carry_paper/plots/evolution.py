"""The final MLP on its way to carrying, during training (Sec. 5, Fig. 5)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from numpy.typing import NDArray

from carry_core import carries
from carry_core.sums import Layout
from carry_paper.plots.sides import Arrays
from carry_paper.plots.style import (
    CORRECT,
    FAINT,
    INK,
    TEST,
    TOO_LARGE,
    TOO_SMALL,
    TRAIN,
    position_label,
)

FIT = "#C77700"
DASHES: dict[str, Any] = {"color": FAINT, "linewidth": 0.9, "linestyle": (0, (3, 2))}
CORRELATION_LIMITS = (-0.4, 1.05)
DOT: dict[str, Any] = {"marker": "o", "markersize": 3.5, "linestyle": "", "clip_on": False}
# The two accuracies of a cell with a carry-in, with their labels and colours.
ACCURACIES = {"accuracy": ("correct", CORRECT), "corrected": ("one too small", TOO_SMALL)}
AT_END = 1.03  # of the last epoch: the place of what was measured on the weights
CURVES = 130  # points of a curve, at most
N_CLASSES = 5


def fitted_decay(side: Arrays, i: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return two epochs and the exponential that is fitted to run `i`'s loss from its kink on."""
    epochs = np.array([side["kink"][i], side["epoch"][-1]])
    return epochs, np.exp(side["level"][i] - side["rate"][i] * epochs)


def draw_evolution(figure: SubFigure, side: Arrays, cell: str) -> None:
    """Draw correlation, accuracy and loss by epoch, of one `run` in front of the others.

    Where nothing was recorded during training, correlation and accuracy are drawn at its end.

    Args:
        figure: The figure.
        side: By epoch the `correlation` with a model that never carries and the `test_loss`
            `[run, epoch]`, and of the one run the `train_loss` and both accuracies; the same
            at the end, measured on the weights; and each run's `kink`, with the fitted decay.
        cell: The name of the cell whose accuracies are drawn.
    """
    i = list(side["runs"]).index(side["run"])
    if np.isnan(side["correlation"][i]).all():
        at_end, loss = figure.subplots(1, 2, width_ratios=[1, 2])
        _draw_ends(at_end, side, i, cell)
    else:
        correlation, accuracy, loss = figure.subplots(1, 3)
        _draw_correlation(correlation, side, i)
        _draw_accuracy(accuracy, side, cell)
        for ax in (correlation, accuracy):
            _mark_kink(ax, side, i)
    loss.semilogy(side["epoch"], side["train_loss"], color=TRAIN, linewidth=0.8, label="train")
    loss.semilogy(side["epoch"], side["test_loss"][i], color=TEST, linewidth=0.8, label="test")
    loss.semilogy(*fitted_decay(side, i), color=FIT, linewidth=2, label="fitted decay")
    loss.set_title("loss")
    loss.legend(loc="upper right", handlelength=1.2)
    _mark_kink(loss, side, i)


def _mark_kink(ax: Axes, side: Arrays, i: int) -> None:
    """Draw a line at the kink of run `i`, and name the axis of epochs."""
    ax.axvline(side["kink"][i], **DASHES)
    ax.set(xlim=(0, 1.04 * side["epoch"][-1]), xlabel="epoch")


def _draw_correlation(ax: Axes, side: Arrays, i: int) -> None:
    """Draw the correlation of each run by epoch, that of run `i` in front, and at the end."""
    at_end = AT_END * side["epoch"][-1]
    pairs = zip(side["correlation"], side["correlation_at_end"], strict=True)
    for run, (curve, value) in enumerate(pairs):
        look: dict[str, Any] = {"color": TRAIN, "linewidth": 0.7}
        if run == i:
            look = {"color": INK, "linewidth": 1.6, "zorder": 3}
        ax.plot(side["epoch"], curve, **look)
        ax.plot(at_end, value, color=look["color"], **DOT)
    ax.set(ylim=CORRELATION_LIMITS, title="correlation with no carrying")


def _draw_accuracy(ax: Axes, side: Arrays, cell: str) -> None:
    """Draw both accuracies of a cell by epoch, and at the end."""
    at_end = AT_END * side["epoch"][-1]
    for (name, (label, colour)), value in zip(
        ACCURACIES.items(), side["accuracy_at_end"], strict=True
    ):
        ax.plot(side["epoch"], side[name], color=colour, label=label)
        ax.plot(at_end, value, color=colour, **DOT)
    ax.set(ylim=(-0.03, 1.05), title=cell)
    ax.legend(loc="center right", handlelength=1.2)


def _draw_ends(ax: Axes, side: Arrays, i: int, cell: str) -> None:
    """Draw correlation and accuracies at the end of the training, run `i` in front."""
    for run, value in enumerate(side["correlation_at_end"]):
        ax.plot(0, value, color=INK if run == i else TRAIN, zorder=3 if run == i else 2, **DOT)
    for x, ((_, colour), value) in enumerate(
        zip(ACCURACIES.values(), side["accuracy_at_end"], strict=True), 1
    ):
        ax.plot(x, value, color=colour, **DOT)
    labels = ["correlation\n(all runs)", f"{cell},\ncorrect", f"{cell},\none too small"]
    ax.set_xticks(range(3), labels)
    ax.set(xlim=(-0.5, 2.5), ylim=CORRELATION_LIMITS, title="at the end")


def draw_losses(figure: SubFigure, side: Arrays) -> None:
    """Draw the test loss of each run with its fitted decay, over the correlation; a panel each."""
    n_runs = len(side["runs"])
    n_columns = -(-n_runs // 2)
    axes = figure.subplots(2, n_columns, squeeze=False, sharex=True, sharey=True).flatten()
    for ax in axes[n_runs:]:
        ax.set_visible(False)
    lowest, highest = np.nanmin(side["test_loss"]), np.nanmax(side["test_loss"])
    for i, (ax, run) in enumerate(zip(axes, side["runs"], strict=False)):
        ax.semilogy(side["epoch"], side["test_loss"][i], color=TEST, linewidth=0.6)
        ax.semilogy(*fitted_decay(side, i), color=FIT, linewidth=2)
        ax.axvline(side["kink"][i], **DASHES)
        ax.axvline(side["rise"][i], color=INK, linewidth=1.2, linestyle=":")
        ax.set_title(f"run {run}", loc="left")
        ax.minorticks_off()
        ax.set_ylim(lowest / 3, 3 * highest)
        if i % n_columns == 0:
            ax.set_ylabel("test loss")
        if i >= n_runs - n_columns:
            ax.set_xlabel("epoch")
        if np.isnan(side["correlation"][i]).all():
            continue
        over = ax.twinx()
        over.plot(side["epoch"], side["correlation"][i], color=INK, linewidth=1)
        over.set(ylim=CORRELATION_LIMITS, yticks=[0, 0.5, 1])
        over.spines["right"].set_visible(True)
        if i % n_columns == n_columns - 1:
            over.set_ylabel("correlation")
        else:
            over.set_yticklabels([])


def draw_classes(
    figure: SubFigure, curves: Sequence[NDArray[Any]], layout: Layout, n_digits: int
) -> None:
    """Draw both accuracies by epoch, classes by positions; those with a carry-in are framed.

    `curves` are the epochs, and both accuracies `[epoch, class, position]`.
    """
    epochs, *accuracies = curves
    carry_in = carries.carry_in(n_digits)
    classes = carries.patterns(n_digits)[:N_CLASSES]
    marker = "o" if len(epochs) == 1 else ""
    axes: Any = figure.subplots(n_digits, len(classes), sharex=True, sharey=True, squeeze=False)
    for j, pattern in enumerate(classes):
        axes[0, j].set_title(carries.paper_name(pattern), weight="bold")
        for k in range(n_digits):
            colours = (CORRECT, TOO_SMALL if carry_in[j, k] else TOO_LARGE)
            for values, colour in zip(accuracies, colours, strict=True):
                axes[k, j].plot(epochs, values[:, j, k], color=colour, marker=marker)
            if carry_in[j, k]:
                axes[k, j].spines[:].set(visible=True, linewidth=2, color=INK)
    for ax, name in zip(axes[:, 0], layout.position_names[-n_digits:], strict=True):
        ax.set_ylabel(position_label(name), rotation=0, ha="right", va="center")
    axes[0, 0].set(ylim=(-0.05, 1.05), yticks=[0, 0.5, 1])
    figure.supxlabel("epoch", fontsize=8.5)
