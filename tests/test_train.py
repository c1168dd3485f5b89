"""The trainer: its data, steps, masks, learning curves and finetuning, against plain loops and separate runs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from carry_core import groups, sums
from carry_core.groups import Group
from carry_core.interventions import Ablation
from carry_core.measure import class_accuracies
from carry_core.model import ModelConfig, Transformer
from carry_core.training import recipes
from carry_core.training import trainer as train_module
from carry_core.training.stacked import Stack
from carry_core.training.trainer import Data, Seeds, Trainer, initialise
from tests.conftest import SHAPES
from tests.trainings import QUICK, weights


def steps_of(trainer: Trainer) -> int:
    return int(next(iter(trainer.optimiser.state.values()))["step"])


def model_of(trainer: Trainer, i: int = 0) -> Transformer:
    model = Transformer(trainer.group.config).eval()
    model.load_state_dict(weights(trainer, i))
    return model


def test_the_main_group_is_the_papers():
    group = groups.find(groups.MAIN)
    assert (group.n_train, group.steps) == (150_150, 147)
    assert group.n_train - 146 * group.batch == 646
    epochs = {name: recipe.epochs(group) for name, recipe in recipes.BY_NAME.items()}
    assert epochs == {"paper": 1000, "quick": 60}
    assert len(groups.GROUPS) == 16


def test_initialisation():
    fresh = initialise(ModelConfig(), torch.Generator().manual_seed(0))
    for name in ("embed.weight", "unembed.weight", "blocks.1.q.weight", "blocks.0.down.weight"):
        bound = math.sqrt(6 / sum(fresh[name].shape))
        assert 0.98 * bound < fresh[name].abs().max() <= bound
    assert 0 < fresh["blocks.0.k.bias"].abs().max() <= 1 / math.sqrt(128)
    assert (fresh["blocks.0.norm.weight"] == 1).all()
    assert (fresh["norm.bias"] == 0).all()
    norm = sum(p.square().sum().item() for p in fresh.values())
    assert norm == pytest.approx(1968, abs=15)  # the released histories have 1951 after one epoch of decay


def test_data_of_a_run(small_group):
    data = Data.of(small_group, Seeds.of(0).data)
    again, other = Data.of(small_group, Seeds.of(0).data), Data.of(small_group, Seeds.of(1).data)
    assert torch.equal(data.train, again.train)
    assert not torch.equal(data.train, other.train)
    pairs = {part: set(zip(*getattr(data, part).tolist(), strict=True)) for part in ("train", "test")}
    assert len(pairs["train"]) == len(pairs["test"]) == round(0.3 * 5050) == data.train.shape[1]
    assert not pairs["train"] & pairs["test"]
    assert max(a + b for a, b in pairs["train"]) < 100


def test_priming_joins_the_first_long_sums(small_group):
    config = replace(small_group.config, width=4)
    plain = Data.of(replace(small_group, config=config), Seeds.of(0).data)
    primed = Data.of(replace(small_group, config=config, primed=7), Seeds.of(0).data)
    assert plain.long.shape[1] == groups.N_LONG
    assert torch.equal(primed.long, plain.long[:, 7:])
    joined = {*zip(*plain.train.tolist(), strict=True), *zip(*plain.long[:, :7].tolist(), strict=True)}
    assert {*zip(*primed.train.tolist(), strict=True)} == joined
    assert primed.train.shape[1] == plain.train.shape[1] + 7


@pytest.mark.parametrize("which", ["encoder", "one-layer decoder"])
def test_stacked_runs_equal_separate_runs(which):
    """Twelve AdamW steps in float64: what a run becomes does not depend on the runs beside it."""
    group = Group("small", SHAPES[which], n_digits=2, batch=256, epochs=5, n_runs=3)
    together, apart = Trainer(group, QUICK, [0, 1]), [Trainer(group, QUICK, [run]) for run in range(2)]
    for trainer in (together, *apart):
        trainer.stack = Stack(group.config, trainer.device, torch.float64)
        for p in trainer.parameters.values():
            p.data = p.data.double()
            trainer.optimiser.state[p] |= {key: torch.zeros_like(p) for key in ("exp_avg", "exp_avg_sq")}
    for _ in range(2):
        together.train_epoch()
        together.epoch += 1
        for trainer in apart:
            trainer.train_epoch()
            trainer.epoch += 1
    assert steps_of(together) == 12
    for run, trainer in enumerate(apart):
        for name, p in weights(trainer).items():
            torch.testing.assert_close(weights(together, run)[name], p, rtol=1e-9, atol=1e-12)
    assert not torch.equal(weights(together, 0)["blocks.0.q.weight"], weights(together, 1)["blocks.0.q.weight"])


def test_a_step_is_adamw_on_the_plain_model(small_group):
    """Against the plain model and torch's own AdamW, decay on every parameter, dropout off."""
    trainer = Trainer(small_group, QUICK, [0])
    trainer.masks = None  # no dropout
    model = model_of(trainer)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.2)
    for step, (a, b) in enumerate(trainer.batches(trainer.train, small_group.batch)):
        row = trainer.step(a, b, step)
        layout = small_group.config.layout
        logits = model(sums.encode(a[0].long(), b[0].long(), layout), read=layout.loss_positions)
        target = sums.targets(a[0].long(), b[0].long(), layout)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimiser.param_groups[0]["lr"] = QUICK.rate * min(1, (step + 1) / QUICK.warmup)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        assert row["loss"].item() == pytest.approx(loss.item(), rel=1e-4)
        assert row["accuracy"][0].tolist() == pytest.approx((logits.argmax(-1) == target).float().mean(0).tolist())
    for name, p in model.named_parameters():
        torch.testing.assert_close(weights(trainer)[name], p.detach(), rtol=1e-3, atol=2e-5)


