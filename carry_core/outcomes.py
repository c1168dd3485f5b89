"""Outcome by outcome: whether a one arrives in all sums that share it, and how far these are squashed (Sec. 4)."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from carry_core import measure, tasks
from carry_core.errors import BadInput
from carry_core.model import Transformer
from carry_core.sums import equal_sums

PAPER = 74  # the outcome that the paper's squashing is about (PROTOCOLS)
FEWEST = 20  # sums a >= b that an outcome needs for its squashing to count


def every(step: int = 1, n_digits: int = 3) -> list[int]:
    """Every `step`-th outcome that has at least 20 sums a >= b, the paper's 74 among them.

    Raises:
        BadInput: the step is no positive whole number, or leaves 74 alone.
    """
    first, end = 2 * (FEWEST - 1), 10**n_digits
    most = max(PAPER - first, end - 1 - PAPER)
    if type(step) is not int or not 1 <= step <= most:
        raise BadInput(f"step={step!r}: expected a whole number from 1, for all outcomes, to {most}.")
    return list(range(first + (PAPER - first) % step, end, step))


def carry_differs(outcome: int, n_digits: int = 3) -> Bool[Tensor, " pos"]:
    """At which answer positions a one arrives in some of the sums a >= b with this outcome and not in others."""
    arrives = tasks.carry_arrives(n_digits)[tasks.classify(*equal_sums(outcome, n_digits), n_digits)]
    return arrives.any(0) & ~arrives.all(0)


def squashing(model: Transformer, outcomes: Sequence[int]) -> Float[Tensor, "outcome pos"]:
    """`measure.squashing` of each outcome."""
    return torch.stack([measure.squashing(model, outcome) for outcome in outcomes])
