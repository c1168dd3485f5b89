"""The carry lines of whole groups: measured on all runs, stored with the results, read back.

One table has a row for each run and each column of its sums that can receive a carry
(`carry_line.column_lines`), with the sha256 of the run's weights (`runs.digest`). It stores what
was measured. What the criteria decide is derived whenever the table is read (`decided`).
"""

import json
import math
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field, Json
from torch import Tensor

from carry_core import runs
from carry_core.errors import BadInput
from carry_core.files import data_dir, reading
from carry_core.model import Transformer
from carry_paper import catalogue
from carry_paper.checksums import save_table
from carry_paper.findings import carry_line
from carry_paper.findings.base import MAIN, Fields
from carry_paper.findings.carry_line import (
    CONTROL_MOVES,
    ON_THE_LINE,
    WRITTEN_LATE,
    ColumnLine,
    FittedColumn,
    Stream,
    Transfer,
)
from carry_paper.findings.evidence import Evidence
from carry_paper.schemas import one_of, read_table
from carry_train import groups

PAIRS_OF_PADDED = 2_000  # pairs of a column in padded groups, which have more columns
DONORS = 5  # other runs whose lines are tried in a run
DECIMALS = 4  # places of a stored number
REMEDY = "restore it with `git checkout`, or delete it and run `make lines`"
NO_LINE = "no line"  # what a run is called that has no late share
WORDS = (*carry_line.WHO_WRITES, NO_LINE)

# The columns that identify a row: `digits` is that of the sums, `reads` names the answer digit.
KEY = ["source", "group", "recipe", "run", "digits", "reads"]
# What `carry_line.line_fields` measures, and `reason` if a run gets too few pairs right.
NUMBERS = [
    *("right", "pairs", "up", "down", "rest_up", "rest_down"),
    *("variance", "dimensions", "late", "attention_up", "attention_down"),
]
# Columns with a list of rows, or with a number for each part, as JSON.
LISTS = ["shares", "profile", "controls", "columns", "runs"]

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
    sha256: list[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]
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
    loaded = catalogue.load(name, source, recipe=selection.recipe, runs=selection.numbers)
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
            key["sha256"] = runs.digest(loaded.weights[run])
            for index, column in enumerate(own.columns):
                row = {**key, **column.fields}
                if column.fitted is not None:
                    row["runs"] = carry_line.as_dicts(transfers(lines, run, index))
                rows.append(row)
    return pd.DataFrame(rows, columns=list(StoredLines.model_fields)).astype({"reason": object})


def lines_of(loaded: runs.Runs, share: float | int = 1) -> pd.DataFrame:
    """Return a summary of each run, as `by_run` gives it.

    Args:
        loaded: Runs of two layers or more.
        share: The share of the pairs, and of the random sums, from which the stored lines are.
    """
    group = groups.find(loaded.group)
    count = max(2, round(share * default_pairs(group)))
    n_sums = max(1, round(share * carry_line.PROFILE_SUMS))
    rows = []
    for run, model in loaded.models():
        key = {"source": "", "group": group.name, "recipe": "", "run": run}
        for line in carry_line.column_lines(model, group.n_digits, count, n_sums):
            rows.append({**key, "reason": None, **line.fields})
    table = pd.DataFrame(rows, columns=list(StoredLines.model_fields)).astype({"reason": object})
    return by_run(decided(table)).set_index("run")


# ---- what the criteria decide


def decided(
    table: pd.DataFrame,
    line: float = ON_THE_LINE,
    control: float = CONTROL_MOVES,
) -> pd.DataFrame:
    """Return rows with `on_line`, which is True, False or None (`carry_line.on_one_line`).

    The bars are those of the criterion, unless others are given to see what hangs on them.
    """
    on_line = []
    for fields in table.to_dict("records"):
        has_reason = isinstance(fields["reason"], str)
        reason = fields["reason"] if has_reason else None
        on_line.append(carry_line.on_one_line({**fields, "reason": reason}, line, control))
    return table.assign(on_line=pd.Series(on_line, table.index, dtype=object))


