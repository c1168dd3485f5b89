"""The bf16 training step in C++ (`fused.cpp`), built on first use where a compiler and AVX512-bf16 are there.

It draws other dropout masks than PyTorch's step (`stacked`), which stays the reference, and rounds in other places: so
it is a precision of its own, `fused`, which a checkpoint names and goes on with. What does not depend on the batch is
PyTorch's: LayerNorms and dropout's scales folded into weights, layer 0's tables, and autograd through both.
"""

import ctypes
import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.random import SFC64, SeedSequence
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.files import replacing
from carry_core.sums import VOCABULARY
from carry_core.training.stacked import SCALE, THRESHOLD, Stack

SOURCE = Path(__file__).with_name("fused.cpp")
FLAGS = ["-std=c++17", "-O3", "-march=native", "-fno-strict-aliasing", "-shared", "-fPIC"]
INSTRUCTIONS = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"}
MOST_LAYERS, MOST_NEURONS, MOST_POSITIONS = 3, 1024, 31  # as `fused.cpp` has room for


@cache
def library() -> ctypes.CDLL:
    """The compiled step, from the cache if it was built on such a processor before; BadInput where it cannot be."""
    flags, compiler = set(cpu_info("flags").split()), shlex.split(os.environ.get("CXX") or "g++")
    if missing := INSTRUCTIONS - flags:
        raise _cannot(f"the processor lacks {', '.join(sorted(missing))}")
    if shutil.which(compiler[0]) is None:
        raise _cannot(f"there is no compiler {compiler[0]}")
    key = hashlib.sha256("\n".join([SOURCE.read_text(), *compiler, *FLAGS, *sorted(flags)]).encode())
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "carry_core"
    path = folder / f"fused-{key.hexdigest()[:16]}.so"
    try:
        if not path.exists():
            with replacing(path) as temporary:
                command = [*compiler, *FLAGS, "-o", str(temporary), str(SOURCE)]
                subprocess.run(command, check=True, capture_output=True, text=True)
        return ctypes.CDLL(str(path))
    except subprocess.CalledProcessError as error:
        said = [line for line in error.stderr.splitlines() if "error" in line] or [f"exit {error.returncode}"]
        raise _cannot(f"{compiler[0]}: {said[0]}") from error
    except (OSError, BadInput) as error:
        raise _cannot(str(error)) from error


def why_not() -> str:
    """Why there is no fused step on this machine; nothing where there is."""
    try:
        library()
    except BadInput as error:
        return str(error)
    return ""


def cpu_info(entry: str) -> str:
    """What Linux tells of the processor, such as its `flags`; nothing elsewhere."""
    info = Path("/proc/cpuinfo")
    found = re.search(rf"^{entry}\s*: (.+)", info.read_text() if info.exists() else "", re.MULTILINE)
    return found[1] if found else ""


def _cannot(why: str) -> BadInput:
    return BadInput(f"The fused step cannot be had here ({why}): choose another precision, such as bf16.")


class LaneMasks:
    """Where each run's dropout stands: eight SFC64 streams a run, whose bits `fused.cpp` draws in parallel."""

    def __init__(self, seeds: Sequence[SeedSequence]) -> None:
        states = [[SFC64(lane).state["state"]["state"] for lane in seed.spawn(8)] for seed in seeds]
        self.words = np.array(states, dtype=np.uint64).transpose(0, 2, 1).copy()  # (run, word, lane)

    def state(self, run: int) -> dict[str, Any]:
        """Each lane's four words, ready for JSON."""
        return {"lanes": self.words[run].T.tolist()}

    def set_state(self, run: int, state: dict[str, Any]) -> None:
        self.words[run] = np.array(state["lanes"], dtype=np.uint64).T


class Linear(ctypes.Structure):
    """`Linear` of `fused.cpp`."""

    _fields_ = [(name, ctypes.c_int) for name in ("d_in", "d_out")] + [
        (name, ctypes.c_void_p) for name in ("forward", "backward", "bias", "weight_gradient", "bias_gradient")
    ]


class Weights(ctypes.Structure):
    """`Weights` of `fused.cpp`."""

    _fields_ = [
        *[(name, ctypes.c_int) for name in ("layers", "length", "read", "d_ff", "pairs", "causal")],
        *[(name, ctypes.c_void_p) for name in ("cosine", "sine")],
        *[(name, ctypes.c_void_p * 6) for name in ("tables", "gradients")],
        ("linear", Linear * 4 * MOST_LAYERS),
    ]


