"""Training on a GPU. CI has none; these run where one is lent, and what needs none on a CPU too."""

from dataclasses import replace

import pytest
import torch

from carry_core.groups import Group
from carry_core.model import ModelConfig
from carry_core.training import trainer
from carry_core.training.recipes import Recipe
from carry_core.training.trainer import Trainer
from tests.conftest import SHAPES
from tests.skips import needs_cuda
from tests.trainings import weights

RECIPE = Recipe("paper", 1.4e-4)
ALL = slice(None)  # runs


def group() -> Group:
    return Group("small", ModelConfig(width=2, d_model=32, d_ff=32), n_digits=2, batch=256, n_runs=3)


@needs_cuda
def test_cpu_and_gpu_agree():
    """In the first steps: a run's masks are the same on both."""
    rows = []
    for device in ("cpu", "cuda"):
        trainer = Trainer(group(), RECIPE, [0, 1], device)
        a, b = trainer.batches(trainer.train, 256)[0]
        rows.append([trainer.step(a, b, number)["loss"].tolist() for number in range(5)])
    torch.testing.assert_close(torch.tensor(rows[0]), torch.tensor(rows[1]), rtol=1e-4, atol=1e-5)


def test_a_trainers_precision_is_its_own(monkeypatch):
    """Steps and tests have their trainer's setting whatever was trained in between."""
    first, second = (Trainer(group(), RECIPE, [0], precision=precision) for precision in ("tf32", "fp32"))
    seen, logits = [], trainer.Stack.streams
    monkeypatch.setattr(trainer.Stack, "streams", lambda *of: seen.append(allowed()) or logits(*of))
    for each in (first, second, first):
        seen.clear()
        each.run_epoch()
        assert seen == [each is first] * (each.group.steps + 1)


def allowed() -> bool:
    return torch.backends.cuda.matmul.allow_tf32


def distance(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """Euclidean distance of all weights."""
    return sum((found[name] - p).double().square().sum().item() for name, p in expected.items()) ** 0.5


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("which", ["one layer", "decoder", "ten digits"])
def test_a_resumed_training_goes_on(which, precision, device, monkeypatch):
    """Two epochs, frozen, restored elsewhere, a third: as without the stop, to the bit on a CPU.

    A GPU adds up in any order, so there the weights may differ by a small part of what the epoch moved them: by less
    than a third of what the masks of other runs make of it, and a tenth of what moments at zero do.
    """
    monkeypatch.setattr(trainer, "N_LONG", 600)
    config = ModelConfig(width=10, d_model=16, d_ff=16) if which == "ten digits" else SHAPES[which]
    small = replace(group(), config=config, primed=100 * (config.width > 2), n_runs=2)
    going_on, other = (Trainer(small, RECIPE, [3, 5], device, precision) for _ in range(2))
    assert going_on.train.dtype == (torch.int64 if config.width == 10 else torch.int32)
    for _ in range(2):
        going_on.run_epoch()
    before = weights(going_on, ALL)
    other.restore(going_on.states())
    assert other.epoch == 2
    assert distance(weights(other, ALL), before) == 0
    rows = [trainer.run_epoch() for trainer in (going_on, other)]
    moved, apart = distance(weights(going_on, ALL), before), distance(weights(other, ALL), weights(going_on, ALL))
    assert moved > 0
    assert apart <= {"cpu": 0.0, "cuda": 0.01 if precision == "fp32" else 0.03}[device] * moved
    assert rows[0].keys() == rows[1].keys() == going_on.history.keys()
    for key, value in rows[0].items():
        assert len(other.history[key]) == 3
        tolerance = 0.0 if device == "cpu" else 0.02
        torch.testing.assert_close(*map(torch.from_numpy, (rows[1][key], value)), rtol=tolerance, atol=tolerance)
