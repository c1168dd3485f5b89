"""Refuse to commit a notebook whose code was changed and whose outputs are not those of that code.

pre-commit calls this with the notebooks that are staged. Where the code of one differs from HEAD's,
the copy that `make outputs` has executed must have the same code and the same outputs as the staged
notebook.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from executed import ROOT, code_cells, differences


def blob(name: str, root: Path) -> nbformat.NotebookNode | None:
    """Read a notebook from git, such as `HEAD:notebooks/fig03.ipynb`; None if it is not there."""
    command = ["git", "show", name]
    answer = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return nbformat.reads(answer.stdout, 4) if answer.returncode == 0 else None


def code(notebook: nbformat.NotebookNode) -> list[str]:
    """List the sources of a notebook's cells of code."""
    return [cell.source for cell in code_cells(notebook)]


def stale(path: str, root: Path = ROOT) -> bool:
    """Return True if a notebook is staged with other code than HEAD's and outputs of other code."""
    committed = blob(f"HEAD:{path}", root)
    staged = blob(f":{path}", root)
    if staged is None or (committed is not None and code(committed) == code(staged)):
        return False
    executed = root / "_build" / "book" / path
    return not executed.exists() or bool(differences(staged, nbformat.read(executed, 4)))


def main(paths: Sequence[str], root: Path = ROOT) -> int:
    """Name the notebooks that are stale; return 1 if there are any."""
    refused = [path for path in paths if stale(path, root)]
    for path in refused:
        print(
            f"{path}: its code was changed, its outputs are not those of this code:"
            " run make outputs and add it again"
        )
    return int(bool(refused))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
