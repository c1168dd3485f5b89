"""The forward pass for training: many runs on a leading axis, with exact shortcuts for this task.

It computes what `model.Transformer` computes (App. A), from parameters of the same names, of shape
`[run, …]`. It is cheaper:

- Only positions that enter the loss are read, so the last block computes queries, output projection
  and MLP at no others.
- Layer 0 sees a position's token and nothing else. So its queries, keys and (values x output
  projection) are computed once for each of the few (token, position) pairs, and then looked up.
- A LayerNorm's scale and shift are folded into the small matrix after it, instead of being applied
  to the large activations.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.random import SFC64, Generator, SeedSequence
from torch import Tensor

from carry_core.model import ModelConfig, rotary, rotate
from carry_core.sums import EQUALS, PLUS, digit_tokens
from carry_fast import layers
from carry_train.groups import DROPOUT

Parameters = Mapping[str, Tensor]
Draw = Callable[[tuple[int, ...], torch.dtype], Tensor]  # draws a dropout mask of that shape
DRAWN_FROM = 2**16  # random numbers are from 0 to one below this


def threshold_of(rate: float) -> int:
    """Return the number below which random numbers drop an entry: a dropout rate, rounded."""
    return round(DRAWN_FROM * rate)


def scale_of(threshold: int) -> float:
    """Return the scale of an activation that is not dropped."""
    return DRAWN_FROM / (DRAWN_FROM - threshold)


THRESHOLD = threshold_of(DROPOUT)  # that of the paper's rate
DRAWS_PER_WORD = 4  # from 64 random bits


class Masks:
    """Dropout masks of runs, each independent of the device and of the runs trained along with it.

    On a CPU, random numbers are the largest cost apart from matrix products. So each run has its
    own fast stream (SFC64), of which sixteen bits decide on an entry.
    """

    def __init__(
        self, seeds: Sequence[SeedSequence], device: torch.device, threshold: int = THRESHOLD
    ) -> None:
        self.streams = [Generator(SFC64(seed)) for seed in seeds]
        self.device = device
        self.threshold = threshold

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return zeros and ones of shape `[run, …]`, not yet scaled."""
        count = math.prod(shape[1:])
        mask = np.empty((shape[0], count), dtype=bool)
        n_words = math.ceil(count / DRAWS_PER_WORD)
        for run, stream in enumerate(self.streams):
            words = stream.integers(2**64, size=n_words, dtype=np.uint64)
            numbers = words.view(np.uint16)[:count]
            np.greater_equal(numbers, self.threshold, out=mask[run])
        # The conversion from bool takes seven times as long as that from bytes.
        bits = torch.from_numpy(mask.view(np.uint8)).view(shape)
        return bits.to(self.device).to(dtype)

    def state(self, run: int) -> dict[str, Any]:
        """Return the state of the run's stream, ready for JSON."""
        words = self.streams[run].bit_generator.state["state"]["state"]
        return {"state": [int(word) for word in words]}

    def set_state(self, run: int, state: dict[str, Any]) -> None:
        """Set the run's stream to what `state` returned."""
        generator = self.streams[run].bit_generator
        generator.state = {
            **generator.state,
            "state": {"state": np.array(state["state"], dtype=np.uint64)},
        }


def linear(
    x: Float[Tensor, "run *batch d_in"], weight: Tensor, bias: Tensor
) -> Float[Tensor, "run *batch d_out"]:
    """Return `x @ weight.T + bias`.

    The weight is `[run, d_out, d_in]`, or `[run, pos, d_out, d_in]` if positions have weights of
    their own.
    """
    flat = x.flatten(0, weight.ndim - 3).flatten(1, -2)
    return layers.linear(flat, weight.flatten(0, -3), bias.flatten(0, -2)).view(*x.shape[:-1], -1)


class Tables(NamedTuple):
    """Tables of what layer 0 computes for each (token, position) pair.

    Attributes:
        stream: The stream that enters the layer.
        score: The attention scores of each pair as a query with each pair as a key.
        values: The heads' values.
    """

    stream: Float[Tensor, "run row d_model"]
    score: Float[Tensor, "run head row row"]
    values: Float[Tensor, "run row head d_head"]


