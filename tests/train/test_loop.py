"""Trainings interrupted, killed and resumed; checkpoints, and the two files of a run."""

import ctypes
import json
import math
import multiprocessing
import re
import signal
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from carry_core.errors import BadInput
from carry_core.model import ModelConfig
from carry_fast import native
from carry_paper import catalogue
from carry_train import choice, fused, groups, loop, progress
from carry_train import trainer as train_module
from carry_train.checkpoints import Checkpoints
from carry_train.groups import Group
from carry_train.precisions import (
    ALL,
    FUSED_BF16,
    FUSED_FP32,
    REQUESTS,
    TORCH_BF16,
    TORCH_FP32,
    TRITON_BF16,
)
from carry_train.progress import Conditions
from carry_train.trainer import Trainer
from tests.conftest import SHAPES
from tests.helpers.tolerances import assert_close
from tests.helpers.trainings import QUICK, Ticks, needs_fused, train_small, weights

pytestmark = pytest.mark.machine

# It imports torch once, and what the first optimiser imports, not in every process that is killed.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload([train_small.__module__, "torch._dynamo"])


def in_a_process(*arguments, kill_after=None):
    """Return exit code and seconds of `train_small`, killed so long after its first batch."""
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


@pytest.fixture(
    scope="module", params=["torch-fp32", pytest.param("fused-fp32", marks=needs_fused)]
)
def whole(request, tmp_path_factory):
    """Two runs that nothing disturbed, their precision, and the seconds that they took."""
    folder = tmp_path_factory.mktemp("whole")
    code, took = in_a_process(folder, request.param)
    assert code == 0
    return folder, request.param, took


def assert_same_files(folder, other_folder):
    for run in (0, 1):
        paths = [
            root / "runs" / "small" / "paper" / f"run{run}.safetensors"
            for root in (folder, other_folder)
        ]
        torch.testing.assert_close(*map(load_file, paths), rtol=0, atol=0)
        np.testing.assert_equal(*(dict(np.load(path.with_suffix(".npz"))) for path in paths))


@pytest.mark.slow
def test_kill_minus_nine_changes_no_bit(whole, tmp_path):
    """Killed at two random moments, then left alone: the same weights and history."""
    folder, draw, kills, code = tmp_path, np.random.default_rng(0), 0, -signal.SIGKILL
    while kills < 2 or code:
        if code == 0:
            folder = tmp_path / f"after-{kills}"
        code, _ = in_a_process(
            folder, whole[1], kill_after=draw.uniform(0, 0.5 * whole[2]) if kills < 2 else None
        )
        kills += code == -signal.SIGKILL
        assert code in (0, -signal.SIGKILL)
    assert_same_files(whole[0], folder)


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_loses_nothing(whole, tmp_path):
    """The last checkpoint does not fit on the disk and is not written; then there is room."""
    size = (whole[0] / "checkpoints/small.paper/run0.safetensors").stat().st_size
    # the history grows until it does not fit
    assert in_a_process(tmp_path, whole[1], size - 64)[0] == 2
    message = (tmp_path / "complaint").read_text()
    assert re.fullmatch(
        r"Cannot write .*run0.safetensors: File too large. .*; nothing was changed there.", message
    ), message
    left = sorted(path.name for path in (tmp_path / "checkpoints" / "small.paper").iterdir())
    assert left == [".run0.lock", ".run1.lock", "run0.safetensors"]
    assert in_a_process(tmp_path, whole[1])[0] == 0
    assert_same_files(whole[0], tmp_path)


def test_a_precision_without_its_package_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "carry_train.gpu_trainer", None)  # as without Triton
    with pytest.raises(BadInput, match="--precision triton-bf16 needs the package triton"):
        choice.trainer_class(TRITON_BF16)
    assert choice.trainer_class(TORCH_BF16) is Trainer


AVX512 = "avx512f avx512bw avx512dq avx512vl"


