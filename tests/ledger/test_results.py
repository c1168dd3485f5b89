"""The committed results: what is stored was measured, and holds no decision of a rule."""

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest

from carry_core.files import ROOT
from carry_paper.findings import heads, line_table
from carry_paper.ledger import claims, ledger, registry, tally, verdicts
from carry_paper.ledger.results import Row

SOURCES = ("author", "ours")
Rows = dict[str, Row]


@pytest.fixture(scope="module")
def committed() -> dict[str, Rows]:
    return {source: ledger.by_id(source) for source in SOURCES}


def values_of_runs(committed: dict[str, Rows], name: str) -> dict[tuple[str, str], float]:
    """The value of a row in each run of each source that has one."""
    values = {}
    for source, rows in committed.items():
        for key, value in zip(rows[name].keys, rows[name].runs, strict=False):
            if isinstance(value, float) and not math.isnan(value):
                values[source, key] = value
    return values


def test_no_two_counted_rows_are_one_measurement(committed):
    """None is a multiple of another over six runs or more, by a count that is not the package's."""
    apart = tally.uninformative(committed)
    counted = [name for name in claims.claims() if name not in apart]
    values = {name: values_of_runs(committed, name) for name in counted}
    pairs = []
    for first, second in combinations(counted, 2):
        if committed["ours"][first].groups != committed["ours"][second].groups:
            continue
        common = sorted(values[first].keys() & values[second].keys())
        if len(common) < 6:
            continue
        x = np.array([values[first][run] for run in common])
        y = np.array([values[second][run] for run in common])
        varies = min(np.ptp(x), np.ptp(y)) > 0.005
        if varies and abs(np.corrcoef(x, y)[0, 1]) > 1 - 1e-6:
            pairs.append((first, second))
    assert pairs == []


FACTS = {  # arrays of true and false that no rule decides
    *("arrives", "carry_in", "mixed"),  # of sums: whether there is a carry-in
    "strong",  # of runs: which of two groups they are of
    "chosen",  # of neurons: the ten that are most often active, which a figure draws in red
}
DECIDED = {*line_table.WORDS, *verdicts.VERDICTS, "True", "False", "yes", "no"}


def stored_arrays() -> Iterator[tuple[str, str, np.ndarray]]:
    """Every column and array of the tables in `data/results`: file, name, values."""
    folder = ROOT / "data" / "results"
    tables = [*folder.rglob("*.csv.gz"), *(ROOT / "data" / "measurements").glob("*.csv.gz")]
    for path in sorted(tables):
        for name, column in pd.read_csv(path).items():
            yield path.name, str(name), column.to_numpy()
    for path in sorted(folder.rglob("*.npz")):
        with np.load(path) as arrays:
            for name in arrays.files:
                yield path.name, name, arrays[name]


def truths(value: Any) -> list[bool]:
    """Yield the booleans of nested data."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return [truth for part in parts for truth in truths(part)]
    return [value] if isinstance(value, bool) else []


def test_no_stored_table_holds_what_a_rule_decides():
    decisions = []
    for file, name, values in stored_arrays():
        texts = {str(x) for x in values.ravel()} if values.dtype.kind in "OUS" else set()
        nested = [
            truth for text in texts if text.startswith("{") for truth in truths(json.loads(text))
        ]
        truth = values.dtype == bool or nested or texts & DECIDED
        if (truth and name not in FACTS) or name.endswith("shows"):
            decisions.append((file, name))
    assert decisions == []


def test_rows_that_can_hardly_fail_are_counted_apart(committed):
    reasons = tally.uninformative(committed)
    assert {"data/sums3", "tab1/decision_head/NC/accuracy/pos9"} <= reasons.keys()
    assert "tab1/final_mlp/NC/accuracy/pos9" not in reasons  # the final MLP can spoil the units
    name = "tab1/final_mlp/C_all_con/corrected/pos8"
    first = name.replace("corrected", "accuracy")
    assert (name in reasons, first in reasons) == (True, False)
    for source, rows in committed.items():  # of both sources, and of every run
        row = rows[name]
        changed = {**rows, name: replace(row, runs=[row.runs[0] - 0.05, *row.runs[1:]])}
        assert name not in tally.uninformative(committed | {source: changed})


def test_the_half_width_is_that_of_the_widest_interval():
    row = Row("id", paper=[0.5, 0.6], interval=[[-0.1, 0.1], [0.0, 0.5]])
    assert row.half_width == 0.25
    assert replace(row, paper=None).half_width is None


def test_a_row_that_repeats_another_over_six_runs_is_one_measurement():
    keys = [str(run) for run in range(6)]
    first = np.random.default_rng(0).random(6)

    def repeated(second, keys=keys):
        """Return the rows that repeat another, of one of these values and one of others."""
        rows = {}
        for name, values in (("first", first), ("second", second)):
            runs_of_row = values[: len(keys)].tolist()
            rows[name] = [Row(name, runs=runs_of_row, fields={"run": keys}, groups=["n2"])]
        return tally.repeated(rows, skipped=())

    assert repeated(1 - first) == {"second": "first"}
    assert repeated(3 * first + 1) == {"second": "first"}
    assert repeated(first, keys[:5]) == {}, "five runs are too few"
    assert repeated(first + 0.01 * (np.arange(6) == 0)) == {}, "one run differs"
    assert repeated(1e-3 * first) == {}, "as printed, the second is one number"


@pytest.mark.parametrize("source", SOURCES)
def test_a_row_that_is_not_reproduced_says_why_or_what_would_settle_it(committed, source):
    lacking, idle = [], []
    for name, row in committed[source].items():
        claim = claims.claims()[name]
        if row.verdict in verdicts.TO_EXPLAIN and row.why is None:
            lacking.append(name)
        if (row.verdict == verdicts.CANNOT_TELL) != bool(row.settles):
            lacking.append(name)
        if source in claim.why and row.verdict == "reproduced":
            idle.append(name)
    assert (lacking, idle) == ([], [])


def test_no_released_run_has_the_correlation_of_figure_5(committed):
    """As its row says: the run of Figure 5 was not released."""
    row = committed["author"]["n2/evolution/final_pcc"]
    assert len(row.runs) == 6
    assert all(abs(value - row.paper) > 0.005 for value in row.runs)
    assert row.settles == "the weights of that run, which is not released"


def test_reasons_and_places_come_from_the_claims_and_are_not_stored(monkeypatch, data):
    """A new sentence in `claims.yml` shows at once, and a new bar judges at once."""
    shutil.copytree(ROOT / "data" / "measurements", data / "measurements")
    row = next(row for row in ledger.by_id("ours").values() if row.verdict == "mostly" and row.why)
    text = (ROOT / "data" / "claims.yml").read_text()
    template = claims.claims()[row.id].why["ours"].text
    assert text.count(template)
    (data / "claims.yml").write_text(text.replace(template, "Another sentence."))
    assert ledger.by_id("ours")[row.id].why.text == "Another sentence."
    assert ledger.by_id("ours")[row.id].where == row.where
    entry = registry.entry("finding/staircase")
    strict = replace(entry, rule=partial(heads.has_staircase, bar=0.999))
    monkeypatch.setitem(registry.ROWS, "finding/staircase", strict)
    judged = ledger.Query(ledger.by_id("ours").measured)
    assert judged["finding/staircase"].verdict == "differs"
