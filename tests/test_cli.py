import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from carry_core import files
from carry_paper import bench, catalogue, cli
from carry_paper.ledger.measuring import Measuring
from carry_train import estimates


@pytest.mark.machine
@pytest.mark.slow
def test_the_installed_command(tmp_path):
    """Once from outside: the console script, its exit code, and no traceback."""
    command = Path(sys.executable).with_name("carry")
    environment = {**os.environ, "CARRY_DATA": str(tmp_path)}
    result = subprocess.run(
        [command, "train", "n9"], capture_output=True, text=True, env=environment, check=False
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Unknown group 'n9'")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("train", "n9"), "Unknown group 'n9': expected a name such as"),
        (("train",), "Expected either one or more groups, or --all"),
        (
            ("train", "n1_s0.3_w0.2", "--runs", "7-3"),
            "--runs 7-3: expected run numbers such as 0-5",
        ),
        (
            ("claims", "--source", "ours", "--only", "data/", "--json", "/dev/null/x.json"),
            "Cannot write to /dev/null",
        ),
        (
            ("train", "n1_s0.3_w0.2", "--device", "cuda"),
            "Device cuda: PyTorch finds 0 CUDA devices here; expected cpu",
        ),
        (
            ("train", "n1_s0.3_w0.2", "--epochs", "99999"),
            "--epochs 99999: n1_s0.3_w0.2 has 1000 by the recipe paper",
        ),
        (
            ("train", "n1_s0.3_w0.2", "--out", ""),
            "an empty path, expected one that names something",
        ),
        (("compare", "no/run0.safetensors"), "no/run0.safetensors does not exist"),
        (
            ("lines", "--source", "ours", "n1_s0.3_w0.2"),
            "n1_s0.3_w0.2: expected a group of two layers or more",
        ),
        (("measure", "--source", "ours", "--only", "tab9"), "No id of the ledger starts with"),
        (("measure", "--source", "ours", "n2_s0.4_w0.5"), "asked for is about n2_s0.4_w0.5"),
        (
            ("measure", "--source", "ours", "n2_s0.3_w0.2", "--runs", "99"),
            "No weights of n2_s0.3_w0.2 run 99 from ours",
        ),
        (("fill", ""), "an empty path, expected one that names something"),
        (("import-author", ""), "an empty path, expected one that names something"),
        (("nonsense",), "No such command 'nonsense'. Try `"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(
    refused, data, arguments, complaint, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert complaint in refused(*arguments)
    assert list(data.iterdir()) == []


@pytest.mark.parametrize("name", ["results/lines.csv.gz", "link.json"])
def test_a_shipped_file_is_not_written_over(refused, data, name):
    (data / "results").mkdir()
    (data / "results" / "lines.csv.gz").write_text("shipped")
    (data / "link.json").symlink_to(data / "results" / "lines.csv.gz")
    path = str(data / name)
    message = refused("compare", "n2_s0.3_w0.2", "--html", path)
    assert f"{path} is shipped with the book, expected another file" in message
    assert (data / "results" / "lines.csv.gz").read_text() == "shipped"


PAD6, FINETUNED = "pad6_n2_s0.3_w0.2", "pad6_finetuned500_n2_s0.3_w0.2"


@pytest.mark.parametrize("arguments", [(FINETUNED,), (PAD6, FINETUNED, "--epochs", "3")])
def test_a_run_without_its_parent_is_refused_before_anything_is_written(refused, data, arguments):
    """It is nowhere, or not far enough."""
    assert refused("train", *arguments, "--runs", "0").startswith(
        f"{FINETUNED} continues run 0 of {PAD6}"
    )
    assert list(data.iterdir()) == []


def test_a_dry_run_needs_no_place_to_write_to(carry, refused, data, monkeypatch):
    monkeypatch.setattr(files, "PACKAGED", data)  # as where a wheel is installed
    monkeypatch.setattr(estimates, "seconds_left", lambda *_: 60)
    command = ("train", "n2_s0.3_w0.2", "--runs", "0", "--device", "cpu")
    code, out, err = carry(*command, "--dry-run")
    assert (code, err) == (0, "")
    assert "run 0, 1000 epochs a run, about 0:01:00" in out
    assert list(data.iterdir()) == []
    assert refused(*command).startswith(f"Cannot write to {data / 'checkpoints'}")


@pytest.mark.machine
@pytest.mark.slow
def test_train_stops_on_time_and_goes_on(carry, refused, data):
    """A real group for one epoch: interrupted by the clock, resumed, written, found complete."""
    group = "digits2_n1_s0.4_w1.0"  # two batches
    command = ("train", group, "--runs", "0", "--epochs", "1", "--device", "cpu")
    command = (*command, "--precision", "auto")
    code, out, err = carry(*command, "--minutes", "0.0001")
    assert code == 0, err
    assert "Time is up" in out
    assert not (data / "runs").exists()
    code, out, err = carry(*command)
    assert code == 0, err
    line = (
        "1 layer, 2 digits, 40% of the sums, weight decay 1.0; run 0, 1 epoch a run, about 0:00:0"
    )
    assert line in out
    assert "\nIn all about 0:00:0" in out
    assert out.count("estimated from a step of each group.") == 1
    path = catalogue.find(group)[0]
    assert f"Run 0 of {group}: {path}" in out
    written = path.stat().st_mtime_ns
    assert "complete" in carry(*command)[1]
    assert path.stat().st_mtime_ns == written
    # no list is written by training
    assert {p.name for p in data.iterdir()} == {"checkpoints", "runs"}
    path.write_bytes(path.read_bytes()[:-1])
    assert "run0.safetensors is damaged" in refused(*command)


@pytest.mark.parametrize(
    ("folder", "command"),
    [("measurements", ("measure", "--source", "ours")), ("results", ("bench", "train", "--save"))],
)
def test_what_cannot_be_saved_is_said_before_anything_is_computed(
    refused, data, monkeypatch, folder, command
):
    (data / folder).write_text("a file where the folder should be")
    for owner, name in ((Measuring, "of_quantity"), (bench, "train")):
        monkeypatch.setattr(owner, name, lambda *_: pytest.fail("it was computed first"))
    assert refused(*command).startswith(f"Cannot write to {data / folder}")


def test_what_cannot_be_measured_is_not_counted_as_measured(carry, data):
    _, out, _ = carry("measure", "--source", "ours", "--only", "n2/accuracy")
    assert "quantities.exact_match: 0 rows; No weights of n2_s0.3_w0.2 from ours in" in out
    assert out.endswith("Quantities measured: 0.\n")


def test_a_command_that_is_stopped_says_what_is_kept(monkeypatch, capsys):
    def stopped(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "carry", stopped)
    monkeypatch.setattr(sys, "argv", ["carry", "train", "--all"])
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as code:
        cli.main()
    message = "Stopped; what was finished is kept, and the same command goes on from there.\n"
    assert (code.value.code, capsys.readouterr().err) == (130, message)
