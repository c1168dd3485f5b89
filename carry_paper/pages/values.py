"""Numbers and lists of runs for a page's sentences, made from computed results."""

from collections.abc import Collection, Sequence
from typing import Any

import pandas as pd

MOST_IN_A_ROW = 6  # numbers of runs in a row that are listed one by one; more become a range


def listed_runs(numbers: Collection[Any]) -> str:
    """Return a list of runs such as `(0, 1 and 3)`, which follows their count on a page."""
    *earlier, last = in_ranges([*numbers]) or ["none"]
    return f"({', '.join(earlier)} and {last})" if earlier else f"({last})"


def in_ranges(names: Sequence[Any]) -> list[str]:
    """Return the numbers of runs in order, with ranges such as `6–63`, and other names as given."""
    listed: list[str] = []
    row: list[int] = []
    for name in [*names, None]:
        is_number = name is not None and str(name).isdecimal()
        if is_number and row and int(name) == row[-1] + 1:
            row.append(int(name))
            continue
        if len(row) > MOST_IN_A_ROW:
            listed.append(f"{row[0]}–{row[-1]}")
        else:
            listed += map(str, row)
        row = [int(name)] if is_number else []
        if name is not None and not is_number:
            listed.append(str(name))
    return listed


def spans(**values: Any) -> dict[str, Any]:
    """Return the lowest and the highest of several lists of values, as `…_low` and `…_high`."""
    ends = {}
    for name, numbers in values.items():
        series = pd.Series(numbers)
        ends[f"{name}_low"] = series.min()
        ends[f"{name}_high"] = series.max()
    return ends
