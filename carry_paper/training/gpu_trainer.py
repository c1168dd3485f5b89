"""The trainer with the GPU's step: whole epochs as replays of CUDA graphs."""

from collections.abc import Callable
from typing import Any

import torch
from numpy.random import SeedSequence
from torch import Tensor

from carry_core.errors import BadInput
from carry_paper.training.gpu import GpuStep, Sums
from carry_paper.training.trainer import MOMENTS, TRITON_VERSION, State, Trainer


class GpuTrainer(Trainer):
    """Several runs of one group in lockstep, in the precision `triton`.

    Raises:
        BadInput: There is no such step for the group, or not on this device.
    """

    def prepare_step(self, stacked: dict[str, Tensor], dropout: list[SeedSequence]) -> None:
        if self.group.tracks_final_mlp:
            raise BadInput(
                f"{self.group.name} is tested without its final MLP too, which the step in Triton "
                "does not do: choose another precision, such as bf16."
            )
        self.fused = None
        self.step_of_gpu = GpuStep(self.stack, stacked, dropout, self.group, self.recipe)
        self.parameters = self.step_of_gpu.parameters
        self.trained = []
        self.sums = {id(pairs): self.sums_of(pairs) for pairs in (self.train, self.test)}
        if self.group.padded:
            self.sums[id(self.long)] = self.sums_of(self.long)

    def sums_of(self, pairs: Tensor) -> Sums:
        targets = self.targets(pairs[:, 0], pairs[:, 1])
        return self.step_of_gpu.sums(pairs, targets)

    def train_epoch(self, pause: Callable[[], bool] = lambda: False) -> dict[str, Tensor] | None:
        """Go through the training set once; `pause` is not asked, since an epoch takes no time."""
        means = self.step_of_gpu.train_epoch(self.sums[id(self.train)])
        return {f"train_{key}": value for key, value in means.items()}

    def mean_score(self, pairs: Tensor) -> dict[str, Tensor]:
        return self.step_of_gpu.test_epoch(self.sums[id(pairs)])

    def adam_steps(self) -> int:
        return int(self.step_of_gpu.seen) + self.epoch * self.group.steps

    def step_version(self) -> dict[str, int]:
        return {"step": TRITON_VERSION}

    def dropout_state(self, i: int) -> dict[str, Any]:
        """Return nothing: the masks follow from the run's seed and the number of the step."""
        return {}

    def set_dropout_state(self, i: int, state: dict[str, Any]) -> None:
        pass

    def restore(self, states: list[State]) -> None:
        super().restore(states)
        done = self.epoch * self.group.steps
        self.sums[id(self.train)].step.fill_(done)
        self.step_of_gpu.seen.fill_(states[0][1]["adam_step"] - done)

    @torch.no_grad()
    def load(self, states: list[State]) -> None:
        """Take over weights and Adam's state only, as finetuning does (App. H.2)."""
        for name, p in self.parameters.items():
            p.copy_(torch.stack([tensors[f"parameters/{name}"] for tensors, _ in states]))
        for key, moments in self.moments().items():
            for name, moment in moments.items():
                moment.copy_(torch.stack([tensors[f"{key}/{name}"] for tensors, _ in states]))
        self.step_of_gpu.rounded.copy_(self.step_of_gpu.flat.values)
        self.step_of_gpu.seen.fill_(states[0][1]["adam_step"])

    def moments(self) -> dict[str, dict[str, Tensor]]:
        step = self.step_of_gpu
        moving = dict(zip(MOMENTS, (step.exp_avg, step.exp_avg_sq), strict=True))
        return {key: step.flat.views(values) for key, values in moving.items()}
