"""The ledger as a query: a row with a verdict for each claim, from what was measured.

A claim names a rule, its entry in the registry names a quantity, and the table of measurements has
that quantity's value in each run. Nothing here needs weights. Whatever a rule decides is derived
when a row is read, in one place: a run of which the value is missing cannot say.
"""

import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from carry_core import runs
from carry_core.errors import BadInput
from carry_core.runs import Runs
from carry_paper import catalogue, measurements
from carry_paper.findings.bars import variants
from carry_paper.findings.base import Rule
from carry_paper.ledger import claims, exchangeability, registry, verdicts, whys
from carry_paper.ledger.claims import Claim
from carry_paper.ledger.entries import COMBINE, VALUE, Entry, Picked, name_of, picked
from carry_paper.ledger.exchangeability import AS_PRINTED, TableTest
from carry_paper.ledger.language_models import HOW
from carry_paper.ledger.results import Row
from carry_paper.measurements import REASON
from carry_train import groups
from carry_train.files import sha256

DECIMALS = 6  # of a derived number, whose last bits depend on the processor
# Two rows are one measurement if their values are perfectly correlated over so many runs.
RUNS_TO_COMPARE = 6
CORRELATION_ROUNDING = 1e-6

RUN_AND_QUANTITY = [name for name in measurements.KEY if name != "sums"]

Record = Mapping[str, Any]  # a row of the table of measurements
Rows = Mapping[str, Row]
Answers = Mapping[str, Sequence[bool]]  # what each run shows of a finding, by group


# ---- the rows of a source


def by_id(source: str, folder: Path | None = None) -> Rows:
    """Return the ledger of a source, by id; empty if nothing of it was measured.

    It is judged from the table in this data folder (`data_dir()` if None), each row when it is
    first asked for.

    Raises:
        BadInput: The table is damaged.
    """
    return query(source, folder) if measurements.is_stored(source, folder) else {}


def rows(source: str, only: str = "") -> Rows:
    """Return the row of each claim whose id starts with `only`, also if nothing was measured."""
    judged = query(source)
    return {claim.id: judged[claim.id] for claim in claims.chosen(only)}


def query(source: str, folder: Path | None = None) -> "Query":
    """Return the rows of a source, as they follow from the tables in a data folder."""
    versions: list[Any] = [id(claims.claims())]
    for name in runs.SOURCES:
        path = measurements.path_of(name, folder)
        versions.append((path, path.stat().st_mtime_ns if os.path.lexists(path) else 0))
    return _query(source, folder, tuple(versions))


@lru_cache(maxsize=8)
def _query(source: str, folder: Path | None, versions: tuple[Any, ...]) -> "Query":
    author = _query("author", folder, versions).measured if source == "ours" else None
    return Query(Measured(source, measurements.read(source, folder)), author)


