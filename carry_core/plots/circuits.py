"""Circuits drawn from what was measured: a sum on its way through the network (Fig. 1), the full adder (Fig. 26)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch
from torch import Tensor, cat, zeros_like

from carry_core.findings.adder import Parts, Truth, Wires
from carry_core.plots.cells import OFF_BY_ONE, OTHER, RIGHT
from carry_core.plots.style import FAINT, INK, WIDTH, Table, number, panel, styled
from carry_core.sums import SYMBOLS, Layout, encode

PARTNER, ELSEWHERE = "#2B6CA3", "#B8BDC7"
DECIDES, HELPS = "#D55E00", "#5B8A72"
DASHED = (0, (2.5, 0.6))  # heads of the last layer that do not decide, which are as dark as the one that does
BIG, SMALL = "#BBDCF5", "#1F5F99"  # digit sums of ten or more light, below ten dark, as in the paper
ONE, NONE = "#FAD7A8", "#B85C12"  # where a one arrives light, elsewhere dark, as in the paper
PAPER, PLAIN, WRONG = "#FFFFFF", "#EEF0F3", "#C8102E"
LEAST = 0.1  # attention below this is not drawn
TALL = 0.13  # half a box' height in inches


def box(ax: Axes, x: float, y: float, text: str, colour: str, *, wrong: bool = False, wide: float = 0.19) -> None:
    """A rounded box with a text that is dark on light colours and white on dark ones."""
    ax.add_patch(
        FancyBboxPatch(
            (x - wide, y - TALL), 2 * wide, 2 * TALL, "round,pad=0,rounding_size=0.05", facecolor=colour,
            edgecolor=WRONG if wrong else FAINT, linewidth=1.8 if wrong else 0.6,
        )
    )  # fmt: skip
    dark = sum(int(colour[i : i + 2], 16) for i in (1, 3, 5)) < 420
    ax.text(x, y - 0.005, text, ha="center", va="center", weight="bold", color="white" if dark else INK)


def canvas(height: float) -> tuple[Figure, Axes]:
    """A figure and axes that are measured in inches, without a frame."""
    figure = Figure(figsize=(WIDTH, height))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, WIDTH), ylim=(0, height))
    ax.axis("off")
    return figure, ax


@styled
def summary_circuit(
    a: int, b: int, layout: Layout, trace: pd.DataFrame, attention: Float[Tensor, "layer head query key"], decides: int
) -> Figure:
    """One sum from its digits (bottom) to its answer (top): attention as lines, what is read as boxes (Fig. 1).

    A line is as wide as the attention that it stands for; a box whose reading is wrong has a red frame.

    Args:
        a, b: the sum's two numbers.
        layout: of its tokens.
        trace: as `adder.trace` gives it.
        attention: for this sum.
        decides: which of the last layer's heads decides.
    """
    left, bottom = 1.62, 0.28  # inches
    y = [bottom + row for row in (0.0, 1.5, 3.0, 3.62, 4.02, 4.42)]
    figure, ax = canvas(y[-1] + 0.42)
    pitch = (WIDTH - left - 0.1) / layout.length
    x = [left + (i + 0.5) * pitch for i in range(layout.length)]
    digit = {i: i % (layout.width + 1) for i in range(2 * layout.width + 1) if i != layout.width}
    answer = {position: i for i, position in enumerate(layout.answer)}

    def first(query: int, key: int) -> str:
        same = key in digit and digit[key] in (digit.get(query), answer.get(query))
        return PARTNER if same and key != query else ELSEWHERE

    for pattern in attention[0]:
        _attention(ax, x, y[0], y[1], pattern, range(layout.length), first, 1)
    for head, pattern in enumerate(attention[-1]):
        colour, over, dashes = (DECIDES, 3, "-") if head == decides else (HELPS, 2, DASHED)
        _attention(ax, x, y[1], y[2], pattern, layout.answer, always(colour), over, dashes)
    tokens = encode(torch.tensor([a]), torch.tensor([b]), layout)[0].tolist()
    for position, token in enumerate(tokens):
        box(ax, x[position], y[0], SYMBOLS[token], PAPER)
        if ("tens", position) not in trace.index:
            box(ax, x[position], y[1], "", PLAIN)
            continue
        read = trace.xs(position, level="position")
        tens, ones, wrong = read.reads["tens"], read.reads["ones"], not read.agrees.all()
        box(ax, x[position], y[1], str(10 * tens + ones), BIG if tens else SMALL, wrong=wrong)
    for position in layout.answer:
        read = trace.xs(position, level="position")
        text, colour = {None: ("", PLAIN), 1: ("+1", ONE), 0: ("+0", NONE)}[read.reads.get("carry_in")]
        box(ax, x[position], y[2], text, colour, wrong=not read.agrees.get("carry_in", True))
        arrow = {"arrowstyle": "-|>", "color": FAINT, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 1}
        ax.annotate("", (x[position], y[3] - TALL), (x[position], y[2] + TALL), arrowprops=arrow)
        true, carry_in = read.schoolbook["intact"], read.schoolbook["intact"] != read.schoolbook["MLP"]
        for row, name in zip(y[3:], ("MLP", "head", "intact"), strict=True):
            guess, probability = read.reads[name], read.probability[name]
            off = (guess + (1 if carry_in else -1)) % 10 == true
            colour = RIGHT if guess == true else OFF_BY_ONE if off else OTHER
            box(ax, x[position] - 0.1, row, SYMBOLS[guess], colour, wide=0.14)
            ax.text(x[position] + 0.07, row, f"{probability:.2f}", va="center", fontsize=6, color=FAINT)
    names = [f"{len(attention) - 1}:{head}" for head in range(attention.shape[1])]
    _labels(ax, left - 0.08, y, len(attention) - 1, names[decides])
    _keys(figure, ax, left, y[-1] + 0.2, names.pop(decides), names)
    return figure


def always(colour: str) -> Callable[[int, int], str]:
    """The same colour whoever looks at whom."""
    return lambda query, key: colour


def _attention(
    ax: Axes, x: Sequence[float], low: float, high: float, pattern: Float[Tensor, "query key"], queries: Sequence[int],
    colour: Callable[[int, int], str], over: int, dashes: Any = "-",
) -> None:  # fmt: skip
    for query in queries:
        for key, share in enumerate(pattern[query].tolist()):
            if share >= LEAST:
                ends = [x[key], x[query]], [low + TALL, high - TALL]
                style: dict[str, Any] = {"linewidth": 4.5 * share, "alpha": 0.75, "solid_capstyle": "butt"}
                ax.plot(*ends, color=colour(query, key), zorder=over, linestyle=dashes, **style)


def _labels(ax: Axes, x: float, y: Sequence[float], last: int, decides: str) -> None:
    labels = [
        (y[0], "the sum"),
        ((y[0] + y[1]) / 2, "attention of\nlayer 0"),
        (y[1], "digit sums, as read\nafter layer 0"),
        ((y[1] + y[2]) / 2, f"attention of\nlayer {last}"),
        (y[2], "a one arrives, as\nread before the MLP"),
        (y[3], "answer without\nthe final MLP"),
        (y[4], f"without head {decides}"),
        (y[5], "answer"),
    ]
    for at, text in labels:
        weight = "bold" if text == "answer" else "normal"
        ax.text(x, at, text, ha="right", va="center", linespacing=1.05, weight=weight)


def _keys(figure: Figure, ax: Axes, x: float, y: float, decides: str, others: Sequence[str]) -> None:
    def line(colour: str, label: str, dashes: Any = "-") -> Line2D:
        return Line2D([], [], color=colour, label=label, linewidth=3, alpha=0.75, linestyle=dashes)

    def patches(*pairs: tuple[str, str]) -> list[Patch]:
        return [Patch(color=colour, label=label) for colour, label in pairs]

    lines = [line(PARTNER, "to a digit of one's own column"), line(ELSEWHERE, "elsewhere, in layer 0")]
    lines += [line(DECIDES, f"of the decision head {decides}"), line(HELPS, f"of head {', '.join(others)}", DASHED)]
    boxes = patches((BIG, "ten or more"), (SMALL, "below ten"), (ONE, "a one arrives"), (NONE, "none arrives"))
    answers = patches((RIGHT, "right"), (OFF_BY_ONE, "off by the one"), (OTHER, "otherwise wrong"))
    keys: list[tuple[float, float, str, list[Any]]] = [
        (0.3, 0, "attention (width)", lines),
        (2.75, 0, "boxes", boxes),
        (0.3, 0.85, "answer (probability)", answers),
    ]
    for across, down, title, handles in keys:
        figure.legend(
            handles=handles, title=title, loc="upper left", bbox_to_anchor=(x + across, y - down),
            bbox_transform=ax.transData, alignment="left", borderpad=0, borderaxespad=0, fontsize=7.5,
            title_fontsize=7.5, handlelength=2 if handles is lines else 1.2,
        )  # fmt: skip


def table_of_traces(traces: Mapping[int, pd.DataFrame]) -> Table:
    """What is read in each run, and what it answers, intact and with a part taken out (Fig. 1)."""
    rows = []
    for run, trace in traces.items():
        read = trace.reads
        tens = ", ".join(map(str, 10 * read["tens"] + read["ones"]))
        carry = ", ".join("yes" if arrives else "no" for arrives in read["carry_in"])
        rows.append([f"{run}", tens, carry, *("".join(map(str, read[name])) for name in ("intact", "head", "MLP"))])
    header = ["run", "digit sums read", "a one arrives", "answer", "without the decision head"]
    return Table([*header, "without the final MLP"], rows)


SHARE = LinearSegmentedColormap.from_list("share", ["#C8505B", "#F3CFB3", "#FFFFFF", "#C3DDF3"])
GATE_WIDE, GATE_TALL = 0.5, 0.24  # half a gate's width and height in inches


def _wire(ax: Axes, *points: tuple[float, float]) -> None:
    x, y = zip(*points, strict=True)
    ax.plot(x, y, color=FAINT, linewidth=0.9, solid_joinstyle="miter")
    arrow = {"arrowstyle": "-|>", "color": FAINT, "linewidth": 0, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 7}
    ax.annotate("", points[-1], points[-2], arrowprops=arrow)


def _gate(ax: Axes, x: float, y: float, text: str, share: float | None = None) -> None:
    style, corner = "round,pad=0,rounding_size=0.06", (x - GATE_WIDE, y - GATE_TALL)
    colour = PLAIN if share is None else SHARE(share)
    ax.add_patch(
        FancyBboxPatch(corner, 2 * GATE_WIDE, 2 * GATE_TALL, style, facecolor=colour, edgecolor=FAINT, linewidth=0.8)
    )
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
    _wire(ax, (left + 3.1, 2.78), (left + 3.1, 2.2 + GATE_TALL))
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
    _wire(ax, (2.75, 1.35 - GATE_TALL), (2.75, 0.5 + GATE_TALL))
    _wire(ax, (1.3, 1.2 - GATE_TALL), (1.3, 0.5), (2.25, 0.5))
    _wire(ax, (3.25, 0.5), (3.5, 0.5), (3.5, 0.22))

    left, shares = WIDTH / 2, parts.claimed
    _half(ax, left, "the network, as measured")
    for x, y, text, share in (
        (1.3, 2.2, "layer 0\nsum mod 10", shares["ones"]), (1.3, 1.2, "layer 0\n10 or more", shares["tens"]),
        (3.1, 2.2, "final MLP\ndigit", shares["digit"]), (2.75, 0.9, "last attention\na one arrives", shares["carry"]),
    ):  # fmt: skip
        _gate(ax, left + x, y, text, share)
    _wire(ax, (left + 2.05, 2.2), (left + 2.05, 0.98), (left + 2.25, 0.98))
    _wire(ax, (left + 1.3, 1.2 - GATE_TALL), (left + 1.3, 0.82), (left + 2.25, 0.82))
    _wire(ax, (left + 3.25, 0.9), (left + 3.5, 0.9), (left + 3.5, 0.22))
    ax.plot([left + 1.95, left + 1.95, left + 3.68, left + 3.68], [2.2, 1.72, 1.72, 2.2], color=INK, linewidth=0.9,
            linestyle=(0, (2.5, 1.5)))  # fmt: skip
    bypass = f"MLP taken out: $s'_i$ in {number(shares['bypassed'], 3)}"
    ax.text(left + 2.85, 1.68, bypass, ha="center", va="top", fontsize=6.5)
    early = " and ".join(number(share, 2) for share in parts.early.by_column)
    ax.text(left + 2.75, 0.6, f"(before it: {early})", ha="center", va="top", fontsize=6.5, color=FAINT)
    return figure


CASES = ("8 or less", "9, none arrives", "9, a one arrives", "10 or more")


def carry_case(wires: Wires, column: int) -> Int[Tensor, " sums"]:
    """Which of `CASES` the digits of a column are: what decides whether it hands on a one."""
    total = wires.ones[:, column] + 10 * wires.tens[:, column]
    return torch.where(total >= 10, 3, torch.where(total == 9, 1 + wires.arrives[:, column].long(), 0))


def tabulate(
    shape: tuple[int, int], expected: Tensor, found: Tensor, row: Tensor, column: Tensor
) -> tuple[Int[Tensor, "row column"], Float[Tensor, "row column"]]:
    """A measured truth table: what is found most often in each cell (-1 in an empty one), and how often that is right.

    The other arguments have a number for each sum.
    """
    table = pd.DataFrame({"row": row, "column": column, "found": found, "right": found == expected})
    cells = table.groupby(["row", "column"]).agg(found=("found", lambda x: x.mode()[0]), right=("right", "mean"))
    cells = cells.reindex(pd.MultiIndex.from_product(map(range, shape)))
    often, right = cells.found.fillna(-1).astype(int), cells.right
    return torch.tensor(often.to_numpy()).view(shape), torch.tensor(right.to_numpy(float)).view(shape)


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
