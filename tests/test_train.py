import json
import math
import multiprocessing
import re
import shutil
import signal
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.utils._python_dispatch import TorchDispatchMode

from carry_core import campaign, files, groups, publishing, runs, sums
from carry_core import checkpoints as checkpoints_module
from carry_core import train as train_module
from carry_core.checkpoints import Checkpoints, digest
from carry_core.edits import Ablation
from carry_core.errors import BadInput
from carry_core.files import replacing
from carry_core.groups import RECIPES, Group, Recipe, Seeds
from carry_core.measure import cells
from carry_core.model import ModelConfig, Transformer
from carry_core.stacked import Stack
from carry_core.train import Data, Trainer, initialise
from carry_core.verify import verify
from tests.conftest import SHAPES

SERVER = multiprocessing.get_context("forkserver")  # imports torch once, not in every process that is killed
SERVER.set_forkserver_preload(["carry_core.campaign"])
QUICK = Recipe("quick", 1e-3, warmup=10)


def weights(trainer: Trainer, i: int = 0) -> dict[str, torch.Tensor]:
    return {name: p[i].detach().clone() for name, p in trainer.parameters.items()}


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
    recipes = {name: recipe.epochs(group) for name, recipe in RECIPES.items()}
    assert recipes == {"paper": 1000, "quick": 60}
    assert set(groups.CAMPAIGN) == set(groups.GROUPS)
    assert len(groups.CAMPAIGN) == 16


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


@pytest.mark.parametrize("which", ["encoder", "decoder", "three layers"])
def test_stacked_runs_equal_separate_runs(which):
    """Thirty AdamW steps in float64: what a run becomes does not depend on the runs beside it."""
    group = Group("small", SHAPES[which], n_digits=2, batch=256, epochs=5, n_runs=3)
    together, apart = Trainer(group, QUICK, [0, 1, 2]), [Trainer(group, QUICK, [run]) for run in range(3)]
    for trainer in (together, *apart):
        trainer.stack = Stack(group.config, trainer.device, torch.float64)
        for p in trainer.parameters.values():
            p.data = p.data.double()
            trainer.optimiser.state[p] |= {key: torch.zeros_like(p) for key in ("exp_avg", "exp_avg_sq")}
    for _ in range(5):
        together.train_epoch()
        together.epoch += 1
        for trainer in apart:
            trainer.train_epoch()
            trainer.epoch += 1
    assert steps_of(together) == 30
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
        logits = model(sums.encode(a[0].long(), b[0].long(), layout), read=layout.read)
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


def test_a_test_batch_fits_the_memory():
    """Six runs of every group stay within a GiB; a run on a CPU has the batches that it always had."""
    for group in (groups.GROUPS | groups.RELEASED_ONLY).values():
        stack = Stack(group.config, torch.device("cpu"))
        trainer = SimpleNamespace(device=torch.device("cuda"), stack=stack, runs=list(range(6)))
        size = Trainer.test_batch.fget(trainer)
        assert 0 < size * stack.bytes_per_sum(6) <= 2**30
        assert size > 2048
        trainer.device, trainer.runs = torch.device("cpu"), [0]
        assert Trainer.test_batch.fget(trainer) == 2048