class Measured:
    """One source's measurements, by quantity; of each group the runs that lead.

    Of a run that was surveyed on several sets of sums, the largest one counts.

    Attributes:
        source: `ours` or `author`.
        runs: The numbers of the runs that were measured, by group.
        digests: The sha256 of their weights and of their learning curves, by group.
    """

    def __init__(self, source: str, table: pd.DataFrame, *, all_runs: bool = False) -> None:
        """Choose the runs: the first six by the leading recipe of each group, or `all_runs`."""
        self.source = source
        self._records: dict[tuple[str, int | None], list[Record]] = {}
        self._reasons: dict[tuple[str, str, int | None], str] = {}
        ordered = table.sort_values("sums", na_position="first", kind="stable")
        lasting = ordered[~ordered.duplicated(RUN_AND_QUANTITY, keep="last")].sort_index()
        records = [_with_plain_numbers(record) for record in lasting.to_dict("records")]
        leading = {} if all_runs or source == "author" else leading_recipes(records)
        self.runs: dict[str, set[int]] = {}
        self.digests: dict[str, set[str]] = {}
        for record in records:
            key = (record["quantity"], record["epoch"])
            if measurements.is_reason(record["fields"]):
                self._reasons[record["group"] or "", *key] = record["fields"][REASON]
                continue
            run = record["run"]
            recipe = leading.get(record["group"], record["recipe"])
            if record["recipe"] != recipe or (leading and run not in (None, *runs.FIRST)):
                continue
            if run is not None and record["epoch"] is None:
                self.runs.setdefault(record["group"], set()).add(run)
            if record["sha256"] is not None:
                self.digests.setdefault(record["group"], set()).add(record["sha256"])
            self._records.setdefault(key, []).append(record)

    def of(self, quantity: str, places: Collection[str], epoch: int | None = None) -> list[Record]:
        """Return the records of a quantity in the order of some groups; of all if none is named."""
        records = self._records.get((quantity, epoch), [])
        if not places:
            return records
        order = {place: i for i, place in enumerate(places)}
        chosen = [record for record in records if record["group"] in order]
        return sorted(chosen, key=lambda record: (order[record["group"]], record["run"] or 0))

    def reason(self, entry: Entry) -> str:
        """Return why nothing was measured for a row."""
        for place in entry.places or ("",):
            reason = self._reasons.get((place, entry.quantity, entry.epoch))
            if reason is not None:
                return reason
        return f"Not measured yet: `carry measure --source {self.source}` does it."


def _with_plain_numbers(record: Mapping[Any, Any]) -> Record:
    """Return a record with None for a missing number, group or recipe."""
    return {str(name): None if _is_missing(x) else x for name, x in record.items()}


def _is_missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def leading_recipes(records: Iterable[Record]) -> dict[str, str]:
    """Return the recipe that leads in each group, by the rule of `catalogue.find`.

    That is `paper` if enough of its runs were measured; else the one of which most were. Runs that
    do not ship count only where none does.
    """
    measured: dict[str, dict[tuple[int, str], set[int]]] = {}
    for record in records:
        if record["run"] is not None and record["run"] in runs.FIRST:
            by_recipe = measured.setdefault(record["group"], {})
            by_recipe.setdefault((record["ships"], record["recipe"]), set()).add(record["run"])
    leading = {}
    for group, by_recipe in measured.items():
        shipping = max(ships for ships, _ in by_recipe)
        numbers = {}
        for (ships, name), run_numbers in by_recipe.items():
            if ships == shipping:
                numbers[name] = run_numbers
        if len(numbers.get("paper", ())) >= catalogue.ENOUGH:
            leading[group] = "paper"
            continue
        epochs = {name: catalogue.epochs_of_recipe(groups.find(group), name) for name in numbers}
        leading[group] = max(numbers, key=lambda name: (len(numbers[name]), epochs[name]))
    return leading


# ---- one row


class NotRun(Exception):
    """There is nothing on which a row can be judged; the message is the reason."""


@dataclass(frozen=True)
class Combined:
    """What a row's runs say together.

    Attributes:
        row: The row, without a verdict.
        noise: The standard deviation that the paper's own random sums add to the value.
        n_runs: The number of the runs behind it.
        shows_at: What each run shows at other bars, by `bars.variants`.
        shows_without: What each run shows if a control run is left out, by that run in words.
        counted_at: Which runs are counted at other bars, 1 or 0 for each, by `bars.variants`.
        place: The place, among the runs, of the only one that a finding is about; None if it is
            about all of them.
    """

    row: Row
    noise: float = 0.0
    n_runs: int = 0
    shows_at: Mapping[str, list[bool | None]] = field(default_factory=dict)
    shows_without: Mapping[str, list[bool | None]] = field(default_factory=dict)
    counted_at: Mapping[str, list[float]] = field(default_factory=dict)
    place: int | None = None

    def by_group(self, shows: Sequence[bool | None]) -> Answers:
        """Return what those runs show that the finding is about, and that can say."""
        keys = self.row.keys
        if self.place is not None:
            keys, shows = [keys[self.place]], [shows[self.place]]
        groups: dict[str, list[bool]] = {}
        for key, answer in zip(keys, shows, strict=True):
            if answer is not None:
                groups.setdefault(key.rpartition(" ")[0], []).append(answer)
        return groups

    def answers(self, bar: str = "") -> Answers:
        """Return what runs show at the rule's own bar, or at another; nothing if it has no such."""
        shows = self.shows_at.get(bar) if bar else self.row.fields.get("shows")
        return {} if shows is None else self.by_group(shows)


