"""What averages over runs hide: two kinds of runs, and how squashing depends on the outcome (beyond the paper)."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator
from torch import Tensor

from carry_core.page import FAINT, INK, WIDTH, styled
from carry_core.plots.common import position

SOURCE_MARKS = {"author": ("o", "#7A1F5C", "author’s weights"), "ours": ("s", "#2381A0", "ours")}
KINDS = ("#2381A0", "o", 2.6, "a one arrives in some sums"), ("#D55E00", "^", 3.2, "in all or in none")


def together(
    runs: Mapping[str, tuple[float, float]], near: tuple[float, float] = (0.03, 0.02)
) -> dict[tuple[float, float], str]:
    """The runs' numbers by their points; those of points too near each other for two labels are joined."""
    named: dict[tuple[float, float], str] = {}
    for run, point in runs.items():
        same = [p for p in named if all(abs(x - y) < d for x, y, d in zip(p, point, near, strict=True))]
        named[same[0] if same else point] = f"{named[same[0]]}, {run}" if same else run
    return named


@styled
def two_kinds(points: Mapping[str, Mapping[str, tuple[float, float]]], limits: tuple[float, float]) -> Figure:
    """Each run by what its decision head costs and by how well its leading axis separates (Sec. 4 and 4.1).

    Args:
        points: by source and run, cost and separation.
        limits: the cost from which a head counts, and the separation from which an axis does.
    """
    figure = Figure(figsize=(5.6, 4.6), layout="constrained")
    ax = figure.subplots()
    ax.axvline(limits[0], color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
    ax.axhline(limits[1], color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
    for source, runs in points.items():
        marker, colour, label = SOURCE_MARKS[source]
        x, y = np.array([*runs.values()]).reshape(-1, 2).T
        ax.plot(x, y, linestyle="", marker=marker, markersize=6, color=colour, alpha=0.8, label=label, clip_on=False)
        side = -1 if source == "author" else 1
        for (at, height), named in together(runs).items():
            ax.annotate(
                named, (at, height), xytext=(0, 6 * side), textcoords="offset points", ha="center",
                va="bottom" if side > 0 else "top", fontsize=7, color=colour,
            )  # fmt: skip
    ax.set(
        xlim=(0, 1), ylim=(0.5, 1.05), xlabel="whole answers that the decision head costs more than the other head",
        ylabel="leading axis tells whether\na one arrives",
    )  # fmt: skip
    ax.legend(loc="lower right", handlelength=1)
    return figure


@styled
def squashing_by_outcome(
    ratio: Float[Tensor, "run outcome pos"],
    outcomes: Sequence[int],
    mixed: Bool[Tensor, "outcome pos"],
    names: Sequence[str],
    shown: int = 74,
) -> Figure:
    """The final MLP's squashing of each outcome: a dot for the median run, a line from the lowest to the highest.

    Args:
        ratio: as `measure.squashing`.
        outcomes: which.
        mixed: whether at this position a one arrives in some of the outcome's sums and not in others.
        names: of the positions.
        shown: the outcome that gets a ring and its number.
    """
    figure = Figure(figsize=(WIDTH, 2.7), layout="constrained")
    axes = figure.subplots(1, len(names), sharey=True)
    x = np.array(outcomes)
    for i, (ax, name) in enumerate(zip(np.atleast_1d(axes), names, strict=True)):
        here = ratio[..., i].double().numpy()
        low, middle, high = here.min(0), np.median(here, 0), here.max(0)
        for side, (colour, marker, size, _) in zip((mixed[:, i].numpy(), ~mixed[:, i].numpy()), KINDS, strict=True):
            ax.vlines(x[side], low[side], high[side], color=colour, linewidth=0.7, alpha=0.35)
            ax.plot(x[side], middle[side], linestyle="", marker=marker, markersize=size, color=colour)
        ax.axhline(1, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
        if shown in outcomes:
            at = list(outcomes).index(shown)
            ax.plot(shown, middle[at], marker="o", markersize=8, markerfacecolor="none", markeredgecolor=INK)
            leader = {"arrowstyle": "-", "color": INK, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 4}
            ax.annotate(
                str(shown), (shown, middle[at]), xytext=(shown, 0.02), textcoords=("data", "axes fraction"),
                ha="center", fontsize=7.5, arrowprops=leader,
            )  # fmt: skip
        ax.set(yscale="log", title=position(name), xlabel="outcome", xlim=(0, 1.02 * x.max()))
        ax.yaxis.set_major_locator(FixedLocator([0.03, 0.1, 0.3, 1, 3]))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter("{x:g}")
    low, high = np.atleast_1d(axes)[0].get_ylim()
    np.atleast_1d(axes)[0].set_ylim(0.7 * low, high)  # for the number, below all dots
    np.atleast_1d(axes)[0].set_ylabel("spread of cosines,\nafter the MLP to before")
    entries = [
        Line2D([], [], linestyle="", marker=marker, markersize=1.6 * size, color=colour, label=text)
        for colour, marker, size, text in KINDS
    ]
    figure.legend(handles=entries, loc="outside lower center", ncols=2)
    return figure
