"""How runs are chosen and compared with the paper, and how attention is summed up."""

import math

import pytest
import torch

from carry_core import measure
from carry_core.measure import Cells
from carry_core.model import Transformer
from carry_core.sums import Layout


def cells(accuracy: float) -> Cells:
    return Cells(torch.full((5, 3), accuracy), torch.full((5, 3), 1 - accuracy), accuracy)


def verdict(values: list[float], printed: float, source: str) -> str:
    found = measure.agreement([cells(v) for v in values], cells(printed), source)
    assert found.shape == (2, 5, 3)
    assert found.unique().numel() == 1
    return measure.AGREEMENT[found[0, 0, 0]]


def test_from_the_authors_weights_only_rounding_and_the_draw_are_granted():
    assert verdict([0.2, 0.9], 0.556, "author") == "reproduced"
    assert verdict([0.2, 0.9], 0.562, "author") == "differs"


def test_our_runs_may_differ_by_their_own_scatter():
    runs = [0.88, 0.90, 0.92, 0.89, 0.91, 0.90]  # t(5, 0.975) s sqrt(2 / 6) = 2.571 * 0.01414 * 0.577 = 0.021
    assert verdict(runs, 0.925, "ours") == "reproduced"
    assert verdict(runs, 0.93, "ours") == "differs"


def test_runs_that_disagree_decide_nothing():
    assert verdict([0.0, 1.0, 0.0, 1.0, 1.0, 0.0], 0.5, "ours") == "undecided"


def test_equal_runs_are_held_to_the_rounding():
    assert verdict([1.0] * 6, 0.995, "ours") == "reproduced"
    assert verdict([1.0] * 6, 0.99, "ours") == "differs"


def test_the_clearest_run_is_the_first_of_those_whose_decision_head_matters_most():
    assert measure.clearest_run({0: 0.98, 1: 0.97, 2: 0.48, 3: 0.72, 4: 0.48, 5: 0.46}) == 2
    assert measure.clearest_run({3: 0.9, 5: 0.1}) == 5


def test_masses_read_the_cells_that_they_name():
    layout = Layout()
    pattern = torch.arange(100.0).view(10, 10)  # row q, column k holds 10 q + k
    assert measure.partner_mass(pattern, layout).tolist() == [4, 15, 26, 40, 51, 62]
    assert measure.column_mass(pattern, layout).tolist() == [70 + 74, 81 + 85, 92 + 96]
    assert measure.column_mass(pattern, layout, shift=1)[:2].tolist() == [71 + 75, 82 + 86]
    assert math.isnan(measure.column_mass(pattern, layout, shift=1)[2])
    assert measure.partner_mass(pattern, Layout(causal=True)).tolist() == [40, 51, 62]
    assert measure.column_mass(pattern, Layout(causal=True)).tolist() == [60 + 64, 71 + 75, 82 + 86]


@pytest.mark.parametrize("config", ["encoder", "decoder"], indirect=True)
def test_last_layer_is_the_same_ablations_one_by_one(model: Transformer):
    a, b = measure.sample(20, model.config.width, seed=0)
    found = measure.last_layer(model, a, b)
    for one, ablation in zip(found.heads, measure.last_heads(model), strict=True):
        assert torch.equal(one.accuracy, measure.cells(model, a, b, [ablation])[0].accuracy)
    assert torch.equal(found.mlp.corrected, measure.cells(model, a, b, [measure.final_mlp(model)])[0].corrected)
    assert found.intact.whole == measure.cells(model, a, b)[0].whole
    assert found.decision.whole == min(one.whole for one in found.heads)
    whole = measure.without_decision([(4, model)], model.config.width)
    a, b = measure.sample(2_000, model.config.width, seed=0)
    assert whole == {4: min(one.whole for one in measure.cells(model, a, b, measure.last_heads(model)))}
