import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from carry_core import cli, runs


def test_the_installed_command(tmp_path):
    """Once from outside: the console script, its exit code, and no traceback."""
    command = Path(sys.executable).with_name("carry")
    environment = {**os.environ, "CARRY_DATA": str(tmp_path)}
    result = subprocess.run([command, "train", "n9"], capture_output=True, text=True, env=environment, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Unknown group 'n9'")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("train", "n9"), "Unknown group 'n9': expected one of"),
        (("train",), "Expected either one or more groups, or --all"),
        (("train", "n1_s0.3_w0.2", "--runs", "7-3"), "--runs 7-3: expected run numbers such as 0-5"),
        (("claims", "--source", "ours", "--only", "data/", "--json", "/dev/null/x.json"), "Cannot write to /dev/null"),
        (("claims", "--source", "ours", "--only", "data/", "--json", "/dev/full"), "/dev/full is no regular file"),
        (("train", "n1_s0.3_w0.2", "--device", "cuda"), "Device cuda: PyTorch finds 0 CUDA devices here; expected cpu"),
        (("train", "n1_s0.3_w0.2", "--epochs", "99999"), "--epochs 99999: n1_s0.3_w0.2 has 1000 by the recipe paper"),
        (("train", "n1_s0.3_w0.2", "--threads", "9" * 20), "Invalid value for '--threads'"),
        (("train", "n1_s0.3_w0.2", "--out", ""), "Invalid value for '--out': an empty path"),
        (("train", "pad5_n2_s0.3_w0.2"), "is not in the paper"),
        (("claims", "--source", "ours", "--only", "tab9"), "No id of the ledger starts with 'tab9'"),
        (("claims", "--source", "ours", "--only", "data/", "--save"), "drop --only"),
        (("nonsense",), "No such command 'nonsense'. Try `"),
        (("claims",), "Missing option '--source'. Choose from: ours, author. Try `"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(refused, data, arguments, complaint, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert complaint in refused(*arguments)
    assert list(data.iterdir()) == []


@pytest.mark.parametrize(
    ("out", "complaint"),
    [
        ("file", "Invalid value for '--out': Directory '{out}' is a file."),
        ("loop/x", "Cannot write to {out}: {data}/loop is no folder"),
    ],
)
def test_a_place_that_cannot_be_is_refused(refused, data, out, complaint):
    (data / "file").write_text("")
    (data / "loop").symlink_to(data / "loop")
    said = refused("train", "n1_s0.3_w0.2", "--runs", "0", "--out", str(data / out), "--dry-run")
    assert said.startswith(complaint.format(out=data / out, data=data))
    assert {path.name for path in data.iterdir()} == {"file", "loop"}


PAD6, FINETUNED = "pad6_n2_s0.3_w0.2", "pad6_finetuned500_n2_s0.3_w0.2"


@pytest.mark.parametrize("arguments", [(FINETUNED,), (PAD6, FINETUNED, "--epochs", "3")])
def test_a_run_without_its_parent_is_refused_before_anything_is_written(refused, data, arguments):
    """It is nowhere, or not far enough."""
    assert refused("train", *arguments, "--runs", "0").startswith(f"{FINETUNED} continues run 0 of {PAD6}")
    assert list(data.iterdir()) == []


def test_train_stops_on_time_and_goes_on(carry, refused, data):
    """A real group for one epoch: interrupted by the clock, resumed, written, found complete."""
    command = ("train", "n1_s0.2_w1.0", "--runs", "0", "--epochs", "1", "--precision", "bf16")
    code, out, err = carry(*command, "--minutes", "0.0001")
    assert code == 0, err
    assert "Time is up" in out
    assert not (data / "runs").exists()
    code, out, err = carry(*command)
    assert code == 0, err
    assert "1 layer, 20% of the sums, weight decay 1.0" in out
    path = runs.find("n1_s0.2_w1.0")[0]
    assert f"Run 0 of n1_s0.2_w1.0: {path}" in out
    written = path.stat().st_mtime_ns
    assert "complete" in carry(*command)[1]
    assert path.stat().st_mtime_ns == written
    assert {p.name for p in data.iterdir()} == {"checkpoints", "runs"}  # no list is written by training
    path.write_bytes(path.read_bytes()[:-1])
    assert "run0.safetensors is damaged" in refused(*command)


@pytest.mark.parametrize("command", [("claims", "--source", "ours"), ("bench", "train")])
def test_what_cannot_be_saved_is_said_before_anything_is_computed(refused, data, monkeypatch, command):
    (data / "results").write_text("a file where the folder should be")
    for module, name in ((cli.compute, "Ledger"), (cli.bench, "train")):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("it was computed first"))
    assert refused(*command, "--save").startswith(f"Cannot write to {data / 'results'}")


def test_a_command_that_is_stopped_says_what_is_kept(monkeypatch, capsys):
    def stopped(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "carry", stopped)
    monkeypatch.setattr(sys, "argv", ["carry", "train", "--all"])
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as code:
        cli.main()
    said = "Stopped; what was finished is kept, and the same command goes on from there.\n"
    assert (code.value.code, capsys.readouterr().err) == (130, said)
