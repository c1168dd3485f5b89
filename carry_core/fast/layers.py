"""Products and norms that a CPU computes faster than by PyTorch's own choice. This module knows torch only."""

import ctypes
from contextlib import suppress
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def keep_memory() -> None:
    """Have the C library keep freed blocks: to return them and fault them in again slows every step."""
    with suppress(OSError, AttributeError):  # another C library: slower, no less right
        libc = ctypes.CDLL(None)
        libc.mallopt(-4, 0)  # M_MMAP_MAX
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def linear(
    x: Float[Tensor, "n rows d_in"],
    weight: Float[Tensor, "n d_out d_in"],
    bias: Float[Tensor, "n d_out"],
) -> Float[Tensor, "n rows d_out"]:
    """`x @ weight.T + bias` for each of n."""
    if x.is_cpu and x.dtype == torch.float32 and ONE_DNN:
        out: Tensor = Product.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return out
    return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)


def normed(x: Tensor) -> Tensor:
    """LayerNorm over the last axis, without scale and shift."""
    if not x.is_cpu:
        return F.layer_norm(x, x.shape[-1:])
    out: Tensor = Normed.apply(x)  # type: ignore[no-untyped-call]
    return out


class Product(torch.autograd.Function):
    """Matrix products in float32 by oneDNN: PyTorch's choice, MKL, takes twice as long on AMD's processors."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return one_dnn(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return one_dnn(grad, weight.mT), one_dnn(grad.mT, x.mT), grad.sum(1)


def one_dnn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias` for each of n."""
    biases = [None] * len(x) if bias is None else bias
    parts = [product(a, w, b) for a, w, b in zip(x, weight, biases, strict=True)]
    return torch.stack(parts) if len(parts) > 1 else parts[0].unsqueeze(0)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear`, in float32 on a CPU by oneDNN: no gradients, and seconds where `weight` is not dense."""
    if not (x.is_cpu and x.dtype == torch.float32 and x.numel() and ONE_DNN):
        return F.linear(x, weight, bias)
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


class Normed(torch.autograd.Function):
    """LayerNorm in passes that vectorise: mean, difference, length. PyTorch's single pass takes twice as long."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        out = x - mean
        variance = torch.linalg.vector_norm(out, dim=-1, keepdim=True).square_() / x.shape[-1]
        scale = (variance + 1e-5).rsqrt_()
        ctx.save_for_backward(x, mean, scale)
        return out.mul_(scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, mean, scale = ctx.saved_tensors
        found: tuple[Tensor, ...] = torch.ops.aten.native_layer_norm_backward(
            grad, x, x.shape[-1:], mean, scale, None, None, [True, False, False]
        )
        return found[0]


ONE_DNN = False
with suppress(Exception):  # it is not in torch's documentation, so it is tried
    ONE_DNN = (
        torch.ops.mkldnn._linear_pointwise(
            torch.ones(1, 1), torch.ones(1, 1), None, "none", [], ""
        ).item()
        == 1
    )
