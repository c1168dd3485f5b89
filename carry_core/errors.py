"""The error that is meant for users to read, and checks that raise it."""

import re
import sys
from collections.abc import Collection
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


def check_flag(name: str, value: object) -> None:
    """Raise `BadInput` unless a parameter is True or False; another value may stand for either."""
    if type(value) is not bool:
        raise BadInput(f"{name}={value!r}: expected True or False.")


def check_whole(name: str, value: object, low: int, high: int, unit: str = "") -> None:
    """Raise `BadInput` unless a parameter is a whole number from `low` to `high`.

    `unit` names what the parameter counts, for the message.
    """
    if type(value) is not int or not low <= value <= high:
        kind = " is text" if isinstance(value, str) else ""
        counted = f" of {unit}" if unit else ""
        raise BadInput(
            f"{name}={value!r}{kind}: expected a whole number{counted} from {low:,} to {high:,}."
        )


def check_some(name: str, values: Collection[object]) -> None:
    """Raise `BadInput` if there are none of what a parameter lists."""
    if len(values) == 0:
        raise BadInput(f"{name}={values!r}: expected at least one.")


def whole(value: SupportsIndex) -> int:
    """Return a whole number as an int, such as a position, a layer or a head.

    Python takes True for 1, so that a mask would stand for positions; here it does not.

    Raises:
        TypeError: It is no whole number.
    """
    if str(getattr(value, "dtype", type(value).__name__)).endswith("bool"):
        raise TypeError(f"{value!r} is of a mask")
    return index(value)


# Where modules and names have gone that were elsewhere before version 0.1.0; until 1.0.
MOVED = {
    "carry_core.fast": "carry_fast",
    "carry_core.groups": "carry_train.groups",
    "carry_core.curves": "carry_train.curves, and its `load_curves` is in carry_paper.catalogue",
    "carry_paper.training": "carry_train, and its benchmarks are in carry_paper.bench",
}


def moved(module: str, names: str, name: str) -> Exception:
    """Return the error that a module lacks a name, one of `names` if it is in carry_train.files."""
    if name in names.split():
        return ImportError(f"{module}.{name} is now in carry_train.files: import it from there.")
    return AttributeError(f"module {module!r} has no attribute {name!r}", name=name)


class MovedModules:
    """The last of Python's finders of modules: it says where one has gone."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raise `ImportError` for a module that was moved; leave others to fail as usual."""
        if name in MOVED:
            raise ImportError(f"{name} is now {MOVED[name]}: import it from there.", name=name)


sys.meta_path.append(MovedModules)
