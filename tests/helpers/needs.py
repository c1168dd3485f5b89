"""Programs, packages, devices and files that some tests need and a machine may lack.

A test says what it needs by a mark, `@pytest.mark.needs("Node", "the built site")`, by a fixture of
`FIXTURES`, or by a call of `require`. Each thing is tried once in a process, when the first test
that needs it is set up, so that collecting tests starts no program. Where it does not work, the
test is skipped, with the reason and what to do. CONTRIBUTING.md has the same list.
"""

import os
import shutil
import subprocess
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AXE = ROOT / ".venv" / "node_modules" / "axe-core" / "axe.min.js"
SITE = ROOT / "_build" / "html"
SHARED = ROOT.parent / "shared"
BARE = ROOT / "_build" / "bare"  # where `make bare` installs the wheel
FIRST_COMMIT = "c1f2671"


@dataclass(frozen=True)
class Need:
    """Something that a machine may lack.

    Attributes:
        why_not: Tries it, and returns the reason why it cannot be used; "" if it works.
        remedy: What to do about it.
        demanded_by: An environment variable under which its absence is a failure.
    """

    why_not: Callable[[], str]
    remedy: str
    demanded_by: str = ""


def in_path(program: str) -> bool:
    """Return True if there is a program of this name, which may not work."""
    return shutil.which(program) is not None


def run(*command: str | Path) -> str:
    """Run a command, and return the reason why it does not work; "" if it does."""
    program = str(command[0])
    if not in_path(program):
        return f"there is no {program}"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if not done.returncode:
        return ""
    printed = (done.stderr.strip() or done.stdout.strip() or "it says nothing").splitlines()
    return f"{program}, exit {done.returncode}: {printed[-1]}"


def slurm() -> str:
    """Return the reason why no node of a cluster takes jobs; "" if one does."""
    if reason := run("sinfo"):
        return reason
    states = subprocess.run(
        ["sinfo", "--noheader", "--format", "%T"], capture_output=True, text=True, check=False
    ).stdout.split()
    words = {state.rstrip("~#!%$@^-+*") for state in states}  # `idle~` is a node that saves power
    if {"idle", "mixed", "allocated", "completing"} & words:
        return ""
    return f"its nodes are {', '.join(states) or 'none'}"


def package(name: str) -> str:
    """Import a package, and return the reason why it cannot be used; "" if it can."""
    if find_spec(name) is None:
        return f"there is no package {name}"
    try:
        with warnings.catch_warnings():  # its requirements' own
            warnings.simplefilter("ignore")
            import_module(name)
    except Exception as error:
        return f"{name}: {error!r}"
    return ""


def files(*paths: Path) -> str:
    """Return the name of the first path that does not exist; "" if all do."""
    missing = [path for path in paths if not path.exists()]
    return f"there is no {os.path.relpath(missing[0], ROOT)}" if missing else ""


def chromium() -> str:
    from tests.helpers.chromium import Unusable, find

    try:
        find()
    except Unusable as error:
        return str(error)
    return ""


def cuda() -> str:
    import torch

    return "" if torch.cuda.is_available() else "PyTorch finds none"


def triton() -> str:
    if reason := package("triton"):
        return reason
    from carry_train import gpu_kernels

    return "" if gpu_kernels.INTERPRETED else cuda()


def one_dnn() -> str:
    from carry_fast.layers import ONE_DNN

    return "" if ONE_DNN else "this PyTorch has none"


def forward_pass() -> str:
    from carry_fast import compiled

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return "" if compiled.library() else "its processor lacks an instruction"
        except RuntimeWarning as warning:
            # One that gives wrong numbers is there, and tests have to notice it.
            return "" if "wrong numbers" in str(warning) else str(warning)


def fused_step(format: str) -> str:
    from carry_core.errors import BadInput
    from carry_train import fused

    try:
        fused.library(format)
    except BadInput as error:
        return str(error.__cause__ or error)
    return ""


def git(*arguments: str) -> str:
    return run("git", "-C", ROOT, *arguments)


def checkout() -> str:
    return files(ROOT / ".git") or git("ls-files", "-z")


def history() -> str:
    return files(ROOT / ".git") or git("cat-file", "-e", FIRST_COMMIT)


NEEDS = {
    "the author's release": Need(
        partial(files, SHARED), "put the files into `../shared`", demanded_by="CI"
    ),
    "the built site": Need(partial(files, SITE / "book" / "index.html"), "`make book`"),
    "Chromium": Need(chromium, "`apt-get install chromium`"),
    "axe-core": Need(partial(files, AXE), "`make axe`"),
    # An older one has no runner of tests.
    "Node": Need(
        partial(run, "node", "--eval", "require('node:test')"), "`apt-get install nodejs`"
    ),
    "SLURM": Need(slurm, "`apt-get install slurm-wlm munge`, then `workflow/slurm-here start`"),
    "a CUDA device": Need(cuda, "a machine with a GPU"),
    "Triton": Need(triton, "a GPU; or `make triton`, on a CPU"),
    "oneDNN": Need(one_dnn, "another build of PyTorch"),
    "the forward pass in C++": Need(
        forward_pass, "`apt-get install g++`, on an x86 processor with AVX2"
    ),
    "the fused step": Need(
        partial(fused_step, "fp32"), "`apt-get install g++`, on a processor with AVX2 or NEON"
    ),
    "the fused step in bf16": Need(
        partial(fused_step, "bf16"), "`apt-get install g++`, on a processor with AVX512-bf16"
    ),
    "git": Need(partial(run, "git", "--version"), "`apt-get install git`"),
    "a checkout that git reads": Need(checkout, "a clone of your own, or git's `safe.directory`"),
    "the whole history": Need(history, "a clone that is not shallow"),
    "make": Need(partial(run, "make", "--version"), "`apt-get install make`"),
    "sha256sum": Need(partial(run, "sha256sum", "--version"), "`apt-get install coreutils`"),
    "a .venv that make set up": Need(
        partial(run, "make", "-C", str(ROOT), "--question", ".venv/.ready"), "`make setup`"
    ),
    "the wheel, installed": Need(
        partial(files, BARE / "tools" / "twine"), "`make bare`", demanded_by="CARRY_BARE"
    ),
    "gguf": Need(partial(package, "gguf"), "`make gguf`", demanded_by="CARRY_GGUF"),
    "TransformerLens": Need(
        partial(package, "transformer_lens"), "`make lens`", demanded_by="CARRY_LENS"
    ),
    "nnsight": Need(partial(package, "nnsight"), "`make lens`", demanded_by="CARRY_LENS"),
    "pyvene": Need(partial(package, "pyvene"), "`make lens`", demanded_by="CARRY_LENS"),
}

# A test that takes one of these fixtures needs these.
FIXTURES = {
    "opened": "Chromium",
    "shared": "the author's release",
    "lens": "TransformerLens",
    "bare_python": "the wheel, installed",
}


@cache
def why_not(name: str) -> str:
    """Return the reason why a test that needs this is skipped; "" if there is none."""
    need = NEEDS[name]
    reason = need.why_not()
    return reason and f"needs {name} ({reason}): {need.remedy}"


def require(name: str) -> None:
    """Skip the test, or the module that is being imported, where this does not work."""
    if not why_not(name):
        return
    if os.environ.get(NEEDS[name].demanded_by):
        pytest.fail(f"{why_not(name)}; {NEEDS[name].demanded_by} is set, so this is no skip")
    pytest.skip(why_not(name), allow_module_level=True)
