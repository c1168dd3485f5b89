"""The carry lines of whole groups: measured on all runs, stored with the results, read back.

One table has a row for each run and each column of its sums that can receive a carry
(`carry_line.column_lines`). It stores what was measured. What the criteria decide is derived
whenever the table is read (`decided`).
"""

import gzip
import json
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field, Json
from torch import Tensor

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_core.files import damaged, data_dir, reading
from carry_core.model import Transformer
from carry_paper.checksums import save_listed
from carry_paper.findings import carry_line
from carry_paper.findings.carry_line import ColumnLine, FittedColumn, Stream, Transfer
from carry_paper.schemas import one_of, read_table

PAIRS_OF_PADDED = 2_000  # pairs of a column in padded groups, which have more columns
DONORS = 5  # other runs whose lines are tried in a run
DECIMALS = 4  # places of a stored number
REMEDY = "delete it and run `make lines`"

# The columns that identify a row: `digits` is that of the sums, `reads` names the answer digit.
KEY = ["source", "group", "recipe", "run", "digits", "reads"]
# What `carry_line.line_fields` measures, and `reason` if a run gets too few pairs right.
NUMBERS = [
    *("right", "pairs", "up", "down", "rest_up", "rest_down"),
    *("variance", "dimensions", "late", "attention_up", "attention_down"),
]
# Columns with a list of rows, or with a number for each part, as JSON.
LISTS = ["shares", "steps", "profile", "controls", "columns", "runs"]

Share = Annotated[float, Field(ge=0, le=1)] | None
Whole = Annotated[float, Field(ge=0)] | None
Rows = Json[list[dict[str, float | str]]] | None


class StoredLines(BaseModel):
    """The columns of the stored table."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source: list[Annotated[str, one_of(runs.SOURCES)]]
    group: list[str]
    recipe: list[Annotated[str, one_of(groups.RECIPES)]]
    run: list[Annotated[int, Field(ge=0)]]
    digits: list[Annotated[int, Field(ge=2)]]
    reads: list[Annotated[str, Field(pattern="^pos[0-9]+$")]]
    reason: list[str | None]
    right: list[Share]
    pairs: list[Whole]
    up: list[Share]
    down: list[Share]
    rest_up: list[Share]
    rest_down: list[Share]
    variance: list[Share]
    dimensions: list[Whole]
    late: list[float | None]
    attention_up: list[Share]
    attention_down: list[Share]
    shares: list[Json[dict[str, float]] | None]
    steps: list[Rows]
    profile: list[Rows]
    controls: list[Rows]
    columns: list[Rows]
    runs: list[Rows]


# ---- measuring


def check_group(group: groups.Group) -> groups.Group:
    """Return a group if its runs can have a carry line.

    Raises:
        BadInput: Its models have one layer, or no column of its sums has a carry-in.
    """
    if group.config.layers < 2:
        raise BadInput(
            f"{group.name}: expected a group of two layers or more, such as {groups.MAIN}, "
            "since the line tells what comes before the last layer from what it adds."
        )
    if not carry_line.carry_columns(group.config, group.n_digits):
        raise BadInput(
            f"{group.name} adds numbers of one digit, so that no column has a carry-in: "
            f"expected two digits or more, as in {groups.MAIN}."
        )
    return group


def lengths(group: groups.Group) -> list[int]:
    """Return the numbers of digits of the sums on which a group is measured.

    They are those of most of its training sums, and in a padded group also the whole width.
    """
    return [group.n_digits, group.config.width] if group.padded else [group.n_digits]


def default_pairs(group: groups.Group) -> int:
    """Return the number of pairs of each column in a group."""
    return PAIRS_OF_PADDED if group.padded else carry_line.PAIRS


class RunLines(NamedTuple):
    """The lines of a run for sums of one length, and what other runs' lines are tried on.

    Attributes:
        model: The run's model.
        columns: The columns.
        streams: The streams of sums without any carry, of each column that has a line.
    """

    model: Transformer
    columns: list[ColumnLine]
    streams: list[Float[Tensor, "sums d_model"] | None]


def run_lines(model: Transformer, n_digits: int, count: int) -> RunLines:
    """Return the lines of a run, without what takes up much memory."""
    columns: list[ColumnLine] = []
    streams: list[Tensor | None] = []
    for line in carry_line.column_lines(model, n_digits, count):
        if line.fitted is None:
            columns.append(line)
            streams.append(None)
        else:
            columns.append(ColumnLine(line.fields, _slim(line.fitted)))
            streams.append(carry_line.no_carry_streams(model, line.fitted.column))
    return RunLines(model, columns, streams)


def _slim(fitted: FittedColumn) -> FittedColumn:
    """Return a column's line without the fitting half, and without the parts of the streams."""
    return fitted._replace(
        fit=torch.empty(2, 0, len(fitted.line)), test=Stream(fitted.test.resid_mid, {})
    )


