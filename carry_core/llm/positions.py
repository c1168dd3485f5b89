"""Where the digits of a sum stand among the tokens of a prompt, from the tokenizer's own offsets.

Nothing is assumed about token ids: a digit belongs to the token whose characters cover it, whether that token is one
digit, a group of them, or brings a space along. `transformers` must have a fast tokenizer for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carry_core.errors import BadInput
from carry_core.llm.prompts import Template


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

    @property
    def length(self) -> int:
        """How many tokens the prompt has."""
        return self.last + 1


def marks(n_digits: int, generated: int) -> list[str]:
    """Axis labels for `Positions.marked` and the generated tokens after them: `*` for a digit, as in the paper."""
    return ["⊢", *"*" * n_digits, "+", *"*" * n_digits, "=", *"•" * generated]


def locate(prompt: str, offsets: Sequence[Sequence[int]], a: int, b: int) -> Positions:
    """Find the sum `a + b` in a prompt whose tokens cover the characters `offsets`.

    Raises:
        BadInput: the prompt has no such sum, or a character of it is in no token.
    """
    text = f"{a} + {b}"
    start = prompt.rfind(text)
    if start < 0:
        raise BadInput(f"The prompt {prompt!r} does not hold the sum {text}: expected {{sum}} in the template.")
    cover = {c: i for i, (left, right) in enumerate(offsets) for c in range(left, right)}
    n, end = len(str(a)), start + len(text)
    try:
        first, plus = (tuple(cover[c] for c in range(start, start + n)), cover[start + n + 1])
        second = tuple(cover[c] for c in range(end - len(str(b)), end))
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
        found = tokenizer(prompt, return_offsets_mapping=True)
        tokens, offsets = found["input_ids"], found["offset_mapping"]
        places = locate(prompt, offsets, a, b)
        chosen = sorted({*places.a, *places.b, places.plus})
        unknown = tokenizer.unk_token_id in {tokens[i] for i in chosen} and tokenizer.unk_token_id is not None
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        digits = "".join(c for c in text if c.isdigit())
        if unknown or f"{a}{b}" not in digits:
            raise BadInput(
                f"The tokenizer cannot write {a} + {b}: its tokens read {text.strip()[-40:]!r}."
                " Expected one with digits and a plus."
            )
