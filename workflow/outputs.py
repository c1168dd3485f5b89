"""Write the outputs of the executed copies in _build/ back into notebooks/, without papermill's records."""

from pathlib import Path

import nbformat

ROOT = Path(__file__).parent.parent

for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
    notebook = nbformat.read(path, 4)
    executed = nbformat.read(ROOT / "_build" / "book" / "notebooks" / path.name, 4)
    for cell, ran in zip(notebook.cells, executed.cells, strict=True):
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = ran.outputs, ran.execution_count
    nbformat.write(notebook, path)
