"""The processor of this machine, asked in one place, as data that a test can replace.

Modules call it as `processor.this()`, so that a replacement takes effect, and what they cache has
the processor in its key.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Processor:
    """A processor as Linux describes it; on other systems both fields are empty."""

    model: str = ""
    instructions: frozenset[str] = frozenset()


@cache
def this() -> Processor:
    """Return this machine's processor."""
    info = Path("/proc/cpuinfo")
    return parse(info.read_text() if info.exists() else "")


def parse(info: str) -> Processor:
    """Return the first processor of a text like Linux's `/proc/cpuinfo`."""
    # ARM's list is called Features.
    instructions = f"{_entry(info, 'flags')} {_entry(info, 'Features')}".split()
    return Processor(_entry(info, "model name"), frozenset(instructions))


def _entry(info: str, name: str) -> str:
    """Return the first entry of this name; "" if there is none."""
    match = re.search(rf"^{name}\s*: (.+)", info, re.MULTILINE)
    return match[1] if match else ""
