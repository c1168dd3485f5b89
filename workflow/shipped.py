"""Write the table of shipped runs in `book/training.md`, from the files in `data/runs`."""

from collections import Counter
from pathlib import Path

import marked

from carry_core import runs
from carry_core.files import ROOT, data_dir
from carry_train import groups
from carry_train.precisions import TRITON, named

PAGE = ROOT / "book" / "training.md"
MARK = "make shipped"


def table(folder: Path) -> str:
    """Return a line for each group, with its runs by each recipe and those from a GPU."""
    lines = ["| group | by `paper` | by `quick` | on a GPU |", "|---|---|---|---|"]
    recipes = [name for name, recipe in groups.RECIPES.items() if recipe.leads]
    for name in groups.GROUPS:
        cells = [cell(folder / name / recipe, name, recipe) for recipe in recipes]
        cells.append(from_gpu(folder / name))
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def from_gpu(folder: Path) -> str:
    """Return the number of a group's runs that were trained on a GPU, at least in part."""
    n_runs = 0
    for path in folder.glob("*/run*.safetensors"):
        record = runs.describe(path, folder.name)["record"]
        precisions = [record["precision"]]
        precisions += [session.get("precision") for session in record.get("sessions", ())]
        n_runs += any(named(name).implementation == TRITON for name in precisions if name)
    return str(n_runs or "–")


def cell(folder: Path, name: str, recipe: str) -> str:
    """Return the number of runs, such as `6`, or `5; 1 of 300 of 1000 epochs`, or a dash.

    Runs that were trained to the end come first, then those that were not, by epochs.
    """
    planned_epochs = groups.RECIPES[recipe].epochs(groups.find(name))
    n_runs: Counter[int] = Counter()  # by epochs
    for path in folder.glob("run*.safetensors"):
        n_runs[runs.describe(path, name)["record"]["epochs"]] += 1
    texts = []
    if planned_epochs in n_runs:
        texts.append(str(n_runs[planned_epochs]))
    for epochs in sorted(n_runs):
        if epochs < planned_epochs:
            texts.append(f"{n_runs[epochs]} of {epochs} of {planned_epochs} epochs")
    return "; ".join(texts) or "–"


if __name__ == "__main__":
    marked.replace(PAGE, MARK, table(data_dir() / "runs"))
