"""A model under many interventions at once: what they have in common is computed once, three times as fast."""

from collections.abc import Hashable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carry_core.interventions import Combined, Intervention, Source
from carry_core.model import POINTS, Hook, Transformer, no_hook
from carry_core.training.layers import FirstLayer


class SharedPrefix:
    """Logits of a model under several interventions; what they have in common, from the embedding on, is computed once.

    The model's weights must not change while this is used. Arguments as `predict` takes them.
    """

    def __init__(
        self,
        model: Transformer,
        interventions: Sequence[Intervention | Combined],
        read: Sequence[int] | None = None,
        watch: Hook | None = None,
        source: Source | None = None,
    ) -> None:
        self.model, self.read, self.first = model, read, FirstLayer(model)
        self.hooks = [i.hook(model, source, read) for i in interventions]
        self.changes: list[dict[str, Hashable]] = [i.changes(model.config) for i in interventions]
        self.watch = watch or no_hook
        if watch is not None:  # a member of its own, so that it sees the intact model whatever else is asked for
            self.changes.append({})

    @torch.inference_mode()
    def __call__(self, tokens: Int[Tensor, "batch pos"]) -> list[Float[Tensor, "batch query vocab"]]:
        """The logits under each intervention."""
        logits: dict[int, Tensor] = {}
        self._follow(0, tokens, self.first.resid(tokens), range(len(self.changes)), logits)
        return [logits[i] for i in range(len(self.hooks))]

    def _follow(self, l: int, tokens: Tensor, resid: Tensor, members: Sequence[int], logits: dict[int, Tensor]) -> None:
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
                after = block.mlp(mid, hook)
                if last:
                    logits |= dict.fromkeys(together, hook("logits", model.unembed(model.norm(after))))
                else:
                    self._follow(l + 1, tokens, after, together, logits)

    def _split(self, members: Sequence[int], names: Sequence[str]) -> list[tuple[Hook, bool, list[int]]]:
        """The members by what they change among the names: a hook that does it, and whether that is anything at all."""
        groups: dict[tuple[Hashable, ...], list[int]] = {}
        for i in members:
            done = tuple((name, self.changes[i][name]) for name in names if name in self.changes[i])
            groups.setdefault(done, []).append(i)
        watched = len(self.hooks)
        return [
            (self.hooks[group[0]] if done else self.watch if watched in group else no_hook, bool(done), group)
            for done, group in groups.items()
        ]
