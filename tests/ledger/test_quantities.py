"""The survey of a run against the measurements one by one, on two digits; and the rows that are read off it."""

import json
import re
from dataclasses import replace

import pytest
import torch

from carry_core import groups, measure, runs
from carry_core.groups import MAIN, Group
from carry_core.interventions import INTACT, Ablation
from carry_core.model import ModelConfig, Transformer
from carry_core.sums import all_sums
from carry_paper.findings import heads, survey
from carry_paper.findings.base import N1
from carry_paper.findings.survey import Evidence, Need
from carry_paper.ledger import compute, quantities, registry
from carry_paper.ledger.entries import MEAN, Entry, Measurement, Statistic, number
from tests.conftest import random_model
from tests.helpers.trainings import save_random


@pytest.fixture(
    params=[
        ModelConfig(width=2, d_model=16, d_ff=12),
        ModelConfig(1, 2, d_model=16, d_ff=12),
        ModelConfig(width=2, causal=True, d_model=16, d_ff=12),
    ]
)
def noisy(request, monkeypatch) -> Transformer:
    monkeypatch.setattr(measure, "BATCH", 1000)
    monkeypatch.setattr(survey, "DRAWN", 300)
    return random_model(request.param, 1, noise=0.5)


def same(found: measure.ClassAccuracies, expected: measure.ClassAccuracies) -> None:
    torch.testing.assert_close(found.accuracy, expected.accuracy)
    torch.testing.assert_close(found.corrected, expected.corrected)
    assert found.exact_match == pytest.approx(expected.exact_match)


def test_a_survey_is_what_the_measurements_give_one_by_one(noisy, monkeypatch):
    monkeypatch.setattr(survey, "EARLY", 1_000)
    a, b = all_sums(2)
    last = noisy.config.layers - 1
    few = torch.randperm(len(a), generator=torch.Generator().manual_seed(0))[
        : 1_000 if last else None
    ]
    wanted, early = (
        [INTACT, measure.final_mlp(noisy), Ablation(heads={(last, 1)})],
        Ablation(skips={0}),
    )
    found = survey.survey(noisy, a, b, Need(frozenset([*wanted, early]), dissect=True))
    same(found.cells[early], measure.class_accuracies(noisy, a[few], b[few], [early])[0])
    for ablation, cells in zip(wanted, measure.class_accuracies(noisy, a, b, wanted), strict=True):
        same(found.cells[ablation], cells)
    neurons = heads.carry_neurons(noisy, a, b)
    assert found.dissected.neurons == neurons.sum() > 0
    without = Ablation(neurons={(last, int(i)) for i in neurons.nonzero()})
    same(found.dissected.cells, measure.class_accuracies(noisy, a, b, [without])[0])


def test_sets_of_sums_are_dissected_as_if_each_were_the_only_one(noisy, monkeypatch):
    """A model whose neurons matter, and sets of sums so small that each chooses others."""
    monkeypatch.setattr(survey, "CHUNK", 700)
    generator = torch.Generator().manual_seed(7)
    a, b, last = *all_sums(2), noisy.config.layers - 1
    noisy.blocks[last].down.weight.mul_(5)
    rest, mid = survey.Rest(noisy, a, b), f"blocks.{last}.resid_mid"
    rest.keep(measure.activations(noisy, a, b, [mid], read=noisy.config.layout.answer)[mid])
    few = [
        torch.cat([m[torch.randint(len(m), (3,), generator=generator)] for m in rest.members])
        for _ in "abc"
    ]
    few = [
        x.repeat_interleave(torch.randint(1, 9, x.shape, generator=generator)).sort().values
        for x in few
    ]
    every, ends = torch.arange(len(a)), torch.tensor([0, 0, len(a) - 1])
    pairs = [(few[0], every), (few[1], few[2]), (few[2], ends)]
    found, sets = rest.dissect(pairs), rest.carry_neurons([on for on, _ in pairs])
    answers = rest.answers(~sets, [which for _, which in pairs])
    assert len({tuple(neurons.tolist()) for neurons in sets}) == len(pairs)
    assert not sets.any(0).all()
    for one, neurons, answer, (on, which) in zip(found, sets, answers, pairs, strict=True):
        assert torch.equal(neurons, heads.carry_neurons(noisy, a[on], b[on]))
        without = Ablation(neurons={(last, int(i)) for i in neurons.nonzero()})
        intact, expected = measure.predict(noisy, a[which], b[which], [INTACT, without], 2)
        assert (answer != expected).float().mean() < 1e-3  # a tie may be broken either way
        assert which is not every or (intact != expected).float().mean() > 0.1
        assert one.neurons == neurons.sum()
        scored = measure.score(answer, a[which], b[which])
        torch.testing.assert_close(one.cells.accuracy, scored.accuracy, equal_nan=True)


@pytest.fixture
def published(data, monkeypatch) -> None:
    """A group of three small random two-digit runs, in place of a real one, as ours and as the author's."""
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
    found = reading().measure(small("ours"))
    a, b = all_sums(2)
    expected = {
        run: measure.class_accuracies(model, a, b)[0].exact_match
        for run, model in runs.load("small").models()
    }
    assert found.runs == pytest.approx(expected)
    assert found.value == pytest.approx(sum(expected.values()) / 3)
    noise = sum(x * (1 - x) / 20_000 for x in expected.values()) ** 0.5 / 3
    assert found.noise == pytest.approx(noise)


def test_the_run_that_the_paper_shows_stands_for_the_author_only(published):
    shown = Statistic(shown_run=1)
    theirs = reading(shown).measure(small("author"))
    assert theirs.value == theirs.runs[1]
    assert "run 1, which the paper shows" in theirs.how
    assert len(theirs.runs) == 3
    assert reading(shown).measure(small("ours")).value != theirs.value


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
    found = Measurement(
        dict.fromkeys(fields, 1.0),
        1.0,
        how="The size.",
        shows=dict.fromkeys(fields, True),
        fields=fields,
    )
    planted = replace(registry.entry("finding/biases"), measure=lambda evidence: found)
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
