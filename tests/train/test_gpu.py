"""The step in Triton against autograd with the same masks, its epochs, and its state.

It runs on a GPU; or on a CPU in Triton's interpreter, by `make triton`.
"""

# ruff: noqa: E402 (the modules below import Triton)

from dataclasses import replace

import pytest
import torch

from tests.helpers import needs

needs.require("Triton")

from carry_core.errors import BadInput
from carry_core.model import ModelConfig
from carry_train import gpu, gpu_kernels, groups, loop, progress, trainer
from carry_train.checkpoints import Checkpoints
from carry_train.gpu import GpuStep, Settings
from carry_train.gpu_trainer import GpuTrainer
from carry_train.groups import Group, Recipe
from carry_train.precisions import TRITON_BF16
from carry_train.progress import Conditions
from carry_train.seeds import OWN
from carry_train.trainer import Trainer
from tests.helpers.gpu_masks import HashedMasks
from tests.helpers.trainings import weights

INTERPRETED = gpu_kernels.INTERPRETED
pytestmark = [
    pytest.mark.slow,
    # The interpreter itself makes numpy warn.
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]

DEVICE = "cpu" if INTERPRETED else "cuda"
BATCH = 16
# In the interpreter products are in float32; it has no tensor cores to imitate.
SMALL = Settings(
    dtype=torch.float32 if INTERPRETED else torch.bfloat16,
    projected=BATCH,
    block=BATCH,
    block_back=BATCH,
    stream_back=BATCH,
    scored=BATCH,
    added=BATCH,
    parameters=4096,
    depth=16,
)
APART = 1e-5 if INTERPRETED else 0.04  # of gradients; PyTorch's own bf16: up to 0.022
RECIPE = Recipe("paper", 1.4e-4)
ALL = slice(None)  # runs
SHAPES = {
    "two layers": ModelConfig(),
    "three layers": ModelConfig(layers=3),
    "decoder, four heads": ModelConfig(causal=True, heads=4),
    "more neurons": ModelConfig(d_ff=256),
    "31 positions": ModelConfig(width=10),
}


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    """Some programs have several tiles, and some have none."""
    monkeypatch.setattr(gpu, "DEFAULTS", SMALL)
    for name in ("SLOTS", "NORM_PROGRAMS", "PROGRAMS"):
        monkeypatch.setattr(gpu, name, 4)
    monkeypatch.setattr(trainer, "N_LONG", 20)


def small(config: ModelConfig = SHAPES["two layers"], **values) -> Group:
    """A group of 25 training sums: two batches, the second of which is short."""
    return Group("small", config, fraction=0.00005, batch=BATCH, **values)


def distance(ours: torch.Tensor, reference: torch.Tensor) -> float:
    return ((ours - reference).norm() / reference.norm().clamp(min=1e-12)).item()


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_and_updates_are_autograds(shape):
    """For two runs with dropout, in two steps; the scores too."""
    group = small(SHAPES[shape], dropout=0.2 if "heads" in shape else 0.1)
    reference = Trainer(group, RECIPE, [0, 1], DEVICE)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in reference.parameters.values():
            p.add_(0.05 * torch.randn(p.shape, generator=generator).to(p.device))
    seeds = [OWN.streams(run).dropout for run in (0, 1)]
    step = GpuStep(reference.stack, reference.parameters, seeds, group, RECIPE)
    sums = step.sums(reference.train, reference.targets(*reference.train.unbind(1)))
    masks = HashedMasks(seeds, group)
    reference.masks = lambda shape, dtype: masks(shape, dtype).to(reference.device)

    for number, (a, b) in enumerate(reference.batches(reference.train, BATCH)):
        masks.start(number)
        expected = reference.step(a, b, number)
        step.train(sums)
        gradients = step.flat.views(step.partial.sum(1))
        for name, p in reference.parameters.items():
            assert distance(gradients[name], p.grad) < APART, name
            # Adam takes equal steps along small gradients, which are mostly rounding.
            assert distance(step.parameters[name], p) < max(1e-4, APART / 10), name
        totals = sums.totals.sum(1)
        sums.totals.zero_()
        torch.testing.assert_close(totals[:, 0], expected["loss"], rtol=APART, atol=0)
        close_to_a_tie = 0 if INTERPRETED else 2 / a.shape[1]
        assert (totals[:, 1:-1] - expected["accuracy"]).abs().max() <= 1e-6 + close_to_a_tie
        assert (totals[:, -1] - expected["whole"]).abs().max() <= 1e-6 + close_to_a_tie


