"""The bf16 training step in C++ (`fused.cpp`), built on first use where a compiler and AVX512-bf16 are there.

Elsewhere PyTorch does the step (`trainer`, `stacked`), which stays the reference. The two draw other masks and round in
other places, so a checkpoint names its kernel and goes on with that one only. CARRY_KERNEL chooses: `auto` (the
default), `torch`, or `fused`, which is an error where it cannot be had.
"""

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.random import SFC64, SeedSequence
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.files import replacing
from carry_core.model import ModelConfig
from carry_core.sums import VOCABULARY
from carry_core.training.dropout import THRESHOLD
from carry_core.training.stacked import Stack

SOURCE = Path(__file__).with_name("fused.cpp")
FLAGS = ["-std=c++17", "-O3", "-march=native", "-fno-strict-aliasing", "-shared", "-fPIC"]
INSTRUCTIONS = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"}
LANES = 8  # of the generator
MOST_LAYERS, MOST_NEURONS, MOST_POSITIONS = 3, 1024, 31  # as `fused.cpp` has room for


class Unavailable(Exception):
    """The fused step cannot be had on this machine; the message says why."""


def choose_kernel(
    config: ModelConfig, device: torch.device, precision: str, trained_by: set[str] | None = None
) -> Literal["torch", "fused"]:
    """The kernel to train with.

    Args:
        config: of the models.
        device: where they are trained.
        precision: as in `trainer.PRECISIONS`.
        trained_by: the kernels that the runs' checkpoints name, None for new runs.

    Raises:
        BadInput: CARRY_KERNEL is none of the three, or the kernel asked for, there or by the checkpoints, cannot be
            had or is not one.
    """
    wish = os.environ.get("CARRY_KERNEL") or "auto"
    if wish not in ("auto", "torch", "fused"):
        raise BadInput(f"CARRY_KERNEL={wish}: expected auto, torch or fused.")
    named = trained_by or ({wish} if wish != "auto" else set())
    if trained_by is not None and (len(named) > 1 or not named <= {"torch", "fused"} or wish not in ("auto", *named)):
        kernels = " and ".join(sorted(map(str, named)))
        raise BadInput(
            f"The checkpoints were trained by kernel {kernels}, CARRY_KERNEL is {wish}: expected one kernel for all,"
            f" torch or fused; set CARRY_KERNEL=auto to go on with it, or move the checkpoints away."
        )
    if named == {"torch"}:
        return "torch"
    why = why_not(config, device, precision)
    if why is None:
        return "fused"
    if named == {"fused"}:
        asks, remedy = ("CARRY_KERNEL", "unset it") if trained_by is None else ("A checkpoint", "move it away")
        raise BadInput(f"{asks} asks for the fused step, which cannot be had here ({why}): {remedy}.")
    return "torch"


def why_not(config: ModelConfig, device: torch.device, precision: str) -> str | None:
    """Why such models cannot be trained by the fused step here, None if they can."""
    if precision != "bf16" or device.type != "cpu":
        return "it is for a CPU and --precision bf16"
    if config.d_model != 128 or config.heads != 2 or config.d_ff % 128 or not config.d_ff:
        return "the model has other sizes than the paper's"
    if config.layers > MOST_LAYERS or config.d_ff > MOST_NEURONS or config.layout.length > MOST_POSITIONS:
        return f"it knows at most {MOST_LAYERS} layers, {MOST_NEURONS} neurons and {MOST_POSITIONS} positions"
    try:
        library()
    except Unavailable as why:
        return str(why)
    return None


class Linear(ctypes.Structure):
    """`Linear` of `fused.cpp`."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("d_in", "d_out")),
        *((name, ctypes.c_void_p) for name in ("forward", "backward", "bias", "weight_gradient", "bias_gradient")),
    ]  # fmt: skip


class Weights(ctypes.Structure):
    """`Weights` of `fused.cpp`."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("layers", "length", "read", "d_ff", "pairs", "causal")),
        *((name, ctypes.c_void_p) for name in ("cosine", "sine")),
        *((name, ctypes.c_void_p * 6) for name in ("tables", "gradients")),
        ("linear", Linear * 4 * MOST_LAYERS),
    ]  # fmt: skip


def library() -> ctypes.CDLL:
    """The compiled step, from the cache where it was built before.

    Raises:
        Unavailable: the processor lacks an instruction, there is no compiler, or it fails, which is also told once.
    """
    result = _load()
    if isinstance(result, Unavailable):
        raise result
    return result


