"""English for what is counted and what is listed."""

from collections.abc import Iterable


def counted(number: int, noun: str) -> str:
    """The number and its noun: 1 run, 6 runs."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def named(noun: str, names: Iterable[object]) -> str:
    """The noun and the names of those that are meant: run 3; runs 0, 2."""
    known = list(names)
    return f"{noun}{'' if len(known) == 1 else 's'} {', '.join(map(str, known))}"
