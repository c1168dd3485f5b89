"""The full adder beside the network's parts, and their measured truth tables (Fig. 26)."""

from collections.abc import Sequence

from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torch import Tensor, cat, zeros_like

from carry_core.adder import CASES, Parts, Truth, carry_case, tabulate
from carry_core.page import FAINT, INK, WIDTH, number, styled
from carry_core.plots.circuit import PLAIN, canvas
from carry_core.plots.common import panel

SHARE = LinearSegmentedColormap.from_list("share", ["#C8505B", "#F3CFB3", "#FFFFFF", "#C3DDF3"])
WIDE, TALL = 0.5, 0.24  # half a gate's width and height in inches


def _wire(ax: Axes, *points: tuple[float, float]) -> None:
    x, y = zip(*points, strict=True)
    ax.plot(x, y, color=FAINT, linewidth=0.9, solid_joinstyle="miter")
    arrow = {"arrowstyle": "-|>", "color": FAINT, "linewidth": 0, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 7}
    ax.annotate("", points[-1], points[-2], arrowprops=arrow)


def _gate(ax: Axes, x: float, y: float, text: str, share: float | None = None) -> None:
    style, corner = "round,pad=0,rounding_size=0.06", (x - WIDE, y - TALL)
    colour = PLAIN if share is None else SHARE(share)
    ax.add_patch(FancyBboxPatch(corner, 2 * WIDE, 2 * TALL, style, facecolor=colour, edgecolor=FAINT, linewidth=0.8))
    text += "" if share is None else f"\n{number(share, 3)}"
    ax.text(x, y, text, ha="center", va="center", fontsize=6.5, linespacing=1.2)


def _half(ax: Axes, left: float, title: str) -> None:
    """What both circuits share: the inputs, the wires of the first half adder, and the way to the digit."""
    ax.text(left + 0.1, 3.0, title, weight="bold", va="center")
    for y, down, x, name in ((2.3, 1.3, 0.45, "a"), (2.1, 1.1, 0.58, "b")):
        ax.text(left + 0.1, y, f"${name}_i$", va="center")
        _wire(ax, (left + 0.28, y), (left + 0.8, y))
        _wire(ax, (left + x, y), (left + x, down), (left + 0.8, down))
    _wire(ax, (left + 1.8, 2.2), (left + 2.6, 2.2))
    _wire(ax, (left + 3.6, 2.2), (left + 3.78, 2.2))
    ax.text(left + 1.86, 2.25, "$s'_i$", va="bottom", fontsize=7)
    ax.text(left + 3.8, 2.2, "$s_i$", va="center")
    _wire(ax, (left + 3.1, 2.78), (left + 3.1, 2.2 + TALL))
    ax.text(left + 3.1, 2.8, "$c_i$ from the right", ha="center", va="bottom", fontsize=7)
    ax.text(left + 3.65, 0.12, "$c_{i-1}$ to the left", ha="right", va="center", fontsize=7)


@styled
def full_adder_circuit(parts: Parts) -> Figure:
    """The schoolbook's full adder for one column, and in the same places what the network has, as measured (Fig. 26).

    The numbers are the shares of sums for which a part says what the schoolbook says, in the column where it is lowest.
    """
    figure, ax = canvas(3.15)
    _half(ax, 0.0, "the schoolbook")
    for x, y, text in (
        (1.3, 2.2, "XOR\nsum mod 10"), (1.3, 1.2, "AND\n10 or more"), (3.1, 2.2, "XOR\nsum mod 10"),
        (2.75, 1.35, "AND\n10 or more"), (2.75, 0.5, "OR\nhand on a one"),
    ):  # fmt: skip
        _gate(ax, x, y, text)
    _wire(ax, (2.05, 2.2), (2.05, 1.42), (2.25, 1.42))
    _wire(ax, (3.1, 2.62), (2.2, 2.62), (2.2, 1.28), (2.25, 1.28))
    _wire(ax, (2.75, 1.35 - TALL), (2.75, 0.5 + TALL))
    _wire(ax, (1.3, 1.2 - TALL), (1.3, 0.5), (2.25, 0.5))
    _wire(ax, (3.25, 0.5), (3.5, 0.5), (3.5, 0.22))

    left, shares = WIDTH / 2, parts.claimed
    _half(ax, left, "the network, as measured")
    for x, y, text, share in (
        (1.3, 2.2, "layer 0\nsum mod 10", shares["ones"]), (1.3, 1.2, "layer 0\n10 or more", shares["tens"]),
        (3.1, 2.2, "final MLP\ndigit", shares["digit"]), (2.75, 0.9, "last attention\na one arrives", shares["carry"]),
    ):  # fmt: skip
        _gate(ax, left + x, y, text, share)
    _wire(ax, (left + 2.05, 2.2), (left + 2.05, 0.98), (left + 2.25, 0.98))
    _wire(ax, (left + 1.3, 1.2 - TALL), (left + 1.3, 0.82), (left + 2.25, 0.82))
    _wire(ax, (left + 3.25, 0.9), (left + 3.5, 0.9), (left + 3.5, 0.22))
    ax.plot([left + 1.95, left + 1.95, left + 3.68, left + 3.68], [2.2, 1.72, 1.72, 2.2], color=INK, linewidth=0.9,
            linestyle=(0, (2.5, 1.5)))  # fmt: skip
    bypass = f"MLP taken out: $s'_i$ in {number(shares['bypassed'], 3)}"
    ax.text(left + 2.85, 1.68, bypass, ha="center", va="top", fontsize=6.5)
    early = " and ".join(number(share, 2) for share in parts.early.by_column)
    ax.text(left + 2.75, 0.6, f"(before it: {early})", ha="center", va="top", fontsize=6.5, color=FAINT)
    return figure


