"""The trainer's data, steps, masks, curves and finetuning, against plain loops and single runs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from carry_core import carries, sums
from carry_core.interventions import Ablation
from carry_core.measure import class_accuracies
from carry_core.model import ModelConfig, Transformer
from carry_paper import bench
from carry_train import groups
from carry_train import trainer as train_module
from carry_train.groups import Group, Recipe
from carry_train.seeds import OWN
from carry_train.stacked import Stack
from carry_train.trainer import Trainer, initialise, split
from tests.conftest import SHAPES
from tests.helpers.tolerances import assert_close, tolerance
from tests.helpers.trainings import QUICK, weights

pytestmark = pytest.mark.machine


def test_initialisation():
    fresh = initialise(ModelConfig(), torch.Generator().manual_seed(0))
    for name in ("embed.weight", "unembed.weight", "blocks.1.q.weight", "blocks.0.down.weight"):
        bound = math.sqrt(6 / sum(fresh[name].shape))
        assert 0.98 * bound < fresh[name].abs().max() <= bound
    assert 0 < fresh["blocks.0.k.bias"].abs().max() <= 1 / math.sqrt(128)
    wide = initialise(ModelConfig(d_ff=512), torch.Generator().manual_seed(0))
    for name, inputs in (("up", 128), ("down", 512)):
        bound = 1 / math.sqrt(inputs)
        assert 0.9 * bound < wide[f"blocks.0.{name}.bias"].abs().max() <= bound, name
    assert (fresh["blocks.0.norm.weight"] == 1).all()
    assert (fresh["norm.bias"] == 0).all()
    norm = sum(p.square().sum().item() for p in fresh.values())
    # the released histories have 1951 after one epoch of decay
    assert norm == pytest.approx(1968, abs=15)


def test_data_of_a_run(small_group):
    train, test, _ = split(small_group, OWN.streams(0).split)
    again, other_run = (split(small_group, OWN.streams(run).split)[0] for run in range(2))
    assert torch.equal(train, again)
    assert not torch.equal(train, other_run)
    in_train, in_test = (set(zip(*part.tolist(), strict=True)) for part in (train, test))
    assert len(in_train) == len(in_test) == round(0.3 * 5050) == train.shape[1]
    assert not in_train & in_test
    assert max(a + b for a, b in in_train) < 100


def test_priming_joins_the_first_long_sums(small_group):
    config = replace(small_group.config, width=4)
    train, _, long = split(replace(small_group, config=config), OWN.streams(0).split)
    primed, _, rest = split(replace(small_group, config=config, primed=7), OWN.streams(0).split)
    assert long.shape[1] == groups.N_LONG
    assert torch.equal(rest, long[:, 7:])
    joined = {*zip(*train.tolist(), strict=True), *zip(*long[:, :7].tolist(), strict=True)}
    assert {*zip(*primed.tolist(), strict=True)} == joined
    assert primed.shape[1] == train.shape[1] + 7


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_a_group_is_trained_with_its_own_dropout(rate):
    """At a rate of zero, a step's loss is that with dropout off; at another it is not."""
    group = Group("small", ModelConfig(), n_digits=2, batch=64, dropout=rate)
    trainer = Trainer(group, QUICK, [0])
    a, b = trainer.batches(trainer.train, group.batch)[0]
    expected = trainer.mean_score(torch.stack([a, b], 1))["loss"].detach()
    loss = trainer.step(a, b, 0)["loss"].detach()
    apart = float((loss - expected).abs().max())
    assert (apart < tolerance(torch.float32, float(expected.max()))) == (rate == 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("config_name", ["encoder", "one-layer decoder"])
def test_stacked_runs_equal_separate_runs(config_name):
    """Twelve AdamW steps in float64: what a run becomes does not depend on the runs beside it."""
    group = Group("small", SHAPES[config_name], n_digits=2, batch=256, epochs=5, n_runs=3)
    together, apart = (
        Trainer(group, QUICK, [0, 1]),
        [Trainer(group, QUICK, [run]) for run in range(2)],
    )
    for trainer in (together, *apart):
        trainer.stack = Stack(group.config, trainer.device, torch.float64)
        for p in trainer.parameters.values():
            p.data = p.data.double()
    for _ in range(2):
        together.train_epoch()
        together.epoch += 1
        for trainer in apart:
            trainer.train_epoch()
            trainer.epoch += 1
    assert {int(state["step"]) for state in together.optimiser.state.values()} == {12}
    for run, trainer in enumerate(apart):
        for name, p in weights(trainer).items():
            assert_close(weights(together, run)[name], p, scale=1, msg=name)
    assert not torch.equal(
        weights(together, 0)["blocks.0.q.weight"], weights(together, 1)["blocks.0.q.weight"]
    )


def test_history_is_what_measuring_gives(small_group, monkeypatch):
    monkeypatch.setattr(train_module, "TEST_BATCH", 400)  # several batches, the last one short
    trainer = Trainer(replace(small_group, tracks_final_mlp=True), QUICK, [0])
    for _ in range(4):
        row = trainer.run_epoch()
    model, (a, b) = Transformer(trainer.group.config).eval(), trainer.test[0]
    model.load_state_dict(weights(trainer))
    intact, ablated = class_accuracies(model, a, b, [Ablation(), Ablation(mlps={1})])
    assert row["test_whole"][0] == pytest.approx(intact.exact_match, abs=2e-3)
    np.testing.assert_allclose(row["test_ablated_accuracy"][0], ablated.accuracy, atol=5e-3)
    np.testing.assert_allclose(row["test_ablated_corrected"][0], ablated.corrected, atol=5e-3)
    norm = sum(p.double().square().sum().item() for p in model.parameters())
    assert row["weight_norm"][0] == pytest.approx(norm, rel=1e-5)
    assert {len(curve) for curve in trainer.history.values()} == {4}


def test_nine_and_one_make_zero_in_what_is_recorded(small_group):
    """A model that answers only nines, by class and position; corrected, they are 0s and 8s."""
    config = replace(small_group.config, width=3)
    group = replace(small_group, config=config, n_digits=3, fraction=0.01, tracks_final_mlp=True)
    trainer = Trainer(group, QUICK, [0])
    trainer.parameters["unembed.weight"].data.zero_()
    trainer.parameters["unembed.bias"].data[:, 9] = 100
    row = trainer.test_epoch()
    a, b = trainer.test[0]
    task, answer = carries.classify(a, b), sums.digits(a + b, 3)
    for recorded, expected_digits in (
        ("accuracy", answer == 9),
        ("corrected", answer == torch.where(carries.carry_in()[task], 0, 8)),
    ):
        for i in range(5):
            expected = expected_digits[task == i].float().mean(0)
            assert_close(row[f"test_ablated_{recorded}"][0, i], expected)


RUNS = [0, 2]
RECIPE = Recipe("quick", 2e-3, warmup=9)  # six steps an epoch: it ends in the middle of the second


def plain_loop(trainer: Trainer, epochs: int) -> dict[str, list[np.ndarray]]:
    """Train by PyTorch's AdamW, and none of the trainer's loop; return each epoch's means."""
    fixed = {"betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": trainer.group.decay}
    # Other orders of adding up than the fused one would move what has hardly a gradient, such as
    # the keys' biases.
    optimiser = torch.optim.AdamW(trainer.parameters.values(), lr=RECIPE.rate, fused=True, **fixed)
    count, size = trainer.train.shape[2], trainer.group.batch
    means: dict[str, list[np.ndarray]] = {"loss": [], "accuracy": [], "whole": []}
    done = 0
    for _ in range(epochs):
        rows = []
        for start in range(0, count, size):
            a, b = (
                trainer.train[:, 0, start : start + size],
                trainer.train[:, 1, start : start + size],
            )
            optimiser.param_groups[0]["lr"] = float(np.float32(RECIPE.rate * min(done + 1, 9) / 9))
            logits = trainer.stack.logits(
                trainer.parameters, trainer.stack.rows(a, b), trainer.masks
            )
            row = trainer.score(logits, trainer.targets(a, b))
            optimiser.zero_grad()
            row["loss"].sum().backward()
            optimiser.step()
            rows.append({key: value.detach().numpy() for key, value in row.items()})
            done += 1
        for key, mean in means.items():
            mean.append(np.mean([row[key] for row in rows], axis=0))
    assert done == 12
    return means


@pytest.mark.slow
@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_two_epochs_are_a_plain_loop(small_group, decay):
    """The warm-up passes the epoch's end; the last, short batch counts like others in the means."""
    group = replace(small_group, decay=decay)
    trainer, untrained = (Trainer(group, RECIPE, RUNS) for _ in range(2))
    before = {name: p.detach().clone() for name, p in untrained.parameters.items()}
    assert (trainer.steps_in_epoch, trainer.train.shape[2] % group.batch) == (6, 235)
    for _ in range(2):
        trainer.run_epoch()
    expected = plain_loop(untrained, 2)
    for name, p in untrained.parameters.items():
        assert_close(trainer.parameters[name], p, msg=name)
        assert (p - before[name]).abs().max() > 1e-3
    for key, means in expected.items():
        np.testing.assert_allclose(trainer.history[f"train_{key}"], means, rtol=1e-5, atol=1e-6)
        assert not np.allclose(means[0], means[1], rtol=1e-4)
    assert all(state["step"] == 12 for state in trainer.optimiser.state.values())
    assert trainer.epoch == 2


def test_the_baseline_is_the_same_model(config):
    torch.manual_seed(0)
    plain = bench.Plain(Group("small", config))
    a, b = sums.long_sums(5, config.width, torch.Generator().manual_seed(0))
    tokens = sums.encode(a, b, config.layout)
    assert_close(plain.logits(tokens, 0.0), plain.model(tokens))


@pytest.mark.parametrize("instructions", ["avx2 fma", "avx2 fma avx512_bf16"])
def test_the_gpus_benchmark_runs(small_group, processor_with, instructions):
    """On the CPU here: what is measured is the trainer's own step, of so many runs in lockstep.

    A processor that emulates bf16 has no row for it.
    """
    processor_with(instructions.split())
    rows = bench.train("cpu:0", [small_group], runs=2, rounds=1)
    # it is of another size
    formats = ["fp32", "bf16"] if "bf16" in instructions else ["fp32"]
    assert [row["precision"] for row in rows] == [f"torch-{format}" for format in formats]
    assert {row["runs"] for row in rows} == {2}
    for row in rows:
        assert row["ours, ms"] > 0
        assert "ratio" not in row
