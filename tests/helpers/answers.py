"""The answer of a model to one sum, as the playground gives it."""

from typing import Any

import torch

from carry_core import sums
from carry_core.model import Transformer


def answer(model: Transformer, a: int, b: int, *hooks: Any) -> str:
    """The digits that a model answers under some hooks, one after the other."""

    def all_of(name: str, x: torch.Tensor) -> torch.Tensor:
        for hook in hooks:
            x = hook(name, x)
        return x

    tokens = sums.encode(torch.tensor([a]), torch.tensor([b]), model.config.layout)
    digits = model(tokens, all_of)[0, list(model.config.layout.answer)].argmax(-1)
    return "".join(map(str, digits.tolist()))
