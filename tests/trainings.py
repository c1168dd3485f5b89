"""Helpers for tests that train, or that need trained runs: short recipes, a clock in batches, files of random runs."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from carry_core.files import author_dir
from carry_core.groups import Group
from carry_core.model import ModelConfig
from carry_core.training import checkpoints, loop
from carry_core.training.recipes import Recipe
from carry_core.training.trainer import Trainer

QUICK = Recipe("quick", 1e-3, warmup=10)


def weights(trainer: Trainer, i: int | slice = 0) -> dict[str, torch.Tensor]:
    return {name: p[i].detach().clone() for name, p in trainer.parameters.items()}


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


def save_group(
    where: Path,
    group: str,
    config: ModelConfig,
    stacked: dict[str, torch.Tensor],
    record: dict[str, Any],
    curves: dict[str, np.ndarray] | None = None,
) -> None:
    """Write runs whose weights and curves are given as `[run, …]`, into the folder of a source."""
    folder = where / group if where == author_dir() else where / group / record["recipe"]
    shared = {key: value for key, value in record.items() if key != "runs"}
    for i, entry in enumerate(record["runs"]):
        own = {key: value[i] for key, value in (curves or {}).items() if key != "runs" and i < len(value)}
        path = folder / f"run{entry['run']}.safetensors"
        checkpoints.save_run(
            path, Group(group, config), {name: p[i] for name, p in stacked.items()}, shared | entry, own
        )
