"""The carry line and the nine in whole groups: measured on all runs, stored, read back.

One table has a row for each run and each column of its sums that can receive a carry, with the
sha256 of the run's weights (`runs.digest`): what the line moves and who writes its coordinate
(`carry_line`); what swaps do in each state of the next column (`corners`), what comes of the
critiques (`critiques`), and how much of the loss the algorithm recovers (`scrubbing`). It stores
what was measured. What the criteria decide is derived whenever the table is read (`corner_table`).
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
import torch
from pydantic import BaseModel, ConfigDict, Field, Json

from carry_core import measure, runs
from carry_core.errors import BadInput
from carry_core.files import data_dir, reading
from carry_core.model import Transformer
from carry_paper import catalogue
from carry_paper.findings import carry_line, corners, critiques, scrubbing
from carry_paper.findings.bars import at_least
from carry_paper.findings.base import MAIN
from carry_paper.findings.carry_line import WRITTEN_LATE
from carry_paper.findings.evidence import Evidence
from carry_paper.schemas import one_of, read_table, rounded, save_table
from carry_train import groups

# Of a column in padded groups, which have more columns: pairs, and sums in each state.
PAIRS_OF_PADDED, TUPLES_OF_PADDED = 2_000, 1_000
DECIMALS = 4  # places of a stored number
REMEDY = "restore it with `git checkout`, or delete it and run `make lines`"
NO_LINE = "no line"  # what a run is called that has no late share
WORDS = (*carry_line.WHO_WRITES, NO_LINE)

# The columns that identify a row: `digits` is that of the sums, `reads` names the answer digit.
KEY = ["source", "group", "recipe", "run", "digits", "reads"]
# Columns of `carry_line.column_lines`: numbers, and lists or numbers by part, as JSON.
NUMBERS = ["right", "pairs", "up", "down", "late"]
PARTS = ["shares", "profile"]
# Columns of `columns_by_state`, as JSON; empty for sums of another length than most of
# those that a group was trained on.
BY_STATES = ["states", "line_critiques", "plane_critiques", "gradient_critiques", "losses"]

Share = Annotated[float, Field(ge=0, le=1)] | None
ByName = Json[dict[str, Any]] | None


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
    pairs: list[Annotated[float, Field(ge=0)] | None]
    up: list[Share]
    down: list[Share]
    late: list[float | None]
    shares: list[Json[dict[str, float]] | None]
    profile: list[Json[list[dict[str, float]]] | None]
    states: list[ByName]
    line_critiques: list[ByName]
    plane_critiques: list[ByName]
    gradient_critiques: list[ByName]
    losses: list[ByName]


# ---- measuring


def check_group(group: groups.Group) -> groups.Group:
    """Return a group; raise `BadInput` unless its runs can have a carry line."""
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


class Selection(NamedTuple):
    """Runs of a group: our recipe, and the numbers of the runs; None for those that lead."""

    recipe: str | None = None
    numbers: Collection[int] | None = None


def columns_by_state(
    model: Transformer, n_digits: int, count: int, n_sums: int = scrubbing.SUMS
) -> dict[str, dict[str, Any]]:
    """Return what `BY_STATES` names for each column of a run, by the name of the answer's digit.

    Lines are from `count` sums in each state, losses from `n_sums` random sums. The line by
    gradient is put to the critiques where the difference of means fails.
    """
    generator = torch.Generator().manual_seed(0)
    head = measure.decision_head(model)
    columns: dict[str, dict[str, Any]] = {}
    for column in carry_line.carry_columns(model.config, n_digits):
        of = corners.corners_of(model, column, generator, count)
        fields: dict[str, Any] = {"states": corners.fields_of(model, of, generator)}
        if fields["states"]["reason"] is None:
            line = corners.fitted_bases(of, corners.line_basis)
            plane = corners.fitted_bases(of, corners.plane_basis)
            fields["line_critiques"] = critiques.critiques(model, of, line)
            fields["plane_critiques"] = critiques.critiques(model, of, plane)
            if only_by_gradient(fields["states"]):
                fields["gradient_critiques"] = critiques.of_gradient_line(model, of)
        fields["losses"] = scrubbing.column_losses(model, of, head, generator, n_sums)
        columns[model.config.layout.position_names[column.answer]] = fields
    return columns


def only_by_gradient(states: Mapping[str, Any]) -> bool:
    """Return True if one line moves the carry in each state by gradient, and not by means."""
    by_means, by_gradient = (corners.in_each_state(states[name]) for name in ("line", "gradient"))
    return by_gradient is True and by_means is False


def measure_group(
    source: str,
    name: str,
    report: Callable[[str], object] = lambda done: None,
    selection: Selection = Selection(),  # noqa: B008 (it is immutable)
    count: int | None = None,
) -> pd.DataFrame:
    """Return a row for each run of a group, length of sums and column: those of `StoredLines`.

    `report` is called with a line after each run. `count` is the number of pairs, and of sums in
    each state, of a column; the group's defaults if None.

    Raises:
        BadInput: As `check_group`; or there are no such runs.
    """
    group = check_group(groups.find(name))
    loaded = catalogue.load(name, source, recipe=selection.recipe, runs=selection.numbers)
    recipe = loaded.record["recipe"] if source == "ours" else "paper"
    n_tuples = count or (TUPLES_OF_PADDED if group.padded else corners.TUPLES)
    rows = []
    for run, model in loaded.models():
        key = {"source": source, "group": name, "recipe": recipe, "run": run}
        key["sha256"] = runs.digest(loaded.weights[run])
        states = columns_by_state(model, group.n_digits, n_tuples)
        for n_digits in lengths(group):
            for fields in carry_line.column_lines(model, n_digits, count or default_pairs(group)):
                of_states = states.get(fields["reads"], {}) if n_digits == group.n_digits else {}
                rows.append({**key, **fields, **of_states})
        report(f"{name} run {run}")
    return _as_table(rows)


def lines_of(loaded: runs.Runs, share: float | int = 1) -> pd.DataFrame:
    """Return a summary of each run, as `by_run` gives it, without what swaps do in each state.

    It is made from a `share` of the sums from which the stored lines are.
    """
    group = groups.find(loaded.group)
    count = max(2, round(share * default_pairs(group)))
    n_sums = max(1, round(share * carry_line.PROFILE_SUMS))
    rows = []
    for run, model in loaded.models():
        key = {"source": "", "group": group.name, "recipe": "", "run": run}
        for fields in carry_line.column_lines(model, group.n_digits, count, n_sums):
            rows.append({**key, **fields})
    return by_run(_as_table(rows)).set_index("run")


def _as_table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return rows with the columns of `StoredLines`."""
    table = pd.DataFrame(rows, columns=list(StoredLines.model_fields))
    return table.astype(dict.fromkeys(["reason", *PARTS, *BY_STATES], object))


