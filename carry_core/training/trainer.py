"""The trainer: AdamW on stacked runs, exact to the released code (App. A), with a history for every epoch."""

import math
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.random import SeedSequence
from numpy.typing import NDArray
from torch import Tensor, nn

from carry_core import carries, sums
from carry_core.files import ROOT
from carry_core.groups import N_LONG, Group
from carry_core.model import ModelConfig, Transformer
from carry_core.training.fused import FusedStep
from carry_core.training.recipes import Recipe
from carry_core.training.stacked import Masks, Stack

State = tuple[dict[str, Tensor], dict[str, Any]]  # a run's tensors by name, and a record that is ready for JSON
PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fused": torch.float32}
TEST_BATCH = 2048  # sums per run


@dataclass(frozen=True)
class Seeds:
    """Independent random streams of one run, all from its number: split and order, initialisation, dropout."""

    data: torch.Generator
    weights: torch.Generator
    dropout: SeedSequence

    @classmethod
    def of(cls, run: int) -> "Seeds":
        *torchs, dropout = SeedSequence(run).spawn(3)
        seeds = [int(seed.generate_state(1, np.uint64)[0] >> np.uint64(1)) for seed in torchs]
        data, weights = (torch.Generator().manual_seed(seed) for seed in seeds)
        return cls(data, weights, dropout)


def initialise(config: ModelConfig, generator: torch.Generator) -> dict[str, Tensor]:
    """Fresh parameters: Glorot-uniform matrices, PyTorch's default biases, LayerNorms at one and zero (App. A.1)."""
    with torch.device("meta"):
        shapes = {name: p.shape for name, p in Transformer(config).named_parameters()}
    parameters = {}
    for name, shape in shapes.items():
        owner, kind = name.rsplit(".", 1)
        if owner.endswith("norm"):
            parameters[name] = torch.ones(shape) if kind == "weight" else torch.zeros(shape)
        elif kind == "weight":
            parameters[name] = nn.init.xavier_uniform_(torch.empty(shape), generator=generator)
        else:
            bound = 1 / math.sqrt(shapes[f"{owner}.weight"][1])
            parameters[name] = torch.empty(shape).uniform_(-bound, bound, generator=generator)
    return parameters


@dataclass(frozen=True)
class Data:
    """One run's sums, each `[2, sums]` (a and b): train, test, and the longer ones of a padded group."""

    train: Int[Tensor, "2 train"]
    test: Int[Tensor, "2 test"]
    long: Int[Tensor, "2 long"]

    @classmethod
    def of(cls, group: Group, generator: torch.Generator) -> "Data":
        """Split and order as drawn from `generator`; the order of the batches is then the same in every epoch."""
        order = torch.randperm(sums.n_sums(group.n_digits), generator=generator)
        size = round(group.fraction * len(order))  # of the training set, and of the test set, which comes next
        train, test = (torch.stack(sums.unrank(index, group.n_digits)) for index in order[: 2 * size].split(size))
        long = train[:, :0]
        if group.padded:
            long = torch.stack(sums.long_sums(N_LONG, group.config.width, generator))
        if group.parent is not None:
            train = long[:, : group.primed]
        elif group.primed:
            train = torch.cat([train, long[:, : group.primed]], 1)
            train = train[:, torch.randperm(train.shape[1], generator=generator)]
        return cls(train, test, long[:, group.primed :])


