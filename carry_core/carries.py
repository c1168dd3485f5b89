"""Carry patterns: at which positions a sum carries, and what the paper calls them (Sec. 2, App. F).

A pattern has one symbol per digit position, from the left: `1` where the two digits add up to ten
or more, `2` where they add up to nine and there is a carry-in, `0` elsewhere. A position has a
carry-out exactly if its symbol is not `0`.
"""

import math
from collections.abc import Iterable
from functools import cache
from itertools import product

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from carry_core.errors import BadInput, check_whole
from carry_core.sums import (
    MAX_COUNT,
    MAX_DIGITS,
    Numbers,
    Operand,
    checked_sums,
    digit_tokens,
)

MAX_CLASS_DIGITS = 12  # digits of sums whose classes are listed: 28,657 classes
NAMES3 = {"000": "NC", "010": "C@1", "001": "C@2", "011": "C all", "021": "C all con."}


@cache
def patterns(n_digits: int) -> tuple[str, ...]:
    """Return all carry patterns of sums below 10**n_digits: Fibonacci(2 n_digits - 1) of them.

    For three digits they are in the order of the paper's tables: NC, C@1, C@2, C all, C all con.
    """
    check_whole("n_digits", n_digits, 1, MAX_CLASS_DIGITS)
    if n_digits == 3:
        return tuple(NAMES3)
    candidates = ("0" + "".join(symbols) for symbols in product("012", repeat=n_digits - 1))
    possible = filter(is_pattern, candidates)

    def fewest_carries_first(pattern: str) -> tuple[int, list[bool], str]:
        carry_out = [symbol != "0" for symbol in pattern]
        return sum(carry_out), [not carry for carry in carry_out], pattern

    return tuple(sorted(possible, key=fewest_carries_first))


def is_pattern(text: str) -> bool:
    """Return True if some sum has this carry pattern: `021` is a pattern, `020` is not."""
    lacks_carry_in = "20" in text or text.endswith("2")
    return text.startswith("0") and set(text) <= set("012") and not lacks_carry_in


def paper_name(pattern: str) -> str:
    """Return the paper's name of a three-digit pattern, or a longer pattern itself."""
    return NAMES3.get(pattern, pattern)


def symbols(a: Operand, b: Operand, n_digits: int) -> Int[Tensor, "*batch pos"]:
    """Return the pattern of each sum a + b: a symbol 0, 1 or 2 for each position."""
    return _symbols(*_last_digits(a, b, n_digits), n_digits)


def classify(a: Operand, b: Operand, n_digits: int = 3) -> Int[Tensor, "*batch"]:
    """Return the index into `patterns(n_digits)` of the carry class of each sum a + b.

    Only the last `n_digits` digits of the two numbers count.

    Raises:
        BadInput: The last digits of a sum carry further to the left, so that it has no class.
    """
    return class_index(*_last_digits(a, b, n_digits), n_digits)


def _last_digits(
    a: Operand, b: Operand, n_digits: int
) -> tuple[Int[Tensor, "*batch"], Int[Tensor, "*batch"]]:
    """Return the last digits of the two numbers of each sum, checked."""
    check_whole("n_digits", n_digits, 1, MAX_CLASS_DIGITS)
    a, b = checked_sums(a, b, MAX_DIGITS)
    side = 10**n_digits
    return checked_sums(a % side, b % side, n_digits)


def class_index(
    a: Int[Tensor, "*batch"], b: Int[Tensor, "*batch"], n_digits: int
) -> Int[Tensor, "*batch"]:
    """Return the same as `classify`, for sums that have been checked."""
    powers = 3 ** torch.arange(n_digits - 1, -1, -1, device=a.device)
    return _index(n_digits, a.device)[(_symbols(a, b, n_digits) * powers).sum(-1)]


def _symbols(
    a: Int[Tensor, "*batch"], b: Int[Tensor, "*batch"], n_digits: int
) -> Int[Tensor, "*batch pos"]:
    total = digit_tokens(a, n_digits) + digit_tokens(b, n_digits)
    result = (total >= 10).to(torch.int64)
    for i in range(n_digits - 2, -1, -1):
        result[..., i] += 2 * ((total[..., i] == 9) & (result[..., i + 1] > 0))
    return result


@cache
def _index(n_digits: int, device: torch.device) -> Int[Tensor, " number"]:
    """Return the index into `patterns(n_digits)` of each pattern, read as a number in base 3.

    The table is cached, so that it is copied to a device only once.
    """
    table = torch.full((3**n_digits,), -1)
    for i, pattern in enumerate(patterns(n_digits)):
        table[int(pattern, 3)] = i
    return table.to(device)


def carry_in(n_digits: int = 3) -> Bool[Tensor, "carry_class pos"]:
    """Return True where a position has a carry-in: the framed cells of Table 1."""
    rows = []
    for pattern in patterns(n_digits):
        carry_out = [symbol != "0" for symbol in pattern]
        rows.append([*carry_out[1:], False])  # the last position has no neighbour on the right
    return torch.tensor(rows)


def _pairs_at(pattern: str) -> list[Int[Tensor, "pair 2"]]:
    """Return the digit pairs that a pattern allows at each position, whatever is at the others."""
    by_name = {name: digits for digits, name in NAMES3.items()}
    pattern = by_name.get(pattern, pattern)
    if not is_pattern(pattern) or len(pattern) > MAX_DIGITS:
        raise BadInput(
            f"{pattern!r} is no carry pattern: expected a symbol for each digit, such as "
            "'011': 1 where the digits add up to ten or more, 2 where they add up to nine with "
            "a carry-in, else 0, as in the first place."
        )
    a, b = torch.cartesian_prod(torch.arange(10), torch.arange(10)).unbind(1)
    allowed = []
    for i, symbol in enumerate(pattern):
        has_carry_in = i + 1 < len(pattern) and pattern[i + 1] != "0"
        if symbol == "1":
            fits = a + b >= 10
        elif symbol == "2":
            fits = a + b == 9
        else:
            fits = a + b <= (8 if has_carry_in else 9)
        allowed.append(torch.stack([a[fits], b[fits]], 1))
    return allowed


def n_sums_in_class(pattern: str) -> int:
    """Return the number of sums with this pattern: 166,375 for three-digit NC."""
    return math.prod(len(pairs) for pairs in _pairs_at(pattern))


def sample_class(pattern: str, count: int, generator: torch.Generator) -> tuple[Numbers, Numbers]:
    """Return `count` sums drawn independently and uniformly from a carry class, digit by digit.

    Raises:
        BadInput: No sum has this pattern.
    """
    check_whole("count", count, 0, MAX_COUNT, "sums")
    a = torch.zeros(count, dtype=torch.int64)
    b = torch.zeros(count, dtype=torch.int64)
    for pairs in _pairs_at(pattern):
        indices = torch.randint(len(pairs), (count,), generator=generator)
        digit_a, digit_b = pairs[indices].unbind(1)
        a = 10 * a + digit_a
        b = 10 * b + digit_b
    return a, b


def sample_classes(
    patterns: Iterable[str], count: int, generator: torch.Generator
) -> tuple[Numbers, Numbers]:
    """Return `count` sums of each class, drawn as by `sample_class`, one class after the other.

    Raises:
        BadInput: There is no pattern, or no sum has one of them.
    """
    sums_by_class = [sample_class(pattern, count, generator) for pattern in patterns]
    if not sums_by_class:
        raise BadInput("There is no carry pattern to sample: expected at least one, such as 010.")
    a = torch.cat([a for a, _ in sums_by_class])
    b = torch.cat([b for _, b in sums_by_class])
    return a, b
