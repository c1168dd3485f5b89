"""Sums of two numbers, and how they are written as tokens (Sec. 2).

A three-digit sum for the encoder and for the decoder; carets mark the positions that are read out:

    1 2 3 + 4 5 6 = = =        target 5 7 9 at positions 7, 8, 9
                  ^ ^ ^
    1 2 3 + 4 5 6 5 7 9        target 5 7 9 = at positions 6, 7, 8, 9, one ahead of the input
                ^ ^ ^ ^
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor

from carry_core.errors import BadInput, check_whole

Numbers = Int[Tensor, " sums"]  # the first numbers of some sums, or the second ones
# Numbers as a caller may give them.
Operand = Tensor | npt.NDArray[Any] | np.integer[Any] | Sequence[int] | int

INTEGERS = {getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}
MAX_DIGITS = 18  # of a sum, so that 64-bit integers hold it
MAX_ENUMERATED = 9  # digits of sums that 64-bit integers can number
MAX_LISTED = 4  # digits up to which all sums fit into memory
MAX_COUNT = 10**9  # sums in a random sample

PLUS, EQUALS, VOCABULARY = 10, 11, 12
SYMBOLS = "0123456789+="


@dataclass(frozen=True)
class Layout:
    """The layout of a sum of two `width`-digit numbers, for an encoder or a causal decoder."""

    width: int = 3
    causal: bool = False

    def __post_init__(self) -> None:
        check_whole("width", self.width, 1, MAX_DIGITS, "digits")

    @property
    def length(self) -> int:
        """Number of input tokens: 10 for three digits."""
        return 3 * self.width + 1

    @property
    def loss_positions(self) -> tuple[int, ...]:
        """Positions whose prediction enters the loss; in a decoder, the final `=` counts too."""
        first = 2 * self.width if self.causal else 2 * self.width + 1
        return tuple(range(first, self.length))

    @property
    def answer(self) -> tuple[int, ...]:
        """Positions that predict the answer's digits, most significant first."""
        return self.loss_positions[: self.width]

    @property
    def position_names(self) -> tuple[str, ...]:
        """The paper's names of the answer digits, `pos7`, `pos8`, `pos9`, in the decoder too."""
        return tuple(f"pos{2 * self.width + 1 + i}" for i in range(self.width))

    def tick_labels(self) -> list[str]:
        """Return axis labels of the input positions: `*` for a digit, as in the paper's figures."""
        number = ["*"] * self.width
        answer = number if self.causal else ["="] * self.width
        return [*number, "+", *number, *answer]


def whole_numbers(name: str, numbers: Operand) -> Int[Tensor, "*batch"]:
    """Return whole numbers of any integer type as an int64 tensor.

    Raises:
        BadInput: They are of another type, such as floats. `name` is what the caller calls them.
    """
    try:
        tensor = numbers if isinstance(numbers, Tensor) else torch.from_numpy(np.array(numbers))
        if tensor.dtype not in INTEGERS:
            raise TypeError(f"they are {tensor.dtype}")
        if np.ma.is_masked(numbers):
            raise TypeError("some are masked")
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"{name}={numbers!r}: expected whole numbers ({error}).") from error
    return tensor.long()


def checked_sums(
    a: Operand, b: Operand, width: int
) -> tuple[Int[Tensor, "*batch"], Int[Tensor, "*batch"]]:
    """Return the numbers of the sums a + b as two int64 tensors of one shape.

    Every function that accepts sums from a caller checks them here.

    Raises:
        BadInput: They are not whole numbers, or their shapes differ, or a number is negative,
            or a sum has more than `width` digits.
    """
    a, b = whole_numbers("a", a), whole_numbers("b", b)
    if a.shape != b.shape:
        raise BadInput(f"a has shape {[*a.shape]}, b has {[*b.shape]}: expected the same.")
    b = b.to(a.device)
    fits = (a >= 0) & (b >= 0) & (b < 10**width - a)
    if not fits.all():
        raise BadInput(
            f"a={int(a[~fits][0])}, b={int(b[~fits][0])} is no sum of {width} digits: "
            f"expected two numbers from 0 on whose sum is below {10**width}."
        )
    return a, b


def some_sums(a: Operand, b: Operand, width: int) -> tuple[Numbers, Numbers]:
    """Return the numbers of one sum or more as two int64 tensors `[sums]`.

    Raises:
        BadInput: As `checked_sums`; or there are no sums, or the tensors have several axes.
    """
    a, b = checked_sums(a, b, width)
    if a.ndim > 1 or a.numel() == 0:
        raise BadInput(f"Sums of shape {[*a.shape]}: expected at least one, in a single row.")
    return a.reshape(-1), b.reshape(-1)