@cache
def _load() -> ctypes.CDLL | Unavailable:
    flags = cpu_flags()
    if missing := INSTRUCTIONS - flags:
        return Unavailable(f"the processor lacks {', '.join(sorted(missing))}")
    compiler = shlex.split(os.environ.get("CXX") or "g++")
    if shutil.which(compiler[0]) is None:
        return Unavailable(f"there is no compiler {compiler[0]}")
    key = hashlib.sha256("\n".join([SOURCE.read_text(), *compiler, *FLAGS, *sorted(flags)]).encode())
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "carry_core"
        path = folder / f"fused-{key.hexdigest()[:16]}.so"
        if not path.exists():
            _build(compiler, path)
        loaded = ctypes.CDLL(str(path))
    except (OSError, RuntimeError, BadInput, subprocess.SubprocessError) as error:
        why = _first_line(error)
        print(f"Training in bf16 by PyTorch, since the faster step could not be built: {why}", file=sys.stderr)
        return Unavailable(why)
    return loaded


def _build(compiler: list[str], path: Path) -> None:
    with replacing(path) as temporary:
        command = [*compiler, *FLAGS, "-o", str(temporary), str(SOURCE)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)


def _first_line(error: Exception) -> str:
    """What went wrong in one line: of a compiler's complaints the first."""
    if isinstance(error, subprocess.CalledProcessError):
        said = [line for line in (error.stderr or "").splitlines() if "error" in line] or [f"exit {error.returncode}"]
        return f"{error.cmd[0]}: {said[0]}"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def cpu_flags() -> frozenset[str]:
    """The processor's instruction sets, where the system tells them."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return frozenset()


class LaneMasks:
    """Where each run's dropout stands: eight SFC64 streams a run, whose bits `fused.cpp` draws in parallel."""

    def __init__(self, seeds: list[SeedSequence]) -> None:
        lanes = [
            [
                SFC64(SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, lane))).state["state"]["state"]
                for lane in range(LANES)
            ]
            for seed in seeds
        ]
        self.words = np.array(lanes, dtype=np.uint64).transpose(0, 2, 1).copy()  # (run, word, lane)

    def state(self, run: int) -> dict[str, Any]:
        """Where the run's streams stand, ready for JSON: each lane's four words."""
        return {"lanes": self.words[run].T.tolist()}

    def set_state(self, run: int, state: dict[str, Any]) -> None:
        """Continue the run's streams from there."""
        if "lanes" in state:
            self.words[run] = np.array(state["lanes"], dtype=np.uint64).T