@pytest.mark.parametrize(
    ("instructions", "name", "precision"),
    [
        ("avx2 fma", f"{groups.MAIN}_d64", "torch-fp32"),  # fused has the paper's width only
        (f"{AVX512} avx512_bf16", groups.MAIN, "fused-bf16"),
        ("asimd bf16", groups.MAIN, "fused-fp32"),  # on ARM
        ("", groups.MAIN, "torch-fp32"),  # as on macOS, where Linux's list is missing
    ],
)
def test_auto_is_the_fastest_precision_for_processor_and_group(
    monkeypatch, processor_with, instructions, name, precision
):
    """It is taken for granted that a compiler can build the fused step, and that bf16 is faster."""
    processor_with(instructions.split())
    monkeypatch.setattr(native, "_built", lambda *_: ctypes.CDLL(None))
    monkeypatch.setattr(choice, "step_seconds", lambda *given: -ALL.index(given[-1]))
    chosen = choice.choose(REQUESTS["auto"], groups.find(name), QUICK, "cpu")
    assert str(chosen) == precision


@pytest.mark.parametrize(("in_bf16", "chosen"), [(5.0, FUSED_BF16), (20.0, FUSED_FP32)])
def test_auto_measures_where_the_processor_has_several_formats(
    small_group, monkeypatch, in_bf16, chosen
):
    seconds = {FUSED_FP32: 10.0, FUSED_BF16: in_bf16}
    monkeypatch.setattr(choice, "available", lambda *_: [FUSED_FP32, FUSED_BF16, TORCH_FP32])
    monkeypatch.setattr(choice, "step_seconds", lambda *given: seconds[given[-1]])
    assert choice.choose(REQUESTS["auto"], small_group, QUICK, "cpu") == chosen


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "precision"),
    [
        (SHAPES["one layer"], TORCH_BF16),
        (SHAPES["padded"], TORCH_FP32),
        pytest.param(ModelConfig(width=3, d_ff=100), FUSED_FP32, marks=needs_fused),
    ],
    ids=["one layer", "padded", "100 neurons"],
)
def test_a_training_stops_within_an_epoch_and_goes_on(
    small_group, data, monkeypatch, config, precision
):
    """Time is up after two batches of an epoch, after the last before its test, and after three.

    All is on disk. There are tests after epochs 1, 3 and 4.
    """
    monkeypatch.setattr(train_module, "N_LONG", 600)
    monkeypatch.setattr(groups, "TESTED_FIRST", 1)
    monkeypatch.setattr(groups, "TESTED_EVERY", 3)
    recipe, group = replace(QUICK, limit=4), replace(small_group, config=config)
    checkpoints = Checkpoints(data / "checkpoints", group, recipe)
    straight = Trainer(group, recipe, [0, 2], precision=precision)
    for _ in range(recipe.limit):
        straight.run_epoch()
    for batches, reached in ((8, (1, 2)), (4, (1, 6)), (9, (3, 3)), (math.inf, (4, 0))):
        trainer = Trainer(group, recipe, [0, 2], precision=precision)
        loop.prepare(trainer, checkpoints)
        assert (
            loop.train_runs(trainer, checkpoints, Ticks(batches), lambda *_: None)
            == trainer.finished
        )
        assert (trainer.epoch, trainer.done) == reached
    assert trainer.finished
    for (tensors, record), (expected, expected_record) in zip(
        trainer.states(), straight.states(), strict=True
    ):
        torch.testing.assert_close(tensors, expected, rtol=0, atol=0)
        # The masks to come are in the record.
        assert record | {"seconds": 0} == expected_record | {"seconds": 0}