class Query(Rows):
    """The rows of one source, each judged when it is first asked for.

    Ours are compared with the author's.
    """

    def __init__(self, measured: Measured, author: Measured | None = None) -> None:
        self.source = measured.source
        self.measured = measured
        self.author = author
        self.claims = claims.claims()
        self.judged: dict[str, Row] = {}
        self.table_tests: dict[str, TableTest] = {}

    def __getitem__(self, name: str) -> Row:
        """Return the row of a claim with its verdict; raise `KeyError` if there is no such id."""
        if name not in self.judged:
            self.judged[name] = self._judged(self.claims[name])
        return self.judged[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.claims)

    def __len__(self) -> int:
        return len(self.claims)

    def __contains__(self, name: object) -> bool:
        return name in self.claims

    def _judged(self, claim: Claim) -> Row:
        try:
            combined = combine(claim, self.measured)
        except (BadInput, NotRun) as error:
            row = replace(unmeasured(claim), detail=str(error))
            return explained(row, claim, self.source)
        table = self.table_test(claim.table) if self.source == "ours" and claim.table else None
        theirs = combined_if_run(claim, self.author) if self.author is not None else None
        return judged(claim, self.source, combined, theirs, table)

    def table_test(self, name: str) -> TableTest:
        """Return the comparison of our runs with the author's over all cells of a table."""
        if name not in self.table_tests:
            cells = [claim for claim in claims.claims().values() if claim.table == name]
            ours = values_of(cells, self.measured)
            theirs = values_of(cells, self.author)
            test = exchangeability.compare(name, ours, theirs)
            rounded = {field: stored(value) for field, value in asdict(test).items()}
            rounded["chances"] = test.chances
            self.table_tests[name] = TableTest(**rounded)
        return self.table_tests[name]


def values_of(cells: Iterable[Claim], measured: Measured | None) -> exchangeability.Array:
    """Return the cells of a table by `[run, cell]`; without runs if it was not run."""
    values = []
    for cell in cells:
        combined = combined_if_run(cell, measured) if measured is not None else None
        values.append(combined.row.runs if combined is not None else [])
    return np.array(values, dtype=float).T


def combined_if_run(claim: Claim, measured: Measured) -> Combined | None:
    """Return what the runs of a claim say together; None if it was not run."""
    try:
        return combine(claim, measured)
    except (BadInput, NotRun):
        return None


def unmeasured(claim: Claim) -> Row:
    """Return the row of a claim for which nothing is measured yet."""
    return Row(
        claim.id,
        claim.where,
        claim.paper,
        rule=verdicts.rule_text(claim),
        reason=registry.reason(claim),
        groups=list(registry.entry(claim.id).all_groups),
    )


def explained(row: Row, claim: Claim, source: str) -> Row:
    """Return a row of a source with the reason why it is not reproduced, if its claim has one."""
    by_quick = partial(shown_by, whys.QUICK, claim)
    return replace(row, why=whys.why(row, claim, source, by_quick))


def shown_by(recipe: str, claim: Claim) -> list[bool]:
    """Return whether each of our runs by a recipe shows a finding; runs that cannot say are out."""
    entry = registry.entry(claim.id)
    assert entry.rule is not None
    stored = measurements.read("ours")
    measured = Measured("ours", stored[stored.recipe == recipe], all_runs=True)
    shows = []
    for record in measured.of(entry.quantity, entry.groups, entry.epoch):
        shows.append(says(entry.rule, rule_fields(record, picked(whole(record), str(entry.field)))))
    return [answer for answer in shows if answer is not None]