class FusedStep:
    """Loss, gradients and logits of runs that are trained side by side, one after the other.

    What does not depend on the batch is PyTorch's: LayerNorms and dropout's scales folded into weights, layer 0's
    tables, and autograd through both. `fused.cpp` does the rest.
    """

    def __init__(self, stack: Stack, parameters: Mapping[str, Tensor]) -> None:
        self.library, self.parameters = library(), parameters
        self.config, self.stack = stack.config, Stack(stack.config, torch.device("cpu"))  # tables in float32
        layout = self.config.layout
        cos, sin = self.stack.turn.float().repeat(1, self.config.heads, 1).unbind(-1)  # (pos, d_model / 2)
        self.cosine = cos.repeat_interleave(2, -1).contiguous()
        self.sine = torch.stack([-sin, sin], -1).flatten(1)
        self.sizes = (
            self.config.layers, layout.length, layout.loss_positions[0], self.config.d_ff,
            len(self.stack.pairs.token), layout.causal, self.cosine.data_ptr(), self.sine.data_ptr(),
        )  # fmt: skip

    def step(
        self, rows: Int[Tensor, "run pos batch"], target: Int[Tensor, "run read batch"], masks: LaneMasks
    ) -> dict[str, Tensor]:
        """Put each parameter's gradient in place; loss and accuracies as `Trainer.score` gives them."""
        rows, target, count = rows.int().contiguous(), target.int().contiguous(), rows.shape[2]
        folded = self.folded(65536 / (65536 - THRESHOLD))
        packed, gradients = self.packed(folded), [torch.zeros_like(x) for x in folded]
        metrics = torch.zeros(len(rows), 2 + target.shape[1], dtype=torch.float64)
        for run in range(len(rows)):
            self.library.run(
                self.weights(run, folded, packed, gradients), ctypes.c_long(count), _pointer(rows[run]),
                _pointer(target[run]), ctypes.c_void_p(masks.words[run].ctypes.data), THRESHOLD,
                _pointer(metrics[run]), None, None,
            )  # fmt: skip
        for p in self.parameters.values():
            p.grad = None
        torch.autograd.backward(folded, gradients)
        means = (metrics / count).float()
        return {"loss": means[:, 0] / target.shape[1], "accuracy": means[:, 1:-1], "whole": means[:, -1]}

    @torch.no_grad()
    def logits(
        self, rows: Int[Tensor, "run pos batch"]
    ) -> tuple[Float[Tensor, "run read batch vocab"], Float[Tensor, "run read batch vocab"]]:
        """Logits without dropout: with the final MLP ablated, and intact."""
        rows, folded = rows.int().contiguous(), self.folded(1.0)
        packed, masks = self.packed(folded), torch.zeros(256, dtype=torch.uint8)
        after, before = torch.empty(2, len(rows), len(self.config.layout.loss_positions), rows.shape[2], VOCABULARY)
        for run in range(len(rows)):  # no sum is dropped
            self.library.run(
                self.weights(run, folded, packed), ctypes.c_long(rows.shape[2]), _pointer(rows[run]), None,
                _pointer(masks), 0, None, _pointer(after[run]), _pointer(before[run]),
            )  # fmt: skip
        return before, after

    def folded(self, scale: float) -> list[Tensor]:
        """Weights and biases, and layer 0's tables, from the parameters and dropout's scale, each `[run, …]`."""
        p, found = self.parameters, []
        for l in range(self.config.layers):
            block, out_bias = f"blocks.{l}", p[f"blocks.{l}.o.bias"] * scale
            if l == 0:
                stream, score, v = self.stack.tables(p)
                o = p["blocks.0.o.weight"].unflatten(-1, (self.config.heads, -1)) * scale**2
                found += [stream, score, torch.einsum("rjhd,rohd->rhjo", v, o), out_bias]
            else:
                found += [*self._behind(f"{block}.norm", *(f"{block}.{x}" for x in "kvq"))]
                found += [p[f"{block}.o.weight"] * scale**2, out_bias]
            found += [*self._behind(f"{block}.norm", f"{block}.up")]
            found += [p[f"{block}.down.weight"] * scale**2, p[f"{block}.down.bias"] * scale]
        return [x.contiguous() for x in (*found, *self._behind("norm", "unembed"))]

    @torch.no_grad()
    def packed(self, folded: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Each weight twice in bf16, `forward` and `backward` of `Linear`."""
        halves = [weight.bfloat16() for weight in folded[4:-2:2]]
        by_block = [x.view(len(x), -1, 128, x.shape[2] // 2, 2) for x in halves]  # (run, block, output, word, 2)
        by_word = [x.view(len(x), x.shape[1] // 2, 2, -1, 128) for x in halves]  # (run, word, 2, block, input)
        return [
            (columns.transpose(2, 3).contiguous(), rows.permute(0, 3, 1, 4, 2).contiguous())
            for columns, rows in zip(by_block, by_word, strict=True)
        ]

    def weights(
        self, run: int, folded: list[Tensor], packed: list[tuple[Tensor, Tensor]], gradients: list[Tensor] | None = None
    ) -> "ctypes._CArgObject":
        """What `run` takes: where everything lies."""

        def pointers(*tensors: Tensor) -> list[int]:
            return [x.data_ptr() + run * x.stride(0) * x.itemsize for x in tensors]

        given = [pointers(*x[:4], *x[-2:]) if x else [] for x in (folded, gradients)]
        found = Weights(*self.sizes, *((ctypes.c_void_p * 6)(*x) for x in given))
        for i, (weight, both) in enumerate(zip(folded[4:-2:2], packed, strict=True)):
            at = slice(4 + 2 * i, 6 + 2 * i)
            where = pointers(*both, folded[at][1], *(gradients[at] if gradients else ()))
            found.linear[(i + 2) // 4][(i + 2) % 4] = Linear(weight.shape[2], weight.shape[1], *where)
        return ctypes.byref(found)

    def _behind(self, norm: str, *names: str) -> tuple[Tensor, Tensor]:
        """Weights and biases of linear maps behind a norm, one under the other, with its gain and shift folded in."""
        weight, bias = (torch.cat([self.parameters[f"{x}.{kind}"] for x in names], 1) for kind in ("weight", "bias"))
        gain, shift = (self.parameters[f"{norm}.{kind}"] for kind in ("weight", "bias"))
        return weight * gain.unsqueeze(1), bias + (weight @ shift.unsqueeze(-1)).squeeze(-1)


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())