def by_run(table: pd.DataFrame) -> pd.DataFrame:
    """Return a summary by run and length of sums, of rows with `on_line`.

    Returns:
        The number of `columns` that have a line; the `lowest` interchange accuracy of a line in
        a direction; the most `dimensions` that a column needs; the mean `late` share, and the word
        for it, `who` (`carry_line.who_writes`); the most `writers` of a column, heads of the last
        layer that write its coordinate; and `on_line`, which is True if each column's carry is on
        one line, None if no column has a line.
    """
    rows = []
    for key, columns in table.groupby(KEY[:-1], sort=False):
        measured = columns[columns.on_line.notna()]
        config = groups.find(columns.group.iloc[0]).config
        writers = [carry_line.n_writers(shares, config) for shares in measured.shares]
        row = {
            **dict(zip(KEY[:-1], key, strict=True)),
            "columns": len(measured),
            "lowest": measured[["up", "down"]].min().min(),
            "dimensions": measured.dimensions.max(skipna=False),
            "late": measured.late.mean(),
            "writers": max(writers, default=0),
            "who": carry_line.who_writes(measured.late.mean()) if len(measured) else "",
            "on_line": bool(measured.on_line.all()) if len(measured) else None,
        }
        rows.append(row)
    return pd.DataFrame(rows).astype({"on_line": object})


def leading(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the author's runs, and of ours those of each group's leading recipe.

    That is `paper` where the table has it. A group may have rows of `quick` as well.
    """
    by_paper = rows[rows.recipe == "paper"]
    has_paper = rows.group.isin(by_paper[by_paper.source == "ours"].group.unique())
    return rows[(rows.source == "author") | (rows.recipe == "paper") | ~has_paper]


def of_weights(table: pd.DataFrame, loaded: runs.Runs) -> pd.DataFrame:
    """Return the rows of some runs, as far as they are of the weights that are here."""
    recipe = loaded.record["recipe"] if loaded.source == "ours" else "paper"
    rows = table[(table.source == loaded.source) & (table.group == loaded.group)]
    rows = rows[(rows.recipe == recipe) & rows.run.isin(loaded.numbers)]
    present = {run: runs.digest(weights) for run, weights in loaded.weights.items()}
    return rows[rows.sha256 == rows.run.map(present)]


def own_length(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows on sums as long as most of those that their group was trained on."""
    return rows[rows.digits == rows.group.map(lambda name: groups.find(name).n_digits)]


def all_controls(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each control of each column: `carry_line.Control` and the column's key."""
    return _unfolded(rows, "controls")


def all_transfers(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each line that was tried elsewhere: `carry_line.Transfer` and the key.

    `line of` says whether it is that of `another column` of the run, or of `another run`.
    """
    parts = []
    for name, of in (("columns", "another column"), ("runs", "another run")):
        parts.append(_unfolded(rows, name).assign(**{"line of": of}))
    return pd.concat(parts, ignore_index=True)


def _unfolded(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return a row for each entry of a column that holds lists of rows, with the key."""
    unfolded = []
    for row in rows.to_dict("records"):
        key = {column: row[column] for column in KEY}
        entries = row[name] if isinstance(row[name], list) else []
        unfolded += [{**key, **entry} for entry in entries]
    return pd.DataFrame(unfolded)


# ---- rows of the ledger


def rows_of(evidence: Evidence, group: str = MAIN) -> pd.DataFrame:
    """Return the stored rows of the runs of a group that the ledger is about.

    Raises:
        BadInput: A run has no stored line, or one of other weights than are here.
    """
    loaded = evidence.group(group)
    rows = of_weights(saved(), loaded)
    missing = sorted(set(loaded.numbers) - set(rows.run))
    if missing:
        raise BadInput(
            f"{group}: no carry line of run {', '.join(map(str, missing))} is stored, with the "
            f"weights that are here: run `carry lines --source {evidence.source} {group} --save`."
        )
    return rows


def written_late(evidence: Evidence) -> pd.DataFrame:
    """Late share of each run, and the number of heads that write the coordinate."""
    summary = by_run(rows_of(evidence)).set_index("run")
    return pd.DataFrame({"value": summary.late, "writing_heads": summary.writers})


def last_attention_writes(measured: Fields, *, share: float = WRITTEN_LATE) -> bool | None:
    """Return True if the last attention writes the whole coordinate.

    A run without a line can't say.
    """
    if math.isnan(measured["value"]):
        return None
    return bool(measured["value"] >= share)


# ---- the stored table


def path_of(folder: Path | None = None) -> Path:
    """Return the path of the stored table, in another data folder than ours if one is given."""
    return (folder or data_dir()) / "results" / "lines.csv.gz"


def saved(folder: Path | None = None) -> pd.DataFrame:
    """Return the stored table with `on_line`; raise `BadInput` if it cannot be read."""
    path = path_of(folder)
    table = read_table(path, StoredLines, REMEDY, KEY, "column of a run")
    with reading(path, REMEDY):
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
    return save_table(path_of(), table)


def _rounded(value: Any) -> Any:
    """Return what a column of `LISTS` holds, with its numbers rounded."""
    if isinstance(value, dict):
        return {name: _rounded(x) for name, x in value.items()}
    if isinstance(value, list):
        return [_rounded(x) for x in value]
    return round(value, DECIMALS) if isinstance(value, float) else value
