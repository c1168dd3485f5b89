"""The error that is meant for users to read, and checks that raise it."""

import re
from operator import index
from typing import SupportsIndex


class BadInput(ValueError):
    """Wrong input from the caller; the message says what, what was expected and what to do.

    `carry` prints the message on one line and exits with status 2. In Python it is a plain
    `ValueError`, of which a notebook shows this line only. Line breaks in a quoted value, such as
    an array, become spaces.
    """

    def __init__(self, message: str) -> None:
        super().__init__(re.sub(r"\s*[\n\r]\s*", " ", message))

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


def check_whole(name: str, value: object, low: int, high: int, unit: str = "") -> None:
    """Raise `BadInput` unless a parameter is a whole number from `low` to `high`.

    `unit` names what the parameter counts, for the message.
    """
    if type(value) is not int or not low <= value <= high:
        counted = f" of {unit}" if unit else ""
        raise BadInput(
            f"{name}={value!r}: expected a whole number{counted} from {low:,} to {high:,}."
        )


def whole(value: SupportsIndex) -> int:
    """Return a position, a layer or a head as an int; raise `TypeError` if it is none.

    Python takes True for 1, so that a mask would stand for positions; here it does not.
    """
    if str(getattr(value, "dtype", type(value).__name__)).endswith("bool"):
        raise TypeError(f"{value!r} is of a mask")
    return index(value)
