"""The model in TransformerLens: the same numbers at every hook point, on the same weights.

Most of it needs TransformerLens, which `make lens` installs in both of its versions.
"""

import copy
import sys

import pytest
import torch

from carry_core import bridges
from carry_core.errors import BadInput
from carry_core.interventions import Ablation, Patch
from carry_core.model import ModelConfig
from carry_paper.catalogue import load
from tests.conftest import SHAPES, random_model, tokens_of
from tests.helpers.lens_patching import assert_helpers_agree
from tests.helpers.tolerances import assert_close


def test_each_point_has_a_name_in_transformer_lens(config):
    names = [bridges.lens_name(name) for name in config.hook_names]
    assert [config.hook_name(name) for name in names] == config.hook_names
    assert len({*names}) == len(names)
    assert {"hook_embed", "blocks.0.attn.hook_attn_scores", "blocks.0.hook_mlp_out"} < {*names}


def test_without_transformer_lens_there_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformer_lens", None)
    with pytest.raises(BadInput, match="no TransformerLens 3.9 or newer .*: pip install"):
        bridges.to_transformer_lens(random_model(SHAPES["encoder"]))


@pytest.mark.lens
@pytest.mark.parametrize("shape", ["encoder", "three layers", "decoder"])
def test_a_bridge_has_every_point_with_the_model_s_own_numbers(lens, shape):
    config = SHAPES[shape]
    model, tokens = random_model(config, noise=0.2), tokens_of(config)
    bridge = bridges.to_transformer_lens(model)
    assert isinstance(bridge, lens.HookedRootModule)
    expected, activations = model.run_with_cache(tokens)
    logits, cache = bridge.run_with_cache(tokens)
    assert torch.equal(logits, expected)
    assert torch.equal(bridge(tokens), expected)
    assert {*cache.keys()} == {bridges.lens_name(name) for name in config.hook_names}
    for name, activation in activations.items():
        assert torch.equal(cache[bridges.lens_name(name)], activation), name
    assert torch.equal(cache["z", -1], activations[f"blocks.{config.layers - 1}.attn.z"])
    _, one_row = bridge.run_with_cache(tokens[:1], remove_batch_dim=True)
    assert_close(one_row["pattern", 0], cache["pattern", 0][0])

    for name in config.hook_names:
        lens_name = bridges.lens_name(name)
        changed = bridge.run_with_hooks(tokens, fwd_hooks=[(lens_name, lambda x, hook: 0.5 * x)])
        assert torch.equal(changed, model.run_with_hooks(tokens, {name: lambda x: 0.5 * x})), name
    assert torch.equal(bridge(tokens), expected), "hooks are gone after a run"


@pytest.mark.lens
def test_a_bridge_has_the_model_s_weights_and_gradients(lens):
    model, tokens = random_model(ModelConfig(d_model=16), noise=0.2), tokens_of(ModelConfig())
    bridge = bridges.to_transformer_lens(model.requires_grad_())
    bridge_pointers = {parameter.data_ptr() for parameter in bridge.parameters()}
    assert bridge_pointers == {parameter.data_ptr() for parameter in model.parameters()}
    assert [*model.state_dict()] == [*copy.deepcopy(model).state_dict()]

    gradients = {}
    hooks = [("blocks.1.hook_resid_pre", lambda x, hook: gradients.update({hook.name: x.clone()}))]
    with bridge.hooks(bwd_hooks=hooks):
        bridge(tokens)[:, -1, 3].sum().backward()
    logits, cache = model.run_with_cache(tokens)
    (expected,) = torch.autograd.grad(logits[:, -1, 3].sum(), cache["blocks.1.resid_pre"])
    assert torch.equal(gradients["blocks.1.hook_resid_pre"], expected)


@pytest.mark.lens
def test_a_model_inside_a_module_of_theirs_can_still_be_ablated(lens):
    """TransformerLens names all parts of what it wraps."""

    class Wrapped(lens.HookedRootModule):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self.setup()

        def forward(self, *arguments):
            return self.inner(*arguments)

    model = load("n2_s0.3_w0.2", runs=[0]).model(0)
    tokens = tokens_of(model.config)
    interventions = [
        Ablation(heads={(1, 0)}),
        Ablation(mlps={1}),
        Patch(q={(1, 0)}, source=(158, 265)),
    ]
    expected = [model(tokens, intervention.hook(model)) for intervention in interventions]
    intact, wrapped = model(tokens), Wrapped(model)
    assert wrapped.inner.blocks[1].name == "inner.blocks.1"
    for intervention, logits in zip(interventions, expected, strict=True):
        assert torch.equal(wrapped(tokens, intervention.hook(model)), logits)
        assert not torch.equal(logits, intact), str(intervention)
    assert [*model.run_with_cache(tokens)[1]] == model.config.hook_names


@pytest.mark.lens
@pytest.mark.usefixtures("as_a_user_has_it")  # types of arguments are not checked
def test_a_patch_takes_a_cache_of_theirs(lens):
    model = random_model(ModelConfig(d_model=16), noise=0.2)
    tokens, source_tokens = tokens_of(model.config), tokens_of(model.config, seed=9)
    _, cache = bridges.to_transformer_lens(model).run_with_cache(source_tokens)
    _, activations = model.run_with_cache(source_tokens)
    patch = Patch(heads={(1, 0)}, patterns={(0, 1)}, skips={1}, positions=(3, 8))
    assert torch.equal(
        model(tokens, patch.hook(model, cache)), model(tokens, patch.hook(model, activations))
    )


@pytest.mark.lens
def test_their_helpers_patch_a_bridge_as_activation_patch_does(lens):
    model = load("n2_s0.3_w0.2", runs=[0]).model(0)
    assert_helpers_agree(model, bridges.to_transformer_lens(model), count=40, atol=1e-6)
