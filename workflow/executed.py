"""Compare executed notebooks with the outputs that are committed.

`make book` leaves executed copies in _build/, so `make test` need not run every notebook a second
time, as `pytest --nbval` does. Alternative texts and names of glue are compared as texts are, and
pictures by what they look like from afar. Names on the command line, such as fig05_mlp_evolution,
restrict the comparison to these notebooks.
"""

import base64
import difflib
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
import numpy as np
from numpy.typing import NDArray
from PIL import Image

ROOT = Path(__file__).parent.parent
EXECUTED = ROOT / "_build" / "book" / "notebooks"
# The tests check what figures are drawn from; the last digits of data depend on the processor.
NOT_COMPARED = ("image/png", "image/svg+xml", "text/csv")
PICTURE = "image/png"
FROM_AFAR = (24, 24)  # pixels of a picture that are compared, each the mean of many
UNLIKE = 8  # of 255: how much one of them may differ, since fonts are not the same everywhere
MAX_DIFF_LINES = 20  # of an output, in a message


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """Return a notebook's cells of code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs_by_kind(cell: nbformat.NotebookNode) -> dict[str, list[str]]:
    """Return a cell's outputs by their kind: a MIME type, or `text` for what was printed.

    Images and data are left out.
    """
    outputs: dict[str, list[str]] = {}
    for output in cell.outputs:
        data = output.get("data") or {"text": output.get("text")}
        metadata = {**output.get("metadata", {})}
        metadata.pop("image/svg+xml", None)  # is not committed
        if metadata:
            data = {**data, "metadata": json.dumps(metadata, sort_keys=True)}
        for kind, value in data.items():
            if kind not in NOT_COMPARED:
                outputs.setdefault(kind, []).append(str(value))
    return outputs


def differences(committed: nbformat.NotebookNode, executed: nbformat.NotebookNode) -> list[str]:
    """Return a text for each kind of output of each cell that differs.

    Every cell is compared, whatever its tags say.
    """
    old_cells = code_cells(committed)
    new_cells = code_cells(executed)
    if [cell.source for cell in old_cells] != [cell.source for cell in new_cells]:
        return ["other code than in the committed notebook"]
    texts = []
    for i, (old_cell, new_cell) in enumerate(zip(old_cells, new_cells, strict=True)):
        old = outputs_by_kind(old_cell)
        new = outputs_by_kind(new_cell)
        for kind in dict.fromkeys([*old, *new]):
            if old.get(kind) != new.get(kind):
                diff = unified_diff(old.get(kind, []), new.get(kind, []))
                texts.append(f"cell {i}, {kind}:\n{diff}")
        if not look_alike(pictures(old_cell), pictures(new_cell)):
            texts.append(f"cell {i}, {PICTURE}: another picture")
    return texts


def pictures(cell: nbformat.NotebookNode) -> list[NDArray[np.float64]]:
    """Return a cell's pictures as they look from afar: gray values from 0 to 255."""
    seen = []
    for output in cell.outputs:
        if PICTURE in output.get("data", {}):
            content = io.BytesIO(base64.b64decode(output.data[PICTURE]))
            picture = Image.open(content).convert("L").resize(FROM_AFAR, Image.Resampling.BOX)
            seen.append(np.asarray(picture, np.float64))
    return seen


def look_alike(old: Sequence[NDArray[np.float64]], new: Sequence[NDArray[np.float64]]) -> bool:
    """Return True if there are as many pictures, and each looks like its counterpart."""
    if len(old) != len(new):
        return False
    return all(float(np.abs(x - y).max()) <= UNLIKE for x, y in zip(old, new, strict=True))


def unified_diff(old: Sequence[str], new: Sequence[str]) -> str:
    """Return the first lines that differ between two lists of outputs."""
    old_lines, new_lines = ("\n".join(texts).splitlines() for texts in (old, new))
    lines = difflib.unified_diff(old_lines, new_lines, "committed", "executed", lineterm="", n=0)
    return "\n".join(list(lines)[:MAX_DIFF_LINES])


def compare(path: Path) -> list[str]:
    """Return how the executed copy of a notebook differs from the committed one."""
    executed = EXECUTED / path.name
    if not executed.exists():
        return ["was not executed"]
    return differences(nbformat.read(path, 4), nbformat.read(executed, 4))


def main(names: Sequence[str]) -> int:
    """Print what differs; return 1 if anything does, or if nothing was compared."""
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    if names:
        paths = [path for path in paths if path.stem in names]
    n_different = 0
    for path in paths:
        texts = compare(path)
        for text in texts:
            print(f"{path.stem}: {text}")
        if texts:
            n_different += 1
    n_same = len(paths) - n_different
    print(f"{n_same} of {len(paths)} notebooks have the outputs that are committed.")
    return int(n_different > 0 or not paths)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
