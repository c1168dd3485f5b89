"""Forward passes that share what they have in common: one model under several edits, batch after batch.

The first layer sees one of 12 tokens at each position. So there are few terms that its softmaxes can be made of, and
few vectors that its heads can write for a key: both stand in tables, and a sum's attention is put together from them.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from carry_core.model import Site, Transformer, untouched
from carry_core.sums import VOCABULARY

Step = tuple[Hashable, Site]  # what is done in a layer, None for nothing, and the site function that does it
Edit = Mapping[int, Step]  # by layer; layers that the model has not are passed over
NOTHING: Step = (None, untouched)
WATCHED = -1  # among numbers of edits: the intact model's pass up to the stream that `last_mid` is shown


class Forks:
    """Logits of a model under each of several edits, that fork where they first differ.

    The model's weights must not change while this is used.

    Args:
        model: the run.
        edits: what each does in which layers. A layer's site function acts from that layer's `attn.z` on, up to the
            next one's `attn.pattern`, or to `logits`. Where two edits do equal things, one function is called for
            both, and edits that are equal throughout give the same tensor.
        read: positions that are read out, all if None; the last layer's attention serves only those queries.
        last_mid: called with the intact model's `resid_mid` of the last layer.
    """

    def __init__(
        self,
        model: Transformer,
        edits: Sequence[Edit],
        read: Sequence[int] | None = None,
        last_mid: Callable[[Tensor], object] | None = None,
    ) -> None:
        self.model, self.edits, self.read, self.last_mid = model, edits, read, last_mid
        self.first = FirstLayer(model)

    @torch.inference_mode()
    def __call__(self, tokens: Int[Tensor, "batch pos"]) -> list[Float[Tensor, "batch query vocab"]]:
        """The logits under each edit."""
        here = self.model.read_at(0, self.read)
        pattern = self.first.pattern(tokens, here)
        apart = self._apart(0, [*range(len(self.edits)), *([WATCHED] if self.last_mid else [])])
        found: dict[int, Tensor] = {}
        if any(name is not None for (name, _), _ in apart):
            stream, z = self.first.stream(tokens, here), self.first.gathered(tokens, pattern)
        for (name, site), members in apart:
            intact = name is None
            mid = self.first.mid(tokens, pattern, here) if intact else self.model.blocks[0].mix(stream, z, site)
            self._follow(0, mid, site, members, found)
        return [found[i] for i in range(len(self.edits))]

    def _follow(
        self,
        l: int,
        mid: Float[Tensor, "batch query d_model"],
        site: Site,
        members: list[int],
        found: dict[int, Tensor],
    ) -> None:
        """Go on from a layer's `resid_mid` with the edits that are the same so far; their logits come into `found`."""
        model = self.model
        if l == model.config.layers - 1:
            if WATCHED in members and self.last_mid:
                self.last_mid(mid)
            if members != [WATCHED]:
                resid = model.blocks[l].feed(mid, site)
                found |= dict.fromkeys(members, site("logits", model.unembed(model.norm(resid))))
            return
        resid = model.blocks[l].feed(mid, site)
        here, block = model.read_at(l + 1, self.read), model.blocks[l + 1]
        z = block.attend(*block.project(resid, here), site, here)
        resid = resid if here is None else resid[:, here]
        for (_, after), apart in self._apart(l + 1, members):
            self._follow(l + 1, block.mix(resid, z, after), after, apart, found)

    def _apart(self, l: int, members: Sequence[int]) -> list[tuple[Step, list[int]]]:
        """The members by what they do in a layer."""
        found: dict[Hashable, tuple[Step, list[int]]] = {}
        for i in members:
            step = NOTHING if i == WATCHED else self.edits[i].get(l, NOTHING)
            found.setdefault(step[0], (step, []))[1].append(i)
        return list(found.values())


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
