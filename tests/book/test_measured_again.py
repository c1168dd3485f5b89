"""A part of the shipped rows measured anew: what is compared, and in which order."""

import measured_again
import pandas as pd
import pytest

from carry_paper import measurements
from carry_paper.findings import heads
from carry_paper.ledger import code_digest
from carry_train.groups import MAIN


@pytest.fixture
def stored(monkeypatch):
    """Two shipped rows, of a run that needs no survey."""
    table = measurements.read("ours")
    of_run = (table.quantity == "heads.staircase") & (table.group == MAIN)
    rows = table[of_run & (table.recipe == "paper") & table.run.isin([0, 1])]
    assert len(rows) == 2
    monkeypatch.setattr(measurements, "read", lambda source: rows)
    return rows


def test_rows_that_agree_pass_and_stale_ones_come_first(stored, monkeypatch, capsys):
    changed = stored.assign(code=[code_digest.digest(heads.staircase), "0" * 16])
    monkeypatch.setattr(measurements, "read", lambda source: changed)
    rows = measured_again.in_order(0, measured_again.of_single_runs())
    assert [row["run"] for row in rows] == [1, 0]
    assert measured_again.main(["--seconds", "60"]) == 0
    assert capsys.readouterr().out.startswith("2 rows measured again, 0 differ; 1 stale rows")


def test_a_row_that_differs_is_named(stored, monkeypatch, capsys):
    changed = stored.assign(value=pd.Series([0.1, *stored.value[1:]], stored.index, dtype=object))
    monkeypatch.setattr(measurements, "read", lambda source: changed)
    assert measured_again.main(["--seconds", "60"]) == 1
    line, last = capsys.readouterr().out.splitlines()
    assert line.startswith(f"heads.staircase of {MAIN} run 0, paper/value: 0.1 is stored, 0.77")
    assert last.startswith("2 rows measured again, 1 differ")


def test_stale_rows_get_todays_digest_only_if_a_sample_is_as_stored(stored, monkeypatch, capsys):
    written = {}
    monkeypatch.setattr(measurements, "write", written.__setitem__)
    stale = stored.assign(code="0" * 16)
    monkeypatch.setattr(measurements, "read", lambda source: stale.copy())
    assert measured_again.main(["--renew", "1"]) == 0
    assert set(written["ours"].code) == {code_digest.digest(heads.staircase)}
    wrong = stale.assign(value=pd.Series([0.1, 0.1], stale.index, dtype=object))
    monkeypatch.setattr(measurements, "read", lambda source: wrong.copy())
    assert measured_again.main(["--renew", "1"]) == 1
    assert set(written["ours"].code) == {"0" * 16}
    assert "1 of 2 stale rows measured again, of 1 quantities" in capsys.readouterr().out


def test_nested_fields_are_compared_one_by_one():
    stored = {"cells": {"NC": [0.5, None]}, "word": "head 1:0"}
    assert list(measured_again.differences(stored, stored)) == []
    again = {"cells": {"NC": [0.5 + 1e-5, 0.2]}, "word": "head 1:1"}
    assert list(measured_again.differences(0.5, float("nan")))
    assert sorted(measured_again.differences(stored, again)) == [
        "/cells/NC/1: None is stored, 0.2 is measured now",
        "/word: 'head 1:0' is stored, 'head 1:1' is measured now",
    ]
