"""What a CPU computes in its own way, against PyTorch's way in float64: values and gradients."""

import pytest
import torch
import torch.nn.functional as F

from carry_core.training import layers
from tests.skips import needs_one_dnn, needs_x86


def with_gradients(function, *inputs):
    """The result and the gradients of a random linear functional of it."""
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    out = function(*inputs)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(out.dtype)
    return [out, *torch.autograd.grad((out * weight).sum(), inputs)]


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("turned", [False, True])
def test_products_are_products(n, turned, one_dnn):
    x, weight, bias = random(n, 50, 24), random(n, 24, 16) if turned else random(n, 16, 24), random(n, 16)

    def found(x, weight, bias):
        return layers.linear(x, weight.mT if turned else weight, bias)

    def expected(x, weight, bias):
        return x @ (weight if turned else weight.mT) + bias.unsqueeze(1)

    exact = with_gradients(expected, x, weight, bias)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.1)):
        for a, b in zip(with_gradients(found, *(t.to(dtype) for t in (x, weight, bias))), exact, strict=True):
            assert a.dtype == dtype
            torch.testing.assert_close(a.double(), b, rtol=tolerance, atol=10 * tolerance)


@pytest.fixture(params=[False, pytest.param(True, marks=needs_one_dnn)], ids=["plain", "oneDNN"])
def one_dnn(request, monkeypatch):
    """With and without the faster library."""
    monkeypatch.setattr(layers, "ONE_DNN", request.param)
    return request.param


@needs_x86
def test_one_dnn_is_found():
    assert layers.ONE_DNN


def test_a_product_does_not_depend_on_its_neighbours(one_dnn):
    x, weight, bias = (t.float() for t in (random(3, 50, 24), random(3, 16, 24), random(3, 16)))
    together = with_gradients(layers.linear, x, weight, bias)
    with_others = with_gradients(layers.linear, *(torch.cat([t, t]) for t in (x, weight, bias)))
    alone = layers.linear(x[1:2], weight[1:2], bias[1:2])[0]
    tolerance = {} if one_dnn is False else {"rtol": 0.0, "atol": 0.0}  # PyTorch's batched product promises no bits
    torch.testing.assert_close(with_others[0][:3], together[0], **tolerance)
    torch.testing.assert_close(alone, together[0][1], **tolerance)


def test_normed_is_layer_norm():
    x = 3 + random(2, 5, 7, 24)
    exact = with_gradients(lambda x: F.layer_norm(x, (24,)), x)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        for a, b in zip(with_gradients(layers.normed, x.to(dtype)), exact, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=tolerance, atol=tolerance)


def test_gated_is_relu_times_mask():
    x, mask = random(4, 5, 6), (random(2, 3, 20).view(4, 5, 6) > -1).double()
    x[0, 0] = 0.0
    assert 0 < (mask == 0).sum() < 60
    exact = with_gradients(lambda x: x.relu() * mask, x)
    for a, b in zip(with_gradients(lambda x: layers.gated(x, mask), x), exact, strict=True):
        assert torch.equal(a, b)
