"""The committed results: each verdict follows from the runs beside it, and moves only if the weights do."""

from dataclasses import replace
from statistics import mean

import numpy as np
import pytest

from carry_core import author
from carry_core.findings.base import Measurement
from carry_core.groups import MAIN
from carry_core.ledger import claims, compute, results, verdicts
from carry_core.ledger.claims import CLASSES, Claim
from carry_core.ledger.quantities import READINGS, SPECIAL, binomial, drawn_for, groups_of
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
        drawn = drawn_for(group, CLASSES[pattern])
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
        shows = dict(enumerate(row.fields["shows"]))
        return compute.judge(claim, source, Measurement({}, row.value, shows=shows), [])
    added = noise(claim, row) if source == "author" else 0.0
    found = Measurement(dict(enumerate(row.runs)), row.value, added, at_hand=runs_of_group(claim.id, rows))
    return compute.judge(claim, source, found, theirs[claim.id].runs)


def wrong(source: str, rows: Rows, theirs: Rows) -> list[str]:
    """The rows that do not follow from their own runs by today's rules."""
    found = []
    for name, claim in claims.claims().items():
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


def test_a_row_of_the_authors_that_was_not_run_needs_what_his_release_lacks(committed):
    """It asks for no import of what has been imported."""
    for row in committed["author"].values():
        if row.verdict == "not run" and not row.id.startswith(("tab2/", "finding/llm_heads")):
            lacks = [group for group in groups_of(row.id) if not author.holds("weights", group)]
            assert lacks or "history has not" in row.detail, row.id
            assert "import-author" not in row.detail


def test_a_finding_that_does_not_follow_would_be_found(committed):
    rows = committed["author"]
    row = rows["finding/staircase"]
    rows[row.id] = replace(row, fields=row.fields | {"shows": [True, True] + [False] * 4})
    assert wrong("author", rows, rows) == ["finding/staircase"]


# ---------------------------------------------------------------- rows that can hardly fail


def test_rows_that_can_hardly_fail_are_counted_apart(committed):
    why = results.uninformative(committed)
    assert "data/sums3" in why
    assert "tab1/decision_head/NC/accuracy/pos9" in why
    assert "tab1/final_mlp/NC/accuracy/pos9" not in why  # the final MLP can spoil the units
    name = "tab1/final_mlp/C_all_con/corrected/pos8"
    first = name.replace("corrected", "accuracy")
    assert (name in why, first in why) == (True, False)
    for rows in committed.values():
        sums = np.add(rows[name].runs, rows[first].runs)
        assert sums == pytest.approx(np.ones(len(sums)), abs=1.5e-6)
    for source in SOURCES:  # of both sources, and of every run
        row = committed[source][name]
        changed = committed | {
            source: committed[source] | {name: replace(row, runs=[row.runs[0] - 1e-4, *row.runs[1:]])}
        }
        assert name not in results.uninformative(changed)
