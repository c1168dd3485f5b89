import math

import pytest
import torch

from carry_core.errors import BadInput
from carry_core.interventions import Ablation
from carry_core.model import POINTS, ModelConfig, Transformer, rotary, rotate
from tests.conftest import tokens_of


def test_a_cache_has_every_point_and_changes_nothing(config, model):
    tokens = tokens_of(config)
    logits, cache = model.run_with_cache(tokens)
    assert torch.equal(model(tokens), logits)
    assert list(cache) == config.hook_names
    batch, length = tokens.shape
    heads, pairs = (
        (batch, length, config.heads, config.d_head),
        (batch, config.heads, length, length),
    )
    shapes = dict.fromkeys(POINTS, (batch, length, config.d_model))
    shapes |= {f"attn.{x}": heads for x in "qkvz"} | {"attn.scores": pairs, "attn.pattern": pairs}
    shapes |= {f"mlp.{x}": (batch, length, config.d_ff) for x in ("pre", "post")}
    assert {point: cache[f"blocks.0.{point}"].shape for point in POINTS} == shapes
    total = cache["blocks.0.attn.pattern"].sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total))


def test_a_cache_has_what_the_hook_has_left(config, model):
    last = f"blocks.{config.layers - 1}"
    hook = Ablation(heads={(config.layers - 1, 0)}).hook(model)
    _, cache = model.run_with_cache(tokens_of(config), [f"{last}.attn.z"], hook)
    z = cache[f"{last}.attn.z"]
    assert (z[:, :, 0] == 0).all()
    assert (z[:, :, 1] != 0).any()


def test_every_point_is_what_it_says_it_is(config, model):
    """A forward pass by hand from the cache: what each point's neighbours make of it."""
    _, cache = model.run_with_cache(tokens_of(config))
    for l, block in enumerate(model.blocks):
        pre, q, k, v, scores, pattern, z, out, skip, mid, up, post, down, past, after = (
            cache[f"blocks.{l}.{point}"] for point in POINTS
        )
        assert torch.equal(pre, cache[f"blocks.{l - 1}.resid_post"] if l else cache["embed"])
        torch.testing.assert_close(q.flatten(-2), block.q(block.norm(pre)))
        q, k, v = (rotate(x, block.rotation) for x in (q, k, v))
        by_hand = (
            torch.stack([q[:, :, h] @ k[:, :, h].mT for h in range(config.heads)], 1)
            / config.d_head**0.5
        )
        seen = scores > -torch.inf
        torch.testing.assert_close(scores[seen], by_hand[seen])
        torch.testing.assert_close(pattern, scores.softmax(-1))
        torch.testing.assert_close(
            z, torch.stack([pattern[:, h] @ v[:, :, h] for h in range(config.heads)], 2)
        )
        torch.testing.assert_close(out, block.o(z.flatten(-2)))
        assert torch.equal(skip, pre)
        assert torch.equal(past, mid)
        torch.testing.assert_close(mid, pre + out)
        torch.testing.assert_close(up, block.up(block.norm(mid)))
        torch.testing.assert_close(post, up.relu())
        torch.testing.assert_close(after, mid + block.down(post))
        torch.testing.assert_close(down, block.down(post))


def test_every_point_matters_and_only_from_its_position_on(config, model):
    """Adding to one position of a point moves the logits; in the decoder never at an earlier position."""
    tokens = tokens_of(config)
    plain, at = model(tokens), 4
    for name in config.hook_names:
        where = (
            (..., at, slice(None)) if name.endswith(("pattern", "scores")) else (slice(None), at)
        )

        def change(x, where=where):
            x = x.clone()
            x[where] += (
                0.5
                * torch.rand(x[where].shape, generator=torch.Generator().manual_seed(0)).double()
            )
            return x

        moved = (model.run_with_hooks(tokens, {name: change}) - plain).abs().amax((0, 2))
        assert moved.max() > 1e-9, name
        if not name.endswith(("attn.k", "attn.v")):
            assert moved[at] > 1e-9, name
        if config.causal:
            assert (moved[:at] == 0).all(), name


