"""The last layer under many ablations at once, against the model under one ablation at a time."""

import pytest
import torch

from carry_core import carries, measure
from carry_core.errors import BadInput
from carry_core.interventions import INTACT, Ablation
from carry_core.sums import all_sums
from carry_paper.findings import last_layer
from carry_paper.findings.last_layer import LastLayer
from tests.conftest import random_model
from tests.core.test_promises import CHANGES, SMALL, TWO_CHANGES
from tests.helpers.tolerances import assert_close

pytestmark = pytest.mark.machine

N_SETS = 3


@pytest.fixture
def filled(config, monkeypatch):
    """A last layer that has seen all sums of two digits, more than pass through it at once."""
    model = random_model(config, 1, noise=0.5).double()
    monkeypatch.setattr(last_layer, "CHUNK", 700)
    model.blocks[-1].down.weight.mul_(5)  # so that neurons matter
    a, b = all_sums(2)
    name = f"blocks.{model.config.layers - 1}.resid_mid"
    resid_mid = measure.activations(model, a, b, [name], read=model.config.layout.answer)[name]
    filled = LastLayer(model, len(a))
    for batch in resid_mid.split(1_000):
        filled.append(batch)
    return filled


def some_sets(n_sums: int) -> list[torch.Tensor]:
    """All sums; some, many of them several times; and two."""
    generator = torch.Generator().manual_seed(7)
    repeated = torch.randint(n_sums, (900,), generator=generator)
    return [torch.arange(n_sums), repeated.sort().values, torch.tensor([0, n_sums - 1])]


@torch.no_grad()
def test_answers_are_those_of_the_model_with_the_other_neurons_ablated(filled):
    model, (a, b) = filled.model, all_sums(2)
    last, width = model.config.layers - 1, model.config.width
    neurons = (torch.arange(model.config.d_ff) % 2 == 0).repeat(N_SETS, 1)
    neurons[1, 3:] ^= True  # far from the first set, though both have some
    neurons[2, 2:4] ^= True  # near it
    assert last_layer._shared(neurons)[0].tolist() == [True, False, True]
    sets = some_sets(len(a))
    for row, sums, answer in zip(neurons, sets, filled.answers(neurons, sets), strict=True):
        without = Ablation(neurons={(last, int(i)) for i in (~row).nonzero()})
        expected, intact = measure.predict(model, a[sums], b[sums], [without, INTACT], width)
        assert torch.equal(answer, expected)
        assert len(sums) == 2 or (expected != intact).any()
    (without_mlp,) = measure.predict(model, a, b, [measure.final_mlp(model)])
    assert torch.equal(filled.answers_without_mlp(filled.resid_mid).to(torch.int8), without_mlp)


@torch.no_grad()
def test_class_means_by_brute_force(filled):
    model, (a, b) = filled.model, all_sums(2)
    name, first = f"blocks.{model.config.layers - 1}.mlp.post", model.config.layout.answer[0]
    post = measure.activations(model, a, b, [name], read=[first])[name][:, 0]
    carry_class, sets = carries.classify(a, b, 2), some_sets(len(a))
    means = filled.class_means(carry_class, 2, sets)
    for sums, by_class in zip(sets, means, strict=True):
        for i in (0, 1):
            expected = post[sums][carry_class[sums] == i].mean(0)
            assert_close(by_class[i], expected)
    assert means[2, 1].isnan().all()  # neither 0 + 0 nor 99 + 0 carries


@pytest.mark.parametrize("change", TWO_CHANGES)
def test_a_changed_model_is_refused(change):
    model = random_model(SMALL, 3)
    CHANGES[change](model)
    with pytest.raises(BadInput, match="expected a Transformer without hooks"):
        LastLayer(model, 5)
