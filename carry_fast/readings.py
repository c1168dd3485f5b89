"""Activations from a pass that calls hooks only where something is read.

They are those of the intact model, or of one with some parts ablated. Wherever nothing is read, the
pass runs without hooks, as in `prefixes`, and in C++ where possible. Most readings are taken late
in the model, so this is nearly all of the pass.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from carry_core.hooks import PassEnd, Point, TensorHook, no_hook
from carry_core.model import POINTS, Read, Transformer
from carry_fast.blocks import Zeroed
from carry_fast.compiled import parts_of

IN_ATTENTION = {"attn.q", "attn.k", "attn.v", "attn.scores", "attn.pattern"}
AFTER_ATTENTION = {"attn.z", "attn_out", "attn.skip"}
IN_MLP = {"mlp.pre", "mlp.post", "mlp_out", "mlp.skip"}
IN_TABLES = {"attn.pattern"} | set(POINTS[POINTS.index("resid_mid") :])  # without layer 0's z

NOTHING = Zeroed()  # nothing is ablated


class PlainReader:
    """Activations of a plain model, those of `model.activations_at` up to rounding.

    The weights must not change while it is used. Some of the tensors share memory.
    """

    def __init__(
        self,
        model: Transformer,
        names: Collection[str],
        read: Read = None,
        hook: TensorHook = no_hook,
        zeroed: Sequence[Zeroed] = (),
    ) -> None:
        """Prepare to read.

        Args:
            model: The model.
            names: Hook points, in our spelling.
            read: The positions that the last layer computes; all if None.
            hook: A hook that zeroes some parts, and changes nothing else.
            zeroed: These parts, layer by layer; empty if there are none.
        """
        order = model.config.hook_names
        self.model, self.names, self.hook = model, names, hook
        self.zeroed = zeroed or [NOTHING] * model.config.layers
        self.last = max(names, key=order.index)
        self.read = model.config.checked_read(read)
        self.first, self.blocks, _ = parts_of(model, self.read)

    @torch.no_grad()
    def __call__(self, tokens: Int[Tensor, "batch pos"]) -> dict[str, Tensor]:
        """Return the activations."""
        cache: dict[str, Tensor] = {}

        def keep(name: str, x: Tensor) -> Tensor:
            x = self.hook(name, x)
            if name in self.names:
                cache[Point(name, self.model.config.positions_at(name, self.read))] = x
            if name == self.last:
                raise PassEnd
            return x

        with suppress(PassEnd):
            self._pass(tokens, keep)
        return cache

    def _pass(self, tokens: Int[Tensor, "batch pos"], keep: TensorHook) -> None:
        """Run the model up to the last activation that is read."""
        resid = keep("embed", F.embedding(tokens, self.first.embedding))
        for l in range(self.model.config.layers):
            mid = self._attention(l, tokens, resid, keep)
            resid = self._mlp(l, mid, keep)
        keep("logits", self.model.unembed(self.model.norm(resid)))

    def _attention(
        self,
        l: int,
        tokens: Int[Tensor, "batch pos"],
        resid: Float[Tensor, "batch pos d_model"],
        keep: TensorHook,
    ) -> Float[Tensor, "batch query d_model"]:
        """Return `resid_mid` of a layer, from the stream that enters it."""
        plain, query, points = self.blocks[l], self.model.queries(l, self.read), self._points(l)
        zeroed = self.zeroed[l].of_attention
        keep(f"blocks.{l}.resid_pre", resid)
        if l == 0 and points <= IN_TABLES:
            if "attn.pattern" in points:
                pattern = self.first.pattern(tokens, query)  # (batch, query, head, key)
                keep("blocks.0.attn.pattern", pattern.transpose(1, 2))
            return keep("blocks.0.resid_mid", self.first.mids(tokens, query, [zeroed])[zeroed])
        is_read = not points.isdisjoint(IN_ATTENTION)
        z = plain.block.attention(resid, keep, query) if is_read else plain.z(resid)
        if points & AFTER_ATTENTION:
            return plain.block.mix(resid[:, query], z, keep)
        mid = plain.mids(resid[:, query], z, [zeroed])[zeroed]
        return keep(f"blocks.{l}.resid_mid", mid)

    def _mlp(
        self, l: int, mid: Float[Tensor, "batch query d_model"], keep: TensorHook
    ) -> Float[Tensor, "batch query d_model"]:
        """Return `resid_post` of a layer, from its `resid_mid`."""
        plain = self.blocks[l]
        if self._points(l) & IN_MLP:
            return plain.block.mlp(mid, keep)
        return keep(f"blocks.{l}.resid_post", plain.after(mid, self.zeroed[l]))

    def _points(self, l: int) -> set[str]:
        """Return the points of a layer that are read, except `resid_pre`."""
        prefix = f"blocks.{l}."
        points = {name.removeprefix(prefix) for name in self.names if name.startswith(prefix)}
        return points - {"resid_pre"}
