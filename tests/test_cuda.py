"""The captured step on a GPU. CI has none; these run where one is lent."""

import pytest
import torch

from carry_core.groups import Group, Recipe
from carry_core.model import ModelConfig
from carry_core.train import Trainer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

RECIPE = Recipe("paper", 1.4e-4)


def group() -> Group:
    return Group("small", ModelConfig(width=2, d_model=32, d_ff=32), n_digits=2, batch=256, n_runs=3)


@pytest.mark.parametrize("compiled", [False, True])
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


def test_capturing_changes_no_weight():
    trainer = Trainer(group(), Recipe("still", 0.0), [0, 1], "cuda", compiled=False)
    before = {name: p.detach().clone() for name, p in trainer.parameters.items()}
    a, b = trainer.batches(trainer.train, 256)[0]
    trainer.step(a, b, 0)
    for name, p in trainer.parameters.items():
        assert torch.equal(p, before[name]), name
    assert all(state["step"].item() == 1 for state in trainer.optimiser.state.values())


def test_cpu_and_gpu_agree_without_dropout():
    rows = []
    for device in ("cpu", "cuda"):
        trainer = Trainer(group(), RECIPE, [0, 1], device, compiled=False)
        trainer.masks = None
        a, b = trainer.batches(trainer.train, 256)[0]
        rows.append([trainer.step(a, b, number)["loss"].tolist() for number in range(5)])
    torch.testing.assert_close(torch.tensor(rows[0]), torch.tensor(rows[1]), rtol=1e-4, atol=1e-5)
