"""The ledger: every number that the paper prints and every finding that it states, and what became of each."""

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from carry_core import tasks
from carry_core.errors import BadInput
from carry_core.files import data_dir, write_json
from carry_core.ledger import findings, quantities, verdicts
from carry_core.ledger.contents import NOTEBOOKS
from carry_core.ledger.evidence import Evidence, Need, weights
from carry_core.ledger.readings import Found
from carry_core.measure import Cells

VERSION = 1  # of results files
NAMED = re.compile(r"Runs in order: (.+?)\.(?: |$)")  # in a row's detail


@dataclass(frozen=True)
class Claim:
    """One published number, or one finding.

    Attributes:
        id: stable name such as `tab1/final_mlp/NC/accuracy/pos7` or `finding/biases`.
        where: section, table or figure of the paper.
        paper: the printed value or a list of them; None for a finding.
        notebook: the page that shows it.
        rule: one of `verdicts.RULES`.
        reason: why this rule.
        note: what the paper leaves open.
        unit: the last printed digit.
        range: how far the quantity can range.
        single: whether the paper's number is one run's.
        claim: what a finding says.
        measure: what is computed for it.
    """

    id: str
    where: str
    paper: Any
    notebook: str
    rule: str
    reason: str
    note: str = ""
    unit: float | int = 0.01
    range: float | int = 1.0
    single: bool = False
    claim: str = ""
    measure: str = ""


REQUIRED = ("id", "where", "paper", "notebook", "rule", "reason")
TEXTS = ("id", "where", "notebook", "rule", "reason", "note", "claim", "measure")
CHOICES: dict[str, Sequence[str]] = {"notebook": NOTEBOOKS, "rule": tuple(verdicts.RULES)}


@dataclass(frozen=True)
class Row:
    """A row of the ledger for one source, as `carry claims --json` writes it.

    Attributes:
        value: a number, a list where `paper` is one, None if it was not run.
        std: standard deviation between runs with n - 1; None for fewer than two, or runs of several groups.
        runs: the value of each run.
        tolerance: how far `value` may lie from `paper`; None where there is no such distance.
        verdict: `reproduced`, `differs`, `undecided` or `not run`.
        detail: how it was obtained, what the alternatives give, or why it was not run.
    """

    id: str
    where: str
    paper: Any
    value: Any
    std: Any
    runs: list[Any]
    tolerance: float | None
    verdict: str
    detail: str

    @property
    def keys(self) -> list[str]:
        """What each run is called: its number, with its group before it where there are several."""
        said = NAMED.search(self.detail)
        if not said:
            return [str(number) for number in range(len(self.runs))]
        parts = [part.rpartition(" ")[0::2] for part in said[1].replace(", ", ",").split("; ")]
        return [f"{group} {number}".strip() for group, numbers in parts for number in numbers.split(",")]


def _named(keys: Collection[Any]) -> str:
    """The sentence from which `Row.keys` knows the runs; none where they are 0, 1, 2 and so on."""
    if list(keys) == list(range(len(keys))):
        return ""
    groups: dict[str, list[str]] = {}
    for key in keys:
        group, number = key if isinstance(key, tuple) else ("", key)
        groups.setdefault(group, []).append(str(number))
    told = "; ".join(f"{group} {', '.join(numbers)}".strip() for group, numbers in groups.items())
    return f"Runs in order: {told}."