def test_a_function_that_asks_for_it_is_given_the_name():
    model, names = Transformer(ModelConfig(d_model=16)), []

    def note(x, hook):
        names.append(hook)
        return x

    tokens = tokens_of(model.config)
    # the first two are one point
    asked = ("blocks.1.attn.hook_z", "blocks.1.attn.z", "blocks.0.hook_resid_pre")
    logits = model.run_with_hooks(tokens, dict.fromkeys(asked, note))
    assert names == ["blocks.0.resid_pre", "blocks.1.attn.z", "blocks.1.attn.z"]
    assert torch.equal(logits, model(tokens))


def test_a_function_of_pytorch_can_be_a_hook():
    model = Transformer(ModelConfig(d_model=16))
    tokens, z = tokens_of(model.config), "blocks.1.attn.z"
    zeroed = model.run_with_hooks(tokens, {z: lambda x: 0 * x})
    assert torch.equal(model.run_with_hooks(tokens, {z: torch.zeros_like}), zeroed)


def test_names_of_transformer_lens_are_understood_and_unknown_ones_refused():
    model = Transformer(ModelConfig(d_model=16))
    tokens = tokens_of(model.config)
    theirs = {"hook_embed": "embed", "blocks.1.attn.hook_attn_scores": "blocks.1.attn.scores"}
    theirs |= {
        "blocks.0.mlp.hook_post": "blocks.0.mlp.post",
        "blocks.0.hook_mlp_out": "blocks.0.mlp_out",
    }
    _, cache = model.run_with_cache(tokens, theirs)
    _, own = model.run_with_cache(tokens, theirs.values())
    assert all(torch.equal(cache[name], own[plain]) for name, plain in theirs.items())
    for wrong in ("blocks.2.attn.z", "blocks.0.attn.zz", ""):
        with pytest.raises(BadInput, match="is no hook point of this model: expected one such as"):
            model.run_with_hooks(tokens, {wrong: lambda x: x})
        with pytest.raises(BadInput, match="is no hook point"):
            model.run_with_cache(tokens, [wrong])


def test_decoder_does_not_look_ahead():
    config = ModelConfig(causal=True, d_model=16)
    model = Transformer(config).double()
    embedded = torch.zeros(1, config.layout.length, 16, dtype=torch.float64, requires_grad=True)
    logits = model(
        tokens_of(config, count=1), lambda name, x: x + embedded if name == "embed" else x
    )
    for position in range(config.layout.length):
        (gradient,) = torch.autograd.grad(logits[0, position].sum(), embedded, retain_graph=True)
        assert (gradient[0, position + 1 :] == 0).all()
        assert (gradient[0, : position + 1] != 0).any(-1).all()


def test_rotation_turns_pairs_and_depends_on_distance_only():
    turn = rotary(12, 8)
    x, y = torch.randn(2, 12, 1, 8, dtype=torch.float64)
    same = x[:1].expand(12, 1, 8), y[:1].expand(12, 1, 8)
    scores = rotate(same[0], turn)[:, 0] @ rotate(same[1], turn)[:, 0].T
    for shift in range(-11, 12):
        diagonal = scores.diagonal(shift)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    angle = 5 * 10_000.0 ** (-2 / 8)
    cos, sin = math.cos(angle), math.sin(angle)
    (u, v), found = x[5, 0, 2:4].tolist(), rotate(x, turn)[5, 0, 2:4].tolist()
    assert found == pytest.approx([u * cos - v * sin, u * sin + v * cos])


@pytest.mark.parametrize(("layers", "count"), [(1, 102_668), (2, 201_996)])
def test_the_paper_s_parameters(layers, count):
    assert sum(p.numel() for p in Transformer(ModelConfig(layers=layers)).parameters()) == count
