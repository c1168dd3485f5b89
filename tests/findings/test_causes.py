"""Experiments behind the reasons of claims.yml, against brute force, and with planted causes."""

from itertools import product

import pytest
import torch

from carry_core import carries, measure, sums
from carry_core.interventions import Ablation
from carry_core.model import ModelConfig
from carry_core.sums import Layout
from carry_paper.findings import causes, neurons
from carry_paper.findings.scrubbing import positions_of_column
from tests.conftest import random_model
from tests.helpers.tolerances import assert_close

CONFIG = ModelConfig(d_model=16, d_ff=24)


def test_the_excepted_cell_is_position_8_of_consecutive_carries():
    assert carries.paper_name(carries.patterns(3)[causes.EXCEPTED_CLASS]) == "C all con."
    assert Layout(3).position_names[causes.EXCEPTED_POS] == "pos8"


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


def test_long_columns_look_as_the_trained_one_does():
    layout = Layout(6)
    pattern = torch.zeros(1, 1, layout.length, layout.length)
    for column in range(6):  # each looks at its own digits, and at the first digit on its right
        keys = positions_of_column(layout, column)[:2]
        if column == causes.TRAINED_COLUMN:
            keys.append(positions_of_column(layout, column + 1)[0])
        for query in positions_of_column(layout, column):
            pattern[0, 0, query, keys] = 1 / len(keys)
    imposed = causes.with_trained_attention(pattern, layout, 3)
    for column in range(3):
        first, second, answer = positions_of_column(layout, column)
        expected = torch.zeros(layout.length)
        expected[[first, second, first + 1]] = 1 / 3
        for query in (first, second, answer):
            assert_close(imposed[0, 0, query], expected)
    rows = [row for column in range(3) for row in positions_of_column(layout, column)]
    other_queries = [query for query in range(layout.length) if query not in rows]
    assert_close(imposed[:, :, other_queries], pattern[:, :, other_queries])


def test_digits_of_longer_sums_by_brute_force():
    model = random_model(ModelConfig(d_model=16, d_ff=24, width=6), noise=0.5)
    a, b = measure.sample(3, 6, seed=0)
    fields = causes.long_digits(model, a, b)
    (digits,) = measure.predict(model, a, b, [Ablation()])
    correct = sums.digits(a + b, 6)
    has_carry = carries.carry_in(6)[carries.classify(a, b, 6)]
    hits = [
        digits[i, p] == correct[i, p] for i in range(len(a)) for p in range(3) if has_carry[i, p]
    ]
    assert fields["correct_with_carry_in"] == pytest.approx(sum(map(float, hits)) / len(hits))
    assert fields["zeros"] == pytest.approx(float((digits[:, :3] == 0).double().mean()))
    assert fields["value"] == pytest.approx(float((digits == correct).all(1).double().mean()))
