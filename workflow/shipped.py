"""The table of shipped runs in `book/training.md`, from the files in `data/runs`; as a script, it writes it."""

import re
import sys
from collections import Counter
from pathlib import Path

from carry_core import groups, runs
from carry_core.files import ROOT, data_dir, replacing

PAGE = ROOT / "book" / "training.md"
TABLE = re.compile(r"(?<=<!-- make shipped -->\n).*?(?=<!-- /make shipped -->)", re.DOTALL)


def table(folder: Path) -> str:
    """A line for each group: its runs by recipe, and how far they got if not to the end."""
    lines = ["| group | by `paper` | by `quick` |", "|---|---|---|"]
    for name in groups.GROUPS:
        cells = [cell(folder / name / recipe, name, recipe) for recipe in groups.RECIPES]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cell(folder: Path, name: str, recipe: str) -> str:
    """The number of runs, such as `6`, or `5; 1 of 300 of 1000 epochs`; a dash if there is none."""
    planned = groups.RECIPES[recipe].epochs(groups.find(name))
    paths = folder.glob("run*.safetensors")
    epochs = Counter(runs.describe(path, name)["record"]["epochs"] for path in paths)
    whole = [str(epochs[planned])] if planned in epochs else []
    shorter = sorted(item for item in epochs.items() if item[0] < planned)
    parts = [f"{n} of {reached} of {planned} epochs" for reached, n in shorter]
    return "; ".join(whole + parts) or "–"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    if not TABLE.search(text):
        marks = "<!-- make shipped --> and <!-- /make shipped -->"
        sys.exit(f"{PAGE} has no table to replace: expected lines {marks}.")
    lines = table(data_dir() / "runs")
    with replacing(PAGE) as temporary:
        temporary.write_text(TABLE.sub(lambda _: lines, text), encoding="utf-8")
