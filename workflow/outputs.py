"""Write the outputs of the executed copies in _build/ back into notebooks/.

The README's picture is written from them too. Of a figure that an output has as PNG and as SVG, the
notebooks keep the PNG; they keep no data as CSV, which is for the site. Names on the command line,
such as fig05_mlp_evolution, restrict the writing to these notebooks.
"""

import sys
from base64 import b64decode
from collections.abc import Sequence

import nbformat
from executed import EXECUTED, ROOT

PICTURE = ROOT / "book" / "summary.png"


def figure(notebook: nbformat.NotebookNode, name: str) -> bytes:
    """Return the PNG of the figure that is glued as `name`."""
    images = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.metadata.get("scrapbook", {}).get("name") == name:
                images.append(output.data["image/png"])
    (image,) = images
    return b64decode(image)


def as_stored(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return an output as notebooks keep it."""
    output.get("data", {}).pop("text/csv", None)
    if "image/png" in output.get("data", {}):
        output.data.pop("image/svg+xml", None)
        output.metadata.pop("image/svg+xml", None)
    return output


def main(names: Sequence[str]) -> None:
    """Write the outputs of all notebooks, or of those that are named."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        notebook = nbformat.read(path, 4)
        executed = nbformat.read(EXECUTED / path.name, 4)
        if path.stem.startswith("tab01_"):
            PICTURE.write_bytes(figure(executed, "figure"))
        for cell, executed_cell in zip(notebook.cells, executed.cells, strict=True):
            if cell.cell_type == "code":  # metadata stay as they are, without papermill's
                cell.outputs = [as_stored(output) for output in executed_cell.outputs]
                cell.execution_count = executed_cell.execution_count
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main(sys.argv[1:])