class Stack:
    """Forward pass of several models of one shape, each on its own batch.

    Activations are `[run, pos, batch, …]`. A row is a (token, position) pair that can occur:
    there are 64 of them for three digits, position after position.

    Attributes:
        token: The token of each row, `[row]`.
        first: The first row of each position, `[pos]`.
        turn: The rotary embedding of each position.
        turn_of_row: The rotary embedding of each row.
        queries: For each layer, the positions whose queries it needs.
        future: True where a decoder's query may not look, `[query, key]`.
        threshold: The number below which random numbers drop an entry.
        scale: The scale of an activation that is not dropped.
    """

    def __init__(
        self,
        config: ModelConfig,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        threshold: int = THRESHOLD,
    ) -> None:
        self.config = config
        self.dtype = dtype
        self.threshold = threshold
        self.scale = scale_of(threshold)
        layout = config.layout
        constants = {"+": [PLUS], "=": [EQUALS]}
        tokens = [torch.tensor(constants.get(mark, range(10))) for mark in layout.tick_labels()]
        count = torch.tensor([len(options) for options in tokens])  # (pos,)
        self.token = torch.cat(tokens).to(device)
        self.first = (count.cumsum(0) - count).to(device)
        self.turn = rotary(layout.length, config.d_head).to(device)
        self.turn_of_row = self.turn.repeat_interleave(count.to(device), 0)
        read = slice(layout.loss_positions[0], None)
        self.queries = [slice(None)] * (config.layers - 1) + [read]
        everywhere = torch.ones(layout.length, layout.length, dtype=torch.bool, device=device)
        self.future = everywhere.triu(1)

    def rows(
        self, a: Int[Tensor, "run batch"], b: Int[Tensor, "run batch"]
    ) -> Int[Tensor, "run pos batch"]:
        """Return the row of each position of the sums' input."""
        width = self.config.width
        plus = a.new_zeros(*a.shape, 1)
        tail = digit_tokens(a + b, width) if self.config.causal else a.new_zeros(*a.shape, width)
        offset = torch.cat([digit_tokens(a, width), plus, digit_tokens(b, width), tail], -1)
        return (self.first + offset).transpose(-1, -2)

    def logits(
        self, p: Parameters, rows: Tensor, draw: Draw | None = None
    ) -> Float[Tensor, "run read batch vocab"]:
        """Return the logits at the read positions, with dropout by the masks that `draw` returns.

        There is no dropout if `draw` is None.
        """
        _, after_mlp = self.streams(p, rows, draw)
        return self.unembed(p, after_mlp)

    def streams(
        self, p: Parameters, rows: Tensor, draw: Draw | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the last block's stream before and after its MLP, at the read positions."""
        resid, out = self.first_attention(p, rows, draw)
        for l in range(self.config.layers):
            if l:
                resid, out = self.attention(p, l, resid, draw)
            mid = resid + self.dropped(out.to(resid.dtype), draw)
            up = self.folded(p, f"blocks.{l}.norm", f"blocks.{l}.up")
            hidden = linear(self.normed(mid), *up).relu()  # (run, pos, batch, d_ff)
            down = self.scaled(p[f"blocks.{l}.down.weight"], p[f"blocks.{l}.down.bias"], draw)
            out = linear(self.dropped(hidden, draw), *down)
            resid = mid + self.dropped(out.to(mid.dtype), draw)
        return mid, resid

    def unembed(self, p: Parameters, resid: Tensor) -> Float[Tensor, "run read batch vocab"]:
        """Return the logits of a stream: the final one, or that before the final MLP."""
        return linear(self.normed(resid), *self.folded(p, "norm", "unembed"))

    def first_attention(
        self, p: Parameters, rows: Tensor, draw: Draw | None
    ) -> tuple[Tensor, Tensor]:
        """Return layer 0's input and attention output at the positions that it needs, looked up."""
        heads = self.config.heads
        queries = self.queries[0]
        stream, score, v = self.tables(p)
        o = p["blocks.0.o.weight"].unflatten(-1, (heads, -1))
        vo = torch.einsum("rjhd,rohd->rohj", v, o).flatten(-2)  # (run, d_model, head * row)
        pattern = self.looked_up(score, rows, queries, draw)

        # A row of weights over all (head, row), for each query, turns the sum over keys into one
        # large product.
        query_rows = rows[:, queries]  # (run, query, batch)
        pattern = pattern.to(self.dtype).permute(0, 3, 4, 1, 2)  # (run, query, batch, head, key)
        spread = pattern.new_zeros(*query_rows.shape, heads, score.shape[-1])
        column = rows.transpose(1, 2)[:, None, :, None].expand(pattern.shape)
        spread.scatter_(-1, column, pattern)
        out = linear(spread.flatten(-2), *self.scaled(vo, p["blocks.0.o.bias"], draw))

        first_of_run = torch.arange(len(stream), device=stream.device) * stream.shape[1]
        entry = (query_rows + first_of_run[:, None, None]).flatten()
        resid = stream.flatten(0, 1).index_select(0, entry)
        return resid.view(*query_rows.shape, self.config.d_model), out

    def first_pattern(self, p: Parameters, rows: Tensor) -> Float[Tensor, "run head query key"]:
        """Return layer 0's attention probabilities, averaged over the batch (Fig. 2)."""
        _, score, _ = self.tables(p)
        pattern = self.looked_up(score, rows, slice(None), None)  # (run, head, key, query, batch)
        return pattern.mean(-1).mT

    def tables(self, p: Parameters) -> Tables:
        """Return the tables of what layer 0 computes for each row."""
        stream = p["embed.weight"][:, self.token] * math.sqrt(self.config.d_model)
        scale = p["blocks.0.norm.weight"].unsqueeze(1)
        shift = p["blocks.0.norm.bias"].unsqueeze(1)
        weight = torch.cat([p[f"blocks.0.{x}.weight"] for x in "qkv"], 1)
        bias = torch.cat([p[f"blocks.0.{x}.bias"] for x in "qkv"], 1)
        flat = linear(layers.normed(stream) * scale + shift, weight, bias)
        by_head = flat.unflatten(-1, (-1, self.config.d_head))
        q, k, v = rotate(by_head, self.turn_of_row).chunk(3, -2)  # (run, row, head, d_head)
        score = torch.einsum("rihd,rjhd->rhij", q, k) / math.sqrt(self.config.d_head)
        return Tables(stream, score, v)

    def looked_up(
        self, score: Tensor, rows: Tensor, queries: slice, draw: Draw | None
    ) -> Float[Tensor, "run head key query batch"]:
        """Return the attention probabilities of a batch, from the table of scores."""
        # The cell of a query's row and a key's row in the flat table, (run, key, query, batch).
        cell = rows[:, queries].unsqueeze(1) * score.shape[-1] + rows.unsqueeze(2)
        cell = cell.unsqueeze(1).expand(-1, self.config.heads, -1, -1, -1)
        scores = score.flatten(2).gather(2, cell.flatten(2)).view(cell.shape)
        return self.probabilities(scores, self.future[queries].T.unsqueeze(-1), draw, 2)

    def attention(
        self, p: Parameters, l: int, resid: Tensor, draw: Draw | None
    ) -> tuple[Tensor, Tensor]:
        """Return a later layer's input and attention output at the positions that it needs."""
        norm = f"blocks.{l}.norm"
        queries = self.queries[l]
        everywhere = self.normed(resid)
        q = linear(
            everywhere[:, queries], *self.folded(p, norm, f"blocks.{l}.q", turn=self.turn[queries])
        )
        k = linear(everywhere, *self.folded(p, norm, f"blocks.{l}.k", turn=self.turn))
        v = linear(everywhere, *self.folded(p, norm, f"blocks.{l}.v", turn=self.turn))
        # These are views, not copies: one small matrix for each example and head,
        # (run, batch * head, pos, d_head).
        q, k, v = (x.view(*x.shape[:2], -1, self.config.d_head).transpose(1, 2) for x in (q, k, v))
        score = q @ k.mT
        if self.dtype == torch.bfloat16:
            score = score.float()
        score = score / math.sqrt(self.config.d_head)
        score = score.permute(0, 3, 1, 2).contiguous()  # (run, key, batch * head, query)
        pattern = self.probabilities(score, self.future[queries].T.unsqueeze(1), draw, 1)
        pattern = pattern.to(self.dtype).permute(0, 2, 3, 1)
        z = (pattern @ v).transpose(1, 2).unflatten(2, (-1, self.config.heads)).flatten(-2)
        out = linear(z, *self.scaled(p[f"blocks.{l}.o.weight"], p[f"blocks.{l}.o.bias"], draw))
        return resid[:, queries], out

    def probabilities(self, score: Tensor, future: Tensor, draw: Draw | None, keys: int) -> Tensor:
        """Return the softmax over the axis `keys`, after dropout.

        On a CPU a softmax over any other axis takes a tenth of the time of one over the last.
        """
        score = score.masked_fill(future, -torch.inf) if self.config.causal else score
        return self.dropped(score.softmax(keys), draw)

    def dropped(self, x: Tensor, draw: Draw | None) -> Tensor:
        """Return x after dropout, whose scale is in the weights before or after it (`scaled`)."""
        return x if draw is None else x * draw(tuple(x.shape), x.dtype)

    def scaled(self, weight: Tensor, bias: Tensor, draw: Draw | None) -> tuple[Tensor, Tensor]:
        """Return a linear map between two dropouts, with the scales of both in it."""
        if draw is not None:
            weight, bias = weight * self.scale**2, bias * self.scale
        return weight.to(self.dtype), bias.to(self.dtype)

    def normed(self, x: Tensor) -> Tensor:
        """Return x after a LayerNorm whose scale and shift are in the next weights (`folded`)."""
        return layers.normed(x).to(self.dtype)

    def folded(
        self, p: Parameters, norm: str, *names: str, turn: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return weights and biases of linear maps behind a norm, with its scale and shift in them.

        Several maps are put one under the other. With `turn`, each position's rotary embedding
        is folded in too: weights are `[run, pos, d_out, d_in]`.
        """
        weight = torch.cat([p[f"{name}.weight"] for name in names], 1)
        bias = torch.cat([p[f"{name}.bias"] for name in names], 1)
        bias = bias + (weight @ p[f"{norm}.bias"].unsqueeze(-1)).squeeze(-1)
        weight = weight * p[f"{norm}.weight"].unsqueeze(1)
        if turn is not None:
            both = torch.cat([weight.mT, bias.unsqueeze(1)], 1)  # (run, d_in + 1, d_out)
            rows = both.view(len(both), 1, -1, self.config.d_head)
            both = rotate(rows, turn).view(len(both), len(turn), *both.shape[1:])
            weight = both[:, :, :-1].mT
            bias = both[:, :, -1]
        return weight.to(self.dtype), bias.to(self.dtype)
