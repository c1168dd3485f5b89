"""Trainings that are interrupted, resumed and shared between processes."""

import math
import multiprocessing
import shutil
import signal
import threading
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from carry_core import campaign, groups, publishing, runs
from carry_core import train as train_module
from carry_core.checkpoints import Checkpoints
from carry_core.errors import BadInput
from carry_core.groups import RECIPES, Group, Recipe
from carry_core.model import ModelConfig
from carry_core.train import Trainer
from carry_core.verify import verify
from tests.conftest import SHAPES
from tests.trainings import QUICK, Ticks, train_and_publish, weights

SERVER = multiprocessing.get_context("forkserver")  # imports torch once, not in every process that is killed
SERVER.set_forkserver_preload(["carry_core.campaign"])


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
    published = f"child: published 1 run of 2 epochs in fp32 to {data / 'runs'}."
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
    whole = campaign.estimate(checkpoints, campaign.missing(checkpoints, [0, 1], data / "runs"), "cpu", "fp32")
    assert whole == pytest.approx(2 * 2 * 0.5 * (1 + campaign.TESTING) * small_group.n_train / small_group.batch)
    monkeypatch.undo()
    campaign.train_runs(Trainer(small_group, checkpoints.recipe, [1]), checkpoints, Ticks(9), lambda *_: None)
    monkeypatch.setattr(campaign.time, "perf_counter", lambda: float(next(ticks)))
    left = campaign.estimate(checkpoints, campaign.missing(checkpoints, [0, 1], data / "runs"), "cpu", "fp32")
    assert left / whole == pytest.approx((2 + 0.5) / 4)


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
    assert said[4] == f"small: published 1 run of {where}"
    assert said[5:] == [f"small: published 3 runs of {where}"]
    assert finished == [False, False]
    assert verify(data) == []


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
