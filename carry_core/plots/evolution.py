"""How a run comes to do what it does: its transition (Fig. 2), and its final MLP over the epochs (Fig. 5)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from carry_core import carries
from carry_core.findings.base import Fields
from carry_core.findings.dynamics import Evolution, Kink, finished
from carry_core.plots.attention import ATTENTION
from carry_core.plots.cells import RIGHT
from carry_core.plots.curves import TEST, TRAIN, plain_log
from carry_core.plots.style import INK, WIDTH, Table, number, panel, position, styled
from carry_core.runs import History
from carry_core.sums import Layout

POSITIONS = ("#D55E00", "#009E73", "#0072B2", "#CC79A7")  # of the answer's digits, from the left
MARK: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": (0, (3, 2))}  # an epoch that the text speaks of
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (4, 1, 1, 1)), (0, (1, 1)))  # of the same, to tell them in grey
OTHERS: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.35}  # runs that are not the one that is shown
BOX: dict[str, Any] = {"frameon": True, "framealpha": 1, "edgecolor": "none", "borderpad": 0.1}  # over such lines
FORGOT = "#D9534A"  # right but for the one: `OFF_BY_ONE`, dark enough for a line
END = 1.1  # where the last epoch's values stand, as a multiple of the last epoch that is drawn
POINTS = 100  # of a curve in a small panel at most, which keeps the page light


@styled
def transition(history: History, run: int, epochs: Sequence[int], layout: Layout) -> Figure:
    """Loss, accuracy and squared norm of a one-layer run, and its mean attention at some epochs (Fig. 2).

    Args:
        history: of the group, with its mean attention.
        run: which one.
        epochs: at which the attention is shown, a row each.
        layout: of the sequence.
    """
    i = history["runs"].tolist().index(run)
    pattern = history["pattern"][i]
    n_heads, marks, every = pattern.shape[1], layout.tick_labels(), range(layout.length)
    side, title, foot, gap, right = 1.42, 0.26, 0.4, 0.2, 0.62  # inches
    height = len(epochs) * side + (len(epochs) - 1) * gap
    maps = WIDTH - right - n_heads * side - (n_heads - 1) * 0.12
    figure = Figure(figsize=(WIDTH, title + height + foot))
    _curves(figure, history, i, epochs, layout, (0.5, title, maps - 1.0, (height - 2 * 0.3) / 3))
    for row, epoch in enumerate(epochs):
        for head in range(n_heads):
            ax = panel(figure, maps + head * (side + 0.12), title + row * (side + gap), side, side)
            ax.imshow(pattern[epoch - 1, head], cmap=ATTENTION, vmin=0, vmax=1, aspect="auto")
            size = min(7.0, 70 / layout.length)
            ax.set_xticks(every, marks if row == len(epochs) - 1 else [""] * len(marks), fontsize=size)
            ax.set_yticks(every, marks if head == 0 else [""] * len(marks), fontsize=size)
            ax.tick_params(length=0, pad=1.5)
            ax.set_title(f"0:{head}, epoch {epoch}")
    scale = panel(figure, WIDTH - right + 0.1, title, 0.1, side)
    figure.colorbar(ScalarMappable(Normalize(0, 1), ATTENTION), cax=scale).set_label("attention")
    return figure


def _curves(
    figure: Figure,
    history: History,
    i: int,
    epochs: Sequence[int],
    layout: Layout,
    place: tuple[float, float, float, float],
) -> None:
    """The three curves on the left of Fig. 2; `place` is the uppermost one's left, top, width and height in inches."""
    left, top, width, height = place
    axes = [panel(figure, left, top + row * (height + 0.3), width, height) for row in range(3)]
    names = layout.position_names[-history["test_accuracy"].shape[2] :]
    for key, colour in (("train_loss", TRAIN), ("test_loss", TEST)):
        curve = finished(history[key][i])
        axes[0].plot(range(1, len(curve) + 1), curve, color=colour, label=key.removesuffix("_loss"))
    accuracy = finished(history["test_accuracy"][i])
    for name, curve, colour, dashes in zip(names, accuracy.T, POSITIONS, DASHES, strict=False):
        axes[1].plot(range(1, len(curve) + 1), curve, color=colour, linestyle=dashes, label=position(name))
    norm = finished(history["weight_norm"][i])
    axes[2].plot(range(1, len(norm) + 1), norm, color=INK)
    plain_log(axes[0])
    axes[0].set_title("loss")
    axes[1].set(ylim=(0, 1.03), title="accuracy of each digit, test")
    axes[2].set(ylim=(0, None), title="squared weight norm", xlabel="epoch")
    for ax in axes:
        ax.set_xlim(0, len(norm) + 1)
        ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
        for epoch in epochs:
            ax.axvline(epoch, **MARK)
        ax.spines[["top", "right"]].set_visible(False)
        if ax is not axes[-1]:
            ax.set_xticklabels([])
    axes[0].legend(loc="upper right", handlelength=1.2, **BOX)
    axes[1].legend(loc="lower right", handlelength=2.4, **BOX)


