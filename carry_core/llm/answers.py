"""What a language model answered: accuracy, and mistakes split into carrying mistakes and others (Sec. 6)."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from carry_core.llm.prompts import DIGITS, Template
from carry_core.sums import digits

WIDTH = DIGITS + 1  # digits of the longest answer


@dataclass(frozen=True)
class Answers:
    """Sums, and what a model replied to each.

    Attributes:
        pairs: the two numbers of each sum.
        replies: the generated texts; fewer than sums where only the first ones are recorded.
        template: how the answer is read from a reply.
    """

    pairs: Int[Tensor, "prompt 2"]
    replies: tuple[str, ...]
    template: Template

    @cached_property
    def values(self) -> Int[Tensor, " reply"]:
        """The number in each reply, -1 where there is none or one too long to be an answer."""
        found = [self.template.answer(reply) for reply in self.replies]
        return torch.tensor([-1 if x is None or x >= 10**18 else x for x in found])

    @property
    def totals(self) -> Int[Tensor, " reply"]:
        """The right answers."""
        return self.pairs[: len(self.replies)].sum(1)

    @property
    def right(self) -> Bool[Tensor, " reply"]:
        return self.values == self.totals

    @property
    def accuracy(self) -> float:
        """Share of whole answers that are right (Tab. 2)."""
        return self.right.double().mean().item()

    @property
    def carrying(self) -> Bool[Tensor, " reply"]:
        """Wrong answers in which a digit that receives a one is exactly one too small, modulo ten (Sec. 6)."""
        small = (digits(self.totals, WIDTH) - digits(self.values, WIDTH)) % 10 == 1
        return (self.values >= 0) & (small & receives(self.pairs[: len(self.replies)])).any(1)

    @property
    def carry_share(self) -> float:
        """Share of the mistakes that are carrying mistakes; NaN where there are no mistakes."""
        mistakes = int((~self.right).sum())
        return int(self.carrying.sum()) / mistakes if mistakes else float("nan")

    @property
    def carry_chance(self) -> float:
        """What `carry_share` would be if wrong answers had random digits; NaN where there are no mistakes."""
        needed = receives(self.pairs[: len(self.replies)]).sum(1)[~self.right]
        return (1 - 0.9 ** needed.double()).mean().item()

    @property
    def by_position(self) -> list[float]:
        """Share of answers whose digit is right, for each position counted from the left (App. G)."""
        return [
            sum(len(t := str(total)) > i and str(value)[i : i + 1] == t[i] for value, total in self._pairs()) / n
            for i in range(WIDTH)
            if (n := sum(len(str(total)) > i for _, total in self._pairs()))
        ]

    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.values.tolist(), self.totals.tolist(), strict=True))


def receives(pairs: Int[Tensor, "prompt 2"]) -> Bool[Tensor, "prompt digit"]:
    """At which of the answer's five digits a carried one arrives, counting the leading one."""
    return (digits(pairs.sum(1), WIDTH) - digits(pairs, WIDTH).sum(1)) % 10 == 1