def combine(claim: Claim, measured: Measured) -> Combined:
    """Return what the runs of a claim say together.

    Raises:
        NotRun: None was measured, or none can be judged.
        BadInput: The runs are too few to be combined, or a field is missing.
    """
    entry = registry.entry(claim.id)
    if entry.constant is not None:
        return Combined(replace(unmeasured(claim), value=entry.constant))
    records = judged_records(claim, entry, measured)
    if entry.rule is not None:
        return _finding(claim, entry, records, measured)
    return _number(claim, entry, records, measured)


def judged_records(claim: Claim, entry: Entry, measured: Measured) -> list[Record]:
    """Return the records of the runs that a row is judged on.

    A row that depends on the recipe is judged on runs by the paper's protocol alone.
    """
    records = measured.of(entry.quantity, entry.places, entry.epoch)
    if not records:
        raise NotRun(measured.reason(entry))
    if claim.recipe_sensitive:
        by_paper = [record for record in records if not training(record)]
        if not by_paper:
            recipes = "; ".join(sorted({training(record) for record in records}))
            raise NotRun(
                "It depends on the recipe, and our runs were not trained by the paper's:"
                f" {recipes}."
            )
        records = by_paper
    if entry.among is not None:
        records = _among(entry, records, measured)
    return records


def _among(entry: Entry, records: list[Record], measured: Measured) -> list[Record]:
    """Return the records of the runs that a number is about.

    A run of which the other quantity was not measured counts.
    """
    assert entry.among is not None
    left_out = set()
    for record in measured.of(name_of(entry.among.function), entry.groups):
        if not entry.among.rule(fields_of(record)):
            left_out.add((record["group"], record["run"]))
    chosen = [record for record in records if (record["group"], record["run"]) not in left_out]
    if not chosen:
        raise NotRun(
            f"It is about runs that {entry.among.words}: "
            f"of the {len(records)} of {entry.groups[0]} none is such."
        )
    return chosen


def training(record: Record) -> str:
    """Return the recipe of a run and how far it got; "" if it is the paper's protocol."""
    if record["source"] != "ours" or record["epochs"] is None:
        return ""
    group = groups.find(record["group"])
    if record["recipe"] == "paper" and record["epochs"] == group.epochs:
        return ""
    epochs = catalogue.progress(group, record["recipe"], int(record["epochs"]))
    return f"recipe “{record['recipe']}”, {epochs} epochs"


def fields_of(record: Record) -> dict[str, Any]:
    """Return all that was measured on a run, with its value and its context, as a rule reads it."""
    fields = {name: _nan(x) for name, x in (record["fields"] or {}).items()}
    fields |= {VALUE: _nan(record["value"]), "variance": record["variance"] or 0.0}
    if record["group"] in groups.GROUPS:
        group = groups.find(record["group"])
        planned = group.epochs
        if record["source"] == "ours" and record["recipe"] is not None:
            planned = catalogue.epochs_of_recipe(group, record["recipe"])
        fields |= {"layers": group.config.layers, "planned": planned, "primed": group.primed}
    return fields


def _nan(value: Any) -> Any:
    """Return a stored value with NaN for what was not defined, as a rule reads it."""
    if isinstance(value, Mapping):
        return {name: _nan(x) for name, x in value.items()}
    if isinstance(value, list):
        return [_nan(x) for x in value]
    return math.nan if value is None else value


def says(rule: Rule, fields: Mapping[str, Any]) -> bool | None:
    """Return True if a run shows a finding, else False; None if its value is missing.

    Raises:
        BadInput: The fields lack one that the rule reads.
    """
    value = fields[VALUE]
    if isinstance(value, float) and math.isnan(value):
        return None
    try:
        answer = rule(fields)
    except KeyError as error:
        raise BadInput(f"What was measured lacks {error}, which its rule reads.") from error
    return None if answer is None else bool(answer)


def rule_fields(record: Record, part: Picked) -> dict[str, Any]:
    """Return the fields that the rule of a row reads: those of the quantity, or of its part."""
    fields = fields_of(record)
    if _is_missing(record["value"]):  # the quantity is several values, without one of its own
        fields[VALUE] = _nan(part.value)
    return fields


