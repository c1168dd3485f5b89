"""Lines of progress on stderr, and numbers in words."""

import sys
import time
from collections.abc import Callable

import click

# Seconds between two lines, on a terminal and elsewhere.
TERMINAL_INTERVAL = 5.0
LOG_INTERVAL = 300.0


def reporter() -> Callable[[str, str, float], None]:
    """Return a function that prints the progress of some work from time to time.

    The function takes a title, a description of the work done, and its share of the whole.
    """
    last = time.monotonic()
    interval = TERMINAL_INTERVAL if sys.stderr.isatty() else LOG_INTERVAL

    def report(title: str, message: str, share: float) -> None:
        nonlocal last
        if share >= 1 or time.monotonic() - last > interval:
            last = time.monotonic()
            click.echo(f"{title}: {message} ({share:.0%})", err=True)

    return report


def counted(n: int, noun: str) -> str:
    """Return a number with its noun: `1 epoch`, `2 epochs`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
