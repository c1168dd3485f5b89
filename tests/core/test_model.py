import math

import pytest
import torch

from carry_core.errors import BadInput
from carry_core.hooks import HookAt
from carry_core.interventions import Ablation, MeanAblation, Patch
from carry_core.model import POINTS, ModelConfig, Transformer, parameter_shapes, rotary, rotate
from tests.conftest import SHAPES, random_model, tokens_of
from tests.helpers.tolerances import assert_close

pytestmark = pytest.mark.machine


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
    assert_close(total, torch.ones_like(total))


def test_a_cache_has_what_the_hook_has_left(config, model):
    last = f"blocks.{config.layers - 1}"
    hook = Ablation(heads={(config.layers - 1, 0)}).hook(model)
    _, cache = model.run_with_cache(tokens_of(config), [f"{last}.attn.z"], hook)
    z = cache[f"{last}.attn.z"]
    assert (z[:, :, 0] == 0).all()
    assert (z[:, :, 1] != 0).any()


def test_a_hook_for_some_points_is_called_at_these_alone():
    config = ModelConfig()
    model, tokens = random_model(config), tokens_of(config)
    called_at = []

    def double(name, x):
        called_at.append(name)
        return 2 * x

    hook = HookAt(frozenset({"blocks.0.mlp_out", "blocks.1.resid_pre"}), double)
    doubled = model(tokens, hook)
    assert called_at == ["blocks.0.mlp_out", "blocks.1.resid_pre"]
    assert torch.equal(doubled, model(tokens, lambda name, x: 2 * x if name in called_at else x))
    assert torch.equal(doubled, model.run_with_cache(tokens, hook=hook)[0])
    both = Ablation(heads={(1, 0)}) | MeanAblation(mlps={1})
    assert both.hook(model).points == {"blocks.1.attn.z", "blocks.1.mlp_out"}


def test_every_point_is_what_it_says_it_is(config, model):
    """A forward pass by hand from the cache: what each point's neighbours make of it."""
    _, cache = model.run_with_cache(tokens_of(config))
    for l, block in enumerate(model.blocks):
        pre, q, k, v, scores, pattern, z, out, skip, mid, up, post, down, past, after = (
            cache[f"blocks.{l}.{point}"] for point in POINTS
        )
        assert torch.equal(pre, cache[f"blocks.{l - 1}.resid_post"] if l else cache["embed"])
        assert_close(q.flatten(-2), block.q(block.norm(pre)))
        q, k, v = (rotate(x, block.rotation) for x in (q, k, v))
        by_hand = (
            torch.stack([q[:, :, h] @ k[:, :, h].mT for h in range(config.heads)], 1)
            / config.d_head**0.5
        )
        unmasked = scores > -torch.inf
        assert_close(scores[unmasked], by_hand[unmasked])
        assert_close(pattern, scores.softmax(-1))
        assert_close(z, torch.stack([pattern[:, h] @ v[:, :, h] for h in range(config.heads)], 2))
        assert_close(out, block.o(z.flatten(-2)))
        assert torch.equal(skip, pre)
        assert torch.equal(past, mid)
        assert_close(mid, pre + out)
        assert_close(up, block.up(block.norm(mid)))
        assert_close(post, up.relu())
        assert_close(after, mid + block.down(post))
        assert_close(down, block.down(post))


def test_every_point_matters_and_only_from_its_position_on(config, model):
    """A change at one position moves the logits; in the decoder never at an earlier position."""
    tokens = tokens_of(config)
    plain, position = model(tokens), 4
    for name in config.hook_names:
        index = (
            (..., position, slice(None))
            if name.endswith(("pattern", "scores"))
            else (slice(None), position)
        )

        def change(x, index=index):
            x = x.clone()
            x[index] += (
                0.5
                * torch.rand(x[index].shape, generator=torch.Generator().manual_seed(0)).double()
            )
            return x

        moved = (model.run_with_hooks(tokens, {name: change}) - plain).abs().amax((0, 2))
        assert moved.max() > 1e-9, name
        if not name.endswith(("attn.k", "attn.v")):
            assert moved[position] > 1e-9, name
        if config.causal:
            assert (moved[:position] == 0).all(), name


def test_a_function_that_asks_for_it_is_given_the_name():
    model, names = Transformer(ModelConfig(d_model=16)), []

    def note(x, hook):
        names.append(hook)
        return x

    tokens = tokens_of(model.config)
    # the first two are one point
    points = ("blocks.1.attn.hook_z", "blocks.1.attn.z", "blocks.0.hook_resid_pre")
    logits = model.run_with_hooks(tokens, dict.fromkeys(points, note))
    assert names == ["blocks.0.resid_pre", "blocks.1.attn.z", "blocks.1.attn.z"]
    assert [(hook.name, hook.layer()) for hook in names[:2]] == [(names[0], 0), (names[1], 1)]
    assert torch.equal(logits, model(tokens))


def test_hooks_are_a_mapping_or_pairs_whose_order_counts():
    model = random_model(ModelConfig(d_model=16), noise=0.2)
    tokens, z, mlp = tokens_of(model.config), "blocks.1.attn.z", "blocks.1.hook_mlp_out"
    once = model.run_with_hooks(tokens, {z: torch.zeros_like, mlp: torch.zeros_like})
    assert torch.equal(
        model.run_with_hooks(tokens, [(z, torch.zeros_like), (mlp, torch.zeros_like)]), once
    )
    both = Ablation(heads={(1, 0), (1, 1)}, mlps={1})
    assert torch.equal(once, model(tokens, both.hook(model)))
    raised = model.run_with_hooks(tokens, [(z, torch.zeros_like), (z, lambda x: x + 1)])
    assert torch.equal(raised, model.run_with_hooks(tokens, {z: torch.ones_like}))
    lowered = model.run_with_hooks(tokens, [(z, lambda x: x + 1), (z, torch.zeros_like)])
    assert not torch.equal(raised, lowered)