# ---- a run's lines in short


def by_run(table: pd.DataFrame) -> pd.DataFrame:
    """Return a summary of stored rows by run and length of sums.

    Returns:
        The number of `columns` that have a line; the `lowest` interchange accuracy of a line in
        a direction; the mean `late` share, and the word for it, `who` (`carry_line.who_writes`);
        the most `writers` of a column, heads of the last layer that write its coordinate; and
        `on_line`, which is True if in each column the carry is on one line, in each state
        (`corners.in_each_state`), and None if that was not measured in some column.
    """
    rows = []
    for key, columns in table.groupby(KEY[:-1], sort=False):
        measured = columns[columns.late.notna()]
        config = groups.find(columns.group.iloc[0]).config
        writers = [carry_line.n_writers(shares, config) for shares in measured.shares]
        row = {
            **dict(zip(KEY[:-1], key, strict=True)),
            "columns": len(measured),
            "lowest": measured[["up", "down"]].min().min(),
            "late": measured.late.mean(),
            "writers": max(writers, default=0),
            "who": carry_line.who_writes(measured.late.mean()) if len(measured) else "",
            "on_line": _on_line(columns.states),
        }
        rows.append(row)
    return pd.DataFrame(rows).astype({"on_line": object})


def _on_line(states: Iterable[Any]) -> bool | None:
    """Return True if the carry is on one line in all columns; None if some could not be asked."""
    answers = []
    for fields in states:
        if not isinstance(fields, Mapping) or fields["reason"] is not None:
            return None
        answers.append(corners.in_each_state(fields["line"]))
    return all(answers)


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


# ---- rows of the ledger


def rows_of(evidence: Evidence, group: str = MAIN) -> pd.DataFrame:
    """Return a group's stored rows; raise `BadInput` for a run with none of its own weights."""
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


last_attention_writes = at_least(WRITTEN_LATE)

# ---- the stored table


def path_of(folder: Path | None = None) -> Path:
    """Return the path of the stored table, in another data folder than ours if one is given."""
    return (folder or data_dir()) / "results" / "lines.csv.gz"


def saved(folder: Path | None = None) -> pd.DataFrame:
    """Return the stored table; raise `BadInput` if it cannot be read."""
    path = path_of(folder)
    table = read_table(path, StoredLines, REMEDY, KEY, "column of a run")
    with reading(path, REMEDY):
        for name in (*PARTS, *BY_STATES):
            table[name] = table[name].astype(object).map(json.loads, na_action="ignore")
        return table


def save(rows: pd.DataFrame) -> Path:
    """Store rows in place of those of the same runs; all others stay."""
    table = rows[list(StoredLines.model_fields)]
    if os.path.lexists(path_of()):
        table = pd.concat([saved()[table.columns], table])
    table = table.drop_duplicates(KEY, keep="last").sort_values(KEY)
    table = table.round(dict.fromkeys(NUMBERS, DECIMALS))
    for name in (*PARTS, *BY_STATES):
        table[name] = table[name].map(
            lambda x: json.dumps(rounded(x, DECIMALS)), na_action="ignore"
        )
    return save_table(path_of(), table)
