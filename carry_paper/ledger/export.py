"""The ledger's rows as one table, for `carry results --csv` and pages."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from carry_core.runs import SOURCES
from carry_paper import measurements
from carry_paper.ledger import ledger
from carry_paper.ledger.results import Row

NUMBER = ".6g"  # what a float32 holds


def table(rows: Mapping[str, Iterable[Row]]) -> pd.DataFrame:
    """Return a line for each row of each source; lists are written as JSON.

    `book/reading.md` says what the columns have.
    """
    records = []
    for source, rows_of_source in rows.items():
        for row in rows_of_source:
            records.append(_record(source, row))
    return pd.DataFrame(records, dtype=object)


def stored() -> pd.DataFrame:
    """Return the table of all rows that are stored, of both sources."""
    sources = filter(measurements.is_stored, SOURCES)
    return table({source: ledger.by_id(source).values() for source in sources})


def csv_text(data: pd.DataFrame, number: str = NUMBER) -> str:
    """Return a table as CSV: numbers with six digits or as asked, nothing for what is missing."""
    texts = {}
    for i in range(data.shape[1]):
        texts[i] = [_text(value, number) for value in data.iloc[:, i]]
    frame = pd.DataFrame(texts)
    frame.columns = pd.Index([str(name) for name in data.columns])
    text: str = frame.to_csv(index=False, lineterminator="\n")
    return text


def _text(value: Any, number: str) -> str:
    """Return a cell as text."""
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else f"{value + 0.0:{number}}"
    return "" if value is None or value is pd.NA else str(value)


def _record(source: str, row: Row) -> dict[str, Any]:
    """Return a row's line, by column."""
    low: Any = None
    high: Any = None
    if row.interval is not None:
        low, high = (list(ends) for ends in zip(*row.interval, strict=True))
        if len(low) == 1:
            low, high = low[0], high[0]
    record = {
        "source": source,
        "id": row.id,
        "where": row.where,
        "groups": " ".join(row.groups),
        "paper": row.paper,
        "value": row.value,
        "std": row.std,
        "low": low,
        "high": high,
        "tolerance": row.tolerance,
        "verdict": row.verdict,
        "n": row.n,
        "runs": row.keys or None,
        "values": row.runs or None,
        "shows": row.fields.get("shows"),
        "fields": row.measured or None,
        "settles": row.settles,
        "cause": row.why.cause if row.why else "",
        "why": row.why.text if row.why else "",
        "rule": row.rule,
        "reason": row.reason,
        "detail": row.detail,
    }
    return {name: _plain(value) for name, value in record.items()}


def _plain(value: Any) -> Any:
    """Return a list, or lists by name, as JSON; anything else as it is."""
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value
