"""Rows of the ledger that moved since an earlier result: to another verdict, value or rule."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from carry_core.errors import BadInput
from carry_core.ledger.results import VERSION, Row

LAST_BITS = 1e-5  # two processors round the stored digits of one value differently
EXPECTED = "expected what `carry claims --json` writes, or a file of data/results"


def earlier_rows(path: Path, source: str, only: str = "") -> dict[str, Row]:
    """Read an earlier result by id, rows whose id starts with `only`; `BadInput` if it is none, or of another source.

    It is the list of rows that `carry claims --json` writes, or a results file, which says of which source it is.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            if (content["version"], content["source"]) != (VERSION, source):
                raise ValueError(f"version {content['version']} of {content['source']!r}, not {VERSION} of {source!r}")
            content = content["rows"]
        rows = [Row(**row) for row in content]
        for row in rows:
            if not isinstance(row.id, str) or not isinstance(row.verdict, str):
                raise ValueError(f"id {row.id!r} with the verdict {row.verdict!r}")
            _numbers(row.value)
    except OSError as error:
        raise BadInput(f"--against {path} cannot be read ({error.strerror}): {EXPECTED}.") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise BadInput(f"--against {path} holds no rows of {source} ({why}): {EXPECTED}.") from error
    return {row.id: row for row in rows if row.id.startswith(only)}


def moved(before: Mapping[str, Row], after: Mapping[str, Row]) -> list[str]:
    """Say of each row that moved, is new or is gone, in one line, its verdicts, values and rules."""
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
    return old.shape == new.shape and np.allclose(old, new, rtol=LAST_BITS, atol=LAST_BITS, equal_nan=True)


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
