"""One sum on its way through a model, from its digits to its answer (Fig. 1)."""

from typing import Any

import numpy as np
import torch
from matplotlib.figure import SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from carry_core.sums import SYMBOLS, Layout, encode
from carry_paper.findings import adder
from carry_paper.plots.sides import Arrays
from carry_paper.plots.style import (
    CORRECT,
    FAINT,
    INK,
    OUTCOMES,
    TOO_LARGE,
    TOO_SMALL,
    WRONG,
    draw_box,
)

# Lines of attention: to a digit of its own column or elsewhere, and those of the last layer.
Look = dict[str, Any]
PARTNER: Look = {"color": "#3B7DB8"}
ELSEWHERE: Look = {"color": "#7C8698"}
DECISION_HEAD: Look = {"color": "#D55E00"}
OTHER_HEAD: Look = {"color": "#5B8A72", "linestyle": (0, (2.5, 0.6))}
TEN_OR_MORE, BELOW_TEN = "#BBDCF5", "#1F5F99"
CARRY_IN, NO_CARRY_IN = "#FAD7A8", "#B85C12"
EDGE, MISREAD = FAINT, "#C8102E"
PAPER = "#FFFFFF"

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
            self.box(position, TOKENS, SYMBOLS[token], PAPER)
            digit_sum = int(self.side["digit_sum"][position])
            if digit_sum < 0:
                self.point(position, DIGIT_SUMS)
            else:
                colour = TEN_OR_MORE if digit_sum >= 10 else BELOW_TEN
                is_wrong = digit_sum != self.digit_sums[self.column[position]]
                self.box(position, DIGIT_SUMS, str(digit_sum), colour, wrong=is_wrong)
        for position, i in self.place.items():
            carry_in = int(self.side["carry_in"][position])
            if carry_in < 0:
                self.point(position, CARRY_INS)
            else:
                colour = CARRY_IN if carry_in else NO_CARRY_IN
                is_wrong = carry_in != self.carry_ins[i]
                self.box(position, CARRY_INS, f"+{carry_in}", colour, wrong=is_wrong)
            self.draw_answers(position, i)
        self.draw_labels()
        self.figure.legend(handles=self.legend(), loc="lower center", ncols=2, fontsize=7.5)

    def draw_attention(self) -> None:
        """Draw the heads of the first layer below, those of the last layer above."""
        for pattern in self.side["first"]:
            for query, key in np.argwhere(pattern >= DRAWN_ATTENTION).tolist():
                columns = (self.column.get(query), self.place.get(query))
                is_partner = key in self.column and self.column[key] in columns and key != query
                look = PARTNER if is_partner else ELSEWHERE
                self.line((key, TOKENS), (query, DIGIT_SUMS), pattern[query, key], look)
        n_heads = len(self.side["last"])
        for head, pattern in enumerate(self.side["last"]):
            look = DECISION_HEAD if head == self.side["decision_head"] else OTHER_HEAD
            shift = 0.05 * (head - (n_heads - 1) / 2)
            for query, key in np.argwhere(pattern >= DRAWN_ATTENTION).tolist():
                if query in self.place:
                    start, end = (key, DIGIT_SUMS), (query, CARRY_INS)
                    self.line(start, end, pattern[query, key], look, shift)

    def line(
        self,
        start: tuple[int, float],
        end: tuple[int, float],
        attention: float,
        look: Look,
        shift: float = 0.0,
    ) -> None:
        """Draw a line from a key below to a query above, as wide as the attention."""
        (key, keys_at), (query, queries_at) = start, end
        x = [self.x[key] + shift, self.x[query] + shift]
        y = [keys_at + HALF_BOX, queries_at - HALF_BOX]
        self.ax.plot(x, y, linewidth=LINE_WIDTH * attention, **look)

    def draw_answers(self, position: int, i: int) -> None:
        """Draw a digit of the three answers."""
        x = self.x[position]
        arrow = {"arrowstyle": "-|>", "color": EDGE, "linewidth": 0.8, "shrinkA": 0}
        self.ax.annotate("", (x, NO_MLP - HALF_BOX), (x, CARRY_INS + HALF_BOX), arrowprops=arrow)
        # A digit that lacks its carry-in is one too small; one with a carry too many, too large.
        off_by_the_carry, colour_off = (1, TOO_SMALL) if self.carry_ins[i] else (-1, TOO_LARGE)
        colours = {
            self.digits[i]: CORRECT,
            (self.digits[i] - off_by_the_carry) % 10: colour_off,
        }
        for row, y in enumerate((NO_MLP, NO_HEAD, INTACT)):
            digit = int(self.side["answer"][row, i])
            self.box(position, y, str(digit), colours.get(digit, WRONG))

    def box(self, position: int, y: float, text: str, colour: str, *, wrong: bool = False) -> None:
        """Draw a box at a position, with a red edge if its value is wrong."""
        x = self.x[position]
        size = 2 * min(0.2, 0.43 * self.pitch), 2 * HALF_BOX
        edge = {"edgecolor": MISREAD if wrong else EDGE, "linewidth": 2 if wrong else 0.6}
        ink = draw_box(self.ax, (x, y), size, colour, zorder=4, **edge)
        look: Look = {"weight": "bold", "color": INK if colour == PAPER else ink}
        self.ax.text(x, y - 0.01, text, ha="center", va="center", zorder=5, **look)

    def point(self, position: int, y: float) -> None:
        """Draw a point where nothing is decoded."""
        look: Look = {"color": PAPER, "markeredgecolor": EDGE, "markersize": 5}
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

    def legend(self) -> list[Line2D | Patch]:
        """Return the entries of the legend."""
        lines = {
            "to a digit of its own column": PARTNER,
            "elsewhere, in layer 0": ELSEWHERE,
            f"decision head, {self.last_layer}:{self.side['decision_head']}": DECISION_HEAD,
            f"other head of layer {self.last_layer}": OTHER_HEAD,
        }
        boxes = {
            "ten or more": TEN_OR_MORE,
            "below ten": BELOW_TEN,
            "carry-in": CARRY_IN,
            "no carry-in": NO_CARRY_IN,
            **OUTCOMES,
        }
        return [
            *(Line2D([], [], linewidth=3, label=text, **look) for text, look in lines.items()),
            *(Patch(facecolor=box, edgecolor=EDGE, label=text) for text, box in boxes.items()),
        ]
