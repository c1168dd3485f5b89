"""The parts of a plain model's pass in C++ (`native/forward.cpp`), built on first use.

They take two thirds of PyTorch's time or less, and compute what `PlainBlock` and the unembedding
do, up to rounding, for models of the paper's widths in float32 on a CPU. Without a
compiler or a processor with AVX2 there is no library, and PyTorch computes; so it does if the
library is wrong about a model whose logits PyTorch gives (`_is_right`). There are two
libraries, for AVX2 and for AVX-512, whose sums round differently.
"""

import ctypes
import math
import warnings
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from carry_core.model import Block, ModelConfig, Positions, Read, Transformer
from carry_core.sums import VOCABULARY
from carry_fast import native, processor
from carry_fast.blocks import PlainBlock, Zeroed

INSTRUCTIONS = {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"}  # of x86-64-v3
AVX512 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}  # and these of x86-64-v4
# `native/sizes.h` makes room for these, and supports only the paper's D_MODEL and HEADS.
D_MODEL = 128
HEADS = 2
MOST_NEURONS = 1024
MOST_POSITIONS = 31
PANEL = 16  # columns in a panel of `native/linear.h`
# If the terms of a softmax in layer 0 add up to more than this, those that are too small for
# float64 do not show in float32.
SMALLEST_TOTAL = 1e-290
LARGEST = 1e15  # of a weight


def library() -> ctypes.CDLL | None:
    """Return the compiled functions, or None where PyTorch has to compute."""
    try:
        built = _built()
        reason = "" if _is_right(built) else "it gives wrong numbers"
    except native.Lacking:
        return None
    except native.CannotBuild as error:
        reason = str(error)
    if not reason:
        return built
    line = f"The forward pass in C++ cannot be had here ({reason}): PyTorch computes, more slowly."
    warnings.warn(line, RuntimeWarning, stacklevel=2)
    return None


def _built() -> ctypes.CDLL:
    level = 4 if processor.this().instructions >= AVX512 else 3
    flags = [f"-march=x86-64-v{level}"]
    return native.library(native.FOLDER / "forward.cpp", flags, INSTRUCTIONS)


def has_room(config: ModelConfig) -> bool:
    """Return True if `native/sizes.h` has room for a model."""
    return (
        config.d_model == D_MODEL
        and config.heads == HEADS
        and config.d_ff <= MOST_NEURONS
        and config.d_ff % PANEL == 0
        and config.layout.length <= MOST_POSITIONS
    )


def is_compiled(model: Transformer) -> bool:
    """Return True if a plain model's parts can be computed here."""
    weight = model.embed.weight
    is_on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
    if not (is_on_cpu and has_room(model.config) and library() is not None):
        return False
    # Whether sums of larger numbers overflow depends on their order, which is another one in C++.
    return all(bool((parameter.abs() < LARGEST).all()) for parameter in model.parameters())


# ---- what `native/forward.cpp` takes


class _Linear(ctypes.Structure):
    """The structure `Linear` of `native/linear.h`; those below are in `native/forward.cpp`."""

    _fields_ = [
        ("in_features", ctypes.c_int),
        ("out_features", ctypes.c_int),
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
    ]


class _Zeroed(ctypes.Structure):
    _fields_ = [("heads", ctypes.c_int), ("skip", ctypes.c_int)]


class _FirstLayer(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_int) for name in ("length", "tokens", "queries")],
        *[(name, ctypes.c_void_p) for name in ("query", "term", "written", "embedding", "bias")],
    ]


class _Attention(ctypes.Structure):
    _fields_ = [
        ("length", ctypes.c_int),
        ("queries", ctypes.c_int),
        ("query", ctypes.c_void_p),
        ("causal", ctypes.c_int),
        ("kv", _Linear),
        ("q", _Linear),
        ("cosine", ctypes.c_void_p),
        ("sine", ctypes.c_void_p),
    ]


class _Output(ctypes.Structure):
    _fields_ = [("heads", _Linear * HEADS), ("bias", ctypes.c_void_p)]


class _Mlp(ctypes.Structure):
    _fields_ = [("up", _Linear), ("down", _Linear)]


Argument = Tensor | int | ctypes.c_long | ctypes.Array[_Zeroed] | None


