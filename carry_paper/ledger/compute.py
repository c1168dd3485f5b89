"""The ledger of one source, computed from weights: a row with a verdict for each claim."""

import json
import math
import os
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import Need
from carry_paper.ledger import claims, exchangeability, registry, results, verdicts
from carry_paper.ledger.claims import Claim
from carry_paper.ledger.entries import Measurement
from carry_paper.ledger.exchangeability import TableTest
from carry_paper.ledger.results import Row


class Ledger:
    """The rows of one source, computed from its weights and learning curves.

    A row whose computation fails is `not run`, with the reason, and does not affect other rows.

    Args:
        source: `ours` or `author`.
        only: The beginning of the rows' ids (all rows if empty).
        report: A function that is called with a line after each survey and each finding.

    Attributes:
        failed: The ids of the rows that raised an unforeseen error.

    Raises:
        BadInput: There is no such source or row.
    """

    def __init__(
        self, source: str, only: str = "", report: Callable[[str], None] = lambda done: None
    ) -> None:
        self.source = source
        self.claims = claims.chosen(only)
        self.report = report
        needs: dict[str, Need] = {}
        for claim in self.claims:
            entry = registry.entry(claim.id)
            if entry.need is not None:
                group = entry.groups[0]
                needs[group] = needs.get(group, Need()) | entry.need
        self.evidence = Evidence(source, needs, report)
        self.author_rows = results.by_id("author") if source == "ours" else {}
        self.table_tests: dict[str, TableTest] = {}
        self.failed: list[str] = []

    def steps(self) -> int:
        """Return the largest number of times that `report` will be called."""
        n_surveys = 0
        for group in self.evidence.needs:
            if self.evidence.has(group):
                n_surveys += len(self.evidence.group(group).numbers)
        n_findings = sum(claim.paper is None for claim in self.claims)
        return n_surveys + n_findings

    def rows(self, journal: Path = Path(os.devnull)) -> list[Row]:
        """Return all rows; each is written to `journal` as a line of JSON once it is computed."""
        rows = []
        with opened(journal) as file:
            for claim in self.claims:
                row = self.row(claim)
                file.write(json.dumps(asdict(row)) + "\n")
                file.flush()
                rows.append(row)
        return rows

    def row(self, claim: Claim) -> Row:
        """Return the row of a claim."""
        try:
            row = self._judged(claim, registry.entry(claim.id).measure(self.evidence))
        except BadInput as error:
            return self._not_run(claim, str(error))
        except Exception as error:
            self.failed.append(claim.id)
            return self._not_run(claim, unforeseen(error))
        if claim.paper is None:
            self.report(claim.id)
        return row

    def _not_run(self, claim: Claim, detail: str) -> Row:
        """Return the row of a claim that could not be measured."""
        row = replace(unmeasured(claim), detail=detail)
        return results.explained(row, claim, self.source)

    def _judged(self, claim: Claim, measurement: Measurement) -> Row:
        """Return a claim's row with its verdict."""
        measurement = self._by_the_papers_protocol(claim, measurement)
        author_row = self.author_rows.get(claim.id)
        author_runs = author_row.runs if author_row else []
        table = self.table_test(claim.table) if self.source == "ours" and claim.table else None
        judgement = judge(claim, self.source, measurement, author_runs, table)
        values = list(measurement.runs.values())
        row = replace(
            unmeasured(claim),
            value=stored(measurement.value),
            runs=stored(values),
            tolerance=stored(judgement.tolerance),
            verdict=judgement.verdict,
            n=len(values) or measurement.group_size or 0,
            fields=self._fields(claim, measurement),
            interval=stored(judgement.interval),
            settles=judgement.settles,
            table=table,
            sensitivity=sensitivity(claim, self.source, measurement, judgement.verdict),
        )
        std = None
        if len(values) > 1 and not row.pooled:
            std = stored(np.std(values, axis=0, ddof=1))
        sentences = [
            measurement.method,
            judgement.detail,
            row.disagreement(claim.range),
            row.fields_in_words,
        ]
        detail = " ".join(sentence for sentence in sentences if sentence)
        return results.explained(replace(row, std=std, detail=detail), claim, self.source)

    def _by_the_papers_protocol(self, claim: Claim, measurement: Measurement) -> Measurement:
        """Return the part of a measurement on runs that can be judged.

        A row that depends on the recipe is judged on runs by the paper's protocol alone.

        Raises:
            BadInput: There are none of these.
        """
        groups = registry.entry(claim.id).groups
        stand_ins = {group: self.evidence.training(group) for group in groups}
        if not claim.recipe_sensitive or not any(stand_ins.values()):
            return measurement
        by_paper = []
        for key in measurement.runs:
            own_groups = key[:1] if isinstance(key, tuple) and key[0] in groups else groups
            if not any(stand_ins[group] for group in own_groups):
                by_paper.append(key)
        if not by_paper:
            recipes = "; ".join(sorted({words for words in stand_ins.values() if words}))
            raise BadInput(
                "It depends on the recipe, and our runs were not trained by the paper's:"
                f" {recipes}."
            )
        return measurement.of_runs(by_paper)

    def table_test(self, name: str) -> TableTest:
        """Return the comparison of our runs with the author's over all cells of a table."""
        if name not in self.table_tests:
            ours, theirs = [], []
            for claim in claims.claims().values():
                if claim.table == name:
                    measurement = registry.entry(claim.id).measure(self.evidence)
                    author_row = self.author_rows.get(claim.id)
                    ours.append(list(measurement.runs.values()))
                    theirs.append(author_row.runs if author_row else [])
            cells_of_runs = [np.array(cells, dtype=float).T for cells in (ours, theirs)]
            self.table_tests[name] = rounded(exchangeability.compare(name, *cells_of_runs))
        return self.table_tests[name]

    def _fields(self, claim: Claim, measurement: Measurement) -> dict[str, list[Any]]:
        """Return everything measured besides the value, as lists with an entry for each run."""
        columns: dict[str, list[Any]] = {}
        # Runs of one group are named by their number, those of several by group and number.
        keys = [key if isinstance(key, tuple) else (key,) for key in measurement.runs]
        if keys:
            columns["run"] = [" ".join(str(part) for part in key) for key in keys]
        if measurement.shows is not None:
            columns["shows"] = list(measurement.shows.values())

        groups = registry.entry(claim.id).groups
        training = {group: self.evidence.training(group) for group in groups}
        if any(training.values()):
            columns["training"] = []
            for key in keys:
                own_groups = key[:1] if key[0] in groups else groups
                columns["training"].append(
                    sorted({training[group] for group in own_groups if training[group]})
                )

        names = dict.fromkeys(name for fields in measurement.fields.values() for name in fields)
        for name in names:
            columns[name] = []
            for run in measurement.runs:
                columns[name].append(stored(measurement.fields.get(run, {}).get(name)))
        return columns


