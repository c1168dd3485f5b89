"""The ledger's rows on runs by both recipes: measured run by run, stored, read back.

`quick` stands in for the paper's protocol. What runs by both recipes measure in the same rows says
for which rows it may (`stand_in`). One table has a row for each run of a group that has both, and
each row of the ledger that is measured on such a run by itself. Rows of runs whose weights no
longer exist stay: a run's rows are replaced only when it is measured anew. The table stores what
was measured. Which runs show a finding is derived from that whenever it is read (`decided`).

Accuracies, also under ablations, are counted on `SUMS` random sums of each carry class, where the
ledger counts them on all sums. Other rows take as many sums as in the ledger.
"""

import json
import math
import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Json

from carry_core import measure, runs
from carry_core.errors import BadInput
from carry_core.files import damaged, data_dir, reading
from carry_core.sums import Numbers
from carry_paper import catalogue
from carry_paper.checksums import save_table
from carry_paper.findings import elsewhere, interchange_maps, typology
from carry_paper.findings.base import CONTEXT, Fields
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import Need
from carry_paper.ledger import registry
from carry_paper.ledger.entries import VALUE, Entry, Picked
from carry_paper.ledger.ledger import stored
from carry_paper.ledger.measuring import Key, of_entry, unforeseen
from carry_paper.ledger.seeds import carry_swaps
from carry_paper.schemas import one_of, read_table
from carry_train import groups

DECIMALS = 5  # places of a stored value
# Of each carry class. A share that is counted on them has a standard error of 0.01, and the same
# sums are taken for all runs.
SUMS = 2_000
# The columns that identify a run, and those that identify a value.
RUN = ["group", "recipe", "run"]
KEY = [*RUN, "id"]
# Without the table, the rows of runs that are gone are lost.
REMEDY = "restore it with `git checkout`; `make recipes` cannot measure runs that are gone"

# Functions whose values are not those of a run: of a whole group, or compared with other groups.
NOT_OF_A_RUN = (elsewhere.elsewhere,)
# Functions that read stored interchange maps. Those of both recipes are never stored at once.
FROM_MAPS = (typology.statements, typology.decoder_algorithm)


def check_name(name: str) -> str:
    """Return the name of a group; raise `ValueError` if it is none."""
    try:
        return groups.find(name).name
    except BadInput as error:
        raise ValueError(str(error)) from error


COMPARED = ("paper", "quick")  # recipes


class StoredValues(BaseModel):
    """The columns of the stored table.

    Attributes:
        group: The run's group.
        recipe: The run's recipe.
        run: The run's number.
        sha256: That of its weights (`runs.digest`).
        sums: The number of sums of each class on which ablations were counted.
        id: The id of the ledger's row.
        value: The value of the row in this run; None if it has none.
        fields: For a finding, whatever else its rule reads or the ledger lists, as JSON by name.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    group: list[Annotated[str, AfterValidator(check_name)]]
    recipe: list[Annotated[str, one_of(COMPARED)]]
    run: list[Annotated[int, Field(ge=0)]]
    sha256: list[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]
    sums: list[Annotated[int, Field(ge=1)]]
    id: list[str]
    value: list[Annotated[float, Field(allow_inf_nan=False)] | None]
    fields: list[Json[dict[str, Any]] | None]


COLUMNS = list(StoredValues.model_fields)


# ---- measuring


def groups_with_both() -> list[str]:
    """Return the groups that have runs of both recipes."""
    return [name for name in groups.GROUPS if all(runs_of(name).values())]


def runs_of(group: str) -> dict[str, dict[int, Path]]:
    """Return the files of a group's first six runs by each recipe."""
    return {recipe: catalogue.find(group, recipe=recipe) for recipe in COMPARED}


def check_group(name: str) -> str:
    """Return the name of a group that has runs of both recipes.

    Raises:
        BadInput: It has none of one of them, or is no group.
    """
    group = groups.find(name).name
    for recipe, files in runs_of(group).items():
        if not files:
            raise BadInput(
                f"{group} has no runs by the recipe {recipe}: expected a group with runs by both, "
                "which are compared. Stored rows of runs that are gone stay."
            )
    return group


@cache
def drawn_sums(group: str) -> tuple[Numbers, Numbers]:
    """Return the sums on which a group's runs are surveyed: `SUMS` of each class."""
    return measure.sample(SUMS, groups.find(group).n_digits, seed=0)


def rows_about(group: str) -> dict[str, Entry]:
    """Return the entries of the ledger's rows that are measured on single runs of a group, by id.

    Some of them are about several groups.
    """
    entries = {}
    for name, entry in registry.ROWS.items():
        is_of_runs = isinstance(entry.field, str) and entry.combine != "standard deviation"
        if group in entry.groups and is_of_runs and entry.function not in NOT_OF_A_RUN:
            entries[name] = entry
    return entries


