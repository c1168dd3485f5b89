"""Damaged, hostile or contradictory files: each type's reader refuses them in one line."""

import errno
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from carry_core.errors import BadInput
from carry_paper import author, bench, catalogue, measurements
from carry_paper.catalogue import load_curves
from carry_paper.findings import cells, interchange_maps, line_table
from carry_paper.ledger import claims
from carry_paper.llm import head_survey, recordings
from carry_paper.pages import author_side
from carry_train import groups
from carry_train.checkpoints import Checkpoints
from carry_train.files import replacing_all, save_run
from carry_train.trainer import Trainer
from tests.helpers.trainings import save_random
from tests.llm.test_recorded import planted

pytestmark = pytest.mark.machine

NAME = "n1_s0.3_w0.2"
CLAIM = {
    "id": "a",
    "where": "Tab. 1",
    "paper": 0.5,
    "notebook": "n",
    "heading": "h",
    "reason": "r",
    "rule": "exact",
}
CLAIM |= {"title": "t", "since": "2026-11-26"}
MAP = {
    "run": 0,
    "component": "blocks.0.attn.z:0",
    "position": "pos7",
    "reads": "pos7",
    "variable": "carry_in",
}
MAP |= {
    "direction": "up",
    "pairs": 20,
    "accuracy": 0.5,
    "elsewhere": 1.0,
    "right": 1.0,
    "control": 0,
    "sha256": "a" * 64,
}
LINE = {"source": "ours", "group": NAME, "recipe": "quick", "run": 7, "digits": 3, "reads": "pos7"}
LINE |= dict.fromkeys(line_table.NUMBERS, 1.0) | dict.fromkeys(line_table.BY_STATES, "{}")
LINE |= {"reason": np.nan, "shares": '{"embed": 1.0}', "profile": "[]", "sha256": "a" * 64}
CELL = dict.fromkeys(cells.COLUMNS, 1) | {"group": NAME, "recipe": "minute", "new": "mask"}
CELL |= dict.fromkeys(("precision", "processor", "torch", "commit"), "one")
CELL |= {"sha256": "a" * 64, "columns": '[{"reads": "pos7"}]', "rounding": np.nan}


def write_run(data: Path) -> None:
    scale = np.ones(9, np.float32)
    save_random(groups.find(NAME), (0,), "paper", 9, test_loss=scale, train_loss=scale)


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(pd.DataFrame(rows).to_csv(index=False).encode()))


def write_text(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def write_checkpoint(data: Path) -> None:
    trainer = Trainer(groups.find(NAME), groups.RECIPES["quick"], [0])
    a, b = (sums[:, :4] for sums in trainer.train.unbind(1))
    trainer.step(a, b, 0)
    Checkpoints(data / "checkpoints", trainer.group, trainer.recipe).save(trainer.states())


def write_recording(data: Path) -> None:
    text = {"prompts": ["1 + 2 ="], "correct": [True], "generations": ["3"], "accuracy": 1.0}
    write_text(data / "author" / "llm" / "llemma.json", text)
    tensors = {
        "wins": torch.ones(2, 2),
        "attention_mean": torch.ones(2, 3, 3),
        "attention_std": torch.ones(2, 3, 3),
    }
    save_file(tensors, data / "author" / "llm" / "llemma.safetensors")


def read_checkpoint(data: Path) -> Any:
    return Checkpoints(data / "checkpoints", groups.find(NAME), groups.RECIPES["quick"]).load(0)


BENCH = {
    "processor": "p",
    "capability": "c",
    "torch": "t",
    "commit": "c",
    "rows": [{"device": "gpu", "ratio": 2.0}],
}
MEASURED = dict.fromkeys(measurements.COLUMNS) | {
    "source": "ours",
    "quantity": "heads.staircase",
    "value": 0.5,
    "fields": "{}",
    "ships": 0,
}
SMALL = {"recipe": {}, "steps": 1, "seconds": 1, "device": "cpu", "history": [{"accuracy": 1.0}]}
DIGEST = "a" * 64
Case = tuple[str, Callable[[Path], Any], Callable[[Path], Any]]

# Of each type of file: where it lies, what writes it, and what reads it.
CASES: dict[str, Case] = {
    "weights": (
        f"runs/{NAME}/paper/run0.safetensors",
        write_run,
        lambda data: catalogue.load(NAME),
    ),
    "curves": (f"runs/{NAME}/paper/run0.npz", write_run, lambda data: load_curves(NAME)),
    "checkpoint": (f"checkpoints/{NAME}.quick/run0.safetensors", write_checkpoint, read_checkpoint),
    "claims": (
        "claims.yml",
        lambda data: write_text(data / "claims.yml", [CLAIM]),
        lambda data: claims.claims(),
    ),
    "measurements": (
        "measurements/ours.csv.gz",
        lambda data: write_table(measurements.path_of("ours"), [MEASURED]),
        lambda data: measurements.read("ours"),
    ),
    "benchmark": (
        "results/bench_train.json",
        lambda data: write_text(bench.path_of("train"), BENCH),
        lambda data: bench.saved("train"),
    ),
    "map": (
        f"results/interchange/ours/{NAME}.csv.gz",
        lambda data: write_table(interchange_maps.path_of("ours", NAME), [MAP]),
        lambda data: interchange_maps.load_by_source(NAME),
    ),
    "lines": (
        "results/lines.csv.gz",
        lambda data: write_table(line_table.path_of(), [LINE]),
        lambda data: line_table.saved(),
    ),
    "cells": (
        "results/cells.csv.gz",
        lambda data: write_table(cells.path_of(), [CELL]),
        lambda data: cells.saved(),
    ),
    "author's side": (
        f"results/author/fig.{NAME}.npz",
        lambda data: author_side.store(
            data / "results" / "author" / f"fig.{NAME}.npz", {"x": np.ones(3)}, NAME
        ),
        lambda data: author_side.beside("fig", pd.DataFrame({"x": [1.0]}), "ours", NAME),
    ),
    "sources": (
        "author/sources.json",
        lambda data: write_text(data / "author" / "sources.json", {"x": {"files": {"a": DIGEST}}}),
        lambda data: author.imported_files(data / "author"),
    ),
    "recording": (
        "author/llm/llemma.json",
        write_recording,
        lambda data: recordings.recording("llemma"),
    ),
    "recorded tensors": (
        "author/llm/llemma.safetensors",
        write_recording,
        lambda data: recordings.recording("llemma"),
    ),
    "survey": (
        "llm/llemma/survey.safetensors",
        lambda data: planted(data, "llemma", []),
        lambda data: recordings.stored_survey("llemma"),
    ),
    "small model": (
        "llm/small/training.json",
        lambda data: write_text(data / "llm" / "small" / "training.json", SMALL),
        lambda data: recordings.small_training(),
    ),
}


HARM: dict[str, Callable[[Path], Any]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 - 1]),
    "noise": lambda path: path.write_bytes(bytes(range(256)) * 9),
}


