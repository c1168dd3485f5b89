"""The training forward: many runs at once on a leading axis, with exact shortcuts for this task.

It computes what `model.Transformer` computes (App. A), from parameters of the same names, `[run,
…]`. It is cheaper:

- only positions that enter the loss are read: the last block needs queries, output projection and
  MLP there only;
- layer 0 sees a position's token and nothing else, so its queries, keys and (values x output
  projection) are computed
  once for each of the few (token, position) pairs, then looked up;
- a LayerNorm's scale and shift go into the small matrix behind it, not over the large activations.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.random import SFC64, Generator, SeedSequence
from torch import Tensor

from carry_core.fast import layers
from carry_core.model import ModelConfig, rotary, rotate
from carry_core.sums import EQUALS, PLUS, digit_tokens

Parameters = Mapping[str, Tensor]
Draw = Callable[[tuple[int, ...], torch.dtype], Tensor]  # of dropout masks
THRESHOLD = 6554  # of 2**16: the nearest to the paper's rate of 0.1
SCALE = 65536 / (65536 - THRESHOLD)  # of what is kept


class Masks:
    """Dropout masks that belong to a run: the same ones whichever runs are trained beside it, and on any device.

    On a CPU random numbers are the largest cost outside the matrix products, so each run has a fast
    stream of its own (SFC64), and sixteen of its bits make a draw.
    """

    def __init__(self, seeds: Sequence[SeedSequence], device: torch.device) -> None:
        self.streams = [Generator(SFC64(seed)) for seed in seeds]
        self.device = device

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Zeros and ones of shape `[run, …]`, not yet scaled."""
        count = math.prod(shape[1:])
        kept = np.empty((shape[0], count), dtype=bool)
        for run, stream in enumerate(self.streams):
            bits = stream.integers(2**64, size=-(-count // 4), dtype=np.uint64).view(np.uint16)
            np.greater_equal(bits[:count], THRESHOLD, out=kept[run])
        # from bool the conversion takes seven times as long
        ones = torch.from_numpy(kept.view(np.uint8)).view(shape)
        return ones.to(self.device).to(dtype)

    def state(self, run: int) -> dict[str, Any]:
        """Where the run's stream stands, ready for JSON."""
        return {
            "state": [int(word) for word in self.streams[run].bit_generator.state["state"]["state"]]
        }

    def set_state(self, run: int, state: dict[str, Any]) -> None:
        generator = self.streams[run].bit_generator
        generator.state = {
            **generator.state,
            "state": {"state": np.array(state["state"], dtype=np.uint64)},
        }


def linear(
    x: Float[Tensor, "run *batch d_in"], weight: Tensor, bias: Tensor
) -> Float[Tensor, "run *batch d_out"]:
    """`x @ weight.T + bias`, the weight `[run, d_out, d_in]` for each run, or `[run, pos, …]` for each position too."""
    flat = x.flatten(0, weight.ndim - 3).flatten(1, -2)
    return layers.linear(flat, weight.flatten(0, -3), bias.flatten(0, -2)).view(*x.shape[:-1], -1)


class Stack:
    """Forward pass of several models of one shape, each on its own batch. Activations are `[run, pos, batch, …]`."""

    def __init__(
        self, config: ModelConfig, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> None:
        self.config, self.dtype = config, dtype
        # rows of the tables: the (token, position) pairs that can occur, position after position;
        # 64 for three digits
        constants = {"+": [PLUS], "=": [EQUALS]}
        tokens = [
            torch.tensor(constants.get(mark, range(10))) for mark in config.layout.tick_labels()
        ]
        count = torch.tensor([len(options) for options in tokens])
        self.token = torch.cat(tokens).to(device)  # (row,)
        self.first = (count.cumsum(0) - count).to(device)  # row of each position, (pos,)
        self.turn = rotary(config.layout.length, config.d_head).to(device)
        self.turn_of_row = self.turn.repeat_interleave(count.to(device), 0)
        read = slice(config.layout.loss_positions[0], None)
        # positions whose queries a layer needs
        self.queries = [slice(None)] * (config.layers - 1) + [read]
        self.future = torch.ones(
            config.layout.length, config.layout.length, dtype=torch.bool, device=device
        ).triu(1)

    def rows(
        self, a: Int[Tensor, "run batch"], b: Int[Tensor, "run batch"]
    ) -> Int[Tensor, "run pos batch"]:
        """The row of each position of the sum's input."""
        width = self.config.width
        tail = digit_tokens(a + b, width) if self.config.causal else a.new_zeros(*a.shape, width)
        offset = torch.cat(
            [digit_tokens(a, width), a.new_zeros(*a.shape, 1), digit_tokens(b, width), tail], -1
        )
        return (self.first + offset).transpose(-1, -2)

    def logits(
        self, p: Parameters, rows: Tensor, draw: Draw | None = None
    ) -> Float[Tensor, "run read batch vocab"]:
        """Logits at the read positions, with dropout by the masks that `draw` gives; without if it is None."""
        return self.unembed(p, self.streams(p, rows, draw)[1])

    def streams(
        self, p: Parameters, rows: Tensor, draw: Draw | None = None
    ) -> tuple[Tensor, Tensor]:
        """The last block's residual stream before and after its MLP, at the read positions."""
        resid, out = self.first_attention(p, rows, draw)
        for l in range(self.config.layers):
            if l:
                resid, out = self.attention(p, l, resid, draw)
            mid = resid + self.dropped(out.to(resid.dtype), draw)
            hidden = linear(
                self.normed(mid), *self.folded(p, f"blocks.{l}.norm", f"blocks.{l}.up")
            ).relu()
            down = self.scaled(p[f"blocks.{l}.down.weight"], p[f"blocks.{l}.down.bias"], draw)
            resid = mid + self.dropped(
                linear(self.dropped(hidden, draw), *down).to(mid.dtype), draw
            )
        return mid, resid

    def unembed(self, p: Parameters, resid: Tensor) -> Float[Tensor, "run read batch vocab"]:
        """Logits from the last residual stream, or, with the final MLP ablated, from the one before it."""
        return linear(self.normed(resid), *self.folded(p, "norm", "unembed"))

    def first_attention(
        self, p: Parameters, rows: Tensor, draw: Draw | None
    ) -> tuple[Tensor, Tensor]:
        """Layer 0's attention by look-up: the stream that it enters and its output, where they are needed."""
        heads, d, queries = self.config.heads, self.config.d_model, self.queries[0]
        stream, score, v = self.tables(p)
        o = p["blocks.0.o.weight"].unflatten(-1, (heads, -1))
        vo = torch.einsum("rjhd,rohd->rohj", v, o).flatten(-2)  # (run, d_model, head * pair)
        pattern = self.looked_up(score, rows, queries, draw)

        # one row of weights over all (head, pair) for each query turns the sum over keys into one
        # large product
        here = rows[:, queries]
        pattern = pattern.to(self.dtype).permute(0, 3, 4, 1, 2)  # (run, query, batch, head, key)
        spread = pattern.new_zeros(*here.shape, heads, score.shape[-1])
        column = rows.transpose(1, 2)[:, None, :, None].expand(pattern.shape)
        spread.scatter_(-1, column, pattern)
        out = linear(spread.flatten(-2), *self.scaled(vo, p["blocks.0.o.bias"], draw))
        first = torch.arange(len(stream), device=stream.device) * stream.shape[1]
        entering = stream.flatten(0, 1).index_select(0, (here + first[:, None, None]).flatten())
        return entering.view(*here.shape, d), out

    def first_pattern(self, p: Parameters, rows: Tensor) -> Float[Tensor, "run head query key"]:
        """Layer 0's attention probabilities at all positions, averaged over the batch (Fig. 2)."""
        return self.looked_up(self.tables(p)[1], rows, slice(None), None).mean(-1).mT

    def tables(self, p: Parameters) -> tuple[Tensor, Tensor, Tensor]:
        """For every (token, position) pair: the stream, its scores with every other pair, and its values."""
        # (run, pair, d_model)
        stream = p["embed.weight"][:, self.token] * math.sqrt(self.config.d_model)
        scale, shift = (p[f"blocks.0.norm.{name}"].unsqueeze(1) for name in ("weight", "bias"))
        weight, bias = (
            torch.cat([p[f"blocks.0.{x}.{name}"] for x in "qkv"], 1) for name in ("weight", "bias")
        )
        flat = linear(layers.normed(stream) * scale + shift, weight, bias).unflatten(
            -1, (-1, self.config.d_head)
        )
        q, k, v = rotate(flat, self.turn_of_row).chunk(3, -2)  # (run, pair, head, d_head)
        return stream, torch.einsum("rihd,rjhd->rhij", q, k) / math.sqrt(self.config.d_head), v

    def looked_up(self, score: Tensor, rows: Tensor, queries: slice, draw: Draw | None) -> Tensor:
        """Attention probabilities of a batch from the table of scores, `[run, head, key, query, batch]`."""
        cell = (rows[:, queries].unsqueeze(1) * score.shape[-1] + rows.unsqueeze(2)).unsqueeze(1)
        cell = cell.expand(-1, self.config.heads, -1, -1, -1)
        found = score.flatten(2).gather(2, cell.flatten(2)).view(cell.shape)
        return self.probabilities(found, self.future[queries].T.unsqueeze(-1), draw, 2)

    def attention(
        self, p: Parameters, l: int, resid: Tensor, draw: Draw | None
    ) -> tuple[Tensor, Tensor]:
        """Attention of a later layer: the stream where it is needed from here on, and the output there."""
        norm, queries = f"blocks.{l}.norm", self.queries[l]
        everywhere = self.normed(resid)
        q = linear(
            everywhere[:, queries], *self.folded(p, norm, f"blocks.{l}.q", turn=self.turn[queries])
        )
        k = linear(everywhere, *self.folded(p, norm, f"blocks.{l}.k", turn=self.turn))
        v = linear(everywhere, *self.folded(p, norm, f"blocks.{l}.v", turn=self.turn))
        # views, no copies: one small matrix for each example and head, (run, batch * head, pos,
        # d_head)
        q, k, v = (x.view(*x.shape[:2], -1, self.config.d_head).transpose(1, 2) for x in (q, k, v))
        score = q @ k.mT
        score = (score.float() if self.dtype == torch.bfloat16 else score) / math.sqrt(
            self.config.d_head
        )
        score = score.permute(0, 3, 1, 2).contiguous()  # (run, key, batch * head, query)
        pattern = self.probabilities(score, self.future[queries].T.unsqueeze(1), draw, 1)
        pattern = pattern.to(self.dtype).permute(0, 2, 3, 1)
        z = (pattern @ v).transpose(1, 2).unflatten(2, (-1, self.config.heads)).flatten(-2)
        out = linear(z, *self.scaled(p[f"blocks.{l}.o.weight"], p[f"blocks.{l}.o.bias"], draw))
        return resid[:, queries], out

    def probabilities(self, score: Tensor, future: Tensor, draw: Draw | None, keys: int) -> Tensor:
        """Softmax over the axis `keys`, then dropout. On a CPU any axis but the last takes a tenth of the time."""
        score = score.masked_fill(future, -torch.inf) if self.config.causal else score
        return self.dropped(score.softmax(keys), draw)

    def dropped(self, x: Tensor, draw: Draw | None) -> Tensor:
        """After dropout, whose scale is in the weights before or behind (`scaled`)."""
        return x if draw is None else x * draw(tuple(x.shape), x.dtype)

    def scaled(self, weight: Tensor, bias: Tensor, draw: Draw | None) -> tuple[Tensor, Tensor]:
        """A linear map between two dropouts, which takes over the scales of both."""
        if draw is not None:
            weight, bias = weight * SCALE**2, bias * SCALE
        return weight.to(self.dtype), bias.to(self.dtype)

    def normed(self, x: Tensor) -> Tensor:
        """LayerNorm without its scale and shift, which `folded` moves into the next weights."""
        return layers.normed(x).to(self.dtype)

    def folded(
        self, p: Parameters, norm: str, *names: str, turn: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Weights and biases of linear maps behind a norm, one under the other, with its scale and shift folded in.

        With `turn`, each position's rotary embedding is folded in too: weights are `[run, pos,
        d_out, d_in]`.
        """
        weight, bias = (
            torch.cat([p[f"{name}.{kind}"] for name in names], 1) for kind in ("weight", "bias")
        )
        bias = bias + (weight @ p[f"{norm}.bias"].unsqueeze(-1)).squeeze(-1)
        weight = weight * p[f"{norm}.weight"].unsqueeze(1)
        if turn is not None:
            both = torch.cat([weight.mT, bias.unsqueeze(1)], 1)  # (run, d_in + 1, d_out)
            rows = both.view(len(both), 1, -1, self.config.d_head)
            both = rotate(rows, turn).view(len(both), len(turn), *both.shape[1:])
            weight, bias = both[:, :, :-1].mT, both[:, :, -1]
        return weight.to(self.dtype), bias.to(self.dtype)