class _Memory:
    """Keeps the tensors alive whose memory a structure points to, and the library that takes it."""

    def __init__(self) -> None:
        self.library = _built()
        self.tensors: list[Tensor] = []

    def pointer(self, x: Tensor, dtype: torch.dtype = torch.float32) -> int:
        """Return the address of a contiguous copy of a tensor's values."""
        x = x.detach().to(dtype).contiguous().resolve_neg()
        self.tensors.append(x)
        return x.data_ptr()

    def linear(self, weight: Tensor, bias: Tensor) -> _Linear:
        """Return a linear map, padded with zeros to whole panels of outputs."""
        missing = -len(weight) % PANEL
        padded = torch.cat([weight, weight.new_zeros(missing, weight.shape[1])])
        panels = padded.unflatten(0, (-1, PANEL)).transpose(1, 2)  # (panel, in, column)
        padded_bias = torch.cat([bias, bias.new_zeros(missing)])
        return _Linear(
            in_features=weight.shape[1],
            out_features=len(padded),
            weight=self.pointer(panels),
            bias=self.pointer(padded_bias),
        )

    def after_norm(
        self, norm: nn.LayerNorm, maps: Sequence[nn.Linear], scale: float = 1
    ) -> _Linear:
        """Return some linear maps, one after the other, with the gain and shift of a norm."""
        weight = torch.cat([linear.weight for linear in maps]).double()
        bias = torch.cat([linear.bias for linear in maps]).double()
        shifted = bias + weight @ norm.bias.double()
        return self.linear(scale * weight * norm.weight.double(), scale * shifted)

    def call(
        self, name: str, structure: ctypes.Structure, count: int, *arguments: Argument
    ) -> None:
        """Call a function of the library for `count` sums or rows, in PyTorch's number of threads.

        Tensors are passed by their memory, or by that of a contiguous copy; None is a null pointer.

        Raises:
            RuntimeError: C++ has no room for these sizes, and has computed nothing.
        """
        contiguous = [x.contiguous() if isinstance(x, Tensor) else x for x in arguments]
        converted: list[Any] = []
        for argument in contiguous:
            if isinstance(argument, Tensor):
                converted.append(ctypes.c_void_p(argument.data_ptr()))
            else:
                converted.append(argument)
        function = getattr(self.library, name)
        function.restype = ctypes.c_bool
        threads = ctypes.c_int(torch.get_num_threads())
        if not function(ctypes.byref(structure), ctypes.c_long(count), threads, *converted):
            raise RuntimeError(f"C++ has no room for what `{name}` is given.")


def _conditions(conditions: Collection[Zeroed]) -> ctypes.Array[_Zeroed]:
    structures = []
    for zeroed in conditions:
        bits = sum(1 << head for head in zeroed.heads)
        structures.append(_Zeroed(heads=bits, skip=zeroed.skip))
    return (_Zeroed * len(structures))(*structures)


# ---- the parts