def digits(number: Operand, width: int) -> Int[Tensor, "*batch width"]:
    """Return the last `width` decimal digits, most significant first, with zeros on the left.

    Raises:
        BadInput: A number is not whole, or is negative; or `width` is not from 1 to `MAX_DIGITS`.
    """
    check_whole("width", width, 1, MAX_DIGITS, "digits")
    number = whole_numbers("number", number)
    if (number < 0).any():
        raise BadInput(f"number={int(number.min())}: expected numbers from 0 on.")
    return digit_tokens(number, width)


def digit_tokens(number: Int[Tensor, "*batch"], width: int) -> Int[Tensor, "*batch width"]:
    """Return the same as `digits`, for numbers that have been checked."""
    powers = 10 ** torch.arange(width - 1, -1, -1, device=number.device)
    return number.unsqueeze(-1) // powers % 10


def encode(a: Operand, b: Operand, layout: Layout) -> Int[Tensor, "*batch pos"]:
    """Return the input tokens of a + b; a decoder's include the answer (teacher forcing)."""
    a, b = checked_sums(a, b, layout.width)
    plus = torch.full_like(a, PLUS).unsqueeze(-1)
    equals = torch.full_like(plus, EQUALS).expand(*a.shape, layout.width)
    tail = digit_tokens(a + b, layout.width) if layout.causal else equals
    return torch.cat([digit_tokens(a, layout.width), plus, digit_tokens(b, layout.width), tail], -1)


def targets(a: Operand, b: Operand, layout: Layout) -> Int[Tensor, "*batch loss"]:
    """Return the tokens that the positions `layout.loss_positions` should predict."""
    a, b = checked_sums(a, b, layout.width)
    answer = digit_tokens(a + b, layout.width)
    if not layout.causal:
        return answer
    return torch.cat([answer, torch.full_like(a, EQUALS).unsqueeze(-1)], -1)


def n_sums(n_digits: int) -> int:
    """Return the number of pairs a, b >= 0 with a + b < 10**n_digits: 500,500 for three digits."""
    check_whole("n_digits", n_digits, 1, MAX_DIGITS)
    side = int(10**n_digits)
    return side * (side + 1) // 2


def unrank(index: Operand, n_digits: int) -> tuple[Int[Tensor, "*batch"], Int[Tensor, "*batch"]]:
    """Return the sums at the places `index` in the order (0, 0), (0, 1), …, (1, 0), ….

    Row `a` of this order holds the 10**n_digits - a values of b that are allowed.

    Raises:
        BadInput: `n_digits` is not from 1 to `MAX_ENUMERATED`, or an index is not a whole number
            from 0 to `n_sums(n_digits) - 1`.
    """
    check_whole("n_digits", n_digits, 1, MAX_ENUMERATED)
    index = whole_numbers("index", index)
    last = n_sums(n_digits) - 1
    if ((index < 0) | (index > last)).any():
        raise BadInput(f"index={index!r}: expected whole numbers from 0 to {last}.")
    side = 10**n_digits
    # Counted from the end, the rows begin at the triangular numbers.
    from_end = last - index
    row = ((torch.sqrt(8.0 * from_end.double() + 1) - 1) / 2).long()
    # The square root of a large number may be rounded to a neighbouring row.
    is_too_low = (row + 1) * (row + 2) // 2 <= from_end
    is_too_high = row * (row + 1) // 2 > from_end
    row = row + is_too_low.long() - is_too_high.long()
    return side - 1 - row, row - (from_end - row * (row + 1) // 2)


def all_sums(n_digits: int = 3) -> tuple[Numbers, Numbers]:
    """Return every a, b >= 0 with a + b < 10**n_digits, up to `MAX_LISTED` digits (Sec. 2)."""
    check_whole("n_digits", n_digits, 1, MAX_LISTED)
    return unrank(torch.arange(n_sums(n_digits)), n_digits)


def long_sums(count: int, n_digits: int, generator: torch.Generator) -> tuple[Numbers, Numbers]:
    """Return `count` random sums with a + b < 10**n_digits, uniform over all of them (App. H).

    They are drawn by rejection, since 64-bit integers cannot number all ten-digit sums. Half of
    all pairs qualify.
    """
    check_whole("count", count, 0, MAX_COUNT, "sums")
    check_whole("n_digits", n_digits, 1, MAX_DIGITS)
    side = 10**n_digits
    sums = torch.zeros(2, 0, dtype=torch.int64)
    while sums.shape[1] < count:
        pairs = torch.randint(side, (2, 2 * count), generator=generator)
        sums = torch.cat([sums, pairs[:, pairs.sum(0) < side]], 1)
    return sums[0, :count], sums[1, :count]


def equal_sums(outcome: int, n_digits: int = 3) -> tuple[Numbers, Numbers]:
    """Return the sums a >= b with a + b = `outcome`, in the order of b (Sec. 4, 5)."""
    check_whole("n_digits", n_digits, 1, MAX_DIGITS)
    check_whole("outcome", outcome, 2, min(10**n_digits, MAX_COUNT) - 1)
    b = torch.arange(outcome // 2 + 1)
    return outcome - b, b
