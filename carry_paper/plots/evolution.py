"""The final MLP on its way to carrying, during training (Sec. 5, Fig. 5)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import SubFigure
from numpy.typing import NDArray

from carry_core import carries
from carry_core.sums import Layout
from carry_paper.plots.sides import Arrays
from carry_paper.plots.style import (
    CORRECT,
    DASHED,
    FAINT,
    INK,
    TEST,
    TOO_LARGE,
    TOO_SMALL,
    TRAIN,
    name_grid,
    position_label,
)

FIT = "#C77700"
RISE: dict[str, Any] = {"color": INK, "linewidth": 1.2, "linestyle": ":"}
CORRELATION_LIMITS = (-0.4, 1.05)
DOT: dict[str, Any] = {"marker": "o", "markersize": 3.5, "linestyle": "", "clip_on": False}
AT_END = 1.03  # of the last epoch: the place of what was measured on the weights
CURVES = 130  # points of a curve, at most
N_CLASSES = 5


def fitted_decay(side: Arrays, i: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return two epochs and the exponential that is fitted to run `i`'s loss from its kink on."""
    epochs = np.array([side["kink"][i], side["epoch"][-1]])
    return epochs, np.exp(side["level"][i] - side["rate"][i] * epochs)


def draw_evolution(figure: SubFigure, side: Arrays) -> None:
    """Draw correlation and loss over the same epochs, of one `run` in front of the others.

    Where nothing was recorded during training, the correlation is drawn at its end. A dashed line
    marks the kink of the loss, a dotted one the rise of the correlation. `side` has by epoch the
    `correlation` with a model that never carries and the `test_loss` `[run, epoch]`, and of the one
    run the `train_loss`; the correlation at the end, measured on the weights; and each run's
    `kink`, `rise` and fitted decay.
    """
    i, last = list(side["runs"]).index(side["run"]), side["epoch"][-1]
    above, below = figure.subplots(2, 1, sharex=True)
    pairs = zip(side["correlation"], side["correlation_at_end"], strict=True)
    for run, (curve, value) in enumerate(pairs):
        look: dict[str, Any] = {"color": TRAIN, "linewidth": 0.7}
        if run == i:
            look = {"color": INK, "linewidth": 1.6, "zorder": 3}
        above.plot(side["epoch"], curve, **look)
        above.plot(AT_END * last, value, color=look["color"], **DOT)
    if np.isnan(side["correlation"][i]).all():
        at = (0.93, 0.5)
        above.text(*at, "recorded at the end only", ha="right", transform=above.transAxes)
    above.set(ylim=CORRELATION_LIMITS, ylabel="correlation\nwith no carrying")
    below.semilogy(side["epoch"], side["train_loss"], color=TRAIN, linewidth=0.8, label="train")
    below.semilogy(side["epoch"], side["test_loss"][i], color=TEST, linewidth=0.8, label="test")
    below.semilogy(*fitted_decay(side, i), color=FIT, linewidth=2, label="fitted decay")
    below.set(ylabel="loss", xlabel="epoch", xlim=(0, 1.05 * last))
    below.legend(loc="upper right", handlelength=1.2)
    for ax in (above, below):
        ax.axvline(side["kink"][i], **DASHED)
        ax.axvline(side["rise"][i], **RISE)
    beside: dict[str, Any] = {"xytext": (3, 0), "textcoords": "offset points", "color": FAINT}
    below.annotate("kink", (side["kink"][i], below.get_ylim()[0]), va="bottom", **beside)
    if np.isfinite(side["rise"][i]):
        above.annotate("rise", (side["rise"][i], CORRELATION_LIMITS[0]), va="bottom", **beside)


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
        ax.axvline(side["kink"][i], **DASHED)
        ax.axvline(side["rise"][i], **RISE)
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
    for (k, j), ax in np.ndenumerate(axes):
        colours = (CORRECT, TOO_SMALL if carry_in[j, k] else TOO_LARGE)
        for values, colour in zip(accuracies, colours, strict=True):
            ax.plot(epochs, values[:, j, k], color=colour, marker=marker)
        if carry_in[j, k]:
            ax.spines[:].set(visible=True, linewidth=2, color=INK)
    positions = map(position_label, layout.position_names[-n_digits:])
    name_grid(axes, positions, map(carries.paper_name, classes), ("normal", "bold"))
    axes[0, 0].set(ylim=(-0.05, 1.05), yticks=[0, 0.5, 1])
    figure.supxlabel("epoch", fontsize=8.5)
