"""The training's forward pass against PyTorch and the plain model: values, gradients, masks."""

import pytest
import torch
import torch.nn.functional as F

from carry_core import sums
from carry_core.model import ModelConfig, Transformer
from carry_fast import layers
from carry_train.groups import find
from carry_train.seeds import OWN
from carry_train.stacked import THRESHOLD, Masks, Stack, scale_of, threshold_of
from tests.helpers.tolerances import assert_close

pytestmark = pytest.mark.machine

# ---------------------------------------------------------------- the forward of several runs


DOUBLE = torch.float64


def batch(config: ModelConfig, count: int = 33):
    return sums.long_sums(count, config.width, torch.Generator().manual_seed(5))


def stacked(model: Transformer) -> dict[str, torch.Tensor]:
    return {name: p.detach()[None].clone().requires_grad_() for name, p in model.named_parameters()}


def test_logits_and_gradients_equal_the_plain_model(config, model):
    a, b = batch(config)
    plain = model(sums.encode(a, b, config.layout), read=config.layout.loss_positions)
    target = sums.targets(a, b, config.layout)
    torch.nn.functional.cross_entropy(plain.flatten(0, 1), target.flatten()).backward()

    parameters, stack = stacked(model), Stack(config, torch.device("cpu"), DOUBLE)
    logits = stack.logits(parameters, stack.rows(a[None], b[None]))
    torch.nn.functional.cross_entropy(logits.flatten(0, 2), target.T.flatten()).backward()

    assert_close(logits[0].transpose(0, 1), plain)
    for name, p in model.named_parameters():
        # Some are zero but for rounding, such as those of the keys' biases.
        assert_close(parameters[name].grad[0], p.grad, scale=1, msg=name)


def test_dropout_falls_where_the_released_code_has_it(config, model):
    """The plain model has the same masks at pattern, attn_out, mlp.post and mlp_out."""
    drawn_masks: list[torch.Tensor] = []
    masks = Masks([OWN.streams(0).dropout], torch.device("cpu"))

    def draw(shape, dtype):
        drawn_masks.append(masks(shape, dtype))
        return drawn_masks[-1]

    a, b = batch(config)
    stack = Stack(config, torch.device("cpu"), DOUBLE)
    logits = stack.logits(stacked(model), stack.rows(a[None], b[None]), draw)

    kinds = ["attn.pattern", "attn_out", "mlp.post", "mlp_out"]
    order = [f"blocks.{l}.{kind}" for l in range(config.layers) for kind in kinds]
    masks_of = dict(zip(order, drawn_masks, strict=True))

    def dropout(name, x):
        if name not in masks_of:
            return x
        mask = masks_of[name][0]
        if name == "blocks.0.attn.pattern":
            mask = mask.permute(3, 0, 2, 1)  # from (head, key, query, batch)
        elif name.endswith("pattern"):
            # from (key, batch * head, query)
            mask = mask.permute(1, 2, 0).unflatten(0, (len(a), config.heads))
        else:
            mask = mask.transpose(0, 1)
        full = torch.ones_like(x)  # positions behind the last block's shortcut are never read
        full[..., -mask.shape[-2] :, :] = mask
        return x * full * scale_of(THRESHOLD)

    plain = model(sums.encode(a, b, config.layout), dropout)[:, list(config.layout.loss_positions)]
    assert_close(logits[0].transpose(0, 1), plain)


def test_first_pattern_is_the_mean_attention(config, model):
    a, b = batch(config)
    _, cache = model.run_with_cache(sums.encode(a, b, config.layout), ["blocks.0.attn.pattern"])
    stack = Stack(config, torch.device("cpu"), DOUBLE)
    pattern = stack.first_pattern(stacked(model), stack.rows(a[None], b[None]))[0]
    assert_close(pattern, cache["blocks.0.attn.pattern"].mean(0))


