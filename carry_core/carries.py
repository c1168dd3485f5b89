"""Carry patterns: at which positions a sum overflows, and the names the paper gives to them (Sec. 2, App. F).

A pattern has one symbol per digit position, from the left: `1` where the two digits add up to ten or
more, `2` where they add up to nine and a one arrives from the right, `0` elsewhere. A position sends a
one to its left neighbour exactly when its symbol is not `0`.
"""

import math
from collections.abc import Iterable
from functools import cache
from itertools import product

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from carry_core.sums import Numbers, digits

NAMES3 = {"000": "NC", "010": "C@1", "001": "C@2", "011": "C all", "021": "C all con."}


@cache
def patterns(n_digits: int) -> tuple[str, ...]:
    """All carry patterns of sums below 10**n_digits; there are Fibonacci(2 n - 1) of them.

    For three digits they come in the order of the paper's tables: NC, C@1, C@2, C all, C all con.
    """
    if n_digits == 3:
        return tuple(NAMES3)
    found = []
    for symbols in product("012", repeat=n_digits - 1):
        receives = [symbol != "0" for symbol in symbols[1:]] + [False]
        if all(symbol != "2" or carry for symbol, carry in zip(symbols, receives, strict=True)):
            found.append("0" + "".join(symbols))
    return tuple(sorted(found, key=lambda p: (sum(s != "0" for s in p), [-(s != "0") for s in p], p)))


def paper_name(pattern: str) -> str:
    """The paper's name for a three-digit pattern; longer patterns are their own name."""
    return NAMES3.get(pattern, pattern)


def symbols(a: Int[Tensor, "*batch"], b: Int[Tensor, "*batch"], n_digits: int) -> Int[Tensor, "*batch pos"]:
    """The pattern of each sum, one symbol 0, 1 or 2 per position."""
    total = digits(a, n_digits) + digits(b, n_digits)
    result = (total >= 10).to(torch.int64)
    for i in range(n_digits - 2, -1, -1):
        result[..., i] += 2 * ((total[..., i] == 9) & (result[..., i + 1] > 0))
    return result


def classify(a: Int[Tensor, "*batch"], b: Int[Tensor, "*batch"], n_digits: int = 3) -> Int[Tensor, "*batch"]:
    """Index into `patterns(n_digits)` of each sum's carry class."""
    powers = 3 ** torch.arange(n_digits - 1, -1, -1, device=a.device)
    return _index(n_digits, a.device)[(symbols(a, b, n_digits) * powers).sum(-1)]


@cache
def _index(n_digits: int, device: torch.device) -> Int[Tensor, " number"]:
    """Index into `patterns(n_digits)` of a pattern that is read as a number with base 3; copied to a device once."""
    table = torch.full((3**n_digits,), -1)
    for i, pattern in enumerate(patterns(n_digits)):
        table[int(pattern, 3)] = i
    return table.to(device)


def carry_in(n_digits: int = 3) -> Bool[Tensor, "task pos"]:
    """Where a position's carry-in is one: the cells of Table 1 at which it has to be added."""
    return torch.tensor([[p[i + 1 : i + 2] in ("1", "2") for i in range(n_digits)] for p in patterns(n_digits)])


def _pairs_at(pattern: str) -> list[Int[Tensor, "pair 2"]]:
    """The digit pairs that each position of a pattern allows; positions are independent of each other."""
    a, b = torch.cartesian_prod(torch.arange(10), torch.arange(10)).unbind(1)
    allowed = []
    for i, symbol in enumerate(pattern):
        receives = i + 1 < len(pattern) and pattern[i + 1] != "0"
        fits = {"0": a + b <= (8 if receives else 9), "1": a + b >= 10, "2": a + b == 9}[symbol]
        allowed.append(torch.stack([a[fits], b[fits]], 1))
    return allowed


def n_sums_in_class(pattern: str) -> int:
    """How many sums have this pattern: 166,375 for NC of three digits."""
    return math.prod(len(pairs) for pairs in _pairs_at(pattern))


def sample_class(pattern: str, count: int, generator: torch.Generator) -> tuple[Numbers, Numbers]:
    """`count` sums drawn independently and uniformly from a carry class, digit by digit."""
    a, b = torch.zeros(count, dtype=torch.int64), torch.zeros(count, dtype=torch.int64)
    for pairs in _pairs_at(pattern):
        digit_a, digit_b = pairs[torch.randint(len(pairs), (count,), generator=generator)].unbind(1)
        a, b = 10 * a + digit_a, 10 * b + digit_b
    return a, b


def sample_classes(patterns: Iterable[str], count: int, generator: torch.Generator) -> tuple[Numbers, Numbers]:
    """`count` sums of each class, one class after the other."""
    drawn = [sample_class(pattern, count, generator) for pattern in patterns]
    return torch.cat([a for a, _ in drawn]), torch.cat([b for _, b in drawn])
