"""Write the outputs of the executed copies in _build/ back into notebooks/, and the README's picture from them.

Names on the command line, such as fig05_mlp_evolution, are the only ones that are written.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "book" / "summary.svg"


def figure(notebook: nbformat.NotebookNode, name: str) -> str:
    """The SVG of the figure called `name` in the book."""
    (cell,) = (c for c in notebook.cells if c.metadata.get("mystnb", {}).get("figure", {}).get("name") == name)
    (svg,) = (o.data["image/svg+xml"] for o in cell.outputs if "image/svg+xml" in o.get("data", {}))
    return "".join(svg)


def main(names: Sequence[str]) -> None:
    """Write them all, or those that are named."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        notebook = nbformat.read(path, 4)
        executed = nbformat.read(ROOT / "_build" / "book" / "notebooks" / path.name, 4)
        for cell, ran in zip(notebook.cells, executed.cells, strict=True):
            if cell.cell_type == "code":  # papermill's own records stay behind
                cell.outputs, cell.execution_count = ran.outputs, ran.execution_count
        nbformat.write(notebook, path)
        if path.stem.startswith("tab01_"):
            PICTURE.write_text(figure(notebook, "fig-summary"))


if __name__ == "__main__":
    main(sys.argv[1:])
