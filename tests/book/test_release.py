"""What a release consists of, and the files that set up the same environment elsewhere."""

import json
import os
import re

import pytest
import yaml

from carry_core.files import ROOT
from carry_paper import cli


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*(?:##|#:)", text("Makefile"), re.MULTILINE))


def targets_of(command: str) -> set[str]:
    """The targets that a command asks make for."""
    words = re.sub(r"--jobs \d+|[A-Z]+=(?:\$\{\{.*?\}\}|\S*)", "", command).split()
    return {*words[1:]}


@pytest.mark.parametrize("name", ["ci", "release"])
def test_a_workflow_runs_what_can_be_run_here(name):
    """It calls `.ci/run`; besides, targets of make, and what publishes a release."""
    jobs = yaml.safe_load(text(f".github/workflows/{name}.yml"))["jobs"].values()
    commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert commands[0] == ".ci/run"
    for command in commands[1:]:
        if not command.startswith("gh release create"):
            assert command.startswith("make ")
            assert targets_of(command) <= make_targets()


def words_of_pages() -> dict[str, str]:
    """Return what README, the book and its notebooks say, by file.

    The protocol is left out: its sections are dated and name the commands of their day.
    """
    texts = {}
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("book/*.md")]:
        if path.name == "protocol.md":
            continue
        texts[path.name] = path.read_text(encoding="utf-8")
    for path in ROOT.glob("notebooks/*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts[path.name] = "\n".join("".join(cell["source"]) for cell in cells)
    return texts


def test_pages_name_targets_and_commands_that_exist():
    targets = re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE)
    wrong = []
    for name, words in words_of_pages().items():
        for target in re.findall(r"`make ([a-z][a-z-]+)[` ]", words):
            if target not in targets:
                wrong.append(f"{name}: make {target}")
        for command in re.findall(r"`carry ([a-z][a-z-]+)[` ]", words):
            if command not in cli.carry.commands:
                wrong.append(f"{name}: carry {command}")
    assert wrong == []


def test_ci_runs_targets_of_make():
    commands = re.findall(r"^ *(make .+)", text(".ci/run"), re.MULTILINE)
    assert commands[:2] == ["make book", "make test ORDER=commit"]
    assert set.union(*map(targets_of, commands)) <= make_targets()


def test_every_environment_has_the_lock_s_python_and_the_makefile_s_torch():
    (python,) = re.findall(r"--python-version ([\d.]+)", text("Makefile"))
    (torch,) = re.findall(r"^TORCH \?= (\S+)$", text("Makefile"), re.MULTILINE)
    conda = yaml.safe_load(text("environment.yml"))["dependencies"]
    assert f"python={python}" in conda
    assert conda[-1]["pip"] == [torch, "--requirement requirements.lock", "--editable ."]
    assert text(".binder/runtime.txt") == f"python-{python}\n"
    binder = [line for line in text(".binder/requirements.txt").splitlines() if line[0] != "#"]
    assert binder == ["--requirement ../requirements.lock"]
    assert re.findall(r"torch==\S+", text(".binder/postBuild")) == [torch]
    assert os.access(ROOT / ".binder" / "postBuild", os.X_OK)
    image = f"python:{python}-bookworm"
    assert re.findall(r"^FROM (\S+)$", text("Dockerfile"), re.MULTILINE) == [image]
    container = json.loads(text(".devcontainer/devcontainer.json"))
    assert container["image"] == image
    assert re.findall(r"^ARG TORCH=(\S+)$", text("Dockerfile"), re.MULTILINE) == [torch]
    for command in (container["postCreateCommand"], *re.findall(r"RUN (.+)", text("Dockerfile"))):
        if command.startswith("make "):
            assert command.split()[1] in make_targets()
