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
from jaxtyping import Bool, Float, Int
from numpy.random import SeedSequence
from numpy.typing import NDArray
from torch import Tensor, nn

from carry_core import carries, sums
from carry_core.files import ROOT
from carry_core.model import ModelConfig, parameter_shapes
from carry_train import fused
from carry_train.fused import FusedStep
from carry_train.groups import N_LONG, Group, Recipe
from carry_train.precisions import (
    FUSED,
    FUSED_BF16,
    FUSED_FP32,
    TORCH_BF16,
    TORCH_FP32,
    TORCH_TF32,
    TRITON_BF16,
    Precision,
)
from carry_train.seeds import OWN, Seeds
from carry_train.stacked import Masks, Stack, threshold_of

Pairs = Int[Tensor, "2 _"]  # the two numbers of some sums
# A run's tensors by name, and a record that is ready for JSON.
State = tuple[dict[str, Tensor], dict[str, Any]]
MOMENTS = ("exp_avg", "exp_avg_sq")  # Adam's moving averages, as PyTorch calls them
BETAS = (0.9, 0.98)
EPSILON = 1e-8
# The versions of the steps that PyTorch does not take. Raise that of the step in Triton (`gpu`)
# with any change that moves a bit.
VERSIONS = {
    FUSED_FP32: fused.VERSIONS["fp32"],
    FUSED_BF16: fused.VERSIONS["bf16"],
    TRITON_BF16: 1,
}
TEST_BATCH = 2048  # sums per run


def initialise(config: ModelConfig, generator: torch.Generator) -> dict[str, Tensor]:
    """Return fresh parameters by name (App. A.1).

    Matrices are Glorot-uniform, biases are PyTorch's default, LayerNorms have scale one and
    shift zero.
    """
    shapes = parameter_shapes(config)
    parameters = {}
    for name, shape in shapes.items():
        p = torch.empty(shape, dtype=torch.float32)
        owner, kind = name.rsplit(".", 1)
        if owner.endswith("norm"):
            p.fill_(1.0 if kind == "weight" else 0.0)
        elif kind == "weight":
            nn.init.xavier_uniform_(p, generator=generator)
        else:
            bound = 1 / math.sqrt(shapes[f"{owner}.weight"][1])
            p.uniform_(-bound, bound, generator=generator)
        parameters[name] = p
    return parameters


def round_otherwise(parameters: dict[str, Tensor], generator: torch.Generator) -> None:
    """Move one weight of each matrix, chosen by the generator, to the next larger number."""
    for p in parameters.values():
        if p.ndim > 1:
            chosen = torch.randint(p.numel(), (1,), generator=generator)
            weights = p.view(-1)
            weights[chosen] = torch.nextafter(weights[chosen], torch.tensor(torch.inf))


def split(
    group: Group,
    generator: torch.Generator,
    order: torch.Generator | None = None,
) -> tuple[Pairs, Pairs, Pairs]:
    """Return one run's training sums, its test sums, and the longer sums of a padded group.

    The training sums are in the order of the batches. A generator for the `order` permutes
    them, but does not change which sums are in which set.
    """
    shuffled = torch.randperm(sums.n_sums(group.n_digits), generator=generator)
    size = round(group.fraction * len(shuffled))
    train = torch.stack(sums.unrank(shuffled[:size], group.n_digits))
    test = torch.stack(sums.unrank(shuffled[size : 2 * size], group.n_digits))
    long = train[:, :0]
    if group.padded:
        long = torch.stack(sums.long_sums(N_LONG, group.config.width, generator))
    if group.parent is not None:
        train = long[:, : group.primed]
    elif group.primed:
        train = torch.cat([train, long[:, : group.primed]], 1)
        train = train[:, torch.randperm(train.shape[1], generator=generator)]
    if order is not None:
        train = train[:, torch.randperm(train.shape[1], generator=order)]
    return train, test, long[:, group.primed :]


