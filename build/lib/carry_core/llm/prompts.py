"""Sums put to a language model: prompts, where their digits stand among the tokens, answers (Sec. 6, App. A.3-A.4)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
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
    """How a sum is put to a model, and which integer of its reply is the answer.

    Attributes:
        text: the prompt, with `{sum}` where the sum goes.
        last: the answer is the last integer of the reply, else the first: a bare model runs on into new sums.
        tokens: how many are generated at most.
    """

    name: str
    text: str = "{sum}"
    last: bool = False
    tokens: int = 10

    def prompt(self, a: int, b: int) -> str:
        """The prompt for `a + b`."""
        return self.text.format(sum=f"{a} + {b} = ")

    def answer(self, reply: str) -> int | None:
        """The number that a reply gives, None where it gives none; thousands may be set off by commas."""
        numbers = re.findall(r"\d+", reply.replace(",", ""), re.ASCII)
        return int(numbers[-1 if self.last else 0]) if numbers else None


TEMPLATES = {t.name: t for t in (Template("bare"), Template("alpaca", ALPACA, last=True, tokens=32))}


def draw(count: int, seed: int = 42) -> Int[Tensor, "prompt 2"]:
    """The paper's four-digit numbers a and b; the first thousand are the author's prompts (App. A.3)."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(LOW, HIGH, (1000, 2), generator=generator)
    if count > 1000:
        pairs = torch.cat([pairs, torch.randint(LOW, HIGH, (count - 1000, 2), generator=generator)])
    return pairs[:count]


# ---------------------------------------------------------------- positions


@dataclass(frozen=True)
class Positions:
    """Token indices in an unpadded prompt.

    Attributes:
        first: the prompt's first token.
        a: of each digit of the first number; digits in one token share its index.
        plus: of the sign.
        b: of each digit of the second number.
        last: the prompt's last token, which predicts the answer's first.
    """

    first: int
    a: tuple[int, ...]
    plus: int
    b: tuple[int, ...]
    last: int

    @property
    def marked(self) -> tuple[int, ...]:
        """All of them in order, for a map of the attention between them."""
        return (self.first, *self.a, self.plus, *self.b, self.last)


def marks(n_digits: int, generated: int) -> list[str]:
    """Axis labels for `Positions.marked` and the generated tokens after them: `*` for a digit, as in the paper."""
    return ["⊢", *"*" * n_digits, "+", *"*" * n_digits, "=", *"•" * generated]


def locate(prompt: str, offsets: Sequence[Sequence[int]], a: int, b: int) -> Positions:
    """Find the sum `a + b` in a prompt whose tokens cover the characters `offsets`.

    Nothing is assumed about token ids: a digit belongs to the token whose characters cover it, whether that is one
    digit, a group of them, or brings a space along.

    Raises:
        BadInput: the prompt has no such sum, or a character of it is in no token.
    """
    text = f"{a} + {b}"
    start = prompt.rfind(text)
    if start < 0:
        raise BadInput(f"The prompt {prompt!r} does not hold the sum {text}: expected {{sum}} in the template.")
    token = {c: i for i, (left, right) in enumerate(offsets) for c in range(left, right)}
    n, end = len(str(a)), start + len(text)
    try:
        first, plus = tuple(token[c] for c in range(start, start + n)), token[start + n + 1]
        second = tuple(token[c] for c in range(end - len(str(b)), end))
    except KeyError as error:
        raise BadInput(
            f"The tokenizer has no token for {prompt[error.args[0]]!r}: expected one that can write digits and a plus."
        ) from error
    return Positions(0, first, plus, second, len(offsets) - 1)


