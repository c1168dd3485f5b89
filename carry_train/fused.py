"""The training step in C++ (`native/fused.cpp`), built on first use for each number format.

It needs Linux, a compiler, and a processor with AVX2, AVX512 or, on ARM, NEON; for bf16, one with
AVX512-bf16. Its dropout masks are the same in all formats, but not those of PyTorch's step
(`stacked`), which stays the reference, and it rounds in other places. So a checkpoint names its
precision, and is only resumed in the same.
"""

import ctypes
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.random import SFC64, SeedSequence
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.model import ModelConfig
from carry_core.sums import VOCABULARY
from carry_fast import native, processor
from carry_train.stacked import Stack

# The version of each format's rounding: raise it with any change that moves a bit of a run.
VERSIONS = {"fp32": 1, "bf16": 2}
SOURCE = Path(__file__).with_name("native") / "fused.cpp"
AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})
# The vector registers that the step can use, the widest first: the number of floats in one, and the
# instructions that it takes. The last ones are ARM's.
REGISTERS = {16: AVX512, 8: frozenset({"avx2", "fma"}), 4: frozenset({"asimd"})}
# Each of these multiplies numbers in bf16, by Linux's names: the last one on ARM.
BF16_INSTRUCTIONS = {"avx512_bf16", "amx_bf16", "bf16"}
# `sizes.h` makes room for these, and supports only the paper's D_MODEL.
D_MODEL = 128
MOST_LAYERS = 4
MOST_NEURONS = 1024
MOST_POSITIONS = 31
NEURONS_AT_ONCE = 128  # those of an MLP are padded to a multiple of it
PAIRS_AT_ONCE = 64  # the (token, position) pairs are padded to a multiple of it
MOST_LANES = 16  # floats in a vector register: each parameter begins at a multiple of it
MASK_STREAMS = 8  # of each run: `random.h` draws from them in parallel


def lanes() -> int:
    """Return the number of floats in the processor's widest registers that the step can use.

    Without any it is the number for AVX2, which `library` then names as missing.
    """
    instructions = processor.this().instructions
    return next((n for n, needed in REGISTERS.items() if needed <= instructions), 8)


def library(format: str) -> ctypes.CDLL:
    """Return the compiled step, from the cache if it was built for this kind of processor before.

    Args:
        format: That of the operands of matrix products, `fp32` or `bf16`.

    Raises:
        BadInput: It cannot be built or loaded here.
    """
    width = lanes()
    needed, options = REGISTERS[width], flags(format, width)
    if format == "bf16":
        needed = AVX512 | {"avx512_bf16"}
        options.append("-mavx512bf16")  # a compiler that does not know it would emulate it
    try:
        return native.library(SOURCE, options, needed)
    except native.CannotBuild as error:
        raise _cannot(format, str(error)) from error


def flags(format: str, width: int) -> list[str]:
    """Return the compiler's options for a format and vectors of `width` floats.

    Vectors that are wider than the processor's work, too, but are slow: they are computed in parts.
    """
    options = ["-march=native", f"-DVECTOR_BITS={32 * width}"]
    return [*options, "-DBF16"] if format == "bf16" else options


def why_not(format: str) -> str:
    """Return the reason why this machine has no fused step in a format; "" if it has one."""
    try:
        library(format)
    except BadInput as error:
        return str(error)
    return ""


def has_bf16() -> bool:
    """Return True if the processor is known to have instructions for bf16.

    Without them PyTorch emulates bf16, which makes a training step ten times slower.
    """
    return not BF16_INSTRUCTIONS.isdisjoint(processor.this().instructions)


def _cannot(format: str, reason: str) -> BadInput:
    return BadInput(
        f"The fused step in {format} cannot be had here ({reason}): "
        "choose another precision, such as auto."
    )


class FusedMasks:
    """The states of each run's dropout: eight SFC64 streams, from which `random.h` draws."""

    def __init__(self, seeds: Sequence[SeedSequence]) -> None:
        states = []
        for seed in seeds:
            streams = [SFC64(child) for child in seed.spawn(MASK_STREAMS)]
            states.append([stream.state["state"]["state"] for stream in streams])
        # (run, word, stream)
        self.words = np.array(states, dtype=np.uint64).transpose(0, 2, 1).copy()

    def state(self, run: int) -> dict[str, Any]:
        """Return each stream's four words, ready for JSON; checkpoints call the streams lanes."""
        return {"lanes": self.words[run].T.tolist()}

    def set_state(self, run: int, state: dict[str, Any]) -> None:
        """Set the run's streams to what `state` returned."""
        self.words[run] = np.array(state["lanes"], dtype=np.uint64).T


