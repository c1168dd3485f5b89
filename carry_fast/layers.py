"""Linear layers and LayerNorms that are faster on a CPU than PyTorch's defaults.

They equal `F.linear` and `F.layer_norm` up to rounding, and take about half the time on AMD's
processors. This module depends on torch alone.
"""

import ctypes
from contextlib import suppress
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

LAYER_NORM_EPSILON = 1e-5  # PyTorch's default
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h


def keep_memory() -> None:
    """Have the C library keep freed blocks.

    Returning them to the system and faulting them in again would slow every training step.
    """
    with suppress(OSError, AttributeError):  # another C library: slower, but no less correct
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def linear(
    x: Float[Tensor, "n rows d_in"],
    weight: Float[Tensor, "n d_out d_in"],
    bias: Float[Tensor, "n d_out"],
) -> Float[Tensor, "n rows d_out"]:
    """Return `x @ weight.T + bias` for each of n models."""
    if x.is_cpu and x.dtype == torch.float32 and ONE_DNN:
        out: Tensor = Product.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return out
    return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)


def normed(x: Tensor) -> Tensor:
    """Return the LayerNorm of x over the last axis, without scale and shift."""
    if not x.is_cpu:
        return F.layer_norm(x, x.shape[-1:])
    out: Tensor = Normed.apply(x)  # type: ignore[no-untyped-call]
    return out


class Product(torch.autograd.Function):
    """Matrix products in float32 by oneDNN.

    PyTorch's default, MKL, takes twice as long on AMD's processors.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return one_dnn(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return one_dnn(grad, weight.mT), one_dnn(grad.mT, x.mT), grad.sum(1)


def one_dnn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `x @ weight.T + bias` for each of n models, without gradients."""
    parts = []
    for i in range(len(x)):
        parts.append(product(x[i], weight[i], None if bias is None else bias[i]))
    return torch.stack(parts) if len(parts) > 1 else parts[0].unsqueeze(0)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `F.linear`, computed by oneDNN in float32 on a CPU.

    There it has no gradients, and takes seconds if `weight` has gaps in memory.
    """
    if not (x.is_cpu and x.dtype == torch.float32 and x.numel() and ONE_DNN):
        return F.linear(x, weight, bias)
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


class Normed(torch.autograd.Function):
    """LayerNorm in passes that vectorise: mean, difference, norm.

    PyTorch's single pass takes twice as long.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        out = x - mean
        variance = torch.linalg.vector_norm(out, dim=-1, keepdim=True).square_() / x.shape[-1]
        scale = (variance + LAYER_NORM_EPSILON).rsqrt_()
        ctx.save_for_backward(x, mean, scale)
        return out.mul_(scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, mean, scale = ctx.saved_tensors
        no_affine = None, None
        asked_for = [True, False, False]  # the gradient of x, not those of scale and shift
        grads: tuple[Tensor, ...] = torch.ops.aten.native_layer_norm_backward(
            grad, x, x.shape[-1:], mean, scale, *no_affine, asked_for
        )
        return grads[0]


def _has_one_dnn() -> bool:
    """Return True if oneDNN's product works; torch does not document it, so it is tried out."""
    matrix = torch.ones(1, 1)
    try:
        out = torch.ops.mkldnn._linear_pointwise(matrix, matrix, None, "none", [], "")
    except Exception:
        return False
    return bool(out.item() == 1)


ONE_DNN = _has_one_dnn()