def test_what_is_cached_is_named_or_chosen_by_a_function():
    model = Transformer(ModelConfig(d_model=16))
    tokens = tokens_of(model.config)
    _, everything = model.run_with_cache(tokens)
    _, patterns = model.run_with_cache(tokens, lambda name: name.endswith("pattern"))
    assert list(patterns) == ["blocks.0.attn.pattern", "blocks.1.attn.pattern"]
    _, cache = model.run_with_cache(tokens, "blocks.1.attn.hook_z")
    assert list(cache) == ["blocks.1.attn.hook_z"]
    assert torch.equal(cache["blocks.1.attn.hook_z"], everything["blocks.1.attn.z"])
    assert all(torch.equal(patterns[name], everything[name]) for name in patterns)
    assert model.run_with_cache(tokens, lambda name: name.endswith("hook_z"))[1] == {}


@pytest.mark.parametrize("layers", [1, 2])
def test_a_decoder_continues_the_first_tokens_of_a_sum(layers):
    """Logits, activations and interventions are those of the whole sum, as far as it is given."""
    config = ModelConfig(layers=layers, width=2, causal=True, d_model=16, d_ff=16)
    model, tokens = random_model(config, noise=0.3).double(), tokens_of(config)
    expected, cache = model.run_with_cache(tokens)
    last = layers - 1
    parts = {"heads": {(last, 1)}, "mlps": {0}, "positions": (1, 4, 6)}
    hooks = [
        Ablation(**parts).hook(model),
        Patch(**parts, source=(12, 34)).hook(model),
        MeanAblation(**parts).hook(model),
    ]
    changed = [model(tokens, hook) for hook in hooks]
    for length in range(1, config.layout.length + 1):
        first = tokens[:, :length]
        logits, activations = model.run_with_cache(first)
        assert_close(logits, expected[:, :length])
        assert_close(model(first, read=[-1])[:, 0], expected[:, length - 1])
        for name in ("blocks.0.attn.v", f"blocks.{last}.resid_post"):
            assert_close(activations[name], cache[name][:, :length])
        for hook, whole in zip(hooks, changed, strict=True):
            assert_close(model(first, hook), whole[:, :length])
            row = model(first, hook, [length - 1])[:, 0]
            assert_close(row, whole[:, length - 1])
        with pytest.raises(BadInput, match=f"expected positions from 0 to {length - 1}"):
            model(first, read=[length])
    for wrong in (tokens[:, :0], torch.cat([tokens, tokens], 1)):
        with pytest.raises(BadInput, match=r"expected integers of shape \[batch, 7 or fewer\]"):
            model(wrong)


def test_names_of_transformer_lens_are_understood_and_unknown_ones_refused():
    model = Transformer(ModelConfig(d_model=16))
    tokens = tokens_of(model.config)
    lens_names = {"hook_embed": "embed", "blocks.1.attn.hook_attn_scores": "blocks.1.attn.scores"}
    lens_names |= {
        "blocks.0.mlp.hook_post": "blocks.0.mlp.post",
        "blocks.0.hook_mlp_out": "blocks.0.mlp_out",
    }
    _, cache = model.run_with_cache(tokens, lens_names)
    _, cache_by_point = model.run_with_cache(tokens, lens_names.values())
    assert all(
        torch.equal(cache[name], cache_by_point[plain]) for name, plain in lens_names.items()
    )
    for wrong in ("blocks.2.attn.z", "blocks.0.attn.zz", ""):
        with pytest.raises(BadInput, match="is no hook point: expected one such as"):
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
        assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    angle = 5 * 10_000.0 ** (-2 / 8)
    cos, sin = math.cos(angle), math.sin(angle)
    (u, v), turned = x[5, 0, 2:4].tolist(), rotate(x, turn)[5, 0, 2:4].tolist()
    assert turned == pytest.approx([u * cos - v * sin, u * sin + v * cos])


@pytest.mark.parametrize(("layers", "count"), [(1, 102_668), (2, 201_996)])
def test_the_paper_s_parameters(layers, count):
    assert sum(p.numel() for p in Transformer(ModelConfig(layers=layers)).parameters()) == count


@pytest.mark.parametrize("shape", SHAPES)
def test_the_shapes_of_parameters_are_the_model_s_in_its_order(shape):
    """Initial weights are drawn in this order."""
    config = SHAPES[shape]
    expected = [(name, p.shape) for name, p in Transformer(config).named_parameters()]
    assert list(parameter_shapes(config).items()) == expected


def cut_in_place(x):
    x.data = x.data[:1]


def resized_in_place(x):
    x.resize_(1, 1, x.shape[-1])


def rounded_in_place(x):
    x.data = x.data.half()


@pytest.mark.parametrize("change", [cut_in_place, resized_in_place, rounded_in_place])
def test_a_hook_cannot_change_the_shape_or_type_of_an_activation_in_place(change):
    config = SHAPES["encoder"]
    model, tokens = random_model(config), tokens_of(config)
    message = "A hook at blocks.1.mlp_out returned torch.*: expected torch.float32 of shape"
    for run in (
        lambda: model.run_with_hooks(tokens, {"blocks.1.mlp_out": change}),
        lambda: model(tokens, lambda name, x: change(x) if name == "blocks.1.mlp_out" else None),
        lambda: model.run_with_cache(
            tokens, hook=lambda name, x: change(x) if name == "blocks.1.mlp_out" else x
        ),
    ):
        with pytest.raises(BadInput, match=message):
            run()
