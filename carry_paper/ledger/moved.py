"""Rows of the ledger that moved since an earlier result: to another verdict, value or rule."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import RootModel

from carry_core.errors import BadInput
from carry_core.files import read_bytes
from carry_paper.ledger.results import Results, Row
from carry_paper.schemas import read_json

LAST_BITS = 1e-5  # two processors round the stored digits of one value differently
REMEDY = "name what `carry claims --json` writes, or a file of data/results"


class Rows(RootModel[list[Row]]):
    """The rows that `carry claims --json` writes."""


def earlier_rows(path: Path, source: str, only: str = "") -> dict[str, Row]:
    """Return the rows of an earlier result whose id starts with `only`, by id.

    A results file is an object, which names its source; `--json` writes a list. `BadInput` is
    raised if the file is neither, or has the rows of another source.
    """
    if not read_bytes(path, REMEDY).lstrip().startswith(b"{"):
        rows = read_json(path, Rows, REMEDY).root
    else:
        results = read_json(path, Results, REMEDY)
        if results.source != source:
            raise BadInput(f"{path} holds rows of {results.source}, not of {source}: {REMEDY}.")
        rows = results.rows
    return {row.id: row for row in rows if row.id.startswith(only)}


def moved(before: Mapping[str, Row], after: Mapping[str, Row]) -> list[str]:
    """Return a line for each row that moved, is new or is gone: its verdicts, values and rules."""
    lines = []
    for name in {**before, **after}:
        if name not in before:
            lines.append(f"{name}: new, {_summary(after[name])}")
        elif name not in after:
            lines.append(f"{name}: gone, was {_summary(before[name])}")
        elif not _same(before[name], after[name]):
            lines.append(f"{name}: {_change(before[name], after[name])}")
    return lines


def _same(old: Row, new: Row) -> bool:
    rules_differ = bool(old.rule) and _rule(old) != _rule(new)  # older results stored none
    return old.verdict == new.verdict and _equal(old.value, new.value) and not rules_differ


def _equal(old: Any, new: Any) -> bool:
    old, new = _numbers(old), _numbers(new)
    return old.shape == new.shape and np.allclose(
        old, new, rtol=LAST_BITS, atol=LAST_BITS, equal_nan=True
    )


def _numbers(value: Any) -> np.ndarray:
    """Return a value, or a list of values, as an array, in which None is NaN."""
    return np.array(value, dtype=float)


def _change(old: Row, new: Row) -> str:
    verdict = f"{old.verdict} -> {new.verdict}"
    value = f"value {_text(old.value)} -> {_text(new.value)}"
    same_rule = f"same rule ({_rule(new)})"
    rules = same_rule if _rule(old) == _rule(new) else f"rule ({_rule(old)}) -> ({_rule(new)})"
    return f"{verdict}; {value}; {rules}"


def _summary(row: Row) -> str:
    return f"{row.verdict}; value {_text(row.value)}; rule ({_rule(row)})"


def _rule(row: Row) -> str:
    return "; ".join(filter(None, (row.rule, row.reason))) or "not stored"


def _text(value: Any) -> str:
    if isinstance(value, Iterable):
        return "[" + ", ".join(map(_text, value)) + "]"
    return "none" if value is None else f"{value:.6g}"