@pytest.mark.parametrize("case", CASES)
def test_a_damaged_file_is_one_line_that_names_it(data, case):
    name, write, read = CASES[case]
    write(data)
    read(data)  # whole, it is read
    whole = (data / name).read_bytes()
    for harm in HARM.values():
        (data / name).write_bytes(whole)
        harm(data / name)
        with pytest.raises(BadInput) as refused:
            read(data)
        assert str(refused.value).startswith(f"{data / name} is damaged (")


def record(**changes: Any) -> Callable[[Path], None]:
    """Change entries of a run's record."""

    def change(path: Path) -> None:
        with safe_open(path, "pt") as file:
            description = json.loads(file.metadata()["carry"])
        description["record"] |= changes
        save_file(load_file(path), path, {"carry": json.dumps(description)})

    return change


def tensor(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], None]:
    """Change one tensor of a file."""

    def apply(path: Path) -> None:
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
        tensors = load_file(path)
        save_file(tensors | {name: change(tensors[name])}, path, metadata)

    return apply


def arrays(**changes: Any) -> Callable[[Path], None]:
    """Change some arrays of an `.npz` file, or leave them out."""

    def apply(path: Path) -> None:
        with np.load(path) as file:
            stored = {key: file[key] for key in file.files} | changes
        with path.open("wb") as opened:
            np.savez_compressed(opened, **{key: x for key, x in stored.items() if x is not None})

    return apply


def hide_an_array(path: Path) -> None:
    """Make the first entry of an `.npz` file's directory so long that it takes in the second."""
    content = bytearray(path.read_bytes())
    first = content.index(b"PK\x01\x02")
    second = content.index(b"PK\x01\x02", first + 1)
    end = content.index(b"PK\x05\x06")
    content[first + 32 : first + 34] = (end - second).to_bytes(2, "little")
    path.write_bytes(content)


def rows(row: dict[str, Any], *changes: dict[str, Any]) -> Callable[[Path], None]:
    """A file with a row for each of some changes to a valid one."""

    def write(path: Path) -> None:
        changed = [row | change for change in changes]
        write_table(path, changed) if path.suffix == ".gz" else write_text(path, changed)

    return write