def unmeasured(claim: Claim) -> Row:
    """Return the row of a claim for which nothing is measured yet."""
    return Row(
        claim.id,
        claim.where,
        claim.paper,
        rule=verdicts.rule_text(claim),
        reason=registry.reason(claim),
        groups=list(registry.entry(claim.id).groups),
    )


def unforeseen(error: Exception) -> str:
    """Return a line on an unforeseen error, with its place in our code."""
    frames = []
    for frame in traceback.extract_tb(error.__traceback__):
        if re.search("carry_(core|paper)", frame.filename):
            frames.append(frame)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
    message = " ".join(str(error).split())
    return f"It failed unexpectedly: {type(error).__name__}: {message} ({place})."


def judge(
    claim: Claim,
    source: str,
    measurement: Measurement,
    author_runs: Sequence[Any],
    table: TableTest | None = None,
) -> verdicts.Judgement:
    """Return the verdict on a source's measurement.

    Args:
        claim: The claim.
        source: `ours` or `author`.
        measurement: The measurement on the source's runs.
        author_runs: The values of the author's runs, with which ours are compared.
        table: The comparison of the whole table, if the claim is a cell of one.
    """
    if measurement.shows is not None:
        return judge_shown(claim, source, measurement.shows)
    value = verdicts.as_array(measurement.value)
    runs = stacked(list(measurement.runs.values()))
    n_runs = measurement.group_size or len(runs)
    if source == "author":
        return verdicts.judge_author(claim, value, measurement.noise, n_runs, runs)
    if claim.rule == "count":
        if author_runs:
            theirs = verdicts.Count(round(sum(author_runs)), len(author_runs))
        else:
            theirs = verdicts.Count(int(verdicts.as_array(claim.paper)[0]), verdicts.PAPER_RUNS)
        return verdicts.judge_count(claim, verdicts.Count(round(runs.sum()), len(runs)), theirs)
    return verdicts.judge_ours(claim, value, runs, stacked(author_runs), n_runs, table)


def judge_shown(claim: Claim, source: str, shows: Mapping[Any, bool | None]) -> verdicts.Judgement:
    """Return the verdict on a finding, given which runs show it; None for one that cannot say."""
    of_runs_that_can_say = [shows_it for shows_it in shows.values() if shows_it is not None]
    return verdicts.judge_finding(
        claim.quantifier, of_runs_that_can_say, single=claim.single, source=source
    )


def sensitivity(
    claim: Claim, source: str, measurement: Measurement, verdict: str
) -> dict[str, str]:
    """Return the other verdicts that a finding would have with other bars, by these bars."""
    others = {}
    for bar, shows in measurement.shows_at.items():
        judgement = judge_shown(claim, source, shows)
        if judgement.verdict != verdict:
            others[bar] = judgement.verdict
    return others


def rounded(test: TableTest) -> TableTest:
    """Return a table's test with its numbers rounded as they are stored."""
    return TableTest(**{name: stored(value) for name, value in asdict(test).items()})


def stacked(values: Sequence[Any]) -> verdicts.Array:
    """Return the values of runs, numbers or lists of them, as an array [run, entry]."""
    if not values:
        return np.zeros((0, 1))
    return np.stack([verdicts.as_array(value) for value in values])


def stored(value: Any) -> Any:
    """Return a value as it is stored: NaN as None, and numbers rounded to six decimals.

    So the last bits, which depend on the processor, do not change any file.
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, 6)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [stored(entry) for entry in value]
    return value


# ---- the journal


def journal(source: str) -> Path:
    """Return the file to which a source's rows are written as they come, in the book's build."""
    folder = ROOT if (ROOT / "pyproject.toml").exists() else Path.cwd()
    return folder / "_build" / "ledger" / f"{source}.jsonl"


def opened(journal: Path) -> TextIO:
    """Return the journal, open for writing, or the null device if it cannot be written.

    The rows can do without a journal.
    """
    try:
        journal.parent.mkdir(parents=True, exist_ok=True)
        return journal.open("w")
    except OSError:
        return Path(os.devnull).open("w")
