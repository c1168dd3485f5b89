"""Forward passes that share their beginning: one model under several edits, batch after batch.

The first layer sees one of 12 tokens at each position. So there are few terms that its softmaxes can be made of, and
few vectors that its heads can write for a key: both stand in tables, and a sum's attention is put together from them.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from carry_core.model import Site, Transformer, untouched
from carry_core.sums import VOCABULARY


class Forks:
    """Logits of a model under each of several edits, computing what the edits share only once.

    The model's weights must not change while this is used.

    Args:
        model: the run.
        edits: pairs of a layer and a site function that changes nothing before that layer's `attn.z`.
            A layer equal to `config.layers` means the intact model.
        read: positions that are read out, all if None; the last layer's attention serves only those queries.
        last_mid: called with the intact model's `resid_mid` of the last layer.
    """

    def __init__(
        self,
        model: Transformer,
        edits: Sequence[tuple[int, Site]],
        read: Sequence[int] | None = None,
        last_mid: Callable[[Tensor], object] = lambda mid: None,
    ) -> None:
        self.model, self.edits, self.read, self.last_mid = model, edits, read, last_mid
        self.first = FirstLayer(model)

    @torch.inference_mode()
    def __call__(self, tokens: Int[Tensor, "batch pos"]) -> list[Float[Tensor, "batch query vocab"]]:
        """The logits under each edit."""
        model, logits = self.model, [torch.empty(0)] * len(self.edits)
        here = model.read_at(0, self.read)
        pattern = self.first.pattern(tokens, here)
        mid = self.first.mid(tokens, pattern, here)
        for l in range(model.config.layers):
            edits = [(i, site) for i, (first, site) in enumerate(self.edits) if first == l]
            if l == 0 and edits:
                resid, z = self.first.stream(tokens, here), self.first.gathered(tokens, pattern)
            elif l > 0:
                resid, here = model.blocks[l - 1].feed(mid, untouched), model.read_at(l, self.read)
                z = model.blocks[l].attend(*model.blocks[l].project(resid, here), untouched, here)
                resid = resid if here is None else resid[:, here]
                mid = model.blocks[l].mix(resid, z, untouched)
            for i, site in edits:
                logits[i] = model.resume(l, resid, z, site, self.read)
        self.last_mid(mid)
        for i, (first, site) in enumerate(self.edits):
            if first == model.config.layers:
                logits[i] = site("logits", model.unembed(model.norm(model.blocks[first - 1].feed(mid, untouched))))
        return logits


class FirstLayer:
    """Layer 0's attention, from tables over (token, position) of the query and of the key.

    Attributes:
        term: `[head, query row, key row]`, the exponentials that a softmax adds up; a row is a (position, token).
            In double precision, since the terms of a sum may all be far below the largest of all sums.
        written: `[head, key row, d_model]`, what a head writes for a key that it looks at alone.
    """

    def __init__(self, model: Transformer) -> None:
        config, self.block = model.config, model.blocks[0]
        length, heads = config.layout.length, config.heads
        position = torch.arange(length, device=model.embed.weight.device)
        self.start = position * VOCABULARY
        self.embedding = model.embed.weight * math.sqrt(config.d_model)
        q, k, v = self.block.project(self.embedding.unsqueeze(1).expand(-1, length, -1))  # (token, pos, head, d_head)
        q, k, self.value = (x.permute(2, 1, 0, 3).flatten(1, 2) for x in (q, k, v))  # (head, row, d_head)
        score = (q.double() @ k.double().mT / math.sqrt(config.d_head)).unflatten(2, (length, -1))
        if config.causal:
            query = position.repeat_interleave(VOCABULARY)
            score = score.masked_fill((position > query[:, None]).unsqueeze(-1), -torch.inf)
        self.term = (score - score.amax((2, 3), keepdim=True)).exp().flatten(2)
        self.written = self.value @ self.block.o.weight.view(-1, heads, config.d_head).permute(1, 2, 0)
        self.started = self.embedding + self.block.o.bias

    def pattern(self, tokens: Tensor, here: list[int] | None) -> Float[Tensor, "batch query head key"]:
        """Attention probabilities of the queries at `here` (all if None)."""
        row, rows = tokens + self.start, self.term.shape[-1]
        query = row if here is None else row[:, here]
        head = torch.arange(len(self.term), device=row.device)[:, None] * rows
        entry = (query[:, :, None, None] + head) * rows + row[:, None, None]
        term = self.term.view(-1).index_select(0, entry.view(-1)).view(entry.shape)
        probability: Tensor = term / term.sum(-1, keepdim=True)
        return probability.to(self.embedding.dtype)

    def stream(self, tokens: Tensor, here: list[int] | None) -> Float[Tensor, "batch query d_model"]:
        """The stream that the layer starts from."""
        return F.embedding(tokens if here is None else tokens[:, here], self.embedding)

    def gathered(self, tokens: Tensor, pattern: Tensor) -> Float[Tensor, "batch query head d_head"]:
        """`attn.z`."""
        row = tokens + self.start
        return torch.stack([pattern[:, :, h] @ F.embedding(row, value) for h, value in enumerate(self.value)], 2)

    def mid(self, tokens: Tensor, pattern: Tensor, here: list[int] | None) -> Float[Tensor, "batch query d_model"]:
        """`resid_mid`."""
        row = (tokens + self.start).unsqueeze(1)
        head = torch.arange(len(self.written), device=row.device)[:, None] * self.written.shape[1]
        written = F.embedding((row + head).flatten(1), self.written.flatten(0, 1))  # (batch, head and key, d_model)
        started = F.embedding(tokens if here is None else tokens[:, here], self.started)
        return torch.baddbmm(started, pattern.flatten(2), written)