# What only a schema notices, and what would give a wrong number: the type of file, what is changed,
# and a word of the reason.
CONTRADICTIONS: list[tuple[str, Callable[[Path], None], str]] = [
    ("weights", record(recipe="quick"), "recipe quick, not paper"),
    ("weights", record(epochs=1001), "its recipe 1000"),
    ("weights", record(run=7), "is of run 7"),
    ("weights", record(snapshots=5), "is not iterable"),
    ("weights", tensor("embed.weight", lambda p: p[:3]), "embed.weight is torch.float32 [3, 128]"),
    ("weights", tensor("embed.weight", lambda p: p.to(torch.int8)), "embed.weight is torch.int8"),
    ("weights", tensor("norm.bias", lambda p: p * torch.nan), "not finite"),
    ("checkpoint", tensor("exp_avg/norm.bias", lambda p: p[:3]), "its exp_avg"),
    ("curves", hide_an_array, "another number of arrays"),
    ("curves", arrays(test_loss=np.ones(18)), "test_loss is float64 [18], expected numbers [9]"),
    ("curves", arrays(test_loss=np.ones(9, int)), "test_loss is int64"),
    ("curves", arrays(epochs=np.array([9, 1]), test_loss=np.ones(2)), "do not ascend"),
    ("curves", arrays(epochs=np.array([1, 10]), test_loss=np.ones(2)), "from 1 to 9"),
    ("claims", rows(CLAIM, {}, {}), "the id a stands twice"),
    ("claims", rows(CLAIM, {"rule": "evil"}), "rule: 'evil' is unknown"),
    ("claims", rows(CLAIM, {"paper": "5e7"}), "paper.int: Input should be"),
    ("claims", rows(CLAIM, {"paper": None}), "a finding a quantifier"),
    ("claims", rows(CLAIM, {"quantifier": "all"}), "neither has both"),
    ("claims", lambda path: path.write_text("- {id: a, id: b}"), "id stands twice at line 1"),
    ("measurements", rows(MEASURED, {}, {}), "a measurement stands twice"),
    ("measurements", rows(MEASURED, {"source": "author"}), "rows of the source author"),
    ("measurements", rows(MEASURED, {"fields": None}), "fields[0]: JSON input should be"),
    ("map", rows(MAP, {"accuracy": 1.5}), "less than or equal to 1"),
    ("map", rows(MAP, {}, {}), "a cell stands twice"),
    (
        "map",
        rows(MAP, {}, {"position": "pos8", "sha256": "b" * 64}),
        "a run has maps of two weights",
    ),
    ("lines", rows(LINE, {}, {}), "a column of a run stands twice"),
    ("cells", rows(CELL, {}, {}), "a run of a cell stands twice"),
    ("author's side", arrays(x=np.ones((3, 2))), "must each be 1-dimensional"),
]


@pytest.mark.parametrize(
    ("case", "change", "complaint"),
    CONTRADICTIONS,
    ids=[f"{i} {x[0]}" for i, x in enumerate(CONTRADICTIONS)],
)
def test_a_file_that_cannot_be_true_is_one_line_that_names_it(data, case, change, complaint):
    name, write, read = CASES[case]
    write(data)
    change(data / name)
    with pytest.raises(BadInput) as refused:
        read(data)
    assert str(refused.value).startswith(f"{data / name} is damaged (")
    assert complaint in str(refused.value)


def test_weights_that_are_not_finite_are_not_written(data):
    group = groups.find(NAME)
    write_run(data)
    path = data / CASES["weights"][0]
    before = path.read_bytes()
    weights = {name: p * torch.nan for name, p in catalogue.load(NAME).weights[0].items()}
    with pytest.raises(BadInput, match="not finite"):
        save_run(path, group, weights, {"recipe": "paper", "run": 0, "epochs": 9})
    assert path.read_bytes() == before


# Writing


def write_new(*paths: Path) -> None:
    with replacing_all(*paths) as temporaries:
        for temporary in temporaries:
            temporary.write_text("new")


def no_space(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "")


def test_files_that_belong_together_change_together(tmp_path, monkeypatch):
    first, two = tmp_path / "one", tmp_path / "two"
    for path in (first, two):
        path.write_text("old")
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", no_space)
        with pytest.raises(
            BadInput, match=r"one and .*two: No space left.* nothing was changed there\."
        ):
            write_new(first, two)
    assert (first.read_text(), two.read_text()) == ("old", "old")
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadInput, match=r"Is a directory\. .*; one is new\."):
        write_new(first, tmp_path / "folder")
    assert (first.read_text(), two.read_text()) == ("new", "old")
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two", "folder"}


def test_a_survey_gives_way_to_none_of_fewer_prompts(data):
    planted(data, "llemma", [])
    path = data / "llm" / "llemma" / head_survey.FILE
    head_survey.check_replaces(path, 10)
    with pytest.raises(BadInput, match="is a survey of 10 prompts: ask for as many"):
        head_survey.check_replaces(path, 9)


def test_the_authors_side_is_not_made_from_a_part_of_the_release(data):
    name, write, _ = CASES["author's side"]
    write_text(
        data / "author" / "sources.json",
        {f"{NAME}/run{i}": {"files": {f"{i}": DIGEST}} for i in (0, 1)},
    )
    write(data)
    before = (data / name).read_bytes()
    write(data)
    assert (data / name).read_bytes() == before
    write_text(data / "author" / "sources.json", {f"{NAME}/run0": {"files": {"0": DIGEST}}})
    with pytest.raises(BadInput, match="was made from 1 as well"):
        write(data)
    assert (data / name).read_bytes() == before