class Parameter(ctypes.Structure):
    """The structure `Parameter` of `native/folding.h`, as are those below by their names."""

    _fields_ = [("value", ctypes.c_void_p), ("gradient", ctypes.c_void_p)]


class Affine(ctypes.Structure):
    """A linear map, a norm's gain and shift, or the embedding, which has no bias."""

    _fields_ = [("weight", Parameter), ("bias", Parameter)]


class BlockParameters(ctypes.Structure):
    """Parameters of a block, named as in `model.Block`."""

    _fields_ = [(name, Affine) for name in ("norm", "q", "k", "v", "o", "up", "down")]


class Parameters(ctypes.Structure):
    """Parameters of one run, named as in `model.Transformer`."""

    _fields_ = [
        ("embed", Affine),
        ("blocks", BlockParameters * MOST_LAYERS),
        ("norm", Affine),
        ("unembed", Affine),
    ]

    def place(self, name: str, value: Tensor, gradient: Tensor) -> None:
        """Point the parameter with this dotted name to these tensors' memory."""
        owner: Any = self
        *path, kind = name.split(".")
        for part in path:
            owner = owner[int(part)] if part.isdigit() else getattr(owner, part)
        setattr(owner, kind, Parameter(value.data_ptr(), gradient.data_ptr()))


SIZES = ("layers", "heads", "length", "d_ff", "read", "causal", "pairs")


class Model(ctypes.Structure):
    """Sizes, constants and parameters of one run's model."""

    _fields_ = [
        *[(name, ctypes.c_int) for name in SIZES],
        ("token_of_pair", ctypes.c_void_p),
        *[(name, ctypes.c_void_p) for name in ("cosine", "sine", "cosine_of_pair", "sine_of_pair")],
        ("parameters", Parameters),
    ]


class FlatParameters:
    """All parameters of each run in one row of `values`, which an optimiser updates at once.

    `gradients` has the same shape. Each MLP has room for a multiple of `NEURONS_AT_ONCE` neurons.
    Those beyond its own have parameters of zero, which get gradients of zero and stay so.
    """

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self.shapes = {name: p.shape[1:] for name, p in parameters.items()}
        self.rooms = {name: room(name, shape) for name, shape in self.shapes.items()}
        self.starts: dict[str, int] = {}
        size = 0
        for name, padded in self.rooms.items():
            self.starts[name] = size
            size += math.ceil(math.prod(padded) / MOST_LANES) * MOST_LANES
        n_runs = len(next(iter(parameters.values())))
        self.values = torch.zeros(n_runs, size, dtype=torch.float32)
        self.values.grad = self.gradients = torch.zeros_like(self.values)
        for name, view in self.views(self.values).items():
            view.copy_(parameters[name].detach())

    def views(self, flat: Float[Tensor, "run size"]) -> dict[str, Tensor]:
        """Return each parameter's part of an array like `values`, `[run, …]`, in its memory."""
        views = {}
        for name, shape in self.shapes.items():
            start, padded = self.starts[name], self.rooms[name]
            whole = flat[:, start : start + math.prod(padded)].unflatten(1, padded)
            views[name] = whole[:, *map(slice, shape)]
        return views


def room(name: str, shape: Sequence[int]) -> list[int]:
    """Return the shape in memory of a parameter of this shape."""
    padded = [*shape]
    dimension = {"up": 0, "down": 1}.get(name.split(".")[-2])
    if dimension is not None and dimension < len(shape):  # the neurons'
        padded[dimension] = padded_neurons(shape[dimension])
    return padded


def padded_neurons(count: int) -> int:
    """Return the next multiple of `NEURONS_AT_ONCE`."""
    return math.ceil(count / NEURONS_AT_ONCE) * NEURONS_AT_ONCE


