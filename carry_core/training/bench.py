"""Speed of training and of the ledger beside plain PyTorch, in turns on the same machine (`carry bench`)."""

import json
import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.benchmark.utils.timer import Timer, timer

from carry_core import measure, sums
from carry_core.files import data_dir, write_json
from carry_core.groups import Group
from carry_core.interventions import INTACT
from carry_core.model import ModelConfig, Transformer, rotate
from carry_core.training import recipes
from carry_core.training.layers import keep_memory, linear
from carry_core.training.trainer import PRECISIONS, Trainer, commit, device_name, tf32

Row = dict[str, Any]
Tasks = dict[str, Callable[[], Any]]
LAYERS = [Group(f"n{layers}", ModelConfig(layers=layers), fraction=0.01) for layers in (1, 2, 3)]


def rotate_every_two(x: Tensor, turn: Tensor) -> Tensor:
    """The rotary embedding as it is usually written: x cos + (each pair swapped, one sign flipped) sin."""
    cos, sin = (part.repeat_interleave(2, -1).unsqueeze(1) for part in (turn.real.float(), turn.imag.float()))
    swapped = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * cos + swapped * sin


class Plain:
    """The baseline: the same model and optimiser step as an ordinary PyTorch user writes them, on one run.

    Args:
        group: what is trained.
        turned: how the rotary embedding is written; `model.rotate`, a product of complex numbers, is the faster way.
    """

    def __init__(self, group: Group, turned: Callable[[Tensor, Tensor], Tensor] = rotate_every_two) -> None:
        self.config, self.turned = group.config, turned
        self.model = Transformer(group.config).train()
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=group.decay, fused=True
        )

    def logits(self, tokens: Tensor, dropout: float) -> Tensor:
        """Logits at all positions, with `scaled_dot_product_attention` and `F.dropout`."""
        heads = (self.config.heads, self.config.d_head)
        resid = self.model.embed(tokens) * math.sqrt(self.config.d_model)
        for block in self.model.blocks:
            x = block.norm(resid)
            q, k, v = (project(x).unflatten(-1, heads) for project in (block.q, block.k, block.v))
            q, k, v = (self.turned(y, block.turn).transpose(1, 2) for y in (q, k, v))
            z = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=self.config.causal)
            resid = resid + F.dropout(block.o(z.transpose(1, 2).flatten(-2)), dropout)
            hidden = F.dropout(F.relu(block.up(block.norm(resid))), dropout)
            resid = resid + F.dropout(block.down(hidden), dropout)
        logits: Tensor = self.model.unembed(self.model.norm(resid))
        return logits

    def step(self, a: Tensor, b: Tensor) -> None:
        """One AdamW step on a batch, `[sum]` each."""
        layout = self.config.layout
        logits = self.logits(sums.encode(a, b, layout), 0.1)[:, list(layout.loss_positions)]
        loss = F.cross_entropy(logits.flatten(0, 1), sums.targets(a, b, layout).flatten())
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


def in_turns(tasks: Tasks, rounds: int, threads: int, clock: Callable[[], float] = timer) -> dict[str, list[float]]:
    """Seconds of each task, one after the other in every round, so that a slow moment of the machine meets all."""
    timers = {
        name: Timer("task()", globals={"task": task}, timer=clock, num_threads=threads) for name, task in tasks.items()
    }
    times = [{name: turn.timeit(2).mean for name, turn in timers.items()} for _ in range(rounds)]
    return {name: [row[name] for row in times] for name in tasks}


def ratios(slow: list[float], fast: list[float]) -> Row:
    """How many times faster, round by round: the median, the lowest and the highest."""
    each = [s / f for s, f in zip(slow, fast, strict=True)]
    return {
        name: round(of(each), 2) for name, of in (("ratio", median), ("ratio, lowest", min), ("ratio, highest", max))
    }


