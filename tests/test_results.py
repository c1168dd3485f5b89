"""The committed results: each verdict follows from the runs beside it, and moves only if the weights do."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from statistics import mean
from typing import Any

import numpy as np
import pytest

from carry_core import tasks
from carry_core.files import ROOT
from carry_core.groups import MAIN
from carry_core.ledger import compute, outcomes, published, results, verdicts
from carry_core.ledger.published import Claim
from carry_core.ledger.quantities import SPECIAL
from carry_core.ledger.readings import READINGS, Found, binomial, drawn_for
from carry_core.ledger.results import Row

SOURCES = ("author", "ours")
NO_SHARE = {"decoder/ablate_head_1_0/carry_accuracy"}  # a mean of cells that were drawn in different numbers
Rows = dict[str, Row]


@pytest.fixture
def committed(monkeypatch) -> dict[str, Rows]:
    monkeypatch.delenv("CARRY_DATA", raising=False)
    return {source: {row.id: row for row in results.read(source)["rows"]} for source in SOURCES}


# ---------------------------------------------------------------- each verdict follows from its runs


def noise(claim: Claim, row: Row) -> float:
    """The standard deviation that the paper's draw adds: counted anew for shares, else what the row was granted.

    A share that was counted on so many sums scatters as a binomial does. How much another choice of neurons changes
    is not in the results; the distance that they allow says how much was found.
    """
    if claim.rule not in ("drawn", "selected"):
        return 0.0
    if claim.rule == "drawn" and claim.id not in NO_SHARE:
        pattern = claim.id.split("/")[2] if claim.id.startswith("tab") else "NC"
        group = READINGS[claim.id].group if claim.id.startswith("tab") else MAIN
        drawn = drawn_for(group, tasks.find(pattern))
        return sum(binomial(run, drawn) for run in row.runs) ** 0.5 / len(row.runs)
    granted = (row.tolerance - claim.unit / 2) / verdicts.STANDARD_ERRORS
    assert granted > -1e-6, row.id
    return max(0.0, granted)


def runs_of_group(name: str, rows: Rows) -> int:
    """How many runs the group of a number has, though not all may count for it."""
    group = READINGS[name].group if name in READINGS else MAIN if name == "n2/decision_head_spread" else None
    same = [len(rows[other].runs) for other, reading in READINGS.items() if reading.group == group]
    return max([len(rows[name].runs), *same])


def judged(claim: Claim, source: str, rows: Rows, theirs: Rows) -> verdicts.Judgement:
    """Today's verdict on what stands in the results."""
    row = rows[claim.id]
    if claim.paper is None:
        shown, n = outcomes.shown(row) or (0, 0)
        shows = {run: run < shown for run in range(n)}
        return compute.judge(claim, source, Found({}, row.value, shows=shows), [])
    added = noise(claim, row) if source == "author" else 0.0
    found = Found(dict(enumerate(row.runs)), row.value, added, at_hand=runs_of_group(claim.id, rows))
    return compute.judge(claim, source, found, theirs[claim.id].runs)


def wrong(source: str, rows: Rows, theirs: Rows) -> list[str]:
    """The rows that do not follow from their own runs by today's rules."""
    found = []
    for name, claim in published.claims().items():
        row = rows[name]
        if row.verdict == "not run":
            ok = (row.value, row.std, row.runs, row.tolerance) == (None, None, [], None) and row.detail.endswith(".")
        else:
            today = judged(claim, source, rows, theirs)
            ok = today.verdict == row.verdict and today.tolerance == pytest.approx(row.tolerance, abs=2e-5)
            ok = ok and _same_statistics(source, row)
        if not ok or row.paper != claim.paper or row.where != claim.where:
            found.append(name)
    return found


def _same_statistics(source: str, row: Row) -> bool:
    if None in row.runs:  # a finding may find nothing in a run
        return True
    pooled = len({key.rpartition(" ")[0] for key in row.keys}) > 1
    std = np.std(row.runs, axis=0, ddof=1) if len(row.runs) > 1 and not pooled else None
    if std is None and row.std is not None:
        return False
    if std is not None and row.std != pytest.approx(std.tolist(), abs=2e-6):
        return False
    if row.id in READINGS:
        reading = READINGS[row.id]
        shown = source == "author" and reading.shown is not None and len(row.runs) > reading.shown
        return row.value == pytest.approx(reading.combine([row.runs[reading.shown]] if shown else row.runs), abs=2e-6)
    if row.id in SPECIAL and row.runs and not isinstance(row.value, list):
        return row.value == pytest.approx(mean(row.runs), abs=2e-6)
    return True


@pytest.mark.parametrize("source", SOURCES)
def test_every_stored_verdict_follows_from_the_runs_beside_it(committed, source):
    assert wrong(source, committed[source], committed["author"]) == []