def beside(entry: Entry, measured: Measured) -> dict[str, list[Any]]:
    """Return the values of the runs with which a rule compares a run, by the name of their field.

    It is empty if the rule compares with no other runs.
    """
    if entry.beside is None:
        return {}
    records = measured.of(entry.quantity, (entry.beside.group,), entry.epoch)
    return {entry.beside.field: [record["value"] for record in records]}


def _finding(claim: Claim, entry: Entry, records: Sequence[Record], measured: Measured) -> Combined:
    """Return what a finding's runs show."""
    assert entry.rule is not None
    assert isinstance(entry.field, str)
    parts = [picked(whole(record), entry.field) for record in records]
    all_fields = [rule_fields(*pair) for pair in zip(records, parts, strict=True)]
    compared = beside(entry, measured)
    if [] in compared.values():
        assert entry.beside is not None
        raise NotRun(f"No run of {entry.beside.group}, with which it compares, was measured.")
    shows = [says(entry.rule, fields | compared) for fields in all_fields]
    shows_without = {}
    if entry.beside is not None:
        controls = measured.of(entry.quantity, (entry.beside.group,), entry.epoch)
        for i, control in enumerate(controls):
            values = compared[entry.beside.field]
            left = {entry.beside.field: [*values[:i], *values[i + 1 :]]}
            if len(values) > 1:
                name = f"run {control['run']} of {control['group']}"
                shows_without[name] = [says(entry.rule, fields | left) for fields in all_fields]
    shows_at = {}
    for bar, rule in variants(entry.rule).items():
        shows_at[bar] = [says(rule, fields | compared) for fields in all_fields]

    values = [part.value for part in parts]
    counted = [value for value in values if value is not None]
    others = []
    for record, part in zip(records, parts, strict=True):
        # Of a quantity that is several values, each is by itself.
        others.append({} if _is_missing(record["value"]) else part.fields)
    lists = {"shows": shows, **_lists(records, [{**of_run, **compared} for of_run in others])}
    row = replace(
        unmeasured(claim),
        value=stored(COMBINE[entry.combine](counted)) if counted else None,
        runs=values,
        fields={**_keys(records), **lists},
        detail=entry.method,
    )
    numbers = [record["run"] for record in records]
    place = None
    if measured.source == "author" and entry.shown_run in numbers:
        place = numbers.index(entry.shown_run)
    return Combined(
        row, n_runs=len(records), shows_at=shows_at, shows_without=shows_without, place=place
    )


def whole(record: Record) -> dict[str, Any]:
    """Return the fields of a record together with its value and its variance."""
    return {**(record["fields"] or {}), VALUE: record["value"], "variance": record["variance"]}


def _number(claim: Claim, entry: Entry, records: Sequence[Record], measured: Measured) -> Combined:
    """Return the number that stands for the runs."""
    paths = (entry.field,) if isinstance(entry.field, str) else entry.field
    combined, noises, method = [], [], [entry.method]
    for path in paths:
        parts = [_number_of(entry, record, path) for record in records]
        used = [
            part
            for record, part in zip(records, parts, strict=True)
            if measured.source == "author" and record["run"] == entry.shown_run
        ] or parts
        combined.append(COMBINE[entry.combine]([part.value for part in used]))
        noises.append(sum(part.variance for part in used) ** 0.5 / len(used))
    if entry.among is not None and len(records) < len(measured.runs[entry.groups[0]]):
        method.append(f"Over the runs that {entry.among.words}.")
    if len(used) < len(parts):
        method.append(f"The value is that of run {entry.shown_run}, which the paper shows.")
    method += [part.fields.get(HOW, "") for part in parts]
    value = combined[0]
    if len(paths) > 1:
        value = mean(combined)
        method[0] += f": {', '.join(f'{x:.4g}' for x in combined)}."
    row = replace(unmeasured(claim), value=stored(value), detail=" ".join(x for x in method if x))
    if entry.combine == "standard deviation":  # it is of all runs, and of none by itself
        return Combined(row, n_runs=len(records))
    row = replace(
        row,
        runs=[part.value for part in parts],
        fields={**_keys(records), **_lists(records, _beside_a_number(entry, parts))},
    )
    of_group = len(measured.runs.get(entry.groups[0], ())) if entry.groups else 0
    n_runs = max(of_group, len(records)) if entry.among is not None else len(records)
    counted_at = {}
    for bar, rule in variants(entry.counts).items():
        counted_at[bar] = [float(bool(rule(fields_of(record)))) for record in records]
    return Combined(row, noises[0], n_runs, counted_at=counted_at)


