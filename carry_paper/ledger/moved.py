"""Rows of the ledger that moved since an earlier result: to another verdict, value or rule."""

import json
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from carry_core.errors import BadInput
from carry_core.files import data_dir, reading
from carry_core.runs import SOURCES
from carry_paper import measurements
from carry_paper.ledger import claims, ledger
from carry_paper.ledger.results import Row
from carry_train.files import read_text

LAST_BITS = 1e-5  # two processors round the stored digits of one value differently
REMEDY = "name what `carry claims --json` writes, or a commit"


def earlier_rows(name: str, source: str, only: str = "") -> ledger.Rows:
    """Return the rows of an earlier result whose id starts with `only`, by id.

    The name is that of a commit, whose measurements are judged by today's rules, or of a file that
    `--json` wrote, with the verdicts of its day.

    Raises:
        BadInput: It is none of these, or has no measurements of this source.
    """
    path = Path(name)
    if not path.exists() and _is_commit(name):
        with tempfile.TemporaryDirectory() as folder:
            for table_source in SOURCES:
                _extract(name, measurements.path_of(table_source, Path(folder)))
            if not measurements.is_stored(source, Path(folder)):
                raise BadInput(f"{name} has no measurements of {source}: {REMEDY}.")
            by_id = ledger.by_id(source, Path(folder))
            return {claim.id: by_id[claim.id] for claim in claims.chosen(only)}
    text = read_text(path, REMEDY)
    with reading(path, REMEDY):
        rows = [Row(**row) for row in json.loads(text)]
    return {row.id: row for row in rows if row.id.startswith(only)}


def _is_commit(name: str) -> bool:
    """Return True if the repository of the data folder has such a commit."""
    return _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").returncode == 0


def _extract(commit: str, path: Path) -> None:
    """Write a table as it was at a commit; nothing if there was none."""
    content = _git("show", f"{commit}:./measurements/{path.name}")
    if content.returncode == 0:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.stdout)


def _git(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """Return what git says of the data folder; a failure if there is no git."""
    command = ["git", "-C", str(data_dir()), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=False)
    except OSError:
        return subprocess.CompletedProcess(command, 1)


def moved(before: Mapping[str, Row], after: Mapping[str, Row]) -> list[str]:
    """Return a line for each row that moved, is new or is gone: its verdicts, values and rules."""
    lines = []
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            (row,) = filter(None, (old, new))
            words = f"{row.verdict}; value {_text(row.value)}; rule ({_rule(row)})"
            lines.append(f"{name}: new, {words}" if old is None else f"{name}: gone, was {words}")
            continue
        same_rule = _rule(old) == _rule(new)
        if old.verdict != new.verdict or not same_rule or not _equal(old.value, new.value):
            rules = f"rule ({_rule(old)}) -> ({_rule(new)})"
            if same_rule:
                rules = f"same rule ({_rule(new)})"
            values = f"value {_text(old.value)} -> {_text(new.value)}"
            lines.append(f"{name}: {old.verdict} -> {new.verdict}; {values}; {rules}")
    return lines


def _equal(old: Any, new: Any) -> bool:
    """Return True for values, or lists of values, that are equal up to their last bits."""
    old, new = (np.array(value, dtype=float) for value in (old, new))  # None is NaN
    is_close = partial(np.allclose, rtol=LAST_BITS, atol=LAST_BITS, equal_nan=True)
    return old.shape == new.shape and is_close(old, new)


def _rule(row: Row) -> str:
    return "; ".join(filter(None, (row.rule, row.reason))) or "not stored"


def _text(value: Any) -> str:
    if isinstance(value, Iterable):
        return "[" + ", ".join(map(_text, value)) + "]"
    return "none" if value is None else f"{value:.6g}"
