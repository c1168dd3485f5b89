"""Run a page as Colab and Binder do, each in a fresh environment: `make colab` and `make binder`.

The repository is cloned from this checkout's last commit in place of its address. What those
services add (their images, memory and time limits) is not tried.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import address
import nbformat
import versions

ROOT = Path(__file__).resolve().parent.parent
URL = "https://github.com/OWNER/NAME"
PAGE = "start_here.ipynb"
# Git gets the repository from here.
CLONED_FROM_HERE = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": f"url.file://{ROOT}.insteadOf",
    "GIT_CONFIG_VALUE_0": URL,
}


def fresh(name: str, version: str, *requirements: str) -> tuple[Path, Path]:
    """Return an empty folder, and the Python of an environment with these packages alone.

    An environment that is there already is used again, without the package.
    """
    folder = ROOT / "_build" / name
    python = folder / "environment" / "bin" / "python"
    if not python.exists():
        base = f"python{version}"
        if not versions.runs(base):
            sys.exit(f"{base} does not start here: `make {name}` needs it, as {name} has it.")
        subprocess.run([base, "-m", "venv", folder / "environment"], check=True)
    command: list[str | Path] = [python, "-m", "pip", "uninstall", "--quiet", "--yes", "carry-core"]
    subprocess.run(command, check=True)
    if requirements:  # pip takes an empty list for a mistake
        subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True)
    user = folder / "user"
    shutil.rmtree(user, ignore_errors=True)
    user.mkdir()
    return user, python


def run(python: Path, notebook: str, folder: Path) -> None:
    """Run a notebook in the environment's own kernel, in a folder."""
    command: list[str | Path] = [
        python,
        "-m",
        "papermill",
        notebook,
        "executed.ipynb",
        "--kernel",
        "python3",
    ]
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "JUPYTER_PREFER_ENV_PATH": "1",
        **CLONED_FROM_HERE,
        **{name: text for name, text in os.environ.items() if name.startswith("PIP_")},
    }
    subprocess.run([*command, "--no-progress-bar"], cwd=folder, env=variables, check=True)


def colab() -> Path:
    """Open a page that gets the project by itself, where Colab's versions are installed."""
    pins = ["--requirement", str(ROOT / "workflow" / "colab.txt")]
    user, python = fresh("colab", "3.13", *pins, "papermill", "ipykernel")
    text = address.changed_notebook(ROOT / "notebooks" / PAGE, URL)
    (user / PAGE).write_text(text, encoding="utf-8")
    run(python, PAGE, user)
    return user / "executed.ipynb"


def binder() -> Path:
    """Install what `.binder/` lists in a clone, and run a page there.

    PyTorch is installed beforehand, since its index of builds for CPUs may be out of reach here.
    """
    (torch,) = re.findall(r"torch==\S+", (ROOT / ".binder" / "postBuild").read_text("utf-8"))
    user, python = fresh("binder", "3.11", torch)
    clone = user / "NAME"
    command: list[str | Path] = ["git", "clone", "--quiet", "--depth", "1", URL, clone]
    subprocess.run(command, env=os.environ | CLONED_FROM_HERE, check=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "-r", ".binder/requirements.txt"]
    subprocess.run(command, cwd=clone, check=True)
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run([".binder/postBuild"], cwd=clone, env=os.environ | {"PATH": path}, check=True)
    run(python, PAGE, clone / "notebooks")
    return clone / "notebooks" / "executed.ipynb"


def main(words: Sequence[str]) -> int:
    """Run a page as one of the services does, and print what it was warned of."""
    if [*words] not in (["colab"], ["binder"]):
        print(f"{' '.join(words)}: expected colab or binder.", file=sys.stderr)
        return 2
    executed = colab() if words[0] == "colab" else binder()
    for cell in nbformat.read(executed, 4).cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                print(output.text, file=sys.stderr)
    print(f"{PAGE} ran as in {words[0]}: {executed.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
