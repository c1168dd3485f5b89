"""The transformer of the paper (App. A), with a named hook point at every activation that one may look at or change.

`model(tokens, hook)` calls `hook(name, tensor)` at every point and goes on with what it returns: a cache keeps, an
intervention replaces, dropout masks. The points, for layer l:

    embed                     [batch, pos, d_model]   token embedding times sqrt(d_model)
    blocks.{l}.resid_pre      [batch, pos, d_model]   the stream that enters the block
    blocks.{l}.attn.q         [batch, query, head, d_head]   before the rotation
    blocks.{l}.attn.k         [batch, key, head, d_head]   before the rotation
    blocks.{l}.attn.v         [batch, key, head, d_head]   before the rotation
    blocks.{l}.attn.scores    [batch, head, query, key]   divided by sqrt(d_head), masked in a decoder
    blocks.{l}.attn.pattern   [batch, head, query, key]   attention probabilities
    blocks.{l}.attn.z         [batch, query, head, d_head]   before the output projection
    blocks.{l}.attn_out       [batch, query, d_model]
    blocks.{l}.attn.skip      [batch, query, d_model]   what the skip connection carries past the attention
    blocks.{l}.resid_mid      [batch, query, d_model]   attn.skip + attn_out
    blocks.{l}.mlp.pre        [batch, query, d_ff]   before the ReLU
    blocks.{l}.mlp.post       [batch, query, d_ff]   after the ReLU
    blocks.{l}.mlp_out        [batch, query, d_model]
    blocks.{l}.mlp.skip       [batch, query, d_model]   what the skip connection carries past the MLP
    blocks.{l}.resid_post     [batch, query, d_model]   mlp.skip + mlp_out
    logits                    [batch, query, 12]

TransformerLens's spelling, such as `blocks.1.attn.hook_z`, is understood wherever a name is given.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor, nn

from carry_core.errors import BadInput
from carry_core.sums import VOCABULARY, Layout

Hook = Callable[[str, Tensor], Tensor]
Positions = slice | list[int]

POINTS = (
    *("resid_pre", "attn.q", "attn.k", "attn.v", "attn.scores", "attn.pattern", "attn.z"),
    *("attn_out", "attn.skip", "resid_mid", "mlp.pre", "mlp.post", "mlp_out", "mlp.skip", "resid_post"),
)  # of a block, in the order of the forward pass


def no_hook(name: str, tensor: Tensor) -> Tensor:
    """The hook that does nothing."""
    return tensor


def cache_hook(cache: dict[str, Tensor], *names: str) -> Hook:
    """A hook that puts the named activations (all if none are named) into `cache` and changes nothing."""

    def hook(name: str, tensor: Tensor) -> Tensor:
        if not names or name in names:
            cache[name] = tensor
        return tensor

    return hook


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a model. `width` counts the digits of each number, padding included."""

    layers: int = 2
    width: int = 3
    causal: bool = False
    d_model: int = 128
    heads: int = 2
    d_ff: int = 128

    @property
    def layout(self) -> Layout:
        return Layout(self.width, self.causal)

    @property
    def d_head(self) -> int:
        return self.d_model // self.heads

    @property
    def hook_names(self) -> list[str]:
        """All hook points, in the order of the forward pass."""
        return ["embed", *(f"blocks.{l}.{point}" for l in range(self.layers) for point in POINTS), "logits"]

    def hook_name(self, name: str) -> str:
        """A hook point's name in our spelling, from that or from TransformerLens's; `BadInput` if there is none."""
        plain = name.replace("hook_", "").replace("attn.attn_scores", "attn.scores")
        if plain not in self.hook_names:
            last = f"blocks.{self.layers - 1}."
            raise BadInput(f"{name!r} is no hook point of this model: expected one such as embed or {last}attn.z.")
        return plain


def rotary(length: int, d_head: int, device: torch.device | None = None) -> Complex[Tensor, "pos half"]:
    """The rotary embedding's turns, exp(i angle), one for each position and pair of coordinates (RoFormer)."""
    rate = 10_000.0 ** (-torch.arange(0, d_head, 2, dtype=torch.float64, device=device) / d_head)
    angle = torch.arange(length, dtype=torch.float64, device=device)[:, None] * rate
    return torch.polar(torch.ones_like(angle), angle)


