"""Test the package with the oldest and the newest versions of what it needs.

`make versions` makes an environment for each of `ENVIRONMENTS`, installs the wheel there, and runs
the README's script and the fast tests of core, findings and plots. An environment stays in
`_build/versions`, so that a second call only tests.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import dist
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "_build" / "versions"
# Which Python, and which versions of the other packages.
ENVIRONMENTS = ("3.11-oldest", "3.12-oldest", "3.11-newest", "3.12-newest", "3.13-newest")
TOOLS = ("pytest>=9", "pytest-xdist", "hypothesis", "beartype", "ipython")
TESTS = ("tests/core", "tests/findings", "tests/pages/test_plots.py")
# A warning is an error, but for those of libraries about each other, which Python does not show.
WARNINGS = ("-W", "error", "-W", "ignore::DeprecationWarning")
SHOWN = ("torch", "numpy", "pandas", "matplotlib")


def oldest() -> list[str]:
    """Return pins of the oldest versions that `pyproject.toml` allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = []
    for line in [*project["dependencies"], *project["optional-dependencies"]["paper"]]:
        requirement = Requirement(line)
        for specifier in requirement.specifier:
            if specifier.operator == ">=":
                pins.append(f"{requirement.name}=={specifier.version}")
    return pins


def make(name: str, wheel: Path) -> Path | None:
    """Make an environment unless there is one; return its Python, or None if there is none."""
    version, kind = name.split("-")
    python = FOLDER / name / "bin" / "python"
    if not runs(str(python)):
        base = f"python{version}"
        if not runs(base):
            return None
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        subprocess.run([base, "-m", "venv", FOLDER / name], check=True)
    pins = oldest() if kind == "oldest" else []
    command: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--force-reinstall",
        "--no-deps",
        wheel,
    ]
    subprocess.run(command, check=True)
    command = [python, "-m", "pip", "install", "--quiet", *pins, f"{wheel}[paper]", *TOOLS]
    subprocess.run(command, check=True)
    return python


def runs(python: str) -> bool:
    """Return True if this Python starts."""
    try:
        return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def installed(python: Path) -> str:
    """Return the versions that are installed, in words."""
    code = f"from importlib.metadata import version; print(*map(version, {SHOWN}))"
    versions = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    pairs = zip(SHOWN, versions.stdout.split(), strict=True)
    return ", ".join(f"{package} {version}" for package, version in pairs)


def passes(python: Path, folder: Path) -> bool:
    """Run the README's script in a folder, and the tests; return True if neither fails."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    ran = subprocess.run([python, *WARNINGS, "-c", script], cwd=folder, check=False)
    options = ["-q", "-m", "not slow and not lens", "-p", "no:cacheprovider", "-n", "2", *WARNINGS]
    tested = subprocess.run(
        [python, "-m", "pytest", *options, *TESTS, f"--rootdir={ROOT}"], cwd=ROOT, check=False
    )
    return ran.returncode == tested.returncode == 0


def main(names: Sequence[str]) -> int:
    """Test in these environments, or in all; print a line for each and return 1 if one fails."""
    unknown = {*names} - {*ENVIRONMENTS}
    if unknown:
        expected = ", ".join(ENVIRONMENTS)
        print(f"Unknown environment {min(unknown)}: expected some of {expected}.", file=sys.stderr)
        return 2
    _, wheel = dist.build()
    lines = []
    failed = False
    for name in names or ENVIRONMENTS:
        python = make(name, wheel)
        if python is None:
            lines.append(f"{name}: not tried, since python{name.split('-')[0]} is not here")
            continue
        passed = passes(python, FOLDER)
        failed = failed or not passed
        lines.append(f"{name}: {'passed' if passed else 'FAILED'} ({installed(python)})")
    print("\n".join(lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
