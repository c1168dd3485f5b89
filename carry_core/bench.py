"""Speed, as ratios between things timed in turns in one run: these say more than seconds on a shared machine."""

import json
import math
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from carry_core import kernels, measure, sums
from carry_core.capture import tf32
from carry_core.edits import INTACT
from carry_core.errors import BadInput
from carry_core.files import commit, data_dir, keep_memory, write_json
from carry_core.groups import GROUPS, MAIN, RECIPES, Group
from carry_core.model import ModelConfig, Transformer, rotate
from carry_core.train import PRECISIONS, Trainer, device_name

Row = dict[str, Any]
COLUMNS = {"device", "runs", "layers", "precision", "ours, ms", "floor, ms", "share of matmul peak"}  # of every step


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
        for l in range(self.config.layers):
            block = self.model.blocks[l]
            x = block.norm(resid)
            q, k, v = (
                self.turned(linear(x).unflatten(-1, heads), block.turn).transpose(1, 2)
                for linear in (block.q, block.k, block.v)
            )
            z = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=self.config.causal)
            resid = resid + F.dropout(block.o(z.transpose(1, 2).flatten(-2)), dropout)
            hidden = F.dropout(F.relu(block.up(block.norm(resid))), dropout)
            resid = resid + F.dropout(block.down(hidden), dropout)
        logits: Tensor = self.model.unembed(self.model.norm(resid))
        return logits

    def step(self, a: Tensor, b: Tensor) -> None:
        """One AdamW step on a batch, `[sum]` each."""
        layout = self.config.layout
        logits = self.logits(sums.encode(a, b, layout), 0.1)[:, list(layout.read)]
        loss = F.cross_entropy(logits.flatten(0, 1), sums.targets(a, b, layout).flatten())
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


