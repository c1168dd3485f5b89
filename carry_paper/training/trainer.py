"""The trainer: AdamW on stacked runs, exact to the released code (App. A), with learning curves."""

import math
import platform
import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from carry_core import carries, sums
from carry_core.files import ROOT
from carry_core.groups import N_LONG, Group, Recipe
from carry_core.model import ModelConfig, Transformer
from carry_paper.training import fused
from carry_paper.training.fused import FusedStep
from carry_paper.training.seeds import OWN, Seeds
from carry_paper.training.stacked import Masks, Stack

Pairs = Int[Tensor, "2 _"]  # a and b of each
# a run's tensors by name, and a record that is ready for JSON
State = tuple[dict[str, Tensor], dict[str, Any]]
PRECISIONS = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fused": torch.float32,
}
MOMENTS = ("exp_avg", "exp_avg_sq")
TEST_BATCH = 2048  # sums per run


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


def split(
    group: Group,
    generator: torch.Generator,
    order: torch.Generator | None = None,
) -> tuple[Pairs, Pairs, Pairs]:
    """Sums of one run: train, in the order of the batches; test; a padded group's longer ones.

    A generator for the `order` permutes the training sums; which sums are in which set stays.
    """
    shuffled = torch.randperm(sums.n_sums(group.n_digits), generator=generator)
    # of the training set, and of the test set, which comes next
    size = round(group.fraction * len(shuffled))
    both = shuffled[: 2 * size].split(size)
    train, test = (torch.stack(sums.unrank(index, group.n_digits)) for index in both)
    long = (
        torch.stack(sums.long_sums(N_LONG, group.config.width, generator))
        if group.padded
        else train[:, :0]
    )
    if group.parent is not None:
        train = long[:, : group.primed]
    elif group.primed:
        train = torch.cat([train, long[:, : group.primed]], 1)
        train = train[:, torch.randperm(train.shape[1], generator=generator)]
    if order is not None:
        train = train[:, torch.randperm(train.shape[1], generator=order)]
    return train, test, long[:, group.primed :]


