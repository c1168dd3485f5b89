"""What a machine may lack is tried, by one helper, and nothing else skips a test."""

import pytest

from tests.helpers import needs


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


def test_what_is_demanded_fails_where_it_is_lacking(monkeypatch):
    lacking = needs.Need(lambda: "there is none", "make it", demanded_by="CARRY_DEMANDS_IT")
    monkeypatch.setitem(needs.NEEDS, "something", lacking)
    with pytest.raises(pytest.skip.Exception, match=r"needs something \(there is none\): make it"):
        needs.require("something")
    monkeypatch.setenv("CARRY_DEMANDS_IT", "1")
    with pytest.raises(pytest.fail.Exception, match="something"):
        needs.require("something")
