"""Bars: the thresholds of rules, which know the value that a perfect result would have.

A rule takes its bars as keyword arguments, with the ones that the ledger uses as defaults. So
`variants` can judge the same fields again at other bars, and show which verdicts hang on one. Most
rules compare one field with one bar: `at_least` and `below` return these.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from carry_paper.findings.base import Fields, Rule


class Bar(float):
    """A threshold, as a float, with the value of a perfect result.

    Attributes:
        perfect: The value that the claim has at its clearest: 1 for an accuracy that should be
            high, 0 for one that should be low, for a lag, and for the smallest effect that counts.
        chance: The value that says nothing, such as a probe's accuracy on random labels; None if
            there is none.
    """

    perfect: float
    chance: float | int | None

    def __new__(
        cls, value: float | int, perfect: float | int, chance: float | int | None = None
    ) -> "Bar":
        """Return a bar at `value`."""
        bar = super().__new__(cls, value)
        bar.perfect = float(perfect)
        bar.chance = chance
        return bar

    def __getnewargs__(self) -> tuple[Any, ...]:
        return float(self), self.perfect, self.chance

    def at(self, factor: float) -> "Bar":
        """Return the bar at a multiple of its distance from the perfect value.

        For 0.9 of 1 this is 0.95 at a half, and 0.8 at two. It goes no further than chance: beyond
        that, everything would pass.
        """
        value = self.perfect + factor * (self - self.perfect)
        if self.chance is not None:
            is_high = self.perfect > self.chance
            value = max(value, self.chance) if is_high else min(value, self.chance)
        return Bar(round(value, 9), self.perfect, self.chance)


def at_least(bar: Bar, field: str = "value") -> Callable[..., bool]:
    """Return the rule that is True of a run if a field is at least the `bar`."""

    def rule(measured: Fields, *, bar: float = bar) -> bool:
        return bool(measured[field] >= bar)

    return rule


def below(bar: Bar, field: str = "value") -> Callable[..., bool]:
    """Return the rule that is True of a run if a field is less than the `bar`."""

    def rule(measured: Fields, *, bar: float = bar) -> bool:
        return bool(measured[field] < bar)

    return rule


def variants(rule: Rule | None) -> Mapping[str, Rule]:
    """Return a rule with each of its bars in turn at half and at twice its distance from perfect.

    They are named by the argument and its value, as in `cell=0.995`; by the value alone if the
    argument is called `bar`.
    """
    by_name: dict[str, Rule] = {}
    if rule is None:
        return by_name
    for name, parameter in inspect.signature(rule).parameters.items():
        bar = parameter.default
        if isinstance(bar, Bar):
            for factor in (0.5, 2.0):
                other = bar.at(factor)
                words = f"{other:.4g}" if name == "bar" else f"{name}={other:.4g}"
                by_name[words] = partial(rule, **{name: other})
    return by_name