class CompiledFirstLayer:
    """The attention of layer 0 in C++, from tables over (token, position).

    The layer sees one of a dozen tokens at each position. So the vectors that its heads can write
    for a key fit into a table, and so do the terms of a softmax, relative to the largest term of a
    query with any token at any key: no exponential is computed. Row `position * n_tokens + token`
    of a table is that token at that position.

    Attributes:
        has_usable_terms: True if no sum's terms can all be too small for float64, whatever its
            tokens. If False, the layer cannot be computed from tables.
    """

    def __init__(self, model: Transformer) -> None:
        config, block = model.config, model.blocks[0]
        n_tokens, self.length = len(model.embed.weight), config.layout.length
        embedding = model.embed.weight * math.sqrt(config.d_model)
        position = torch.arange(self.length, device="cpu")
        self.first_row = position * n_tokens
        qkv = block.qkv(embedding.unsqueeze(1).expand(-1, self.length, -1))
        q, k, v = (x.permute(2, 1, 0, 3).flatten(1, 2) for x in qkv)  # (head, row, d_head)
        exact = q.double() @ k.double().mT / math.sqrt(config.d_head)
        if config.causal:
            position_of_row = position.repeat_interleave(n_tokens)
            exact = exact.masked_fill(position_of_row > position_of_row[:, None], -torch.inf)
        # Where the model's own score would be infinite, this one is.
        of_model = exact.float()
        score = exact.where(of_model.isfinite(), of_model.double())  # (head, row, row)
        o = block.o.weight.view(-1, config.heads, config.d_head)  # (d_model, head, d_head)
        written = v @ o.permute(1, 2, 0)  # (head, row, d_model)

        self.memory = _Memory()
        term = (score - score.amax(-1, keepdim=True)).exp()
        smallest_at_position = term.unflatten(-1, (self.length, n_tokens)).amin(-1)
        # One key's term is at least this, whatever the tokens are.
        smallest_total = smallest_at_position.amax(-1)
        self.has_usable_terms = bool((smallest_total > SMALLEST_TOTAL).all())
        self.tables = _FirstLayer(
            length=self.length,
            tokens=n_tokens,
            term=self.memory.pointer(term, torch.float64),
            written=self.memory.pointer(written),
            embedding=self.memory.pointer(embedding),
            bias=self.memory.pointer(block.o.bias),
        )

    def mids(
        self,
        tokens: Int[Tensor, "batch pos"],
        query: Positions,
        conditions: Collection[Zeroed],
    ) -> dict[Zeroed, Float[Tensor, "batch query d_model"]]:
        """Return `resid_mid` under each condition, without the heads and the skip it zeroes."""
        position = torch.arange(self.length, dtype=torch.int32, device="cpu")[query]
        tables = _FirstLayer.from_buffer_copy(self.tables)  # threads may differ in their queries
        tables.queries, tables.query = len(position), position.data_ptr()
        rows = (tokens + self.first_row).int()
        shape = len(conditions), len(tokens), len(position), D_MODEL
        mids = torch.empty(shape, dtype=torch.float32, device="cpu")
        structures = _conditions(conditions)
        self.memory.call("first_mids", tables, len(tokens), rows, len(conditions), structures, mids)
        return dict(zip(conditions, mids, strict=True))


