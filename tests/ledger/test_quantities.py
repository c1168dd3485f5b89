"""Quantities of small random runs: what the ledger makes of them, and what it does without."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from carry_core import measure
from carry_core.errors import BadInput
from carry_core.interventions import Ablation
from carry_core.measure import ClassAccuracies
from carry_core.model import ModelConfig
from carry_core.sums import all_sums
from carry_paper import catalogue
from carry_paper.findings import survey
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import Dissected, Need, Survey
from carry_paper.ledger import claims, ledger, quantities, registry
from carry_paper.ledger.entries import Entry, number
from carry_paper.ledger.measuring import Measuring
from carry_paper.ledger.measuring import quantities as asked_by
from carry_train import groups
from carry_train.groups import MAIN, Group
from tests.helpers.trainings import save_random

CLAIM = "n2/accuracy"


@pytest.fixture
def published(data, monkeypatch) -> None:
    """Three small random two-digit runs in place of a real group, ours and the author's."""
    group = Group("small", ModelConfig(width=2, d_model=16, d_ff=12), n_digits=2)
    monkeypatch.setitem(groups.GROUPS, "small", group)
    for source in ("ours", "author"):
        save_random(group, range(3), "quick", 60, source)
    monkeypatch.setattr(survey, "DRAWN", 300)


def combined(monkeypatch, source: str, **more) -> ledger.Combined:
    """What the small runs say of a claim, by an entry with these attributes."""
    entry = number("small", quantities.exact_match, registry.UNCHANGED, drawn=20_000, **more)
    monkeypatch.setitem(registry.ROWS, CLAIM, entry)
    table = Measuring(Evidence(source), asked_by([entry])).rows()
    return ledger.combine(claims.claims()[CLAIM], ledger.Measured(source, table))


@pytest.mark.usefixtures("published")
def test_a_number_is_the_mean_over_runs_and_names_each(monkeypatch):
    of_runs = combined(monkeypatch, "ours")
    a, b = all_sums(2)
    expected = [
        measure.class_accuracies(model, a, b)[0].exact_match
        for _, model in catalogue.load("small").models()
    ]
    assert of_runs.row.keys == ["0", "1", "2"]
    assert of_runs.row.runs == pytest.approx(expected)
    assert of_runs.row.value == pytest.approx(sum(expected) / 3, abs=1e-6)
    noise = sum(x * (1 - x) / 20_000 for x in expected) ** 0.5 / 3
    assert of_runs.noise == pytest.approx(noise)
    (training,) = of_runs.row.trainings
    assert training.startswith("recipe “quick”, 60 of ")


@pytest.mark.usefixtures("published")
def test_the_run_that_the_paper_shows_stands_for_the_author_only(monkeypatch):
    row = combined(monkeypatch, "author", shown_run=1).row
    assert row.value == pytest.approx(row.runs[1], abs=1e-6)
    assert "run 1, which the paper shows" in row.detail
    assert len(row.runs) == 3
    ours = combined(monkeypatch, "ours", shown_run=1).row
    assert ours.value == pytest.approx(sum(ours.runs) / 3, abs=1e-6)


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize("combine", ["standard deviation", "range"])
def test_runs_are_combined_as_the_entry_says(monkeypatch, combine):
    values = pd.Series(combined(monkeypatch, "ours").row.runs)
    expected = {
        "standard deviation": values.std(),
        "range": [values.min(), values.max()],
    }
    of_runs = combined(monkeypatch, "ours", combine=combine)
    assert of_runs.row.value == pytest.approx(expected[combine], abs=1e-6)
    assert of_runs.n_runs == 3
    assert len(of_runs.row.runs) == (0 if combine == "standard deviation" else 3)


def test_a_survey_covers_what_its_rows_need():
    needs = registry.entry("tab1/decision_head/NC/accuracy/pos7").need
    assert needs == Need(frozenset({Ablation(heads={(1, 0)}), Ablation(heads={(1, 1)})}))
    both = needs | registry.entry("n2/dissection/neurons").need
    assert both.dissect
    assert both.ablations == needs.ablations
    assert registry.entry("data/sums3").need is None


def test_what_a_table_needs_is_measured_and_no_more():
    """Two quantities for its two ablations, and no dissection."""
    entries = [registry.entry(claim.id) for claim in claims.chosen("tab1/")]
    asked = asked_by(entries)
    names = {quantity.function.__name__ for quantity in asked}
    assert names == {"without_decision_head", "without_final_mlp"}
    evidence = Evidence("ours")
    Measuring(evidence, asked)
    assert list(evidence.needs) == [MAIN]
    assert not evidence.needs[MAIN].dissect


@pytest.mark.usefixtures("published")
def test_a_quantity_that_fails_takes_no_other_with_it(monkeypatch):
    def fall(survey: survey.Survey) -> dict[str, float]:
        raise KeyError("train_whole")

    failing = Entry(fall, ("small",), need=Need())
    working = number("small", quantities.exact_match, registry.UNCHANGED)
    measuring = Measuring(Evidence("ours"), asked_by([failing, working]))
    table = measuring.rows()
    assert measuring.failed == ["test_quantities.fall"]
    monkeypatch.setitem(registry.ROWS, CLAIM, failing)
    with pytest.raises(BadInput, match=r"KeyError\('train_whole'\)"):
        ledger.combine(claims.claims()[CLAIM], ledger.Measured("ours", table))
    monkeypatch.setitem(registry.ROWS, CLAIM, working)
    assert ledger.combine(claims.claims()[CLAIM], ledger.Measured("ours", table)).row.runs


@pytest.mark.usefixtures("published")
def test_only_what_is_missing_or_of_other_weights_is_measured():
    entry = number("small", quantities.exact_match, registry.UNCHANGED)
    table = Measuring(Evidence("ours"), asked_by([entry])).rows()
    assert Measuring(Evidence("ours"), asked_by([entry])).missing(table) == {}
    assert len(Measuring(Evidence("ours"), asked_by([entry])).missing(table[1:])) == 1
    changed = table.assign(sha256=["ab" * 32, *table.sha256[1:]])
    assert len(Measuring(Evidence("ours"), asked_by([entry])).missing(changed)) == 1
    other = replace(entry, function=quantities.exact_match_without_skips)
    assert len(Measuring(Evidence("ours"), asked_by([other])).missing(table)) == 1


def test_a_number_of_the_dissection_is_the_mean_of_draws_with_the_variance_of_one():
    cells = ClassAccuracies(torch.ones(5, 3), torch.zeros(5, 3), exact_match=1.0)
    samples = tuple(Dissected(neurons, cells) for neurons in (300, 310, 320))
    surveyed = Survey({}, dissected=Dissected(280, cells), dissected_samples=samples)
    number = quantities.over_draws(surveyed, lambda draw: float(draw.neurons))
    assert number == {"value": 310, "variance": 100, "draws": [300, 320], "on_all_sums": 280}
