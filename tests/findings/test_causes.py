"""Experiments behind the reasons of claims.yml, against brute force, and with planted causes."""

from itertools import product

import pytest

from carry_core import carries, measure, sums
from carry_core.interventions import Ablation
from carry_core.model import ModelConfig
from carry_paper.findings import causes, neurons
from tests.conftest import random_model

CONFIG = ModelConfig(d_model=16, d_ff=24)


def test_the_costliest_head_is_one_of_the_last_two_layers():
    model = random_model(ModelConfig(layers=3, width=1, d_model=16, d_ff=24), 2, noise=0.5)
    model.blocks[1].o.weight.mul_(5)
    a, b = sums.all_sums(1)
    (intact,) = measure.class_accuracies(model, a, b, [Ablation()])
    for name, kind in causes.KINDS.items():
        cost = {}
        for head in product(range(3), range(2)):
            (table,) = measure.class_accuracies(model, a, b, [kind(heads={head})])
            cost[head] = intact.exact_match - table.exact_match
        expected = max(cost[1, 0], cost[1, 1], cost[2, 0], cost[2, 1])
        assert expected != max(cost[0, 0], cost[0, 1], cost[2, 0], cost[2, 1])
        assert causes.costliest_heads(model, a, b)[name] == pytest.approx(expected)


def test_one_and_two_axes_are_those_of_the_carry_axis():
    model = random_model(CONFIG, noise=0.5)
    a, b = measure.sample(40, 3, seed=0)
    axes = neurons.singular_axes(model, a, b)
    fields = causes.carry_on_axes(model, a, b)
    assert fields["axes_1"] == pytest.approx(axes.correlations[0], abs=1e-6)
    assert fields["axes_2"] == pytest.approx(axes.plane, abs=1e-6)
    assert fields["axes_2"] <= fields["axes_3"] <= fields["axes_4"] <= 1
    assert fields["share_1"] == pytest.approx(axes.share[0])


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_zero_lies_at_the_mean_that_is_zero(causal):
    """A decision head that writes nothing without a carry-in puts zero at 0; with one, at 1."""
    model = random_model(ModelConfig(d_model=16, d_ff=24, causal=causal), noise=0.5)
    a, b = measure.sample(60, 3, seed=0)
    fields = causes.decision_head_line(model, a, b)
    head = measure.decision_head(model)
    z = measure.activations(model, a, b, ["blocks.1.attn.z"], read=model.config.layout.answer)
    z = z["blocks.1.attn.z"][:, :, head]
    has_carry = carries.carry_in(3)[carries.classify(a, b, 3)]
    weight = model.blocks[1].o.weight[:, head * 8 : head * 8 + 8]
    places = []
    for column in range(2):
        low = weight @ z[~has_carry[:, column], column].mean(0)
        high = weight @ z[has_carry[:, column], column].mean(0)
        places.append(float((0 - low) @ (high - low) / ((high - low) @ (high - low))))
    assert fields["value"] == pytest.approx(sum(places) / 2, abs=1e-4)
    (zeroed,) = measure.predict(model, a, b, [Ablation(heads={(1, head)})])
    correct = sums.digits(a + b, 3)
    carried = [
        float((zeroed == correct)[has_carry[:, column], column].double().mean())
        for column in range(2)
    ]
    if not causal:  # there, an ablated digit is an input of the next
        assert fields["zero_carries"] == pytest.approx(sum(carried) / 2)
