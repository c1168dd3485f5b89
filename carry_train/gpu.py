"""The training step for a GPU: a stack of runs, in the Triton kernels of `gpu_kernels`.

It is a precision of its own, `triton`: products are in bf16, and dropout masks come from a hash of
the run's seed, the number of the step and the entry's index. So a run's masks do not depend on the
runs beside it, and a checkpoint needs no state of a generator. A step, with the choice of its
batch, is one CUDA graph.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import triton.language as tl
from jaxtyping import Int
from numpy.random import SeedSequence
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.sums import VOCABULARY
from carry_train import gpu_kernels as kernels
from carry_train.fused import FlatParameters
from carry_train.groups import Group, Recipe
from carry_train.stacked import Stack
from carry_train.trainer import BETAS, EPSILON

# A tile of the attention has as many whole sums as fit into the one of these that they fill better.
KEY_TILES = (32, 64)
SMALLEST_TILE = 16  # of a matrix product
MOST_READ = 16  # positions of the answer, in a kernel's column


class Settings(NamedTuple):
    """The type of products' operands, and sizes of the kernels' tiles. They change rounding alone.

    Attributes:
        dtype: The type of the operands.
        projected: Tokens in a tile of `queries_keys_values`.
        block: Tokens in a tile of `block_forward`.
        block_back: Tokens in a tile of `block_backward`.
        stream_back: Tokens in a tile of `queries_keys_values_backward`.
        neurons: Neurons that a tile of `block_forward` has at once.
        neurons_back: The same of `block_backward`.
        pairs: (Token, position) pairs in a tile of layer 0's queries, keys and values.
        scored: Sums in a tile of the loss.
        added: Sums that `sum_over_tokens` adds up at once.
        parameters: Parameters in a program of AdamW.
        square: Rows and columns in a tile of a weight's gradient.
        depth: Tokens that are added to it at once.
    """

    dtype: torch.dtype = torch.bfloat16
    projected: int = 64
    block: int = 32
    block_back: int = 32
    stream_back: int = 32
    neurons: int = 128
    neurons_back: int = 64
    pairs: int = 16
    scored: int = 64
    added: int = 64
    parameters: int = 1024
    square: int = 128
    depth: int = 64


DEFAULTS = Settings()
KERNEL_TYPES = {torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}  # as Triton calls them
# These numbers of programs are of all runs together. An H200 has 132 multiprocessors.
SLOTS = 132
NORM_PROGRAMS = 264  # of a backward kernel, which adds up a norm's gradients
PROGRAMS = 264  # of a kernel whose programs load weights once for many tiles
# The warps of each kernel's programs, and the stages of its loops: the fastest on an H200.
OPTIONS = {
    "queries_keys_values": (8, 1),
    "attention_forward": (4, 1),
    "block_forward": (4, 1),
    "loss_and_gradient": (8, 1),
    "block_backward": (4, 2),
    "attention_backward": (4, 1),
    "sum_over_tokens": (8, 1),
    "queries_keys_values_backward": (4, 2),
    "weight_gradient": (4, 3),
    "norm_gradients": (4, 1),
    "embedding_gradient": (4, 1),
    "adam_w": (4, 1),
}


def mask_seeds(dropout: Sequence[SeedSequence]) -> Int[Tensor, "run 2"]:
    """Return the two words per run from which its masks are drawn."""
    words = [seed.generate_state(2, np.uint32) for seed in dropout]
    return torch.from_numpy(np.stack(words).view(np.int32).copy())


def in_kernel_order(parameters: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Return the parameters with weights of queries, keys and values in a row, and their biases."""
    names = ["embed.weight", "norm.weight", "norm.bias", "unembed.weight", "unembed.bias"]
    for l in range(layers):
        names += [f"blocks.{l}.norm.{kind}" for kind in ("weight", "bias")]
        names += [f"blocks.{l}.{x}.weight" for x in "qkv"]
        names += [f"blocks.{l}.{x}.bias" for x in "qkv"]
        for owner in ("o", "up", "down"):
            names += [f"blocks.{l}.{owner}.{kind}" for kind in ("weight", "bias")]
    return {name: parameters[name] for name in names}


