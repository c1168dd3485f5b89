"""Write the outputs of the executed copies in _build/ back into notebooks/, and the README's picture from them.

Of a figure that is there as PNG and as SVG, the notebooks keep the PNG.

Names on the command line, such as fig05_mlp_evolution, are the only ones that are written.
"""

import sys
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path

import nbformat

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "book" / "summary.png"


def figure(notebook: nbformat.NotebookNode, name: str) -> bytes:
    """The PNG of the figure that is glued as `name`."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    (glued,) = (
        output for output in outputs if output.metadata.get("scrapbook", {}).get("name") == name
    )
    return b64decode(glued.data["image/png"])


def without_svg(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """An output as notebooks keep it."""
    if "image/png" in output.get("data", {}):
        for fields in (output.data, output.metadata):
            fields.pop("image/svg+xml", None)
    return output


def main(names: Sequence[str]) -> None:
    """Write them all, or those that are named."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        notebook = nbformat.read(path, 4)
        executed = nbformat.read(ROOT / "_build" / "book" / "notebooks" / path.name, 4)
        if path.stem.startswith("tab01_"):
            PICTURE.write_bytes(figure(executed, "figure"))
        for cell, ran in zip(notebook.cells, executed.cells, strict=True):
            if cell.cell_type == "code":  # papermill's own records stay behind
                cell.outputs, cell.execution_count = (
                    [*map(without_svg, ran.outputs)],
                    ran.execution_count,
                )
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main(sys.argv[1:])