class Trainer:
    """Several runs of one group in lockstep; a run's result does not depend on which others are beside it.

    So it is bit by bit where each is a stack of its own, as `carry train` has it on a CPU; other stacks may mean other
    kernels, and then it is so up to rounding.

    Attributes:
        done: batches of the epoch under way that it has trained on.
        running: sums of their losses and accuracies, each `[run, …]`.
        seconds: wall time that each run was charged with, that of the stack being shared alike.
    """

    def __init__(
        self, group: Group, recipe: Recipe, runs: list[int], device: str = "cpu", precision: str = "fp32"
    ) -> None:
        self.group, self.recipe, self.runs = group, recipe, runs
        self.device, self.precision = torch.device(device), precision
        self.epoch, self.done, self.seconds = 0, 0, [0.0] * len(runs)
        self.made_by = {
            "device": device_name(self.device),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "commit": commit(),
        }
        self.sessions: list[list[dict[str, Any]]] = [[] for _ in runs]
        self.running: dict[str, Tensor] = {}
        self.history: dict[str, list[NDArray[np.float32]]] = {}
        seeds = [Seeds.of(run) for run in runs]
        data = [Data.of(group, s.data) for s in seeds]
        self.train, self.test, self.long = (
            torch.stack([getattr(d, part) for d in data]).to(self.device) for part in ("train", "test", "long")
        )
        fresh = [initialise(group.config, s.weights) for s in seeds]
        self.parameters = {
            name: torch.stack([f[name] for f in fresh]).to(self.device).requires_grad_() for name in fresh[0]
        }
        self.arrives = carries.carry_in(group.n_digits).to(self.device)
        self.rate = torch.tensor(recipe.rate, device=self.device)
        self.optimiser = torch.optim.AdamW(
            list(self.parameters.values()),
            lr=self.rate,
            betas=(0.9, 0.98),
            eps=1e-8,
            weight_decay=group.decay,
            fused=True,
        )
        for p in self.parameters.values():  # as AdamW makes them at its first step; a checkpoint has them before
            self.optimiser.state[p] = {
                "step": torch.zeros((), device=self.device),
                "exp_avg": torch.zeros_like(p),
                "exp_avg_sq": torch.zeros_like(p),
            }
        self.stack = Stack(group.config, self.device, PRECISIONS[precision])
        dropout = [s.dropout for s in seeds]
        self.masks = Masks(dropout, self.device)
        self.fused = FusedStep(self.stack, self.parameters, dropout) if precision == "fused" else None

    @property
    def finished(self) -> bool:
        return self.epoch >= self.recipe.epochs(self.group)

    def run_epoch(self, pause: Callable[[], bool] = lambda: False) -> dict[str, NDArray[np.float32]] | None:
        """Train for one epoch, or what is left of it, then test; returns the new row of the history, each `[run, …]`.

        `pause` is asked after each batch: where it says so, None is returned, and the next call goes on there.
        """
        began = time.perf_counter()
        row, new = self.train_epoch(pause), None
        if row is not None:
            self.epoch += 1
            with torch.inference_mode():
                row |= self.test_epoch()
            new = {key: value.float().cpu().numpy() for key, value in row.items()}
            for key, value in new.items():
                self.history.setdefault(key, []).append(value)
        took = (time.perf_counter() - began) / len(self.runs)
        self.seconds = [seconds + took for seconds in self.seconds]
        return new

    def train_epoch(self, pause: Callable[[], bool] = lambda: False) -> dict[str, Tensor] | None:
        """One pass over the training set; means over its batches, with dropout on. None where `pause` stops it."""
        for a, b in self.batches(self.train, self.group.batch)[self.done :]:
            row = self.step(a, b, self.epoch * self.group.steps + self.done)
            self.running = {k: self.running[k] + value if self.done else value.clone() for k, value in row.items()}
            self.done += 1
            if pause():
                self.running["loss"].sum().item()  # a GPU is behind; who measures the time should know
                return None
        means = {f"train_{key}": value / self.group.steps for key, value in self.running.items()}
        self.done, self.running = 0, {}
        return means

    def step(self, a: Tensor, b: Tensor, number: int) -> dict[str, Tensor]:
        """AdamW step `number` on a batch per run, `[run, batch]`; loss and accuracies per run."""
        self.rate.fill_(self.recipe.rate * min(1.0, (number + 1) / max(1, self.recipe.warmup)))
        torch.backends.cuda.matmul.allow_tf32 = self.precision == "tf32"
        rows, targets = self.stack.pairs.rows(a, b), self.targets(a, b)
        if self.fused is not None:
            row = self.fused.step(rows, targets)
        else:
            row = self.score(self.stack.logits(self.parameters, rows, self.masks).float(), targets)
            for p in self.parameters.values():  # as zero_grad does, which takes longer
                p.grad = None
            row["loss"].sum().backward()
        self.optimiser.step()
        return {key: value.detach() for key, value in row.items()}

    def test_epoch(self) -> dict[str, Tensor]:
        """Loss and accuracies on the test sums with dropout off, weight norm, and what the group's figures need."""
        row = {f"test_{key}": value for key, value in self.mean_score(self.test).items()}
        row["weight_norm"] = sum((p.square().flatten(1).sum(1) for p in self.parameters.values()), torch.zeros(()))
        if self.group.padded:
            row |= {f"long_{key}": value for key, value in self.mean_score(self.long).items()}
        if self.group.config.layers == 1:
            total = [
                self.stack.first_pattern(self.parameters, self.stack.pairs.rows(a, b)) * a.shape[1]
                for a, b in self.batches(self.test, TEST_BATCH)
            ]
            row["pattern"] = torch.stack(total).sum(0) / self.test.shape[2]
        return row

    def mean_score(self, pairs: Tensor) -> dict[str, Tensor]:
        """Means over all sums of `pairs`; where the group tracks the final MLP, also per class without it (Fig. 5)."""
        total: dict[str, Tensor] = {}
        n_classes = len(carries.patterns(self.group.n_digits))
        for a, b in self.batches(pairs, TEST_BATCH):
            before_mlp, logits = self.test_logits(self.stack.pairs.rows(a, b))
            target = self.targets(a, b)
            row = {k: v * a.shape[1] for k, v in self.score(logits.float(), target).items()}
            if self.group.tracks_final_mlp:
                guess = before_mlp().argmax(-1)  # (run, pos, batch)
                task = carries.classify(a, b, self.group.n_digits)
                member = F.one_hot(task, n_classes).to(torch.float32)
                shift = torch.where(self.arrives[task], 1, -1).transpose(1, 2)
                row["ablated_count"] = member.sum(1)
                row["ablated_accuracy"] = torch.einsum("rpb,rbc->rcp", (guess == target).float(), member)
                corrected = (guess + shift) % 10 == target
                row["ablated_corrected"] = torch.einsum("rpb,rbc->rcp", corrected.float(), member)
            total = {key: total[key] + value if total else value for key, value in row.items()}
        count = total.pop("ablated_count", None)
        return {
            key: value / (count.unsqueeze(-1) if key.startswith("ablated") and count is not None else pairs.shape[2])
            for key, value in total.items()
        }

    def test_logits(self, rows: Int[Tensor, "run pos batch"]) -> tuple[Callable[[], Tensor], Tensor]:
        """Logits `[run, read, batch, vocab]` without dropout: with the final MLP ablated, on demand, and intact."""
        if self.fused is not None:
            before, after = self.fused.logits(rows)
            return lambda: before, after
        mid, post = self.stack.streams(self.parameters, rows)
        return lambda: self.stack.unembed(self.parameters, mid), self.stack.unembed(self.parameters, post)

    def score(
        self, logits: Float[Tensor, "run read batch vocab"], target: Int[Tensor, "run read batch"]
    ) -> dict[str, Tensor]:
        """Per run: mean cross entropy over the read positions, accuracy per position, exact match."""
        classes_outside = logits.transpose(-1, -2).flatten(0, 1)  # a softmax over the last axis is slow on a CPU
        loss = F.cross_entropy(classes_outside, target.flatten(0, 1), reduction="none").view(target.shape)
        right = logits.detach().argmax(-1) == target
        each = {"loss": loss.mean(1), "accuracy": right.float(), "whole": right.all(1).float()}
        return {key: x.mean(-1) for key, x in each.items()}

    def targets(self, a: Tensor, b: Tensor) -> Int[Tensor, "run read batch"]:
        return sums.targets(a, b, self.stack.pairs.layout).transpose(1, 2)

    @staticmethod
    def batches(pairs: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
        """Consecutive batches of a and b, `[run, batch]` each; the last one is short."""
        return [(part[:, 0], part[:, 1]) for part in pairs.split(size, dim=2)]

    def states(self) -> list[State]:
        """All it takes to go on from here bit by bit, of each run."""
        tensors = {f"parameters/{name}": p.detach() for name, p in self.parameters.items()}
        for key in ("exp_avg", "exp_avg_sq"):
            tensors |= {f"{key}/{name}": self.optimiser.state[p][key] for name, p in self.parameters.items()}
        tensors |= {f"running/{key}": value for key, value in self.running.items()}
        tensors |= {f"history/{key}": torch.from_numpy(np.stack(rows, 1)) for key, rows in self.history.items()}
        tensors = {name: tensor.cpu() for name, tensor in tensors.items()}
        shared = {
            "group": self.group.name,
            "recipe": self.recipe.name,
            "precision": self.precision,
            "epoch": self.epoch,
            "batches": self.done,
            "adam_step": int(next(iter(self.optimiser.state.values()))["step"]),
            **self.made_by,
        }
        states = []
        for i, run in enumerate(self.runs):
            record = shared | {
                "run": run,
                "seconds": round(self.seconds[i], 1),
                "dropout": (self.fused or self).masks.state(i),
            }
            if self.sessions[i]:
                record["sessions"] = self.sessions[i]
            states.append(({name: tensor[i].clone() for name, tensor in tensors.items()}, record))
        return states

    def restore(self, states: list[State]) -> None:
        """Go on from what `states` gave of the same runs at the same batch of the same epoch.

        Where it was made by another commit, version or device, the record names that too, with the epochs it reached.
        """
        self.load(states)
        self.epoch, self.done = states[0][1]["epoch"], states[0][1].get("batches", 0)
        self.seconds = [record["seconds"] for _, record in states]
        together = {name: torch.stack([tensors[name] for tensors, _ in states]) for name in states[0][0]}
        self.running = {name: sums.to(self.device) for name, sums in part(together, "running/").items()}
        self.history = {name: list(rows.transpose(0, 1).numpy()) for name, rows in part(together, "history/").items()}
        for i, (_, record) in enumerate(states):
            (self.fused or self).masks.set_state(i, record["dropout"])
            before = {key: record.get(key) for key in self.made_by}
            other = [{"epochs": self.epoch} | before] if before != self.made_by else []
            self.sessions[i] = [*record.get("sessions", []), *other]

    @torch.no_grad()
    def load(self, states: list[State]) -> None:
        """Take over weights and Adam's state only: what finetuning does with its parent (App. H.2)."""
        for name, p in self.parameters.items():
            p.copy_(torch.stack([tensors[f"parameters/{name}"] for tensors, _ in states]))
            moments = self.optimiser.state[p]
            moments["step"].fill_(states[0][1]["adam_step"])
            for key in ("exp_avg", "exp_avg_sq"):
                moments[key].copy_(torch.stack([tensors[f"{key}/{name}"] for tensors, _ in states]))


def device_name(device: torch.device) -> str:
    """What a record calls the device: the GPU's name, or the processor's architecture."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({platform.machine()})"


def part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names start with a prefix, under the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def commit() -> str:
    """The commit of this checkout, with `+` where `carry_core` was changed since; `unknown` outside of one."""
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        diff = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "carry_core"], capture_output=True, check=False)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if diff.returncode else "")
