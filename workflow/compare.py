"""Compare executed notebooks with the outputs that are committed.

`make book` leaves executed copies in _build/; so `make test` need not run every notebook a second
time, as `pytest --nbval` does. Names on the command line, such as fig05_mlp_evolution, are the only
ones that are compared.
"""

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat

ROOT = Path(__file__).parent.parent
EXECUTED = ROOT / "_build" / "book" / "notebooks"
IMAGES = ("image/png", "image/svg+xml")  # the tests check what figures are drawn from


def shown(cell: nbformat.NotebookNode) -> dict[str, list[str]]:
    """A cell's outputs by their kind: a MIME type, or `text` for what was printed."""
    found: dict[str, list[str]] = {}
    for output in cell.outputs:
        for kind, value in (output.get("data") or {"text": output.get("text")}).items():
            if kind not in IMAGES:
                found.setdefault(kind, []).append(str(value))
    return found


def differences(committed: nbformat.NotebookNode, executed: nbformat.NotebookNode) -> list[str]:
    """What differs, a text for each cell that does; no cell is left out, whatever its tags say."""
    before, after = (
        [cell for cell in nb.cells if cell.cell_type == "code"] for nb in (committed, executed)
    )
    if [cell.source for cell in before] != [cell.source for cell in after]:
        return ["other code than in the committed notebook"]
    found = []
    for i, cells in enumerate(zip(before, after, strict=True)):
        old, new = map(shown, cells)
        for kind in dict.fromkeys([*old, *new]):
            if old.get(kind) != new.get(kind):
                sides = ["\n".join(side.get(kind, [])).splitlines() for side in (old, new)]
                lines = difflib.unified_diff(*sides, "committed", "executed", lineterm="", n=0)
                found.append("\n".join([f"cell {i}, {kind}:", *list(lines)[:20]]))
    return found


def main(names: Sequence[str]) -> int:
    """Print what differs; 1 if anything does, or if nothing was compared."""
    paths = [
        p for p in sorted((ROOT / "notebooks").glob("*.ipynb")) if not names or p.stem in names
    ]
    wrong = 0
    for path in paths:
        executed = EXECUTED / path.name
        found = (
            differences(nbformat.read(path, 4), nbformat.read(executed, 4))
            if executed.exists()
            else ["was not executed"]
        )
        wrong += bool(found)
        for text in found:
            print(f"{path.stem}: {text}")
    print(f"{len(paths) - wrong} of {len(paths)} notebooks have the outputs that are committed.")
    return int(wrong > 0 or not paths)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