def test_in_half_precision_norms_and_scores_are_taken_in_single(config, model, monkeypatch):
    """Products are in bfloat16; a far stream is centred before rounding, scores are not rounded."""
    stack = Stack(config, torch.device("cpu"), torch.bfloat16)
    x = 300 + torch.randn(1, 2, 3, config.d_model, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.layer_norm(x, x.shape[-1:])
    assert stack.normed(x).dtype == torch.bfloat16
    assert_close(stack.normed(x), expected)

    scores, probabilities = [], stack.probabilities
    monkeypatch.setattr(
        stack,
        "probabilities",
        lambda x, *options: scores.append(x.dtype) or probabilities(x, *options),
    )
    a, b = batch(config)
    with torch.no_grad():
        logits = stack.logits(stacked(model.float()), stack.rows(a[None], b[None])).float()
        plain = model(sums.encode(a, b, config.layout), read=config.layout.loss_positions)
    assert scores == [torch.float32] * config.layers
    assert_close(logits[0].transpose(0, 1), plain, computed_in=torch.bfloat16)


# ---------------------------------------------------------------- a CPU's own layers


def with_gradients(function, *inputs):
    """The result and the gradients of a random linear functional of it."""
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    out = function(*inputs)
    weight = torch.randn(
        out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    ).to(out.dtype)
    return [out, *torch.autograd.grad((out * weight).sum(), inputs)]


def random(*shape):
    return torch.randn(
        shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64
    )


@pytest.mark.parametrize("turned", [False, True])
def test_products_are_products(turned, one_dnn):
    n = 3
    x, weight, bias = (
        random(n, 50, 24),
        random(n, 24, 16) if turned else random(n, 16, 24),
        random(n, 16),
    )

    def found(x, weight, bias):
        return layers.linear(x, weight.mT if turned else weight, bias)

    def expected(x, weight, bias):
        return x @ (weight if turned else weight.mT) + bias.unsqueeze(1)

    exact = with_gradients(expected, x, weight, bias)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        again = with_gradients(found, *(t.to(dtype) for t in (x, weight, bias)))
        for actual, wanted in zip(again, exact, strict=True):
            assert_close(actual, wanted)


@pytest.fixture(
    params=[False, pytest.param(True, marks=pytest.mark.needs("oneDNN"))], ids=["plain", "oneDNN"]
)
def one_dnn(request, monkeypatch):
    """With and without the faster library."""
    monkeypatch.setattr(layers, "ONE_DNN", request.param)
    return request.param


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_normed_is_layer_norm(dtype):
    x = 3 + random(2, 5, 7, 24)
    exact = with_gradients(lambda x: F.layer_norm(x, (24,)), x)
    for actual, wanted in zip(with_gradients(layers.normed, x.to(dtype)), exact, strict=True):
        assert_close(actual, wanted)


# ---------------------------------------------------------------- dropout masks


SHAPE = (2, 1001, 997)


def stream(runs):
    return Masks([OWN.streams(run).dropout for run in runs], torch.device("cpu"))


def test_masks_are_independent_coins():
    """Rate, runs, neighbours and later draws are independent within five standard deviations."""
    draw = stream([0, 1])
    first, second = draw(SHAPE, torch.float64), draw(SHAPE, torch.float64)
    assert set(first.unique().tolist()) == {0.0, 1.0}
    p, count = THRESHOLD / 65536, 1001 * 997
    dropped = 1 - torch.stack([*first, *second]).flatten(1)
    assert ((dropped.mean(1) - p).abs() < 5 * (p * (1 - p) / count) ** 0.5).all()
    centred = (dropped - p) / (p * (1 - p)) ** 0.5
    correlation = centred @ centred.T / count
    off_diagonal = correlation - correlation.diag().diag()
    assert off_diagonal.abs().max() < 5 / count**0.5
    for lag in (1, 2, 3, 4, 32, 128, 997):
        assert abs((centred[0, lag:] * centred[0, :-lag]).mean()) < 5 / count**0.5


def test_another_dropout_rate_drops_and_scales_by_it():
    threshold = threshold_of(0.3)
    masks = Masks([OWN.streams(0).dropout], torch.device("cpu"), threshold)
    share = 1 - masks((1, 1000, 1000), torch.float64).mean().item()
    assert share == pytest.approx(0.3, abs=0.003)
    stack = Stack(ModelConfig(), torch.device("cpu"), DOUBLE, threshold)
    assert stack.scale * (1 - threshold / 65536) == pytest.approx(1)


def test_four_narrow_heads_equal_the_plain_model():
    config = find("decoder_digits2_n2_s0.3_w0.2_dff192_h4_d64").config
    model = Transformer(config).double()
    a, b = batch(config)
    plain = model(sums.encode(a, b, config.layout), read=config.layout.loss_positions)
    stack = Stack(config, torch.device("cpu"), DOUBLE)
    logits = stack.logits(stacked(model), stack.rows(a[None], b[None]))
    assert_close(logits[0].transpose(0, 1), plain)
