"""Helpers for tests that train: short recipes, a clock in batches, files of random runs."""

import math

import pytest
import torch

from carry_core import groups, measure, runs
from carry_core.groups import Group, Recipe
from carry_core.model import Transformer
from carry_paper.training import fused, loop
from carry_paper.training.trainer import Trainer

FEW = 40  # sums of a class, or pairs, where a test measures on few
QUICK = Recipe("quick", 1e-3, warmup=10)
needs_fused = pytest.mark.skipif(bool(fused.why_not()), reason=fused.why_not())


def weights(trainer: Trainer, i: int | slice = 0) -> dict[str, torch.Tensor]:
    return {name: p[i].detach().clone() for name, p in trainer.parameters.items()}


def few_sums(group: str):
    """Return few sums of each class, on which a group can be surveyed."""
    return measure.sample(FEW, groups.find(group).n_digits, seed=0)


class Ticks(loop.Clock):
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


def save_random(
    group: Group,
    numbers=(0,),
    recipe: str = "paper",
    epochs: int = 0,
    source: str = "ours",
    **curves,
):
    """Write random runs as a source has them; each snapshot has nine tenths of their weights."""
    folder = runs.folder(source) / group.name / ("" if source == "author" else recipe)
    for run in numbers:
        torch.manual_seed(run)
        weights = Transformer(group.config).state_dict()
        weights |= {
            f"epoch_{e}/{name}": 0.9 * p for e in group.snapshots for name, p in weights.items()
        }
        by = "author" if source == "author" else recipe
        record = {
            "recipe": by,
            "run": run,
            "epochs": epochs or group.epochs,
            "device": "cpu",
            "precision": "fp32",
        }
        runs.save_run(folder / f"run{run}.safetensors", group, weights, record, curves)