class Largest(TorchDispatchMode):
    """The size in bytes of the largest tensor that was made."""

    bytes = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        out = operation(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.bytes = max(self.bytes, out.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("config", [{"width": 10}, {"d_ff": 512}, {"layers": 1}, {"d_model": 128}], ids=str)
def test_the_largest_tensor_of_a_test_is_known(small_group, monkeypatch, precision, config):
    """Exactly where it counts, as a bound for one layer; in smaller batches the results are the same."""
    config = replace(small_group.config, **config)
    trainer = Trainer(replace(small_group, config=config), QUICK, [0, 1], precision=precision)
    trainer.test, trainer.long = trainer.test[:, :, :500], trainer.long[:, :, :500]
    monkeypatch.setattr(train_module, "TEST_BATCH", {"cpu": 500})
    each, rows = trainer.stack.bytes_per_sum(2), []
    for memory, size in ((2**30, 500), (400 * each, 400)):
        monkeypatch.setattr(train_module, "TEST_MEMORY", memory)
        assert trainer.test_batch == size
        with torch.inference_mode(), Largest() as largest:
            rows.append(trainer.test_epoch())
        assert largest.bytes == size * each if config.layers == 2 else largest.bytes <= size * each
    for key, value in rows[0].items():
        torch.testing.assert_close(rows[1][key], value, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(train_module, "TEST_MEMORY", 1)
    assert trainer.test_batch == 1


def test_each_run_is_charged_its_share_of_the_stacks_time(small_group, data):
    """Also over a stop, and where its runs were not all together before it."""
    recipe, checkpoints = RECIPES["paper"], Checkpoints(data / "checkpoints", small_group, RECIPES["paper"])

    def seconds():
        return [checkpoints.load(run)[1]["seconds"] for run in range(3)]

    for runs_of, took in (([0, 1], 40.0), ([2], 10.0)):
        trainer = Trainer(small_group, recipe, runs_of)
        trainer.seconds = took
        checkpoints.save(trainer.freeze()())
    assert seconds() == [20.0, 20.0, 10.0]
    together = Trainer(small_group, recipe, [0, 1, 2])
    for took in (0.0, 30.0):
        together.restore([checkpoints.load(run) for run in range(3)])
        together.seconds += took
        checkpoints.save(together.freeze()())
    assert seconds() == [30.0, 30.0, 20.0]
    together.seconds += 3.0
    checkpoints.save(together.freeze()())
    assert seconds() == [31.0, 31.0, 21.0]


def test_history_is_what_measuring_gives(small_group):
    trainer = Trainer(replace(small_group, name=groups.MAIN), QUICK, [0])
    for _ in range(4):
        row = trainer.run_epoch()
    model, (a, b) = model_of(trainer), trainer.test[0].long()
    intact, ablated = cells(model, a, b, [Ablation(), Ablation(mlps={1})])
    assert row["test_whole"][0] == pytest.approx(intact.whole, abs=2e-3)
    np.testing.assert_allclose(row["test_ablated_accuracy"][0], ablated.accuracy, atol=5e-3)
    np.testing.assert_allclose(row["test_ablated_corrected"][0], ablated.corrected, atol=5e-3)
    norm = sum(p.double().square().sum().item() for p in model.parameters())
    assert row["weight_norm"][0] == pytest.approx(norm, rel=1e-5)
    assert {key: np.stack(value).shape for key, value in trainer.history.items()} == {
        "train_loss": (4, 1), "train_accuracy": (4, 1, 2), "train_whole": (4, 1),
        "test_loss": (4, 1), "test_accuracy": (4, 1, 2), "test_whole": (4, 1), "weight_norm": (4, 1),
        "test_ablated_accuracy": (4, 1, 2, 2), "test_ablated_corrected": (4, 1, 2, 2),
    }  # fmt: skip


def test_one_layer_history_has_the_attention_pattern(small_group):
    trainer = Trainer(replace(small_group, config=ModelConfig(layers=1, width=2, d_model=16)), QUICK, [0, 1])
    row = trainer.run_epoch()
    assert row["pattern"].shape == (2, 2, 7, 7)
    np.testing.assert_allclose(row["pattern"].sum(-1), 1, atol=1e-5)


def test_learning_on_two_digits(small_group):
    trainer = Trainer(replace(small_group, config=ModelConfig(layers=1, width=2, d_model=32), batch=64), QUICK, [0])
    losses = [trainer.run_epoch()["test_loss"][0] for _ in range(12)]
    assert losses[-1] < 0.9 * losses[0]
    assert losses[-1] < math.log(10)


def test_finetuning_continues_weights_and_moments(small_group, data, monkeypatch):
    group = replace(small_group, name="pad6_n2_s0.3_w0.2", config=replace(small_group.config, width=3), snapshots=(2,))
    recipe = replace(QUICK, name="paper")
    parent = Checkpoints(data / "checkpoints", group, recipe)
    trainer = Trainer(group, recipe, [0])
    campaign.train_runs(trainer, parent, campaign.Clock(), lambda *_: None)
    child = replace(group, name="child", primed=50, epochs=3, parent=(group.name, 2), snapshots=())
    assert (child.n_train, child.steps) == (50, 1)
    monkeypatch.setitem(groups.GROUPS, group.name, group)
    checkpoints = Checkpoints(data / "checkpoints", child, recipe)
    tuned = Trainer(child, recipe, [0])
    parent.path(0, 2).rename(data / "elsewhere")
    with pytest.raises(BadInput, match="first run `carry train pad6_n2_s0.3_w0.2 --recipe paper --runs 0 --out"):
        campaign.prepare(tuned, checkpoints)
    said = []
    assert not campaign.train_group(checkpoints, [0], data / "runs", share=True, say=said.append)
    assert said == [  # and a campaign goes on with the next group
        f"Left out for now: child continues run 0 of {group.name} with its optimiser's state, which is in no published"
        f" file, but {parent.path(0, 2)} does not exist: first run `carry train {group.name} --recipe paper --runs 0"
        " --out FOLDER` with another folder than data/runs."
    ]
    (data / "elsewhere").rename(parent.path(0, 2))
    campaign.prepare(tuned, checkpoints)
    early = parent.load(0, 2)
    assert steps_of(tuned) == 2 * group.steps
    for name, p in weights(tuned).items():
        assert torch.equal(p, early[0][f"parameters/{name}"])
    tuned.run_epoch()
    assert steps_of(tuned) == 2 * group.steps + 1
    checkpoints.save(tuned.freeze()())
    parent.path(0, 2).unlink()  # not needed any more
    assert campaign.train_group(
        replace(checkpoints, recipe=replace(recipe, limit=2)), [0], data / "runs", say=said.append
    )
    assert tuned.long.shape[2] == groups.N_LONG - 50


def test_a_run_that_waits_for_its_parent_holds_nothing_up(small_group, data, monkeypatch):
    """Its lock is free while another is trained, and what was finished before is published without it."""
    config = replace(small_group.config, width=3)
    parent = replace(small_group, name="parent", config=config, snapshots=(2,))
    child = replace(parent, name="child", primed=50, epochs=2, parent=("parent", 2), snapshots=())
    for group in (parent, child):
        monkeypatch.setitem(groups.GROUPS, group.name, group)
    whole = Checkpoints(data / "checkpoints", parent, RECIPES["paper"])
    campaign.train_runs(Trainer(parent, whole.recipe, [0]), whole, campaign.Clock(), lambda *_: None)
    checkpoints, said, free = replace(whole, group=child), [], []

    def take():
        with checkpoints.training(1):
            free.append(True)

    def report(trainer, row):
        other = threading.Thread(target=take)
        other.start()
        other.join()

    train = partial(campaign.train_group, checkpoints, [0, 1], data / "runs", share=True, say=said.append)
    published = f"child: published 1 run(s) of 2 epochs in fp32 to {data / 'runs'}."
    assert not train(report=report)
    assert free == [True, True]
    assert said[1:] == [published]
    shutil.rmtree(data / "runs")  # as if it had been killed before it published
    (data / "manifest.json").unlink()
    assert not train()
    assert said[-1] == published
    assert runs.load("child").numbers == (0,)


def train_small(folder):
    """Runs in a process of its own, to be killed: two runs, a checkpoint after every batch."""
    campaign.SAVE_EVERY = campaign.SAVE_WITHIN = 0.0
    config = ModelConfig(width=2, d_model=16, d_ff=16)
    group = Group("small", config, n_digits=2, batch=384, epochs=3, n_runs=2, kept=2)
    checkpoints = Checkpoints(folder / "checkpoints", group, Recipe("paper", 1e-3))
    campaign.train_group(checkpoints, [0, 1], folder / "runs", say=lambda text: None)


def in_a_process(folder, kill_after=None):
    """Exit code of `train_small`, killed after some seconds if it still runs."""
    process = SERVER.Process(target=train_small, args=(folder,))
    process.start()
    process.join(kill_after)
    process.kill()
    process.join()
    return process.exitcode


def published(folder):
    from safetensors.torch import load_file

    with np.load(folder / "runs" / "small.history.npz") as file:
        curves = {key: file[key] for key in file.files}
    return load_file(folder / "runs" / "small.safetensors"), curves


def test_kill_minus_nine_changes_no_bit(tmp_path):
    """Killed at twenty random moments, then left alone: the same weights and the same history.

    A training that gets done before its kill is compared too, and the next one starts afresh.
    """
    assert in_a_process(tmp_path / "warm-up") == 0
    began = time.monotonic()
    assert in_a_process(tmp_path / "whole") == 0
    took = time.monotonic() - began
    tensors, curves = published(tmp_path / "whole")
    draw, kills, done = np.random.default_rng(0), 0, 0
    while kills < 20 or done == 0:
        folder = tmp_path / f"killed-{done}"
        code = in_a_process(folder, draw.uniform(0, 0.5 * took) if kills < 20 else None)
        if code == -signal.SIGKILL:
            kills += 1
            continue
        assert code == 0
        done += 1
        again, curves_again = published(folder)
        assert tensors.keys() == again.keys()
        for name, tensor in tensors.items():
            assert torch.equal(tensor, again[name]), name
        for name, curve in curves.items():
            np.testing.assert_array_equal(curve, curves_again[name], err_msg=name)
        assert verify(folder / "runs") == []


def test_ctrl_c_loses_no_finished_epoch(small_group, data):
    checkpoints = Checkpoints(data / "checkpoints", small_group, RECIPES["paper"])
    trainer = Trainer(small_group, RECIPES["paper"], [0])

    def interrupt(trainer, row):
        if trainer.epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        campaign.train_runs(trainer, checkpoints, campaign.Clock(), interrupt)
    assert checkpoints.load(0)[1]["epoch"] == 3


class Ticks(campaign.Clock):
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


def same(trainer: Trainer, other: Trainer) -> bool:
    """Whether two trainings are at the same bits, moments, masks to come and learning curves included."""
    states, others = trainer.freeze()(), other.freeze()()
    told = [[{**record, "seconds": 0} for _, record in found] for found in (states, others)]
    keys = [{*tensors} for tensors, _ in states + others]
    return told[0] == told[1] and all(
        keys[0] == keys[i] and all(torch.equal(tensors[key], there[key]) for key in tensors)
        for i, ((tensors, _), (there, _)) in enumerate(zip(states, others, strict=True))
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_a_training_stops_within_an_epoch_and_goes_on(small_group, data, monkeypatch, shape):
    """Time is up after two batches of an epoch, after the last before its test, and after three; all is on disk."""
    monkeypatch.setattr(train_module, "N_LONG", 600)
    recipe, group = replace(QUICK, limit=4), replace(small_group, config=SHAPES[shape])
    checkpoints = Checkpoints(data / "checkpoints", group, recipe)
    straight = Trainer(group, recipe, [0, 2])
    for _ in range(recipe.limit):
        straight.run_epoch()
    assert group.steps == 6
    seen = []

    def report(trainer, row):
        seen.append((trainer.epoch, row is None))
        if row is None:
            records = [checkpoints.latest(run)[1] for run in trainer.runs]
            assert {(record["epoch"], record["batches"]) for record in records} == {(trainer.epoch, trainer.done)}

    for batches, reached in ((8, (1, 2)), (4, (1, 6)), (9, (3, 3)), (math.inf, (4, 0))):
        trainer = Trainer(group, recipe, [0, 2])
        campaign.prepare(trainer, checkpoints)
        assert campaign.train_runs(trainer, checkpoints, Ticks(batches), report) == trainer.finished
        assert (trainer.epoch, trainer.done) == reached
        for run in (0, 2):
            record = checkpoints.latest(run)[1]
            assert (record["epoch"], record["batches"]) == reached
            assert checkpoints.load(run)[1]["epoch"] == reached[0]
            assert checkpoints.path(run, "midway").exists() == (reached[1] > 0)
    assert trainer.finished
    assert same(trainer, straight)
    assert [epoch for epoch, within in seen if not within] == [1, 2, 3, 4]
    assert sum(within for _, within in seen) > 6


def test_when_to_save(monkeypatch):
    """After an epoch every quarter of a minute, within one every minute, and where time is up."""
    clock = campaign.Clock(2.0, start=100.0, saved=100.0)

    def at(now):
        monkeypatch.setattr(campaign.time, "monotonic", lambda: now)
        return clock.due, clock.pause(), clock.over

    assert [at(114.0), at(116.0), at(159.0)] == [(False, False, False), (True, False, False), (True, False, False)]
    assert at(161.0) == (True, True, False)
    clock.saved = 219.0
    assert at(219.5) == (False, False, False)
    assert at(220.0) == (False, True, True)


def test_a_save_starts_the_clock_anew(small_group, data):
    clock = campaign.Clock(saved=-math.inf)
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    seen = []
    trainer = Trainer(small_group, checkpoints.recipe, [0])
    campaign.train_runs(trainer, checkpoints, clock, lambda trainer, row: seen.append((trainer.epoch, trainer.done)))
    assert seen == [(0, 1), (1, 0), (2, 0)]
    assert not clock.due


@pytest.mark.parametrize("within", [False, True])
def test_a_save_that_was_interrupted_is_made_up_for(small_group, data, monkeypatch, within):
    checkpoints = Checkpoints(data / "checkpoints", small_group, QUICK)
    save, calls = Checkpoints.save, []

    def interrupted(self, states, snapshot=False):
        calls.append(states[0][1]["batches"])
        if len(calls) == 1:
            raise KeyboardInterrupt
        save(self, states, snapshot)

    monkeypatch.setattr(Checkpoints, "save", interrupted)
    monkeypatch.setattr(campaign, "SAVE_EVERY", 0.0)
    clock = Ticks(2) if within else campaign.Clock()
    with pytest.raises(KeyboardInterrupt):
        campaign.train_runs(Trainer(small_group, QUICK, [0]), checkpoints, clock, lambda *_: None)
    record = checkpoints.latest(0)[1]
    assert (record["epoch"], record["batches"]) == ((0, 2) if within else (1, 0))


def test_runs_that_came_unequally_far_are_trained_apart(small_group, data, monkeypatch):
    """In lockstep, as on a GPU: runs at one batch of one epoch together, others by themselves; the same result."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    for run, batches in ((0, 2), (2, 2), (1, 4)):
        campaign.train_runs(
            Trainer(small_group, checkpoints.recipe, [run]), checkpoints, Ticks(batches), lambda *_: None
        )
    stacks = []
    report = lambda trainer, row: stacks.append(trainer.runs)  # noqa: E731
    assert campaign.train_group(checkpoints, [0, 1, 2], data / "runs", device="cpu:0", report=report, say=str)
    assert stacks == [[1], [1], [0, 2], [0, 2]]
    straight = Trainer(small_group, checkpoints.recipe, [0, 1, 2])
    straight.run_epoch(), straight.run_epoch()
    for i in range(3):
        for name, p in weights(straight, i).items():
            found = checkpoints.load(i)[0][f"parameters/{name}"]  # a wrong batch or mask would move it by 1e-3
            torch.testing.assert_close(found, p, rtol=0, atol=1e-5, msg=name)


def test_an_estimate_counts_what_is_left(small_group, data, monkeypatch):
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    ticks = iter(range(100))
    monkeypatch.setattr(campaign.time, "perf_counter", lambda: float(next(ticks)))
    whole = campaign.estimate(checkpoints, [0, 1], "cpu", "fp32")
    assert whole == pytest.approx(2 * 2 * 0.5 * (1 + campaign.TESTING) * small_group.n_train / small_group.batch)
    monkeypatch.undo()
    campaign.train_runs(Trainer(small_group, checkpoints.recipe, [1]), checkpoints, Ticks(9), lambda *_: None)
    monkeypatch.setattr(campaign.time, "perf_counter", lambda: float(next(ticks)))
    left = campaign.estimate(checkpoints, [0, 1], "cpu", "fp32")
    assert left / whole == pytest.approx((2 + 0.5) / 4)


def test_what_is_published_is_of_whole_epochs(small_group, data, monkeypatch):
    """A run that was stopped within an epoch is published with the weights after the one before."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=3))
    trainer = Trainer(small_group, QUICK, [0])
    trainer.run_epoch()
    after_one = weights(trainer)
    again = Trainer(small_group, QUICK, [0])
    assert not campaign.train_runs(again, checkpoints, Ticks(9), lambda *_: None)
    assert (again.epoch, again.done) == (1, 3)
    campaign.train_group(replace(checkpoints, recipe=replace(QUICK, limit=1)), [0], data / "runs", say=lambda _: None)
    published = runs.load("small")
    assert published.record["epochs"] == 1
    assert set(published.record["runs"][0]) == {"run", "precision", "device", "torch", "numpy", "commit", "seconds"}
    for name, p in after_one.items():
        assert torch.equal(published.weights[name][0], p.half().float()), name
    assert checkpoints.latest(0)[1]["batches"] == 3


def test_a_midway_checkpoint_of_another_epoch_is_not_gone_on_from(small_group, data):
    """One that a kill left behind, or whose run is to be trained anew."""
    checkpoints = Checkpoints(data / "checkpoints", small_group, QUICK)
    trainer = Trainer(small_group, QUICK, [0])
    campaign.train_runs(trainer, checkpoints, Ticks(9), lambda *_: None)
    midway = checkpoints.path(0, "midway")
    kept = midway.read_bytes()
    assert checkpoints.latest(0)[1]["batches"] == 3
    while trainer.epoch < 2:
        trainer.run_epoch()
    checkpoints.save(trainer.freeze()())
    assert not midway.exists()
    midway.write_bytes(kept)
    assert (checkpoints.latest(0)[1]["epoch"], checkpoints.latest(0)[1]["batches"]) == (2, 0)
    checkpoints.path(0).unlink()
    assert checkpoints.latest(0) is None


def test_a_damaged_midway_checkpoint_is_refused(small_group, data):
    checkpoints = Checkpoints(data / "checkpoints", small_group, QUICK)
    campaign.train_runs(Trainer(small_group, QUICK, [0]), checkpoints, Ticks(2), lambda *_: None)
    midway, whole = checkpoints.path(0, "midway"), checkpoints.path(0)
    kept = midway.read_bytes()
    midway.write_bytes(kept[:-1])
    with pytest.raises(BadInput, match=r"run0.midway.safetensors is damaged .*delete it to go on from the last whole"):
        campaign.train_group(checkpoints, [0], data / "runs")
    midway.write_bytes(whole.read_bytes())
    with pytest.raises(BadInput, match="midway.* is damaged .its record’s batches is 0"):
        checkpoints.latest(0)
    whole.write_bytes(kept)
    with pytest.raises(BadInput, match="its record’s batches is 2.*delete it to train this run anew"):
        checkpoints.latest(0)


def test_a_midway_checkpoint_that_is_gone_meanwhile(small_group, data, monkeypatch):
    """Who only looks, such as a second campaign, may find it removed by who trains the run."""
    checkpoints = Checkpoints(data / "checkpoints", small_group, QUICK)
    campaign.train_runs(Trainer(small_group, QUICK, [0]), checkpoints, Ticks(2), lambda *_: None)

    def removed(path, framework):
        if path == checkpoints.path(0, "midway"):
            path.unlink()
            raise RuntimeError(f"unable to open file <{path}>")
        return safe_open(path, framework)

    monkeypatch.setattr(checkpoints_module, "safe_open", removed)
    assert checkpoints.latest(0)[1]["batches"] == 0


def train_and_publish(group, data, recipe, numbers):
    """What `carry train` says in the end, and the runs and epochs that are then there by recipe, the group's first."""
    said = []
    campaign.train_group(Checkpoints(data / "checkpoints", group, recipe), numbers, data / "runs", say=said.append)
    found = {
        name: (list(loaded.numbers), loaded.record["epochs"])
        for name, (loaded, _) in runs.trainings(group.name).items()
    }
    assert verify(data) == []
    return said[-1], found


def test_publishing_never_goes_backwards(small_group, data, monkeypatch):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    quick = replace(QUICK, limit=4)
    train = partial(train_and_publish, small_group, data)
    assert train(quick, [0, 1])[1] == {"quick": ([0, 1], 4)}
    assert train(replace(quick, limit=6), [0, 1])[1] == {"quick": ([0, 1], 6)}
    shutil.rmtree(data / "checkpoints")
    said, found = train(quick, [0])
    assert found == {"quick": ([0, 1], 6)}
    assert "the quick group with 6 epochs, run(s) 0, 1, is kept" in said


def test_two_trainings_publish_one_after_the_other(small_group, data, monkeypatch):
    """Neither loses what the other publishes after it looked at what was there."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    here, there = (Checkpoints(data / "checkpoints" / name, small_group, replace(QUICK, limit=1)) for name in "ab")
    for run, checkpoints in enumerate((here, there)):
        trainer = Trainer(small_group, checkpoints.recipe, [run])
        campaign.train_runs(trainer, checkpoints, campaign.Clock(), lambda *_: None)
    look = publishing._published
    other = threading.Thread(target=publishing.publish, args=(there, data / "runs"))

    def look_and_wait(group, out):
        found = look(group, out)
        if threading.current_thread() is not other:
            other.start()
            other.join(1)
        return found

    monkeypatch.setattr(publishing, "_published", look_and_wait)
    publishing.publish(here, data / "runs")
    other.join()
    assert runs.load("small").numbers == (0, 1)
    assert verify(data) == []


def test_a_run_is_trained_by_one_process_at_a_time(small_group, data, monkeypatch):
    """A lock is of an open file, so that a thread stands in for a process; a kill needs no cleaning up (above)."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    complaints = []

    def again(numbers):
        try:
            campaign.train_group(checkpoints, numbers, data / "runs", say=str)
        except BadInput as error:
            complaints.append(str(error))

    def report(trainer, row):
        if (trainer.runs, trainer.epoch) == ([0], 1):
            for numbers in ([2], [1, 3]):  # one that nobody trains, and one that waits for its turn
                other = threading.Thread(target=again, args=(numbers,))
                other.start()
                other.join()

    campaign.train_group(checkpoints, [0, 1], data / "runs", report=report, say=str)
    assert complaints == [
        "Run 1 of small, recipe quick, is being trained by another process: let it finish or stop it, or choose other"
        " runs with --runs."
    ]
    assert checkpoints.runs() == [0, 1, 2]
    again([3])
    assert runs.load("small").numbers == (0, 1, 2, 3)
    assert len(complaints) == 1
    assert verify(data) == []


def test_two_campaigns_share_the_runs(small_group, data, monkeypatch):
    """What one of them trains the other leaves to it; whoever gets done publishes what is finished by then."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    train = partial(campaign.train_group, checkpoints, out=data / "runs", share=True)
    said, finished = [], []

    def report(trainer, row):
        if (trainer.runs, trainer.epoch) == ([0], 1):
            for numbers in ([0, 1], [0, 1, 2]):
                other = threading.Thread(target=lambda n=numbers: finished.append(train(n, say=said.append)))
                other.start()
                other.join()

    assert train([0, 1], report=report, say=said.append)
    left = [
        f"Left out for now: Run {run} of small, recipe quick, is being trained by another process: let it finish or"
        " stop it, or choose other runs with --runs."
        for run in (0, 1)
    ]
    where = f"2 epochs in fp32 to {data / 'runs'}."
    assert said[:4] == left + left
    assert said[4] == f"small: published 1 run(s) of {where}"
    assert said[5:] == [f"small: published 3 run(s) of {where}"]
    assert finished == [False, False]
    assert verify(data) == []


def test_published_runs_stay_where_no_checkpoint_has_them(small_group, data, monkeypatch):
    """In a fresh clone, where there are no checkpoints, another run joins those that are there."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    quick = replace(QUICK, limit=2)
    train_and_publish(small_group, data, quick, [0, 1])
    before, curves = runs.load("small"), runs.history("small")
    shutil.rmtree(data / "checkpoints")
    _, found = train_and_publish(small_group, data, quick, [2])
    assert found == {"quick": ([0, 1, 2], 2)}
    after = runs.load("small")
    assert after.record["runs"][:2] == before.record["runs"]
    assert all(torch.equal(p, after.weights[name][:2]) for name, p in before.weights.items())
    np.testing.assert_array_equal(curves["test_loss"], runs.history("small")["test_loss"][:2])


def test_a_damaged_file_costs_nothing_that_lies_beside(small_group, data, monkeypatch):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    paper = replace(RECIPES["paper"], limit=3)
    train_and_publish(small_group, data, replace(QUICK, limit=4), [0])
    train_and_publish(small_group, data, paper, [0, 1])
    shutil.rmtree(data / "checkpoints")
    (data / "runs" / "small.safetensors").write_bytes(b"half")
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(paper, limit=1))
    said = []
    campaign.train_group(checkpoints, [0], data / "runs", say=said.append)
    assert "the paper group with 3 epochs, run(s) 0, 1, is kept" in said[-1]
    assert runs.read(data / "runs" / "paper", "small")[0].numbers == (0, 1)


@pytest.mark.parametrize("order", [("quick", "paper"), ("paper", "quick")])
@pytest.mark.parametrize(
    ("quick", "paper", "leads"),
    [
        (([0], 2), ([0], 2), "paper"),
        (([0], 2), ([0, 1], 3), "paper"),
        (([0], 3), ([0], 2), "quick"),  # fewer epochs
        (([0, 1], 2), ([0], 3), "quick"),  # fewer runs
    ],
)
def test_paper_leads_with_as_many_runs_and_epochs(small_group, data, monkeypatch, order, quick, paper, leads):
    """Whichever came first; then both are complete."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    recipes = {
        "quick": (replace(QUICK, limit=quick[1]), quick),
        "paper": (replace(RECIPES["paper"], limit=paper[1]), paper),
    }
    for name in order:
        recipe, (numbers, _) = recipes[name]
        assert not campaign.complete(Checkpoints(data / "checkpoints", small_group, recipe), numbers, data / "runs")
        _, found = train_and_publish(small_group, data, recipe, numbers)
    assert found == {"quick": quick, "paper": paper}
    assert next(iter(found)) == leads
    for recipe, (numbers, _) in recipes.values():
        assert campaign.complete(Checkpoints(data / "checkpoints", small_group, recipe), numbers, data / "runs")


def test_data_on_another_disk(small_group, data, tmp_path, monkeypatch):
    """`data/runs` may be a link, and `--out` a link to it."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    (tmp_path / "disk").mkdir()
    (data / "runs").symlink_to(tmp_path / "disk")
    (tmp_path / "link").symlink_to(data / "runs")
    train_and_publish(small_group, data, replace(QUICK, limit=2), [0])
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(RECIPES["paper"], limit=1))
    campaign.train_group(checkpoints, [0], tmp_path / "link", say=str)
    assert list(runs.trainings("small")) == ["quick", "paper"]
    assert verify(data) == []


def test_runs_without_weights_count_too(small_group, data, monkeypatch):
    """A group keeps the weights of some of its runs and the histories of all: fewer runs do not replace these."""
    group = replace(small_group, kept=1)
    monkeypatch.setitem(groups.GROUPS, "small", group)
    quick = replace(QUICK, limit=2)
    train_and_publish(group, data, quick, [0, 1, 2])
    shutil.rmtree(data / "checkpoints")
    said, found = train_and_publish(group, data, quick, [1])
    assert "published 1 run(s) of 2 epochs" in said
    assert found == {"quick": ([0], 2)}
    assert runs.history("small")["runs"].tolist() == [0, 1, 2]
    said, _ = train_and_publish(group, data, replace(quick, limit=3), [1])
    assert "the quick group with 2 epochs, run(s) 0, 1, 2, is kept" in said  # further, but not all of them


def test_what_lies_beside_is_listed_where_the_group_is(small_group, data, tmp_path, monkeypatch):
    """A folder that happens to be called `quick` is a folder like any other."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    out = tmp_path / "mine" / "quick"
    campaign.train_group(checkpoints, [0], out, say=str)
    assert [path.name for path in out.parent.iterdir()] == ["quick"]
    assert verify(out) == []
    paper = replace(checkpoints, recipe=replace(RECIPES["paper"], limit=1))
    campaign.train_group(paper, [0], out, say=str)
    assert (out / "paper" / "small.safetensors").exists()
    assert verify(out) == []


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_lost_snapshot_is_found_before_anything_is_trained(small_group, data, monkeypatch, harm):
    """What it says to do brings it back, and no other run loses its own."""
    group = replace(small_group, snapshots=(2,))
    monkeypatch.setitem(groups.GROUPS, "small", group)
    checkpoints = Checkpoints(data / "checkpoints", group, replace(RECIPES["paper"], limit=3))
    train_and_publish(group, data, checkpoints.recipe, [0, 1])
    before = runs.load("small").snapshots[2]
    whole = checkpoints.path(1, 2).read_bytes()
    checkpoints.path(1, 2).unlink()
    if harm == "damaged":
        checkpoints.path(1, 2).write_bytes(whole[: len(whole) // 2])
    complaint = (
        rf"run1.epoch2.safetensors is {harm}.*, and with it the weights of run 1 after epoch 2, which are published"
        r" too: delete .*/run1.safetensors to train this run anew"
    )
    with pytest.raises(BadInput, match=complaint):
        campaign.train_group(checkpoints, [2], data / "runs")
    with pytest.raises(BadInput, match=complaint):  # lost while others trained
        publishing.publish(checkpoints, data / "runs")
    assert checkpoints.runs() == [0, 1]
    assert torch.equal(runs.load("small").snapshots[2]["norm.weight"], before["norm.weight"])
    checkpoints.path(1).unlink()
    said, _ = train_and_publish(group, data, checkpoints.recipe, [1])
    assert "Left out" not in said
    assert all(torch.equal(p, runs.load("small").snapshots[2][name]) for name, p in before.items())


def test_snapshots_that_older_runs_lack_are_not_left_out_silently(small_group, data, monkeypatch):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    quick = replace(QUICK, limit=2)
    train_and_publish(small_group, data, quick, [0, 1])
    shutil.rmtree(data / "checkpoints")
    group = replace(small_group, snapshots=(1,))
    said, _ = train_and_publish(group, data, quick, [2])
    assert said.endswith("runs. Left out: epoch_1, which run(s) 0, 1 lack(s).")
    assert runs.load("small").numbers == (0, 1, 2)


def test_ctrl_c_while_a_snapshot_is_written(small_group, data, monkeypatch):
    """The run is not past an epoch whose snapshot it lacks."""
    group = replace(small_group, snapshots=(2,))
    checkpoints = Checkpoints(data / "checkpoints", group, RECIPES["paper"])
    save = Checkpoints.save

    def interrupted(self, states, snapshot=False):
        if snapshot:
            raise KeyboardInterrupt
        save(self, states)

    monkeypatch.setattr(Checkpoints, "save", interrupted)
    trainer = Trainer(group, checkpoints.recipe, [0])
    with pytest.raises(KeyboardInterrupt):
        campaign.train_runs(trainer, checkpoints, campaign.Clock(), lambda *_: None)
    assert checkpoints.load(0)[1]["epoch"] == 1


def test_cutting_a_recipe_short_moves_no_snapshot():
    pad6, quick = groups.find("pad6_n2_s0.3_w0.2"), RECIPES["quick"]
    assert quick.snapshots(pad6) == replace(quick, limit=12).snapshots(pad6) == {12: 500, 24: 1000}
    assert RECIPES["paper"].snapshots(pad6) == replace(RECIPES["paper"], limit=3).snapshots(pad6)


def test_the_other_recipe_is_kept_beside(small_group, data, monkeypatch):
    """`paper` becomes the group when it has as many epochs and runs; until then, and after, both are there."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    quick, paper = replace(QUICK, limit=3), replace(RECIPES["paper"], limit=4)
    train = partial(train_and_publish, small_group, data)
    assert train(quick, [0, 1])[1] == {"quick": ([0, 1], 3)}
    said, found = train(replace(paper, limit=2), [0, 1])
    assert list(found.items()) == [("quick", ([0, 1], 3)), ("paper", ([0, 1], 2))]  # cut short
    assert "runs/paper" in said
    shutil.rmtree(data / "checkpoints")
    early = runs.load("small", recipe="paper").weights
    said, found = train(replace(paper, limit=2), [0])
    assert found["paper"] == ([0, 1], 2)
    assert "published 2 run(s)" in said
    assert all(torch.equal(early[k], v) for k, v in runs.load("small", recipe="paper").weights.items())
    assert runs.load("small").record["recipe"] == "quick"

    before = runs.load("small").weights
    said, found = train(paper, [0, 1])
    assert list(found.items()) == [("paper", ([0, 1], 4)), ("quick", ([0, 1], 3))]
    assert not (data / "runs" / "paper" / "small.safetensors").exists()
    assert all(torch.equal(before[k], v) for k, v in runs.load("small", recipe="quick").weights.items())
    said, found = train(quick, [0, 1, 2])  # their checkpoints are gone: all from scratch
    assert list(found.items()) == [("quick", ([0, 1, 2], 3)), ("paper", ([0, 1], 4))]


@pytest.mark.parametrize("moment", range(1, 10))
def test_killed_while_one_recipe_takes_the_others_place(small_group, data, monkeypatch, moment):
    """Stopped before any of the writes and removals: the manifest knows every file, or training again puts it right."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    quick, paper = replace(QUICK, limit=2), replace(RECIPES["paper"], limit=small_group.epochs)
    train_and_publish(small_group, data, quick, [0])
    train_and_publish(small_group, data, replace(paper, limit=1), [0])
    writes = 0

    @contextmanager
    def killed(path):
        nonlocal writes
        if "checkpoints" not in path.parts:
            writes += 1
        if writes == moment:
            raise KeyboardInterrupt
        with replacing(path) as temporary:
            yield temporary

    def killed_while_removing(path, **how):
        nonlocal writes
        writes += path.name in ("small.safetensors", "small.history.npz") and path.exists()
        if writes == moment:
            raise KeyboardInterrupt
        unlink(path, **how)

    unlink = Path.unlink
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        for module in (runs, publishing, files):
            patch.setattr(module, "replacing", killed)
        patch.setattr(Path, "unlink", killed_while_removing)
        campaign.train_group(Checkpoints(data / "checkpoints", small_group, paper), [0], data / "runs", say=str)
    assert all("carry train small" in line for line in verify(data))
    found = train_and_publish(small_group, data, paper, [0])[1]
    assert list(found.items()) == [("paper", ([0], small_group.epochs)), ("quick", ([0], 2))]
    assert writes == moment


def test_checkpoints_of_another_kind_are_refused(small_group, data):
    checkpoints = Checkpoints(data / "checkpoints", small_group, QUICK)
    trainer = Trainer(small_group, QUICK, [0])
    checkpoints.save(trainer.freeze()())
    other = Checkpoints(data / "checkpoints", replace(small_group, name="other"), QUICK)
    other.path(0).parent.mkdir()
    checkpoints.path(0).rename(other.path(0))
    with pytest.raises(BadInput, match="is of .*small.*expected .*other"):
        other.load(0)
    checkpoints.save(trainer.freeze()())
    with pytest.raises(BadInput, match="was trained in fp32, not bf16: pass --precision fp32"):
        campaign.prepare(Trainer(small_group, QUICK, [0], precision="bf16"), checkpoints)
    with pytest.raises(BadInput, match="run0.safetensors was trained in fp32, not bf16"):  # one of a stack
        campaign.prepare(Trainer(small_group, QUICK, [1, 0], precision="bf16"), checkpoints)
    half = checkpoints.path(0).read_bytes()
    checkpoints.path(0).write_bytes(half[: len(half) // 2])
    with pytest.raises(BadInput, match="is damaged .*delete it to train this run anew"):
        checkpoints.load(0)
    flipped = bytearray(half)
    flipped[-100] ^= 1
    checkpoints.path(0).write_bytes(flipped)
    with pytest.raises(BadInput, match="its tensors are not those that were written"):
        checkpoints.load(0)


def without(record, key):
    return {name: value for name, value in record.items() if name != key}


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda tensors, record: (tensors, without(record, "epoch")), "its record’s epoch is None"),
        (lambda tensors, record: (tensors, record | {"seconds": "1"}), "its record’s seconds is '1'"),
        (lambda tensors, record: (tensors, []), "its record is none"),
        (lambda tensors, record: (tensors, record | {"epoch": 2}), "its learning curves are not those of 2 epochs"),
        (
            lambda tensors, record: (tensors | {"exp_avg/norm.bias": torch.zeros(3)}, record),
            "its exp_avg/norm.bias has shape (3,), small (16,)",
        ),
        (
            lambda tensors, record: (without(tensors, "parameters/norm.bias"), record),
            "its parameters/norm.bias has shape None, small (16,)",
        ),
        (
            lambda tensors, record: (tensors | {"another": torch.zeros(3)}, record),
            "its another has shape (3,), small None",
        ),
    ],
)
def test_a_checkpoint_that_nothing_can_go_on_from_is_refused(small_group, data, spoil, complaint):
    """Also an older one, whose sha256 is of its tensors only."""
    checkpoints = Checkpoints(data / "checkpoints", small_group, QUICK)
    trainer = Trainer(small_group, QUICK, [0])
    trainer.run_epoch()
    ((tensors, record),) = trainer.freeze()()
    path = checkpoints.path(0)
    path.parent.mkdir(parents=True)

    def write(tensors, record):
        found = {"format": "1", "record": json.dumps(record), "sha256": digest(tensors)}
        save_file(tensors, path, found)

    write(tensors, record)
    assert checkpoints.load(0)[1] == record
    write(tensors, without(record, "batches"))  # older ones know of whole epochs only
    assert checkpoints.latest(0)[1] == without(record, "batches")
    write(*spoil(tensors, record))
    with pytest.raises(BadInput, match=re.escape(f"Checkpoint {path} is damaged ({complaint}): delete it to train")):
        campaign.train_group(checkpoints, [0], data / "runs")


def test_a_changed_record_is_found(small_group, data):
    checkpoints = Checkpoints(data / "checkpoints", small_group, QUICK)
    checkpoints.save(Trainer(small_group, QUICK, [0]).freeze()())
    content = checkpoints.path(0).read_bytes()
    assert content.count(b'adam_step\\": 0') == 1
    checkpoints.path(0).write_bytes(content.replace(b'adam_step\\": 0', b'adam_step\\": 7'))
    with pytest.raises(BadInput, match="its record is not the one that was written"):
        checkpoints.load(0)
