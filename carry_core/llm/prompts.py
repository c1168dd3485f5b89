"""The sums that language models are asked, and how their answers are read (Sec. 6, App. A.3-A.4)."""

import re
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from carry_core.errors import BadInput

DIGITS = 4
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


def template(name: str) -> Template:
    """The template called `name`.

    Raises:
        BadInput: there is none.
    """
    if name not in TEMPLATES:
        raise BadInput(f"Unknown template {name!r}: expected one of {', '.join(TEMPLATES)}.")
    return TEMPLATES[name]


def draw(count: int, seed: int = 42) -> Int[Tensor, "prompt 2"]:
    """The paper's four-digit numbers a and b; the first thousand are the author's prompts (App. A.3)."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(LOW, HIGH, (1000, 2), generator=generator)
    if count > 1000:
        more = torch.randint(LOW, HIGH, (count - 1000, 2), generator=generator)
        pairs = torch.cat([pairs, more])
    return pairs[:count]
