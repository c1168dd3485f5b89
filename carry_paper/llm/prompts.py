"""Prompts with sums, positions of their digits among the tokens, answers (Sec. 6, App. A.3-4)."""

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
    "Below is an instruction that describes a task."
    " Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{sum}\n\n### Response:"
)


@dataclass(frozen=True)
class Template:
    """A prompt for a sum, and the rule that reads the answer from the reply.

    Attributes:
        name: The name on the command line.
        text: The prompt; `{sum}` stands for the sum.
        last: True if the last integer of the reply is the answer. Otherwise it is the first, since
            a model without instructions runs on into new sums.
        tokens: The largest number of tokens to generate.
    """

    name: str
    text: str = "{sum}"
    last: bool = False
    tokens: int = 10

    def prompt(self, a: int, b: int) -> str:
        return self.text.format(sum=f"{a} + {b} = ")

    def answer(self, reply: str) -> int:
        """Return the number in a reply; its thousands may be set off by commas.

        The answer is -1 if there is none, or if it has 19 digits or more.
        """
        numbers = re.findall(r"\d+", reply.replace(",", ""), re.ASCII)
        number = int(numbers[-1 if self.last else 0]) if numbers else -1
        return number if number < 10**18 else -1


TEMPLATES = {
    "bare": Template("bare"),
    "alpaca": Template("alpaca", ALPACA, last=True, tokens=32),
}


def draw(count: int, seed: int = 42) -> Int[Tensor, "prompt 2"]:
    """Draw four-digit numbers a and b; seed 42 gives the author's first prompts (App. A.3)."""
    return torch.randint(LOW, HIGH, (count, 2), generator=torch.Generator().manual_seed(seed))


class Positions(NamedTuple):
    """Token indices in an unpadded prompt; digits in one token share its index.

    Attributes:
        a: The indices of the first number's digits.
        plus: The index of the plus.
        b: The indices of the second number's digits.
        last: The prompt's last token, which predicts the answer's first.
    """

    a: tuple[int, ...]
    plus: int
    b: tuple[int, ...]
    last: int

    @property
    def marked(self) -> tuple[int, ...]:
        """The prompt's first token and all of these in order, as a map of attention shows them."""
        return (0, *self.a, self.plus, *self.b, self.last)


def locate(prompt: str, offsets: Sequence[Sequence[int]], a: int, b: int) -> Positions:
    """Find the sum `a + b` in a prompt whose tokens cover the characters `offsets`.

    Nothing is assumed about token ids: a digit belongs to the token whose characters cover it,
    whether that token is one digit, several digits, or a digit with a space.
    """
    text = f"{a} + {b}"
    start = prompt.rindex(text)
    token_of = {}  # by character
    for i, (left, right) in enumerate(offsets):
        for character in range(left, right):
            token_of[character] = i
    tokens = [token_of[start + i] for i, character in enumerate(text) if character != " "]
    return Positions(
        a=tuple(tokens[:DIGITS]),
        plus=tokens[DIGITS],
        b=tuple(tokens[DIGITS + 1 :]),
        last=len(offsets) - 1,
    )


def check_tokenizer(tokenizer: Any, template: Template) -> None:
    """Raise `BadInput` for a tokenizer without offsets, or one that loses a digit or the plus."""
    if not getattr(tokenizer, "is_fast", False):
        raise BadInput(
            "The tokenizer tells no offsets: expected a fast one,"
            " so a tokenizer.json beside the weights."
        )
    for a, b in ((1234, 5678), (9009, 1090)):
        tokens = tokenizer(template.prompt(a, b))["input_ids"]
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        if f"{a}+{b}" not in re.sub("[^0-9+]", "", text):
            raise BadInput(
                f"The tokenizer cannot write {a} + {b}, but {text[-40:]!r}:"
                " expected digits and a plus."
            )


@dataclass(frozen=True)
class Answers:
    """Sums and a model's replies; its mistakes are carrying mistakes or others (Sec. 6)."""

    pairs: Int[Tensor, "prompt 2"]
    replies: tuple[str, ...]
    template: Template  # it says how the answer is read from a reply

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
        """Wrong answers in which a digit with a carry-in is one too small, modulo ten (Sec. 6)."""
        expected = digits(self.pairs.sum(1), WIDTH)
        answered = digits(self.values.clamp(min=0), WIDTH)
        one_too_small = (expected - answered) % 10 == 1
        return (self.values >= 0) & (one_too_small & carry_ins(self.pairs)).any(1)

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
        """Share of correct digits at each position, counted from the left (App. G)."""
        totals = pd.Series(self.pairs.sum(1).tolist()).astype(str)
        values = pd.Series(self.values.tolist()).astype(str)
        values = values.replace("-1", "")  # without a number, there is no digit either
        shares = []
        for i in range(totals.str.len().max()):
            is_correct = values.str[i] == totals.str[i]
            shares.append(float(is_correct[totals.str.len() > i].mean()))
        return shares


def carry_ins(pairs: Int[Tensor, "prompt 2"]) -> Bool[Tensor, "prompt digit"]:
    """Return a mask of the answer's five digits, the leading one included, with a carry-in."""
    return (digits(pairs.sum(1), WIDTH) - digits(pairs, WIDTH).sum(1)) % 10 == 1


def digit_and_carry(pairs: Int[Tensor, "prompt 2"], output: int) -> tuple[Tensor, Tensor]:
    """Return a digit of each answer, and True where it has a carry-in.

    `output` counts the answer's digits from the left. Beyond the end of an answer, the digit is -1
    and has no carry-in.
    """
    total = pairs.sum(1)
    # Of the five columns, answers with four digits lack the first.
    column = ((total < HIGH).long() + output).unsqueeze(1)
    digit = F.pad(digits(total, WIDTH), (0, 1), value=-1)
    carry_in = F.pad(carry_ins(pairs), (0, 1))
    return digit.gather(1, column).squeeze(1), carry_in.gather(1, column).squeeze(1)