def _number_of(entry: Entry, record: Record, path: str) -> Picked:
    """Return what a number's row reads of a run, with the variance of a share that was counted."""
    part = picked(whole(record), path) if entry.counts is None else None
    if part is None:
        assert entry.counts is not None
        return Picked(float(bool(entry.counts(fields_of(record)))), 0.0, record["fields"])
    if entry.drawn and part.value is not None:
        return part._replace(variance=max(0.0, part.value * (1 - part.value)) / entry.drawn)
    return part


def _beside_a_number(entry: Entry, parts: Sequence[Picked]) -> list[dict[str, Any]]:
    """Return what was measured beside a number; nothing for one field of many."""
    beside = []
    for part in parts:
        is_own = entry.field == VALUE or set(part.fields) == {"draws", "on_all_sums"}
        fields = part.fields if is_own else {}
        beside.append({name: x for name, x in fields.items() if _is_flat(x) and name != HOW})
    return beside


def _is_flat(value: Any) -> bool:
    """Return False for a field that has a value and fields of its own."""
    return not isinstance(value, Mapping)


def _keys(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Return the name of each run: its number, after its group if there are several."""
    of_one_group = len({record["group"] for record in records}) == 1
    names = []
    for record in records:
        run = "" if record["run"] is None else str(record["run"])
        if record["group"] not in groups.GROUPS:  # a language model
            names.append("0" if len(records) == 1 else record["group"])
        elif of_one_group and run:
            names.append(run)
        else:
            names.append(f"{record['group']} {run}".strip())
    return {"run": names}


def _lists(records: Sequence[Record], fields: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return fields of runs as lists with an entry for each run, and how they were trained."""
    lists: dict[str, list[Any]] = {}
    trainings = [training(record) for record in records]
    if any(trainings):
        lists["training"] = [[words] if words else [] for words in trainings]
    for name in dict.fromkeys(name for of_run in fields for name in of_run):
        lists[name] = [of_run.get(name) for of_run in fields]
    return lists


# ---- verdicts


def judged(
    claim: Claim,
    source: str,
    combined: Combined,
    theirs: Combined | None = None,
    table: TableTest | None = None,
) -> Row:
    """Return a row with its verdict, and all that follows from it.

    Args:
        claim: The claim.
        source: `ours` or `author`.
        combined: The row without a verdict.
        theirs: The author's row, with which ours is compared; None if there is none.
        table: The comparison of the whole table, if the claim is a cell of one.
    """
    row = combined.row
    judgement = judge(claim, source, combined, theirs, table)
    others = {}
    for bar in combined.shows_at:
        of_theirs = theirs.answers(bar) if theirs is not None else {}
        verdict = judge_shown(claim, source, combined.answers(bar), of_theirs).verdict
        if verdict != judgement.verdict:
            others[bar] = verdict
    if source == "author":  # ours are compared with his, which other bars count otherwise
        for bar, counted in combined.counted_at.items():
            at_bar = replace(combined, row=replace(row, value=sum(counted), runs=counted))
            verdict = judge(claim, source, at_bar, theirs, table).verdict
            if verdict != judgement.verdict:
                others[bar] = verdict
    std = None
    if len(row.runs) > 1 and not row.pooled and None not in row.runs:
        std = stored(np.std(row.runs, axis=0, ddof=1))
    sentences = [
        row.detail,
        judgement.detail,
        row.shown_by_group,
        row.disagreement(claim.range),
        row.fields_in_words,
    ]
    row = replace(
        row,
        std=std,
        tolerance=stored(judgement.tolerance),
        verdict=judgement.verdict,
        detail=" ".join(sentence for sentence in sentences if sentence),
        n=len(row.runs) or combined.n_runs,
        interval=stored(judgement.interval),
        settles=judgement.settles,
        table=table,
        sensitivity=others,
    )
    return explained(row, claim, source)


def judge(
    claim: Claim,
    source: str,
    combined: Combined,
    theirs: Combined | None = None,
    table: TableTest | None = None,
) -> verdicts.Judgement:
    """Return the verdict on a row; arguments are as in `judged`."""
    row = combined.row
    if "shows" in row.fields:
        of_theirs = theirs.answers() if theirs is not None else {}
        judgement = judge_shown(claim, source, combined.answers(), of_theirs)
        others = {}
        for control, shows in combined.shows_without.items():
            by_group = combined.by_group(shows)
            others[control] = judge_shown(claim, source, by_group, of_theirs).verdict
        return verdicts.hangs_on_a_control(judgement, others)
    value = verdicts.as_array(row.value)
    values = stacked(row.runs)
    n_runs = combined.n_runs or len(values)
    if source == "author":
        return verdicts.judge_author(claim, value, combined.noise, n_runs, values)
    author_runs = theirs.row.runs if theirs is not None else []
    if claim.rule == "count":
        printed = verdicts.Count(int(verdicts.as_array(claim.paper)[0]), verdicts.PAPER_RUNS)
        theirs_counted = verdicts.Count.of(author_runs) if author_runs else printed
        return verdicts.judge_count(claim, verdicts.Count.of(row.runs), theirs_counted)
    return verdicts.judge_ours(claim, value, values, stacked(author_runs), n_runs, table)


def judge_shown(
    claim: Claim, source: str, by_group: Answers, theirs: Answers = MappingProxyType({})
) -> verdicts.Judgement:
    """Return the verdict on a finding, given what each run of each group shows.

    A finding of the paper is compared with what the author's runs of the same group show
    (`theirs`). One about several groups is judged by group, unless its quantifier is `open`.
    """
    if claim.quantifier == verdicts.OPEN or not by_group:
        all_answers = [answer for of_group in by_group.values() for answer in of_group]
        return verdicts.judge_finding(claim.quantifier, all_answers)
    judgements, counts = {}, {}
    for group, shows in by_group.items():
        judge_runs = partial(verdicts.judge_finding, claim.quantifier, single=claim.single)
        judgement = judge_runs(shows, source=source)
        counts[group] = verdicts.Count.of(shows)
        their_shows = theirs.get(group)
        if source == "ours" and their_shows and not claim.beyond:
            their_count = verdicts.Count.of(their_shows)
            their_verdict = judge_runs(their_shows, source="author").verdict
            judgement = verdicts.told_apart(judgement, counts[group], their_count, their_verdict)
        judgements[group] = judgement
    return verdicts.by_group(judgements, {name: n.n_runs for name, n in counts.items()})


def stacked(values: Sequence[Any]) -> verdicts.Array:
    """Return the values of runs, numbers or lists of them, as an array [run, entry]."""
    if not values:
        return np.zeros((0, 1))
    return np.stack([verdicts.as_array(value) for value in values])


def stored(value: Any) -> Any:
    """Return a derived number, or a list of them, rounded to `DECIMALS`; None for NaN."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, DECIMALS)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [stored(entry) for entry in value]
    return value


# ---- results beside the weights that are here


def are_other_weights(loaded: Runs) -> bool:
    """Return True if runs are not those on which the rows of their source were measured.

    They are compared by the sha256 of their weights, or of the learning curves beside them. If
    nothing was measured, they are no others.
    """
    if not measurements.is_stored(loaded.source):
        return False
    behind = query(loaded.source).measured
    n_measured = len(behind.runs.get(loaded.group, ()))
    if loaded.source == "ours" and len(loaded.numbers) != n_measured:
        return True
    digests = behind.digests.get(loaded.group, set())
    for number, weights in loaded.weights.items():
        curves = loaded.stored[number].path.with_suffix(".npz")
        if runs.digest(weights) in digests or (curves.exists() and sha256(curves) in digests):
            continue
        return True
    return False


# ---- rows that are counted apart


def uninformative(rows: Mapping[str, Mapping[str, Row]]) -> dict[str, str]:
    """Return why rows can hardly fail, or say what another row says, by id: they are counted apart.

    Args:
        rows: The results of each source, by id.
    """
    reasons = {}
    for name, claim in claims.claims().items():
        own_rows = [by_id[name] for by_id in rows.values() if name in by_id]
        if claim.hardly_fails:
            reasons[name] = claim.hardly_fails
        elif claim.rule == "exact" and own_rows and all(_needs_no_runs(row) for row in own_rows):
            reasons[name] = "a fact of the data set"
        elif _is_never_carried_into(name):
            reasons[name] = "no carry can arrive there, with or without the head"
    for name, first in repeated(
        {name: rows_of(rows, name) for name in claims.claims()}, reasons
    ).items():
        reasons[name] = f"over all runs of both sources it says what {first} says"
    return reasons


def rows_of(rows: Mapping[str, Mapping[str, Row]], name: str) -> list[Row]:
    """Return the row of each source that has it."""
    return [by_id[name] for by_id in rows.values() if name in by_id]


def repeated(rows: Mapping[str, list[Row]], skipped: Collection[str]) -> dict[str, str]:
    """Return the rows that are one measurement with another row, by the id of that row.

    Over `RUNS_TO_COMPARE` runs or more, of both sources, their values are perfectly correlated, as
    those of complements are. Findings come first, since numbers are details of them.

    Args:
        rows: The rows of each claim, one for each source.
        skipped: The ids that are not compared.
    """
    values_by_groups: dict[tuple[str, ...], dict[str, dict[str, float]]] = {}
    names = sorted(rows, key=lambda name: all(row.paper is not None for row in rows[name]))
    first_of: dict[str, str] = {}
    for name in names:
        values = _values_of_runs(rows[name])
        if name in skipped or not values:
            continue
        earlier = values_by_groups.setdefault(tuple(rows[name][0].groups), {})
        for other, other_values in earlier.items():
            if _are_one_measurement(values, other_values):
                first_of[name] = other
                break
        else:
            earlier[name] = values
    return first_of


def _values_of_runs(rows: Iterable[Row]) -> dict[str, float]:
    """Return the value of each run, by its source's place and its name; none of lists."""
    values = {}
    for place, row in enumerate(rows):
        for key, value in zip(row.keys, row.runs, strict=False):
            if isinstance(value, int | float):
                values[f"{place} {key}"] = float(value)
    return values


def _are_one_measurement(values: Mapping[str, float], others: Mapping[str, float]) -> bool:
    """Return True if two rows' values are perfectly correlated over the runs that both have."""
    common = [key for key in values if key in others]
    if len(common) < RUNS_TO_COMPARE:
        return False
    x = np.array([values[key] for key in common])
    y = np.array([others[key] for key in common])
    x_apart, y_apart = x - x.mean(), y - y.mean()
    if min(np.ptp(x_apart), np.ptp(y_apart)) <= AS_PRINTED:
        return False
    # np.corrcoef takes ten times as long, and a page compares thousands of pairs.
    correlation = x_apart @ y_apart / math.sqrt((x_apart @ x_apart) * (y_apart @ y_apart))
    return bool(abs(correlation) > 1 - CORRELATION_ROUNDING)


def _needs_no_runs(row: Row) -> bool:
    """Return True if a row has a value that no run gave."""
    return not row.runs and row.value is not None


def _is_never_carried_into(name: str) -> bool:
    """Return True if an id is that of a digit of which the decision head decides nothing."""
    last_position = groups.GROUPS[groups.MAIN].config.layout.position_names[-1]
    return name.startswith("tab1/decision_head/") and name.endswith(f"/{last_position}")