class FusedStep:
    """Loss, gradients and logits of runs, one after the other; BadInput for models of other sizes than it knows."""

    def __init__(self, stack: Stack, parameters: Mapping[str, Tensor], dropout: Sequence[SeedSequence]) -> None:
        config, layout = stack.config, stack.config.layout
        if stack.token.device.type != "cpu":
            raise _cannot("it is for a CPU")
        if config.d_model != 128 or config.heads != 2 or config.d_ff % 128 or not config.d_ff:
            raise _cannot("the model has other sizes than the paper's")
        if config.layers > MOST_LAYERS or config.d_ff > MOST_NEURONS or layout.length > MOST_POSITIONS:
            raise _cannot(f"it knows at most {MOST_LAYERS} layers, {MOST_NEURONS} neurons, {MOST_POSITIONS} positions")
        self.library, self.stack, self.parameters, self.masks = library(), stack, parameters, LaneMasks(dropout)
        pointers = [ctypes.c_void_p] * 5
        self.library.run.argtypes = [ctypes.POINTER(Weights), ctypes.c_long, *pointers[:3], ctypes.c_int, *pointers[3:]]
        turn = stack.turn.float().repeat(1, config.heads, 1)  # (pos, d_model / 2, 2)
        cosine, sine = turn.unbind(-1)
        self.cosine = cosine.repeat_interleave(2, -1).contiguous()
        self.sine = torch.stack([-sine, sine], -1).flatten(1)
        self.sizes = config.layers, layout.length, layout.loss_positions[0], config.d_ff, len(stack.token)

    def step(self, rows: Int[Tensor, "run pos batch"], target: Int[Tensor, "run read batch"]) -> dict[str, Tensor]:
        """Add to each parameter's gradient; loss and accuracies as `Trainer.score` gives them."""
        rows, target, count = rows.int().contiguous(), target.int().contiguous(), rows.shape[2]
        folded = self.folded(SCALE)
        packed, gradients = self.packed(folded), [torch.zeros_like(x) for x in folded]
        metrics = torch.zeros(len(rows), 2 + target.shape[1], dtype=torch.float64)
        for run in range(len(rows)):
            weights, words = self.weights(run, folded, packed, gradients), self.masks.words[run].ctypes.data
            sums = rows[run].data_ptr(), target[run].data_ptr()
            self.library.run(weights, count, *sums, words, THRESHOLD, metrics[run].data_ptr(), None)
        torch.autograd.backward(folded, gradients)
        means = (metrics / count).float()
        return {"loss": means[:, 0] / target.shape[1], "accuracy": means[:, 1:-1], "whole": means[:, -1]}

    @torch.no_grad()
    def logits(self, rows: Int[Tensor, "run pos batch"]) -> tuple[Tensor, Tensor]:
        """Logits `[run, read, batch, vocab]` without dropout: with the final MLP ablated, and intact."""
        rows, folded = rows.int().contiguous(), self.folded(1.0)
        packed, words = self.packed(folded), torch.zeros(256, dtype=torch.uint8)  # which are drawn, and drop nothing
        layout, count = self.stack.config.layout, rows.shape[2]
        logits = torch.empty(len(rows), 2, len(layout.loss_positions), count, VOCABULARY)
        for run in range(len(rows)):
            weights, out = self.weights(run, folded, packed), logits[run].data_ptr()
            self.library.run(weights, count, rows[run].data_ptr(), None, words.data_ptr(), 0, None, out)
        return logits[:, 0], logits[:, 1]

    def folded(self, scale: float) -> list[Tensor]:
        """Weights and biases, and layer 0's tables, from the parameters and dropout's scale, each `[run, …]`."""
        p, config = self.parameters, self.stack.config
        found: list[Tensor] = []
        for l in range(config.layers):
            block, out_bias = f"blocks.{l}", p[f"blocks.{l}.o.bias"] * scale
            if l == 0:
                stream, score, v = self.stack.tables(p)
                o = p["blocks.0.o.weight"].unflatten(-1, (config.heads, -1)) * scale**2
                found += [stream, score, torch.einsum("rjhd,rohd->rhjo", v, o), out_bias]
            else:
                found += self.stack.folded(p, f"{block}.norm", *(f"{block}.{x}" for x in "kvq"))
                found += [p[f"{block}.o.weight"] * scale**2, out_bias]
            found += self.stack.folded(p, f"{block}.norm", f"{block}.up")
            found += [p[f"{block}.down.weight"] * scale**2, p[f"{block}.down.bias"] * scale]
        return [x.contiguous() for x in (*found, *self.stack.folded(p, "norm", "unembed"))]

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
    ) -> Weights:
        """Where everything lies that `run` takes."""

        def pointers(*tensors: Tensor) -> list[int]:
            return [x[run].data_ptr() for x in tensors]

        tables = [(ctypes.c_void_p * 6)(*(pointers(*x[:4], *x[-2:]) if x else ())) for x in (folded, gradients)]
        turns = self.cosine.data_ptr(), self.sine.data_ptr()
        found = Weights(*self.sizes, self.stack.config.causal, *turns, *tables)
        for i, (weight, both) in enumerate(zip(folded[4:-2:2], packed, strict=True)):
            at = slice(4 + 2 * i, 6 + 2 * i)
            where = pointers(*both, folded[at][1], *(gradients[at] if gradients else ()))
            found.linear[(i + 2) // 4][(i + 2) % 4] = Linear(weight.shape[2], weight.shape[1], *where)
        return found