def _along(
    ax: Axes, epochs: Int[np.ndarray, " epoch"], values: Float[np.ndarray, " epoch"], end: int, color: str, **look: Any
) -> None:
    """A curve up to epoch `end`, and as a dot behind it the last value, if that comes later or stands alone."""
    within = epochs <= end
    if within.sum() > 1:
        ax.plot(epochs[within], values[within], color=color, **look)
    if epochs[-1] > end or len(epochs) == 1:
        where = min(float(epochs[-1]), END * end)
        ax.plot([where], values[-1:], "o", color=color, markersize=3.5, alpha=look.get("alpha", 1), clip_on=False)


def _kinds() -> list[Line2D]:
    """Legend entries of accuracy and corrected accuracy."""
    return [
        Line2D([], [], color=colour, linewidth=1.4, label=label)
        for colour, label in ((RIGHT, "right"), (FORGOT, "right once corrected"))
    ]


@styled
def evolution(history: History, evolutions: Mapping[int, Evolution], run: int, kink: Kink) -> Figure:
    """Correlation without the final MLP, accuracy at a position that needs a one, and loss, over the epochs (Fig. 5).

    Every panel goes as far as `kink` looked; if the runs went on, the values of the last epoch stand behind that.

    Args:
        history: of the group.
        evolutions: of every run.
        run: the one whose accuracies and loss are shown.
        kink: of its test loss.
    """
    end, shown = kink.end, evolutions[run]
    figure = Figure(figsize=(WIDTH, 2.8), layout="constrained")
    correlation, accuracy, loss = figure.subplots(1, 3)
    for other, found in evolutions.items():
        look: dict[str, Any] = {"linewidth": 1.6, "zorder": 3} if other == run else OTHERS
        _along(correlation, found.epochs, found.correlation, end, INK, **look)
    n_digits = shown.accuracy.shape[-1]
    needs = int(carries.carry_in(n_digits)[1].nonzero()[0, 0])
    for values, colour in ((shown.accuracy, RIGHT), (shown.corrected, FORGOT)):
        _along(accuracy, shown.epochs, values[:, 1, needs], end, colour)
    i = history["runs"].tolist().index(run)
    for key, colour in (("train_loss", TRAIN), ("test_loss", TEST)):
        curve = finished(history[key][i])
        _along(loss, np.arange(1, len(curve) + 1), curve, end, colour, label=key.removesuffix("_loss"))
    loss.plot(*kink.curve(), color="#E69F00", linewidth=1.8, label="fitted decay")
    loss.set_yscale("log")
    correlation.set(ylim=(-0.4, 1.05), title="correlation with no carrying")
    name, where = carries.paper_name(carries.patterns(n_digits)[1]), position(Layout(n_digits).position_names[needs])
    accuracy.set(ylim=(-0.03, 1.03), title=f"accuracy of {name} at {where}")
    loss.set_title("loss, intact")
    known = [len(curve), *(int(e.epochs[-1]) for e in evolutions.values())]
    behind = max(known) > end or any(len(e.epochs) == 1 for e in evolutions.values())
    for ax in (correlation, accuracy, loss):
        ax.axvline(kink.epoch, **MARK)
        locator = MaxNLocator(4, steps=[1, 2, 4, 5, 10], integer=True)
        ticks = [x for x in np.asarray(locator.tick_values(0, end)).tolist() if 0 <= x <= (0.98 if behind else 1) * end]
        ax.set_xticks(ticks)
        if behind:
            ax.set_xticks([*ticks, END * end], [*(f"{x:g}" for x in ticks), "last"])
        ax.set(xlim=(0, (END if behind else 1) * end + 0.02 * end), xlabel="epoch")
    lines = [
        Line2D([], [], color=INK, linewidth=1.6, label=f"run {run}"),
        Line2D([], [], label="kink of its loss", **MARK),
    ]
    if len(evolutions) > 1:
        lines.insert(1, Line2D([], [], color=INK, label="other runs", **OTHERS))
    figure.legend(handles=lines, loc="outside lower center", ncols=len(lines))
    accuracy.legend(handles=_kinds(), loc="best", handlelength=1.2, **BOX)
    loss.legend(loc="upper right", handlelength=1.2)
    return figure


