"""What a CPU does faster than PyTorch's own choice: pieces of a training step, and a trained first layer by tables.

On a GPU the plain operations are used in training. This module knows torch only.
"""

import ctypes
import math
from contextlib import suppress
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

Model = TypeVar("Model", bound=nn.Module)


def keep_memory() -> None:
    """Have the C library keep freed blocks: to return them and fault them in again slows every step."""
    m_trim_threshold, m_mmap_max = -1, -4
    with suppress(OSError, AttributeError):  # another C library: slower, no less right
        libc = ctypes.CDLL(None)
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 2**31 - 1)


def has_one_dnn() -> bool:
    """Whether oneDNN's product works here: it is not in torch's documentation, so it is tried."""
    with suppress(Exception):
        one = torch.ones(1, 1)
        return one_dnn(one[None], one[None], one).tolist() == [[[2.0]]]
    return False


def linear(
    x: Float[Tensor, "n rows d_in"], weight: Float[Tensor, "n d_out d_in"], bias: Float[Tensor, "n d_out"]
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


ONE_DNN = has_one_dnn()


class InferenceLinear(nn.Linear):
    """A trained linear map: in float32 on a CPU, where no gradient is asked for, by oneDNN as `Product`."""

    def forward(self, x: Tensor) -> Tensor:
        if not (x.is_cpu and x.dtype == torch.float32 and ONE_DNN) or x.requires_grad or self.weight.requires_grad:
            return super().forward(x)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return product


class InferenceLayerNorm(nn.LayerNorm):
    """A trained LayerNorm, by `normed`."""

    def forward(self, x: Tensor) -> Tensor:
        return normed(x).mul(self.weight).add_(self.bias)


def for_inference(model: Model) -> Model:
    """The model itself, frozen, with linear maps and norms that a CPU computes in two thirds of the time."""
    fast = {nn.Linear: InferenceLinear, nn.LayerNorm: InferenceLayerNorm}
    for module in model.modules():
        module.__class__ = fast.get(type(module), type(module))
    return model.requires_grad_(requires_grad=False).eval()


Query = slice | list[int]  # positions
ALL = slice(None)


class FirstLayer:
    """A trained model's attention in layer 0, from tables over (token, position) of the query and of the key.

    The layer sees one of a dozen tokens at each position. So there are few terms that its softmaxes can be made of, and
    few vectors that its heads can write for a key: a sum's attention is put together from them, in a third of the time.
    """

    def __init__(self, model: Any) -> None:
        config, block = model.config, model.blocks[0]
        length, heads = config.layout.length, config.heads
        position = torch.arange(length, device=model.embed.weight.device)
        self.start = position * len(model.embed.weight)
        self.embedding = model.embed.weight * math.sqrt(config.d_model)
        q, k, v = block.qkv(self.embedding.unsqueeze(1).expand(-1, length, -1))  # (token, pos, head, d_head)
        q, k, self.value = (x.permute(2, 1, 0, 3).flatten(1, 2) for x in (q, k, v))  # (head, row, d_head)
        # in double precision, since the terms of a sum may all be far below the largest of all sums
        score = (q.double() @ k.double().mT / math.sqrt(config.d_head)).unflatten(2, (length, -1))
        if config.causal:
            query = position.repeat_interleave(len(model.embed.weight))
            score = score.masked_fill((position > query[:, None]).unsqueeze(-1), -torch.inf)
        self.term = (score - score.amax((2, 3), keepdim=True)).exp().flatten(2)  # of a softmax: (head, row, row)
        self.written = self.value @ block.o.weight.view(-1, heads, config.d_head).permute(
            1, 2, 0
        )  # (head, row, d_model)
        self.bias = block.o.bias

    def pattern(self, tokens: Int[Tensor, "batch pos"], query: Query = ALL) -> Float[Tensor, "batch query head key"]:
        """Attention probabilities of the queries at these positions."""
        row, rows = tokens + self.start, self.term.shape[-1]
        head = torch.arange(len(self.term), device=row.device)[:, None] * rows
        entry = (row[:, query][:, :, None, None] + head) * rows + row[:, None, None]
        term = self.term.view(-1).index_select(0, entry.view(-1)).view(entry.shape)
        probability: Tensor = term / term.sum(-1, keepdim=True)
        return probability.to(self.embedding.dtype)

    def resid(self, tokens: Int[Tensor, "batch pos"], query: Query = ALL) -> Float[Tensor, "batch query d_model"]:
        """The embedding, at these positions."""
        return F.embedding(tokens[:, query], self.embedding)

    def z(self, tokens: Int[Tensor, "batch pos"], query: Query = ALL) -> Float[Tensor, "batch query head d_head"]:
        """`attn.z`."""
        row, pattern = tokens + self.start, self.pattern(tokens, query)
        return torch.stack([pattern[:, :, h] @ F.embedding(row, value) for h, value in enumerate(self.value)], 2)

    def mid(self, tokens: Int[Tensor, "batch pos"], query: Query = ALL) -> Float[Tensor, "batch query d_model"]:
        """`resid_mid`."""
        row = (tokens + self.start).unsqueeze(1)
        head = torch.arange(len(self.written), device=row.device)[:, None] * self.written.shape[1]
        written = F.embedding((row + head).flatten(1), self.written.flatten(0, 1))  # (batch, head and key, d_model)
        resid = self.resid(tokens, query) + self.bias
        return torch.baddbmm(resid, self.pattern(tokens, query).flatten(2), written)