CHANGES = {
    "a verdict": lambda row: replace(row, verdict="undecided" if row.verdict == "reproduced" else "reproduced"),
    "a value": lambda row: replace(row, value=row.value + 0.1),
    "a run": lambda row: replace(row, runs=[row.runs[0] + 0.1, *row.runs[1:]]),
    "what is allowed": lambda row: replace(row, tolerance=row.tolerance + 0.01),
    "a standard deviation": lambda row: replace(row, std=row.std + 0.01),
    "the paper's number": lambda row: replace(row, paper=row.paper + 0.01),
    "a row that was not run but has runs": lambda row: replace(row, verdict="not run"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("source", SOURCES)
def test_and_would_be_found_if_it_did_not(committed, source, change):
    rows, name = committed[source], "tab1/final_mlp/C@1/accuracy/pos7"
    rows[name] = CHANGES[change](rows[name])
    assert name in wrong(source, rows, committed["author"])


def test_a_finding_that_does_not_follow_would_be_found(committed):
    rows = committed["author"]
    row = rows["finding/staircase"]
    rows[row.id] = replace(row, detail=row.detail.replace("6 of 6 runs show it", "2 of 6 runs show it"))
    assert wrong("author", rows, rows) == ["finding/staircase"]


# ---------------------------------------------------------------- a verdict moves only with the weights


def moved(before: dict[str, Any], after: dict[str, Any], theirs_changed: set[str]) -> dict[str, str]:
    """The rows whose verdict moved though the weights did not, with the verdict before and after.

    The weights behind a row did not change if its runs are the same, or if every file that both results know is, and
    the row has as many runs as before (a row over all groups gets more when a group is added). Ours are judged by the
    author's runs too: rows for which those changed are in `theirs_changed`. A first verdict is none that moved.
    """
    known = before["weights"].keys() & after["weights"].keys()
    same_files = all(before["weights"][name] == after["weights"][name] for name in known)
    old = {row["id"]: row for row in before["rows"]}
    found = {}
    for row in after["rows"]:
        was = old.get(row["id"], row)
        same_runs = _rounded(was["runs"]) == _rounded(row["runs"])
        kept = row["id"] not in theirs_changed and (
            same_runs or (same_files and len(was["runs"]) == len(row["runs"])) or not row["runs"]
        )
        if was["verdict"] not in ("not run", row["verdict"]) and kept:
            found[row["id"]] = f"{was['verdict']} -> {row['verdict']}"
    return found


def _rounded(runs: list[Any]) -> Any:
    return [None if x is None else np.round(x, 3).tolist() for x in runs]


def announced(name: str, changelog: str) -> bool:
    """Whether the changelog names a row, or a family of rows as in `tab1/decision_head/*`."""
    patterns = re.findall(r"`([\w@./]+(?:/\*)?)`", changelog)
    return any(name == p or (p.endswith("/*") and name.startswith(p[:-1])) for p in patterns)


def versions(source: str) -> tuple[dict[str, Any], dict[str, Any], set[str]]:
    """The results before the newest change and now, and the rows for which the author's runs changed in between."""
    path = f"data/results/{source}.json"

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def runs(text: str) -> dict[str, Any]:
        return {row["id"]: _rounded(row["runs"]) for row in json.loads(text)["rows"]}

    try:
        commits = git("log", "--format=%H", "--", path).split()
    except (OSError, subprocess.CalledProcessError):
        commits = []
    now = (ROOT / path).read_text()
    earlier = [commit for commit in commits[:2] if git("show", f"{commit}:{path}") != now]
    if not earlier:
        pytest.skip("git has no earlier results here")
    theirs = (ROOT / "data" / "results" / "author.json").read_text()
    try:
        theirs_then = git("show", f"{earlier[0]}:data/results/author.json")
    except subprocess.CalledProcessError:
        theirs_then = theirs
    a, b = runs(theirs_then), runs(theirs)
    changed = {name for name in b if a.get(name) != b[name]} if source == "ours" else set()
    return json.loads(git("show", f"{earlier[0]}:{path}")), json.loads(now), changed


@pytest.mark.skipif(shutil.which("git") is None, reason="compares with what git has")
@pytest.mark.parametrize("source", SOURCES)
def test_a_verdict_moves_only_with_its_weights_or_with_a_word_in_the_changelog(source):
    """Another rule or another measure may move verdicts, but not silently."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    found = {name: how for name, how in moved(*versions(source)).items() if not announced(name, changelog)}
    assert found == {}, "the weights are the same: name these rows in CHANGELOG.md, and say why their verdict moved"


def saved(verdict: str, runs: list[float], weights: dict[str, str] | None = None) -> dict[str, Any]:
    return {"weights": weights or {"a": "1"}, "rows": [{"id": "n2/x", "verdict": verdict, "runs": runs}]}


def test_what_counts_as_moved():
    one, two = saved("reproduced", [0.5, 0.6]), saved("differs", [0.5, 0.6])
    assert moved(one, two, set()) == {"n2/x": "reproduced -> differs"}
    assert moved(one, one, set()) == {}
    assert moved(one, two, {"n2/x"}) == {}  # ours, and the author's runs are others
    assert moved(saved("not run", []), two, set()) == {}  # a first verdict
    assert moved(one, saved("not run", []), set()) == {"n2/x": "reproduced -> not run"}
    # the same runs, whatever happened to the files
    assert moved(one, saved("differs", [0.5, 0.6], {"a": "2"}), set()) != {}
    # other runs from the same files: another measure
    assert moved(one, saved("differs", [0.5, 0.7]), set()) != {}
    # other runs from other files, and more runs since a file was added
    assert moved(one, saved("differs", [0.5, 0.7], {"a": "2"}), set()) == {}
    assert moved(one, saved("differs", [0.5, 0.6, 0.7], {"a": "1", "b": "1"}), set()) == {}


def test_what_counts_as_announced():
    changelog = "- `tab1/decision_head/*` are judged by the spread, and so is `n2/accuracy`."
    assert announced("tab1/decision_head/NC/accuracy/pos7", changelog)
    assert announced("n2/accuracy", changelog)
    assert not announced("n2/accuracy2", changelog)
    assert not announced("tab1/final_mlp/NC/accuracy/pos7", changelog)
