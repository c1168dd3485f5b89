"""Sums of two numbers as token sequences (Sec. 2), and which of them a run is trained and tested on.

A three-digit sum for the encoder and for the decoder, with the positions that are read out marked:

    1 2 3 + 4 5 6 = = =        target 5 7 9 at positions 7, 8, 9
                  ^ ^ ^
    1 2 3 + 4 5 6 5 7 9        target 5 7 9 = at positions 6, 7, 8, 9, one ahead of the input
                ^ ^ ^ ^
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from carry_core.errors import BadInput, check_whole

Numbers = Int[Tensor, " sums"]  # the first, or the second, numbers of some sums

PLUS, EQUALS, VOCABULARY = 10, 11, 12
SYMBOLS = "0123456789+="


@dataclass(frozen=True)
class Layout:
    """How a sum of two `width`-digit numbers is written: for an encoder, or for a causal decoder."""

    width: int = 3
    causal: bool = False

    @property
    def length(self) -> int:
        """Number of input tokens: 10 for three digits."""
        return 3 * self.width + 1

    @property
    def loss_positions(self) -> tuple[int, ...]:
        """Positions whose prediction enters the loss (the decoder's last one predicts the closing `=`)."""
        return tuple(range(2 * self.width + (not self.causal), self.length))

    @property
    def answer(self) -> tuple[int, ...]:
        """Positions that predict the answer's digits, most significant first."""
        return self.loss_positions[: self.width]

    @property
    def position_names(self) -> tuple[str, ...]:
        """The paper's names of the answer digits, `pos7`, `pos8`, `pos9`, in the decoder too."""
        return tuple(f"pos{2 * self.width + 1 + i}" for i in range(self.width))

    def tick_labels(self) -> list[str]:
        """Axis labels for the input positions: `*` for a digit, as in the paper's attention figures."""
        return [*"*" * self.width, "+", *"*" * self.width, *("*" if self.causal else "=") * self.width]


def digits(number: Int[Tensor, "*batch"], width: int) -> Int[Tensor, "*batch width"]:
    """Decimal digits, most significant first, padded with zeros on the left."""
    powers = 10 ** torch.arange(width - 1, -1, -1, device=number.device)
    return number.unsqueeze(-1) // powers % 10


def encode(a: Int[Tensor, "*batch"], b: Int[Tensor, "*batch"], layout: Layout) -> Int[Tensor, "*batch pos"]:
    """Input tokens of `a + b`; the decoder's carry the answer too (teacher forcing).

    `BadInput` if a sum has a negative number, or an answer of more digits than the layout.
    """
    fits = (a >= 0) & (b >= 0) & (b < 10**layout.width - a.long())
    if not fits.all():
        x, y = (int(number[~fits][0]) for number in (a, b))
        expected = f"two numbers from 0 on whose sum is below {10**layout.width}"
        raise BadInput(f"a={x}, b={y} is no sum of {layout.width} digits: expected {expected}.")
    plus = torch.full_like(a, PLUS).unsqueeze(-1)
    equals = torch.full_like(plus, EQUALS).expand(*a.shape, layout.width)
    tail = digits(a + b, layout.width) if layout.causal else equals
    return torch.cat([digits(a, layout.width), plus, digits(b, layout.width), tail], -1)


def targets(a: Int[Tensor, "*batch"], b: Int[Tensor, "*batch"], layout: Layout) -> Int[Tensor, "*batch loss"]:
    """What the positions `layout.loss_positions` should predict."""
    answer = digits(a + b, layout.width)
    return torch.cat([answer, torch.full_like(a, EQUALS).unsqueeze(-1)], -1) if layout.causal else answer


def n_sums(n_digits: int) -> int:
    """How many pairs a, b >= 0 have a + b < 10**n_digits: 500,500 for three digits."""
    side = int(10**n_digits)
    return side * (side + 1) // 2


def unrank(index: Int[Tensor, "*batch"], n_digits: int) -> tuple[Int[Tensor, "*batch"], Int[Tensor, "*batch"]]:
    """The sums number `index` in the order (0, 0), (0, 1), …, (1, 0), …, without listing the others.

    Row `a` holds the 10**n_digits - a values of b that are allowed.
    """
    side = 10**n_digits
    left = n_sums(n_digits) - 1 - index  # counted from the end, rows are triangular numbers
    row = ((torch.sqrt(8.0 * left.double() + 1) - 1) / 2).long()
    row = row + ((row + 1) * (row + 2) // 2 <= left).long() - (row * (row + 1) // 2 > left).long()
    return side - 1 - row, row - (left - row * (row + 1) // 2)


def all_sums(n_digits: int = 3) -> tuple[Numbers, Numbers]:
    """Every a, b >= 0 with a + b < 10**n_digits (Sec. 2)."""
    return unrank(torch.arange(n_sums(n_digits)), n_digits)


def long_sums(count: int, n_digits: int, generator: torch.Generator) -> tuple[Numbers, Numbers]:
    """`count` random sums with a + b < 10**n_digits, uniform over all of them (App. H).

    Half of all pairs qualify; ten-digit sums are too many to be numbered by 64-bit integers.
    """
    side = 10**n_digits
    found = torch.zeros(2, 0, dtype=torch.int64)
    while found.shape[1] < count:
        pairs = torch.randint(side, (2, 2 * count), generator=generator)
        found = torch.cat([found, pairs[:, pairs.sum(0) < side]], 1)
    return found[0, :count], found[1, :count]


def equal_sums(outcome: int, n_digits: int = 3) -> tuple[Numbers, Numbers]:
    """The sums a >= b with a + b = `outcome`, by b (Sec. 4, 5); `BadInput` unless there are two or more of them."""
    check_whole("outcome", outcome, 2, 10**n_digits - 1)
    b = torch.arange(outcome // 2 + 1)
    return outcome - b, b