def test_smaller_test_batches_give_the_same(small_group, monkeypatch):
    trainer = Trainer(replace(small_group, config=replace(small_group.config, width=4)), QUICK, [0, 1])
    trainer.test, trainer.long = trainer.test[:, :, :500], trainer.long[:, :, :500]
    rows = []
    for size in (2048, 400):
        monkeypatch.setattr(train_module, "TEST_BATCH", size)
        with torch.inference_mode():
            rows.append(trainer.test_epoch())
    for key, value in rows[0].items():
        torch.testing.assert_close(rows[1][key], value, rtol=1e-5, atol=1e-6)


def test_each_run_is_charged_its_share_of_the_stacks_time(small_group, monkeypatch):
    """Also over a stop."""
    first, again = (Trainer(small_group, QUICK, [0, 1]) for _ in range(2))
    monkeypatch.setattr(train_module.time, "perf_counter", iter([0.0, 40.0, 100.0, 130.0]).__next__)
    first.run_epoch()
    again.restore(first.states())
    again.run_epoch()
    assert [record["seconds"] for _, record in again.states()] == [35.0, 35.0]


def test_history_is_what_measuring_gives(small_group):
    trainer = Trainer(replace(small_group, tracks_final_mlp=True), QUICK, [0])
    for _ in range(4):
        row = trainer.run_epoch()
    model, (a, b) = model_of(trainer), trainer.test[0].long()
    intact, ablated = class_accuracies(model, a, b, [Ablation(), Ablation(mlps={1})])
    assert row["test_whole"][0] == pytest.approx(intact.exact_match, abs=2e-3)
    np.testing.assert_allclose(row["test_ablated_accuracy"][0], ablated.accuracy, atol=5e-3)
    np.testing.assert_allclose(row["test_ablated_corrected"][0], ablated.corrected, atol=5e-3)
    norm = sum(p.double().square().sum().item() for p in model.parameters())
    assert row["weight_norm"][0] == pytest.approx(norm, rel=1e-5)
    assert {key: np.stack(value).shape for key, value in trainer.history.items()} == {
        "train_loss": (4, 1),
        "train_accuracy": (4, 1, 2),
        "train_whole": (4, 1),
        "test_loss": (4, 1),
        "test_accuracy": (4, 1, 2),
        "test_whole": (4, 1),
        "weight_norm": (4, 1),
        "test_ablated_accuracy": (4, 1, 2, 2),
        "test_ablated_corrected": (4, 1, 2, 2),
    }


def test_one_layer_history_has_the_attention_pattern(small_group):
    trainer = Trainer(replace(small_group, config=ModelConfig(layers=1, width=2, d_model=16)), QUICK, [0, 1])
    row = trainer.run_epoch()
    assert row["pattern"].shape == (2, 2, 7, 7)
    np.testing.assert_allclose(row["pattern"].sum(-1), 1, atol=1e-5)