class Trainer:
    """Several runs of one group in lockstep: what becomes of one does not depend on the others, but for rounding."""

    def __init__(
        self,
        group: Group,
        recipe: Recipe,
        runs: list[int],
        device: str = "cpu",
        precision: str = "fp32",
        seeds: Seeds = OWN,
    ) -> None:
        self.group, self.recipe, self.runs = group, recipe, runs
        self.device, self.precision = torch.device(device), precision
        self.epoch = 0
        self.done = 0  # batches of the epoch under way
        self.running: dict[str, Tensor] = {}  # sums of their losses and accuracies, (run, …)
        # `[run, …]` each: of `train_…` for every epoch, of all else for each test, after `epochs`
        self.history: dict[str, list[NDArray[Any]]] = {}
        self.tested = recipe.tested(group)
        self.seeds = [seeds.record(run) for run in runs]
        # wall time that each run is charged with: its share of the stack's
        self.seconds = [0.0] * len(runs)
        where = (
            torch.cuda.get_device_name(self.device)
            if self.device.type == "cuda"
            else f"cpu ({platform.machine()})"
        )
        self.made_by = {
            "device": where,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "commit": commit(),
        }
        self.sessions: list[list[dict[str, Any]]] = [[] for _ in runs]
        streams = [seeds.streams(run) for run in runs]
        parts = zip(*(split(group, of_run.split, of_run.order) for of_run in streams), strict=True)
        self.train, self.test, self.long = (torch.stack(part).to(self.device) for part in parts)
        fresh = [initialise(group.config, of_run.weights) for of_run in streams]
        stacked = {name: torch.stack([of_run[name] for of_run in fresh]) for name in fresh[0]}
        self.stack = Stack(group.config, self.device, PRECISIONS[precision])
        dropout = [of_run.dropout for of_run in streams]
        self.masks = Masks(dropout, self.device)
        self.fused = FusedStep(self.stack, stacked, dropout) if precision == "fused" else None
        if self.fused is None:
            self.parameters = {
                name: p.to(self.device).requires_grad_() for name, p in stacked.items()
            }
            self.trained = list(self.parameters.values())  # the tensors that the optimiser moves
        else:
            self.parameters = self.fused.parameters
            self.trained = [self.fused.flat.values]
        self.carry_in = carries.carry_in(group.n_digits).to(self.device)
        self.rate = torch.tensor(recipe.rate, device=self.device)
        self.optimiser = torch.optim.AdamW(
            self.trained,
            lr=self.rate,
            betas=(0.9, 0.98),
            eps=1e-8,
            weight_decay=group.decay,
            fused=True,
        )

    @property
    def finished(self) -> bool:
        return self.epoch >= self.recipe.epochs(self.group)

    def run_epoch(
        self, pause: Callable[[], bool] = lambda: False
    ) -> dict[str, NDArray[Any]] | None:
        """Train for one epoch, or what is left of it; returns what the history gains, `[run, …]`.

        A test follows where the recipe has one. `pause` is asked after each batch: where it says
        so, None is returned, and the next call goes on there.
        """
        began = time.perf_counter()
        measured = self.train_epoch(pause)
        row: dict[str, NDArray[Any]] | None = None
        if measured is not None:
            self.epoch += 1
            if self.epoch in self.tested:
                measured |= self.test_epoch()
            row = {key: value.float().cpu().numpy() for key, value in measured.items()}
            if self.epoch in self.tested:
                row["epochs"] = np.full(len(self.runs), self.epoch)
            for key, value in row.items():
                self.history.setdefault(key, []).append(value)
        self.seconds = [
            seconds + (time.perf_counter() - began) / len(self.runs) for seconds in self.seconds
        ]
        return row

    def train_epoch(self, pause: Callable[[], bool] = lambda: False) -> dict[str, Tensor] | None:
        """One pass over the training set; means over its batches, with dropout on. None where `pause` stops it."""
        for a, b in self.batches(self.train, self.group.batch)[self.done :]:
            row = self.step(a, b, self.epoch * self.group.steps + self.done)
            self.running = {
                k: self.running[k] + value if self.done else value.clone()
                for k, value in row.items()
            }
            self.done += 1
            if pause():
                # a GPU is behind; who measures the time should know
                self.running["loss"].sum().item()
                return None
        means = {f"train_{key}": value / self.group.steps for key, value in self.running.items()}
        self.done, self.running = 0, {}
        return means

    def step(self, a: Tensor, b: Tensor, number: int) -> dict[str, Tensor]:
        """AdamW step `number` on a batch per run, `[run, batch]`; loss and accuracies per run."""
        self.rate.fill_(self.recipe.rate * min(1.0, (number + 1) / max(1, self.recipe.warmup)))
        torch.backends.cuda.matmul.allow_tf32 = self.precision == "tf32"
        rows, targets = self.stack.rows(a, b), self.targets(a, b)
        if self.fused is not None:
            row = self.fused.step(rows, targets)
        else:
            for p in self.trained:  # as zero_grad does, which takes longer
                p.grad = None
            row = self.score(self.stack.logits(self.parameters, rows, self.masks).float(), targets)
            row["loss"].sum().backward()
        self.optimiser.step()
        return {key: value.detach() for key, value in row.items()}

    @torch.inference_mode()
    def test_epoch(self) -> dict[str, Tensor]:
        """Loss and accuracies on the test sums with dropout off, weight norm, and what the group's figures need."""
        row = {f"test_{key}": value for key, value in self.mean_score(self.test).items()}
        row["weight_norm"] = sum(
            (p.square().flatten(1).sum(1) for p in self.parameters.values()), torch.zeros(())
        )
        if self.group.padded:
            row |= {f"long_{key}": value for key, value in self.mean_score(self.long).items()}
        if self.group.config.layers == 1:
            batches = (self.stack.rows(a, b) for a, b in self.batches(self.test, TEST_BATCH))
            total = [
                self.stack.first_pattern(self.parameters, rows) * rows.shape[2] for rows in batches
            ]
            row["pattern"] = torch.stack(total).sum(0) / self.test.shape[2]
        return row

    def mean_score(self, pairs: Tensor) -> dict[str, Tensor]:
        """Means over all sums of `pairs`; where the group tracks the final MLP, also per class without it (Fig. 5)."""
        total: dict[str, Tensor] = {}
        for a, b in self.batches(pairs, TEST_BATCH):
            rows, target = self.stack.rows(a, b), self.targets(a, b)
            if self.fused is not None:
                before_mlp, logits = self.fused.logits(rows)
            else:
                streams = self.stack.streams(self.parameters, rows)
                before_mlp, logits = (self.stack.unembed(self.parameters, x) for x in streams)
            row = {
                key: value * a.shape[1] for key, value in self.score(logits.float(), target).items()
            }
            if self.group.tracks_final_mlp:
                # (run, pos, batch)
                guess, task = before_mlp.argmax(-1), carries.class_index(a, b, self.group.n_digits)
                member = F.one_hot(task, len(self.carry_in)).to(torch.float32)
                shift = torch.where(self.carry_in[task], 1, -1).transpose(1, 2)
                row["ablated_count"] = member.sum(1).unsqueeze(-1)
                for key, answer in (("accuracy", guess), ("corrected", (guess + shift) % 10)):
                    row[f"ablated_{key}"] = torch.einsum(
                        "rpb,rbc->rcp", (answer == target).float(), member
                    )
            total = {key: total[key] + value if total else value for key, value in row.items()}
        of_class = total.pop("ablated_count", torch.ones(()))
        return {
            key: x / (of_class if key.startswith("ablated") else pairs.shape[2])
            for key, x in total.items()
        }

    def score(
        self, logits: Float[Tensor, "run read batch vocab"], target: Tensor
    ) -> dict[str, Tensor]:
        """Per run: mean cross entropy over the read positions, accuracy per position, exact match."""
        # a softmax over the last axis is slow on a CPU
        classes_outside = logits.transpose(-1, -2).flatten(0, 1)
        loss = F.cross_entropy(classes_outside, target.flatten(0, 1), reduction="none").view(
            target.shape
        )
        right = logits.detach().argmax(-1) == target
        each = {"loss": loss.mean(1), "accuracy": right.float(), "whole": right.all(1).float()}
        return {key: x.mean(-1) for key, x in each.items()}

    def targets(self, a: Tensor, b: Tensor) -> Int[Tensor, "run read batch"]:
        return sums.target_tokens(a, b, self.group.config.layout).transpose(1, 2)

    @staticmethod
    def batches(pairs: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
        """Consecutive batches of a and b, `[run, batch]` each; the last one is short."""
        return [(part[:, 0], part[:, 1]) for part in pairs.split(size, dim=2)]

    def states(self) -> list[State]:
        """All it takes to go on from here to the same bits, of each run; after the first step at the earliest."""
        parts: dict[str, dict[str, Tensor]] = {
            "parameters": self.parameters,
            "running": self.running,
        }
        parts |= self.moments()
        parts["history"] = {
            key: torch.from_numpy(np.stack(rows, 1)) for key, rows in self.history.items()
        }
        tensors = {
            f"{kind}/{name}": x.detach().cpu()
            for kind, named in parts.items()
            for name, x in named.items()
        }
        shared: dict[str, Any] = {
            "group": self.group.name,
            "recipe": self.recipe.name,
            "precision": self.precision,
        }
        shared |= {"epoch": self.epoch, "batches": self.done, **self.made_by}
        shared["adam_step"] = int(next(iter(self.optimiser.state.values()))["step"])
        if self.fused is not None:
            shared["step"] = fused.VERSION
        states = []
        for i, run in enumerate(self.runs):
            dropout = (self.fused or self).masks.state(i)
            record = shared | {"run": run, "seconds": round(self.seconds[i], 1), "dropout": dropout}
            record["seeds"] = self.seeds[i]
            record |= {"sessions": self.sessions[i]} if self.sessions[i] else {}
            states.append(({name: tensor[i].clone() for name, tensor in tensors.items()}, record))
        return states

    def restore(self, states: list[State]) -> None:
        """Go on from what `states` gave of the same runs; the record also names who made them, if that was another."""
        self.load(states)
        self.epoch, self.done = states[0][1]["epoch"], states[0][1].get("batches", 0)
        self.seconds = [record["seconds"] for _, record in states]
        together = {
            name: torch.stack([tensors[name] for tensors, _ in states]) for name in states[0][0]
        }
        self.running = {
            name: total.to(self.device) for name, total in part(together, "running/").items()
        }
        self.history = {
            name: list(rows.transpose(0, 1).numpy())
            for name, rows in part(together, "history/").items()
        }
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
        for p in self.trained:
            state = {key: torch.zeros_like(p) for key in MOMENTS}
            step = torch.tensor(float(states[0][1]["adam_step"]), device=self.device)
            self.optimiser.state[p] = state | {"step": step}
        for key, moments in self.moments().items():
            for name, moment in moments.items():
                moment.copy_(torch.stack([tensors[f"{key}/{name}"] for tensors, _ in states]))

    def moments(self) -> dict[str, dict[str, Tensor]]:
        """Adam's moving averages, by their names and the parameters', `[run, …]`; after a first step."""
        state = self.optimiser.state
        if self.fused is None:
            return {
                key: {name: state[p][key] for name, p in self.parameters.items()} for key in MOMENTS
            }
        flat = self.fused.flat
        return {key: flat.views(state[flat.values][key]) for key in MOMENTS}


def part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names start with a prefix, under the rest of their names."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def commit() -> str:
    """The commit of this checkout, with `+` where `carry_core` was changed since; `unknown` outside of one."""
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        )
        diff = subprocess.run(
            [*git, "diff", "--quiet", "HEAD", "--", "carry_core", "carry_paper"],
            capture_output=True,
            check=False,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if diff.returncode else "")
