"""Layer 0's attention in a plain model, from tables over (token, position)."""

import math
from collections.abc import Collection

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from carry_core.model import Positions, Transformer
from carry_fast.blocks import Zeroed


class FirstLayer:
    """The attention of a trained model's layer 0, from tables over (token, position).

    The layer sees one of a dozen tokens at each position. So its attention scores, and the vectors
    that its heads can write for a key, fit into tables, from which a sum's attention is put
    together.

    Attributes:
        embedding: The scaled token embedding, `[token, d_model]`.
        value: Values by head and table row, `[head, row, d_head]`. Row `position * n_tokens +
            token` is that token at that position.
        score: Attention scores by query and key row, `[head, row, row]`, -inf where a decoder's key
            comes after its query. They are in float64 for `CompiledFirstLayer`.
        written: The vector that a head writes if it attends to one key alone,
            `[head, row, d_model]`.
    """

    def __init__(self, model: Transformer) -> None:
        config, block = model.config, model.blocks[0]
        n_tokens = len(model.embed.weight)
        self.n_heads = config.heads
        self.embedding = model.embed.weight * math.sqrt(config.d_model)

        length = config.layout.length
        position = torch.arange(length, device=model.embed.weight.device)
        self.first_row = position * n_tokens
        every_token = self.embedding.unsqueeze(1).expand(-1, length, -1)
        qkv = block.qkv(every_token)  # (token, pos, head, d_head) each
        q, k, self.value = (x.permute(2, 1, 0, 3).flatten(1, 2) for x in qkv)

        score = q.double() @ k.double().mT / math.sqrt(config.d_head)
        if config.causal:
            position_of_row = position.repeat_interleave(n_tokens)
            is_later = position_of_row > position_of_row[:, None]
            score = score.masked_fill(is_later, -torch.inf)
        # Where the model's own score would be infinite, this one is.
        of_model = score.to(self.embedding.dtype)
        self.score = score.where(of_model.isfinite(), of_model.double())

        o = block.o.weight.view(-1, config.heads, config.d_head)  # (d_model, head, d_head)
        self.written = self.value @ o.permute(1, 2, 0)
        self.bias = block.o.bias
        n_rows = length * n_tokens
        self.first_row_of_head = (
            torch.arange(config.heads, device=position.device)[:, None] * n_rows
        )

    def pattern(
        self, tokens: Int[Tensor, "batch pos"], query: Positions
    ) -> Float[Tensor, "batch query head key"]:
        """Return the attention probabilities at these query positions."""
        row = tokens + self.first_row
        query_row = row[:, query][:, :, None, None] + self.first_row_of_head
        entry = query_row * self.score.shape[-1] + row[:, None, None]
        score = self.score.view(-1).index_select(0, entry.view(-1)).view(entry.shape)
        return score.to(self.embedding.dtype).softmax(-1)

    def z(
        self, tokens: Int[Tensor, "batch pos"], query: Positions
    ) -> Float[Tensor, "batch query head d_head"]:
        """Return `attn.z`."""
        row = tokens + self.first_row
        pattern = self.pattern(tokens, query)
        heads = []
        for head in range(self.n_heads):
            heads.append(pattern[:, :, head] @ F.embedding(row, self.value[head]))
        return torch.stack(heads, 2)

    def mids(
        self,
        tokens: Int[Tensor, "batch pos"],
        query: Positions,
        conditions: Collection[Zeroed],
    ) -> dict[Zeroed, Float[Tensor, "batch query d_model"]]:
        """Return `resid_mid` under each condition, without the heads and the skip it zeroes."""
        row = (tokens + self.first_row).unsqueeze(1) + self.first_row_of_head  # (batch, head, key)
        written = F.embedding(row.flatten(1), self.written.flatten(0, 1))
        pattern = self.pattern(tokens, query)  # (batch, query, head, key)
        embedded = F.embedding(tokens[:, query], self.embedding)
        mids = {}
        for zeroed in conditions:
            stream = self.bias.expand_as(embedded) if zeroed.skip else embedded + self.bias
            weight = pattern
            if zeroed.heads:
                weight = pattern.clone()
                weight[:, :, [*zeroed.heads]] = 0
            mids[zeroed] = torch.baddbmm(stream, weight.flatten(2), written)
        return mids
