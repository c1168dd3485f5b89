"""How far runs are: finished, begun, or not begun. Nothing else asks their files and checkpoints.

A run is finished if its file in the folder of runs has all epochs of the recipe; it is begun if it
has a checkpoint.
"""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from carry_core import runs
from carry_core.runs import run_path
from carry_train.checkpoints import Checkpoints
from carry_train.groups import Group, Recipe
from carry_train.seeds import OWN, Seeds


class Progress(NamedTuple):
    """The progress of a run: epochs done, and batches done of the next epoch."""

    epochs: int
    batches: int


NOT_BEGUN = Progress(0, 0)


def missing(
    checkpoints: Checkpoints,
    numbers: Collection[int],
    out: Path,
    seeds: Seeds = OWN,
) -> dict[int, Progress]:
    """Return the runs that `out` lacks, or has with fewer epochs, with their progress.

    Raises `BadInput` if a file or a checkpoint is damaged, or has other seeds.
    """
    group, recipe = checkpoints.group, checkpoints.recipe
    progress: dict[int, Progress] = {}
    seeds.check_group(group)
    for run in numbers:
        path = run_path(out, group.name, recipe.name, run)
        if is_finished(path, group, recipe, seeds):
            continue
        progress[run] = NOT_BEGUN
        if checkpoints.path(run).exists():
            _, record = checkpoints.load(run)
            seeds.check_run(group, record, checkpoints.path(run))
            progress[run] = Progress(record["epoch"], record.get("batches", 0))
    return progress


def is_finished(path: Path, group: Group, recipe: Recipe, seeds: Seeds = OWN) -> bool:
    """Return True if a run's file has all epochs; raise `BadInput` for damage or other seeds."""
    if not path.exists():
        return False
    record = runs.describe(path, group.name)["record"]
    seeds.check_run(group, record, path)
    epochs: int = record["epochs"]
    return epochs >= recipe.epochs(group)
