"""Copy the notebooks that are not there yet into a folder for JupyterLab: lab.py FOLDER.

The copies have the values in their sentences where the book's have markers. A copy that the reader
has changed is never overwritten.
"""

import sys
from pathlib import Path

import nbformat

from carry_core.files import ROOT
from carry_paper.pages.standalone import standalone


def main(folder: Path) -> None:
    """Write the copies that are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if not (folder / path.name).exists():
            copy = standalone(nbformat.read(path, 4), path.parent)
            nbformat.write(copy, folder / path.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
