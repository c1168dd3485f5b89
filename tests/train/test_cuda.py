"""Training on a GPU. CI has none; these run where one is lent."""

from dataclasses import replace

import pytest
import torch

from carry_core.model import ModelConfig
from carry_train import trainer
from carry_train.groups import Group, Recipe
from carry_train.precisions import TORCH_BF16, TORCH_FP32
from carry_train.trainer import Trainer
from tests.conftest import SHAPES
from tests.helpers.trainings import weights

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("a CUDA device"),
]

RECIPE = Recipe("paper", 1.4e-4)
ALL = slice(None)  # runs


def group() -> Group:
    return Group(
        "small", ModelConfig(width=2, d_model=32, d_ff=32), n_digits=2, batch=256, n_runs=3
    )


def test_cpu_and_gpu_agree():
    """In the first steps: a run's masks are the same on both."""
    rows = []
    for device in ("cpu", "cuda"):
        trainer = Trainer(group(), RECIPE, [0, 1], device)
        a, b = trainer.batches(trainer.train, 256)[0]
        rows.append([trainer.step(a, b, number)["loss"].tolist() for number in range(5)])
    torch.testing.assert_close(torch.tensor(rows[0]), torch.tensor(rows[1]), rtol=1e-4, atol=1e-5)


def distance(trained: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """Euclidean distance of all weights."""
    return (
        sum((trained[name] - p).double().square().sum().item() for name, p in expected.items())
        ** 0.5
    )


@pytest.mark.parametrize("precision", [TORCH_FP32, TORCH_BF16])
@pytest.mark.parametrize("runs", ["one layer", "decoder", "ten digits"])
def test_a_resumed_training_goes_on(runs, precision, monkeypatch):
    """A third epoch after a stop is as without the stop (on a CPU to the bit: `test_loop`).

    A GPU adds up in any order, so the weights may differ by a small part of what the epoch moved
    them: by less than a third of what the masks of other runs make of it, and a tenth of what
    moments at zero do.
    """
    monkeypatch.setattr(trainer, "N_LONG", 600)
    config = ModelConfig(width=10, d_model=16, d_ff=16) if runs == "ten digits" else SHAPES[runs]
    small = replace(group(), config=config, primed=100 * (config.width > 2), n_runs=2)
    going_on, resumed = (Trainer(small, RECIPE, [3, 5], "cuda", precision) for _ in range(2))
    for _ in range(2):
        going_on.run_epoch()
    before = weights(going_on, ALL)
    resumed.restore(going_on.states())
    assert resumed.epoch == 2
    assert distance(weights(resumed, ALL), before) == 0
    rows = [trainer.run_epoch() for trainer in (going_on, resumed)]
    moved, apart = (
        distance(weights(going_on, ALL), before),
        distance(weights(resumed, ALL), weights(going_on, ALL)),
    )
    assert apart <= (0.01 if precision == TORCH_FP32 else 0.03) * moved
    for key, value in rows[0].items():
        assert len(resumed.history[key]) == len(going_on.history[key]) == 3
        torch.testing.assert_close(
            *map(torch.from_numpy, (rows[1][key], value)), rtol=0.02, atol=0.02
        )
