"""What a CPU does faster than PyTorch's own choice: products, softmax, and pieces of a training step with gradients.

On a GPU, and under `torch.compile`, the plain operations are used.
"""

from contextlib import suppress
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


def has_one_dnn() -> bool:
    """Whether oneDNN's product works here: it is not in torch's documentation, so it is tried."""
    with suppress(Exception):
        one = torch.ones(1, 1)
        return one_dnn(one[None], one[None], one).tolist() == [[[2.0]]]
    return False


class Linear(nn.Linear):
    """`nn.Linear`, by the faster library where no gradient is asked for."""

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """`x @ weight.T + bias`."""
        return applied(x, self.weight, self.bias)


def applied(
    x: Float[Tensor, "*batch d_in"], weight: Float[Tensor, "d_out d_in"], bias: Float[Tensor, " d_out"]
) -> Float[Tensor, "*batch d_out"]:
    """`x @ weight.T + bias`, by the faster library where no gradient is asked for."""
    asked = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad or bias.requires_grad)
    if asked or not by_one_dnn(x) or not weight.numel():  # oneDNN cannot take an empty product
        return F.linear(x, weight, bias)
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def linear(
    x: Float[Tensor, "n rows d_in"], weight: Float[Tensor, "n d_out d_in"], bias: Float[Tensor, "n d_out"]
) -> Float[Tensor, "n rows d_out"]:
    """`x @ weight.T + bias` for each of n."""
    if by_one_dnn(x):
        out: Tensor = Product.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return out
    return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)


def softmax(score: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch key"]:
    """Softmax over the last axis; where that is short, and no gradient is asked for, in passes that vectorise."""
    if score.requires_grad or not on_cpu(score) or score.shape[-1] >= 16:  # PyTorch's vectorises from 16 numbers on
        return score.softmax(-1)
    term = (score - score.amax(-1, keepdim=True)).exp_()
    return term.div_(term.sum(-1, keepdim=True))


def normed(x: Tensor) -> Tensor:
    """LayerNorm over the last axis, without scale and shift."""
    if not on_cpu(x):
        return F.layer_norm(x, x.shape[-1:])
    out: Tensor = Normed.apply(x)  # type: ignore[no-untyped-call]
    return out


def gated(x: Float[Tensor, "*batch"], mask: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """ReLU, then dropout by a mask of zeros and ones."""
    if not on_cpu(x):
        return x.relu() * mask
    out: Tensor = Gated.apply(x, mask)  # type: ignore[no-untyped-call]
    return out


def on_cpu(x: Tensor) -> bool:
    """Whether this module's own functions are to be used."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def by_one_dnn(x: Tensor) -> bool:
    """Whether products with `x` are oneDNN's; where not, they are PyTorch's (`F.linear`, `baddbmm`)."""
    return on_cpu(x) and x.dtype == torch.float32 and ONE_DNN and bool(torch.backends.mkldnn.enabled)


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
    """`x @ weight.T + bias` for each of n; rows or columns of `weight` must be dense, else oneDNN takes seconds."""
    product = torch.ops.mkldnn._linear_pointwise
    biases = [None] * len(x) if bias is None else bias
    parts = [product(a, w, b, "none", [], "") for a, w, b in zip(x, weight, biases, strict=True)]
    return torch.stack(parts) if len(parts) > 1 else parts[0].unsqueeze(0)


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


class Gated(torch.autograd.Function):
    """ReLU and mask, whose gradient needs the result only: it passes where that is above zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        out = (x * mask).relu_()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        passed: Tensor = torch.ops.aten.threshold_backward(grad, out, 0)
        return passed, None


ONE_DNN = has_one_dnn()
