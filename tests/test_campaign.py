"""Trainings that are interrupted, killed and resumed."""

import math
import multiprocessing
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_core.groups import RECIPES, Group, Recipe
from carry_core.model import ModelConfig
from carry_core.training import campaign
from carry_core.training import trainer as train_module
from carry_core.training.checkpoints import Checkpoints
from carry_core.training.trainer import Trainer
from tests.conftest import SHAPES
from tests.trainings import QUICK, Ticks, weights

SERVER = multiprocessing.get_context("forkserver")  # imports torch once, not in every process that is killed
SERVER.set_forkserver_preload(["carry_core.training.campaign"])


def train_small(folder):
    """Runs in a process of its own, to be killed: two runs, a checkpoint after every batch."""
    campaign.SAVE_EVERY = campaign.SAVE_WITHIN = 0.0
    config = ModelConfig(width=2, d_model=16, d_ff=16)
    group = Group("small", config, n_digits=2, batch=384, epochs=3, n_runs=2)
    groups.GROUPS["small"] = group
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


def published(folder, run):
    path = folder / "runs" / "small" / "paper" / f"run{run}.safetensors"
    with np.load(path.with_suffix(".npz")) as file:
        return load_file(path), {key: file[key] for key in file.files}


def test_kill_minus_nine_changes_no_bit(tmp_path):
    """Killed at twelve random moments, then left alone: the same weights and the same history."""
    assert in_a_process(tmp_path / "warm-up") == 0
    began = time.monotonic()
    assert in_a_process(tmp_path / "whole") == 0
    took = time.monotonic() - began
    draw, kills, done = np.random.default_rng(0), 0, 0
    while kills < 12 or done == 0:
        folder = tmp_path / f"killed-{done}"
        code = in_a_process(folder, draw.uniform(0, 0.5 * took) if kills < 12 else None)
        if code == -signal.SIGKILL:
            kills += 1
            continue
        assert code == 0
        done += 1
        for run in (0, 1):
            (tensors, curves), (again, curves_again) = published(tmp_path / "whole", run), published(folder, run)
            assert tensors.keys() == again.keys()
            for name, tensor in tensors.items():
                assert torch.equal(tensor, again[name]), name
            for name, curve in curves.items():
                np.testing.assert_array_equal(curve, curves_again[name], err_msg=name)


def test_ctrl_c_loses_no_finished_epoch(small_group, data):
    checkpoints = Checkpoints(data / "checkpoints", small_group, RECIPES["paper"])
    trainer = Trainer(small_group, RECIPES["paper"], [0])

    def interrupt(trainer, row):
        if trainer.epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        campaign.train_runs(trainer, checkpoints, campaign.Clock(), interrupt)
    assert checkpoints.load(0)[1]["epoch"] == 3


