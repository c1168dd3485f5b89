"""The tally adds up, and agrees with a count of the exported ledger that shares no code with it."""

import pytest

from carry_core.runs import SOURCES
from carry_paper.ledger import claims, export, ledger, tally


@pytest.fixture(scope="module")
def stored():
    rows = {source: ledger.by_id(source) for source in SOURCES}
    return rows, tally.uninformative(rows)


@pytest.mark.parametrize("source", SOURCES)
def test_two_independent_counts_agree(stored, source):
    rows, left_out = stored
    all_claims = list(claims.claims().values())
    numbers = tally.counted(tally.NUMBERS, rows[source], all_claims, left_out)
    findings = tally.counted(tally.FINDINGS, rows[source], all_claims, left_out)

    frame = export.table({source: list(rows[source].values())})
    frame = frame[~frame.id.isin(left_out) | frame.id.str.match(r"tab\d/(decision|final|diss)")]
    is_finding = frame.id.str.startswith("finding/")
    of_findings = frame[is_finding].verdict.value_counts()
    for verdict in tally.JUDGED:
        assert findings.verdicts[verdict] == of_findings.get(verdict, 0)
    assert (findings.unjudged, findings.not_run) == (
        of_findings.get("no verdict", 0),
        of_findings.get("not run", 0),
    )
    assert findings.total == is_finding.sum()

    is_cell = frame.id.str.match(r"tab\d/")
    others = frame[~is_finding & ~is_cell & ~frame.id.str.startswith("beyond/")]
    names = frame[is_cell].id.str.extract(r"^(tab2|tab\d/\w+)/")[0]
    n_tables = names.nunique()
    assert n_tables == 7
    assert numbers.total == len(others) + n_tables


def test_a_table_counts_once_and_differs_if_a_cell_does(stored):
    rows, _ = stored
    all_claims = list(claims.claims().values())
    verdicts = tally.tables(rows["ours"], all_claims)
    assert len(verdicts) == 7
    assert verdicts["tab4/dissected"] == verdicts["tab5/final_mlp"] == "no verdict"
    assert verdicts["tab1/decision_head"] == "can't tell"
    assert verdicts["tab2"] == "not run"
    by_author = tally.tables(rows["author"], all_claims)
    assert by_author.pop("tab2") == "can't tell", "some of its numbers were not run"
    assert set(by_author.values()) == {"reproduced"}


def test_the_words_add_up():
    counts = dict.fromkeys(tally.JUDGED, 0) | {"reproduced": 3, "can't tell": 2, "differs": 1}
    some = tally.Tally(tally.NUMBERS, counts, unjudged=4, not_run=1)
    assert some.words() == (
        "of 11, 6 were judged: 3 reproduced, 2 can’t tell, 1 differs; 4 are shown and not judged,"
        " 1 was not run"
    )
    assert sum(some.counts.values()) == some.total == 11
    none = tally.Tally(tally.FINDINGS, dict.fromkeys(tally.JUDGED, 0), unjudged=0, not_run=2)
    assert none.words() == "of 2, none were judged; 2 were not run"


def test_the_book_s_own_findings_are_counted_apart(stored):
    rows, left_out = stored
    all_claims = list(claims.claims().values())
    own = tally.counted(tally.BEYOND, rows["ours"], all_claims, left_out)
    assert own.total == len([c for c in all_claims if c.beyond and c.id not in left_out])
    assert own.verdicts["differs"] >= 1
