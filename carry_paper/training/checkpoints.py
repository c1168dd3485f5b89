"""Checkpoints of runs in training, to go on from anywhere: on a like processor to the same bits."""

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import filelock
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator
from safetensors.torch import save_file
from torch import Tensor

from carry_core.curves import check_curves
from carry_core.errors import BadInput
from carry_core.files import open_tensors, replacing
from carry_core.groups import Group, Recipe
from carry_core.runs import check_seeds, parameter_shapes, run_path, save_run
from carry_paper.schemas import plain_errors
from carry_paper.training.trainer import MOMENTS, State, part

FORMAT = "1"
# of a record, what is not of the run
RESUMING = ("format", "group", "epoch", "batches", "adam_step", "dropout")


class CheckpointRecord(BaseModel):
    """How far a run is; the trainer's further entries say how it goes on from there."""

    model_config = ConfigDict(extra="allow", strict=True)

    group: str
    recipe: str
    run: Annotated[int, Field(ge=0)]
    epoch: Annotated[int, Field(ge=0)]
    batches: Annotated[int, Field(ge=0)] = 0
    adam_step: Annotated[int, Field(ge=1)]
    precision: str
    seconds: Annotated[float, Field(ge=0)]
    seeds: dict[str, Any] = {}

    @field_validator("seeds")
    @classmethod
    def _are_seeds(cls, seeds: dict[str, Any]) -> dict[str, Any]:
        check_seeds(seeds)
        return seeds


@dataclass(frozen=True)
class Checkpoints:
    """How far the runs of one group and recipe are: a file a run, and one for each snapshot beside it."""

    folder: Path
    group: Group
    recipe: Recipe

    def path(self, run: int, epoch: int | None = None) -> Path:
        suffix = "" if epoch is None else f".epoch{epoch}"
        return (
            self.folder / f"{self.group.name}.{self.recipe.name}" / f"run{run}{suffix}.safetensors"
        )

    def lock(self, run: int) -> AbstractContextManager[object]:
        """Hold the run until the context is left, or the process dies; BadInput where another process trains it."""
        path = self.path(run).with_name(f".run{run}.lock")
        try:
            return filelock.FileLock(path, timeout=0).acquire()
        except filelock.Timeout as error:
            raise BadInput(
                f"Run {run} of {self.group.name}, recipe {self.recipe.name}, is being trained by another process:"
                " let it finish or stop it, or choose other runs with --runs."
            ) from error

    def save(self, states: list[State]) -> None:
        """Write each run's state, whole or not at all; at the epoch of a snapshot, that too, and before."""
        for tensors, record in states:
            about = {"format": FORMAT, "record": json.dumps(record)}
            run, epoch = record["run"], record["epoch"]
            snapshot = record["batches"] == 0 and epoch in self.recipe.snapshots(self.group, run)
            for path in ([self.path(run, epoch)] if snapshot else []) + [self.path(run)]:
                with replacing(path) as temporary:
                    save_file(tensors, temporary, about)

    def load(self, run: int, epoch: int | None = None) -> State:
        """The run's latest state or that of a snapshot; BadInput where its file is missing or unusable."""
        path = self.path(run, epoch)
        with (
            open_tensors(path, f"delete run {run}'s files there to train it anew") as file,
            plain_errors(),
        ):
            about = file.metadata() or {}
            record = {"format": about["format"], **json.loads(about["record"])}
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
            CheckpointRecord.model_validate(record)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            self._check(tensors, record["epoch"])
        return tensors, record

    def _check(self, tensors: dict[str, Tensor], epoch: int) -> None:
        """Raise `ValueError` unless parameters, moments and learning curves have the shapes of the group's runs."""
        shapes = parameter_shapes(self.group.config)
        for kind in ("parameters", *MOMENTS):
            found = {name: p.shape for name, p in part(tensors, f"{kind}/").items()}
            if found != shapes:
                raise ValueError(f"its {kind} are not those of {self.group.name}")
        curves = {name: curve.numpy() for name, curve in part(tensors, "history/").items()}
        if epoch:
            check_curves(curves, self.group, epoch)

    def publish(self, run: int, out: Path) -> Path:
        """Write a run's pair of files from its checkpoint and its snapshots; returns the path of its weights.

        Rounding to float16 moves no number of the ledger by 0.001 (`tests/core/test_runs.py`). BadInput
        where a file is bad.
        """
        tensors, record = self.load(run)
        weights = {name: p.half() for name, p in part(tensors, "parameters/").items()}
        for epoch, papers in self.recipe.snapshots(self.group, run).items():
            if epoch <= record["epoch"]:
                early = part(self.load(run, epoch)[0], "parameters/")
                weights |= {f"epoch_{papers}/{name}": p.half() for name, p in early.items()}
        curves = {name: curve.numpy() for name, curve in part(tensors, "history/").items()}
        if "pattern" in curves:  # most of the bytes; rounded by less than 0.0003
            curves["pattern"] = curves["pattern"].astype(np.float16)
        about = {"epochs": record["epoch"]} | {
            key: value for key, value in record.items() if key not in RESUMING
        }
        path = run_path(out, self.group.name, self.recipe.name, run)
        save_run(path, self.group, weights, about, curves)
        return path