class CompiledBlock:
    """A `PlainBlock` in C++."""

    def __init__(self, block: Block, query: Sequence[int]) -> None:
        config = block.config
        self.block, self.query = block, [*query]
        self.memory = memory = _Memory()
        cosine, sine = block.rotation.unbind(-1)
        self.attention = _Attention(
            length=config.layout.length,
            queries=len(self.query),
            query=memory.pointer(torch.tensor(self.query, device="cpu"), torch.int32),
            causal=config.causal,
            kv=memory.after_norm(block.norm, [block.k, block.v]),
            q=memory.after_norm(block.norm, [block.q], scale=1 / math.sqrt(config.d_head)),
            cosine=memory.pointer(cosine.repeat_interleave(2, -1)),
            sine=memory.pointer(torch.stack([-sine, sine], -1).flatten(1)),
        )
        no_bias = torch.zeros(D_MODEL, device="cpu")
        of_heads = block.o.weight.chunk(HEADS, dim=1)
        self.output = _Output(
            heads=(_Linear * HEADS)(*[memory.linear(head, no_bias) for head in of_heads]),
            bias=memory.pointer(block.o.bias),
        )
        self.mlp = _Mlp(
            up=memory.after_norm(block.norm, [block.up]),
            down=memory.linear(block.down.weight, block.down.bias),
        )

    def z(
        self, resid: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch query head d_head"]:
        """Return `attn.z`, from the stream that enters the block."""
        z = resid.new_empty(len(resid), len(self.query), HEADS, D_MODEL // HEADS)
        self.memory.call("attention", self.attention, len(resid), resid, z)
        return z

    def mids(
        self,
        resid: Float[Tensor, "batch query d_model"],
        z: Float[Tensor, "batch query head d_head"],
        conditions: Collection[Zeroed],
    ) -> dict[Zeroed, Float[Tensor, "batch query d_model"]]:
        """Return `resid_mid` under each condition, without the heads and the skip it zeroes."""
        mids = resid.new_empty(len(conditions), *resid.shape)
        n_rows = resid.shape[:2].numel()
        structures = _conditions(conditions)
        self.memory.call("mids", self.output, n_rows, z, resid, len(conditions), structures, mids)
        return dict(zip(conditions, mids, strict=True))

    def after(
        self, mid: Float[Tensor, "batch query d_model"], zeroed: Zeroed
    ) -> Float[Tensor, "batch query d_model"]:
        """Return `resid_post`, from `resid_mid`, without the MLP or the neurons that are zeroed."""
        if zeroed.mlp:
            return mid
        writes: Tensor | None = None  # the bits of the neurons that write; None if all do
        if zeroed.neurons:
            is_left = torch.ones(self.block.config.d_ff, dtype=torch.bool, device="cpu")
            is_left[[*zeroed.neurons]] = False
            writes = torch.from_numpy(np.packbits(is_left.numpy(), bitorder="little"))
        post = mid.new_empty(mid.shape)
        self.memory.call("mlp", self.mlp, len(mid), mid.shape[1], mid, writes, post)
        return post


class CompiledUnembedding:
    """The logits from the stream after the last layer."""

    def __init__(self, model: Transformer) -> None:
        self.memory = _Memory()
        self.vocabulary = len(model.unembed.weight)
        self.linear = self.memory.after_norm(model.norm, [model.unembed])

    def __call__(
        self, resid: Float[Tensor, "batch query d_model"]
    ) -> Float[Tensor, "batch query vocab"]:
        """Return the logits of each row."""
        logits = resid.new_empty(*resid.shape[:-1], self.vocabulary)
        n_rows = resid.shape[:-1].numel()
        self.memory.call("logits", self.linear, n_rows, self.vocabulary, resid, logits)
        return logits


# ---- all parts of a model


class Parts(NamedTuple):
    """The parts of a plain model that computes its last layer only at some positions."""

    first: CompiledFirstLayer | None  # layer 0's attention; None if it is computed as the others
    blocks: list[PlainBlock | CompiledBlock]  # at the positions that they compute
    unembed: CompiledUnembedding | None  # None if PyTorch computes it


def parts_of(model: Transformer, read: Read) -> Parts:
    """Return a plain model's parts, in C++ if that is possible here."""
    blocks: list[PlainBlock | CompiledBlock] = []
    is_in_cpp = is_compiled(model)
    for l, block in enumerate(model.blocks):
        every_position = range(model.config.layout.length)
        query = model.queries(l, read)
        positions = every_position[query] if isinstance(query, slice) else query
        blocks.append((CompiledBlock if is_in_cpp else PlainBlock)(block, positions))
    if not is_in_cpp:
        return Parts(None, blocks, None)
    first = CompiledFirstLayer(model)
    return Parts(first if first.has_usable_terms else None, blocks, CompiledUnembedding(model))


# ---- a known input

KNOWN = ModelConfig(layers=1, width=1, d_ff=32)  # the shape of the model
CLOSE = 1e-3  # of the largest number; it is a hundred times what rounding does


@cache
@torch.no_grad()
def _is_right(built: ctypes.CDLL) -> bool:
    """Return True if this library's functions give the numbers of the model on a known input."""
    model = _known_model()
    layer, length = model.blocks[0], KNOWN.layout.length
    tokens = torch.arange(10 * length, device="cpu").view(10, -1) % VOCABULARY
    logits, cache = model.run_with_cache(tokens)
    intact = {name.removeprefix("blocks.0."): x for name, x in cache.items()}
    resid, z, mid = intact["resid_pre"], intact["attn.z"], intact["resid_mid"]
    post = intact["resid_post"]
    z_of_head_1 = z * z.new_tensor([[0.0], [1.0]])
    mid_of_head_1 = layer.o(z_of_head_1.flatten(-2))

    conditions = nothing, head_1 = Zeroed(), Zeroed(heads=frozenset({0}), skip=True)
    block = CompiledBlock(layer, range(length))
    first_mids = CompiledFirstLayer(model).mids(tokens, slice(None), conditions)
    mids = block.mids(resid, z, conditions)
    neuron_0 = Zeroed(neurons=frozenset({0}))
    post_without = post - intact["mlp.post"][..., :1] * layer.down.weight[:, 0]
    compared = [
        (first_mids[nothing], mid),
        (first_mids[head_1], mid_of_head_1),
        (block.z(resid), z),
        (mids[nothing], mid),
        (mids[head_1], mid_of_head_1),
        (block.after(mid, nothing), post),
        (block.after(mid, neuron_0), post_without),
        (CompiledUnembedding(model)(post), logits),
    ]
    return all(torch.allclose(x, y, CLOSE, CLOSE * float(y.abs().max())) for x, y in compared)


def _known_model() -> Transformer:
    """Return a model whose weights depend on nothing; the caller's random numbers stay the same."""
    with torch.random.fork_rng(devices=[]):
        model = Transformer(KNOWN).to("cpu", torch.float32)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.normal_(std=0.2, generator=generator)
    return model
