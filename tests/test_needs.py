"""What a machine may lack is tried, by one helper, and nothing else skips a test."""

import ast
import os
from pathlib import Path

import pytest

from carry_core.files import ROOT
from carry_fast import compiled
from carry_train import fused
from tests.helpers import chromium, needs

SKIPPING = {
    "pytest.skip",
    "pytest.mark.skip",
    "pytest.mark.skipif",
    "pytest.importorskip",
    "shutil.which",
}


def test_no_test_skips_itself_or_looks_for_a_program():
    calls = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path != Path(needs.__file__) and path != Path(chromium.__file__):
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            names = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
            calls += [(path.name, name) for name in names & SKIPPING]
    assert calls == []


@pytest.fixture
def stub(monkeypatch, tmp_path):
    """Put a program into PATH that prints a line and fails, as Ubuntu's Chromium does."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def write(name: str, script: str = 'echo "this needs a snap"; exit 1') -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return write


@pytest.mark.parametrize(
    ("need", "program"),
    [("git", "git"), ("Node", "node"), ("SLURM", "sinfo"), ("sha256sum", "sha256sum")],
)
def test_a_program_that_does_not_start_is_as_one_that_is_not_there(stub, need, program):
    assert needs.NEEDS[need].why_not() == f"there is no {program}"
    stub(program)
    assert needs.NEEDS[need].why_not() == f"{program}, exit 1: this needs a snap"
    stub(program, "echo idle")
    assert needs.NEEDS[need].why_not() == ""


@pytest.mark.parametrize("states", ["down", "drained\ndown", ""])
def test_a_cluster_without_a_node_that_takes_jobs_is_none(stub, states):
    stub("sinfo", f"echo '{states}'")
    assert needs.NEEDS["SLURM"].why_not().startswith("its nodes are ")


def test_a_compiler_that_does_not_start_is_none(stub, monkeypatch, processor_with, tmp_path):
    processor_with(compiled.INSTRUCTIONS | fused.REGISTERS[8])
    stub("g++")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where nothing is built yet
    monkeypatch.delenv("CXX", raising=False)
    for need in ("the forward pass in C++", "the fused step"):
        assert needs.NEEDS[need].why_not().startswith("g++: ")


def test_a_browser_that_is_a_stub_is_none(stub, monkeypatch):
    monkeypatch.setattr(chromium, "NAMES", ("browser-stub",))
    with pytest.raises(chromium.Unusable, match="there is no browser-stub"):
        chromium.find.__wrapped__()
    monkeypatch.setenv("PATH", os.defpath, prepend=os.pathsep)  # for the shell that starts it
    stub("browser-stub")
    with pytest.raises(chromium.Unusable, match="browser-stub: "):
        chromium.find.__wrapped__()


def test_what_is_demanded_fails_where_it_is_lacking(monkeypatch):
    lacking = needs.Need(lambda: "there is none", "make it", demanded_by="CARRY_DEMANDS_IT")
    monkeypatch.setitem(needs.NEEDS, "something", lacking)
    with pytest.raises(pytest.skip.Exception, match=r"needs something \(there is none\): make it"):
        needs.require("something")
    monkeypatch.setenv("CARRY_DEMANDS_IT", "1")
    with pytest.raises(pytest.fail.Exception, match="something"):
        needs.require("something")