def train(device: str = "cpu", groups: Sequence[Group] = LAYERS, runs: int = 1, rounds: int = 5) -> list[Row]:
    """A training step of ours, of so many runs in lockstep; on a CPU beside that of `Plain`, in processor time.

    The floor is what the step's matrix products alone would take at the speed of `linear`, the product that training
    uses, on one large square.
    """
    keep_memory()  # as in training; the baseline gains from it as well
    rows, on_cpu = [], device == "cpu"
    for group in groups:
        names = [name for name in PRECISIONS if name != "tf32" or torch.device(device).type == "cuda"]
        ours = {name: Trainer(group, recipes.BY_NAME["quick"], list(range(runs)), device, name) for name in names}
        a, b = ours["fp32"].batches(ours["fp32"].train, group.batch)[0]
        tasks: Tasks = {name: partial(trainer.step, a, b, 1) for name, trainer in ours.items()}
        size = 1024 if on_cpu else 4096
        for name in names:
            square = torch.randn(1, size, size, device=device).to(PRECISIONS[name])
            tasks[f"matmul {name}"] = partial(multiply, square, name == "tf32")
        if on_cpu:
            tasks |= {"plain": partial(Plain(group).step, a[0], b[0])}
            tasks |= {"complex": partial(Plain(group, rotate).step, a[0], b[0])}
        seconds = in_turns(tasks, rounds, 1, time.process_time if on_cpu else timer)
        for name, trainer in ours.items():
            step, product = median(seconds[name]), median(seconds[f"matmul {name}"])
            floor = runs * step_flops(group.config, group.batch) * product / (2 * size**3)
            row: Row = {"device": "cpu" if on_cpu else device_name(trainer.device), "runs": runs}
            row |= {"layers": group.config.layers, "precision": name}
            if on_cpu:
                row |= {"plain fp32, ms": ms(median(seconds["plain"])), "ours, ms": ms(step)}
                row |= ratios(seconds["plain"], seconds[name])
                row |= {"ratio to complex rotary": ratios(seconds["complex"], seconds[name])["ratio"]}
            row |= {"ours, ms": ms(step), "floor, ms": ms(floor), "share of matmul peak": round(floor / step, 2)}
            rows.append(row)
    return rows


def multiply(square: Tensor, allow_tf32: bool) -> Tensor:
    """The product whose speed is the peak."""
    with tf32(allow_tf32):
        return linear(square, square, square[:, 0])


def ms(seconds: float) -> float:
    """Milliseconds, to a tenth, or to three digits below one."""
    return float(f"{1e3 * seconds:.{3 if seconds < 1e-3 else 1}f}")


def products(config: ModelConfig, batch: int) -> Iterator[tuple[int, int, int]]:
    """Rows, inner size and columns of the matrix products forward in a step, after the shortcuts of `stacked`.

    The unembedding, of a dozen columns, is left out.
    """
    every, read, d = config.layout.length, len(config.layout.loss_positions), config.d_model
    for l in range(config.layers):
        queries = read if l == config.layers - 1 else every
        if l > 0:  # layer 0's queries, keys and values are looked up
            yield from ((batch * rows, d, d) for rows in (every, every, queries))
        yield batch * queries, d, d
        yield batch * queries, d, config.d_ff
        yield batch * queries, config.d_ff, d


def step_flops(config: ModelConfig, batch: int) -> int:
    """Operations in the matrix products of one run's training step: forward, and twice as many backward."""
    return sum(3 * 2 * n * m * k for n, m, k in products(config, batch))


def claims(rounds: int = 5, n_sums: int = 16_384) -> list[Row]:
    """The passes behind Table 1 (intact, both heads, final MLP) from one shared prefix, against four passes."""
    model = Transformer(ModelConfig()).eval()
    a, b = sums.unrank(torch.arange(n_sums), 3)
    edits = [INTACT, *measure.last_heads(model), measure.final_mlp(model)]
    tokens = sums.encode(a, b, model.config.layout)

    @torch.inference_mode()
    def apart() -> None:
        for edit in edits:
            site = edit.hook(model)
            for part in tokens.split(measure.BATCH):
                model(part, site)

    threads = torch.get_num_threads()
    tasks: Tasks = {"apart": apart, "shared": lambda: measure.class_accuracies(model, a, b, edits)}
    seconds = in_turns(tasks, rounds, threads)
    row: Row = {"passes": len(edits), "sums": n_sums, "threads": threads}
    row |= {f"{name}, s": round(median(times), 2) for name, times in seconds.items()}
    return [row | ratios(seconds["apart"], seconds["shared"])]


def saved(what: str) -> dict[str, Any] | None:
    """What `carry bench --save` wrote of a benchmark, None if it never did."""
    path = results_path(what)
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found


def told(found: dict[str, Any] | None) -> str:
    """What `saved` was measured with, for the page."""
    if found is None:
        return "Not measured yet: `carry bench train --save` does it."
    return f"On {found['processor']} ({found['capability']}), torch {found['torch']}, commit {found['commit']}."


def save(what: str, rows: list[Row]) -> Path:
    """Write a benchmark's rows and what they were measured with; returns the file."""
    about = {"processor": processor(), "capability": torch.backends.cpu.get_cpu_capability()}
    about |= {"torch": torch.__version__, "commit": commit()}
    write_json(results_path(what), about | {"rows": rows})
    return results_path(what)


def results_path(what: str) -> Path:
    """Where `save` writes."""
    return data_dir() / "results" / f"bench_{what}.json"


def processor() -> str:
    """The processor's name where the system tells it, else its architecture."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