def test_a_resumed_training_goes_on_to_the_bit_and_is_tested_as_any_other():
    """Longer sums included, of a padded group."""
    group = small(ModelConfig(width=4), primed=8)
    going_on, resumed = (
        GpuTrainer(group, RECIPE, [3, 5], DEVICE, precision=TRITON_BF16) for _ in range(2)
    )
    going_on.run_epoch()
    before = weights(going_on, ALL)
    resumed.restore(going_on.states())
    rows = [of_two.run_epoch() for of_two in (going_on, resumed)]
    assert not torch.equal(before["embed.weight"], going_on.parameters["embed.weight"])
    for name, p in weights(going_on, ALL).items():
        assert torch.equal(p, resumed.parameters[name]), name
    for name, values in rows[0].items():
        assert (values == rows[1][name]).all(), name
    assert resumed.adam_steps() == 2 * RECIPE.steps_in_epoch(group)

    reference = Trainer(group, RECIPE, [3, 5], DEVICE)
    reference.load(resumed.states())
    for name, values in reference.test_epoch().items():
        ours = torch.as_tensor(rows[1][name])
        torch.testing.assert_close(ours, values.cpu().float(), rtol=APART, atol=APART)


def test_a_run_does_not_depend_on_those_beside_it():
    group = small()
    together, alone = (
        GpuTrainer(group, RECIPE, runs, DEVICE, precision=TRITON_BF16) for runs in ([2, 5], [5])
    )
    together.run_epoch()
    alone.run_epoch()
    for name, p in weights(alone, 0).items():
        assert distance(together.parameters[name][1], p) < 1e-4, name


def test_finetuning_goes_on_with_the_parents_optimiser(data, monkeypatch):
    """The parent is trained to its files, with a snapshot; the child's step is autograd's."""
    parent = small(ModelConfig(width=4), epochs=2, snapshots=(1,))
    child = replace(parent, name="child", epochs=1, snapshots=(), primed=10, parent=("small", 1))
    for group in (parent, child):
        monkeypatch.setitem(groups.GROUPS, group.name, group)
    first, checkpoints = (
        Checkpoints(data / "checkpoints", group, RECIPE) for group in (parent, child)
    )
    conditions = Conditions(DEVICE, (TRITON_BF16,))
    assert loop.train_group(first, [0, 1], data / "runs", conditions)
    assert progress.missing(first, [0, 1], data / "runs") == {}
    assert first.load(1)[1]["adam_step"] == 2 * RECIPE.steps_in_epoch(parent)

    tuned = GpuTrainer(child, RECIPE, [0, 1], DEVICE, precision=TRITON_BF16)
    reference = Trainer(child, RECIPE, [0, 1], DEVICE)
    for of_two in (tuned, reference):
        loop.prepare(of_two, checkpoints)
    masks = HashedMasks([OWN.streams(run).dropout for run in (0, 1)], child)
    reference.masks = lambda shape, dtype: masks(shape, dtype).to(reference.device)
    before = weights(tuned, ALL)
    tuned.run_epoch()
    reference.run_epoch()
    assert tuned.adam_steps() == reference.adam_steps() == RECIPE.steps_in_epoch(parent) + 1
    for name, p in reference.parameters.items():
        moved = p.detach() - before[name]
        assert distance(tuned.parameters[name] - before[name], moved) < 100 * APART, name


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        (small(ModelConfig(layers=1)), "two layers or more"),
        (small(tracks_final_mlp=True), "without its final MLP"),
        (small(ModelConfig(d_model=64)), "a power of two from 128"),
        (small(ModelConfig(d_ff=96)), "a multiple of 128"),
        (small(ModelConfig(heads=16)), "16 dimensions"),
        (small(ModelConfig(width=17)), "positions"),
        (replace(small(), batch=24), "a multiple of 16"),
    ],
)
def test_a_group_without_kernels_is_refused(group, reason):
    with pytest.raises(
        BadInput, match=f"cannot be had here .*{reason}.*: choose another precision"
    ):
        GpuTrainer(group, RECIPE, [0], DEVICE, precision=TRITON_BF16)


@pytest.mark.parametrize("own", [{"batch": 128}, {"cooldown": 0.2}, {"steps": 9, "segments": 3}])
def test_a_recipe_whose_steps_it_does_not_take_is_refused(own):
    with pytest.raises(BadInput, match="cannot be had here .*of its own.*: choose another precis"):
        GpuTrainer(small(), replace(RECIPE, **own), [0], DEVICE, precision=TRITON_BF16)
