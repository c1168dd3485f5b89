import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import click
import pytest
import torch

from carry_core.errors import BadInput
from carry_paper import bench, catalogue, cli
from carry_paper.checksums import write_checksums
from carry_paper.cli.options import Target, check_writable
from carry_paper.ledger.measuring import Measuring
from carry_train.files import write_json


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
        (("train", "n2_s0.30_w0.2"), "'n2_s0.30_w0.2' is called n2_s0.3_w0.2"),
        (("train", "digits5_n2_s0.3_w0.2"), "digits5: expected 2 to 4 digits"),
        (
            ("train", "n2_s0.3_w0.2_h4", "--precision", "bf16", "--epochs", "1001"),
            "n2_s0.3_w0.2_h4 has 1000 by the recipe paper",
        ),
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
            ("claims", "--source", "ours", "--only", "data/", "--json", "/dev/full"),
            "/dev/full is no regular file",
        ),
        (
            ("train", "n1_s0.3_w0.2", "--device", "cuda"),
            "Device cuda: PyTorch finds 0 CUDA devices here; expected cpu",
        ),
        (
            ("train", "n2_s0.3_w0.0", "--precision", "triton"),
            "--precision triton-bf16 runs on CUDA devices only",
        ),
        (
            ("train", "n1_s0.3_w0.2", "--epochs", "99999"),
            "--epochs 99999: n1_s0.3_w0.2 has 1000 by the recipe paper",
        ),
        (("train", "n1_s0.3_w0.2", "--threads", "9" * 20), "Invalid value for '--threads'"),
        (("train", "n1_s0.3_w0.2", "--out", ""), "Invalid value for '--out': an empty path"),
        (("compare",), "Missing argument 'GROUP|DIR|FILE...'"),
        (("compare", "n9"), "Unknown group 'n9'"),
        (("compare", "no/run0.safetensors"), "no/run0.safetensors does not exist"),
        (("compare", "n2_s0.4_w0.5"), "make them with `carry train n2_s0.4_w0.5`"),
        (("compare", "n2_s0.3_w0.2", "--html", "/dev/null/x"), "Cannot write to /dev/null"),
        (
            ("claims", "--source", "ours", "--only", "tab9"),
            "No id of the ledger starts with 'tab9'",
        ),
        (("measure", "--source", "ours", "n9"), "Unknown group 'n9'"),
        (("measure", "--source", "ours", "--only", "tab9"), "No id of the ledger starts with"),
        (("import-author", "x" * 300), ": File name too long. Name another."),
        (("nonsense",), "No such command 'nonsense'. Try `"),
        (("claims",), "Missing option '--source'. Choose from: ours, author. Try `"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(
    refused, data, arguments, complaint, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert complaint in refused(*arguments)
    assert list(data.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ("claims", "--source", "ours", "--only", "data/", "--json"),
        ("compare", "n2_s0.3_w0.2", "--html"),
    ],
)
@pytest.mark.parametrize("name", ["results/lines.csv.gz", "SHA256SUMS", "link.json"])
def test_a_shipped_file_is_not_written_over(refused, data, command, name):
    (data / "results").mkdir()
    (data / "results" / "lines.csv.gz").write_text("shipped")
    (data / "link.json").symlink_to(data / "results" / "lines.csv.gz")
    write_checksums([data / "results" / "lines.csv.gz"])
    before = (data / "SHA256SUMS").read_text()
    path = str(data / name)
    message = refused(*command, path)
    assert f"{path} is shipped with the book, expected another file" in message
    assert (data / "results" / "lines.csv.gz").read_text() == "shipped"
    assert (data / "SHA256SUMS").read_text() == before


@pytest.mark.parametrize(
    ("out", "complaint"),
    [
        ("file", "Invalid value for '--out': Directory '{out}' is a file."),
        ("loop/x", "Cannot write to {out}: Too many levels of symbolic links ({data}/loop)"),
    ],
)
def test_a_place_that_cannot_be_is_refused(refused, data, out, complaint):
    (data / "file").write_text("")
    (data / "loop").symlink_to(data / "loop")
    message = refused("train", "n1_s0.3_w0.2", "--runs", "0", "--out", str(data / out), "--dry-run")
    assert message.startswith(complaint.format(out=data / out, data=data))
    assert {path.name for path in data.iterdir()} == {"file", "loop"}


def options(*kinds: type[click.ParamType]) -> list[tuple[str, click.Parameter]]:
    """Every option of a kind, and its command."""
    commands = cli.carry.commands.items()
    return [
        (name, option)
        for name, command in commands
        for option in command.params
        if isinstance(option.type, kinds)
    ]


NUMBERS = options(click.types.IntParamType, click.types.FloatParamType)


@pytest.mark.parametrize(("command", "option"), NUMBERS, ids=lambda x: getattr(x, "name", x))
def test_a_number_is_written_in_ascii_digits_and_is_finite(command, option):
    for text in ("nan", "inf", "-inf", "1e999", "\u0661\u0662", "1_0", " 12", "9" * 5000, ""):
        with pytest.raises(click.BadParameter):
            option.type_cast_value(click.Context(cli.carry), text)
    assert option.type_cast_value(click.Context(cli.carry), "12") == 12


def test_no_other_text_is_taken_for_a_number(refused):
    for device in ("cuda:\u0661", "cuda:1_0", "cuda:99999999999999999999", "cuda:-1"):
        assert f"Unknown device {device!r}" in refused("train", "n1_s0.3_w0.2", "--device", device)
    assert "expected run numbers" in refused("train", "n1_s0.3_w0.2", "--runs", "\u0661")


WRITERS = options(Target)


@pytest.mark.parametrize(("command", "option"), WRITERS, ids=lambda x: getattr(x, "name", x))
def test_a_place_that_cannot_be_written_is_refused_by_every_option_that_writes(
    data, command, option
):
    """Before anything else is done; what is there stays as it was."""
    (data / "file").write_text("old")
    (data / "folder").mkdir()
    names = ["x" * 300, "\u00e9" * 130, "new/" + "x" * 300, "x/" * 3000 + "x", "file/x", ""]
    places = [str(data / name) if name else "" for name in names]
    for place in (*places, "/dev/null/x", "/proc/carry/x"):
        with pytest.raises((click.BadParameter, BadInput)):
            option.type_cast_value(click.Context(cli.carry), place)
    wrong = data / ("file" if not option.type.file_okay else "folder")
    with pytest.raises(click.BadParameter):
        option.type_cast_value(click.Context(cli.carry), str(wrong))
    good = data / "new" / ("x" * 200)
    assert option.type_cast_value(click.Context(cli.carry), str(good)) == good
    assert sorted(path.name for path in data.rglob("*")) == ["file", "folder"]


def test_the_longest_name_that_is_accepted_can_be_written(data):
    accepted = []
    for length in range(200, 260):
        with suppress(BadInput):
            check_writable(data, "x" * length)
            accepted.append(length)
    write_json(data / ("x" * max(accepted)), [])
    assert max(accepted) >= 240


PAD6, FINETUNED = "pad6_n2_s0.3_w0.2", "pad6_finetuned500_n2_s0.3_w0.2"


@pytest.mark.parametrize("arguments", [(FINETUNED,), (PAD6, FINETUNED, "--epochs", "3")])
def test_a_run_without_its_parent_is_refused_before_anything_is_written(refused, data, arguments):
    """It is nowhere, or not far enough."""
    assert refused("train", *arguments, "--runs", "0").startswith(
        f"{FINETUNED} continues run 0 of {PAD6}"
    )
    assert list(data.iterdir()) == []


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
    assert (
        out.count(
            "estimated from a step of each group. Shorter: --recipe quick or minute (fewer steps)."
        )
        == 1
    )
    path = catalogue.find(group)[0]
    assert f"Run 0 of {group}: {path}" in out
    written = path.stat().st_mtime_ns
    assert "complete" in carry(*command)[1]
    assert path.stat().st_mtime_ns == written
    # no list is written by training
    assert {p.name for p in data.iterdir()} == {"checkpoints", "runs"}
    path.write_bytes(path.read_bytes()[:-1])
    assert "run0.safetensors is damaged" in refused(*command)


@pytest.mark.machine
@pytest.mark.parametrize(
    ("flags", "precision", "warned"),
    [("sse2", "bf16", True), ("sse2", "auto", False), ("", "bf16", False)],
)
def test_a_precision_that_the_processor_has_to_emulate_is_said(
    carry, processor_with, flags, precision, warned
):
    """Once a training starts, and only where Linux names the processor's instructions."""
    processor_with(flags.split())
    command = ("train", "digits2_n1_s0.4_w1.0", "--runs", "0", "--epochs", "1", "--dry-run")
    code, out, err = carry(*command, "--precision", precision)
    assert (code, err.count("\n")) == (0, warned)
    assert warned == ("no instructions for bf16" in err)
    assert f" in torch-{'fp32' if precision == 'auto' else precision}.\n" in out


@pytest.mark.needs("the fused step")
@pytest.mark.parametrize(
    ("precision", "warning"),
    [
        ("fp32", "--precision fp32 is fused-fp32 here; PyTorch's own step is torch-fp32.\n"),
        ("fused-fp32", ""),
        (None, ""),
    ],
)
def test_a_format_is_computed_by_the_fused_step_and_who_asked_for_it_is_told(
    carry, data, precision, warning
):
    command = ("train", "digits2_n1_s0.4_w1.0", "--runs", "0", "--epochs", "1", "--dry-run")
    code, out, err = carry(*command, *(["--precision", precision] if precision else []))
    assert (code, err) == (0, warning)
    assert " in fused-fp32.\n" in out


def test_a_precision_by_its_older_name_is_told_the_newer_one(carry, refused, data, processor_with):
    """Where it cannot be had, the refusal has the newer name."""
    processor_with(["avx2", "fma"])
    message = refused("train", "digits2_n1_s0.4_w1.0", "--runs", "0", "--precision", "fused")
    assert message.startswith("The fused step in bf16 cannot be had here (the processor lacks ")


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
