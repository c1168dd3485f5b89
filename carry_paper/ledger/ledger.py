"""The ledger as a query: a row with a verdict for each claim, from what was measured.

A claim names a rule, its entry in the registry names a quantity, and the table of measurements has
that quantity's value in each run. Nothing here needs weights. Whatever a rule decides is derived
when a row is read, in one place: a run of which the value is missing cannot say.
"""

import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain, compress
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd

from carry_core import runs
from carry_core.errors import BadInput
from carry_core.runs import Runs
from carry_paper import catalogue, measurements
from carry_paper.findings.bars import variants
from carry_paper.findings.base import Rule
from carry_paper.ledger import claims, exchangeability, registry, verdicts
from carry_paper.ledger.claims import Claim, Why
from carry_paper.ledger.entries import COMBINE, VALUE, Beside, Entry, Picked, name_of, picked
from carry_paper.ledger.exchangeability import TableTest
from carry_paper.ledger.intervals import Array
from carry_paper.ledger.language_models import HOW
from carry_paper.ledger.results import Row
from carry_paper.ledger.verdicts import Count, Counts
from carry_paper.measurements import REASON, Record
from carry_train import groups
from carry_train.files import sha256

DECIMALS = 6  # of a derived number, whose last bits depend on the processor

RUN_AND_QUANTITY = [name for name in measurements.KEY if name != "sums"]

Rows = Mapping[str, Row]


# ---- the rows of a source


def by_id(source: str, folder: Path | None = None) -> "Query":
    """Return the rows of a source, by id, each judged when it is first asked for.

    They follow from the tables in a data folder (`data_dir()` if None).

    Raises:
        BadInput: A table is damaged.
    """
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
    """

    def __init__(self, source: str, table: pd.DataFrame, *, all_runs: bool = False) -> None:
        """Choose the runs: the first six by the leading recipe of each group, or `all_runs`."""
        self.source = source
        ordered = table.sort_values("sums", na_position="first", kind="stable")
        lasting = ordered.drop_duplicates(RUN_AND_QUANTITY, keep="last").sort_index()
        has_reason = lasting.fields.map(measurements.is_reason).astype(bool)
        chosen = lasting[~has_reason]
        if source == "ours" and not all_runs:
            leading = chosen.group.map(leading_recipes(chosen))
            is_leading = leading.isna() | (chosen.recipe == leading)
            chosen = chosen[is_leading & (chosen.run.isna() | chosen.run.isin(runs.FIRST))]
        at_the_end = chosen[chosen.run.notna() & chosen.epoch.isna()]
        # The numbers of the runs, and the sha256 of their weights and learning curves, by group.
        self.runs = at_the_end.groupby("group").run.agg(set).to_dict()
        self.digests = chosen[chosen.sha256.notna()].groupby("group").sha256.agg(set).to_dict()
        self._records = measurements.records(chosen)
        self._reasons = measurements.records(lasting[has_reason])

    def of(self, quantity: str, places: Collection[str], epoch: int | None = None) -> list[Record]:
        """Return the records of a quantity in the order of some groups; of all if none is named."""
        by_group = self._records.get((quantity, epoch), {})
        records = []
        for place in places or by_group:
            records += by_group.get(place, [])
        return records

    def reason(self, entry: Entry) -> str:
        """Return why nothing was measured for a row."""
        by_group = self._reasons.get((name_of(entry.function), entry.epoch), {})
        for place in entry.places or (None,):
            if place in by_group:
                reason: str = by_group[place][0]["fields"][REASON]
                return reason
        return f"Not measured yet: `carry measure --source {self.source}` does it."


def leading_recipes(table: pd.DataFrame) -> dict[str, str]:
    """Return the recipe that leads in each group, by the rule of `catalogue.find`.

    That is `paper` if enough of its runs were measured; else the one of which most were. Runs that
    do not ship count only where none does.
    """
    first = table[table.run.isin(runs.FIRST)]
    leading = {}
    for name, of_group in first.groupby("group"):
        shipping = of_group[of_group.ships == of_group.ships.max()]
        n_runs = shipping.groupby("recipe").run.nunique()
        if n_runs.get("paper", 0) >= catalogue.ENOUGH:
            leading[str(name)] = "paper"
            continue
        candidates = list(n_runs.index[n_runs == n_runs.max()])
        if len(candidates) > 1:
            epochs_of = partial(catalogue.epochs_of_recipe, groups.find(str(name)))
            candidates.sort(key=epochs_of, reverse=True)
        leading[str(name)] = candidates[0]
    return leading


# ---- one row


@dataclass(frozen=True)
class Combined:
    """What a row's runs say together.

    Attributes:
        row: The row, without a verdict.
        noise: The standard deviation that the paper's own random sums add to the value.
        n_runs: The number of the runs behind it.
        counts: How many runs of each group show a finding, of those that can say: by its rule as it
            is (`AS_IT_IS`), and at other bars, by `bars.variants`. It may be about a single one of
            the runs.
        counts_without: The same by its rule if a control run is left out, by that run in words.
        count_at: The number of runs that count at other bars, by `bars.variants`.
    """

    row: Row
    noise: float = 0.0
    n_runs: int = 0
    counts: Mapping[str, Counts] = field(default_factory=dict)
    counts_without: Mapping[str, Counts] = field(default_factory=dict)
    count_at: Mapping[str, int] = field(default_factory=dict)


AS_IT_IS = ""
NO_RUNS = Combined(Row(""))


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
            claim = self.claims[name]
            try:
                combined = combine(claim, self.measured)
            except BadInput as error:
                row = replace(unmeasured(claim), detail=str(error))
            else:
                table = self.table_test(claim.table) if self.author and claim.table else None
                row = judged(
                    claim, self.source, combined, combined_if_run(claim, self.author), table
                )
            self.judged[name] = row
        return self.judged[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.claims)

    def __len__(self) -> int:
        return len(self.claims)

    def table_test(self, name: str) -> TableTest:
        """Return the comparison of our runs with the author's over all cells of a table."""
        if name not in self.table_tests:
            sides = []
            for measured in (self.measured, self.author):
                cells = [claim for claim in self.claims.values() if claim.table == name]
                values = [combined_if_run(cell, measured).row.runs for cell in cells]
                sides.append(np.array(values, dtype=float).T)  # (run, cell)
            self.table_tests[name] = exchangeability.compare(name, *sides)
        return self.table_tests[name]


