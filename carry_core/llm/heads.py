"""Heads of a language model: named, drawn in pairs, and ablated (Sec. 6, Tab. 2)."""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import combinations, product
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from carry_core.errors import BadInput
from carry_core.llm.architecture import Size, blocks

Head = tuple[int, int]
Heads = tuple[Head, ...]
FREQUENT = 8  # the author's list of most frequent winners, from which he took pairs (App. A.3)


def parse(text: str, size: Size) -> Heads:
    """Read heads such as `13:23,15:15`, layer before head, both from 0.

    Raises:
        BadInput: that is not how heads are written, or the model has no such head.
    """
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+):(\d+)\s*", part, re.ASCII)
        if match is None:
            raise BadInput(f"--ablate {text}: expected heads as layer:head, such as 13:23,15:15.")
        head = int(match[1]), int(match[2])
        check([head], size)
        found.append(head)
    return tuple(sorted(set(found)))


def check(heads: Iterable[Head], size: Size) -> None:
    """See that the model has these heads.

    Raises:
        BadInput: it has not.
    """
    for layer, head in heads:
        if layer >= size.layers or head >= size.heads:
            raise BadInput(
                f"No head {layer}:{head}: expected a layer from 0 to {size.layers - 1}"
                f" and a head from 0 to {size.heads - 1}."
            )


def name(heads: Heads) -> str:
    """Heads as the command line takes them."""
    return ",".join(f"{layer}:{head}" for layer, head in heads)


def listed(heads: Heads) -> str:
    """Heads as a sentence lists them."""
    return name(heads).replace(",", ", ")


@contextmanager
def ablated(model: Any, heads: Heads) -> Iterator[None]:
    """Without these heads: what they give the output projection is zero; its bias stays.

    Raises:
        BadInput: no such head.
    """
    size = Size.of(model.config)
    check(heads, size)
    layers = blocks(model)
    handles = []
    for layer in {layer for layer, _ in heads}:
        chosen = [head for l, head in heads if l == layer]

        def silence(module: nn.Module, args: tuple[Tensor, ...], chosen: list[int] = chosen) -> tuple[Tensor, ...]:
            z = args[0].unflatten(-1, (size.heads, size.d_head)).clone()
            z[..., chosen, :] = 0
            return (z.flatten(-2), *args[1:])

        handles.append(layers[layer].projection.register_forward_pre_hook(silence))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def most_frequent(wins: Int[Tensor, "layer head"], count: int = FREQUENT) -> Heads:
    """The heads that win most often, the most frequent first; of equals the earlier; none that never wins."""
    order = wins.flatten().sort(descending=True, stable=True).indices[:count].tolist()
    return tuple(divmod(i, wins.shape[1]) for i in order if wins.flatten()[i] > 0)


def frequent_pairs(wins: Int[Tensor, "layer head"], count: int) -> list[Heads]:
    """Pairs among the most frequent winners, the most frequent pair first (App. A.3)."""
    heads = most_frequent(wins)
    pairs = sorted(combinations(heads, 2), key=lambda pair: -sum(int(wins[head]) for head in pair))
    return [tuple(sorted(pair)) for pair in pairs[:count]]


def random_pairs(size: Size, count: int, others: Collection[Head], seed: int) -> list[Heads]:
    """As many pairs drawn from all heads but `others`, none twice; fewer if there are no more."""
    every = [head for head in product(range(size.layers), range(size.heads)) if head not in others]
    left = list(combinations(every, 2))
    order = torch.randperm(len(left), generator=torch.Generator().manual_seed(seed))
    return [left[i] for i in order[:count].tolist()]
