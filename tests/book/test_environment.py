"""The files that name packages and versions agree with each other, and name no host."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.machine

ROOT = Path(__file__).parents[2]


def text(name: str) -> str:
    return (ROOT / name).read_text()


def requirements(name: str) -> dict[str, Requirement]:
    lines = (line.split("#")[0].strip() for line in text(name).splitlines())
    parsed = [Requirement(line) for line in lines if line]
    return {canonicalize_name(requirement.name): requirement for requirement in parsed}


def test_every_direct_dependency_is_pinned_in_the_lock():
    locked = requirements("requirements.lock")
    for name, direct in requirements("requirements.in").items():
        (pin,) = locked[name].specifier
        assert pin.operator == "=="
        assert direct.specifier.contains(pin.version), (
            f"{locked[name]} is not {direct}: run make lock"
        )
    assert [name for name in locked if re.match(r"torch|nvidia|cuda|triton", name)] == []


def test_the_package_and_its_extras_need_what_is_listed():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    extras = {**project["optional-dependencies"]}
    del extras["lens"]  # it is pinned in files of its own
    del extras["gpu"]  # Triton comes with PyTorch for CUDA, in the version that this needs
    pinned_elsewhere = requirements("workflow/gguf.lock").keys()
    lines = [*project["dependencies"], *(line for extra in extras.values() for line in extra)]
    needed = {canonicalize_name(r.name): r for r in map(Requirement, lines)}
    listed = requirements("requirements.in")
    assert pinned_elsewhere <= needed.keys() - listed.keys()
    not_listed = {"torch", "carry-core", *pinned_elsewhere}
    assert needed.keys() - not_listed == listed.keys() - {"setuptools", "uv"}
    for name in listed.keys() & needed.keys():
        assert listed[name].specifier in (needed[name].specifier, ""), name


def test_each_environment_of_transformer_lens_pins_one_version_of_it():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    (needed,) = map(Requirement, project["optional-dependencies"]["lens"])
    main = requirements("requirements.lock")
    versions = []
    for number in (3, 4):
        pins = requirements(f"workflow/lens{number}.lock")
        assert pins.keys() & main.keys() == set(), "these are taken from .venv"
        assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in pins.values())
        (pin,) = pins["transformer-lens"].specifier
        assert needed.specifier.contains(pin.version)
        versions.append(pin.version)
    assert [version.split(".")[0] for version in versions] == ["3", "4"]


def test_no_host_and_no_path_of_one_machine():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    address = project.get("urls", {}).get("Source")
    patterns = "requirements.* environment.yml pyproject.toml Makefile workflow/*.lock"
    for path in (path for pattern in patterns.split() for path in ROOT.glob(pattern)):
        local = r"\w+://\S+|--(?:extra-)?index-url|--find-links|/(?:home|root|tmp|work|Users)/"
        named = path.read_text()
        if address:
            named = named.replace(address, "the repository")
        assert re.findall(local, named) == [], path.name


@pytest.mark.needs("a checkout that git reads")
def test_the_tracked_tree_stays_small():
    """A clone stays small: CONTRIBUTING names this limit."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    sizes = {name: (ROOT / name).stat().st_size for name in names}
    largest = sorted(sizes, key=lambda name: -sizes[name])[:5]
    assert sum(sizes.values()) < 128 * 2**20, f"the largest: {', '.join(largest)}"


@pytest.mark.needs("make")
def test_only_an_interrupted_set_up_fetches_everything_anew(tmp_path):
    for name in ("Makefile", "requirements.lock", "pyproject.toml", "workflow"):
        (tmp_path / name).symlink_to(ROOT / name)

    def commands() -> str:
        command = ["make", "--dry-run", "--always-make", "setup"]
        environment = {name: x for name, x in os.environ.items() if name != "MAKEFLAGS"}
        made = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return made.stdout

    assert "uv" in commands()
    assert "--reinstall" not in commands()
    (tmp_path / ".venv").mkdir()
    assert commands().count("--reinstall") == 2  # the lock and PyTorch
    (tmp_path / ".venv" / ".ready").touch()
    assert "--reinstall" not in commands()
