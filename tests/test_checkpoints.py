"""Checkpoints: what is kept, which are refused, and the pair of files that a run becomes."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_core.training import campaign, trainer
from carry_core.training.checkpoints import Checkpoints, digest
from carry_core.training.trainer import Trainer
from tests.trainings import QUICK


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)


HARM = {
    "truncated": lambda path, state: path.write_bytes(path.read_bytes()[:-1]),
    "a flipped bit": lambda path, state: flip(path),
    "no record": lambda path, state: save_file(state[0], path, {"format": "1", "sha256": digest(state[0])}),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_checkpoint_that_nothing_can_go_on_from_is_refused(small_group, data, harm):
    checkpoints = Checkpoints(data / "checkpoints", small_group, QUICK)
    (state,) = Trainer(small_group, QUICK, [0]).states()
    checkpoints.save([state])
    assert checkpoints.load(0)[1].items() >= state[1].items()
    HARM[harm](checkpoints.path(0), state)
    with pytest.raises(BadInput, match=r"run0.safetensors is damaged .*delete run 0's files there to train it anew"):
        campaign.train_group(checkpoints, [0], data / "runs")


def test_a_checkpoint_of_another_kind_is_refused(small_group, data):
    checkpoints = Checkpoints(data / "checkpoints", small_group, QUICK)
    checkpoints.save(Trainer(small_group, QUICK, [0]).states())
    other = replace(checkpoints, group=replace(small_group, name="other"))
    other.path(0).parent.mkdir()
    other.path(0).write_bytes(checkpoints.path(0).read_bytes())
    with pytest.raises(BadInput, match="is not of .*'other'.*move it away"):
        other.load(0)
    with pytest.raises(BadInput, match="was trained in fp32, not bf16: pass --precision fp32"):
        campaign.prepare(Trainer(small_group, QUICK, [0], precision="bf16"), checkpoints)


def test_who_takes_a_run_further_names_who_had_it_before(small_group, data, monkeypatch):
    """The record is of what made the weights: each commit, version and device, with the epochs it reached."""
    checkpoints = Checkpoints(data / "checkpoints", small_group, QUICK)
    for epochs, name in ((1, "first"), (2, "first"), (3, "second"), (4, "third")):
        monkeypatch.setattr(trainer, "commit", lambda name=name: name)
        again = Trainer(small_group, replace(QUICK, limit=epochs), [0])
        campaign.prepare(again, checkpoints)
        assert campaign.train_runs(again, checkpoints, campaign.Clock(), lambda *_: None)
        record = checkpoints.load(0)[1]
        assert record["commit"] == name
        assert ("sessions" in record) == (epochs > 2)
    assert [(s["epochs"], s["commit"]) for s in record["sessions"]] == [(2, "first"), (3, "second")]
    assert {"device", "torch", "numpy"} < record["sessions"][0].keys()
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    checkpoints.publish(0, data / "runs")
    assert runs.load("small").record["runs"][0]["sessions"] == record["sessions"]


def test_a_run_becomes_a_pair_of_files(small_group, data, monkeypatch):
    """Weights in float16 with their snapshots, then every learning curve; nothing of what only resuming needs."""
    group = replace(small_group, config=replace(small_group.config, layers=1), snapshots=(2,))
    monkeypatch.setitem(groups.GROUPS, "small", group)
    checkpoints = Checkpoints(data / "checkpoints", group, replace(QUICK, limit=3))
    trained = Trainer(group, checkpoints.recipe, [1])
    campaign.train_runs(trained, checkpoints, campaign.Clock(), lambda *_: None)
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
        np.testing.assert_array_equal(curves["test_loss"], np.stack(trained.history["test_loss"])[:, 0])
    assert runs.load("small").record["runs"][0].keys() == {
        "recipe",
        "run",
        "epochs",
        "snapshots",
        "precision",
        "seconds",
        "device",
        "torch",
        "numpy",
        "commit",
    }
    checkpoints.path(1, 2).unlink()
    with pytest.raises(BadInput, match=r"run1.epoch2.safetensors is missing: delete .*run1.safetensors to train"):
        checkpoints.publish(1, data / "runs")


def test_a_run_is_trained_by_one_process_at_a_time(small_group, data, monkeypatch):
    """A lock is of an open file, so that a thread stands in for a process."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    complaints = []

    def again() -> None:
        try:
            campaign.train_group(checkpoints, [0], data / "runs")
        except BadInput as error:
            complaints.append(str(error))

    def report(trainer, row) -> None:
        other = threading.Thread(target=again)
        other.start()
        other.join()

    assert campaign.train_group(checkpoints, [0], data / "runs", report=report, say=str)
    assert set(complaints) == {
        "Run 0 of small, recipe quick, is being trained by another process: let it finish or stop it, or choose other"
        " runs with --runs."
    }
    said: list[str] = []
    assert campaign.train_group(checkpoints, [0], data / "runs", say=said.append)  # free again, and nothing to do
    assert said == []
