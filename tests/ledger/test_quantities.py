"""Rows of the ledger that are read off surveys, on small random runs."""

import json
import re
from dataclasses import replace

import pytest

from carry_core import measure
from carry_core.interventions import Ablation
from carry_core.model import ModelConfig
from carry_core.sums import all_sums
from carry_paper import catalogue
from carry_paper.findings import survey
from carry_paper.findings.base import N1
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import Need
from carry_paper.ledger import compute, quantities, registry
from carry_paper.ledger.entries import MEAN, Entry, Measurement, Statistic, number
from carry_train import groups
from carry_train.groups import MAIN, Group
from tests.helpers.trainings import save_random


@pytest.fixture
def published(data, monkeypatch) -> None:
    """Three small random two-digit runs in place of a real group, ours and the author's."""
    group = Group("small", ModelConfig(width=2, d_model=16, d_ff=12), n_digits=2)
    monkeypatch.setitem(groups.GROUPS, "small", group)
    for source in ("ours", "author"):
        save_random(group, range(3), "quick", 60, source)
    monkeypatch.setattr(survey, "DRAWN", 300)


def reading(statistic: Statistic = MEAN) -> Entry:
    return number("small", quantities.exact_match, statistic=statistic)


def small(source: str) -> Evidence:
    return Evidence(source, {"small": registry.UNCHANGED})


def test_a_reading_is_the_mean_over_runs_and_names_each(published):
    measurement = reading().measure(small("ours"))
    a, b = all_sums(2)
    expected = {
        run: measure.class_accuracies(model, a, b)[0].exact_match
        for run, model in catalogue.load("small").models()
    }
    assert measurement.runs == pytest.approx(expected)
    assert measurement.value == pytest.approx(sum(expected.values()) / 3)
    noise = sum(x * (1 - x) / 20_000 for x in expected.values()) ** 0.5 / 3
    assert measurement.noise == pytest.approx(noise)


def test_the_run_that_the_paper_shows_stands_for_the_author_only(published):
    statistic = Statistic(shown_run=1)
    author_value = reading(statistic).measure(small("author"))
    assert author_value.value == author_value.runs[1]
    assert "run 1, which the paper shows" in author_value.method
    assert len(author_value.runs) == 3
    assert reading(statistic).measure(small("ours")).value != author_value.value


def test_a_pass_needs_what_its_rows_need():
    needs = registry.entry("tab1/decision_head/NC/accuracy/pos7").need
    assert needs == Need(frozenset({Ablation(heads={(1, 0)}), Ablation(heads={(1, 1)})}))
    both = needs | registry.entry("n2/dissection/neurons").need
    assert both.dissect
    assert both.ablations == needs.ablations
    assert registry.entry("data/sums3").need is None
    assert registry.entry("finding/kink").need is None


def test_a_row_knows_its_runs_and_what_else_was_measured(monkeypatch):
    fields = {(N1, 0): {"cost": 0.25}, (MAIN, 3): {"cost": None}}
    measurement = Measurement(
        dict.fromkeys(fields, 1.0),
        1.0,
        method="The size.",
        shows=dict.fromkeys(fields, True),
        fields=fields,
    )
    planted = replace(registry.entry("finding/biases"), measure=lambda evidence: measurement)
    monkeypatch.setitem(registry.ROWS, "finding/biases", planted)
    (row,) = compute.Ledger("ours", "finding/biases").rows()
    assert row.fields["run"] == row.keys == [f"{N1} 0", f"{MAIN} 3"]
    assert (row.fields["shows"], row.fields["cost"], row.shown, row.n) == (
        [True, True],
        [0.25, None],
        (2, 2),
        2,
    )
    assert row.detail.startswith("The size. 2 of 2 runs show it.")


def test_a_row_that_fails_takes_no_other_with_it(monkeypatch, tmp_path):
    def fall(evidence):
        raise KeyError("train_whole")

    monkeypatch.setitem(registry.ROWS, "data/sums4", Entry(fall, None))
    ledger = compute.Ledger("ours", "data/")
    journal = tmp_path / "ledger" / "ours.jsonl"
    rows = {row.id: row for row in ledger.rows(journal)}
    assert ledger.failed == ["data/sums4"]
    assert rows["data/sums4"].verdict == "not run"
    assert "KeyError: 'train_whole'" in rows["data/sums4"].detail
    assert re.search(r"\(\w+\.py:\d+\)", rows["data/sums4"].detail)
    assert rows["data/sums3"].verdict == "reproduced"
    assert [json.loads(line)["id"] for line in journal.read_text().splitlines()] == list(rows)