def combined_if_run(claim: Claim, measured: Measured | None) -> Combined:
    """Return what the runs of a claim say together; `NO_RUNS` if it was not run."""
    if measured is None:
        return NO_RUNS
    try:
        return combine(claim, measured)
    except BadInput:
        return NO_RUNS


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


def combine(claim: Claim, measured: Measured) -> Combined:
    """Return what the runs of a claim say together.

    Raises:
        BadInput: None was measured or can be judged, they are too few, or a field is missing.
    """
    entry = registry.entry(claim.id)
    if entry.constant is not None:
        return Combined(replace(unmeasured(claim), value=entry.constant))
    records = measured.of(name_of(entry.function), entry.places, entry.epoch)
    if not records:
        raise BadInput(measured.reason(entry))
    if claim.recipe_sensitive:
        records = _by_paper(records)
    if entry.among is not None:
        records = _among(entry, records, measured)
    if claim.paper is None:
        return _finding(claim, entry, records, measured)
    return _number(claim, entry, records, measured)


def _by_paper(records: Sequence[Record]) -> list[Record]:
    """Return the records of runs by the paper's protocol; raise `BadInput` if there are none."""
    by_paper = [record for record in records if not training(record)]
    if not by_paper:
        recipes = "; ".join(sorted({training(record) for record in records}))
        raise BadInput(
            f"It depends on the recipe, and our runs were not trained by the paper's: {recipes}."
        )
    return by_paper


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
        raise BadInput(
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


def fields_of(record: Record, value: Any = None) -> dict[str, Any]:
    """Return all that was measured on a run, and its context, as a rule reads it.

    If the quantity is several values, without one of its own, its `value` is the one given.
    """
    own = value if record["value"] is None else record["value"]
    context = {VALUE: own, "variance": record["variance"] or 0.0}
    fields: dict[str, Any] = _nan({**(record["fields"] or {}), **context})
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


def _compared(
    entry: Entry, beside: Beside, measured: Measured
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the values of control runs, by the name under which a rule reads them.

    And the same without each control run in turn, if there are several, by that run in words.

    Raises:
        BadInput: No control run was measured.
    """
    controls = measured.of(name_of(entry.function), (beside.group,), entry.epoch)
    if not controls:
        raise BadInput(f"No run of {beside.group}, with which it compares, was measured.")
    values = [record["value"] for record in controls]
    without = {}
    for i, left_out in enumerate(controls if len(controls) > 1 else ()):
        others = [*values[:i], *values[i + 1 :]]
        without[f"run {left_out['run']} of {beside.group}"] = {beside.field: others}
    return {beside.field: values}, without


def _finding(claim: Claim, entry: Entry, records: Sequence[Record], measured: Measured) -> Combined:
    """Return what a finding's runs show."""
    assert entry.rule is not None
    assert isinstance(entry.field, str)
    compared: dict[str, Any] = {}
    compared_without: dict[str, dict[str, Any]] = {}
    if entry.beside is not None:
        compared, compared_without = _compared(entry, entry.beside, measured)
    values, others, shows = [], [], []
    judged = []
    judged_alone = []
    for record in records:
        part = picked(whole(record), entry.field)
        fields = fields_of(record, part.value)
        values.append(part.value)
        # Of a quantity that is several values, each is by itself.
        others.append({} if record["value"] is None else {**part.fields, **compared})
        shows.append(says(entry.rule, fields | compared))
        # Language models are in one group.
        group = record["group"] if record["group"] in groups.GROUPS else ""
        judged.append((group, fields))
        if measured.source == "author" and record["run"] == entry.shown_run:
            judged_alone.append((group, fields))
    method = entry.method
    if 0 < len(judged_alone) < len(judged):
        method += f" Judged on run {entry.shown_run}, which the paper shows."
    judged = judged_alone or judged
    counts = {AS_IT_IS: _counts(judged, entry.rule, compared)}
    for bar, rule in variants(entry.rule).items():
        counts[bar] = _counts(judged, rule, compared)
    counts_without = {}
    for run, others_than_it in compared_without.items():
        counts_without[run] = _counts(judged, entry.rule, others_than_it)
    defined = [value for value in values if value is not None]
    row = replace(
        _with_runs(unmeasured(claim), records, values, {"shows": shows}, others),
        value=stored(COMBINE[entry.combine](defined)) if defined else None,
        detail=method,
    )
    return Combined(row, n_runs=len(records), counts=counts, counts_without=counts_without)


def _counts(
    judged: Iterable[tuple[str, Mapping[str, Any]]], rule: Rule, compared: Mapping[str, Any]
) -> Counts:
    """Return how many runs of each group show a finding, of those that can say.

    `judged` has the group and the fields of each run, `compared` the values of control runs.
    """
    counts: dict[str, Count] = {}
    for group, fields in judged:
        answer = says(rule, {**fields, **compared})
        if answer is not None:
            n_showing, n_runs = counts.get(group, (0, 0))
            counts[group] = Count(n_showing + answer, n_runs + 1)
    return counts


def whole(record: Record) -> dict[str, Any]:
    """Return the fields of a record together with its value and its variance."""
    return {**(record["fields"] or {}), VALUE: record["value"], "variance": record["variance"]}


def _number(claim: Claim, entry: Entry, records: Sequence[Record], measured: Measured) -> Combined:
    """Return the number that stands for the runs."""
    paths = (entry.field,) if isinstance(entry.field, str) else entry.field
    combined, noises, method = [], [], [entry.method]
    is_author = measured.source == "author"
    is_shown = [is_author and record["run"] == entry.shown_run for record in records]
    for path in paths:
        parts = [_number_of(entry, record, path) for record in records]
        used = [*compress(parts, is_shown)] or parts
        combined.append(COMBINE[entry.combine]([part.value for part in used]))
        noises.append(sum(part.variance for part in used) ** 0.5 / len(used))
    n_runs = len(records)
    if entry.among is not None and n_runs < len(measured.runs[entry.groups[0]]):
        method.append(f"Over the runs that {entry.among.words}.")
        n_runs = len(measured.runs[entry.groups[0]])
    if len(used) < len(parts):
        method.append(f"The value is that of run {entry.shown_run}, which the paper shows.")
    method += [part.fields.get(HOW, "") for part in parts]
    value = combined[0]
    if len(paths) > 1:
        value = mean(combined)
        method[0] += f": {', '.join(f'{x:.4g}' for x in combined)}."
    row = replace(unmeasured(claim), value=stored(value), detail=" ".join(x for x in method if x))
    if entry.combine == "standard deviation":  # it is of all runs, and of none by itself
        return Combined(row, n_runs=n_runs)
    values = [part.value for part in parts]
    row = _with_runs(row, records, values, {}, [_beside_a_number(entry, part) for part in parts])
    count_at = {}
    for bar, rule in variants(entry.rule).items():
        count_at[bar] = sum(bool(rule(fields_of(record))) for record in records)
    return Combined(row, noises[0], n_runs, count_at=count_at)


def _number_of(entry: Entry, record: Record, path: str) -> Picked:
    """Return what a number's row reads of a run, with the variance of a share that was counted."""
    if entry.rule is not None:
        return Picked(float(bool(entry.rule(fields_of(record)))), 0.0, record["fields"])
    part = picked(whole(record), path)
    if part.value is None:
        column = "value" if path == VALUE else f"fields ({path})"
        raise BadInput(
            f"{measurements.path_of(record['source'])} has no number in the column {column} of "
            f"{record['quantity']}, run {record['run']} of {record['group']}: "
            f"{measurements.REMEDY}."
        )
    if entry.drawn:
        return part._replace(variance=max(0.0, part.value * (1 - part.value)) / entry.drawn)
    return part


def _beside_a_number(entry: Entry, part: Picked) -> dict[str, Any]:
    """Return what was measured beside a number; nothing for one field of many."""
    if entry.field != VALUE and set(part.fields) != {"draws", "on_all_sums"}:
        return {}
    flat = {name: x for name, x in part.fields.items() if not isinstance(x, Mapping)}
    return {name: x for name, x in flat.items() if name != HOW}


def _with_runs(
    row: Row,
    records: Sequence[Record],
    values: list[Any],
    fields: dict[str, list[Any]],
    others: Sequence[Mapping[str, Any]],
) -> Row:
    """Return a row with the value of each run, its name, how it was trained, and other fields.

    A run's name is its number, after its group if there are several. What was measured besides is
    by name: in `fields` lists with an entry for each run, in `others` the entries of each run.
    """
    of_one_group = records[0]["group"] == records[-1]["group"]  # they are in the order of groups
    names = []
    trainings = []
    for record in records:
        group = record["group"]
        run = "" if record["run"] is None else str(record["run"])
        if group not in groups.GROUPS:  # a language model
            names.append("0" if len(records) == 1 else group)
        else:
            names.append(run if of_one_group and run else f"{group} {run}".strip())
        trainings.append(training(record))
    fields = {"run": names, **fields}
    if any(trainings):
        fields["training"] = trainings
    for name in dict.fromkeys(chain.from_iterable(others)):
        fields[name] = [of_run.get(name) for of_run in others]
    std = None
    # Runs of several groups need not be alike.
    if len(values) > 1 and None not in values and (of_one_group or not run):
        std = stored(np.std(values, axis=0, ddof=1))
    return replace(row, runs=values, std=std, fields=fields)


# ---- verdicts


def judged(
    claim: Claim,
    source: str,
    combined: Combined,
    theirs: Combined = NO_RUNS,
    table: TableTest | None = None,
) -> Row:
    """Return a row with its verdict, and all that follows from it.

    Ours is compared with `theirs`, the author's; a cell of a table is judged by the whole `table`.
    """
    row = combined.row
    if combined.counts:
        judgement, at_bars = _judge_finding(claim, source, combined, theirs)
    else:
        judgement = _judge_number(claim, source, combined, theirs, table)
        at_bars = _number_at_bars(claim, combined, judgement) if source == "author" else {}
    by_group = combined.counts.get(AS_IT_IS, {})
    sentences = [row.detail, judgement.detail]
    if len(by_group) > 1:
        counts = ", ".join(f"{count.words} of {group}" for group, count in by_group.items())
        sentences.append(f"By group: {counts}.")
    row = replace(
        row,
        tolerance=stored(judgement.tolerance),
        verdict=judgement.verdict,
        detail=" ".join(filter(None, sentences)),
        n=len(row.runs) or combined.n_runs,
        interval=stored(judgement.interval),
        settles=judgement.settles,
        table=table,
        sensitivity=at_bars,
    )
    return replace(row, why=why(row, claim, source))


def why(row: Row, claim: Claim, source: str) -> Why | None:
    """Return the reason why a row is not reproduced, from `claims.yml`; None if there is none.

    A name in braces is one of the row's numbers, or a constant of the module that has its function:
    `{runs[4]:.2f}`, `{fields[moved][5]:.0%}`, `{value}`, `{highest}` of its runs, `{n_showing}` of
    `{n}`, `{VISIBLE_BOUNCE:.0%}`. There is no reason either where the row has not the runs that the
    sentence is about.

    Raises:
        BadInput: The sentence names what a row does not have.
    """
    given = claim.why.get(source)
    if given is None or row.verdict in ("reproduced", verdicts.NOT_RUN):
        return None
    n_showing, n = row.shown or (0, len(row.runs))
    numbers = {
        **registry.constants(claim.id),
        "runs": row.runs,
        "fields": row.fields,
        "value": row.value,
        "highest": max((x for x in row.runs if isinstance(x, float)), default=None),
        "n_showing": n_showing,
        "n": n,
    }
    try:
        text = given.text.format_map(numbers)
    except (IndexError, TypeError):  # other runs than those that it was written about
        return None
    except (AttributeError, KeyError, ValueError) as error:
        raise BadInput(
            f"The why of {claim.id} in claims.yml cannot be filled in ({error!r}): expected the "
            "row's numbers in braces, such as {runs[4]:.2f} or {fields[moved][5]:.0%}."
        ) from error
    return replace(given, text=text)


def _judge_finding(
    claim: Claim, source: str, combined: Combined, theirs: Combined
) -> tuple[verdicts.Judgement, dict[str, str]]:
    """Return the judgement of a finding, and the other verdicts that it has at other bars.

    Ours are compared with the author's at the same bar. It can't tell if the verdict changes when
    any one control run is left out.
    """
    judgements = {}
    for bar, counts in combined.counts.items():
        judgements[bar] = verdicts.judge_finding(claim, source, counts, theirs.counts.get(bar, {}))
    judgement = judgements.pop(AS_IT_IS)
    if claim.quantifier == verdicts.RANGE:
        judgement = verdicts.judge_range(Count(*(combined.row.shown or (0, 0))), combined.n_runs)
    hanging = []
    for run, counts in combined.counts_without.items():
        other = verdicts.judge_finding(claim, source, counts, theirs.counts.get(AS_IT_IS, {}))
        if other.verdict != judgement.verdict:
            hanging.append(f"without {run} it is {other.verdict}")
    if hanging:
        settles = f"more control runs: {'; '.join(hanging)}"
        judgement = replace(judgement, verdict=verdicts.CANNOT_TELL, settles=settles)
    verdict = judgement.verdict
    return judgement, {bar: x.verdict for bar, x in judgements.items() if x.verdict != verdict}


def _judge_number(
    claim: Claim, source: str, combined: Combined, theirs: Combined, table: TableTest | None = None
) -> verdicts.Judgement:
    """Return the judgement of a number; arguments are as in `judged`."""
    row = combined.row
    value = verdicts.as_array(row.value)
    values = stacked(row.runs)
    n_runs = combined.n_runs or len(values)
    if source == "author":
        return verdicts.judge_author(claim, value, combined.noise, n_runs, values)
    author_runs = theirs.row.runs
    if claim.rule == "count":
        printed = Count(int(verdicts.as_array(claim.paper)[0]), verdicts.PAPER_RUNS)
        theirs_counted = Count.of(author_runs) if author_runs else printed
        return verdicts.judge_count(claim, Count.of(row.runs), theirs_counted)
    return verdicts.judge_ours(claim, value, values, stacked(author_runs), n_runs, table)


def _number_at_bars(
    claim: Claim, combined: Combined, judgement: verdicts.Judgement
) -> dict[str, str]:
    """Return the other verdicts that a count of the author's runs has at other bars of its rule.

    Ours are compared with his, which other bars count otherwise.
    """
    at_bars = {}
    for bar, count in combined.count_at.items():
        value = verdicts.as_array(count)
        at_bar = verdicts.judge_author(claim, value, combined.noise, combined.n_runs)
        if at_bar.verdict != judgement.verdict:
            at_bars[bar] = at_bar.verdict
    return at_bars


def stacked(values: Sequence[Any]) -> Array:
    """Return the values of runs, numbers or lists of them, as an array [run, entry]."""
    if not values:
        return np.zeros((0, 1))
    return np.stack([verdicts.as_array(value) for value in values])


def stored(value: Any) -> Any:
    """Return derived numbers, rounded to `DECIMALS`; None for what is not finite."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return round(value, DECIMALS) if math.isfinite(value) else None
    if isinstance(value, Iterable) and not isinstance(value, str):
        return list(map(stored, value))
    return value


# ---- results beside the weights that are here


def are_other_weights(loaded: Runs) -> bool:
    """Return True if runs are not those on which the rows of their source were measured.

    They are compared by the sha256 of their weights, or of the learning curves beside them. If
    nothing was measured, they are no others.
    """
    if not measurements.is_stored(loaded.source):
        return False
    behind = by_id(loaded.source).measured
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
