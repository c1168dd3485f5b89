"""A plain model's blocks under zero ablations, from their weights and without hooks.

What is shared between ablations is computed once: the attention, what each head writes, and the
stream before the MLP. The stream equals that of `model.py` up to rounding. Only plain models in
float32 or float64 have blocks that can be read like this (`plain.is_plain`, `plain.is_precise`).
"""

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from carry_core.model import Block, rotate


class Zeroed(NamedTuple):
    """The parts of one layer that a zero ablation removes, at all positions.

    Attributes:
        heads: The heads that write nothing. The output projection's bias stays.
        skip: True if nothing skips the attention.
        mlp: True if the MLP adds nothing.
        neurons: The neurons of the MLP that are silent.
    """

    heads: frozenset[int] = frozenset()
    skip: bool = False
    mlp: bool = False
    neurons: frozenset[int] = frozenset()

    @property
    def of_attention(self) -> "Zeroed":
        """The same without the MLP: what decides the stream between attention and MLP."""
        return self._replace(mlp=False, neurons=frozenset())


class Turned(NamedTuple):
    """A projection to queries, keys or values, with the rotation of each position in it."""

    weight: Float[Tensor, "pos d_model d_out"]
    bias: Float[Tensor, "pos 1 d_out"]


class PlainBlock:
    """A block of a plain model at some query positions, computed from its weights in PyTorch.

    Attributes:
        block: The block itself, for what has to call its hooks.
        query: The positions of the queries.
        q: The projection to queries over sqrt(d_head), at these positions.
        kv: The projection to keys, then values, at all positions.
        o: The output projection by head, `[head, d_head, d_model]`.
        is_future: True for the keys that a decoder's query does not see, `[query, key]`; None in
            an encoder.
    """

    def __init__(self, block: Block, query: Sequence[int]) -> None:
        config = block.config
        self.block, self.query = block, [*query]
        length = config.layout.length
        self.q = self._turned(block.q, self.query, 1 / math.sqrt(config.d_head))
        k, v = (self._turned(projection, range(length)) for projection in (block.k, block.v))
        self.kv = Turned(torch.cat([k.weight, v.weight], -1), torch.cat([k.bias, v.bias], -1))
        by_head = block.o.weight.unflatten(-1, (config.heads, config.d_head))
        self.o = by_head.permute(1, 2, 0).contiguous()
        self.is_future: Tensor | None = None
        if config.causal:
            position = torch.arange(length, device=block.rotation.device)
            self.is_future = position > position[self.query, None]

    def _turned(
        self, projection: nn.Linear, positions: Sequence[int], scale: float = 1.0
    ) -> Turned:
        """Return a projection with the rotations of these positions in it."""
        config = self.block.config
        rows = torch.cat([projection.weight.mT, projection.bias.unsqueeze(0)]) * scale
        by_head = rows.view(len(rows), 1, config.heads, config.d_head)
        rotation = self.block.rotation[list(positions)]
        turned = rotate(by_head.expand(-1, len(positions), -1, -1), rotation)
        by_position = turned.flatten(-2).transpose(0, 1).contiguous()  # (pos, d_model + 1, d_out)
        return Turned(by_position[:, :-1], by_position[:, -1:])

    def z(
        self, resid: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch query head d_head"]:
        """Return `attn.z`, from the stream that enters the block."""
        config = self.block.config
        by_head = config.heads, config.d_head
        x = self.block.norm(resid).transpose(0, 1)  # (pos, batch, d_model)
        q = torch.baddbmm(self.q.bias, x[self.query], self.q.weight).unflatten(-1, by_head)
        kv = torch.baddbmm(self.kv.bias, x, self.kv.weight).unflatten(-1, (2, *by_head))
        k, v = kv.unbind(2)
        heads = []
        for head in range(config.heads):
            q_of_head, k_of_head, v_of_head = (x[:, :, head].transpose(0, 1) for x in (q, k, v))
            scores = q_of_head @ k_of_head.mT  # (batch, query, key)
            if self.is_future is not None:
                scores = scores.masked_fill(self.is_future, -torch.inf)
            heads.append(scores.softmax(-1) @ v_of_head)
        return torch.stack(heads, 2)

    def mids(
        self,
        resid: Float[Tensor, "batch query d_model"],
        z: Float[Tensor, "batch query head d_head"],
        conditions: Collection[Zeroed],
    ) -> dict[Zeroed, Float[Tensor, "batch query d_model"]]:
        """Return `resid_mid` under each condition, without the heads and the skip it zeroes."""
        mids: dict[Zeroed, Tensor] = {}
        if not conditions:
            return mids
        # What each head writes, without the output projection's bias: (head, batch * query, ...)
        written = torch.bmm(z.flatten(0, 1).transpose(0, 1), self.o)
        bias = self.block.o.bias
        for zeroed in conditions:
            mid = bias.expand_as(resid) if zeroed.skip else resid + bias
            for head, of_head in enumerate(written):
                if head not in zeroed.heads:
                    mid = mid + of_head.view_as(resid)
            mids[zeroed] = mid
        return mids

    def after(
        self, mid: Float[Tensor, "batch query d_model"], zeroed: Zeroed
    ) -> Float[Tensor, "batch query d_model"]:
        """Return `resid_post`, from `resid_mid`, without the MLP or the neurons that are zeroed."""
        if zeroed.mlp:
            return mid
        post = self.block.up(self.block.norm(mid)).relu_()
        if zeroed.neurons:
            post[..., [*zeroed.neurons]] = 0
        out: Tensor = self.block.down(post)
        return out.add_(mid)