def check_tokenizer(tokenizer: Any, template: Template) -> None:
    """Find out before anything long starts whether sums can be written and found in this tokenizer's tokens.

    Raises:
        BadInput: it has no offsets, no token for a digit or a sign, or tokens that do not give the digits back.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise BadInput("The tokenizer tells no offsets: expected a fast one, so a tokenizer.json beside the weights.")
    for a, b in ((1234, 5678), (9009, 1090)):
        prompt = template.prompt(a, b)
        encoded = tokenizer(prompt, return_offsets_mapping=True)
        tokens = encoded["input_ids"]
        places = locate(prompt, encoded["offset_mapping"], a, b)
        used = {tokens[i] for i in (*places.a, *places.b, places.plus)}
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        if tokenizer.unk_token_id in used or f"{a}{b}" not in re.sub(r"\D", "", text):
            raise BadInput(
                f"The tokenizer cannot write {a} + {b}: its tokens read {text.strip()[-40:]!r}."
                " Expected one with digits and a plus."
            )


# ---------------------------------------------------------------- answers


@dataclass(frozen=True)
class Answers:
    """Sums, and what a model replied to each; its mistakes split into carrying mistakes and others (Sec. 6).

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
        numbers = [self.template.answer(reply) for reply in self.replies]
        return torch.tensor([-1 if x is None or x >= 10**18 else x for x in numbers])

    @property
    def totals(self) -> Int[Tensor, " reply"]:
        """The right answers."""
        return self.pairs[: len(self.replies)].sum(1)

    @property
    def right(self) -> Bool[Tensor, " reply"]:
        """Exact matches."""
        return self.values == self.totals

    @property
    def accuracy(self) -> float:
        """Share of exact matches (Tab. 2)."""
        return self.right.double().mean().item()

    @property
    def carrying(self) -> Bool[Tensor, " reply"]:
        """Wrong answers in which a digit with a carry-in is exactly one too small, modulo ten (Sec. 6)."""
        small = (digits(self.totals, WIDTH) - digits(self.values, WIDTH)) % 10 == 1
        return (self.values >= 0) & (small & carry_ins(self.pairs[: len(self.replies)])).any(1)

    @property
    def carry_share(self) -> float:
        """Share of the mistakes that are carrying mistakes; NaN where there are no mistakes."""
        mistakes = int((~self.right).sum())
        return int(self.carrying.sum()) / mistakes if mistakes else float("nan")

    @property
    def carry_chance(self) -> float:
        """What `carry_share` would be if wrong answers had random digits; NaN where there are no mistakes."""
        n_carries = carry_ins(self.pairs[: len(self.replies)]).sum(1)[~self.right]
        return (1 - 0.9 ** n_carries.double()).mean().item()

    @property
    def by_position(self) -> list[float]:
        """Share of answers whose digit is right, for each position counted from the left (App. G)."""
        values = self.values.tolist()
        texts = [(str(value), str(total)) for value, total in zip(values, self.totals.tolist(), strict=True)]
        shares = []
        for i in range(WIDTH):
            hits = [value[i : i + 1] == total[i] for value, total in texts if len(total) > i]
            shares += [sum(hits) / len(hits)] if hits else []
        return shares


def carry_ins(pairs: Int[Tensor, "prompt 2"]) -> Bool[Tensor, "prompt digit"]:
    """Which of the answer's five digits have a carry-in, counting the leading one."""
    return (digits(pairs.sum(1), WIDTH) - digits(pairs, WIDTH).sum(1)) % 10 == 1


def digit_and_carry(
    pairs: Int[Tensor, "prompt 2"], output: int
) -> tuple[Int[Tensor, " prompt"], Bool[Tensor, " prompt"]]:
    """Digit number `output` of each answer, from the left, and whether it has a carry-in; -1 beyond its end."""
    total = pairs.sum(1)
    column = (total < HIGH).long() + output  # among five digits, of which short answers lack the first
    inside = column < WIDTH
    index = column.clamp(max=WIDTH - 1).unsqueeze(1)
    digit, carry = digits(total, WIDTH).gather(1, index).squeeze(1), carry_ins(pairs).gather(1, index).squeeze(1)
    return torch.where(inside, digit, -1), carry & inside
