"""The runs that are still to be trained: how far each is, and in which precision it is trained.

A run is finished if its file in the folder of runs has all epochs of the recipe; it is begun if it
has a checkpoint. Nothing else asks files and checkpoints for that.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from carry_core import runs
from carry_core.errors import BadInput
from carry_core.runs import run_path
from carry_train.checkpoints import Checkpoints
from carry_train.choice import check_precision, choose
from carry_train.groups import Group, Recipe
from carry_train.precisions import TORCH_FP32, Precision, Request, named
from carry_train.seeds import OWN, Seeds
from carry_train.trainer import VERSIONS


class Progress(NamedTuple):
    """The progress of a run: epochs done, batches done of the next epoch, and its precision."""

    epochs: int
    batches: int
    precision: Precision


@dataclass(frozen=True)
class Conditions:
    """The device, the requested precision and the seeds of a training."""

    device: str = "cpu"
    request: Request = (TORCH_FP32,)
    seeds: Seeds = OWN


REFERENCE = Conditions()


def missing(
    checkpoints: Checkpoints,
    numbers: Collection[int],
    out: Path,
    conditions: Conditions = REFERENCE,
) -> dict[int, Progress]:
    """Return the progress of the runs that `out` lacks, or has with fewer epochs.

    A run that was begun keeps its precision.

    Raises:
        BadInput: A file or a checkpoint is damaged, or has other seeds; a run was begun in a
            precision that was not asked for, or this step would not continue it bit by bit; or as
            `choose`.
    """
    group, recipe, seeds = checkpoints.group, checkpoints.recipe, conditions.seeds
    progress: dict[int, Progress] = {}
    seeds.check_group(group)
    for run in numbers:
        if is_finished(run_path(out, group.name, recipe.name, run), group, recipe, seeds):
            continue
        path = checkpoints.path(run)
        if not path.exists():
            precision = choose(conditions.request, group, recipe, conditions.device)
            progress[run] = Progress(0, 0, precision)
            continue
        _, record = checkpoints.load(run)
        seeds.check_run(group, record, path)
        precision = _begun_in(record, path, conditions.request)
        check_precision(precision, group, recipe, conditions.device)
        progress[run] = Progress(record["epoch"], record.get("batches", 0), precision)
    return progress


def is_finished(path: Path, group: Group, recipe: Recipe, seeds: Seeds = OWN) -> bool:
    """Return True if a run's file has all epochs; raise `BadInput` for damage or other seeds."""
    if not path.exists():
        return False
    record = runs.describe(path, group.name).record
    seeds.check_run(group, record, path)
    epochs: int = record["epochs"]
    return epochs >= recipe.epochs(group)


def _begun_in(record: dict[str, Any], path: Path, request: Request) -> Precision:
    """Return the precision of a checkpoint; raise `BadInput` if it cannot be gone on from."""
    precision = named(record["precision"])
    if precision not in request:
        raise BadInput(
            f"{path} was trained in {precision}, which is not asked for: "
            f"pass --precision {precision}, or move it away."
        )
    if precision in VERSIONS and record.get("step", 1) != VERSIONS[precision]:
        raise BadInput(
            f"{path} was made at commit {record.get('commit', 'unknown')}, "
            "whose step rounds otherwise: "
            "continue it with a clone at that commit, or move it away."
        )
    return precision