def published() -> dict[str, Claim]:
    """All claims of `data/claims.yml` by id.

    Raises:
        BadInput: the file is not a list of claims, a key is unknown or missing, an id occurs twice, or a notebook or
            a rule is none that there is.
    """
    path = data_dir() / "claims.yml"
    try:
        return _read(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        raise BadInput(f"Cannot read {path} ({why}): restore it with `git checkout {path}`.") from error


@lru_cache(maxsize=2)
def _read(path: Path, _modified: int) -> dict[str, Claim]:
    rows = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    claims: dict[str, Claim] = {}
    if not rows:
        raise BadInput(f"{path} has no claims: restore it with `git checkout {path}`.")
    for row in rows if isinstance(rows, list) else [rows]:
        claim = _claim(path, row)
        if claim.id in claims:
            raise BadInput(f"{path}: the id {claim.id} occurs twice: remove one of the two.")
        claims[claim.id] = claim
    return claims


def _claim(path: Path, row: Any) -> Claim:
    if not isinstance(row, dict) or "id" not in row:
        raise BadInput(f"{path}: {row!r} is not a claim: expected a mapping with {', '.join(REQUIRED)}.")
    name = row["id"]
    if unknown := set(row) - {f.name for f in fields(Claim)}:
        raise BadInput(f"{path}: {name} has an unknown key {min(map(str, unknown))}: remove it.")
    for key in REQUIRED:
        if key not in row or (row[key] in (None, "") and key != "paper"):
            raise BadInput(f"{path}: {name} has no {key}: write one, or refer to a family that has one.")
    for key, fits, expected in (
        *((key, isinstance(row.get(key, ""), str), "text") for key in TEXTS),
        ("single", isinstance(row.get("single", False), bool), "true or false"),
        ("paper", row["paper"] is None or _numeric(row["paper"]), "a number, or a list of numbers, as in 5.0e+7"),
        *((key, _positive(row.get(key, 1)), "a positive number") for key in ("unit", "range")),
    ):
        if not fits:
            raise BadInput(f"{path}: {name} has the {key} {row[key]!r}: expected {expected}.")
    for key, choices in CHOICES.items():
        if row[key] not in choices:
            raise BadInput(f"{path}: {name} has the unknown {key} {row[key]!r}: expected one of {', '.join(choices)}.")
    if (row["paper"] is None) != (row["rule"] in verdicts.FINDING_RULES):
        whose = "numbers" if row["paper"] is None else "findings"
        raise BadInput(f"{path}: {name} has the rule {row['rule']}, which is for {whose}: choose another.")
    return Claim(**row)


def _numeric(value: Any) -> bool:
    """Whether it is a number, or a list of such."""
    if isinstance(value, list):
        return bool(value) and all(map(_numeric, value))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _positive(value: Any) -> bool:
    return _numeric(value) and not isinstance(value, list) and value > 0


def printed_cells(prefix: str) -> Cells:
    """A table of the paper as `Cells`, such as `tab1/final_mlp`.

    Raises:
        BadInput: the ledger has no such table.
    """
    claims = published()
    values = {}
    for kind in ("accuracy", "corrected"):
        ids = [[f"{prefix}/{tasks.key(p)}/{kind}/pos{i}" for i in (7, 8, 9)] for p in tasks.patterns(3)]
        missing = [name for row in ids for name in row if name not in claims]
        if missing:
            raise BadInput(f"The ledger has no {missing[0]}: expected a table such as tab1/final_mlp.")
        values[kind] = torch.tensor([[float(claims[name].paper) for name in row] for row in ids])
    return Cells(values["accuracy"], values["corrected"], whole=float("nan"))


def chosen(only: str = "") -> list[Claim]:
    """The claims whose id starts with `only`.

    Raises:
        BadInput: there are none.
    """
    found = [claim for claim in published().values() if claim.id.startswith(only)]
    if not found:
        known = dict.fromkeys(name.split("/")[0] for name in published())
        raise BadInput(f"--only {only}: no id starts with that; ids start with {', '.join(known)}.")
    return found


class Ledger:
    """The rows of one source.

    Args:
        source: `ours` or `author`.
        only: the rows whose id starts with this.
        report: called with a line after each run that was measured and each row that took its time.

    Raises:
        BadInput: unknown source, no such row, or a row that nothing is measured for.
    """

    def __init__(self, source: str, only: str = "", report: Callable[[str], None] = lambda done: None) -> None:
        self.source, self.claims, self.report = source, chosen(only), report
        for claim in self.claims:
            if not (findings.known(claim.id) if claim.paper is None else quantities.known(claim.id)):
                raise BadInput(f"{data_dir() / 'claims.yml'}: nothing is measured for {claim.id}: correct the id.")
        needs: dict[str, Need] = {}
        for claim in self.claims:
            for group, need in (findings.needed(claim.id) | quantities.needed(claim.id)).items():
                needs[group] = needs.get(group, Need()) | need
        self.evidence = Evidence(source, needs, report)
        self.theirs = author_rows() if source == "ours" else {}

    def steps(self) -> int:
        """How often `report` will be called at most."""
        return self.evidence.steps() + sum(claim.paper is None for claim in self.claims)

    def rows(self) -> list[Row]:
        """Compute them all, from weights; what cannot be computed says why."""
        return [self.row(claim) for claim in self.claims]

    def row(self, claim: Claim) -> Row:
        """Compute one."""
        self.evidence.used.clear()
        try:
            if claim.paper is None:
                found = findings.find(claim.id, self.evidence)
                self.report(claim.id)
            else:
                found = quantities.find(claim.id, self.evidence)
        except BadInput as error:
            return Row(claim.id, claim.where, claim.paper, None, None, [], None, "not run", str(error))
        judgement = self._judge(claim, found)
        numbers = list(found.runs.values())
        pooled = len({key[0] for key in found.runs if isinstance(key, tuple)}) > 1  # groups that need not be alike
        bounded = not pooled and all(isinstance(x, float) and abs(x) <= claim.range for x in numbers)
        groups_apart = verdicts.disagreement(numbers, claim.range) if bounded else ""
        sentences = [found.detail, judgement.detail, groups_apart, _named(found.runs), self.evidence.recipes()]
        detail = " ".join(filter(None, sentences))
        std = np.std(numbers, axis=0, ddof=1).tolist() if len(numbers) > 1 and not pooled else None
        return Row(
            claim.id, claim.where, claim.paper, _plain(found.value), _plain(std), [_plain(x) for x in numbers],
            judgement.tolerance if judgement.tolerance is None else round(judgement.tolerance, 6), judgement.verdict,
            detail,
        )  # fmt: skip

    def _judge(self, claim: Claim, found: Found) -> verdicts.Judgement:
        theirs = self.theirs.get(claim.id)
        return judge(claim, self.source, found, theirs.runs if theirs else [])


def judge(claim: Claim, source: str, found: Found, theirs: Sequence[Any]) -> verdicts.Judgement:
    """The verdict on what a source's runs gave; `theirs` are the author's runs, which ours are compared with."""
    if found.shows is not None:
        enough = verdicts.ENOUGH if source == "ours" and not claim.single else 1
        return verdicts.judge_finding(claim.rule, list(found.shows.values()), enough)
    printed = verdicts.Printed(_array(claim.paper), claim.unit, claim.range, claim.single)
    if (n := len(_array(found.value))) != len(printed.value):
        raise BadInput(f"{claim.id}: {n} number(s) were computed, but `paper` has {len(printed.value)}: correct it.")
    at_hand = len(found.runs) if found.at_hand is None else found.at_hand
    runs = np.stack([_array(x) for x in found.runs.values()]) if found.runs else np.zeros((0, 1))
    if source == "author":
        return verdicts.judge_author(claim.rule, printed, _array(found.value), found.noise, at_hand, runs)
    known = np.stack([_array(x) for x in theirs]) if theirs else None
    return verdicts.judge_ours(claim.rule, printed, _array(found.value), runs, known, at_hand)


def _array(value: Any) -> verdicts.Array:
    return np.atleast_1d(np.asarray(value, dtype=np.float64))


def _plain(value: Any) -> Any:
    """A number with six places, so that the last bits of another processor change no file."""
    if isinstance(value, list):
        return [_plain(x) for x in value]
    if isinstance(value, float):
        return round(value, 6) if value == value else None
    return value


def results_path(source: str) -> Path:
    """Where the committed results of a source lie."""
    return data_dir() / "results" / f"{source}.json"


def save_results(source: str, rows: list[Row]) -> Path:
    """Write a source's rows, with the sha256 of the weights that they come from."""
    kept = {"version": VERSION, "source": source, "weights": weights(source), "rows": [asdict(row) for row in rows]}
    write_json(results_path(source), kept)
    return results_path(source)


def read_results(source: str) -> dict[str, Any]:
    """A source's committed results: `version`, `source`, `weights` and `rows`, these as `Row`.

    Raises:
        BadInput: the file is missing, damaged, or of another version.
    """
    path = results_path(source)
    remedy = f"write it with `carry claims --source {source} --save`"
    try:
        found = json.loads(path.read_text())
        if found["version"] != VERSION:
            raise BadInput(f"{path} has version {found['version']!r}, expected {VERSION}: {remedy}.")
        if found["source"] != source:
            raise BadInput(f"{path} has the results of {found['source']!r}, expected {source!r}: {remedy}.")
        return {**found, "weights": dict(found["weights"]), "rows": [_row(row) for row in found["rows"]]}
    except FileNotFoundError as error:
        raise BadInput(f"{path} does not exist: {remedy}.") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path} is damaged ({error}): {remedy}.") from error


def _row(values: dict[str, Any]) -> Row:
    """A row as it was read, if every entry is of its kind."""
    row = Row(**values)
    texts = all(isinstance(x, str) for x in (row.id, row.where, row.detail)) and row.verdict in verdicts.VERDICTS
    numbers = all(map(_numbers, (row.paper, row.value, row.std, row.tolerance, row.runs)))
    if not (texts and numbers and isinstance(row.runs, list)):
        raise ValueError(f"an entry of {row.id!r} is not of its kind")
    return row


def _numbers(value: Any) -> bool:
    """Whether it is a number, None where there is none, or a list of such."""
    return value is None or (all(map(_numbers, value)) if isinstance(value, list) else _numeric(value))


def author_rows() -> dict[str, Row]:
    """The committed results of the author's weights by id; empty where there are none."""
    return {row.id: row for row in read_results("author")["rows"]} if results_path("author").exists() else {}