class Sums:
    """Some sums of each run on the device, as the kernels read them.

    Attributes:
        rows: The (token, position) pair at each position.
        targets: The tokens to be predicted.
        count: Number of sums of a run.
        batches: Number of batches in an epoch.
        step: Batches done, on the device.
        totals: Loss, accuracy by position and exact match, added up over batches.
    """

    def __init__(self, stack: Stack, pairs: Tensor, targets: Tensor, batch: int, slots: int):
        device = pairs.device
        parts = [stack.rows(part[:, 0], part[:, 1]).short() for part in pairs.split(65_536, 2)]
        self.rows = torch.cat(parts, 2).contiguous()  # (run, pos, sum)
        self.targets = targets.to(torch.int8).contiguous()  # (run, read, sum)
        self.count = pairs.shape[2]
        self.batches = -(-self.count // batch)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        shape = (len(pairs), slots, 2 + targets.shape[1])
        self.totals = torch.zeros(shape, device=device)
        self.graphs: dict[str, torch.cuda.CUDAGraph] = {}

    def means(self) -> dict[str, Tensor]:
        """Return the means over an epoch, by the trainer's names, and begin anew."""
        means = self.totals.sum(1) / self.batches
        self.totals.zero_()
        return {"loss": means[:, 0], "accuracy": means[:, 1:-1], "whole": means[:, -1]}


class GpuStep:
    """Training steps and tests of a stack of runs.

    Raises:
        BadInput: There is no such step for the group, or not on this device.
    """

    def __init__(
        self,
        stack: Stack,
        parameters: Mapping[str, Tensor],
        dropout: Sequence[SeedSequence],
        group: Group,
        recipe: Recipe,
        settings: Settings | None = None,
    ) -> None:
        settings = settings or DEFAULTS
        check(group, recipe, settings)
        device = stack.token.device
        check_device(device)
        config = stack.config
        self.stack = stack
        self.config = config
        self.group = group
        self.recipe = recipe
        self.settings = settings
        self.batch = group.batch
        self.length = config.layout.length
        self.n_read = len(config.layout.loss_positions)
        self.n_runs = len(dropout)
        self.dtype = KERNEL_TYPES[settings.dtype]
        self.seeds = mask_seeds(dropout).to(device)

        self.flat = FlatParameters(in_kernel_order(parameters, config.layers))
        self.flat.values = self.flat.values.to(device)
        self.parameters = self.flat.views(self.flat.values)
        self.size = self.flat.values.shape[1]
        self.exp_avg = torch.zeros_like(self.flat.values)
        self.exp_avg_sq = torch.zeros_like(self.flat.values)
        self.rounded = self.flat.values.to(settings.dtype)
        self.seen = torch.zeros(1, dtype=torch.int64, device=device)
        self.slots = max(1, min(64, SLOTS // self.n_runs))
        self.partial = torch.zeros(self.n_runs, self.slots, self.size, device=device)

        # Each program of a backward kernel has its part of the gradients of each block's norm, of
        # which one serves the attention and one the MLP.
        self.norm_programs = max(1, min(NORM_PROGRAMS // self.n_runs, 128))
        shape = (self.n_runs, 2 * config.layers, self.norm_programs, 2 * config.d_model)
        self.norms = torch.zeros(shape, device=device)
        self._make_tables(device)
        self._allocate(device)

    def _make_tables(self, device: torch.device) -> None:
        """Make tables of the rotary embedding, and of the (token, position) pairs."""
        half = self.config.d_head // 2
        cosine, sine = self.stack.turn.float().unbind(-1)  # (pos, half)
        self.cosines = cosine.repeat(1, self.config.d_model // 2 // half).contiguous()
        self.sines = sine.repeat(1, self.config.d_model // 2 // half).contiguous()
        self.token = self.stack.token.int()
        self.n_pairs = len(self.token)
        last = torch.tensor([self.n_pairs], device=device)
        self.first_row = torch.cat([self.stack.first, last]).int()
        pair = torch.arange(self.n_pairs, device=device)
        self.position = (torch.searchsorted(self.first_row, pair, right=True) - 1).int()

    def _allocate(self, device: torch.device) -> None:
        """Make room for activations and their gradients."""
        config = self.config
        runs, batch, d_model = self.n_runs, self.batch, config.d_model
        everywhere = self.length * batch

        def stream(n_tokens: int, width: int = d_model) -> Tensor:
            return torch.zeros(runs, n_tokens, width, device=device)

        def factor(n_tokens: int, width: int = d_model) -> Tensor:
            return torch.zeros(runs, n_tokens, width, device=device, dtype=self.settings.dtype)

        self.qkv = [factor(self.n_pairs, 3 * d_model)]
        self.qkv += [factor(everywhere, 3 * d_model) for _ in range(config.layers - 1)]
        queries = [self.queries(l) * batch for l in range(config.layers)]
        self.mid = [stream(n) for n in queries]
        self.resid = [stream(n) for n in queries]
        self.z = [factor(n) for n in queries]
        # What follows is written and read within a layer's backward pass.
        most = max(queries)
        self.gradient = stream(everywhere)
        self.mid_gradient = stream(most)
        self.qkv_gradient = factor(everywhere, 3 * d_model)
        self.normed = factor(everywhere)
        self.mlp_gradient = factor(most)
        self.attention_gradient = factor(most)
        self.z_gradient = factor(most)
        self.hidden = factor(most, config.d_ff)
        self.hidden_gradient = factor(most, config.d_ff)
        self.pair_gradient = stream(self.n_pairs, 4 * d_model)
        self.stream_gradient = stream(self.n_pairs)
        self.pair_qkv_gradient = factor(self.n_pairs, 3 * d_model)
        self.pair_normed = factor(self.n_pairs)

    def sums(self, pairs: Tensor, targets: Tensor) -> Sums:
        """Return sums of each run as the kernels read them."""
        return Sums(self.stack, pairs, targets, self.batch, self.slots)

    def queries(self, layer: int) -> int:
        """Return the number of positions at which a layer has queries."""
        return self.n_read if layer == self.config.layers - 1 else self.length

    def kernel(self, name: str, *grid: int) -> Callable[..., Any]:
        """Return a kernel that is launched on this grid."""
        warps, stages = OPTIONS[name]
        launched = getattr(kernels, name)[grid]
        return partial(launched, num_warps=warps, num_stages=stages)

    def programs(self, n_tokens: int, tile: int) -> int:
        """Return how many programs share a run's tokens: no more than there are tiles."""
        return max(1, min(PROGRAMS // self.n_runs, -(-n_tokens // tile)))

    def at(self, name: str) -> int:
        """Return the place of a parameter in a run's row."""
        return self.flat.starts[name]

    def forward(self, sums: Sums, dropout: bool) -> None:
        """Compute the stream that leaves each layer, for the next batch of the sums."""
        config, settings, dtype = self.config, self.settings, self.dtype
        batch, d_model = self.batch, config.d_model
        for l in range(config.layers):
            block = f"blocks.{l}"
            queries = self.queries(l)
            first_query = self.length - queries
            n_tokens = self.n_pairs if l == 0 else self.length * batch
            x = self.resid[max(0, l - 1)]
            tile = settings.pairs if l == 0 else settings.projected
            self.kernel("queries_keys_values", self.n_runs, self.programs(n_tokens, tile))(
                x,
                self.token,
                self.position,
                self.flat.values,
                self.rounded,
                self.cosines,
                self.sines,
                self.qkv[l],
                self.size,
                self.at("embed.weight"),
                self.at(f"{block}.norm.weight"),
                self.at(f"{block}.q.weight"),
                self.at(f"{block}.q.bias"),
                n_tokens,
                batch,
                first_query,
                from_embedding=l == 0,
                d_model=d_model,
                tile=tile,
                dtype=dtype,
            )
            self.attention("attention_forward", l, sums, self.seeds, self.z[l], dropout=dropout)
            n_queries = queries * batch
            self.kernel("block_forward", self.n_runs, self.programs(n_queries, settings.block))(
                sums.rows,
                sums.step,
                x,
                self.token,
                self.z[l],
                self.flat.values,
                self.rounded,
                self.seeds,
                self.mid[l],
                self.resid[l],
                self.size,
                self.at("embed.weight"),
                self.at(f"{block}.o.weight"),
                self.at(f"{block}.o.bias"),
                self.at(f"{block}.norm.weight"),
                self.at(f"{block}.up.weight"),
                self.at(f"{block}.up.bias"),
                self.at(f"{block}.down.weight"),
                self.at(f"{block}.down.bias"),
                sums.count,
                sums.batches,
                batch,
                self.length,
                first_query,
                n_queries,
                l,
                from_embedding=l == 0,
                dropout=dropout,
                threshold=self.stack.threshold,
                mask_scale=self.stack.scale,
                d_model=d_model,
                d_ff=config.d_ff,
                tile=settings.block,
                f_tile=settings.neurons,
                dtype=dtype,
            )

    def attention(
        self, kernel: str, layer: int, sums: Sums, *tensors: Tensor, **flags: bool
    ) -> None:
        """Launch a kernel of a layer's attention, with a program for each head and tile of sums."""
        config = self.config
        queries = self.queries(layer)
        at_once, key_tile, query_tile = self.attention_tiles(queries)
        self.kernel(kernel, self.n_runs, -(-self.batch // at_once), config.heads)(
            sums.rows,
            sums.step,
            self.qkv[layer],
            *tensors,
            sums.count,
            sums.batches,
            self.batch,
            self.length,
            queries,
            self.length - queries,
            self.n_pairs if layer == 0 else self.length * self.batch,
            layer,
            from_embedding=layer == 0,
            causal=config.causal,
            threshold=self.stack.threshold,
            mask_scale=self.stack.scale,
            d_model=config.d_model,
            heads=config.heads,
            sums_at_once=at_once,
            key_tile=key_tile,
            query_tile=query_tile,
            dtype=self.dtype,
            **flags,
        )

    def attention_tiles(self, queries: int) -> tuple[int, int, int]:
        """Return how many sums a tile of the attention has, and the sizes of its sides."""
        key_tile = max(KEY_TILES, key=lambda tile: tile // self.length * self.length / tile)
        at_once = key_tile // self.length
        return at_once, key_tile, max(SMALLEST_TILE, _power_of_two(at_once * queries))

    def score(self, sums: Sums, train: bool) -> None:
        """Add the batch's loss and accuracies to the totals; with `train`, start going back."""
        self.kernel("loss_and_gradient", self.n_runs, self.slots)(
            self.resid[-1],
            sums.targets,
            self.flat.values,
            self.rounded,
            sums.step,
            sums.totals,
            self.partial,
            self.gradient,
            self.size,
            self.at("norm.weight"),
            self.at("unembed.weight"),
            self.at("unembed.bias"),
            sums.count,
            sums.batches,
            self.batch,
            self.slots,
            train=train,
            n_read=self.n_read,
            vocab=VOCABULARY,
            d_model=self.config.d_model,
            tile=self.settings.scored,
            dtype=self.dtype,
        )

    def backward(self, sums: Sums) -> None:
        """Write each slot's part of every gradient."""
        config, settings, dtype = self.config, self.settings, self.dtype
        batch, d_model = self.batch, config.d_model
        for l in reversed(range(config.layers)):
            block = f"blocks.{l}"
            queries = self.queries(l)
            first_query = self.length - queries
            n_queries = queries * batch
            self.kernel("block_backward", self.n_runs, self.norm_programs)(
                self.mid[l],
                self.flat.values,
                self.rounded,
                self.seeds,
                sums.step,
                self.gradient,
                self.mid_gradient,
                self.normed,
                self.hidden,
                self.hidden_gradient,
                self.mlp_gradient,
                self.attention_gradient,
                self.z_gradient,
                self.norms[:, 2 * l],
                self.size,
                self.at(f"{block}.o.weight"),
                self.at(f"{block}.norm.weight"),
                self.at(f"{block}.up.weight"),
                self.at(f"{block}.up.bias"),
                self.at(f"{block}.down.weight"),
                n_queries,
                2 * config.layers,
                l,
                threshold=self.stack.threshold,
                mask_scale=self.stack.scale,
                d_model=d_model,
                d_ff=config.d_ff,
                tile=settings.block_back,
                f_tile=settings.neurons_back,
                dtype=dtype,
            )
            self.weight(f"{block}.down", self.mlp_gradient, self.hidden, n_queries)
            self.weight(f"{block}.up", self.hidden_gradient, self.normed, n_queries)
            self.weight(f"{block}.o", self.attention_gradient, self.z[l], n_queries)

            gradients = (self.z_gradient, self.qkv_gradient)
            self.attention("attention_backward", l, sums, self.seeds, *gradients)
            if l:
                n_tokens = self.length * batch
                self.stream_backward(
                    l, self.qkv_gradient, self.gradient, self.normed, n_tokens, first_query
                )
                keys_and_values = self.qkv_gradient[:, :, d_model:]
                self.weight(f"{block}.k", keys_and_values, self.normed, n_tokens, n_out=2 * d_model)
                self.weight(
                    f"{block}.q",
                    self.qkv_gradient,
                    self.normed,
                    n_tokens,
                    first_query * batch,
                    n_out=d_model,
                )
        self.embedding_backward(sums)

    def embedding_backward(self, sums: Sums) -> None:
        """End the backward pass with layer 0's queries, keys and values, and the embedding."""
        self.kernel("sum_over_tokens", self.n_runs, self.length, 4)(
            sums.rows,
            sums.step,
            self.qkv_gradient,
            self.mid_gradient,
            self.first_row,
            self.pair_gradient,
            sums.count,
            sums.batches,
            self.batch,
            self.length,
            self.n_pairs,
            d_model=self.config.d_model,
            tile=self.settings.added,
            dtype=self.dtype,
        )
        self.stream_backward(
            0, self.pair_qkv_gradient, self.stream_gradient, self.pair_normed, self.n_pairs, 0
        )
        self.weight("blocks.0.q", self.pair_qkv_gradient, self.pair_normed, self.n_pairs)
        at_norm = self.at("blocks.0.norm.weight")
        block_stride = self.at("blocks.1.norm.weight") - at_norm
        self.kernel("norm_gradients", self.n_runs, self.config.layers)(
            self.norms,
            self.partial,
            self.size,
            at_norm,
            block_stride,
            2 * self.config.layers,
            self.slots,
            self.norm_programs,
            d_model=self.config.d_model,
        )
        self.kernel("embedding_gradient", self.n_runs, VOCABULARY)(
            self.stream_gradient,
            self.token,
            self.partial,
            self.size,
            self.at("embed.weight"),
            self.n_pairs,
            self.slots,
            d_model=self.config.d_model,
        )

    def stream_backward(
        self,
        l: int,
        qkv_gradient: Tensor,
        gradient: Tensor,
        normed: Tensor,
        n_tokens: int,
        first_query: int,
    ) -> None:
        """Write the gradients of the stream that enters a layer."""
        block = f"blocks.{l}"
        tile = self.settings.pairs if l == 0 else self.settings.stream_back
        self.kernel("queries_keys_values_backward", self.n_runs, self.norm_programs)(
            self.resid[max(0, l - 1)],
            self.token,
            self.position,
            self.flat.values,
            self.rounded,
            self.cosines,
            self.sines,
            qkv_gradient,
            self.mid_gradient,
            self.pair_gradient,
            gradient,
            normed,
            self.norms[:, 2 * l + 1],
            self.size,
            self.at("embed.weight"),
            self.at(f"{block}.norm.weight"),
            self.at(f"{block}.q.weight"),
            n_tokens,
            self.batch,
            first_query,
            2 * self.config.layers,
            from_embedding=l == 0,
            d_model=self.config.d_model,
            tile=tile,
            dtype=self.dtype,
        )

    def weight(
        self,
        name: str,
        out_gradient: Tensor,
        inputs: Tensor,
        n_tokens: int,
        first_token: int = 0,
        n_out: int | None = None,
    ) -> None:
        """Write the gradients of a linear map, or of several that follow one another."""
        n_out = n_out or out_gradient.shape[2]
        n_in = inputs.shape[2]
        square = self.settings.square
        n_tiles = (n_out // square) * (n_in // square)
        self.kernel("weight_gradient", self.n_runs, self.slots, n_tiles)(
            out_gradient,
            inputs,
            self.partial,
            self.size,
            self.at(f"{name}.weight"),
            self.at(f"{name}.bias"),
            n_tokens,
            first_token,
            n_in,
            out_gradient.stride(1),
            self.slots,
            out_tile=square,
            in_tile=square,
            tile=self.settings.depth,
        )

    def update(self, sums: Sums) -> None:
        """Take AdamW's step."""
        tile = self.settings.parameters
        self.kernel("adam_w", self.n_runs, -(-self.size // tile))(
            self.flat.values,
            self.rounded,
            self.exp_avg,
            self.exp_avg_sq,
            self.partial,
            sums.step,
            self.seen,
            self.size,
            self.slots,
            self.recipe.rate,
            self.recipe.warmup,
            self.group.decay,
            beta1=BETAS[0],
            beta2=BETAS[1],
            epsilon=EPSILON,
            tile=tile,
            dtype=self.dtype,
        )

    def train_epoch(self, sums: Sums) -> dict[str, Tensor]:
        """Go through the training sums once; return means over the batches."""
        self.repeat("train", sums)
        return sums.means()

    def test_epoch(self, sums: Sums) -> dict[str, Tensor]:
        """Go through test sums once, with dropout off; return means over the batches."""
        self.repeat("test", sums)
        return sums.means()

    def repeat(self, what: str, sums: Sums) -> None:
        """Train or test on each batch of an epoch: on a GPU, by replaying one captured graph."""
        act = {"train": self.train, "test": self.test}[what]
        if sums.step.device.type == "cpu":
            for _ in range(sums.batches):
                act(sums)
            return
        if what not in sums.graphs:
            sums.graphs[what] = self.captured(what, sums)
        for _ in range(sums.batches):
            sums.graphs[what].replay()

    def captured(self, what: str, sums: Sums) -> torch.cuda.CUDAGraph:
        """Return a step as a graph, and leave everything as it was.

        A step outside the graph compiles the kernels; what it changed is put back.
        """
        act = {"train": self.train, "test": self.test}[what]
        changed = [self.flat.values, self.rounded, self.exp_avg, self.exp_avg_sq]
        changed += [sums.step, sums.totals]
        before = [tensor.clone() for tensor in changed]
        act(sums)
        for tensor, value in zip(changed, before, strict=True):
            tensor.copy_(value)
        torch.cuda.current_stream().synchronize()
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            act(sums)
        return graph

    def train(self, sums: Sums) -> None:
        """Take a training step on the next batch."""
        self.forward(sums, dropout=True)
        self.score(sums, train=True)
        self.backward(sums)
        self.update(sums)
        sums.step += 1

    def test(self, sums: Sums) -> None:
        """Test on the next batch, with dropout off."""
        self.forward(sums, dropout=False)
        self.score(sums, train=False)
        sums.step += 1


def _power_of_two(number: int) -> int:
    """Return the smallest power of two that is no less."""
    return 1 << (number - 1).bit_length()


def check_device(device: torch.device) -> None:
    """Raise `BadInput` if the kernels cannot run on the device."""
    if device.type == "cpu" and not kernels.INTERPRETED:
        raise _cannot("it is for a GPU")


def check(group: Group, recipe: Recipe, settings: Settings | None = None) -> None:
    """Raise `BadInput` if the kernels do not support the group's model or tests, or the recipe."""
    settings = settings or DEFAULTS
    if recipe.batch is not None or recipe.segments is not None or recipe.cooldown:
        its_own = "a batch size, segments or a cooldown of its own"
        raise _cannot(f"the recipe {recipe.name} has {its_own}, which the step does not support")
    config = group.config
    layout = config.layout
    if group.tracks_final_mlp:
        raise _cannot(f"{group.name} is also tested without its final MLP, which it cannot do")
    if config.layers < 2:
        raise _cannot("it is for models of two layers or more")
    if layout.length > max(KEY_TILES) or len(layout.loss_positions) > MOST_READ:
        most = f"{max(KEY_TILES)} positions, {MOST_READ} of them of the answer"
        raise _cannot(f"it has room for at most {most}")
    square = settings.square
    if config.d_model % square or config.d_model != _power_of_two(config.d_model):
        raise _cannot(f"d_model has to be a power of two from {square}")
    if config.d_ff % square:
        raise _cannot(f"d_ff has to be a multiple of {square}")
    if config.d_head < SMALLEST_TILE:
        raise _cannot(f"a head has to have {SMALLEST_TILE} dimensions at least")
    # In some kernels all tokens of a tile have one position.
    tile = max(settings.projected, settings.stream_back)
    if group.batch % tile:
        raise _cannot(f"a batch has to be a multiple of {tile} sums")


def _cannot(reason: str) -> BadInput:
    return BadInput(
        f"The step in Triton cannot be had here ({reason}): choose another precision, such as auto."
    )
