"""Neurons of the last MLP: activity and boards by brute force, the carry axis planted."""

import math

import pytest
import torch

from carry_core import carries, measure, sums
from carry_core.interventions import Ablation
from carry_core.model import ModelConfig, Transformer
from carry_paper.findings import neurons, survey
from tests.conftest import random_model
from tests.helpers.tolerances import assert_close

pytestmark = pytest.mark.machine


def test_activity_by_brute_force(noisy):
    a, b = sums.all_sums(2)
    axes = neurons.singular_axes(noisy, a, b)
    active = measure.activations(noisy, a, b, ["blocks.1.mlp.hook_post"])["blocks.1.mlp.hook_post"]
    carry = (a % 10 + b % 10 >= 10).tolist()
    for carry_class in (0, 1):
        rows = [i for i, c in enumerate(carry) if c == bool(carry_class)]
        for i, position in enumerate(noisy.config.layout.answer):
            for neuron in range(12):
                often = sum(bool(active[row, position, neuron] > 0) for row in rows) / len(rows)
                assert axes.often[carry_class, i, neuron].item() == pytest.approx(often, abs=1e-9)
    tens, units = noisy.config.layout.answer
    with_one = active[torch.tensor(carry), tens]
    without = torch.cat([active[~torch.tensor(carry), tens], active[:, units]])
    assert_close(axes.more, with_one.mean(0) - without.mean(0))


def test_in_a_survey_each_class_may_have_carry_neurons_of_its_own():
    """The stream tells each class by a coordinate; neuron i sees class i, and the last one none."""
    a, b = measure.sample(20, 3, seed=0)
    model = Transformer(ModelConfig(d_model=16, d_ff=6)).requires_grad_(requires_grad=False)
    model.blocks[1].up.weight.copy_(torch.eye(6, 16))
    model.blocks[1].up.bias.zero_()
    carry_class = carries.classify(a, b)
    stream = torch.nn.functional.one_hot(carry_class, 16).float()[:, None].expand(-1, 3, -1)
    carry_neurons = survey.carry_neurons(model, stream, carry_class, torch.arange(len(a)))
    assert carry_neurons.tolist() == [False, *[True] * 4, False]


def test_a_planted_carry_axis_is_found_whatever_its_sign(noisy):
    """Input weights of the last MLP along one direction, in neuron i of strength `towards[i]`."""
    a, b = sums.all_sums(2)
    up, name = noisy.blocks[1].up, "blocks.1.resid_mid"
    x = noisy.blocks[1].norm(
        measure.activations(noisy, a, b, [name], read=noisy.config.layout.answer)[name]
    )
    carry_in, towards = carries.carry_in(2)[carries.classify(a, b, 2)], torch.linspace(-1, 1, 12)
    direction = x[carry_in].mean(0) - x[~carry_in].mean(0)
    torch.manual_seed(0)
    up.weight.copy_(
        0.01 * torch.randn(up.weight.shape) + torch.outer(towards, direction / direction.norm())
    )
    up.bias.fill_(3.0)  # all active: the mean activation is linear in the weights
    for sign in (1, -1):
        up.weight.mul_(sign)
        axes = neurons.singular_axes(noisy, a, b)
        assert axes.correlations[0] > 0.95
        assert torch.corrcoef(torch.stack([axes.points[:, 0].float(), sign * towards]))[0, 1] > 0.95
        assert axes.share[0] > 0.9
        upper = (sign * towards > 0).expand(1, 1, -1)
        assert axes.lean(upper).item() == pytest.approx(12 / 11, abs=0.05)
    # a stronger second direction, across the first, that separates neurons 0, 2, 4, … from 1, 3, 5,
    # …
    up.weight.add_(
        4 * torch.outer(torch.tensor([1.0, -1.0] * 6), torch.linalg.svd(up.weight)[2][-1])
    )
    up.bias.fill_(30.0)
    assert neurons.singular_axes(noisy, a, b).correlations[0] < 0.6


def test_a_checkerboard():
    side = torch.tensor([True, True, False, False])
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    assert neurons.gap(side, x @ x.T) == pytest.approx(1)
    assert neurons.gap(side, torch.ones(4, 4)) == pytest.approx(0)
    assert math.isnan(neurons.gap(side | True, torch.ones(4, 4)))


def test_boards_by_brute_force(noisy):
    a, b = sums.equal_sums(62, 2)
    assert (a >= b).all()
    assert set(zip(a.tolist(), b.tolist(), strict=True)) == {(62 - y, y) for y in range(32)}
    without = Ablation(neurons={(1, 3)})
    (carry_in,), (cosine,) = neurons.boards(noisy, a, b, without)
    position = noisy.config.layout.answer[0]
    assert carry_in.tolist() == [
        x % 10 + y % 10 >= 10 for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    stream = measure.activations(noisy, a, b, ["blocks.1.resid_post"], without)[
        "blocks.1.resid_post"
    ][:, position]
    for i, j in ((0, 0), (3, 17), (30, 2)):
        expected = torch.nn.functional.cosine_similarity(stream[i], stream[j], dim=0).item()
        assert cosine[i, j].item() == pytest.approx(expected, abs=1e-5)
    _, (intact,) = neurons.boards(noisy, a, b)
    assert (intact - cosine).abs().max() > 1e-3


def test_gaps_without_random_neurons_are_those_of_their_ablation(monkeypatch):
    model = random_model(ModelConfig(d_model=16, d_ff=12), 2, noise=0.5)
    monkeypatch.setattr(neurons, "OUTCOMES", (574,))
    gaps = neurons.random_gaps(model, 5)
    generator = torch.Generator().manual_seed(0)
    for gap in gaps:
        random = torch.randperm(12, generator=generator)[:5].tolist()
        without = Ablation(neurons={(1, neuron) for neuron in random})
        assert gap == pytest.approx(neurons.checkerboard_gap(model, without))
    assert len({round(gap, 9) for gap in gaps}) == neurons.RANDOM_SETS


def test_the_checkerboard_is_the_mean_gap_over_outcomes(monkeypatch):
    model = random_model(ModelConfig(d_model=16, d_ff=12), 2)
    monkeypatch.setattr(neurons, "OUTCOMES", (74, 574))
    parts = Ablation(), Ablation(neurons={(1, i) for i in range(4)})
    before, after = (neurons.checkerboard_gap(model, ablation) for ablation in parts)
    for checkerboard, ablation in zip((before, after), parts, strict=True):
        both = [neurons.boards(model, *sums.equal_sums(o), ablation) for o in (74, 574)]
        gaps = [
            neurons.gap(*board) for of_outcome in both for board in zip(*of_outcome, strict=True)
        ]
        finite_gaps = [gap for gap in gaps if not math.isnan(gap)]
        assert len(finite_gaps) == 3  # no one ever arrives at the hundreds of 74
        assert checkerboard == pytest.approx(sum(finite_gaps) / 3)
    assert before != after
