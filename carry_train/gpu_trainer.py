"""The trainer with the GPU's step: whole epochs as replays of CUDA graphs."""

from collections.abc import Callable
from typing import Any

import torch
from numpy.random import SeedSequence
from torch import Tensor

from carry_train import gpu
from carry_train.gpu import GpuStep, Sums
from carry_train.groups import Group, Recipe
from carry_train.precisions import Precision
from carry_train.stacked import Stack, threshold_of
from carry_train.trainer import MOMENTS, State, Trainer


class GpuTrainer(Trainer):
    """Several runs of one group in lockstep, in the precision `triton-bf16`.

    Raises:
        BadInput: There is no such step for the group, or not on this device.
    """

    @staticmethod
    def check(group: Group, recipe: Recipe, precision: Precision) -> None:
        gpu.check(group, recipe)

    def prepare_step(self, stacked: dict[str, Tensor], dropout: list[SeedSequence]) -> None:
        threshold = threshold_of(self.group.dropout)
        self.stack = Stack(self.group.config, self.device, threshold=threshold)
        self.gpu_step = GpuStep(self.stack, stacked, dropout, self.group, self.recipe)
        self.parameters = self.gpu_step.parameters
        self.train_sums = self.prepared(self.train)
        self.test_sums = self.prepared(self.test)
        self.long_sums = self.prepared(self.long) if self.group.padded else None

    def prepared(self, pairs: Tensor) -> Sums:
        """Return sums as the kernels read them."""
        return self.gpu_step.sums(pairs, self.targets(pairs[:, 0], pairs[:, 1]))

    def train_epoch(self, pause: Callable[[], bool] = lambda: False) -> dict[str, Tensor] | None:
        """Go through the training set once. `pause` is not called: an epoch takes a moment."""
        means = self.gpu_step.train_epoch(self.train_sums)
        return {f"train_{key}": value for key, value in means.items()}

    def mean_score(self, pairs: Tensor) -> dict[str, Tensor]:
        long_sums = self.long_sums if pairs is self.long else None
        return self.gpu_step.test_epoch(long_sums or self.test_sums)

    def restore(self, states: list[State]) -> None:
        """Go on from what `states` gave of the same runs."""
        super().restore(states)
        done = self.epoch * self.steps_in_epoch
        self.train_sums.step.fill_(done)
        self.gpu_step.seen -= done

    @torch.no_grad()
    def load(self, states: list[State]) -> None:
        super().load(states)
        self.gpu_step.rounded.copy_(self.gpu_step.flat.values)

    def adam_steps(self) -> int:
        return int(self.gpu_step.seen) + self.epoch * self.steps_in_epoch

    def set_adam_steps(self, number: int) -> None:
        self.gpu_step.seen.fill_(number)

    def moments(self) -> dict[str, dict[str, Tensor]]:
        averages = dict(
            zip(MOMENTS, (self.gpu_step.exp_avg, self.gpu_step.exp_avg_sq), strict=True)
        )
        return {key: self.gpu_step.flat.views(values) for key, values in averages.items()}

    def dropout_state(self, i: int) -> dict[str, Any]:
        """Return nothing: the masks follow from the run's seed and the number of the step."""
        return {}

    def set_dropout_state(self, i: int, state: dict[str, Any]) -> None:
        pass