@styled
def evolution_grid(evolutions: Mapping[int, Evolution], run: int) -> Figure:
    """Accuracies and corrected accuracies without the final MLP, class by class over all epochs (Sec. 5).

    One run bold, the others thin behind it; heavy frames where a one arrives; of more than five classes the first five.
    Of more than `POINTS` epochs every second, third, … is drawn, counted from the last.
    """
    n_digits = evolutions[run].accuracy.shape[-1]
    classes, names = carries.patterns(n_digits)[:5], Layout(n_digits).position_names
    last = max(int(found.epochs[-1]) for found in evolutions.values())
    left, gap, title, foot = 0.85, 0.1, 0.26, 0.62  # inches
    width, height = (WIDTH - left - 0.05 - gap * (len(classes) - 1)) / len(classes), 0.95
    figure = Figure(figsize=(WIDTH, title + n_digits * (height + gap) + foot))
    for task, pattern in enumerate(classes):
        for pos in range(n_digits):
            ax = panel(figure, left + task * (width + gap), title + pos * (height + gap), width, height)
            for other, found in sorted(evolutions.items(), key=lambda item: item[0] == run):
                look = {"linewidth": 1.4} if other == run else OTHERS
                step = -(-len(found.epochs) // POINTS)
                every = slice((len(found.epochs) - 1) % step, None, step)
                for values, colour in ((found.accuracy, RIGHT), (found.corrected, FORGOT)):
                    _along(ax, found.epochs[every], values[every, task, pos], last, colour, **look)
            ax.set(xlim=(0, 1.05 * last), ylim=(-0.05, 1.05), yticks=[0, 0.5, 1])
            ax.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 3, 5, 10], integer=True))
            ax.tick_params(labelbottom=pos == n_digits - 1, labelleft=task == 0, labelsize=6.5)
            if carries.carry_in(n_digits)[task, pos]:
                ax.spines[:].set(linewidth=2, color=INK)
            if pos == 0:
                ax.set_title(carries.paper_name(pattern))
            if task == 0:
                ax.set_ylabel(position(names[pos]), rotation=0, ha="right", va="center", weight="bold")
    figure.text(0.5, 0.34 / figure.get_size_inches()[1], "epoch", ha="center", va="center")
    figure.legend(handles=_kinds(), loc="lower center", ncols=2)
    return figure


def table_of_kinks(found: Mapping[int, Fields], shares: Mapping[float, Mapping[int, Kink]]) -> Table:
    """Kink, start of the rise and fitted decay of every run, and where the kink lies if one looks less or more far.

    Args:
        found: by run.
        shares: kinks by run for other shares of the training.
    """
    rows = []
    for run, c in found.items():
        kink, (low, high) = c["kink"], c["kink"].interval
        fit = [f"{kink.rate:.3f}\n{low:.3f} to {high:.3f}", number(kink.explained)]
        others = [f"{kinks[run].epoch}" for kinks in shares.values()]
        rises = f"{number(c['rise'], 0)}\nfell by {number(c['depth'])}"
        rows.append([f"{run}", f"{kink.epoch}", rises, *fit, *others])
    header = ["run", "kink", "correlation rises from", "decay per epoch", "explains"]
    header += [f"kink in the first {share:.0%}" if share < 1 else "kink in all epochs" for share in shares]
    return Table(header, rows)


def table_of_transitions(found: pd.DataFrame) -> Table:
    """When each run learns the units, when each head passes one half, and when the norm turns (Sec. 3)."""
    rows = []
    for run, t in found.iterrows():
        passes = [number(epoch, 0) for epoch in t.passes]
        turn = [number(t.bounce, 0), *(f"{x:.1%}" if x == x else "–" for x in (t.fall, t.rebound))]
        rows.append([f"{run}", number(t.rise, 0), number(t.jump), *passes, number(t.lag, 0), *turn])
    n_heads = found.passes.map(len).max()
    header = ["run", "epoch", "by", *(f"0:{head}" for head in range(n_heads)), "lag"]
    header += ["epoch", "lost by then", "gained after"]
    return Table(
        header, rows, [("", 1), ("units rise most", 2), ("attention passes ½", n_heads + 1), ("norm turns", 3)]
    )
