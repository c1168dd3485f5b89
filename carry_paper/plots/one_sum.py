"""One sum on its way through a model, from its digits to its answer (Fig. 1)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch
from numpy.typing import NDArray

from carry_core.sums import SYMBOLS, Layout, encode
from carry_paper.findings import adder
from carry_paper.plots.sides import Arrays
from carry_paper.plots.style import (
    CORRECT,
    FAINT,
    INK,
    ON_DARK,
    ON_LIGHT,
    TOO_LARGE,
    TOO_SMALL,
    WRONG,
)

PARTNER, ELSEWHERE, DECISION_HEAD, OTHER_HEAD = "#3B7DB8", "#7C8698", "#D55E00", "#5B8A72"
TEN_OR_MORE, BELOW_TEN = "#BBDCF5", "#1F5F99"
CARRY_IN, NO_CARRY_IN = "#FAD7A8", "#B85C12"
EDGE, MISREAD = FAINT, "#C8102E"
PAPER = "#FFFFFF"
DARK_BOX = 420  # a colour whose red, green and blue add up to less than that has light text
DASHES = (0, (2.5, 0.6))

# All in inches.
LEFT = 0.84  # of the labels
HALF_BOX = 0.14
HEIGHT = 5.3
TOKENS, DIGIT_SUMS, CARRY_INS, NO_MLP, NO_HEAD, INTACT = 1.25, 2.5, 3.75, 4.3, 4.68, 5.06

DRAWN_ATTENTION = 0.1  # less is not drawn
LINE_WIDTH = 3.5  # of all attention


class Drawing:
    """The drawing of one sum in one run.

    Attributes:
        figure: The figure that it is drawn into.
        side: The run's arrays: attention of the `first` and `last` layer `[head, query, key]`,
            the number of the `decision_head`; by position the `digit_sum` and `carry_in` that
            are decoded, -1 where none is; and the `answer` without the final MLP, without the
            decision head and intact `[3, digit]`.
        last_layer: The number of the last layer.
    """

    def __init__(
        self, figure: SubFigure, side: Arrays, addends: tuple[int, int], layout: Layout, last: int
    ) -> None:
        self.figure = figure
        self.side = side
        self.layout = layout
        self.last_layer = last
        a, b = (torch.tensor([number]) for number in addends)
        self.tokens = encode(a, b, layout)[0].tolist()
        schoolbook = adder.schoolbook(a, b, layout.width)
        self.digit_sums = (10 * schoolbook.tens + schoolbook.ones)[0].tolist()
        self.carry_ins = schoolbook.carry_in[0].tolist()
        self.digits = schoolbook.digit[0].tolist()

        inches = figure.bbox.width / figure.dpi
        self.pitch = (inches - LEFT) / layout.length
        self.x = [LEFT + (i + 0.5) * self.pitch for i in range(layout.length)]
        width = layout.width
        self.column = {i: i % (width + 1) for i in range(2 * width + 1) if i != width}
        self.place = {position: i for i, position in enumerate(layout.answer)}
        self.ax = figure.add_axes((0, 0, 1, 1))
        self.ax.set(xlim=(0, inches), ylim=(0, HEIGHT))
        self.ax.axis("off")

    def draw(self) -> None:
        """Draw attention, decoded values, answers, labels and the legend."""
        self.draw_attention()
        for position, token in enumerate(self.tokens):
            self.box(self.x[position], TOKENS, SYMBOLS[token], PAPER)
            self.draw_digit_sum(position)
        for position, i in self.place.items():
            self.draw_carry_in(position, i)
            self.draw_answers(position, i)
        self.draw_labels()
        self.figure.legend(
            handles=self.legend(),
            loc="lower center",
            ncols=2,
            fontsize=7.5,
        )

    def draw_attention(self) -> None:
        """Draw the heads of the first layer below, those of the last layer above."""
        for pattern in self.side["first"]:
            queries = range(self.layout.length)
            draw_lines(self.ax, self.x, (TOKENS, DIGIT_SUMS), pattern, queries, self.colour)
        n_heads = len(self.side["last"])
        for head, pattern in enumerate(self.side["last"]):
            of_head = DECISION_HEAD if head == self.side["decision_head"] else OTHER_HEAD
            shift = 0.05 * (head - (n_heads - 1) / 2)
            draw_lines(
                self.ax,
                [x + shift for x in self.x],
                (DIGIT_SUMS, CARRY_INS),
                pattern,
                self.layout.answer,
                of_head,
            )

    def colour(self, query: int, key: int) -> str:
        """Return a line's colour in the first layer: to a digit of its column, or elsewhere."""
        columns = (self.column.get(query), self.place.get(query))
        same_column = key in self.column and self.column[key] in columns
        return PARTNER if same_column and key != query else ELSEWHERE

    def draw_digit_sum(self, position: int) -> None:
        decoded = self.side["digit_sum"][position]
        if decoded < 0:
            self.empty(position, DIGIT_SUMS)
            return
        colour = TEN_OR_MORE if decoded >= 10 else BELOW_TEN
        wrong = bool(decoded != self.digit_sums[self.column[position]])
        self.box(self.x[position], DIGIT_SUMS, str(decoded), colour, wrong=wrong)

    def draw_carry_in(self, position: int, i: int) -> None:
        decoded = self.side["carry_in"][position]
        if decoded < 0:
            self.empty(position, CARRY_INS)
            return
        colour = CARRY_IN if decoded else NO_CARRY_IN
        wrong = bool(decoded != self.carry_ins[i])
        self.box(self.x[position], CARRY_INS, f"+{decoded}", colour, wrong=wrong)

    def draw_answers(self, position: int, i: int) -> None:
        """Draw a digit of the three answers."""
        x = self.x[position]
        arrow = {"arrowstyle": "-|>", "color": EDGE, "linewidth": 0.8, "shrinkA": 0}
        self.ax.annotate("", (x, NO_MLP - HALF_BOX), (x, CARRY_INS + HALF_BOX), arrowprops=arrow)
        correct = self.digits[i]
        # A digit that lacks its carry-in is one too small; one with a carry too many, too large.
        off_by_the_carry, colour_off = (1, TOO_SMALL) if self.carry_ins[i] else (-1, TOO_LARGE)
        for row, y in enumerate((NO_MLP, NO_HEAD, INTACT)):
            digit = self.side["answer"][row, i]
            colour = WRONG
            if (digit + off_by_the_carry) % 10 == correct:
                colour = colour_off
            if digit == correct:
                colour = CORRECT
            self.box(x, y, str(digit), colour)

    def box(self, x: float, y: float, text: str, colour: str, *, wrong: bool = False) -> None:
        """Draw a rounded box whose text is dark on light colours and light on dark ones."""
        half_width = min(0.2, 0.43 * self.pitch)
        patch = FancyBboxPatch(
            (x - half_width, y - HALF_BOX),
            2 * half_width,
            2 * HALF_BOX,
            "round,pad=0,rounding_size=0.05",
            facecolor=colour,
            edgecolor=MISREAD if wrong else EDGE,
            linewidth=2 if wrong else 0.6,
            zorder=4,
        )
        self.ax.add_patch(patch)
        brightness = sum(int(colour[i : i + 2], 16) for i in (1, 3, 5))
        ink = ON_DARK if brightness < DARK_BOX else ON_LIGHT
        if colour == PAPER:
            ink = INK
        self.ax.text(
            x, y - 0.01, text, ha="center", va="center", weight="bold", color=ink, zorder=5
        )

    def empty(self, position: int, y: float) -> None:
        """Draw a point where nothing is decoded."""
        look: dict[str, Any] = {"color": PAPER, "markeredgecolor": EDGE, "markersize": 5}
        self.ax.plot(self.x[position], y, "o", zorder=4, **look)

    def draw_labels(self) -> None:
        """Write the label of each row to its left."""
        head = f"head {self.last_layer}:{self.side['decision_head']}\nablated"
        labels = [
            (TOKENS, "the sum"),
            (DIGIT_SUMS, "digit sums\nread"),
            (CARRY_INS, "carry-ins\nread"),
            (NO_MLP, "final MLP\nablated"),
            (NO_HEAD, head),
            (INTACT, "answer"),
            ((TOKENS + DIGIT_SUMS) / 2, "attention,\nlayer 0"),
            ((DIGIT_SUMS + CARRY_INS) / 2, f"attention,\nlayer {self.last_layer}"),
        ]
        for y, text in labels:
            weight = "bold" if text == "answer" else "normal"
            self.ax.text(LEFT - 0.1, y, text, ha="right", va="center", weight=weight)

    def legend(self) -> list[Artist]:
        """Return the entries of the legend."""
        layer = self.last_layer
        lines = {
            "to a digit of its own column": PARTNER,
            "elsewhere, in layer 0": ELSEWHERE,
            f"decision head, {layer}:{self.side['decision_head']}": DECISION_HEAD,
            f"other head of layer {layer}": OTHER_HEAD,
        }
        boxes = {
            "ten or more": TEN_OR_MORE,
            "below ten": BELOW_TEN,
            "carry-in": CARRY_IN,
            "no carry-in": NO_CARRY_IN,
            "correct": CORRECT,
            "one too large": TOO_LARGE,
            "one too small": TOO_SMALL,
            "otherwise wrong": WRONG,
        }
        entries: list[Artist] = []
        for text, colour in lines.items():
            style: Any = DASHES if colour == OTHER_HEAD else "-"
            entries.append(Line2D([], [], color=colour, linewidth=3, label=text, linestyle=style))
        for text, colour in boxes.items():
            entries.append(Patch(facecolor=colour, edgecolor=EDGE, label=text))
        return entries


def draw_lines(
    ax: Axes,
    x: Sequence[float],
    rows: tuple[float, float],
    pattern: NDArray[Any],
    queries: Iterable[int],
    colour: str | Callable[[int, int], str],
) -> None:
    """Draw lines from keys below to queries above, as wide as the attention `[query, key]`.

    `x` has the place of each position, and `rows` the heights of keys and queries. Only `queries`
    have lines, in the `colour`, or in the one that it gives for a query and a key.
    """
    keys_at, queries_at = rows
    for query in queries:
        for key in np.flatnonzero(pattern[query] >= DRAWN_ATTENTION).tolist():
            line_colour = colour if isinstance(colour, str) else colour(query, key)
            style: Any = DASHES if line_colour == OTHER_HEAD else "-"
            ax.plot(
                [x[key], x[query]],
                [keys_at + HALF_BOX, queries_at - HALF_BOX],
                color=line_colour,
                linewidth=LINE_WIDTH * pattern[query, key],
                linestyle=style,
            )
