"""Helpers for the tests of training: a short recipe, a clock that ends within an epoch, and what was published."""

import math

import torch

from carry_core import campaign, trainings
from carry_core.checkpoints import Checkpoints
from carry_core.groups import Recipe
from carry_core.train import Trainer
from carry_core.verify import verify

QUICK = Recipe("quick", 1e-3, warmup=10)


def weights(trainer: Trainer, i: int = 0) -> dict[str, torch.Tensor]:
    return {name: p[i].detach().clone() for name, p in trainer.parameters.items()}


class Ticks(campaign.Clock):
    """A clock that asks for a save after every other batch, and is over after some batches."""

    def __init__(self, batches: float = math.inf) -> None:
        super().__init__()
        self.left = batches

    @property
    def over(self):
        return self.left <= 0

    def pause(self):
        self.left -= 1
        return self.over or self.left % 2 == 0


def train_and_publish(group, data, recipe, numbers):
    """What `carry train` says in the end, and the runs and epochs that are then there by recipe, the group's first."""
    said = []
    campaign.train_group(Checkpoints(data / "checkpoints", group, recipe), numbers, data / "runs", say=said.append)
    found = {
        name: (list(found.runs.numbers), found.runs.record["epochs"])
        for name, found in trainings.ours(group.name).items()
    }
    assert verify(data) == []
    return said[-1], found