def rotate(x: Float[Tensor, "*batch #pos head d_head"], turn: Complex[Tensor, "#pos half"]) -> Tensor:
    """Turn each adjacent pair of coordinates by its position's angle: a product of complex numbers."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turn.unsqueeze(1).to(pairs.dtype)).flatten(-2)


class Block(nn.Module):
    """Attention and MLP around one residual stream; one LayerNorm serves both (as in the released code)."""

    turn: Tensor

    def __init__(self, config: ModelConfig, name: str) -> None:
        super().__init__()
        d = config.d_model
        self.config, self.name = config, name
        self.norm = nn.LayerNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.up, self.down = nn.Linear(d, config.d_ff), nn.Linear(config.d_ff, d)
        self.register_buffer("turn", rotary(config.layout.length, config.d_head), persistent=False)

    def attention(
        self, resid: Float[Tensor, "batch pos d_model"], hook: Hook, query: Positions = slice(None)
    ) -> Float[Tensor, "batch query head d_head"]:
        """What the heads gather for the queries at these positions: from the stream to `attn.z`, not yet hooked."""
        q, k, v = self.qkv(resid, hook, query)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(self.config.d_head)
        if self.config.causal:
            position = torch.arange(k.shape[1], device=k.device)
            scores = scores.masked_fill(position > position[query, None], -torch.inf)
        scores = hook(f"{self.name}.attn.scores", scores)
        pattern = hook(f"{self.name}.attn.pattern", scores.softmax(-1))
        return torch.einsum("bhqk,bkhd->bqhd", pattern, v)

    def qkv(
        self, resid: Float[Tensor, "batch pos d_model"], hook: Hook = no_hook, query: Positions = slice(None)
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, `[batch, pos, head, d_head]`, rotated; values too, as in the released code."""
        x = self.norm(resid)
        q, k, v = self.q(x[:, query]), self.k(x), self.v(x)
        q, k, v = (y.unflatten(-1, (self.config.heads, self.config.d_head)) for y in (q, k, v))
        q, k, v = hook(f"{self.name}.attn.q", q), hook(f"{self.name}.attn.k", k), hook(f"{self.name}.attn.v", v)
        return rotate(q, self.turn[query]), rotate(k, self.turn), rotate(v, self.turn)

    def mix(
        self, resid: Float[Tensor, "batch query d_model"], z: Float[Tensor, "batch query head d_head"], hook: Hook
    ) -> Float[Tensor, "batch query d_model"]:
        """What the heads write, added to the stream: from `attn.z` to `resid_mid`."""
        z = hook(f"{self.name}.attn.z", z)
        out = hook(f"{self.name}.attn_out", self.o(z.flatten(-2)))
        return hook(f"{self.name}.resid_mid", hook(f"{self.name}.attn.skip", resid) + out)

    def mlp(self, mid: Float[Tensor, "batch query d_model"], hook: Hook) -> Float[Tensor, "batch query d_model"]:
        """The MLP and its skip connection: from `resid_mid` to `resid_post`."""
        pre = hook(f"{self.name}.mlp.pre", self.up(self.norm(mid)))
        post = hook(f"{self.name}.mlp.post", pre.relu())
        out = hook(f"{self.name}.mlp_out", self.down(post))
        return hook(f"{self.name}.resid_post", hook(f"{self.name}.mlp.skip", mid) + out)


class Transformer(nn.Module):
    """An encoder, or a causal decoder, from tokens to logits. No dropout: that is a hook too."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(VOCABULARY, config.d_model)
        blocks = nn.ModuleList(Block(config, f"blocks.{l}") for l in range(config.layers))
        self.blocks = cast("Sequence[Block]", blocks)
        self.norm = nn.LayerNorm(config.d_model)
        self.unembed = nn.Linear(config.d_model, VOCABULARY)

    def forward(
        self, tokens: Int[Tensor, "batch pos"], hook: Hook = no_hook, read: Sequence[int] | None = None
    ) -> Float[Tensor, "batch query vocab"]:
        """Logits at the positions `read` (all if None); the last block's attention serves only those queries."""
        resid = hook("embed", self.embed(tokens) * math.sqrt(self.config.d_model))
        for l, block in enumerate(self.blocks):
            query = self.queries(l, read)
            resid = hook(f"blocks.{l}.resid_pre", resid)
            resid = block.mix(resid[:, query], block.attention(resid, hook, query), hook)
            resid = block.mlp(resid, hook)
        return hook("logits", self.unembed(self.norm(resid)))

    def queries(self, layer: int, read: Sequence[int] | None) -> Positions:
        """The positions whose queries a layer serves: all, or in the last layer those that are read out."""
        return slice(None) if read is None or layer < self.config.layers - 1 else list(read)

    def run_with_cache(
        self, tokens: Int[Tensor, "batch pos"], names: Iterable[str] | None = None, hook: Hook = no_hook
    ) -> tuple[Float[Tensor, "batch pos vocab"], dict[str, Tensor]]:
        """The logits, and the named activations (all if None) under the names that were given.

        `BadInput` if there is no such hook point.
        """
        asked = self.config.hook_names if names is None else list(names)
        cache: dict[str, Tensor] = {}
        keep = cache_hook(cache, *map(self.config.hook_name, asked))
        logits = self.forward(tokens, lambda name, x: keep(name, hook(name, x)))
        return logits, {name: cache[self.config.hook_name(name)] for name in asked}

    def run_with_hooks(
        self, tokens: Int[Tensor, "batch pos"], hooks: Mapping[str, Callable[..., Tensor]]
    ) -> Float[Tensor, "batch pos vocab"]:
        """The logits when functions change activations: `{name: f}`, with `f(tensor)` or `f(tensor, hook=name)`.

        `BadInput` if there is no such hook point.
        """
        named = [(self.config.hook_name(name), f) for name, f in hooks.items()]

        def hook(name: str, x: Tensor) -> Tensor:
            for f in (f for point, f in named if point == name):
                takes_name = not inspect.isbuiltin(f) and "hook" in inspect.signature(f).parameters
                x = f(x, hook=name) if takes_name else f(x)
            return x

        return self.forward(tokens, hook)
