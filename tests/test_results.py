"""The committed results: each verdict follows from the runs beside it, and moves only if the weights do."""

from dataclasses import replace

import numpy as np
import pytest

from carry_core.findings.base import Measurement
from carry_core.ledger import claims, compute, results
from carry_core.ledger.quantities import READINGS, entry
from carry_core.ledger.results import Row

SOURCES = ("author", "ours")
Rows = dict[str, Row]


@pytest.fixture
def committed(monkeypatch) -> dict[str, Rows]:
    monkeypatch.delenv("CARRY_DATA", raising=False)
    return {source: results.by_id(source) for source in SOURCES}


def follows(row: Row, source: str, rows: Rows, theirs: Rows) -> bool:
    """Whether today's rules give the verdict that stands in the results, from the runs that stand beside it.

    How much the paper's own draw adds to the author's numbers is not stored, so of those only the rest is judged anew.
    """
    claim = claims.claims()[row.id]
    if (row.paper, row.where) != (claim.paper, claim.where):
        return False
    if row.verdict == "not run":
        return (row.value, row.std, row.runs, row.tolerance) == (None, None, [], None) and row.detail.endswith(".")
    if None not in row.runs and len(row.runs) > 1 and not row.pooled:
        assert row.std == pytest.approx(np.std(row.runs, axis=0, ddof=1).tolist(), abs=2e-6), row.id
    if source == "author" and claim.rule in ("drawn", "selected"):
        return True
    shows = dict(enumerate(row.fields["shows"])) if claim.paper is None else None
    same = [len(r.runs) for r in rows.values() if entry(r.id).groups == entry(row.id).groups and r.id in READINGS]
    found = Measurement(dict(enumerate(row.runs)), row.value, shows=shows, at_hand=max([len(row.runs), *same]))
    today = compute.judge(claim, source, found, theirs[row.id].runs)
    return today.verdict == row.verdict and today.tolerance == pytest.approx(row.tolerance, abs=2e-5)


@pytest.mark.parametrize("source", SOURCES)
def test_every_stored_verdict_follows_from_the_runs_beside_it(committed, source):
    rows, theirs = committed[source], committed["author"]
    assert [name for name in claims.claims() if not follows(rows[name], source, rows, theirs)] == []
    row = rows["finding/staircase"]  # and one that does not would be found
    changed = replace(row, fields=row.fields | {"shows": [not x for x in row.fields["shows"]]})
    assert not follows(changed, source, rows, theirs)


def test_rows_that_can_hardly_fail_are_counted_apart(committed):
    why = results.uninformative(committed)
    assert {"data/sums3", "tab1/decision_head/NC/accuracy/pos9"} <= why.keys()
    assert "tab1/final_mlp/NC/accuracy/pos9" not in why  # the final MLP can spoil the units
    name = "tab1/final_mlp/C_all_con/corrected/pos8"
    first = name.replace("corrected", "accuracy")
    assert (name in why, first in why) == (True, False)
    for source, rows in committed.items():  # of both sources, and of every run
        assert np.add(rows[name].runs, rows[first].runs) == pytest.approx(1, abs=1.5e-6)
        row = rows[name]
        changed = rows | {name: replace(row, runs=[row.runs[0] - 1e-4, *row.runs[1:]])}
        assert name not in results.uninformative(committed | {source: changed})