def rotation(turn: Float[Tensor, "row angle 2"], heads: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, `[row + 1, d_model]` each, of all heads' rotary embedding.

    Neighbouring columns (x0, x1) are rotated to (x0, x1) * cosine + (x1, x0) * sine. The row that
    is added, of zeros, is read where a vector is wider than the last head.
    """
    cosine, sine = turn.float().unbind(-1)
    both_cosines = cosine.repeat_interleave(2, -1)
    signed_sines = torch.stack([-sine, sine], -1).flatten(1)
    of_heads = (x.repeat(1, heads) for x in (both_cosines, signed_sines))
    cosines, sines = (F.pad(x, (0, 0, 0, 1)) for x in of_heads)
    return cosines, sines


class FusedStep:
    """Loss, gradients and logits of runs, one after the other.

    It trains a copy of `parameters`, in `flat`. A step writes all of `gradients`.
    """

    def __init__(
        self,
        stack: Stack,
        parameters: Mapping[str, Tensor],
        dropout: Sequence[SeedSequence],
        format: str,
    ) -> None:
        """Copy the parameters; raise `BadInput` if there is no step for such a model here."""
        if stack.token.device.type != "cpu":
            raise _cannot(format, "it is for a CPU")
        check_sizes(stack.config)
        self.library = library(format)
        self.stack = stack
        self.masks = FusedMasks(dropout)
        self.flat = FlatParameters(parameters)
        self.parameters = self.flat.views(self.flat.values)
        self.gradients = self.flat.views(self.flat.gradients)

        missing = -len(stack.token) % PAIRS_AT_ONCE
        self.token_of_pair = F.pad(stack.token, (0, missing)).int()
        unturned = torch.tensor([1.0, 0.0]).expand(missing, *stack.turn_of_row.shape[1:])
        turn_of_pair = torch.cat([stack.turn_of_row.float(), unturned])
        self.rotation = rotation(stack.turn, stack.config.heads)
        self.rotation_of_pair = rotation(turn_of_pair, stack.config.heads)
        self.models = [self.model(run) for run in range(len(dropout))]

    def model(self, run: int) -> Model:
        """Return one run's model for the library, which reads and writes this object's tensors."""
        config = self.stack.config
        layout = config.layout
        model = Model(
            layers=config.layers,
            heads=config.heads,
            length=layout.length,
            d_ff=padded_neurons(config.d_ff),
            read=layout.loss_positions[0],
            causal=config.causal,
            pairs=len(self.token_of_pair),
            token_of_pair=self.token_of_pair.data_ptr(),
        )
        model.cosine, model.sine = (x.data_ptr() for x in self.rotation)
        model.cosine_of_pair, model.sine_of_pair = (x.data_ptr() for x in self.rotation_of_pair)
        for name, value in self.parameters.items():
            model.parameters.place(name, value[run], self.gradients[name][run])
        return model

    def step(
        self, rows: Int[Tensor, "run pos batch"], target: Int[Tensor, "run read batch"]
    ) -> dict[str, Tensor]:
        """Write each parameter's gradient; return loss and accuracies as `Trainer.score` does."""
        rows = rows.int().contiguous()
        target = target.int().contiguous()
        n_read, count = target.shape[1:]
        totals = torch.zeros(len(rows), 2 + n_read, dtype=torch.float64)
        for run, model in enumerate(self.models):
            self.library.step(
                ctypes.byref(model),
                ctypes.c_long(count),
                ctypes.c_void_p(rows[run].data_ptr()),
                ctypes.c_void_p(target[run].data_ptr()),
                ctypes.c_void_p(self.masks.words[run].ctypes.data),
                ctypes.c_int(self.stack.threshold),
                ctypes.c_float(self.stack.scale),
                ctypes.c_void_p(totals[run].data_ptr()),
            )
        means = (totals / count).float()
        return {"loss": means[:, 0] / n_read, "accuracy": means[:, 1:-1], "whole": means[:, -1]}

    @torch.no_grad()
    def logits(self, rows: Int[Tensor, "run pos batch"]) -> tuple[Tensor, Tensor]:
        """Return the logits without dropout: with the final MLP ablated, and intact.

        They are `[run, read, batch, vocab]` each.
        """
        rows = rows.int().contiguous()
        count = rows.shape[2]
        n_read = len(self.stack.config.layout.loss_positions)
        logits = torch.empty(len(rows), 2, n_read, count, VOCABULARY, dtype=torch.float32)
        for run, model in enumerate(self.models):
            self.library.logits(
                ctypes.byref(model),
                ctypes.c_long(count),
                ctypes.c_void_p(rows[run].data_ptr()),
                ctypes.c_void_p(logits[run].data_ptr()),
            )
        return logits[:, 0], logits[:, 1]


def check_sizes(config: ModelConfig) -> None:
    """Raise `BadInput` if `sizes.h` has no room for a model."""
    has_room = (
        config.layers <= MOST_LAYERS
        and config.d_ff <= MOST_NEURONS
        and config.layout.length <= MOST_POSITIONS
    )
    if not has_room or config.d_model != D_MODEL:
        raise BadInput(
            f"The fused step supports up to {MOST_LAYERS} layers, d_model {D_MODEL}, d_ff up to "
            f"{MOST_NEURONS} and up to {MOST_POSITIONS} positions; this model has {config.layers} "
            f"layers, d_model {config.d_model}, d_ff {config.d_ff} and {config.layout.length} "
            "positions: "
            "choose another precision, such as auto."
        )
