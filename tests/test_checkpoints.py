"""Checkpoints: which are refused, and what is said."""

import json
import re
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from carry_core import campaign, groups, runs, train
from carry_core import checkpoints as checkpoints_module
from carry_core.checkpoints import Checkpoints, digest
from carry_core.errors import BadInput
from carry_core.publishing import publish
from carry_core.train import Trainer
from tests.trainings import QUICK, Ticks


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


def test_who_takes_a_run_further_names_who_had_it_before(small_group, data, monkeypatch):
    """The record is of what made the weights: each commit, version and device, with the epochs it reached."""
    checkpoints = Checkpoints(data / "checkpoints", small_group, QUICK)
    for epochs, name in ((1, "first"), (2, "first"), (3, "second"), (4, "third")):
        monkeypatch.setattr(train, "commit", lambda name=name: name)
        trainer = Trainer(small_group, replace(QUICK, limit=epochs), [0])
        campaign.prepare(trainer, checkpoints)
        assert campaign.train_runs(trainer, checkpoints, campaign.Clock(), lambda *_: None)
        record = checkpoints.load(0)[1]
        assert record["commit"] == name
        if epochs < 3:
            assert "sessions" not in record
    assert [(s["epochs"], s["commit"]) for s in record["sessions"]] == [(2, "first"), (3, "second")]
    assert {"device", "torch", "numpy"} < record["sessions"][0].keys()
    publish(replace(checkpoints, recipe=replace(QUICK, limit=4)), data / "runs")
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    assert runs.load("small").record["runs"][0]["sessions"] == record["sessions"]


def test_what_a_killed_save_left_goes_when_the_run_is_trained_again(small_group, data):
    checkpoints = Checkpoints(data / "checkpoints", small_group, QUICK)
    folder = checkpoints.path(1).parent
    folder.mkdir(parents=True)
    dead = [
        f".run1.safetensors.{'a' * 8}",
        f".run1.midway.safetensors.{'b' * 8}",
        f".run1.epoch3.safetensors.{'c' * 8}",
    ]
    others = [f".run10.safetensors.{'d' * 8}", "run1.safetensors", "notes.safetensors.old"]
    for name in (*dead, *others):
        (folder / name).write_text("x")
    with checkpoints.training(1):
        assert sorted(path.name for path in folder.iterdir()) == sorted([*others, ".run1.lock"])
