"""Pairs of sums that differ in one variable, for swaps between them (interchange interventions).

The paper's algorithm is a causal model, the full adder of App. I. It has three variables in each
column: a digit sum, a carry-in and an answer digit. The two sums of a pair differ in one variable
of one column, and otherwise only in what that variable causes. So swapping an activation between
them shows whether the activation holds the variable (Geiger et al. 2021, Causal Abstractions of
Neural Networks).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from carry_core import carries
from carry_core.errors import BadInput, check_whole
from carry_core.sums import MAX_COUNT, Layout, digit_tokens

VARIABLES = ("carry_in", "digit_sum", "both")

# The two numbers of the two sums of each pair. Side 0 is the sum with the smaller value of the
# variable: no carry-in, or the smaller digit sum.
Pairs = Int[Tensor, "side number pair"]


@dataclass(frozen=True)
class Contrast:
    """The variable and the column in which the two sums of a pair differ.

    Attributes:
        variable: `carry_in` (the column's own digits are equal), `digit_sum` (all other columns
            are equal), or `both`, where the two variables can make four different digits.
        column: The column, counted from 0 at the left. Nothing is carried into the last one.
        control: True for pairs that agree in the variable but differ in the digits from which
            it is computed.
    """

    variable: str
    column: int
    control: bool = False

    def __post_init__(self) -> None:
        if self.variable not in VARIABLES:
            raise BadInput(f"variable={self.variable!r}: expected one of {', '.join(VARIABLES)}.")
        check_whole("column", self.column, 0, MAX_COUNT)

    def check_fits(self, width: int) -> None:
        """Raise `BadInput` unless sums of `width` digits have this variable."""
        if self.column >= width:
            raise BadInput(f"column={self.column}: expected a column from 0 to {width - 1}.")
        if self.variable != "digit_sum" and self.column == width - 1:
            raise BadInput(
                f"column={self.column}: nothing is carried into the last; expected one before it."
            )


def sample_pairs(
    contrast: Contrast, count: int, generator: torch.Generator, layout: Layout
) -> Pairs:
    """Return `count` pairs, uniform over all pairs that differ as `contrast` says.

    All columns to the left of the contrast's are equal. A decoder is given the answer to its own
    sum, so its two answers also agree to the left of the column. Otherwise it could read a carry
    that propagates to the left off its input.

    Raises:
        BadInput: Sums of this layout have no such variable.
    """
    contrast.check_fits(layout.width)
    check_whole("count", count, 0, MAX_COUNT, "pairs")
    pairs = torch.zeros(2, 2, 0, dtype=torch.int64)
    while pairs.shape[-1] < count:
        candidates = _candidates(contrast, 8 * (count + 8), generator, layout.width)
        fits = _fits(contrast, candidates, layout)
        pairs = torch.cat([pairs, candidates[..., fits]], -1)
    return pairs[..., :count]


def _candidates(contrast: Contrast, count: int, generator: torch.Generator, width: int) -> Pairs:
    """Return random pairs of sums, equal to the left of the column; many of them do not fit.

    Some of what has to agree does so already: the column's own digits if only the carry-in may
    differ, and the columns to the right if only the digit sum may.
    """
    left_side = 10 ** (contrast.column + 1)
    right_side = 10 ** (width - contrast.column - 1)
    left = torch.randint(left_side, (2, count), generator=generator)  # (number, pair)
    other_digit = torch.randint(10, (2, count), generator=generator)
    right, other_right = torch.randint(right_side, (2, 2, count), generator=generator)
    if contrast.variable == "carry_in":
        other_digit = left % 10
    if contrast.variable == "digit_sum":
        other_right = right
    other_left = left - left % 10 + other_digit
    return torch.stack([left * right_side + right, other_left * right_side + other_right])


def _fits(contrast: Contrast, pairs: Pairs, layout: Layout) -> Bool[Tensor, " pair"]:
    """Return a mask of the pairs that are sums of this layout and differ as the contrast says."""
    column, width = contrast.column, layout.width
    digits = digit_tokens(pairs, width)  # (side, number, pair, column)
    same_digits = (digits[0] == digits[1]).all(0)  # (pair, column)
    are_sums = (pairs.sum(1) < 10**width).all(0)
    fits: Tensor = are_sums & same_digits[:, :column].all(1) & _differ(contrast, pairs, digits)
    if layout.causal:
        left_answer = digit_tokens(pairs.sum(1), width)[..., :column]  # (side, pair, column)
        fits &= (left_answer[0] == left_answer[1]).all(1)
    return fits


def _differ(
    contrast: Contrast, pairs: Pairs, digits: Int[Tensor, "side number pair column"]
) -> Bool[Tensor, " pair"]:
    """Return a mask of the pairs that differ in the variable, and in no more than necessary.

    The caller checks the columns to the left of the contrast's.
    """
    column, width = contrast.column, digits.shape[-1]
    same_digits = (digits[0] == digits[1]).all(0)  # (pair, column)
    same_here = same_digits[:, column]
    same_right = same_digits[:, column + 1 :].all(1)

    digit_sum = digits.sum(1)[..., column]  # (side, pair)
    digit_sum_step = digit_sum[1] - digit_sum[0]
    classes = carries.class_index(pairs[:, 0], pairs[:, 1], width)  # (side, pair)
    carry_in = carries.carry_in(width)[classes][..., column].long()  # (side, pair)
    carry_in_step = carry_in[1] - carry_in[0]

    if contrast.control:
        digits_differ = {
            "carry_in": same_here,
            "digit_sum": same_right & ~same_here,
            "both": ~same_here,
        }[contrast.variable]
        return digits_differ & (carry_in_step == 0) & (digit_sum_step == 0)
    if contrast.variable == "carry_in":
        return same_here & (carry_in_step == 1)
    if contrast.variable == "digit_sum":
        # Digit sums that are ten apart have the same digit.
        return same_right & (digit_sum_step > 0) & (digit_sum_step != 10)
    # Steps of 0, 1 and 9 leave fewer than four digits that base and source can make.
    makes_four_digits = ~torch.isin(digit_sum_step % 10, torch.tensor([0, 1, 9]))
    return makes_four_digits & (carry_in_step == 1)
