"""Helpers for tests that train: short recipes, a clock in batches, files of random runs."""

import math
import resource

import numpy as np
import pytest
import torch

from carry_core import measure, runs
from carry_core.errors import BadInput
from carry_core.model import ModelConfig, Transformer
from carry_train import groups, loop, precisions
from carry_train.checkpoints import Checkpoints
from carry_train.curves import shapes_of_curves
from carry_train.files import save_run
from carry_train.groups import Group, Recipe
from carry_train.progress import Conditions
from carry_train.trainer import Trainer

FEW = 40  # sums of a class, or pairs, where a test measures on few
QUICK = Recipe("quick", 1e-3, warmup=10)
needs_fused = pytest.mark.needs("the fused step")


def weights(trainer: Trainer, i: int | slice = 0) -> dict[str, torch.Tensor]:
    return {name: p[i].detach().clone() for name, p in trainer.parameters.items()}


def few_sums(group: str):
    """Return few sums of each class, on which a group can be surveyed."""
    return measure.sample(FEW, groups.find(group).n_digits, seed=0)


def train_small(started, folder, precision="torch-fp32", max_bytes=None):
    """Train two runs in a process to be killed, with a checkpoint a batch, files of `max_bytes`."""
    if max_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes))
    torch.set_num_threads(1)  # as the tests' own process has it
    loop.SAVE_EVERY = 0.0
    # The fused step knows the paper's only.
    d_model = 128 if precision.startswith(precisions.FUSED) else 16
    config = ModelConfig(width=2, d_model=d_model, d_ff=d_model)
    group = groups.GROUPS["small"] = Group(
        "small", config, n_digits=2, batch=384, epochs=3, n_runs=2
    )
    checkpoints = Checkpoints(folder / "checkpoints", group, Recipe("paper", 1e-3))
    try:
        report = lambda *_: started.set()  # noqa: E731
        loop.train_group(
            checkpoints,
            [0, 1],
            folder / "runs",
            Conditions(request=precisions.REQUESTS[precision]),
            report=report,
        )
    except BadInput as error:
        (folder / "complaint").write_text(str(error))
        raise SystemExit(2) from None


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
        save_run(folder / f"run{run}.safetensors", group, weights, record, curves)


def planted_curves(group: Group) -> dict[str, np.ndarray]:
    """Return curves of a run that learns at epoch 100, those that runs of the group can have.

    The units' accuracy jumps, attention passes one half, the norm turns.
    """
    n_epochs = group.epochs
    epoch = np.arange(1, n_epochs + 1)
    pattern = np.zeros((n_epochs, 2, 10, 10), np.float32)
    pattern[epoch >= 98, 1, 9, 2] = pattern[epoch >= 98, 1, 9, 6] = 0.3
    planted = {
        "test_accuracy": np.stack([np.where(epoch < 100, 0.2, 0.9)] * 3, -1),
        "test_whole": np.ones(n_epochs),
        "train_whole": np.ones(n_epochs),
        "pattern": pattern,
        "weight_norm": 500.0 + np.abs(epoch - 101.0),
        "test_loss": np.exp(-epoch / 50),
        "test_ablated_accuracy": np.random.default_rng(0).random((n_epochs, 5, 3)),
        "test_ablated_corrected": np.random.default_rng(1).random((n_epochs, 5, 3)),
        "long_whole": np.where(epoch < 150, 0.5, 0.2),
        "long_accuracy": np.stack([np.where(epoch < 150, 1, 0.3)] * 6, 1),
    }
    shapes = shapes_of_curves(group)
    return {name: x for name, x in planted.items() if x.shape[1:] == shapes[name]}