class Measuring:
    """Measures groups by both recipes; what rows of several groups share is measured once."""

    def __init__(self, report: Callable[[str], object] = lambda done: None) -> None:
        """Prepare for all groups; nothing is loaded yet.

        Args:
            report: A function that is called with a line after each survey, and for each row that
                cannot be measured.
        """
        self.report = report
        self.evidence = {}
        for recipe in COMPARED:

            def surveyed(run: str, recipe: str = recipe) -> None:
                report(f"{run}, {recipe}")

            selection = {name: {"recipe": recipe} for name in groups.GROUPS}
            self.evidence[recipe] = Evidence("ours", {}, surveyed, selection, drawn_sums)

    def group(self, name: str) -> pd.DataFrame:
        """Return the values of a group's runs by both recipes, with the columns of `StoredValues`.

        Raises:
            BadInput: As `check_group`; or weights are damaged.
        """
        group = check_group(name)
        rows = [row for recipe in self.evidence for row in self._rows(group, recipe)]
        return pd.DataFrame(rows, columns=COLUMNS).astype({"fields": object})

    def _rows(self, group: str, recipe: str) -> list[dict[str, Any]]:
        """Return a row for each run of a group by a recipe and each row of the ledger."""
        evidence = self.evidence[recipe]
        loaded = evidence.group(group)
        digests = {run: runs.digest(weights) for run, weights in loaded.weights.items()}
        entries = rows_about(group)
        need = Need()
        for entry in entries.values():
            if entry.need is not None and entry.groups[0] == group:
                need |= entry.need
        # The samples say how uncertain a number is, which is not stored.
        evidence.needs = {group: replace(need, drawn=SUMS)}
        if any(entry.function in FROM_MAPS for entry in entries.values()):
            count = interchange_maps.default_pairs(group)
            swaps = evidence.each(
                group, lambda run, model: carry_swaps(model, count).assign(run=run)
            )
            evidence.maps[group] = pd.concat(swaps.values())

        rows = []
        for name, entry in entries.items():
            for (own_group, run), part in self._measured(name, recipe, entry).items():
                if own_group != group or run is None:
                    continue
                row = {"group": group, "recipe": recipe, "run": run, "sha256": digests[run]}
                fields = stored_fields(part.fields) if entry.rule else None
                rows.append(
                    {**row, "sums": SUMS, "id": name, "value": part.value, "fields": fields}
                )
        return rows

    def _measured(self, name: str, recipe: str, entry: Entry) -> Mapping[Key, Picked]:
        """Return what a row reads of each run; empty if it is impossible on this recipe's."""
        try:
            return of_entry(entry, self.evidence[recipe])
        except BadInput as error:
            reason = str(error)
        except Exception as error:
            reason = unforeseen(error)
        self.report(f"{name}, {recipe}: not measured. {reason}")
        return {}


def stored_fields(fields: Fields) -> Fields:
    """Return fields as they are stored: rounded, and without what is true or false."""
    others = (VALUE, "variance", *CONTEXT)
    values = {name: stored(value) for name, value in fields.items() if name not in others}
    return {name: value for name, value in values.items() if not isinstance(value, bool)}


# ---- what rules decide


def decided(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows with `shows`: True if the run shows a finding, by the current rule.

    It is None for a number, for a run that cannot say, and for a row that the ledger no longer has.

    Raises:
        BadInput: The rows lack a field that a rule reads.
    """
    shows = [_shows(row) for row in table.to_dict("records")]
    return table.assign(shows=pd.Series(shows, table.index, dtype=object))


def _shows(row: Mapping[Hashable, Any]) -> bool | None:
    """Return True if a run shows a finding, else False; None as in `decided`."""
    entry = registry.ROWS.get(row["id"])
    if entry is None or entry.rule is None:
        return None
    group = groups.find(row["group"])
    fields = {name: math.nan if x is None else x for name, x in row["fields"].items()}
    planned = catalogue.epochs_of_recipe(group, row["recipe"])
    context = {"layers": group.config.layers, "planned": planned, "primed": group.primed}
    try:
        answer = entry.rule({"value": row["value"], **fields, **context})
    except KeyError as error:
        raise BadInput(
            f"{path_of()} lacks {error} of {row['id']}, which its rule reads: run "
            f"`carry recipes {group.name} --save`, or take the rows out if those runs are gone."
        ) from error
    return None if answer is None else bool(answer)


# ---- the stored table


def path_of(folder: Path | None = None) -> Path:
    """Return the path of the stored table, in this data folder (`data_dir()` if None)."""
    return (folder or data_dir()) / "results" / "recipes.csv.gz"


def saved(folder: Path | None = None) -> pd.DataFrame:
    """Return the stored table with `shows` (`decided`); raise `BadInput` if it cannot be read.

    The `folder` is as in `path_of`.
    """
    path = path_of(folder)
    table = read_table(path, StoredValues, REMEDY, KEY, "row of a run")
    if len(table[[*RUN, "sha256"]].drop_duplicates()) > len(table[RUN].drop_duplicates()):
        raise damaged(path, "a run has rows of two weights", REMEDY)
    with reading(path, REMEDY):
        fields = table.fields.astype(object).map(json.loads, na_action="ignore")
        return decided(table.assign(value=table.value.astype(float), fields=fields))


def save(rows: pd.DataFrame) -> Path:
    """Store the rows of some runs in place of those of the same runs; all others stay.

    Raises:
        BadInput: The stored table is damaged, or cannot be written.
    """
    tables = [rows[COLUMNS]]
    if os.path.lexists(path_of()):
        stored_rows = saved()[COLUMNS]
        is_measured_anew = stored_rows.set_index(RUN).index.isin(rows.set_index(RUN).index)
        tables.insert(0, stored_rows[~is_measured_anew])
    table = pd.concat(tables).sort_values(KEY).round({"value": DECIMALS})
    table["fields"] = table.fields.map(json.dumps, na_action="ignore")
    return save_table(path_of(), table)