@torch.inference_mode()
def transfers(lines: Mapping[int, RunLines], run: int, index: int) -> list[Transfer]:
    """Return the outcomes of other runs' lines, aligned to this run, in one of its columns.

    The other runs are the `DONORS` that follow it by number; the first follows the last.
    """
    own = lines[run]
    fitted, streams = own.columns[index].fitted, own.streams[index]
    if fitted is None or streams is None:
        return []
    numbers = sorted(lines)
    place = numbers.index(run)
    results = []
    for donor in (numbers[place + 1 :] + numbers[:place])[:DONORS]:
        other = lines[donor]
        other_fitted, other_streams = other.columns[index].fitted, other.streams[index]
        if other_fitted is not None and other_streams is not None:
            line = carry_line.aligned(other_fitted.line, other_streams, streams)
            results.append(carry_line.transfer(own.model, fitted, str(donor), line))
    return results


class Selection(NamedTuple):
    """Runs of a group: our recipe, and the numbers of the runs; None for those that lead."""

    recipe: str | None = None
    numbers: Collection[int] | None = None


def measure_group(
    source: str,
    name: str,
    report: Callable[[str], object] = lambda done: None,
    selection: Selection = Selection(),  # noqa: B008 (it is immutable)
    count: int | None = None,
) -> pd.DataFrame:
    """Return the carry lines of all runs of a group.

    Args:
        source: `ours` or `author`.
        name: The group.
        report: A function that is called with a line after each run.
        selection: The runs.
        count: The number of pairs in each column; the group's default if None.

    Returns:
        A row for each run, length of sums and column, with the columns of `StoredLines`.

    Raises:
        BadInput: As `check_group`; or there are no such runs.
    """
    group = check_group(groups.find(name))
    loaded = runs.load(name, source, recipe=selection.recipe, runs=selection.numbers)
    recipe = loaded.record["recipe"] if source == "ours" else "paper"
    count = count or default_pairs(group)
    rows = []
    for n_digits in lengths(group):
        lines = {}
        for run, model in loaded.models():
            lines[run] = run_lines(model, n_digits, count)
            report(f"{name} run {run}, {n_digits} digits")
        for run, own in lines.items():
            key = {"source": source, "group": name, "recipe": recipe, "run": run}
            for index, column in enumerate(own.columns):
                row = {**key, **column.fields}
                if column.fitted is not None:
                    row["runs"] = carry_line.as_dicts(transfers(lines, run, index))
                rows.append(row)
    return pd.DataFrame(rows, columns=list(StoredLines.model_fields)).astype({"reason": object})


# ---- what the criteria decide


def decided(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows with `on_line`, which is True, False or None (`carry_line.on_one_line`)."""
    on_line = []
    for fields in table.to_dict("records"):
        has_reason = isinstance(fields["reason"], str)
        reason = fields["reason"] if has_reason else None
        on_line.append(carry_line.on_one_line({**fields, "reason": reason}))
    return table.assign(on_line=pd.Series(on_line, table.index, dtype=object))


def by_run(table: pd.DataFrame) -> pd.DataFrame:
    """Return a summary by run and length of sums, of rows with `on_line`.

    Returns:
        The number of `columns` that have a line; the `lowest` interchange accuracy of a line in
        a direction; the most `dimensions` that a column needs; the mean `late` share; and
        `on_line`, which is True if each column's carry is on one line, None if no column has one;
        and `who` writes it (`carry_line.who_writes`).
    """
    rows = []
    for key, columns in table.groupby(KEY[:-1], sort=False):
        measured = columns[columns.on_line.notna()]
        row = {
            **dict(zip(KEY[:-1], key, strict=True)),
            "columns": len(measured),
            "lowest": measured[["up", "down"]].min().min(),
            "dimensions": measured.dimensions.max(skipna=False),
            "late": measured.late.mean(),
            "who": carry_line.who_writes(measured.late.mean()) if len(measured) else "",
            "on_line": bool(measured.on_line.all()) if len(measured) else None,
        }
        rows.append(row)
    return pd.DataFrame(rows).astype({"on_line": object})


# ---- the stored table


def path_of() -> Path:
    """Return the path of the stored table."""
    return data_dir() / "results" / "lines.csv.gz"


def saved() -> pd.DataFrame:
    """Return the stored table with `on_line`; raise `BadInput` if it cannot be read."""
    table = read_table(path_of(), StoredLines, REMEDY)
    if table.duplicated(KEY).any():
        raise damaged(path_of(), "a column of a run stands twice", REMEDY)
    with reading(path_of(), REMEDY):
        for name in LISTS:
            table[name] = table[name].astype(object).map(json.loads, na_action="ignore")
        return decided(table)


def save(rows: pd.DataFrame) -> Path:
    """Store rows in place of those of the same runs; all others stay.

    Raises:
        BadInput: The stored table is damaged, or cannot be written.
    """
    rows = rows[list(StoredLines.model_fields)]
    table = rows
    if os.path.lexists(path_of()):
        table = pd.concat([saved()[rows.columns], rows])
    table = table.drop_duplicates(KEY, keep="last").sort_values(KEY)
    table = table.round(dict.fromkeys(NUMBERS, DECIMALS))
    for name in LISTS:
        table[name] = table[name].map(lambda x: json.dumps(_rounded(x)), na_action="ignore")
    return save_listed(path_of(), gzip.compress(table.to_csv(index=False).encode(), mtime=0))


def _rounded(value: Any) -> Any:
    """Return what a column of `LISTS` holds, with its numbers rounded."""
    if isinstance(value, dict):
        return {name: _rounded(x) for name, x in value.items()}
    if isinstance(value, list):
        return [_rounded(x) for x in value]
    return round(value, DECIMALS) if isinstance(value, float) else value