@pytest.mark.slow
def test_runs_that_came_unequally_far_are_trained_apart(small_group, data, monkeypatch):
    """Runs at the same batch go on in lockstep, as on a GPU, others alone, to the same result."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    for run, batches in ((0, 2), (2, 2), (1, 4)):
        trainer = Trainer(small_group, checkpoints.recipe, [run])
        loop.train_runs(trainer, checkpoints, Ticks(batches), lambda *_: None)
    stacks = []
    report = lambda title, *_: stacks.append(title)  # noqa: E731
    assert loop.train_group(
        checkpoints, [0, 1, 2], data / "runs", Conditions("cpu:0"), report=report
    )
    assert stacks == ["small run 1", "small run 1", "small runs 0,2", "small runs 0,2"]
    straight = Trainer(small_group, checkpoints.recipe, [0, 1, 2])
    straight.run_epoch(), straight.run_epoch()
    for i in range(3):
        for name, p in weights(straight, i).items():
            # a wrong batch or mask would move it by 1e-3
            stored = checkpoints.load(i)[0][f"parameters/{name}"]
            assert_close(stored, p, msg=name)


@pytest.mark.slow
def test_finetuning_continues_weights_and_moments(small_group, data, monkeypatch):
    parent = replace(
        small_group,
        name="pad6_n2_s0.3_w0.2",
        config=replace(small_group.config, width=3),
        snapshots=(2,),
    )
    child = replace(
        parent, name="child", primed=50, epochs=3, parent=(parent.name, 2), snapshots=()
    )
    recipe = replace(QUICK, name="paper")
    monkeypatch.setitem(groups.GROUPS, parent.name, parent)
    monkeypatch.setitem(groups.GROUPS, "child", child)
    first, checkpoints = (
        Checkpoints(data / "checkpoints", group, recipe) for group in (parent, child)
    )
    with pytest.raises(
        BadInput,
        match=r"child continues run 0 of .*first run `carry train pad6_n2_s0.3_w0.2 --recipe",
    ):
        loop.check_parents([(checkpoints, [0])])
    loop.check_parents([(first, [0]), (checkpoints, [0])])
    loop.train_runs(Trainer(parent, recipe, [0]), first, loop.Clock(), lambda *_: None)
    loop.check_parents([(checkpoints, [0])])
    tuned = Trainer(child, recipe, [0])
    loop.prepare(tuned, checkpoints)
    early = first.load(0, 2)
    steps = [int(state["step"]) for state in tuned.optimiser.state.values()]
    assert {*steps} == {2 * recipe.steps_in_epoch(parent)}
    for name, p in weights(tuned).items():
        assert torch.equal(p, early[0][f"parameters/{name}"])
    assert loop.train_group(checkpoints, [0], data / "runs")
    assert catalogue.load("child").record["epochs"] == 3


def test_a_checkpoint_that_nothing_can_go_on_from_is_refused(small_group, data):
    checkpoints, trainer = (
        Checkpoints(data / "checkpoints", small_group, QUICK),
        Trainer(small_group, QUICK, [0]),
    )
    assert not loop.train_runs(trainer, checkpoints, Ticks(1), lambda *_: None)
    (state,) = trainer.states()
    assert checkpoints.load(0)[1].items() >= state[1].items()
    path = checkpoints.path(0)
    cut = path.read_bytes()[:-100]
    save_file(state[0], path, {"format": "1"})  # no record
    for content in (path.read_bytes(), cut):
        path.write_bytes(content)
        with pytest.raises(
            BadInput, match=r"run0.safetensors is damaged .*delete run 0's files there to"
        ):
            loop.train_group(checkpoints, [0], data / "runs")


def test_a_checkpoint_of_another_kind_is_refused(small_group, data):
    checkpoints = Checkpoints(data / "checkpoints", small_group, QUICK)
    loop.train_runs(Trainer(small_group, QUICK, [0]), checkpoints, Ticks(1), lambda *_: None)
    other_group = replace(checkpoints, group=replace(small_group, name="other"))
    other_group.path(0).parent.mkdir()
    other_group.path(0).write_bytes(checkpoints.path(0).read_bytes())
    with pytest.raises(BadInput, match="is not of .*'other'.*move it away"):
        other_group.load(0)
    refused = "was trained in torch-fp32, which is not asked for: pass --precision torch-fp32"
    with pytest.raises(BadInput, match=refused):
        loop.train_group(checkpoints, [0], data / "runs", Conditions(request=(TORCH_BF16,)))


def test_a_run_that_was_begun_keeps_its_precision(small_group, data):
    """Other precisions are refused."""
    checkpoints = Checkpoints(data / "checkpoints", small_group, QUICK)
    loop.train_runs(Trainer(small_group, QUICK, [0]), checkpoints, Ticks(1), lambda *_: None)

    def precisions(requested):
        conditions = Conditions(request=REQUESTS[requested])
        todo = progress.missing(checkpoints, [0, 1], data / "runs", conditions)
        return [str(run.precision) for run in todo.values()]

    assert precisions("fp32") == ["torch-fp32", "torch-fp32"]
    tensors, record = checkpoints.load(0)
    in_bf16 = record | {"precision": "torch-bf16"}
    metadata = {"format": record["format"], "record": json.dumps(in_bf16)}
    save_file(tensors, checkpoints.path(0), metadata)
    assert precisions("bf16") == ["torch-bf16", "torch-bf16"]
    assert precisions("auto")[0] == "torch-bf16"
    with pytest.raises(BadInput, match="was trained in torch-bf16, which is not"):
        precisions("fp32")


@needs_fused
def test_a_checkpoint_of_a_step_that_rounds_otherwise_is_refused_before_any_run_is_trained(
    data, monkeypatch
):
    """Run 1 is of another version of the fused step; run 0 is not begun, no file is touched.

    A record without a version is of the first one.
    """
    monkeypatch.setattr(train_module, "commit", lambda: "0123456789ab")
    group = Group("small", ModelConfig(width=2), n_digits=2, batch=384, epochs=3)
    checkpoints = Checkpoints(data / "checkpoints", group, QUICK)
    loop.train_runs(
        Trainer(group, QUICK, [1], precision=FUSED_FP32), checkpoints, Ticks(1), lambda *_: None
    )
    path = checkpoints.path(1)
    tensors, record = checkpoints.load(1)
    assert record.pop("step") == fused.VERSIONS["fp32"]
    monkeypatch.setitem(progress.VERSIONS, FUSED_FP32, 2)
    save_file(tensors, path, {"format": record.pop("format"), "record": json.dumps(record)})
    before = path.read_bytes()
    refused = (
        "run1.safetensors was made at commit 0123456789ab, whose step rounds otherwise: "
        ".* a clone at that commit"
    )
    conditions = Conditions(request=REQUESTS["fused-fp32"])
    with pytest.raises(BadInput, match=refused):
        loop.train_group(checkpoints, [0, 1], data / "runs", conditions)
    assert path.read_bytes() == before
    assert not checkpoints.path(0).exists()


def test_who_takes_a_run_further_names_who_had_it_before(small_group, data, monkeypatch):
    """The record has each commit, version and device, with the epochs it reached."""
    checkpoints = Checkpoints(data / "checkpoints", small_group, QUICK)
    for epochs, name in ((1, "first"), (2, "first"), (3, "second"), (4, "third")):
        monkeypatch.setattr(train_module, "commit", lambda name=name: name)
        again = Trainer(small_group, replace(QUICK, limit=epochs), [0])
        loop.prepare(again, checkpoints)
        assert loop.train_runs(again, checkpoints, loop.Clock(), lambda *_: None)
        record = checkpoints.load(0)[1]
        assert record["commit"] == name
        assert ("sessions" in record) == (epochs > 2)
    assert [(s["epochs"], s["commit"]) for s in record["sessions"]] == [(2, "first"), (3, "second")]
    assert {"device", "torch", "numpy"} < record["sessions"][0].keys()
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    checkpoints.publish(0, data / "runs")
    assert catalogue.load("small").record["runs"][0]["sessions"] == record["sessions"]


def test_a_run_becomes_a_pair_of_files(small_group, data, monkeypatch):
    """A run is weights in float16, snapshots and learning curves, without what resuming needs."""
    group = replace(small_group, config=replace(small_group.config, layers=1), snapshots=(2,))
    monkeypatch.setitem(groups.GROUPS, "small", group)
    checkpoints = Checkpoints(data / "checkpoints", group, replace(QUICK, limit=3))
    trained = Trainer(group, checkpoints.recipe, [1])
    loop.train_runs(trained, checkpoints, loop.Clock(), lambda *_: None)
    path = checkpoints.publish(1, data / "runs")
    assert path == data / "runs" / "small" / "quick" / "run1.safetensors"
    tensors = load_file(path)
    for name, p in trained.parameters.items():
        assert torch.equal(tensors[name], p[0].half())
    early = checkpoints.load(1, 2)[0]
    assert torch.equal(tensors["epoch_2/norm.bias"], early["parameters/norm.bias"].half())
    with np.load(path.with_suffix(".npz")) as curves:
        assert set(curves.files) == trained.history.keys()
        assert curves["pattern"].dtype == np.float16
        np.testing.assert_array_equal(
            curves["test_loss"], np.stack(trained.history["test_loss"])[:, 0]
        )
    assert {
        "recipe",
        "run",
        "epochs",
        "precision",
        "seconds",
        "device",
        "torch",
        "numpy",
        "commit",
    } <= catalogue.load("small").record["runs"][0].keys()
    checkpoints.path(1, 2).unlink()
    with pytest.raises(
        BadInput, match=r"run1.epoch2.safetensors does not exist: delete run 1's files"
    ):
        checkpoints.publish(1, data / "runs")


def test_a_snapshot_stays_that_of_the_end_of_its_epoch(small_group, data):
    """A run that stops in the middle of the next epoch still counts its last whole one."""
    group = replace(small_group, snapshots=(2,))
    checkpoints = Checkpoints(data / "checkpoints", group, QUICK)
    for batches in (0, 5):
        tensors = {"parameters/norm.bias": torch.full((3,), float(batches))}
        checkpoints.save([(tensors, {"run": 0, "epoch": 2, "batches": batches})])
    at_end, stopped = (load_file(checkpoints.path(0, epoch)) for epoch in (2, None))
    assert at_end["parameters/norm.bias"].eq(0).all()
    assert stopped["parameters/norm.bias"].eq(5).all()


def test_a_snapshot_is_named_by_the_paper_s_epoch(small_group, data, monkeypatch):
    """A recipe of half the epochs keeps its own first for the paper's second."""
    group = replace(small_group, snapshots=(2,))
    monkeypatch.setitem(groups.GROUPS, "small", group)
    recipe = replace(QUICK, steps=group.epochs // 2 * QUICK.steps_in_epoch(group))
    checkpoints = Checkpoints(data / "checkpoints", group, recipe)
    trained = Trainer(group, recipe, [0])
    loop.train_runs(trained, checkpoints, loop.Clock(), lambda *_: None)
    assert trained.epoch == 2
    path = checkpoints.publish(0, data / "runs")
    early = checkpoints.load(0, 1)[0]
    assert torch.equal(load_file(path)["epoch_2/norm.bias"], early["parameters/norm.bias"].half())
    assert list(catalogue.load("small").snapshots) == [2]


def test_a_run_is_trained_by_one_process_at_a_time(small_group, data, monkeypatch, capsys):
    """A lock is of an open file, so that a thread stands in for a process."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    complaints = []

    def again() -> None:
        try:
            loop.train_group(checkpoints, [0], data / "runs")
        except BadInput as error:
            complaints.append(str(error))

    def report(*arguments) -> None:
        thread = threading.Thread(target=again)
        thread.start()
        thread.join()

    assert loop.train_group(checkpoints, [0], data / "runs", report=report)
    assert set(complaints) == {
        "Run 0 of small, recipe quick, is being trained by another process: "
        "let it finish or stop it, or choose other runs with --runs."
    }
    assert capsys.readouterr().out.count("Run 0") == 1
    assert loop.train_group(checkpoints, [0], data / "runs")  # free again, and nothing to do
    assert capsys.readouterr().out == ""