class Trainer:
    """Several runs of one group in lockstep.

    Apart from rounding, a run does not depend on those trained along with it.

    Attributes:
        epoch: Epochs done.
        done: Batches of the next epoch that are done.
        running: Sums of the losses and accuracies of these batches, `[run, …]` each.
        history: Learning curves, as a list of rows `[run, …]`: those called `train_…` have a
            row for each epoch, all others a row for each test, after `epochs`.
        seconds: The wall time of each run: its share of the stack's.
        sessions: For each run, the machine and versions of its earlier epochs, if these were
            others.
    """

    def __init__(
        self,
        group: Group,
        recipe: Recipe,
        runs: list[int],
        device: str = "cpu",
        precision: Precision = TORCH_FP32,
        seeds: Seeds = OWN,
    ) -> None:
        self.group = group
        self.recipe = recipe
        self.runs = runs
        self.device = torch.device(device)
        self.precision = precision
        self.epoch = 0
        self.done = 0
        self.running: dict[str, Tensor] = {}
        self.history: dict[str, list[NDArray[Any]]] = {}
        self.tested = recipe.tested(group)
        self.steps_in_epoch = recipe.steps_in_epoch(group)
        self.seeds = [seeds.record(run) for run in runs]
        self.seconds = [0.0] * len(runs)
        self.made_by = made_by(self.device)
        self.sessions: list[list[dict[str, Any]]] = [[] for _ in runs]

        streams = [seeds.streams(run) for run in runs]
        sets = [split(group, of_run.split, of_run.order) for of_run in streams]
        self.train = torch.stack([train for train, _, _ in sets]).to(self.device)
        self.test = torch.stack([test for _, test, _ in sets]).to(self.device)
        self.long = torch.stack([long for _, _, long in sets]).to(self.device)

        fresh = [initialise(group.config, of_run.weights) for of_run in streams]
        for parameters, of_run in zip(fresh, streams, strict=True):
            if of_run.rounding is not None:
                round_otherwise(parameters, of_run.rounding)
        stacked = {name: torch.stack([of_run[name] for of_run in fresh]) for name in fresh[0]}
        self.carry_in = carries.carry_in(group.n_digits).to(self.device)
        self.prepare_step(stacked, [of_run.dropout for of_run in streams])

    @staticmethod
    def check(group: Group, recipe: Recipe, precision: Precision) -> None:
        """Raise `BadInput` if no run of the group can be trained so."""
        if precision.implementation == FUSED:
            fused.check_sizes(group.config)

    def prepare_step(self, stacked: dict[str, Tensor], dropout: list[SeedSequence]) -> None:
        """Set up parameters, masks and optimiser, from initial parameters `[run, …]`."""
        threshold = threshold_of(self.group.dropout)
        dtype = torch.bfloat16 if self.precision == TORCH_BF16 else torch.float32
        self.stack = Stack(self.group.config, self.device, dtype, threshold)
        self.masks = Masks(dropout, self.device, self.stack.threshold)
        self.fused: FusedStep | None = None
        if self.precision.implementation == FUSED:
            self.fused = FusedStep(self.stack, stacked, dropout, self.precision.format)
            self.made_by["lanes"] = fused.lanes()
        if self.fused is None:
            self.parameters = {
                name: p.to(self.device).requires_grad_() for name, p in stacked.items()
            }
            self.trained = list(self.parameters.values())  # the tensors that the optimiser moves
        else:
            self.parameters = self.fused.parameters
            self.trained = [self.fused.flat.values]
        self.rate = torch.tensor(self.recipe.rate, dtype=torch.float32, device=self.device)
        self.optimiser = torch.optim.AdamW(
            self.trained,
            lr=self.rate,
            betas=BETAS,
            eps=EPSILON,
            weight_decay=self.group.decay,
            fused=True,
        )

    @property
    def finished(self) -> bool:
        return self.epoch >= self.recipe.epochs(self.group)

    def run_epoch(
        self, pause: Callable[[], bool] = lambda: False
    ) -> dict[str, NDArray[Any]] | None:
        """Train for one epoch, or what is left of it; return the new rows of the learning curves.

        A test follows if the recipe has one after this epoch. `pause` is called after each
        batch: if it returns True, this returns None, and the next call resumes from there.
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
        share = (time.perf_counter() - began) / len(self.runs)
        self.seconds = [seconds + share for seconds in self.seconds]
        return row

    def train_epoch(self, pause: Callable[[], bool] = lambda: False) -> dict[str, Tensor] | None:
        """Train for one epoch; return means over its batches, with dropout on.

        Batches come in the order of the training set, again and again. Return None if `pause`
        stops it.
        """
        while self.done < self.steps_in_epoch:
            number = self.epoch * self.steps_in_epoch + self.done
            a, b = self.batch_of_step(number)
            row = self.step(a, b, number)
            if self.done == 0:
                self.running = {key: value.clone() for key, value in row.items()}
            else:
                self.running = {key: self.running[key] + value for key, value in row.items()}
            self.done += 1
            if pause():
                # A GPU works asynchronously: wait for it, so that its time is measured.
                self.running["loss"].sum().item()
                return None
        means = {f"train_{key}": value / self.steps_in_epoch for key, value in self.running.items()}
        self.done = 0
        self.running = {}
        return means

    def batch_of_step(self, number: int) -> tuple[Tensor, Tensor]:
        """Return the numbers a and b of a step's sums, `[run, batch]` each; a pass's last are few.

        A list of all batches would take longer than some steps of a recipe with small ones.
        """
        size = self.recipe.batch_size(self.group)
        n_batches = math.ceil(self.train.shape[2] / size)
        first = number % n_batches * size
        batch = self.train[:, :, first : first + size]
        return batch[:, 0], batch[:, 1]

    def step(self, a: Tensor, b: Tensor, number: int) -> dict[str, Tensor]:
        """Take AdamW step `number` on a batch per run, `[run, batch]`; return its scores."""
        self.rate.fill_(self.recipe.rate_of_step(number, self.group))
        torch.backends.cuda.matmul.allow_tf32 = self.precision == TORCH_TF32
        rows = self.stack.rows(a, b)
        targets = self.targets(a, b)
        if self.fused is not None:
            row = self.fused.step(rows, targets)
        else:
            for p in self.trained:
                p.grad = None  # as the optimiser's zero_grad does, which takes longer
            logits = self.stack.logits(self.parameters, rows, self.masks)
            row = self.score(logits.float(), targets)
            row["loss"].sum().backward()
        self.optimiser.step()
        return {key: value.detach() for key, value in row.items()}

    @torch.inference_mode()
    def test_epoch(self) -> dict[str, Tensor]:
        """Return loss and accuracies on the test sums with dropout off, and the weight norm.

        Padded groups are also tested on longer sums. For one-layer groups, the mean attention
        pattern is included.
        """
        row = {f"test_{key}": value for key, value in self.mean_score(self.test).items()}
        squares = (p.square().flatten(1).sum(1) for p in self.parameters.values())
        row["weight_norm"] = sum(squares, torch.zeros(()))
        if self.group.padded:
            row |= {f"long_{key}": value for key, value in self.mean_score(self.long).items()}
        if self.group.config.layers == 1:
            totals = []
            for a, b in self.batches(self.test, TEST_BATCH):
                pattern = self.stack.first_pattern(self.parameters, self.stack.rows(a, b))
                totals.append(pattern * a.shape[1])
            row["pattern"] = torch.stack(totals).sum(0) / self.test.shape[2]
        return row

    def mean_score(self, pairs: Tensor) -> dict[str, Tensor]:
        """Return the means of `score` over all sums of `pairs`, with dropout off.

        If the group tracks the final MLP, the accuracies per carry class without it are among
        them, `[run, class, pos]` (Fig. 5).
        """
        total: dict[str, Tensor] = {}
        for a, b in self.batches(pairs, TEST_BATCH):
            row = self.summed_scores(a, b)
            total = {key: total[key] + value if total else value for key, value in row.items()}
        in_class = total.pop("ablated_count", torch.ones(()))
        means = {}
        for key, value in total.items():
            means[key] = value / (in_class if key.startswith("ablated") else pairs.shape[2])
        return means

    def summed_scores(self, a: Tensor, b: Tensor) -> dict[str, Tensor]:
        """Return `score`, summed over a batch of sums; if the group needs it, `score_by_class`."""
        rows = self.stack.rows(a, b)
        target = self.targets(a, b)
        if self.fused is not None:
            without_mlp, logits = self.fused.logits(rows)
        else:
            before_mlp, after_mlp = self.stack.streams(self.parameters, rows)
            without_mlp = self.stack.unembed(self.parameters, before_mlp)
            logits = self.stack.unembed(self.parameters, after_mlp)
        scores = self.score(logits.float(), target)
        row = {key: value * a.shape[1] for key, value in scores.items()}
        if self.group.tracks_final_mlp:
            task = carries.class_index(a, b, self.group.n_digits)  # (run, batch)
            row |= self.score_by_class(without_mlp.argmax(-1), target, task)
        return row

    def score_by_class(
        self,
        answer: Int[Tensor, "run read batch"],
        target: Int[Tensor, "run read batch"],
        task: Int[Tensor, "run batch"],
    ) -> dict[str, Tensor]:
        """Return how many digits of each carry class are correct, and are after correction.

        The class's sums are counted as well. `measure.score` says what a correction is.
        """
        member = F.one_hot(task, len(self.carry_in)).to(torch.float32)  # (run, batch, class)
        correction = torch.where(self.carry_in[task], 1, -1).transpose(1, 2)  # (run, pos, batch)
        corrected = (answer + correction) % 10
        return {
            "ablated_count": member.sum(1).unsqueeze(-1),
            "ablated_accuracy": _count_by_class(answer == target, member),
            "ablated_corrected": _count_by_class(corrected == target, member),
        }

    def score(
        self, logits: Float[Tensor, "run read batch vocab"], target: Tensor
    ) -> dict[str, Tensor]:
        """Return each run's mean cross entropy, accuracy by position and exact match."""
        # On a CPU a softmax over the last axis is slow.
        vocab_second = logits.transpose(-1, -2).flatten(0, 1)  # (run * read, vocab, batch)
        loss = F.cross_entropy(vocab_second, target.flatten(0, 1), reduction="none")
        correct = logits.detach().argmax(-1) == target  # (run, read, batch)
        return {
            "loss": loss.view(target.shape).mean(1).mean(-1),
            "accuracy": correct.float().mean(-1),
            "whole": correct.all(1).float().mean(-1),
        }

    def targets(self, a: Tensor, b: Tensor) -> Int[Tensor, "run read batch"]:
        return sums.targets(a, b, self.group.config.layout).transpose(1, 2)

    @staticmethod
    def batches(pairs: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
        """Return consecutive batches of a and b, `[run, batch]` each; the last one is short."""
        return [(part[:, 0], part[:, 1]) for part in pairs.split(size, dim=2)]

    def states(self) -> list[State]:
        """Return all that it takes to go on from here to the same bits, for each run.

        There is no such state before the first step.
        """
        curves = {name: torch.from_numpy(np.stack(rows, 1)) for name, rows in self.history.items()}
        kinds: dict[str, dict[str, Tensor]] = {
            "parameters": self.parameters,
            "running": self.running,
            **self.moments(),
            "history": curves,
        }
        tensors: dict[str, Tensor] = {}
        for kind, tensors_of_kind in kinds.items():
            for name, x in tensors_of_kind.items():
                tensors[f"{kind}/{name}"] = x.detach().cpu()
        shared: dict[str, Any] = {
            "group": self.group.name,
            "recipe": self.recipe.name,
            "precision": str(self.precision),
            "epoch": self.epoch,
            "batches": self.done,
            **self.made_by,
            "adam_step": self.adam_steps(),
        }
        if self.precision in VERSIONS:
            shared["step"] = VERSIONS[self.precision]
        states = []
        for i, run in enumerate(self.runs):
            record = shared | {
                "run": run,
                "seconds": round(self.seconds[i], 1),
                "dropout": self.dropout_state(i),
                "seeds": self.seeds[i],
            }
            if self.sessions[i]:
                record["sessions"] = self.sessions[i]
            states.append(({name: tensor[i].clone() for name, tensor in tensors.items()}, record))
        return states

    def restore(self, states: list[State]) -> None:
        """Go on from what `states` gave of the same runs.

        A record also says what made the run so far, if that was another machine or version.
        """
        self.load(states)
        first_tensors, first_record = states[0]
        self.epoch = first_record["epoch"]
        self.done = first_record.get("batches", 0)
        self.seconds = [record["seconds"] for _, record in states]
        together = {
            name: torch.stack([tensors[name] for tensors, _ in states]) for name in first_tensors
        }
        self.running = {
            name: total.to(self.device) for name, total in part(together, "running/").items()
        }
        self.history = {
            name: list(rows.transpose(0, 1).numpy())
            for name, rows in part(together, "history/").items()
        }
        for i, (_, record) in enumerate(states):
            if "dropout" in record:  # a fork's masks are new from here on
                self.set_dropout_state(i, record["dropout"])
            self.sessions[i] = [*record.get("sessions", [])]
            before = {key: record[key] for key in self.made_by if key in record}
            if before != self.made_by:
                self.sessions[i].append({"epochs": self.epoch} | before)

    @torch.no_grad()
    def load(self, states: list[State]) -> None:
        """Take over weights and Adam's state only, as finetuning does (App. H.2)."""
        for name, p in self.parameters.items():
            p.copy_(torch.stack([tensors[f"parameters/{name}"] for tensors, _ in states]))
        self.set_adam_steps(states[0][1]["adam_step"])
        for key, moments in self.moments().items():
            for name, moment in moments.items():
                moment.copy_(torch.stack([tensors[f"{key}/{name}"] for tensors, _ in states]))

    def adam_steps(self) -> int:
        """Return the number of steps that AdamW has taken, those before finetuning included."""
        return int(next(iter(self.optimiser.state.values()))["step"])

    def set_adam_steps(self, number: int) -> None:
        """Set how many steps AdamW has taken, and make room for its moving averages."""
        for p in self.trained:
            state = {key: torch.zeros_like(p) for key in MOMENTS}
            step = torch.tensor(number, dtype=torch.float32, device=self.device)
            self.optimiser.state[p] = state | {"step": step}

    def dropout_state(self, i: int) -> dict[str, Any]:
        """Return the state of the masks of the run at place i of the stack."""
        return (self.fused or self).masks.state(i)

    def set_dropout_state(self, i: int, state: dict[str, Any]) -> None:
        (self.fused or self).masks.set_state(i, state)

    def moments(self) -> dict[str, dict[str, Tensor]]:
        """Return Adam's moving averages by their names and the parameters', `[run, …]` each.

        There are none before the first step.
        """
        state = self.optimiser.state
        if self.fused is None:
            return {
                key: {name: state[p][key] for name, p in self.parameters.items()} for key in MOMENTS
            }
        flat = self.fused.flat
        return {key: flat.views(state[flat.values][key]) for key in MOMENTS}


def _count_by_class(
    counted: Bool[Tensor, "run read batch"], member: Float[Tensor, "run batch class"]
) -> Float[Tensor, "run class read"]:
    """Return how many of the counted digits are in each carry class."""
    return torch.einsum("rpb,rbc->rcp", counted.float(), member)


def part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with a prefix, under the rest of their names."""
    renamed = {}
    for name, value in tensors.items():
        if name.startswith(prefix):
            renamed[name.removeprefix(prefix)] = value
    return renamed


def made_by(device: torch.device) -> dict[str, Any]:
    """Return what trains a run: the device, the versions, the commit."""
    device_name = f"cpu ({platform.machine()})"
    if device.type == "cuda":
        device_name = torch.cuda.get_device_name(device)
    return {
        "device": device_name,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "commit": commit(),
    }


def commit() -> str:
    """Return the commit of this checkout, with `+` if its code was changed; else `unknown`."""
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        )
        diff = subprocess.run(
            [*git, "diff", "--quiet", "HEAD", "--", "carry_*"],
            capture_output=True,
            check=False,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if diff.returncode else "")
