"""The survey of a run against the measurements one by one, on two digits."""

import pytest
import torch

from carry_core import carries, measure
from carry_core.errors import BadInput
from carry_core.interventions import INTACT, Ablation
from carry_core.measure import ClassAccuracies
from carry_core.model import ModelConfig, Transformer
from carry_core.sums import all_sums
from carry_paper.findings import heads, survey
from carry_paper.findings.survey import Need, Samples
from tests.conftest import random_model
from tests.core.test_promises import CHANGES, SMALL, TWO_CHANGES
from tests.helpers.tolerances import assert_close


@pytest.fixture(
    params=[
        ModelConfig(1, 2, d_model=16, d_ff=12),
        ModelConfig(width=2, causal=True, d_model=16, d_ff=12),
    ]
)
def noisy(request, monkeypatch) -> Transformer:
    monkeypatch.setattr(measure, "BATCH", 1000)
    monkeypatch.setattr(survey, "DRAWN", 300)
    return random_model(request.param, 1, noise=0.5)


def assert_same(measured: ClassAccuracies, expected: ClassAccuracies) -> None:
    assert_close(measured.accuracy, expected.accuracy)
    assert_close(measured.corrected, expected.corrected)
    assert measured.exact_match == pytest.approx(expected.exact_match)


def test_a_survey_is_what_the_measurements_give_one_by_one(noisy, monkeypatch):
    monkeypatch.setattr(survey, "EARLY", 1_000)
    a, b = all_sums(2)
    last = noisy.config.layers - 1
    late = [INTACT, measure.final_mlp(noisy), Ablation(heads={(last, 1)})]
    early = Ablation(skips={0})
    surveyed = survey.survey(noisy, a, b, Need(frozenset([*late, early]), dissect=True))

    # With one layer, this ablation is one of the last layer.
    order = torch.randperm(len(a), generator=torch.Generator().manual_seed(0))
    subset = order[:1_000] if last else order
    assert_same(
        surveyed.cells[early], measure.class_accuracies(noisy, a[subset], b[subset], [early])[0]
    )
    for ablation, cells in zip(late, measure.class_accuracies(noisy, a, b, late), strict=True):
        assert_same(surveyed.cells[ablation], cells)
    neurons = heads.carry_neurons(noisy, a, b)
    assert surveyed.dissected.neurons == neurons.sum() > 0
    without = Ablation(neurons={(last, int(i)) for i in neurons.nonzero()})
    assert_same(surveyed.dissected.cells, measure.class_accuracies(noisy, a, b, [without])[0])
    assert len(surveyed.dissected_samples) == survey.DRAWS
    assert [draw.neurons for draw in surveyed.random_samples] == [neurons.sum()] * 5
    assert surveyed.decision_head is None  # one head only was ablated


@pytest.mark.slow
def test_a_survey_names_the_head_that_pages_name(noisy):
    each_head = measure.last_heads(noisy)
    surveyed = survey.survey(noisy, *all_sums(2), Need(frozenset(each_head)))
    assert surveyed.heads[0] == each_head[measure.decision_head(noisy)]
    assert set(surveyed.heads) == set(each_head)


def test_samples_have_as_many_sums_of_each_class(monkeypatch):
    monkeypatch.setattr(survey, "DRAWN", 300)
    a, b = all_sums(2)
    everything, *random = survey.samples(a, b, 2)
    assert [indices.tolist() for indices in everything] == [list(range(len(a)))] * 2
    carry_class = carries.classify(a, b, 2)
    assert len(random) == survey.DRAWS
    for indices in [sample for pair in random for sample in pair]:
        assert torch.bincount(carry_class[indices]).tolist() == [300, 300]
        assert (indices.diff() >= 0).all()
    assert not torch.equal(*random[0])
    assert not torch.equal(random[0].chosen_on, random[1].chosen_on)


def test_neurons_are_chosen_on_some_sums_and_ablated_on_others(noisy, monkeypatch):
    """Carry neurons first, and then as many random ones, in a model whose neurons matter."""
    monkeypatch.setattr(survey, "CHUNK", 700)
    a, b = all_sums(2)
    last = noisy.config.layers - 1
    noisy.blocks[last].down.weight.mul_(5)
    name = f"blocks.{last}.resid_mid"
    resid_mid = measure.activations(noisy, a, b, [name], read=noisy.config.layout.answer)[name]
    generator = torch.Generator().manual_seed(7)
    few, many = (torch.randint(len(a), (n,), generator=generator) for n in (9, 4_000))
    everything = torch.arange(len(a))
    pairs = [Samples(few, everything), Samples(many, everything), Samples(everything, many)]
    dissected = survey.dissect(noisy, resid_mid, a, b, pairs)

    sets = [heads.carry_neurons(noisy, a[x], b[x]) for x in (few, many, everything)]
    assert len({tuple(neurons.tolist()) for neurons in sets}) > 1
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        drawn = torch.randperm(12, generator=generator)[: int(sets[0].sum())]
        sets.append(torch.isin(torch.arange(12), drawn))
    samples = (everything, everything, many, everything, many)
    for dissection, neurons, sample in zip(dissected, sets, samples, strict=True):
        assert 0 < dissection.neurons == neurons.sum() < 12
        without = Ablation(neurons={(last, int(i)) for i in neurons.nonzero()})
        sums = a[sample], b[sample]
        intact, expected = measure.class_accuracies(noisy, *sums, [INTACT, without])
        # A tie may be broken either way.
        close = {"rtol": 0, "atol": 5e-3}
        torch.testing.assert_close(dissection.cells.accuracy, expected.accuracy, **close)
        assert (intact.accuracy - expected.accuracy).abs().max() > 0.01


@pytest.mark.parametrize("change", TWO_CHANGES)
def test_a_changed_model_is_not_dissected(change):
    model = random_model(SMALL, 3)
    CHANGES[change](model)
    with pytest.raises(BadInput, match="expected a Transformer without hooks"):
        survey.survey(model, *all_sums(2), Need(dissect=True))