def _table(
    ax: Axes, values: Int[Tensor, "row column"], shares: Float[Tensor, "row column"], rows: Sequence[str],
    columns: Sequence[str], title: str,
) -> None:  # fmt: skip
    ax.imshow(shares.numpy(), cmap=SHARE, vmin=0, vmax=1, aspect="auto")
    for i, row in enumerate(values.tolist()):
        for j, value in enumerate(row):
            ax.text(j, i, "" if value < 0 else str(value), ha="center", va="center", fontsize=7, color=INK)
    ax.set_xticks(range(len(columns)), columns, fontsize=7)
    ax.set_yticks(range(len(rows)), rows, fontsize=7)
    ax.tick_params(length=0, pad=2)
    ax.set_title(title, fontsize=7.5)


def _carried(parts: Parts, truth: Truth) -> tuple[Tensor, Tensor]:
    """A truth table of digits: by whether a one arrives, and by the digit sum modulo ten."""
    pairs = [(truth.expected[:, i], truth.found[:, i], parts.wires.arrives[:, i].long(), parts.wires.ones[:, i])
             for i in truth.columns]  # fmt: skip
    return tabulate((2, 10), *map(cat, zip(*pairs, strict=True)))


@styled
def truth_tables(parts: Parts) -> Figure:
    """The measured truth tables (Fig. 26): what each part says most often, coloured by how often that is right."""
    digits, wires = [str(d) for d in range(10)], parts.wires
    height = 4.85
    figure = Figure(figsize=(WIDTH, height))
    for left, name, truth in (
        (0.4, "10 or more, after layer 0", parts.tens),
        (3.0, "sum mod 10, after layer 0", parts.ones),
    ):
        lists = [(truth.expected[:, k], truth.found[:, k], wires.left[:, i], wires.right[:, i])
                 for k, i in enumerate(truth.columns)]  # fmt: skip
        table = tabulate((10, 10), *map(cat, zip(*lists, strict=True)))
        ax = panel(figure, left, 0.36, 2.3, 2.2)
        _table(ax, *table, digits, digits, name)
        ax.set_xlabel("digit of b", fontsize=7, labelpad=1)
        ax.set_ylabel("digit of a", fontsize=7, labelpad=1)
    for k, (name, truth) in enumerate((("before", parts.early), ("after", parts.carry))):
        lists = [(truth.expected[:, i], truth.found[:, i], carry_case(wires, i + 1), zeros_like(truth.found[:, i]) + i)
                 for i in truth.columns]  # fmt: skip
        table = tabulate((4, len(truth.columns)), *map(cat, zip(*lists, strict=True)))
        ax = panel(figure, 6.35 + 0.83 * k, 0.36, 0.75, 2.2)
        positions = [f"pos. {2 * wires.ones.shape[1] + 1 + i}" for i in truth.columns]
        _table(ax, *table, CASES if k == 0 else [""] * 4, positions, name)
    figure.text(
        (WIDTH - 1.2) / WIDTH,
        1 - 0.03 / height,
        "a one arrives, by the column to the right",
        ha="center",
        va="top",
        fontsize=7.5,
    )
    for k, (name, truth) in enumerate(
        (
            ("digit", parts.digit),
            ("digit, final MLP taken out", parts.bypassed),
            ("digit, decision head taken out", parts.leaky),
        )
    ):
        ax = panel(figure, 0.95 + 2.4 * k, 3.3, 2.2, 0.5)
        _table(ax, *_carried(parts, truth), ["none arrives", "a one arrives"] if k == 0 else ["", ""], digits, name)
        ax.set_xlabel("digit sum mod 10", fontsize=7, labelpad=1)
    bar = figure.colorbar(
        ScalarMappable(Normalize(0, 1), SHARE), cax=panel(figure, 2.4, 4.36, 3.2, 0.1), orientation="horizontal"
    )
    bar.set_label("share of sums for which it is what the schoolbook says", fontsize=7, labelpad=1)
    bar.ax.tick_params(labelsize=6.5, length=2)
    return figure
