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
from jaxtyping import Complex, Float, Int
from torch import Tensor, nn

from carry_core.kernels import Linear, applied, softmax
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
        self.q, self.k, self.v, self.o = (Linear(d, d) for _ in range(4))
        self.up, self.down = Linear(d, config.d_ff), Linear(config.d_ff, d)
        self.register_buffer("turn", rotary(config.layout.length, config.d_head), persistent=False)

    def project(
        self, resid: Float[Tensor, "batch pos d_model"], read: list[int] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries at the positions `read` (all if None), keys and values; `[batch, pos, head, d_head]`, all turned."""
        x, heads = self.norm(resid), (self.config.heads, self.config.d_head)
        here = (x, self.turn) if read is None else (x[:, read], self.turn[read])
        weight, bias = (torch.cat(pair) for pair in zip(self.k.parameters(), self.v.parameters(), strict=True))
        both = rotate(applied(x, weight, bias).unflatten(-1, (2 * heads[0], heads[1])), self.turn)
        k, v = both.split(heads[0], dim=-2)  # values are turned too: the released code does
        return rotate(self.q(here[0]).unflatten(-1, heads), here[1]), k, v

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, read: list[int] | None
    ) -> Float[Tensor, "batch query head d_head"]:
        """What the heads gather for the queries, which stand at the positions `read` (all if None)."""
        heads = range(self.config.heads)  # one product for each: all at once, PyTorch would copy what it multiplies
        score = torch.stack([q[:, :, h] @ k[:, :, h].mT for h in heads], 1) / math.sqrt(self.config.d_head)
        if self.config.causal:
            key = torch.arange(k.shape[1], device=k.device)
            query = key if read is None else key[read]
            score = score.masked_fill(key > query[:, None], -torch.inf)
        pattern = site(f"{self.name}.attn.pattern", softmax(score))
        return torch.stack([pattern[:, h] @ v[:, :, h] for h in heads], 2)

    def finish(
        self, resid: Float[Tensor, "batch query d_model"], z: Float[Tensor, "batch query head d_head"], site: Site
    ) -> Float[Tensor, "batch query d_model"]:
        """The rest of the block, from the heads' outputs on; every `Ablation` acts in here."""
        return self.feed(self.mix(resid, z, site), site)

    def mix(
        self, resid: Float[Tensor, "batch query d_model"], z: Float[Tensor, "batch query head d_head"], site: Site
    ) -> Float[Tensor, "batch query d_model"]:
        """What the heads write, added to the stream: from `attn.z` to `resid_mid`."""
        z = site(f"{self.name}.attn.z", z)
        out = site(f"{self.name}.attn_out", self.o(z.flatten(-2)))
        return site(f"{self.name}.resid_mid", site(f"{self.name}.attn.skip", resid) + out)

    def feed(self, mid: Float[Tensor, "batch query d_model"], site: Site) -> Float[Tensor, "batch query d_model"]:
        """The MLP and its skip connection: from `resid_mid` to `resid_post`."""
        hidden = site(f"{self.name}.mlp.post", F.relu(self.up(self.norm(mid))))
        return site(f"{self.name}.resid_post", mid + site(f"{self.name}.mlp_out", self.down(hidden)))


class Blocks(nn.ModuleList):
    """A list whose items are known to be blocks."""

    def __getitem__(self, l: int) -> Block:  # type: ignore[override]
        block = super().__getitem__(l)
        assert isinstance(block, Block)
        return block


class Transformer(nn.Module):
    """An encoder, or a causal decoder, from tokens to logits. No dropout: that is a site function too."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(VOCABULARY, config.d_model)
        self.blocks = Blocks(Block(config, f"blocks.{l}") for l in range(config.layers))
        self.norm = nn.LayerNorm(config.d_model)
        self.unembed = Linear(config.d_model, VOCABULARY)

    def forward(
        self, tokens: Int[Tensor, "batch pos"], site: Site = untouched, read: Sequence[int] | None = None
    ) -> Float[Tensor, "batch query vocab"]:
        """Logits at the positions `read` (all if None); the last block's attention serves only those queries."""
        resid = site("embed", self.embed(tokens) * math.sqrt(self.config.d_model))
        for l in range(self.config.layers):
            resid = self._block(l, resid, site, read)
        return site("logits", self.unembed(self.norm(resid)))

    def _block(self, l: int, resid: Tensor, site: Site, read: Sequence[int] | None) -> Tensor:
        here = self.read_at(l, read)
        z = self.blocks[l].attend(*self.blocks[l].project(resid, here), site, here)
        return self.blocks[l].finish(resid if here is None else resid[:, here], z, site)

    def read_at(self, l: int, read: Sequence[int] | None) -> list[int] | None:
        """The queries that layer `l` has to serve: all (None), or in the last layer those that are read out."""
        return list(read) if read is not None and l == self.config.layers - 1 else None
