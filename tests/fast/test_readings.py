"""Activations from a pass that calls hooks only where something is read, against `model.py`'s."""

import pytest
import torch
from torch import nn

from carry_core import measure
from carry_core.interventions import Ablation, Patch
from carry_core.model import ModelConfig, activations_at
from carry_fast import compiled
from carry_fast.blocks import Zeroed
from carry_fast.compiled import CompiledBlock
from carry_fast.engine import reader
from carry_fast.prefixes import zeroed_by_layer
from carry_fast.readings import PlainReader
from tests.conftest import SHAPES, drawn, random_model, tokens_of, zero_ablations
from tests.core.test_promises import CHANGES, SMALL, TWO_CHANGES
from tests.helpers.tolerances import assert_close

pytestmark = pytest.mark.machine

# Shapes that are computed in C++.
COMPILED = {
    "compiled": ModelConfig(layers=2, width=2),
    "compiled decoder": ModelConfig(layers=3, width=1, causal=True, d_ff=48),
}
SEVERAL = (
    {"blocks.0.resid_mid", "blocks.0.resid_post"},
    {"blocks.0.attn.pattern", "blocks.0.mlp.post", "logits"},
    {"embed", "blocks.0.attn.z", "blocks.0.attn.pattern"},
)
# Interventions that do more than to zero whole parts after the attention.
OTHERS = (
    Ablation(heads={(1, 1)}, positions=(5,)),
    Ablation(names={"embed"}),
    Ablation(patterns={(0, 1)}),
    Patch(heads={(0, 1)}, source=(2, 6)),
    Ablation(mlps={1}) | Patch(heads={(0, 1)}, source=(2, 6)),
)


@pytest.mark.parametrize("shape", ["encoder", "one-layer decoder", *COMPILED])
def test_what_is_read_is_what_a_pass_of_the_model_gives(shape):
    """Each hook point by itself, and several together; at all positions, and at some."""
    config = {**SHAPES, **COMPILED}[shape]
    model, tokens = random_model(config, 1, noise=0.2), tokens_of(config)
    if shape in SHAPES:
        model = model.double()
    for read in (None, config.layout.answer, [config.layout.answer[-1]]):
        for names in [*({name} for name in config.hook_names), *SEVERAL]:
            activations_of = reader(model, names, read)
            assert isinstance(activations_of, PlainReader)
            actual, expected = activations_of(tokens), activations_at(model, tokens, names, read)
            assert actual.keys() == expected.keys() == names
            for name, x in expected.items():
                assert_close(actual[name], x)


@pytest.mark.parametrize("shape", ["decoder", "compiled"])
def test_what_is_read_of_an_ablated_model_is_what_its_hook_gives(shape):
    config = {**SHAPES, **COMPILED}[shape]
    model, (a, b) = random_model(config, 1, noise=0.2), drawn(config, count=measure.FEW)
    if shape in SHAPES:
        model = model.double()
    ablations = [*zero_ablations(config), *OTHERS]
    order = config.hook_names
    for i, ablation in enumerate(ablations):
        names = order[i % len(order) :: 7]
        actual = measure.activations(model, a, b, names, ablation, read=config.layout.answer)
        hook = ablation.hook(model, read=config.layout.answer)
        tokens = tokens_of(config, count=measure.FEW)
        expected = activations_at(model, tokens, names, config.layout.answer, hook)
        for name, x in expected.items():
            assert_close(actual[name], x)


def test_only_zero_ablations_of_whole_parts_are_read_without_their_hook():
    config = SHAPES["encoder"]
    zeroed = zeroed_by_layer(Ablation(heads={(0, 1)}, neurons={(1, 3)}), config)
    assert zeroed == [Zeroed(frozenset({1})), Zeroed(neurons=frozenset({3}))]
    for other in OTHERS:
        assert zeroed_by_layer(other, config) is None, other


@pytest.mark.needs("the forward pass in C++")
def test_it_is_computed_in_cpp_where_there_is_a_compiler():
    activations_of = reader(random_model(COMPILED["compiled"]), ["blocks.1.mlp.post"])
    assert all(isinstance(block, CompiledBlock) for block in activations_of.blocks)


