"""The transformer of the paper (App. A), with a named site at every point that it looks at or ablates.

A site function `site(name, tensor)` sees every named tensor and returns it, or something in its place:
recording keeps, ablation changes, dropout masks. Names, for layer l:

    embed                     [batch, pos, d_model]   token embedding times sqrt(d_model)
    blocks.{l}.attn.pattern   [batch, head, query, key]   attention probabilities
    blocks.{l}.attn.z         [batch, query, head, d_head]   before the output projection
    blocks.{l}.attn_out       [batch, query, d_model]
    blocks.{l}.attn.skip      [batch, query, d_model]   what the skip connection carries past the attention
    blocks.{l}.resid_mid      [batch, query, d_model]   attn.skip + attn_out
    blocks.{l}.mlp.post       [batch, query, d_ff]   after the ReLU
    blocks.{l}.mlp_out        [batch, query, d_model]
    blocks.{l}.resid_post     [batch, query, d_model]   resid_mid + mlp_out
    logits                    [batch, query, 12]
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from carry_core.sums import VOCABULARY, Layout

Site = Callable[[str, Tensor], Tensor]


def untouched(name: str, tensor: Tensor) -> Tensor:
    """The site function that does nothing."""
    return tensor


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

    def to_dict(self) -> dict[str, int | bool]:
        return asdict(self)


def rotary(length: int, d_head: int, device: torch.device | None = None) -> Float[Tensor, "pos half 2"]:
    """Cosines and sines of the rotary embedding (RoFormer, base 10^4), float64."""
    rate = 10_000.0 ** (-torch.arange(0, d_head, 2, dtype=torch.float64, device=device) / d_head)
    angle = torch.arange(length, dtype=torch.float64, device=device)[:, None] * rate
    return torch.stack([angle.cos(), angle.sin()], -1)


def rotate(x: Float[Tensor, "*batch pos head d_head"], turn: Float[Tensor, "pos half 2"]) -> Tensor:
    """Turn each adjacent pair of coordinates by its position's angle."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = turn[:, None, :, 0].to(x.dtype), turn[:, None, :, 1].to(x.dtype)
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)


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

    def attend(
        self, resid: Float[Tensor, "batch pos d_model"], site: Site, read: list[int] | None
    ) -> tuple[Float[Tensor, "batch query d_model"], Float[Tensor, "batch query head d_head"]]:
        """What the heads gather for the positions `read` (all if None), and the stream there."""
        heads = (self.config.heads, self.config.d_head)
        everywhere = self.norm(resid)
        here = everywhere if read is None else everywhere[:, read]
        turn_here = self.turn if read is None else self.turn[read]
        q = rotate(self.q(here).unflatten(-1, heads), turn_here)  # (batch, query, head, d_head)
        k = rotate(self.k(everywhere).unflatten(-1, heads), self.turn)
        v = rotate(self.v(everywhere).unflatten(-1, heads), self.turn)  # values too: the released code does
        score = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / math.sqrt(heads[1])  # (batch, head, query, key)
        if self.config.causal:
            key = torch.arange(resid.shape[1], device=resid.device)
            query = key if read is None else key[read]
            score = score.masked_fill(key > query[:, None], -torch.inf)
        pattern = site(f"{self.name}.attn.pattern", score.softmax(-1))
        z = (pattern @ v.transpose(1, 2)).transpose(1, 2)
        return (resid if read is None else resid[:, read]), z

    def finish(
        self, resid: Float[Tensor, "batch query d_model"], z: Float[Tensor, "batch query head d_head"], site: Site
    ) -> Float[Tensor, "batch query d_model"]:
        """The rest of the block, from the heads' outputs on; every `Ablation` acts in here."""
        z = site(f"{self.name}.attn.z", z)
        out = site(f"{self.name}.attn_out", self.o(z.flatten(-2)))
        mid = site(f"{self.name}.resid_mid", site(f"{self.name}.attn.skip", resid) + out)
        hidden = site(f"{self.name}.mlp.post", F.relu(self.up(self.norm(mid))))
        return site(f"{self.name}.resid_post", mid + site(f"{self.name}.mlp_out", self.down(hidden)))


class Transformer(nn.Module):
    """An encoder, or a causal decoder, from tokens to logits. No dropout: that is a site function too."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(VOCABULARY, config.d_model)
        self.blocks = nn.ModuleList(Block(config, f"blocks.{l}") for l in range(config.layers))
        self.norm = nn.LayerNorm(config.d_model)
        self.unembed = nn.Linear(config.d_model, VOCABULARY)

    def forward(
        self, tokens: Int[Tensor, "batch pos"], site: Site = untouched, read: Sequence[int] | None = None
    ) -> Float[Tensor, "batch query vocab"]:
        """Logits at the positions `read` (all if None); the last block computes only those queries."""
        resid = self._embed(tokens, site)
        for l in range(self.config.layers):
            resid, z = self._attend(l, resid, site, read)
            resid = self._block(l).finish(resid, z, site)
        return self._logits(resid, site)

    def forward_each(
        self, tokens: Int[Tensor, "batch pos"], edits: Sequence[tuple[int, Site]], read: Sequence[int] | None = None
    ) -> list[Float[Tensor, "batch query vocab"]]:
        """Logits under each edit, computing what the edits share only once.

        Args:
            edits: pairs of a layer and a site function that changes nothing before that layer's `attn.z`.
                A layer equal to `config.layers` means the intact model.
        """
        logits: dict[int, Tensor] = {}
        resid = self._embed(tokens, untouched)
        for l in range(self.config.layers):
            resid, z = self._attend(l, resid, untouched, read)
            for i, (first, site) in enumerate(edits):
                if first == l:
                    logits[i] = self._resume(l, resid, z, site, read)
            if any(first > l for first, _ in edits):
                resid = self._block(l).finish(resid, z, untouched)
        for i, (first, site) in enumerate(edits):
            if first == self.config.layers:
                logits[i] = self._logits(resid, site)
        return [logits[i] for i in range(len(edits))]

    def _resume(self, layer: int, resid: Tensor, z: Tensor, site: Site, read: Sequence[int] | None) -> Tensor:
        resid = self._block(layer).finish(resid, z, site)
        for l in range(layer + 1, self.config.layers):
            resid, z = self._attend(l, resid, site, read)
            resid = self._block(l).finish(resid, z, site)
        return self._logits(resid, site)

    def _block(self, layer: int) -> Block:
        block = self.blocks[layer]
        assert isinstance(block, Block)
        return block

    def _embed(self, tokens: Tensor, site: Site) -> Tensor:
        return site("embed", self.embed(tokens) * math.sqrt(self.config.d_model))

    def _attend(self, layer: int, resid: Tensor, site: Site, read: Sequence[int] | None) -> tuple[Tensor, Tensor]:
        last = layer == self.config.layers - 1
        return self._block(layer).attend(resid, site, list(read) if last and read is not None else None)

    def _logits(self, resid: Tensor, site: Site) -> Tensor:
        return site("logits", self.unembed(self.norm(resid)))
