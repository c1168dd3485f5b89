"""A sum on its way through the network, drawn from what was measured (Fig. 1)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch
from torch import Tensor

from carry_core.adder import Trace, schoolbook
from carry_core.page import FAINT, INK, WIDTH, Table, styled
from carry_core.plots.cells import OFF_BY_ONE, OTHER, RIGHT
from carry_core.sums import SYMBOLS, encode

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
def summary_circuit(trace: Trace) -> Figure:
    """One sum from its digits (bottom) to its answer (top): attention as lines, what is read as boxes (Fig. 1).

    A line is as wide as the attention that it stands for; a box whose reading is wrong has a red frame.
    """
    layout, wires = trace.layout, schoolbook(torch.tensor([trace.a]), torch.tensor([trace.b]), trace.layout.width)
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

    for pattern in trace.first:
        _attention(ax, x, y[0], y[1], pattern, range(layout.length), first, 1)
    for head, pattern in enumerate(trace.last):
        colour, over, dashes = (DECIDES, 3, "-") if head == trace.decision_head else (HELPS, 2, DASHED)
        _attention(ax, x, y[1], y[2], pattern, layout.answer, always(colour), over, dashes)
    tokens = encode(torch.tensor([trace.a]), torch.tensor([trace.b]), layout)[0].tolist()
    for position, token in enumerate(tokens):
        box(ax, x[position], y[0], SYMBOLS[token], PAPER)
        if position not in trace.tens:
            box(ax, x[position], y[1], "", PLAIN)
            continue
        tens, ones, i = trace.tens[position], trace.ones[position], digit[position]
        wrong = tens != bool(wires.tens[0, i]) or ones != int(wires.ones[0, i])
        box(ax, x[position], y[1], str(10 * tens + ones), BIG if tens else SMALL, wrong=wrong)
    for position, i in answer.items():
        arrives, truly = trace.arrives.get(position), bool(wires.arrives[0, i])
        text, colour = {None: ("", PLAIN), True: ("+1", ONE), False: ("+0", NONE)}[arrives]
        box(ax, x[position], y[2], text, colour, wrong=arrives is not None and arrives != truly)
        arrow = {"arrowstyle": "-|>", "color": FAINT, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 1}
        ax.annotate("", (x[position], y[3] - TALL), (x[position], y[2] + TALL), arrowprops=arrow)
        true = int(wires.digit[0, i])
        for row, name in zip(y[3:], ("MLP", "head", "intact"), strict=True):
            guess, probability = trace.answers[name][i]
            off = (guess + (1 if truly else -1)) % 10 == true
            colour = RIGHT if guess == true else OFF_BY_ONE if off else OTHER
            box(ax, x[position] - 0.1, row, SYMBOLS[guess], colour, wide=0.14)
            ax.text(x[position] + 0.07, row, f"{probability:.2f}", va="center", fontsize=6, color=FAINT)
    _labels(ax, left - 0.08, y, trace)
    _keys(figure, ax, left, y[-1] + 0.2, trace)
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


def _labels(ax: Axes, x: float, y: Sequence[float], trace: Trace) -> None:
    labels = [
        (y[0], "the sum"),
        ((y[0] + y[1]) / 2, "attention of\nlayer 0"),
        (y[1], "digit sums, as read\nafter layer 0"),
        ((y[1] + y[2]) / 2, f"attention of\nlayer {trace.last_layer}"),
        (y[2], "a one arrives, as\nread before the MLP"),
        (y[3], "answer without\nthe final MLP"),
        (y[4], f"without head {trace.last_layer}:{trace.decision_head}"),
        (y[5], "answer"),
    ]
    for at, text in labels:
        weight = "bold" if text == "answer" else "normal"
        ax.text(x, at, text, ha="right", va="center", linespacing=1.05, weight=weight)


def _keys(figure: Figure, ax: Axes, x: float, y: float, trace: Trace) -> None:
    def line(colour: str, label: str, dashes: Any = "-") -> Line2D:
        return Line2D([], [], color=colour, label=label, linewidth=3, alpha=0.75, linestyle=dashes)

    def patches(*pairs: tuple[str, str]) -> list[Patch]:
        return [Patch(color=colour, label=label) for colour, label in pairs]

    names = [f"{trace.last_layer}:{head}" for head in range(len(trace.last))]
    decides = names.pop(trace.decision_head)
    lines = [line(PARTNER, "to a digit of one's own column"), line(ELSEWHERE, "elsewhere, in layer 0")]
    lines += [line(DECIDES, f"of the decision head {decides}"), line(HELPS, f"of head {', '.join(names)}", DASHED)]
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


def table_of_traces(traces: Mapping[int, Trace]) -> Table:
    """What is read in each run, and what it answers, intact and with a part taken out (Fig. 1)."""
    rows = []
    for run, found in traces.items():
        tens = ", ".join(f"{10 * found.tens[p] + found.ones[p]}" for p in sorted(found.tens))
        carry = ", ".join("yes" if found.arrives[p] else "no" for p in sorted(found.arrives))
        answers = ["".join(map(str, found.said(without))) for without in ("intact", "head", "MLP")]
        rows.append([f"{run}", tens, carry, *answers])
    header = ["run", "digit sums read", "a one arrives", "answer", "without the decision head"]
    return Table([*header, "without the final MLP"], rows)