def test_a_reading_ends_at_the_last_activation_that_is_read(monkeypatch):
    model, tokens = random_model(SMALL), tokens_of(SMALL)
    ran = []
    after = compiled.PlainBlock.after
    monkeypatch.setattr(
        compiled.PlainBlock, "after", lambda block, *x: ran.append(block) or after(block, *x)
    )
    reader(model, ["blocks.1.resid_mid"])(tokens)
    assert len(ran) == 1
    reader(model, ["blocks.1.resid_post"])(tokens)
    assert len(ran) == 3


@pytest.mark.parametrize("change", TWO_CHANGES)
def test_a_changed_model_is_called(change):
    model, tokens = random_model(SMALL, 3, noise=0.3), tokens_of(SMALL)
    CHANGES[change](model)
    names = ["blocks.0.attn.z", "blocks.1.resid_mid"]
    activations_of = reader(model, names)
    assert not isinstance(activations_of, PlainReader)
    expected = activations_at(model, tokens, names)
    for name, x in activations_of(tokens).items():
        assert_close(x, expected[name])


UNUSUAL = {
    "no bias of a projection": lambda m: setattr(m.blocks[1], "q", nn.Linear(128, 128, bias=False)),
    "no bias of the unembedding": lambda m: setattr(m, "unembed", nn.Linear(128, 12, bias=False)),
    "a norm without gain": lambda m: setattr(
        m.blocks[0], "norm", nn.LayerNorm(128, elementwise_affine=False)
    ),
    "another eps": lambda m: setattr(m.blocks[1].norm, "eps", 0.1),
    "a wider MLP": lambda m: (
        setattr(m.blocks[1], "up", nn.Linear(128, 256)),
        setattr(m.blocks[1], "down", nn.Linear(256, 128)),
    ),
    "no number": lambda m: m.blocks[1].up.weight[3].fill_(torch.nan),
}


@pytest.mark.parametrize("change", UNUSUAL)
def test_a_model_of_unusual_parameters_is_read_as_it_is(change):
    config = COMPILED["compiled"]
    model, (a, b) = random_model(config, 1, noise=0.2), drawn(config, count=measure.FEW)
    UNUSUAL[change](model)
    tokens = tokens_of(config, count=measure.FEW)
    for name in ("blocks.0.attn.pattern", "blocks.1.attn.z", "blocks.1.resid_post", "logits"):
        actual = measure.activations(model, a, b, [name])[name]
        expected = activations_at(model, tokens, [name])[name]
        assert_close(actual, expected)
    (actual,) = measure.predict(model, a, b)
    expected = model(tokens, read=config.layout.answer).argmax(-1)
    assert torch.equal(actual, expected.to(torch.int8))


class Flip(Ablation):
    """It names no part, and yet changes one."""

    def hook(self, model, source=None, read=None):
        return lambda name, x: -x if name == "blocks.0.mlp_out" else x


def test_an_intervention_of_another_kind_is_called():
    model, (a, b) = random_model(SMALL, 3, noise=0.3), drawn(SMALL, count=measure.FEW)
    name = "blocks.1.resid_post"
    actual = measure.activations(model, a, b, [name], Flip())[name]
    tokens = tokens_of(SMALL, count=measure.FEW)
    expected = activations_at(model, tokens, [name], hook=Flip().hook(model))[name]
    assert torch.equal(actual, expected)
    assert not torch.equal(actual, measure.activations(model, a, b, [name])[name])


def test_activations_and_attention_are_read_like_this(monkeypatch):
    """A probe can be trained on them all the same."""
    model, sums = random_model(SMALL, 3, noise=0.3), drawn(SMALL, count=300)
    monkeypatch.setattr(measure, "plain", None)
    model.requires_grad_()
    name = "blocks.1.resid_mid"
    activations = measure.activations(model, *sums, [name])[name]
    assert not activations.requires_grad
    probe = torch.zeros(activations.shape[-1], requires_grad=True)
    (activations @ probe).sum().backward()
    assert torch.isfinite(probe.grad).all()
    total = measure.attention(model, *sums).sum(-1)
    assert_close(total, torch.ones_like(total))
