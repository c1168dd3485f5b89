"""Checkpoints of runs in training.

A run resumes from its checkpoint. On the same kind of processor it ends with the same bits.
"""

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np
from safetensors.torch import save_file
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.files import open_tensors
from carry_core.model import parameter_shapes
from carry_core.runs import History, check_count, run_path
from carry_train.curves import check_curves
from carry_train.files import replacing, save_run
from carry_train.groups import Group, Recipe
from carry_train.precisions import named
from carry_train.seeds import check_seeds
from carry_train.trainer import MOMENTS, State, part

FORMAT = "1"
# These entries of a record are about resuming: a finished run's record does not have them.
RESUMING = ("format", "group", "epoch", "batches", "adam_step", "dropout")


def check_record(record: dict[str, Any]) -> None:
    """Raise `ValueError` unless this is the progress of a run, with what it takes to resume it."""
    check_count("run", record["run"], 0)
    check_count("epoch", record["epoch"], 0)
    check_count("batches", record.get("batches", 0), 0)
    check_count("adam_step", record["adam_step"], 1)
    named(record["precision"])
    if not (isinstance(record["seconds"], int | float) and record["seconds"] >= 0):
        raise ValueError(f"record.seconds: {record['seconds']!r} is no time")
    check_seeds(record.get("seeds", {}))


@dataclass(frozen=True)
class Checkpoints:
    """Checkpoints of the runs of one group by one recipe.

    Each run has a file, and one beside it for each of its snapshots.
    """

    folder: Path
    group: Group
    recipe: Recipe

    def path(self, run: int, epoch: int | None = None) -> Path:
        """Return the path of a run's latest state, or of its state at an epoch."""
        suffix = "" if epoch is None else f".epoch{epoch}"
        folder = self.folder / f"{self.group.name}.{self.recipe.name}"
        return folder / f"run{run}{suffix}.safetensors"

    def lock(self, run: int) -> AbstractContextManager[object]:
        """Lock the run for a context or a process; raise `BadInput` if another trains it."""
        path = self.path(run).with_name(f".run{run}.lock")
        try:
            return filelock.FileLock(path, timeout=0).acquire()
        except filelock.Timeout as error:
            raise BadInput(
                f"Run {run} of {self.group.name}, recipe {self.recipe.name}, is being trained "
                "by another process: let it finish or stop it, or choose other runs with --runs."
            ) from error

    def save(self, states: list[State]) -> None:
        """Write each run's state, all of it or nothing; at a snapshot, write its file first."""
        for tensors, record in states:
            metadata = {"format": FORMAT, "record": json.dumps(record)}
            run, epoch = record["run"], record["epoch"]
            paths = [self.path(run)]
            if record["batches"] == 0 and epoch in self.recipe.snapshots(self.group, run):
                paths.insert(0, self.path(run, epoch))
            for path in paths:
                with replacing(path) as temporary:
                    save_file(tensors, temporary, metadata)

    def load(self, run: int, epoch: int | None = None) -> State:
        """Return the run's latest state, or that of a snapshot.

        Raises:
            BadInput: The file is missing or damaged, or is not of this run.
        """
        path = self.path(run, epoch)
        remedy = f"delete run {run}'s files there to train it anew"
        with open_tensors(path, remedy) as file:
            metadata = file.metadata() or {}
            record = {"format": metadata["format"], **json.loads(metadata["record"])}
            expected = {
                "format": FORMAT,
                "group": self.group.name,
                "recipe": self.recipe.name,
                "run": run,
            }
            if expected != {key: record.get(key) for key in expected}:
                raise BadInput(
                    f"Checkpoint {path} is not of {expected}: move it away to train this run."
                )
            check_record(record)
            names = list(file.keys())
            tensors = {name: file.get_tensor(name) for name in names}
            self._check(tensors, record["epoch"])
        return tensors, record

    def _check(self, tensors: dict[str, Tensor], epoch: int) -> None:
        """Raise `ValueError` unless parameters, moments and curves have the group's shapes."""
        expected = parameter_shapes(self.group.config)
        for kind in ("parameters", *MOMENTS):
            shapes = {name: p.shape for name, p in part(tensors, f"{kind}/").items()}
            if shapes != expected:
                raise ValueError(f"its {kind} are not those of {self.group.name}")
        if epoch:
            curves = curves_of(tensors)
            check_curves(curves, self.group, epoch)

    def publish(self, run: int, out: Path) -> Path:
        """Write a run's pair of files from its checkpoint and its snapshots; return their path.

        Rounding to float16 moves no number of the ledger by 0.001 (`tests/test_catalogue.py`).

        Raises:
            BadInput: A checkpoint is missing or damaged, or the files cannot be written.
        """
        tensors, record = self.load(run)
        weights = {name: p.half() for name, p in part(tensors, "parameters/").items()}
        for epoch, paper_epoch in self.recipe.snapshots(self.group, run).items():
            if epoch <= record["epoch"]:
                snapshot, _ = self.load(run, epoch)
                for name, p in part(snapshot, "parameters/").items():
                    weights[f"epoch_{paper_epoch}/{name}"] = p.half()
        curves = curves_of(tensors)
        if "pattern" in curves:
            # They are most of the bytes, and are rounded by less than 0.0003.
            curves["pattern"] = curves["pattern"].astype(np.float16)
        published = {"epochs": record["epoch"]}
        for key, value in record.items():
            if key not in RESUMING:
                published[key] = value
        path = run_path(out, self.group.name, self.recipe.name, run)
        save_run(path, self.group, weights, published, curves)
        return path


def curves_of(tensors: dict[str, Tensor]) -> History:
    """Return the learning curves in a checkpoint."""
    return {name: curve.numpy() for name, curve in part(tensors, "history/").items()}