def in_turns(
    tasks: dict[str, Callable[[], Any]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each task, one after the other in every round, after one round of warming up."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for i in range(rounds + 1):
        for name, task in tasks.items():
            began = clock()
            task()
            if i:
                seconds[name].append(clock() - began)
    return seconds


@contextmanager
def one_thread() -> Iterator[None]:
    """One processor thread for PyTorch in here."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@one_thread()
def train(
    layers: tuple[int, ...] = (1, 2, 3), rounds: int = 10, clock: Callable[[], float] = time.process_time
) -> list[Row]:
    """A training step of ours against `Plain`, one thread, batches of 1,024; and the share of the matmul peak.

    The floor is what the step's matrix products alone would take at the peak, which `kernels.linear`, the product that
    training uses, reaches on 1024 x 1024. Processor time, which other jobs on the machine disturb less than they
    disturb the clock on the wall.
    """
    keep_memory()  # as in training; the baseline gains from it as well
    rows = []
    for n in layers:
        group = Group(f"n{n}", ModelConfig(layers=n), fraction=0.01)
        baselines = {"plain": Plain(group), "plain, complex rotary": Plain(group, rotate)}
        ours = {precision: Trainer(group, RECIPES["quick"], [0], "cpu", precision) for precision in ("fp32", "bf16")}
        a, b = ours["fp32"].batches(ours["fp32"].train, group.batch)[0]
        square = {dtype: torch.randn(1024, 1024).to(dtype) for dtype in (torch.float32, torch.bfloat16)}
        tasks: dict[str, Callable[[], Any]] = {k: partial(plain.step, a[0], b[0]) for k, plain in baselines.items()}
        tasks |= {name: partial(trainer.step, a, b, 0) for name, trainer in ours.items()}
        tasks |= {str(dtype): partial(kernels.linear, x[None], x[None], x[:1]) for dtype, x in square.items()}
        seconds = in_turns(tasks, rounds, clock)
        for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            ratios, faster = (
                [p / o for p, o in zip(seconds[baseline], seconds[name], strict=True)] for baseline in baselines
            )
            peak = 2 * 1024**3 / median(seconds[str(dtype)])
            floor = step_flops(group.config, group.batch) / peak
            rows.append({
                "device": "cpu", "runs": 1, "layers": n, "precision": name,
                "plain fp32, ms": round(1e3 * median(seconds["plain"]), 1),
                "ours, ms": round(1e3 * median(seconds[name]), 1),
                "ratio": round(median(ratios), 2), "ratio, lowest": round(min(ratios), 2),
                "ratio, highest": round(max(ratios), 2),
                "ratio to complex rotary": round(median(faster), 2),
                "floor, ms": round(1e3 * floor, 1),
                "share of matmul peak": round(floor / median(seconds[name]), 2),
            })  # fmt: skip
    return rows


def saved(what: str) -> dict[str, Any] | None:
    """What `carry bench --save` wrote of a benchmark, None if it never did.

    Raises:
        BadInput: the file is damaged.
    """
    path = results_path(what)
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text())
        if what == "train" and any(missing := COLUMNS - row.keys() for row in found["rows"]):
            raise ValueError(f"a row lacks {', '.join(sorted(missing))}")
        return {key: found[key] for key in ("processor", "capability", "torch", "commit", "rows")}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path} is damaged ({error}): write it with `carry bench {what} --save`.") from error


def told(found: dict[str, Any] | None) -> str:
    """What `saved` was measured with, for the page."""
    if found is None:
        return "Not measured yet: `carry bench train --save` does it."
    return f"On {found['processor']} ({found['capability']}), torch {found['torch']}, commit {found['commit']}."


def save(what: str, rows: list[Row]) -> Path:
    """Write a benchmark's rows and what they were measured with; returns the file."""
    about = {
        "processor": processor(), "capability": torch.backends.cpu.get_cpu_capability(), "torch": torch.__version__,
        "commit": commit(),
    }  # fmt: skip
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


def train_stacked(group: Group = GROUPS[MAIN], runs: int = 6, device: str = "cuda", steps: int = 200) -> list[Row]:
    """A training step of several stacked runs on a GPU, captured, in each precision; the data stay on the device.

    Seconds on the clock between two synchronisations, after a step that compiles and captures. Beside it are three
    floors, each at a speed that is measured in the same run, and which of them binds: the operations of the matrix
    products at that of one large product, the bytes of `step_bytes` at that of adding to a large array in place, and
    the step's kernels at that of empty ones, launched by one graph. On a CPU nothing is launched.
    """
    rows = []
    copied = torch.empty(2**26, device=device)
    byte = per_call(lambda _: copied.add_(1), 20, device) / (2 * copied.nbytes)  # read and written
    launch = seconds_of_a_launch(device)
    for precision, dtype in PRECISIONS.items():
        if precision == "tf32" and device == "cpu":
            continue
        trainer = Trainer(group, RECIPES["paper"], list(range(runs)), device, precision)
        a, b = trainer.batches(trainer.train, group.batch)[0]
        square = torch.randn(4096, 4096, device=device).to(dtype)
        step = per_call(partial(trainer.step, a, b), steps, device)
        with tf32(precision == "tf32"):
            product = per_call(lambda _, x=square: torch.matmul(x, x), steps, device)  # type: ignore[misc]
        floors = {
            "operations": runs * step_flops(group.config, group.batch) * product / (2 * len(square) ** 3),
            "bytes": runs * step_bytes(group.config, group.batch, dtype.itemsize) * byte,
            "launches": launch * launches(partial(trainer.step, a, b, steps + 1), device),
        }
        binds = max(floors, key=lambda name: floors[name])
        rows.append({
            "device": device_name(torch.device(device)), "runs": runs, "layers": group.config.layers,
            "precision": precision, "ours, ms": round(1e3 * step, 3),
            "floor, ms": round(1e3 * floors["operations"], 3),
            **{f"floor of {name}, ms": round(1e3 * floors[name], 3) for name in ("bytes", "launches")}, "binds": binds,
            "share of matmul peak": round(floors["operations"] / step, 2),
            "an epoch's steps, s": round(group.steps * step, 2),
        })  # fmt: skip
    return rows


def per_call(task: Callable[[int], Any], times: int, device: str) -> float:
    """Seconds of one of many calls, numbered from 1, after call 0, with one wait for the device at the end."""
    cuda = torch.device(device).type == "cuda"
    wait: Callable[[], object] = partial(torch.cuda.synchronize, device) if cuda else time.perf_counter
    task(0)
    wait()
    began = time.perf_counter()
    for number in range(1, times + 1):
        task(number)
    wait()
    return (time.perf_counter() - began) / times


def launches(task: Callable[[], Any], device: str) -> int:
    """How many kernels a task runs on a GPU, replayed ones included; none on a CPU."""
    if torch.device(device).type == "cpu":
        return 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        task()
        torch.cuda.synchronize(device)
    return sum(event.device_type.name == "CUDA" for event in profile.events() or ())


def seconds_of_a_launch(device: str, count: int = 1000) -> float:
    """What a kernel costs that does nothing, as one of many in a captured graph; nothing on a CPU."""
    if torch.device(device).type == "cpu":
        return 0.0
    x, graph = torch.zeros(1, device=device), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            x.add_(1)
    return per_call(lambda _: graph.replay(), 10, device) / count


def products(config: ModelConfig, batch: int) -> Iterator[tuple[int, int, int]]:
    """Rows, inner size and columns of the matrix products forward in a step, after the shortcuts of `stacked`.

    The unembedding, of a dozen columns, is left out.
    """
    every, read, d = config.layout.length, len(config.layout.read), config.d_model
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


def step_bytes(config: ModelConfig, batch: int, itemsize: int) -> int:
    """Bytes that one run's training step moves at least, if nothing stays in a cache between two products.

    Each product reads two matrices and writes one, forward once and backward twice; AdamW reads four float32 for each
    parameter and writes three.
    """
    moved = sum(3 * itemsize * (n * m + m * k + n * k) for n, m, k in products(config, batch))
    parameters = sum(p.numel() for p in Transformer(config).parameters())
    return moved + 7 * 4 * parameters


def claims(rounds: int = 5, n_sums: int = 16_384, clock: Callable[[], float] = time.perf_counter) -> list[Row]:
    """The passes behind Table 1 (intact, both heads, final MLP) from one shared prefix, against four passes."""
    model = Transformer(ModelConfig()).eval()
    a, b = sums.unrank(torch.arange(n_sums), 3)
    edits = [INTACT, *measure.last_heads(model), measure.final_mlp(model)]
    tokens = sums.encode(a, b, model.config.layout)

    @torch.inference_mode()
    def apart() -> None:
        for edit in edits:
            site = edit.site(model.config)
            for part in tokens.split(measure.BATCH):
                model(part, site)

    seconds = in_turns({"apart": apart, "shared": lambda: measure.cells(model, a, b, edits)}, rounds, clock)
    ratios = [p / s for p, s in zip(seconds["apart"], seconds["shared"], strict=True)]
    return [{
        "passes": len(edits), "sums": n_sums, "threads": torch.get_num_threads(),
        "apart, s": round(median(seconds["apart"]), 2), "shared, s": round(median(seconds["shared"]), 2),
        "ratio": round(median(ratios), 2), "ratio, lowest": round(min(ratios), 2),
        "ratio, highest": round(max(ratios), 2),
    }]  # fmt: skip
