"""Sums put to a language model: prompts, where their digits stand among the tokens, answers (Sec. 6, App. A.3-A.4)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.sums import digits

DIGITS = 4
WIDTH = DIGITS + 1  # digits of the longest answer
LOW, HIGH = int(10 ** (DIGITS - 1)), int(10**DIGITS)
ALPACA = (
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{sum}\n\n### Response:"
)


@dataclass(frozen=True)
class Template:
    """How a sum is put to a model, and which integer of its reply is the answer."""

    name: str
    text: str = "{sum}"
    # of the reply's integers, else the first: a bare model runs on into new sums
    last: bool = False
    tokens: int = 10  # generated at most

    def prompt(self, a: int, b: int) -> str:
        return self.text.format(sum=f"{a} + {b} = ")

    def answer(self, reply: str) -> int:
        """The number that a reply gives, whose thousands may be set off by commas; -1 for none or one of 19 digits."""
        numbers = re.findall(r"\d+", reply.replace(",", ""), re.ASCII)
        number = int(numbers[-1 if self.last else 0]) if numbers else -1
        return number if number < 10**18 else -1


TEMPLATES = {
    t.name: t for t in (Template("bare"), Template("alpaca", ALPACA, last=True, tokens=32))
}


def draw(count: int, seed: int = 42) -> Int[Tensor, "prompt 2"]:
    """The paper's four-digit numbers a and b; the first thousand are the author's prompts (App. A.3)."""
    return torch.randint(LOW, HIGH, (count, 2), generator=torch.Generator().manual_seed(seed))


class Positions(NamedTuple):
    """Token indices in an unpadded prompt; digits in one token share its index."""

    a: tuple[int, ...]  # of each digit of the first number
    plus: int
    b: tuple[int, ...]  # of each digit of the second number
    last: int  # the prompt's last token, which predicts the answer's first

    @property
    def marked(self) -> tuple[int, ...]:
        """The prompt's first token and all of these in order, for a map of the attention between them."""
        return (0, *self.a, self.plus, *self.b, self.last)


def locate(prompt: str, offsets: Sequence[Sequence[int]], a: int, b: int) -> Positions:
    """Find the sum `a + b` in a prompt whose tokens cover the characters `offsets`.

    Nothing is assumed about token ids: a digit belongs to the token whose characters cover it,
    whether that is one digit, a group of them, or brings a space along.
    """
    text = f"{a} + {b}"
    start = prompt.rindex(text)
    token = {c: i for i, (left, right) in enumerate(offsets) for c in range(left, right)}
    places = [token[start + i] for i, character in enumerate(text) if character != " "]
    return Positions(
        tuple(places[:DIGITS]), places[DIGITS], tuple(places[DIGITS + 1 :]), len(offsets) - 1
    )


def check_tokenizer(tokenizer: Any, template: Template) -> None:
    """BadInput for a tokenizer without offsets, or one that loses a digit or the plus."""
    if not getattr(tokenizer, "is_fast", False):
        raise BadInput(
            "The tokenizer tells no offsets: expected a fast one, so a tokenizer.json beside the weights."
        )
    for a, b in ((1234, 5678), (9009, 1090)):
        text = tokenizer.decode(
            tokenizer(template.prompt(a, b))["input_ids"], skip_special_tokens=True
        )
        if f"{a}+{b}" not in re.sub("[^0-9+]", "", text):
            raise BadInput(
                f"The tokenizer cannot write {a} + {b}, but {text[-40:]!r}: expected digits and a plus."
            )


@dataclass(frozen=True)
class Answers:
    """Sums, and what a model replied to each; its mistakes split into carrying mistakes and others (Sec. 6)."""

    pairs: Int[Tensor, "prompt 2"]
    replies: tuple[str, ...]
    template: Template  # how the answer is read from a reply

    @cached_property
    def values(self) -> Int[Tensor, " prompt"]:
        """The number in each reply, -1 where there is none."""
        return torch.tensor([self.template.answer(reply) for reply in self.replies])

    @property
    def right(self) -> Bool[Tensor, " prompt"]:
        """Exact matches."""
        return self.values == self.pairs.sum(1)

    @property
    def accuracy(self) -> float:
        """Share of exact matches (Tab. 2)."""
        return self.right.double().mean().item()

    @property
    def carrying(self) -> Bool[Tensor, " prompt"]:
        """Wrong answers in which a digit with a carry-in is exactly one too small, modulo ten (Sec. 6)."""
        value = self.values.clamp(min=0)
        small = (digits(self.pairs.sum(1), WIDTH) - digits(value, WIDTH)) % 10 == 1
        return (self.values >= 0) & (small & carry_ins(self.pairs)).any(1)

    @property
    def carry_share(self) -> float:
        """Share of the mistakes that are carrying mistakes; NaN where there are no mistakes."""
        return self.carrying[~self.right].double().mean().item()

    @property
    def carry_chance(self) -> float:
        """Return the share of the mistakes that random digits would make carrying mistakes.

        A digit is random with one of ten values, so a digit with a carry-in lacks it in a
        tenth of the answers. NaN where there are no mistakes.
        """
        n_carries = carry_ins(self.pairs).sum(1)[~self.right].double()
        return (1 - 0.9**n_carries).mean().item()

    @property
    def by_position(self) -> list[float]:
        """Share of answers whose digit is right, for each position counted from the left (App. G)."""
        value, total = (pd.Series(x.tolist()).astype(str) for x in (self.values, self.pairs.sum(1)))
        value = value.replace("-1", "")  # no number: no digit either
        long = range(total.str.len().max())
        return [float((value.str[i] == total.str[i])[total.str.len() > i].mean()) for i in long]


def carry_ins(pairs: Int[Tensor, "prompt 2"]) -> Bool[Tensor, "prompt digit"]:
    """Which of the answer's five digits have a carry-in, counting the leading one."""
    return (digits(pairs.sum(1), WIDTH) - digits(pairs, WIDTH).sum(1)) % 10 == 1


def digit_and_carry(pairs: Int[Tensor, "prompt 2"], output: int) -> tuple[Tensor, Tensor]:
    """Digit number `output` of each answer, from the left, and whether it has a carry-in; -1 beyond its end."""
    total = pairs.sum(1)
    # among five digits, of which short answers lack the first
    column = ((total < HIGH).long() + output).unsqueeze(1)
    digit, carry = F.pad(digits(total, WIDTH), (0, 1), value=-1), F.pad(carry_ins(pairs), (0, 1))
    return digit.gather(1, column).squeeze(1), carry.gather(1, column).squeeze(1)
