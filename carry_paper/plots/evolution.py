"""The final MLP on its way to carrying, during training (Sec. 5, Fig. 5)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import SubFigure
from numpy.typing import NDArray

from carry_core import carries
from carry_core.sums import Layout
from carry_paper.plots.sides import Arrays

CORRECT, FORGOTTEN, FIT, INK = "#3F6FB5", "#D9534A", "#C77700", "#1F2430"
TEST, OTHER = "#A03A80", "#8A8D93"
DASHES: dict[str, Any] = {"color": "#6B7280", "linewidth": 0.9, "linestyle": (0, (3, 2))}
CORRELATION_LIMITS = (-0.4, 1.05)
AT_END = 1.03  # of the last epoch: the place of what was measured on the weights
CURVES = 130  # points of a curve, at most
N_CLASSES = 5


def fitted_decay(side: Arrays, i: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return two epochs and the exponential that is fitted to run `i`'s loss from its kink on."""
    epochs = np.array([side["kink"][i], side["epoch"][-1]])
    return epochs, np.exp(side["level"][i] - side["rate"][i] * epochs)


def draw_evolution(figure: SubFigure, side: Arrays, cell: str) -> None:
    """Draw correlation, accuracy and loss by epoch, of one `run` in front of the others.

    Args:
        figure: The figure.
        side: By epoch the `correlation` with a model that never carries and the `test_loss`
            `[run, epoch]`, and of the one run the `train_loss` and both accuracies; the same
            at the end, measured on the weights; and each run's `kink`, with the fitted decay.
        cell: The name of the cell whose accuracies are drawn.
    """
    correlation, accuracy, loss = figure.subplots(1, 3)
    i = list(side["runs"]).index(side["run"])
    epoch = side["epoch"]
    at_end = AT_END * epoch[-1]
    dot: dict[str, Any] = {"marker": "o", "markersize": 3.5, "linestyle": "", "clip_on": False}
    for run, (curve, value) in enumerate(
        zip(side["correlation"], side["correlation_at_end"], strict=True)
    ):
        look: dict[str, Any] = {"color": OTHER, "linewidth": 0.7}
        if run == i:
            look = {"color": INK, "linewidth": 1.6, "zorder": 3}
        correlation.plot(epoch, curve, **look)
        correlation.plot(at_end, value, color=look["color"], **dot)
    kinds = (("accuracy", CORRECT, "right"), ("corrected", FORGOTTEN, "right once corrected"))
    for (name, colour, label), value in zip(kinds, side["accuracy_at_end"], strict=True):
        accuracy.plot(epoch, side[name], color=colour, label=label)
        accuracy.plot(at_end, value, color=colour, **dot)
    loss.semilogy(epoch, side["train_loss"], color=OTHER, linewidth=0.8, label="train")
    loss.semilogy(epoch, side["test_loss"][i], color=TEST, linewidth=0.8, label="test")
    loss.semilogy(*fitted_decay(side, i), color=FIT, linewidth=2, label="fitted decay")

    correlation.set(ylim=CORRELATION_LIMITS, title="correlation with no carrying")
    accuracy.set(ylim=(-0.03, 1.05), title=cell)
    loss.set_title("loss")
    if np.isnan(side["correlation"][i]).all():
        text = "not recorded in training;\ndots: the last epoch"
        for ax in (correlation, accuracy):
            ax.text(0.5, 0.72, text, ha="center", transform=ax.transAxes)
    for ax in (correlation, accuracy, loss):
        ax.axvline(side["kink"][i], **DASHES)
        ax.set(xlim=(0, 1.04 * epoch[-1]), xlabel="epoch")
    accuracy.legend(loc="center right", handlelength=1.2)
    loss.legend(loc="upper right", handlelength=1.2)


def draw_losses(figure: SubFigure, side: Arrays) -> None:
    """Draw the test loss of each run with its fitted decay, over the correlation; a panel each."""
    n_runs = len(side["runs"])
    axes = figure.subplots(2, -(-n_runs // 2), squeeze=False, sharex=True).flatten()
    for ax in axes[n_runs:]:
        ax.set_visible(False)
    for i, (ax, run) in enumerate(zip(axes, side["runs"], strict=False)):
        ax.semilogy(side["epoch"], side["test_loss"][i], color=TEST, linewidth=0.6)
        ax.semilogy(*fitted_decay(side, i), color=FIT, linewidth=2)
        ax.axvline(side["kink"][i], **DASHES)
        ax.axvline(side["rise"][i], color=INK, linewidth=1.2, linestyle=":")
        ax.set_title(f"run {run}", loc="left")
        ax.set_yticks([])
        ax.minorticks_off()
        over = ax.twinx()
        over.plot(side["epoch"], side["correlation"][i], color=INK, linewidth=1)
        over.set(ylim=CORRELATION_LIMITS, yticks=[])


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
            for values, colour in zip(accuracies, (CORRECT, FORGOTTEN), strict=True):
                axes[k, j].plot(epochs, values[:, j, k], color=colour, marker=marker)
            if carry_in[j, k]:
                axes[k, j].spines[:].set(visible=True, linewidth=2, color=INK)
    for ax, name in zip(axes[:, 0], layout.position_names[-n_digits:], strict=True):
        ax.set_ylabel(name.replace("pos", "pos. "), rotation=0, ha="right", va="center")
    axes[0, 0].set(ylim=(-0.05, 1.05), yticks=[0, 0.5, 1])
    figure.supxlabel("epoch", fontsize=8.5)
