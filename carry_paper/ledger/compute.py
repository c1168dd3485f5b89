"""The ledger of one source, computed from weights: a row and a verdict for each number and finding."""

import json
import os
import re
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import Need
from carry_paper.ledger import claims, registry, results, verdicts
from carry_paper.ledger.claims import Claim
from carry_paper.ledger.entries import Measurement
from carry_paper.ledger.results import Row

RUNS_COUNTED = "n2_w0/runs_full_mlp_ablation_works"  # the one number that counts runs


class Ledger:
    """The rows of one source whose id starts with `only`; `failed` are those that raised what nobody had foreseen.

    A row whose computation fails is `not run` with the reason, and takes no other with it. `report`
    is called with a line after each run that was measured and each row that took its time.
    `BadInput` if there is no such source or row.
    """

    def __init__(
        self, source: str, only: str = "", report: Callable[[str], None] = lambda done: None
    ) -> None:
        self.source, self.claims, self.report = source, claims.chosen(only), report
        needs: dict[str, Need] = {}
        for claim in self.claims:
            entry = registry.entry(claim.id)
            if entry.need is not None:
                needs[entry.groups[0]] = needs.get(entry.groups[0], Need()) | entry.need
        self.evidence = Evidence(source, needs, report)
        self.theirs = results.by_id("author") if source == "ours" else {}
        self.failed: list[str] = []

    def steps(self) -> int:
        """How often `report` will be called at most."""
        at_hand = [
            self.evidence.group(group) for group in self.evidence.needs if self.evidence.has(group)
        ]
        return sum(len(loaded.numbers) for loaded in at_hand) + sum(
            claim.paper is None for claim in self.claims
        )

    def rows(self, journal: Path = Path(os.devnull)) -> list[Row]:
        """Compute them all; `journal` gets each as a line of JSON as soon as it is there."""
        rows = []
        with opened(journal) as file:
            for claim in self.claims:
                rows.append(self.row(claim))
                file.write(json.dumps(asdict(rows[-1])) + "\n")
                file.flush()
        return rows

    def row(self, claim: Claim) -> Row:
        """Compute one."""
        try:
            row = self._judged(claim, registry.entry(claim.id).measure(self.evidence))
        except BadInput as error:
            why = str(error)
        except Exception as error:
            self.failed.append(claim.id)
            *_, last = (
                frame
                for frame in traceback.extract_tb(error.__traceback__)
                if re.search("carry_(core|paper)", frame.filename)
            )
            place = f"{Path(last.filename).name}:{last.lineno}"
            why = f"It failed unexpectedly: {type(error).__name__}: {' '.join(str(error).split())} ({place})."
        else:
            if claim.paper is None:
                self.report(claim.id)
            return row
        return Row(
            claim.id,
            claim.where,
            claim.paper,
            detail=why,
            rule=verdicts.rule_text(claim),
            reason=registry.reason(claim),
            groups=list(registry.entry(claim.id).groups),
        )

    def _judged(self, claim: Claim, found: Measurement) -> Row:
        theirs = self.theirs.get(claim.id)
        judgement = judge(claim, self.source, found, theirs.runs if theirs else [])
        numbers = list(found.runs.values())
        row = Row(
            claim.id,
            claim.where,
            claim.paper,
            value=_plain(found.value),
            runs=_plain(numbers),
            tolerance=_plain(judgement.tolerance),
            verdict=judgement.verdict,
            n=len(numbers) or found.group_size or 0,
            fields=self._fields(claim, found),
            interval=_plain(judgement.interval),
            rule=verdicts.rule_text(claim),
            reason=registry.reason(claim),
            groups=list(registry.entry(claim.id).groups),
        )
        std = np.std(numbers, axis=0, ddof=1) if len(numbers) > 1 and not row.pooled else None
        told = (found.how, judgement.detail, row.disagreement(claim.range), sentence(row.fields))
        return replace(row, std=_plain(std), detail=" ".join(filter(None, told)))

    def _fields(self, claim: Claim, found: Measurement) -> dict[str, list[Any]]:
        """What was measured besides the value, a list by run each."""
        # a number, with its group before it
        keys = [key if isinstance(key, tuple) else (key,) for key in found.runs]
        columns: dict[str, list[Any]] = (
            {"run": [" ".join(map(str, key)) for key in keys]} if keys else {}
        )
        if found.shows is not None:
            columns["shows"] = list(found.shows.values())
        about = registry.entry(claim.id).groups
        trained = {group: self.evidence.training(group) for group in about}
        if any(trained.values()):
            own = [key[:1] if key[0] in about else about for key in keys]
            columns["training"] = [
                sorted({trained[group] for group in some} - {""}) for some in own
            ]
        for name in dict.fromkeys(name for row in found.fields.values() for name in row):
            columns[name] = [_plain(found.fields.get(key, {}).get(name)) for key in found.runs]
        return columns


def sentence(fields: Mapping[str, Sequence[Any]]) -> str:
    """The fields of a row in words, run by run; nothing where a run has no more than a name."""
    names = [name for name in fields if name not in ("run", "shows")]
    if not names:
        return ""
    told = "; ".join(
        f"run {run}: "
        + ", ".join(f"{name.replace('_', ' ')} {_text(fields[name][i])}" for name in names)
        for i, run in enumerate(fields.get("run", []))
    )
    return f"{told[:1].upper()}{told[1:]}."


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_text, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def judge(
    claim: Claim, source: str, found: Measurement, theirs: Sequence[Any]
) -> verdicts.Judgement:
    """The verdict on what a source's runs gave; `theirs` are the author's runs, which ours are compared with."""
    if found.shows is not None:
        return verdicts.judge_finding(
            claim.quantifier, list(found.shows.values()), single=claim.single
        )
    at_hand = found.group_size or len(found.runs)
    value, runs, known = (
        verdicts.as_array(found.value),
        _stacked(found.runs.values()),
        _stacked(theirs),
    )
    if source == "author":
        return verdicts.judge_author(claim, value, found.noise, at_hand, runs)
    if claim.id == RUNS_COUNTED:  # their mean is scaled to what the paper counted among
        value, runs, known = (verdicts.PAPER_RUNS * x for x in (runs.mean(0), runs, known))
    return verdicts.judge_ours(claim, value, runs, known, at_hand)


def _stacked(values: Collection[Any]) -> verdicts.Array:
    """By `[run, entry]`."""
    return np.stack([verdicts.as_array(x) for x in values]) if values else np.zeros((0, 1))


def journal(source: str) -> Path:
    """Where the rows of a source go as they come: beside the book's build."""
    return (
        (ROOT if (ROOT / "pyproject.toml").exists() else Path.cwd())
        / "_build"
        / "ledger"
        / f"{source}.jsonl"
    )


def opened(journal: Path) -> TextIO:
    """The journal, open for writing; nowhere if that cannot be, since the rows come without it."""
    try:
        journal.parent.mkdir(parents=True, exist_ok=True)
        return journal.open("w")
    except OSError:
        return Path(os.devnull).open("w")


def _plain(value: Any) -> Any:
    """A number with six places, so that the last bits of another processor change no file."""
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(x) for x in value]
    if isinstance(value, float):
        return round(value, 6) if value == value else None
    return value
