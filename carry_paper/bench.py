"""A benchmark of our training step against plain PyTorch (`carry bench train`).

Both are timed in turns, in one process on the same machine.
"""

import math
import platform
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from carry_core import sums
from carry_core.files import data_dir
from carry_core.model import ModelConfig, Transformer, rotate
from carry_fast import processor
from carry_fast.layers import keep_memory
from carry_paper.schemas import read_json
from carry_train import choice
from carry_train.files import write_json
from carry_train.groups import RECIPES, Group
from carry_train.precisions import ALL, TORCH_BF16, TORCH_FP32, TRITON, Precision
from carry_train.trainer import BETAS, EPSILON, Trainer, commit

Row = dict[str, Any]
DROPOUT = 0.1  # the paper's rate
CALLS = 2  # of a task, one after the other, in each round
LAYERS = [Group(f"n{layers}", ModelConfig(layers=layers), fraction=0.01) for layers in (1, 2, 3)]


class Plain:
    """The baseline: the model and the optimiser step as a PyTorch user writes them, for one run."""

    def __init__(self, group: Group) -> None:
        self.config = group.config
        self.model = Transformer(group.config).train()
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(),
            lr=1e-3,
            betas=BETAS,
            eps=EPSILON,
            weight_decay=group.decay,
            fused=True,
        )

    def logits(self, tokens: Tensor, dropout: float) -> Tensor:
        """Return logits at all positions, by `scaled_dot_product_attention` and `F.dropout`."""
        by_head = (self.config.heads, self.config.d_head)
        resid = self.model.embed(tokens) * math.sqrt(self.config.d_model)
        for block in self.model.blocks:
            x = block.norm(resid)
            q = rotate(block.q(x).unflatten(-1, by_head), block.rotation).transpose(1, 2)
            k = rotate(block.k(x).unflatten(-1, by_head), block.rotation).transpose(1, 2)
            v = rotate(block.v(x).unflatten(-1, by_head), block.rotation).transpose(1, 2)
            z = F.scaled_dot_product_attention(
                q, k, v, dropout_p=dropout, is_causal=self.config.causal
            )
            resid = resid + F.dropout(block.o(z.transpose(1, 2).flatten(-2)), dropout)
            hidden = F.dropout(F.relu(block.up(block.norm(resid))), dropout)
            resid = resid + F.dropout(block.down(hidden), dropout)
        logits: Tensor = self.model.unembed(self.model.norm(resid))
        return logits

    def step(self, a: Tensor, b: Tensor) -> None:
        """Take one AdamW step on a batch of sums, `[sum]` each."""
        layout = self.config.layout
        logits = self.logits(sums.encode(a, b, layout), DROPOUT)[:, list(layout.loss_positions)]
        loss = F.cross_entropy(logits.flatten(0, 1), sums.targets(a, b, layout).flatten())
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


def in_turns(tasks: dict[str, Callable[[], Any]], rounds: int, **clock: Any) -> pd.DataFrame:
    """Return the seconds that each task takes, with a row for each round of all tasks.

    The tasks take turns, so that a slow moment of the machine affects all of them.
    """
    # It is imported only here, since it warns if CUDA is installed without a device.
    from torch.utils.benchmark import Timer

    timers = {name: Timer("f()", globals={"f": f}, **clock) for name, f in tasks.items()}
    rows = []
    for _ in range(rounds):
        rows.append({name: timer.timeit(CALLS).mean for name, timer in timers.items()})
    return pd.DataFrame(rows)


def ratios(slow: pd.Series, fast: pd.Series) -> Row:
    """Return the speed-up of a task over the rounds: the median, the lowest, the highest."""
    ratio = (slow / fast).round(2)
    return {"ratio": ratio.median(), "ratio, lowest": ratio.min(), "ratio, highest": ratio.max()}


def train(
    device: str = "cpu", groups: Sequence[Group] = LAYERS, runs: int = 1, rounds: int = 5
) -> list[Row]:
    """Time a training step of ours, with `runs` runs in lockstep.

    On a CPU it is compared with that of `Plain`, in processor time.
    """
    keep_memory()  # as in training; the baseline gains from it as well
    rows = []
    for group in groups:
        rows += _train_rows(group, device, runs, rounds)
    return rows


def _train_rows(group: Group, device: str, runs: int, rounds: int) -> list[Row]:
    """Return a row for each precision in which the group can be trained on the device."""
    on_cpu = device == "cpu"
    recipe, numbers = RECIPES["quick"], list(range(runs))
    trainers: dict[Precision, Trainer] = {}
    for precision in choice.available(ALL, group, recipe, device):
        is_emulated = precision == TORCH_BF16 and not choice.multiplies_bf16(device)
        # The step in Triton takes whole epochs at once.
        if precision.implementation != TRITON and not is_emulated:
            trainers[precision] = Trainer(group, recipe, numbers, device, precision)
    reference = trainers[TORCH_FP32]
    a, b = reference.batches(reference.train, group.batch)[0]

    tasks: dict[str, Callable[[], Any]] = {}
    for precision, trainer in trainers.items():
        tasks[str(precision)] = partial(trainer.step, a, b, 1)
    if on_cpu:
        tasks["plain"] = partial(Plain(group).step, a[0], b[0])
        seconds = in_turns(tasks, rounds, timer=time.process_time)
    else:
        seconds = in_turns(tasks, rounds)
    milliseconds = (1e3 * seconds.median()).round(1)

    rows = []
    for precision, trainer in trainers.items():
        row: Row = {
            "device": "cpu" if on_cpu else trainer.made_by["device"],
            "runs": runs,
            "layers": group.config.layers,
            "precision": str(precision),
            "ours, ms": milliseconds[str(precision)],
        }
        if on_cpu:
            row["plain fp32, ms"] = milliseconds["plain"]
            row |= ratios(seconds["plain"], seconds[str(precision)])
        rows.append(row)
    return rows


class Benchmark(BaseModel):
    """A stored benchmark: what was measured, and with what."""

    model_config = ConfigDict(extra="forbid", strict=True)

    processor: str
    capability: str
    torch: str
    commit: str
    rows: list[dict[str, str | int | float]]


def path_of(benchmark: str) -> Path:
    """Return the path of a benchmark's results."""
    return data_dir() / "results" / f"bench_{benchmark}.json"


def saved(benchmark: str) -> dict[str, Any]:
    """Return a stored benchmark; raise `BadInput` if it is missing or damaged."""
    remedy = f"delete it and write it with `carry bench {benchmark} --save`"
    return read_json(path_of(benchmark), Benchmark, remedy).model_dump()


def save(benchmark: str, rows: list[Row]) -> Path:
    """Write a benchmark's rows and what they were measured with; return the file."""
    conditions = {
        "processor": processor.this().model or platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "commit": commit(),
    }
    path = path_of(benchmark)
    write_json(path, conditions | {"rows": rows})
    return path
