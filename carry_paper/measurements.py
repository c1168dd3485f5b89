"""What was measured, in one table: a row for each run and each quantity.

All that the book judges is a query of this table (`ledger.ledger`), so a changed rule needs no
weights. `ledger.measuring` measures new rows; they replace those of the same run and quantity, and
nothing else is written. The table is in `data/measurements/`, a file for each source.

Values are stored with `DIGITS` significant digits before anything is judged. What a rule decides,
true or false, is not stored.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, Json

from carry_core import runs
from carry_core.errors import BadInput
from carry_core.files import data_dir, reading
from carry_paper.schemas import one_of, read_table, save_table
from carry_train import groups

# Those of a float32, and two more: a share of runs such as 5/6 stays on its side of a bar, which is
# rounded to as many.
DIGITS = 9
# The columns that identify a row. `run` is missing for what is measured on a whole group, `epoch`
# at the end of training, and `sums` if the quantity draws its own.
KEY = ["source", "group", "recipe", "run", "epoch", "quantity", "sums"]
REMEDY = "restore it with `git checkout`, or delete it and run `carry measure`"

Whole = Annotated[float, Field(ge=0, multiple_of=1)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class StoredMeasurements(BaseModel):
    """The columns of the table.

    Attributes:
        source: `ours` or `author`.
        group: The run's group, or the key of a language model.
        recipe: The recipe of the run's training; `paper` for the author's.
        run: The run's number.
        epoch: The epoch of a snapshot, by the paper's count.
        quantity: The function that was measured, such as `heads.staircase`.
        value: What the quantity is about, as JSON; missing if it is not defined.
        variance: The variance that the paper's own random sums add to it.
        fields: What else was measured, as JSON by name. A row without a run whose only field is
            `reason` says why nothing was measured.
        epochs: The epochs of its training that the run has had.
        sha256: That of the run's weights (`runs.digest`), or of its learning curves' file, where
            these were measured; missing for what was never in our hands as a file.
        code: The digest of the code that measured it (`code_digest.digest`); missing for what was
            measured before there were digests, on runs that are gone.
        sums: The number of sums on which a survey was made: all of their length, or as many of
            each carry class.
        ships: 1 if the run is shipped in `data/runs`.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    source: list[Annotated[str, one_of(runs.SOURCES)]]
    group: list[str | None]
    recipe: list[Annotated[str, one_of(groups.RECIPES)] | None]
    run: list[Whole | None]
    epoch: list[Whole | None]
    quantity: list[str]
    value: list[float | int | str | None]
    variance: list[Annotated[float, Field(ge=0)] | None]
    fields: list[Json[dict[str, Any]]]
    epochs: list[Whole | None]
    sha256: list[Sha256 | None]
    code: list[Annotated[str, Field(pattern="^[0-9a-f]{16}$")] | None]
    sums: list[Whole | None]
    ships: list[Literal[0, 1]]


COLUMNS = list(StoredMeasurements.model_fields)
WHOLE = ["run", "epoch", "epochs", "sums"]  # columns of whole numbers
Record = Mapping[str, Any]  # a row of the table
# Rows by what was measured and the epoch of the weights, and then by group.
Records = dict[tuple[str, int | None], dict[str | None, list[Record]]]
REASON = "reason"  # the only field of a row that says why nothing was measured


def path_of(source: str, folder: Path | None = None) -> Path:
    """Return the file with a source's rows, in this data folder (`data_dir()` if None)."""
    return (folder or data_dir()) / "measurements" / f"{source}.csv.gz"


def is_stored(source: str, folder: Path | None = None) -> bool:
    """Return True if a source has a table."""
    return os.path.lexists(path_of(source, folder))


def read(source: str, folder: Path | None = None) -> pd.DataFrame:
    """Return a source's rows, none if nothing was measured; raise `BadInput` for damage."""
    path = path_of(source, folder)
    if not os.path.lexists(path):
        return pd.DataFrame(columns=COLUMNS)
    table = read_table(path, StoredMeasurements, REMEDY, KEY, "measurement")
    with reading(path, REMEDY):
        others = set(table.source) - {source}
        if others:
            raise ValueError(f"it has rows of the source {min(others)}")
        for name in ("value", "fields"):
            texts = table[name].astype(object).where(table[name].notna(), "null").map(str)
            table[name] = pd.Series(map(json.loads, texts), table.index, dtype=object)
        return table.astype(dict.fromkeys(WHOLE, "Int64") | {"variance": float})


def records(table: pd.DataFrame) -> Records:
    """Return rows as dictionaries, with None for what is missing, those of a group in order."""
    rows = table.sort_values("run", na_position="first", kind="stable").astype(object)
    index: Records = {}
    for row in rows.where(rows.notna(), None).to_dict("records"):
        by_group = index.setdefault((row["quantity"], row["epoch"]), {})
        by_group.setdefault(row["group"], []).append(row)
    return index


def write(source: str, table: pd.DataFrame) -> Path:
    """Store a source's rows, sorted by `KEY`, so that a new run is a few new lines."""
    stored = table[COLUMNS].sort_values(KEY, na_position="first")
    for name in ("value", "fields"):
        stored[name] = [None if x is None else json.dumps(to_store(x)) for x in stored[name]]
    stored["variance"] = [to_store(x) for x in stored.variance]
    return save_table(path_of(source), stored)


def to_store(value: Any) -> Any:
    """Return a value as JSON has it: `DIGITS` significant digits, and None for NaN.

    Fields that are true or false are left out: a rule decides them.
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): to_store(x) for k, x in value.items() if not isinstance(x, bool)}
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.{DIGITS}g}")
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [to_store(entry) for entry in value]
    return value


def replaced(table: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """Return a table with new rows in place of those of the same runs and quantities.

    A row that says why nothing was measured replaces no measurement, and makes room for one.

    Raises:
        BadInput: A run that was measured would be left without its value.
    """
    if not len(table):
        return new
    _check_values_stay(table, new)
    both = pd.concat([table, new[COLUMNS]])
    both = both.drop_duplicates(KEY, keep="last")
    place = ["source", "group", "quantity", "epoch"]
    has_reason = both.fields.map(is_reason)
    measured = pd.MultiIndex.from_frame(both[~has_reason][place])
    is_idle = has_reason & pd.MultiIndex.from_frame(both[place]).isin(measured)
    return both[~is_idle]


def _check_values_stay(table: pd.DataFrame, new: pd.DataFrame) -> None:
    """Raise `BadInput` if a run with the same weights had a value and would have none."""
    had_value = _names(table[table.value.notna()])
    has_none = _names(new[new.value.isna()])
    lost = sorted(set(had_value) & set(has_none))
    if lost:
        raise BadInput(
            f"Nothing was saved: {lost[0]} was measured with a value, which it would lose, on the "
            "same weights. Expected a value: if its function is right, take the stored row out."
        )


def _names(table: pd.DataFrame) -> list[str]:
    """Return the name of each row of a run, with the sha256 of what was measured."""
    of_runs = table[table.sha256.notna()]
    return [" ".join(map(str, row)) for row in of_runs[[*KEY, "sha256"]].itertuples(index=False)]


def is_reason(fields: Any) -> bool:
    """Return True for the fields of a row that says why nothing was measured."""
    return isinstance(fields, Mapping) and fields.keys() == {REASON}


def save(rows: pd.DataFrame) -> list[Path]:
    """Store rows of one or both sources in place of those of the same runs and quantities."""
    paths = []
    for source, new in rows.groupby("source"):
        paths.append(write(str(source), replaced(read(str(source)), new)))
    return paths
