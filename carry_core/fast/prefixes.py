"""A model under many interventions at once: what they have in common is computed once, three times as fast.

That reads the model's weights. `passes` takes it where this gives what the model gives, else one
pass each.
"""

import math
from collections.abc import Callable, Hashable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from carry_core.fast.plain import is_plain
from carry_core.interventions import Combined, Intervention, MeanAblation, Source
from carry_core.model import (
    POINTS,
    Hook,
    Positions,
    Read,
    TensorHook,
    Transformer,
    no_hook,
)

# Logits `[batch, query, vocab]` under each of several interventions, from tokens `[batch, pos]`.
Passes = Callable[[Int[Tensor, "batch pos"]], list[Float[Tensor, "batch query vocab"]]]


def passes(
    model: Transformer,
    interventions: Sequence[Intervention | Combined],
    read: Read = None,
    watch: Hook | None = None,
    source: Source | None = None,
) -> Passes:
    """Return a function that gives the logits under each intervention; arguments as `predict`'s."""
    how = SharedPrefix if is_plain(model) else SeparatePasses
    return how(model, interventions, read, watch, source)


class SeparatePasses:
    """Logits under several interventions, one pass through the model each; arguments as `predict`'s."""

    def __init__(
        self,
        model: Transformer,
        interventions: Sequence[Intervention | Combined],
        read: Read = None,
        watch: Hook | None = None,
        source: Source | None = None,
    ) -> None:
        self.model, self.read, self.watch = model, read, watch
        self.hooks = [
            intervention.hook(
                model, source if isinstance(intervention, MeanAblation) else None, read
            )
            for intervention in interventions
        ]

    @torch.inference_mode()
    def __call__(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> list[Float[Tensor, "batch query vocab"]]:
        """Return the logits under each intervention."""
        if self.watch is not None:
            self.model(tokens, only_seen_by(self.watch), self.read)
        return [self.model(tokens, hook, self.read) for hook in self.hooks]


def only_seen_by(watch: Hook) -> TensorHook:
    """Return a hook that shows activations to `watch`, which can change none."""

    def hook(name: str, x: Tensor) -> Tensor:
        watch(name, x.clone())
        return x

    return hook


class FirstLayer:
    """A trained model's attention in layer 0, from tables over (token, position) of the query and of the key.

    The layer sees one of a dozen tokens at each position. So there are few terms that its softmaxes
    can be made of, and few vectors that its heads can write for a key: a sum's attention is put
    together from them, in a third of the time.
    """

    def __init__(self, model: Transformer) -> None:
        config, block = model.config, model.blocks[0]
        length, heads = config.layout.length, config.heads
        position = torch.arange(length, device=model.embed.weight.device)
        self.start = position * len(model.embed.weight)
        self.embedding = model.embed.weight * math.sqrt(config.d_model)
        # (token, pos, head, d_head)
        q, k, v = block.qkv(self.embedding.unsqueeze(1).expand(-1, length, -1))
        # (head, row, d_head)
        q, k, self.value = (x.permute(2, 1, 0, 3).flatten(1, 2) for x in (q, k, v))
        # in double precision, since the terms of a sum may all be far below the largest of all sums
        score = (q.double() @ k.double().mT / math.sqrt(config.d_head)).unflatten(2, (length, -1))
        if config.causal:
            query = position.repeat_interleave(len(model.embed.weight))
            score = score.masked_fill((position > query[:, None]).unsqueeze(-1), -torch.inf)
        # of a softmax: (head, row, row)
        self.term = (score - score.amax((2, 3), keepdim=True)).exp().flatten(2)
        # (head, d_head, d_model)
        o = block.o.weight.view(-1, heads, config.d_head).permute(1, 2, 0)
        # what a head writes for a key that it looks at alone, (head, row, d_model)
        self.written = self.value @ o
        # its first row
        self.head = torch.arange(heads, device=position.device)[:, None] * len(self.written[0])
        self.bias = block.o.bias

    def pattern(
        self, tokens: Int[Tensor, "batch pos"], query: Positions
    ) -> Float[Tensor, "batch query head key"]:
        """Attention probabilities of the queries at these positions."""
        row = tokens + self.start
        entry = (row[:, query][:, :, None, None] + self.head) * self.term.shape[-1] + row[
            :, None, None
        ]
        term = self.term.view(-1).index_select(0, entry.view(-1)).view(entry.shape)
        return torch.div(term, term.sum(-1, keepdim=True)).to(self.embedding.dtype)

    def z(
        self, tokens: Int[Tensor, "batch pos"], query: Positions
    ) -> Float[Tensor, "batch query head d_head"]:
        """`attn.z`."""
        row, pattern = tokens + self.start, self.pattern(tokens, query)
        return torch.stack(
            [pattern[:, :, h] @ F.embedding(row, value) for h, value in enumerate(self.value)], 2
        )

    def mid(
        self, tokens: Int[Tensor, "batch pos"], query: Positions
    ) -> Float[Tensor, "batch query d_model"]:
        """`resid_mid`."""
        row = (tokens + self.start).unsqueeze(1) + self.head  # (batch, head, key)
        # (batch, head and key, d_model)
        written = F.embedding(row.flatten(1), self.written.flatten(0, 1))
        resid = F.embedding(tokens[:, query], self.embedding) + self.bias
        return torch.baddbmm(resid, self.pattern(tokens, query).flatten(2), written)


class SharedPrefix:
    """Logits under several interventions of a model whose weights do not change meanwhile; arguments as `predict`'s."""

    def __init__(
        self,
        model: Transformer,
        interventions: Sequence[Intervention | Combined],
        read: Read = None,
        watch: Hook | None = None,
        source: Source | None = None,
    ) -> None:
        self.model, self.read, self.first = model, read, FirstLayer(model)
        self.hooks = [
            i.hook(model, source if isinstance(i, MeanAblation) else None, read)
            for i in interventions
        ]
        self.changes: list[dict[str, Hashable]] = [i.changes(model.config) for i in interventions]
        self.watch = no_hook if watch is None else only_seen_by(watch)
        # a member of its own, so that it sees the intact model whatever else is asked for
        if watch is not None:
            self.changes.append({})

    @torch.inference_mode()
    def __call__(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> list[Float[Tensor, "batch query vocab"]]:
        """The logits under each intervention."""
        logits: dict[int, Tensor] = {}
        self._follow(
            0, tokens, F.embedding(tokens, self.first.embedding), range(len(self.changes)), logits
        )
        return [logits[i] for i in range(len(self.hooks))]

    def _follow(
        self,
        l: int,
        tokens: Tensor,
        resid: Tensor,
        members: Sequence[int],
        logits: dict[int, Tensor],
    ) -> None:
        """From the stream that enters a layer to the logits of the members, which have done the same so far."""
        model, block, query = self.model, self.model.blocks[l], self.model.queries(l, self.read)
        points, last = [f"blocks.{l}.{point}" for point in POINTS], l == model.config.layers - 1
        at_z = POINTS.index("attn.z")
        for hook, changed, alike in self._split(members, ["embed", *points[:at_z]]):
            forks = self._split(alike, [*points[at_z:], "logits"])
            tables = l == 0 and not changed
            stream = resid if tables else hook(points[0], hook("embed", resid) if l == 0 else resid)
            if not tables:
                z = block.attention(stream, hook, query)
            elif any(changed for _, changed, _ in forks):
                z = self.first.z(tokens, query)
            for hook, changed, together in forks:
                if tables and not changed:
                    mid = hook(f"blocks.{l}.resid_mid", self.first.mid(tokens, query))
                else:
                    mid = block.mix(stream[:, query], z, hook)
                if last and together == [len(self.hooks)]:
                    continue  # nobody asks for the watcher's logits
                after = block.mlp(mid, hook)
                if last:
                    logits |= dict.fromkeys(
                        together, hook("logits", model.unembed(model.norm(after)))
                    )
                else:
                    self._follow(l + 1, tokens, after, together, logits)

    def _split(
        self, members: Sequence[int], names: Sequence[str]
    ) -> list[tuple[TensorHook, bool, list[int]]]:
        """The members by what they change among the names: a hook that does it, and whether that is anything at all."""
        groups: dict[tuple[Hashable, ...], list[int]] = {}
        for i in members:
            done = tuple((name, self.changes[i][name]) for name in names if name in self.changes[i])
            groups.setdefault(done, []).append(i)
        watched = len(self.hooks)
        return [
            (
                self.hooks[group[0]] if done else self.watch if watched in group else no_hook,
                bool(done),
                group,
            )
            for done, group in groups.items()
        ]
