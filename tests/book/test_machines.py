"""Simulated machines lack what they should, and a failure on one of them is seen."""

import os
import re
import shutil
from pathlib import Path

import machines
import part
import pytest
from machines import Machine

from carry_core.files import ROOT


@pytest.fixture
def simulated(tmp_path, monkeypatch):
    """Simulate a machine that is given, and return what `make machines` returns."""
    monkeypatch.setattr(machines, "ROOT", tmp_path)
    monkeypatch.setattr(machines, "FOLDER", tmp_path / "machines")

    def simulate(machine: Machine) -> int:
        monkeypatch.setattr(machines, "MACHINES", {"one": machine})
        return machines.main(["one"])

    return simulate


def test_a_hidden_program_is_not_found_and_its_neighbours_are(tmp_path, monkeypatch):
    for name in ("other/node", "programs/node", "programs/nodejs", "programs/git"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "third").mkdir()
    folders = [str(tmp_path / name) for name in ("other", "missing", "programs", "third")]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    path = [*machines.path_without(["node*"], tmp_path / "links")]
    programs = {file.name for folder in path for file in Path(folder).glob("*")}
    assert programs == {"git"}
    assert str(tmp_path / "third") in path


def test_each_machine_runs_targets_of_make(monkeypatch, tmp_path):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    for machine in machines.MACHINES.values():
        assert {*machine.targets} <= {*targets}
        environment = machines.environment_of(machine, tmp_path)
        assert environment.get("OMP_NUM_THREADS") == machine.environment.get("OMP_NUM_THREADS")
        shutil.rmtree(tmp_path / "programs", ignore_errors=True)


def test_a_commit_has_one_of_the_marked_machines(monkeypatch):
    chosen = set()
    for number in range(len(machines.MARKED)):
        monkeypatch.setattr(part, "commit_number", lambda number=number: number)
        chosen |= {*machines.chosen(["commit"])}
    assert chosen == machines.MARKED.keys()
    assert machines.chosen([]) == [*machines.MACHINES]


def test_a_failure_is_seen(simulated, tmp_path, capsys):
    assert simulated(Machine(make="echo why; exit 1; :")) == 1
    out, err = capsys.readouterr()
    assert out.startswith("one: FAILED (")
    assert "machines/one.log says what failed" in err
    assert "why\n" in (tmp_path / "machines" / "one.log").read_text()


def test_a_machine_is_set_up_as_its_entry_says(simulated, tmp_path):
    machine = Machine(
        environment={"CARRY_HERE": "{folder}"},
        prepare="mkdir bin && printf '#!/bin/sh\\necho stub\\n' > bin/git && chmod +x bin/git",
        checkout='mkdir "$CHECKOUT"',
        checkout_name="with a space",
        make='echo "$PWD $CARRY_HERE $(git)"; :',
    )
    assert simulated(machine) == 0
    folder = tmp_path / "machines" / "one"
    assert f"{folder}/with a space {folder} stub\n" in folder.with_suffix(".log").read_text()
    assert not folder.exists(), "nothing is kept of a machine on which the tests pass"


def test_what_cannot_be_simulated_is_no_failure(simulated, capsys):
    assert simulated(Machine(prepare="no-such-command-here")) == 0
    assert "one: cannot be simulated here" in capsys.readouterr().out


def test_an_unknown_machine_is_one_line(capsys):
    assert machines.main(["no-chromium", "no-such"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("MACHINES=no-such: expected commit, or some of no-programs, ")
    assert err.count("\n") == 1
