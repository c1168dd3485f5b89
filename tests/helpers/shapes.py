"""Checks of the shapes in signatures while tests run: `addopts` in pyproject.toml names this."""

import sys
from collections import Counter
from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from typing import Any

from beartype import beartype

Function = Callable[..., Any]

N_CHECKED = 40  # calls of a function in a test, each checked before and after it
calls: Counter[Function] = Counter()
unchecked: set[Any] = set()  # functions that have been called often enough in this test


def check_first_calls(function: Function) -> Function:
    """Return `function` with its annotations checked in the first calls of each test.

    Checks of every call make a forward pass of a small model take half as long again, mostly for
    the thousandth call of the same function from the same line.

    jaxtyping does not pass the function itself, but a stand-in with its signature and its name.
    """
    checked = beartype(function)

    @wraps(function)
    def check(*args: Any, **kwargs: Any) -> Any:
        calls[function] += 1
        if calls[function] == N_CHECKED:
            stop_checking(function.__module__, function.__qualname__)
        return checked(*args, **kwargs)

    return check


def stop_checking(module: str, qualname: str) -> None:
    """Let a function be called without checks until the next test.

    A function that is defined in another one cannot be reached by its name, and is checked on.
    """
    target: Any = sys.modules.get(module)
    for name in qualname.split("."):
        target = vars(target).get(name) if hasattr(target, "__dict__") else None
    if isinstance(target, property):
        target = target.fget
    target = unwrap(getattr(target, "__func__", target))
    if callable(target) and not isinstance(target, type):
        target.__no_type_check__ = True
        unchecked.add(target)


def begin_test() -> None:
    """Check the calls of all functions again."""
    calls.clear()
    for function in unchecked:
        del function.__no_type_check__
    unchecked.clear()
