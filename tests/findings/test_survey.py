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


def before_a_strong_mlp(model, a, b) -> tuple[int, torch.Tensor]:
    """Let the neurons of the last layer matter; return its number, and the stream before them."""
    last = model.config.layers - 1
    model.blocks[last].down.weight.mul_(5)
    name = f"blocks.{last}.resid_mid"
    return last, measure.activations(model, a, b, [name], read=model.config.layout.answer)[name]


def test_random_neurons_are_ablated_as_the_carry_neurons_are(noisy):
    a, b = all_sums(2)
    last, resid_mid = before_a_strong_mlp(noisy, a, b)
    everything = torch.arange(len(a))
    dissected = survey.dissect(noisy, resid_mid, a, b, [Samples(everything, everything)] * 3)
    on_all, *_, first, second = dissected
    assert len(dissected) == 5
    generator = torch.Generator().manual_seed(0)
    for draw in (first, second):
        assert 0 < draw.neurons == on_all.neurons < 12
        random = torch.randperm(12, generator=generator)[: draw.neurons].tolist()
        without = Ablation(neurons={(last, neuron) for neuron in random})
        expected = measure.class_accuracies(noisy, a, b, [without])[0]
        # A tie may be broken either way.
        close = {"rtol": 0, "atol": 5e-3}
        torch.testing.assert_close(draw.cells.accuracy, expected.accuracy, **close)
    assert not torch.equal(first.cells.accuracy, second.cells.accuracy)


def few_of_each_class(carry_class: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return three sums of each class, each of them one to eight times."""
    parts = []
    for i in (0, 1):
        members = (carry_class == i).nonzero().flatten()
        parts.append(members[torch.randint(len(members), (3,), generator=generator)])
    indices = torch.cat(parts)
    times = torch.randint(1, 9, indices.shape, generator=generator)
    return indices.repeat_interleave(times).sort().values


def test_sets_of_sums_are_dissected_as_if_each_were_the_only_one(noisy, monkeypatch):
    """A model whose neurons matter, and sets of sums so small that each chooses others."""
    monkeypatch.setattr(survey, "CHUNK", 700)
    a, b = all_sums(2)
    last, resid_mid = before_a_strong_mlp(noisy, a, b)

    carry_class, generator = carries.classify(a, b, 2), torch.Generator().manual_seed(7)
    first, second, third = (few_of_each_class(carry_class, generator) for _ in range(3))
    everything, ends = torch.arange(len(a)), torch.tensor([0, 0, len(a) - 1])
    pairs = [Samples(first, everything), Samples(second, third), Samples(third, ends)]
    dissected = survey.dissect(noisy, resid_mid, a, b, pairs)
    sets = [survey.carry_neurons(noisy, resid_mid, carry_class, x.chosen_on) for x in pairs]
    assert len({tuple(neurons.tolist()) for neurons in sets}) == len(pairs)
    assert not torch.stack(sets).any(0).all()
    without_control = dissected[: len(pairs)]
    by_pair = zip(without_control, sets, pairs, strict=True)
    for dissection, neurons, (chosen_on, ablated_on) in by_pair:
        assert torch.equal(neurons, heads.carry_neurons(noisy, a[chosen_on], b[chosen_on]))
        assert dissection.neurons == neurons.sum()
        without = Ablation(neurons={(last, int(i)) for i in neurons.nonzero()})
        sums = a[ablated_on], b[ablated_on]
        intact, expected = measure.class_accuracies(noisy, *sums, [INTACT, without])
        # A tie may be broken either way.
        close = {"rtol": 0, "atol": 5e-3, "equal_nan": True}
        torch.testing.assert_close(dissection.cells.accuracy, expected.accuracy, **close)
        if ablated_on is everything:
            assert (intact.accuracy - expected.accuracy).abs().max() > 0.02


@pytest.mark.parametrize("change", TWO_CHANGES)
def test_a_changed_model_is_not_dissected(change):
    model = random_model(SMALL, 3)
    CHANGES[change](model)
    with pytest.raises(BadInput, match="expected a Transformer without hooks"):
        survey.survey(model, *all_sums(2), Need(dissect=True))
