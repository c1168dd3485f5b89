"""The captured step on a GPU. CI has none; these run where one is lent, and what needs no capturing on a CPU too."""

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

# what the compiler says on recent GPUs in fp32, which is what is asked for, and of its own imports
COMPILER = [
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores for float32:UserWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
]

RECIPE = Recipe("paper", 1.4e-4)
ALL = slice(None)  # runs


def group() -> Group:
    return Group("small", ModelConfig(width=2, d_model=32, d_ff=32), n_digits=2, batch=256, n_runs=3)


@needs_cuda
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=COMPILER)])
def test_captured_steps_equal_eager_ones(compiled):
    """Ten steps, the short last batch among them, from the same weights and with the same masks."""
    captured = Trainer(group(), RECIPE, [0, 1, 2], "cuda", compiled=compiled)
    eager = Trainer(group(), RECIPE, [0, 1, 2], "cuda", compiled=False)
    batches = eager.batches(eager.train, 256)
    assert batches[-1][0].shape[1] < 256
    for number in range(10):
        a, b = batches[number % len(batches)]
        row = captured.step(a, b, number)
        eager.counter.fill_(number)
        size = 256 - a.shape[1]
        filled = [torch.nn.functional.pad(x.long(), (0, size)) for x in (a, b)]
        weight = (torch.arange(256, device="cuda") < a.shape[1]).float()
        expected = eager.eager_step(*filled, weight)
        torch.testing.assert_close(row["loss"], expected["loss"], rtol=1e-4, atol=1e-5)
    for name, p in captured.parameters.items():
        torch.testing.assert_close(p, eager.parameters[name], rtol=1e-3, atol=1e-4, msg=name)


@needs_cuda
def test_replays_draw_different_masks():
    trainer = Trainer(group(), RECIPE, [0], "cuda", compiled=False)
    a, b = trainer.batches(trainer.train, 256)[0]
    trainer.step(a, b, 0)
    before = {name: p.detach().clone() for name, p in trainer.parameters.items()}
    losses = []
    for number in (1, 2, 1):
        losses.append(trainer.step(a, b, number)["loss"].item())
        with torch.no_grad():
            for name, p in trainer.parameters.items():
                p.copy_(before[name])
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[2], rel=1e-5)


@needs_cuda
def test_capturing_changes_no_weight():
    trainer = Trainer(group(), Recipe("still", 0.0), [0, 1], "cuda", compiled=False)
    before = {name: p.detach().clone() for name, p in trainer.parameters.items()}
    a, b = trainer.batches(trainer.train, 256)[0]
    trainer.step(a, b, 0)
    for name, p in trainer.parameters.items():
        assert torch.equal(p, before[name]), name
    assert all(state["step"].item() == 1 for state in trainer.optimiser.state.values())


@needs_cuda
def test_cpu_and_gpu_agree_without_dropout():
    rows = []
    for device in ("cpu", "cuda"):
        trainer = Trainer(group(), RECIPE, [0, 1], device, compiled=False)
        trainer.masks = None
        a, b = trainer.batches(trainer.train, 256)[0]
        rows.append([trainer.step(a, b, number)["loss"].tolist() for number in range(5)])
    torch.testing.assert_close(torch.tensor(rows[0]), torch.tensor(rows[1]), rtol=1e-4, atol=1e-5)


def distance(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """Euclidean distance of all weights."""
    return sum((found[name] - p).double().square().sum().item() for name, p in expected.items()) ** 0.5


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[needs_cuda, *COMPILER])])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("which", ["one layer", "decoder", "ten digits"])
def test_a_resumed_training_goes_on(which, precision, device, monkeypatch, request):
    """Two epochs, frozen, restored elsewhere, a third: as without the stop, to the bit on a CPU.

    A GPU adds up in any order, so there the weights may differ by a small part of what the epoch moved them: by less
    than a third of what the masks of other runs make of it, and a tenth of what moments at zero do.
    """
    if device == "cuda":
        request.getfixturevalue("unchecked")
    monkeypatch.setattr(trainer, "N_LONG", 600)
    config = ModelConfig(width=10, d_model=16, d_ff=16) if which == "ten digits" else SHAPES[which]
    small = replace(group(), config=config, primed=100 * (config.width > 2), n_runs=2)
    going_on, other = (Trainer(small, RECIPE, [3, 5], device, precision) for _ in range(2))
    assert going_on.train.dtype == (torch.int64 if config.width == 10 else torch.int32)
    for _ in range(2):
        going_on.run_epoch()
    before = weights(going_on, ALL)
    other.restore(going_on.freeze()())
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


@needs_cuda
def test_nobody_waits_for_the_gpu_within_an_epoch():
    """From the second epoch on, the test by classes included: the first compiles, captures and copies tables."""
    trainer = Trainer(replace(group(), tracks_final_mlp=True), RECIPE, [0, 1], "cuda", compiled=False)

    def epoch():
        for number, (a, b) in enumerate(trainer.batches(trainer.train, 256)):
            trainer.step(a, b, number)
        with torch.inference_mode():
            return trainer.test_epoch()

    assert "test_ablated_accuracy" in epoch()
    torch.cuda.set_sync_debug_mode("error")
    try:
        epoch()
    finally:
        torch.cuda.set_sync_debug_mode("default")
