"""The training forward against the plain model, in float64: the shortcuts are exact."""

import torch

from carry_core import sums
from carry_core.model import ModelConfig, Transformer
from carry_core.training.dropout import SCALE, Masks
from carry_core.training.stacked import Pairs, Stack
from carry_core.training.trainer import Seeds

DOUBLE = torch.float64


def batch(config: ModelConfig, count: int = 33):
    return sums.long_sums(count, config.width, torch.Generator().manual_seed(5))


def stacked(model: Transformer) -> dict[str, torch.Tensor]:
    return {name: p.detach()[None].clone().requires_grad_() for name, p in model.named_parameters()}


def test_pairs_are_the_tokens_that_can_occur():
    pairs = Pairs(ModelConfig().layout, torch.device("cpu"))
    assert len(pairs.token) == 64
    for config in (ModelConfig(), ModelConfig(causal=True), ModelConfig(width=6)):
        pairs = Pairs(config.layout, torch.device("cpu"))
        a, b = batch(config)
        rows = pairs.rows(a[None], b[None])[0].T
        assert torch.equal(pairs.token[rows], sums.encode(a, b, config.layout))
        assert (pairs.position[rows] == torch.arange(config.layout.length)).all()


def test_logits_and_gradients_equal_the_plain_model(config, model):
    a, b = batch(config)
    plain = model(sums.encode(a, b, config.layout), read=config.layout.loss_positions)
    target = sums.targets(a, b, config.layout)
    torch.nn.functional.cross_entropy(plain.flatten(0, 1), target.flatten()).backward()

    parameters, stack = stacked(model), Stack(config, torch.device("cpu"), DOUBLE)
    logits = stack.logits(parameters, stack.pairs.rows(a[None], b[None]))
    torch.nn.functional.cross_entropy(logits.flatten(0, 2), target.T.flatten()).backward()

    torch.testing.assert_close(logits[0].transpose(0, 1), plain, rtol=1e-12, atol=1e-12)
    for name, p in model.named_parameters():
        torch.testing.assert_close(parameters[name].grad[0], p.grad, rtol=1e-12, atol=1e-12, msg=name)


def test_dropout_falls_where_the_released_code_has_it(config, model):
    """The same masks, applied through the plain model's sites: pattern, attn_out, mlp.post, mlp_out."""
    drawn: list[torch.Tensor] = []
    masks = Masks([Seeds.of(0).dropout], torch.device("cpu"))

    def draw(shape, dtype):
        drawn.append(masks(shape, dtype))
        return drawn[-1]

    a, b = batch(config)
    stack = Stack(config, torch.device("cpu"), DOUBLE)
    found = stack.logits(stacked(model), stack.pairs.rows(a[None], b[None]), draw)

    kinds = ["attn.pattern", "attn_out", "mlp.post", "mlp_out"]
    order = [f"blocks.{l}.{kind}" for l in range(config.layers) for kind in kinds]
    masks_of = dict(zip(order, drawn, strict=True))

    def dropout(name, x):
        if name not in masks_of:
            return x
        mask = masks_of[name][0]
        if name == "blocks.0.attn.pattern":
            mask = mask.permute(3, 0, 2, 1)  # from (head, key, query, batch)
        elif name.endswith("pattern"):
            mask = mask.permute(1, 2, 0).unflatten(0, (len(a), config.heads))  # from (key, batch * head, query)
        else:
            mask = mask.transpose(0, 1)
        full = torch.ones_like(x)  # positions behind the last block's shortcut are never read
        full[..., -mask.shape[-2] :, :] = mask
        return x * full * SCALE

    plain = model(sums.encode(a, b, config.layout), dropout)[:, list(config.layout.loss_positions)]
    torch.testing.assert_close(found[0].transpose(0, 1), plain, rtol=1e-12, atol=1e-12)


def test_first_pattern_is_the_mean_attention(config, model):
    kept = {}
    a, b = batch(config)
    model(sums.encode(a, b, config.layout), lambda name, x: kept.setdefault(name, x))
    stack = Stack(config, torch.device("cpu"), DOUBLE)
    found = stack.first_pattern(stacked(model), stack.pairs.rows(a[None], b[None]))[0]
    torch.testing.assert_close(found, kept["blocks.0.attn.pattern"].mean(0), rtol=1e-12, atol=1e-12)


def test_in_half_precision_norms_and_scores_are_taken_in_single(config, model, monkeypatch):
    """Products are in bfloat16; a stream far from zero is centred before it is rounded, and no score is rounded."""
    stack = Stack(config, torch.device("cpu"), torch.bfloat16)
    x = 300 + torch.randn(1, 2, 3, config.d_model, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.layer_norm(x, x.shape[-1:])
    assert stack.normed(x).dtype == torch.bfloat16
    torch.testing.assert_close(stack.normed(x).float(), expected, rtol=0.01, atol=0.01)

    scores, probabilities = [], stack.probabilities
    monkeypatch.setattr(stack, "probabilities", lambda x, *how: scores.append(x.dtype) or probabilities(x, *how))
    a, b = batch(config)
    with torch.no_grad():
        found = stack.logits(stacked(model.float()), stack.pairs.rows(a[None], b[None])).float()
        plain = model(sums.encode(a, b, config.layout), read=config.layout.loss_positions)
    assert scores == [torch.float32] * config.layers
    torch.testing.assert_close(found[0].transpose(0, 1), plain, rtol=0.1, atol=0.1)