def same(trainer: Trainer, other: Trainer) -> bool:
    """Whether two trainings are at the same bits, moments, masks to come and learning curves included."""
    states, others = trainer.freeze()(), other.freeze()()
    records = [[{**record, "seconds": 0} for _, record in each] for each in (states, others)]
    return records[0] == records[1] and all(
        tensors.keys() == twin.keys() and all(torch.equal(tensors[key], twin[key]) for key in tensors)
        for (tensors, _), (twin, _) in zip(states, others, strict=True)
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
    for batches, reached in ((8, (1, 2)), (4, (1, 6)), (9, (3, 3)), (math.inf, (4, 0))):
        trainer = Trainer(group, recipe, [0, 2])
        campaign.prepare(trainer, checkpoints)
        assert campaign.train_runs(trainer, checkpoints, Ticks(batches), lambda *_: None) == trainer.finished
        assert (trainer.epoch, trainer.done) == reached
        assert campaign.progress(checkpoints, [0, 2]) == {0: reached, 2: reached}
    assert trainer.finished
    assert same(trainer, straight)


def test_when_to_save(monkeypatch):
    """After an epoch every quarter of a minute, within one every minute, and where time is up."""
    clock = campaign.Clock(2.0, start=100.0, saved=100.0)

    def at(now):
        monkeypatch.setattr(campaign.time, "monotonic", lambda: now)
        return clock.due, clock.pause(), clock.over

    assert [at(114.0), at(116.0), at(159.0)] == [(False, False, False), (True, False, False), (True, False, False)]
    assert at(161.0) == (True, True, False)
    clock.saved = 219.0
    assert [at(219.5), at(220.0)] == [(False, False, False), (False, True, True)]


@pytest.mark.parametrize("within", [False, True])
def test_a_save_that_was_interrupted_is_made_up_for(small_group, data, monkeypatch, within):
    checkpoints = Checkpoints(data / "checkpoints", small_group, QUICK)
    save, calls = Checkpoints.save, []

    def interrupted(self, states, *, snapshot=False):
        calls.append(states[0][1]["batches"])
        if len(calls) == 1:
            raise KeyboardInterrupt
        save(self, states, snapshot=snapshot)

    monkeypatch.setattr(Checkpoints, "save", interrupted)
    monkeypatch.setattr(campaign, "SAVE_EVERY", 0.0)
    clock = Ticks(2) if within else campaign.Clock()
    with pytest.raises(KeyboardInterrupt):
        campaign.train_runs(Trainer(small_group, QUICK, [0]), checkpoints, clock, lambda *_: None)
    assert campaign.progress(checkpoints, [0]) == {0: (0, 2) if within else (1, 0)}


def test_ctrl_c_while_a_snapshot_is_written(small_group, data, monkeypatch):
    """The run is not past an epoch whose snapshot it lacks."""
    group = replace(small_group, snapshots=(2,))
    checkpoints = Checkpoints(data / "checkpoints", group, RECIPES["paper"])
    save = Checkpoints.save

    def interrupted(self, states, *, snapshot=False):
        if snapshot:
            raise KeyboardInterrupt
        save(self, states)

    monkeypatch.setattr(Checkpoints, "save", interrupted)
    trainer = Trainer(group, checkpoints.recipe, [0])
    with pytest.raises(KeyboardInterrupt):
        campaign.train_runs(trainer, checkpoints, campaign.Clock(), lambda *_: None)
    assert checkpoints.load(0)[1]["epoch"] == 1


def test_runs_that_came_unequally_far_are_trained_apart(small_group, data, monkeypatch):
    """In lockstep, as on a GPU: runs at one batch of one epoch together, others by themselves; the same result."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    for run, batches in ((0, 2), (2, 2), (1, 4)):
        trainer = Trainer(small_group, checkpoints.recipe, [run])
        campaign.train_runs(trainer, checkpoints, Ticks(batches), lambda *_: None)
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


def test_a_run_is_replaced_only_by_more_epochs(small_group, data, monkeypatch):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    epochs = []
    for limit in (2, 1, 3):
        checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=limit))
        todo = campaign.missing(checkpoints, [0], data / "runs")
        assert campaign.train_group(checkpoints, [0], data / "runs", say=str)
        epochs.append((len(todo), runs.load("small").record["epochs"]))
    assert epochs == [(1, 2), (0, 2), (1, 3)]


def test_an_estimate_counts_what_is_left(small_group, data, monkeypatch):
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    ticks = iter(range(100))
    monkeypatch.setattr(campaign.time, "perf_counter", lambda: float(next(ticks)))
    whole = campaign.estimate(checkpoints, {0: (0, 0), 1: (0, 0)}, "cpu", "fp32")
    assert whole == pytest.approx(2 * 2 * 0.5 * (1 + campaign.TESTING) * small_group.n_train / small_group.batch)
    left = campaign.estimate(checkpoints, {0: (0, 0), 1: (1, 3)}, "cpu", "fp32")
    assert left / whole == pytest.approx((2 + 0.5) / 4)


def test_finetuning_continues_weights_and_moments(small_group, data, monkeypatch):
    parent = replace(small_group, name="pad6_n2_s0.3_w0.2", config=replace(small_group.config, width=3), snapshots=(2,))
    child = replace(parent, name="child", primed=50, epochs=3, parent=(parent.name, 2), snapshots=())
    recipe = replace(QUICK, name="paper")
    monkeypatch.setitem(groups.GROUPS, parent.name, parent)
    monkeypatch.setitem(groups.GROUPS, "child", child)
    first, checkpoints = (Checkpoints(data / "checkpoints", group, recipe) for group in (parent, child))
    with pytest.raises(BadInput, match=r"child continues run 0 of .*first run `carry train pad6_n2_s0.3_w0.2 --recipe"):
        campaign.check_parents([(checkpoints, [0])])
    campaign.check_parents([(first, [0]), (checkpoints, [0])])
    with pytest.raises(BadInput, match="child continues run 0"):  # not far enough
        campaign.check_parents([(replace(c, recipe=replace(recipe, limit=1)), [0]) for c in (first, checkpoints)])
    campaign.train_runs(Trainer(parent, recipe, [0]), first, campaign.Clock(), lambda *_: None)
    campaign.check_parents([(checkpoints, [0])])
    tuned = Trainer(child, recipe, [0])
    campaign.prepare(tuned, checkpoints)
    early = first.load(0, 2)
    steps = [int(state["step"]) for state in tuned.optimiser.state.values()]
    assert {*steps} == {2 * parent.steps}
    for name, p in weights(tuned).items():
        assert torch.equal(p, early[0][f"parameters/{name}"])
    assert campaign.train_group(checkpoints, [0], data / "runs", say=str)
    assert runs.load("child").record["epochs"] == 3


def test_cutting_a_recipe_short_moves_no_snapshot():
    pad6, quick = groups.find("pad6_n2_s0.3_w0.2"), RECIPES["quick"]
    assert quick.snapshots(pad6) == replace(quick, limit=12).snapshots(pad6) == {12: 500, 24: 1000}
