"""The wheel: what is in it, and what it does where there is no checkout.

`make bare` makes the environment in which it is installed: the core's own requirements, and
matplotlib.
"""

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from carry_core import runs
from carry_core.files import ROOT
from carry_paper import catalogue
from carry_train import groups
from tests.helpers.printed import assert_same_words

pytestmark = pytest.mark.slow
BARE = ROOT / "_build" / "bare"
PACKAGES = ("carry_core", "carry_fast", "carry_train", "carry_paper")
LIST = "data/runs/leading.json"  # which recipe leads
MAIN_RUNS = f"data/runs/{groups.MAIN}/paper"
# What replaces the network: whatever asks for a connection fails.
OFFLINE = "import socket; socket.socket.connect = socket.getaddrinfo = None; "


def build(source: Path, out: Path, *options: str) -> None:
    command = [sys.executable, "-m", "uv", "build", "--no-build-isolation", "--offline", *options]
    built = subprocess.run(
        [*command, "--out-dir", out, source], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it, as `make wheel` does."""
    out = tmp_path_factory.mktemp("dist")
    build(ROOT, out)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def bare_python() -> Path:
    """Python where `make bare` has installed the wheel."""
    return BARE / "bin" / "python"


def run(python: Path, code: str, folder: Path) -> subprocess.CompletedProcess:
    """Run code in a folder, without a network; a warning is an error."""
    environment = {"PATH": os.environ["PATH"], "MPLCONFIGDIR": str(BARE / "matplotlib")}
    environment["OMP_NUM_THREADS"] = "1"  # the tests' other processes take the other cores
    command = [python, "-W", "error", "-c", OFFLINE + code]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_has_the_main_group_s_runs_and_no_other_weights(built):
    packed = contents(built[1])
    inside = {name for name in packed if name.startswith("carry_core/data/")}
    leading = catalogue.find(groups.MAIN).values()
    expected = {path.with_suffix(suffix) for path in leading for suffix in (".npz", runs.SUFFIX)}
    names = {f"{MAIN_RUNS}/{path.name}" for path in expected} | {LIST}
    assert inside == {f"carry_core/{name}" for name in names}
    for path in expected:
        assert packed[f"carry_core/{MAIN_RUNS}/{path.name}"] == path.read_bytes()
    assert len(expected) == 2 * groups.GROUPS[groups.MAIN].n_runs


def test_the_wheel_says_what_it_is(built):
    packed = contents(built[1])
    assert {f"{package}/py.typed" for package in PACKAGES} < packed.keys()
    (licence,) = (name for name in packed if name.endswith("licenses/LICENSE"))
    assert packed[licence] == (ROOT / "LICENSE").read_bytes()
    (name,) = (name for name in packed if name.endswith("/METADATA"))
    metadata = email.message_from_bytes(packed[name])
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"  # from which pip makes its line
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    readme = metadata.get_payload()
    assert "paper that runs" in readme
    links = re.findall(r"\]\((?!https://)[^)]*\)", readme)
    assert links == [], "these lead nowhere outside the repository"


@pytest.mark.needs("a checkout that git reads")
def test_a_checkout_and_its_sdist_give_the_same_wheel(built, tmp_path):
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    checkout = tmp_path / "checkout"
    for name in filter(None, names.stdout.decode().split("\0")):
        if name.startswith(("carry_", "data/claims", LIST, MAIN_RUNS)) or "/" not in name:
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, checkout / name)
    build(checkout, tmp_path, "--wheel")
    (wheel,) = tmp_path.glob("*.whl")
    assert contents(wheel) == contents(built[1])
    with tarfile.open(built[0]) as archive:
        assert not any("/tests/" in name for name in archive.getnames())


@pytest.mark.parametrize("tool", [("twine", "check", "--strict"), ("check_wheel_contents",)])
def test_tools_of_package_indexes_find_no_fault(built, bare_python, tool):
    files = built if tool[0] == "twine" else built[1:]
    checked = subprocess.run(
        [bare_python, "-W", "ignore", "-m", *tool, *files],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(BARE / "tools")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_readme_s_script_runs_without_a_checkout_and_without_a_network(bare_python, tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    ((script, output),) = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.DOTALL)
    assert len([line for line in script.splitlines() if line]) <= 12
    ran = run(bare_python, f"exec({script!r})", tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert_same_words(ran.stdout, output)
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_extra_is_one_line(bare_python, tmp_path):
    ran = subprocess.run(
        [bare_python.with_name("carry"), "train"], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert "pip install 'carry-core[paper]'" in ran.stderr
    call = "bridges.to_transformer_lens(load('n2_s0.3_w0.2').model(0))"
    ran = run(bare_python, f"from carry_core import bridges, load; {call}", tmp_path)
    assert "pip install 'carry-core[lens]'" in ran.stderr.splitlines()[-1]
