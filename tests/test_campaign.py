"""Trainings that are interrupted, killed and resumed."""

import math
import multiprocessing
import re
import resource
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_core.groups import Group
from carry_core.model import ModelConfig
from carry_core.training import campaign, recipes
from carry_core.training import trainer as train_module
from carry_core.training.checkpoints import Checkpoints
from carry_core.training.recipes import Recipe
from carry_core.training.trainer import Trainer
from tests.conftest import SHAPES
from tests.trainings import LONG, QUICK, Ticks, weights

SERVER = multiprocessing.get_context("forkserver")  # imports torch once, not in every process that is killed
SERVER.set_forkserver_preload(["carry_core.training.campaign"])


def train_small(started, folder, most=None):
    """Two runs, a checkpoint after every batch; in a process of its own, to be killed or with files of `most` bytes."""
    if most is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    campaign.SAVE_EVERY = 0.0
    config = ModelConfig(width=2, d_model=16, d_ff=16)
    group = groups.GROUPS["small"] = Group("small", config, n_digits=2, batch=384, epochs=3, n_runs=2)
    checkpoints = Checkpoints(folder / "checkpoints", group, Recipe("paper", 1e-3))
    try:
        report = lambda trainer, row: started.set()  # noqa: E731
        campaign.train_group(checkpoints, [0, 1], folder / "runs", report=report, say=str)
    except BadInput as error:
        (folder / "complaint").write_text(str(error))
        raise SystemExit(2) from None


def in_a_process(*arguments, kill_after=None):
    """Exit code of `train_small` and its seconds, killed so long after its first batch if it still runs."""
    started = SERVER.Event()
    process = SERVER.Process(target=train_small, args=(started, *arguments))
    process.start()
    while not started.wait(0.01) and process.is_alive():
        pass
    began = time.monotonic()
    process.join(kill_after)
    process.kill()
    process.join()
    return process.exitcode, time.monotonic() - began


def assert_same_files(folder, other):
    for run in (0, 1):
        paths = [where / "runs" / "small" / "paper" / f"run{run}.safetensors" for where in (folder, other)]
        tensors, again = map(load_file, paths)
        assert tensors.keys() == again.keys()
        for name, tensor in tensors.items():
            assert torch.equal(tensor, again[name]), name
        with np.load(paths[0].with_suffix(".npz")) as curves, np.load(paths[1].with_suffix(".npz")) as curves_again:
            for name in curves.files:
                np.testing.assert_array_equal(curves[name], curves_again[name], err_msg=name)


def test_kill_minus_nine_changes_no_bit(tmp_path):
    """Killed at random moments (three, with CARRY_LONG twenty), then left alone: the same weights and history."""
    code, took = in_a_process(tmp_path / "whole")
    assert code == 0
    draw, wanted, kills, done = np.random.default_rng(0), 20 if LONG else 3, 0, 0
    while kills < wanted or done == 0:
        folder, moment = tmp_path / f"killed-{done}", draw.uniform(0, 0.5 * took) if kills < wanted else None
        code, _ = in_a_process(folder, kill_after=moment)
        if code == -signal.SIGKILL:
            kills += 1
            continue
        assert code == 0
        done += 1
        assert_same_files(tmp_path / "whole", folder)
    print(f"{kills} kills, {done} trainings finished")


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path):
    """The system stops files a little short of the last checkpoint, which is not written; then there is room again."""
    for folder in (tmp_path / "whole", tmp_path / "full"):
        folder.mkdir()
    assert in_a_process(tmp_path / "whole")[0] == 0
    size = (tmp_path / "whole/checkpoints/small.paper/run0.safetensors").stat().st_size
    assert in_a_process(tmp_path / "full", size - 64)[0] == 2  # the history grows until it does not fit
    told = (tmp_path / "full" / "complaint").read_text()
    assert re.fullmatch(r"Cannot write .*run0.safetensors: File too large. .*; nothing was changed.", told), told
    left = sorted(path.name for path in (tmp_path / "full" / "checkpoints" / "small.paper").iterdir())
    assert left == [".run0.lock", ".run1.lock", "run0.safetensors"]
    assert in_a_process(tmp_path / "full")[0] == 0
    assert_same_files(tmp_path / "whole", tmp_path / "full")


def same(trainer: Trainer, other: Trainer) -> bool:
    """Whether two trainings are at the same bits, moments, masks to come and learning curves included."""
    states, others = trainer.states(), other.states()
    records = [[{**record, "seconds": 0} for _, record in each] for each in (states, others)]
    return records[0] == records[1] and all(
        tensors.keys() == twin.keys() and all(torch.equal(tensors[key], twin[key]) for key in tensors)
        for (tensors, _), (twin, _) in zip(states, others, strict=True)
    )


@pytest.mark.parametrize("shape", ["one layer", "decoder", "padded"])
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
    assert trainer.finished
    assert same(trainer, straight)


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


def test_snapshots_stand_at_the_same_share_of_any_recipe():
    """Cutting a recipe short moves none; a few runs of the main group have twelve more."""
    pad6, quick = groups.find("pad6_n2_s0.3_w0.2"), recipes.BY_NAME["quick"]
    assert quick.snapshots(pad6) == replace(quick, limit=12).snapshots(pad6) == {12: 500, 24: 1000}
    main = groups.find(groups.MAIN)
    assert list(quick.snapshots(main, 3)) == [1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45]
    assert quick.snapshots(main, 4) == recipes.BY_NAME["paper"].snapshots(main, 3) == {}


def test_a_run_that_is_followed_has_its_snapshots_in_its_file(small_group, data, monkeypatch):
    """Also beside one that is not, in lockstep; `load` gives what all of its runs have."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    recipe = replace(QUICK, steps=3 * small_group.steps, followed={"small": ([0], (1, 3))})
    checkpoints = Checkpoints(data / "checkpoints", small_group, recipe)
    assert campaign.train_group(checkpoints, [0, 1], data / "runs", device="cpu:0", say=str)
    assert not runs.load("small").snapshots
    followed = runs.load("small", runs=[0])
    assert list(followed.snapshots) == [1, 3]
    early = checkpoints.load(0, 1)[0]["parameters/norm.weight"]
    assert torch.equal(followed.snapshots[1][0]["norm.weight"], early.half().float())
