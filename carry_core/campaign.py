"""Training groups from start to published file: order, checkpoints, resuming, progress."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.files import replacing
from carry_core.groups import Group, Recipe
from carry_core.train import Trainer

FORMAT = "1"
SAVE_EVERY = 15.0  # seconds between checkpoints
State = tuple[dict[str, Tensor], dict[str, Any]]


@dataclass(frozen=True)
class Checkpoints:
    """The unfinished (and finished) runs of one group and recipe, one file a run."""

    folder: Path
    group: Group
    recipe: Recipe

    def path(self, run: int, epoch: int | None = None) -> Path:
        suffix = "" if epoch is None else f".epoch{epoch}"
        return self.folder / f"{self.group.name}.{self.recipe.name}" / f"run{run}{suffix}.safetensors"

    def save(self, states: list[State], snapshot: bool = False) -> None:
        """Write each run's state, whole or not at all."""
        for tensors, record in states:
            with replacing(self.path(record["run"], record["epoch"] if snapshot else None)) as temporary:
                save_file(tensors, temporary, {"format": FORMAT, "record": json.dumps(record)})

    def load(self, run: int, epoch: int | None = None) -> State | None:
        """The run's state, None where it was never saved.

        Raises:
            BadInput: the file is damaged, or is not this group's, recipe's or version's.
        """
        path = self.path(run, epoch)
        if not path.exists():
            return None
        try:
            with safe_open(path, "pt") as file:
                metadata = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
            record = json.loads(metadata["record"])
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise BadInput(f"Checkpoint {path} is damaged ({error}): delete it to train this run anew.") from error
        expected = {"format": FORMAT, "group": self.group.name, "recipe": self.recipe.name, "run": run}
        found = {"format": metadata.get("format"), **{key: record.get(key) for key in ("group", "recipe", "run")}}
        if found != expected:
            raise BadInput(f"Checkpoint {path} is of {found}, expected {expected}: move it away to train this run.")
        return tensors, record


@dataclass
class Clock:
    """How long a training may go on, and when it last saved."""

    minutes: float | None = None
    start: float = field(default_factory=time.monotonic)
    saved: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> bool:
        return self.minutes is not None and time.monotonic() - self.start >= 60 * self.minutes

    def due(self) -> bool:
        if time.monotonic() - self.saved < SAVE_EVERY:
            return False
        self.saved = time.monotonic()
        return True


Report = Callable[[Trainer, dict[str, Any]], None]


def train_runs(trainer: Trainer, checkpoints: Checkpoints, clock: Clock, report: Report) -> bool:
    """Train to the end of the recipe, or until the clock is over; True if finished.

    What is on disk can be resumed to the same bits after any interruption; Ctrl-C loses no finished epoch.
    """
    state = trainer.state()
    try:
        while not trainer.finished and not clock.over:
            began = time.perf_counter()
            row = trainer.run_epoch()
            trainer.seconds += time.perf_counter() - began
            state = trainer.state()
            if trainer.epoch in trainer.group.snapshots:
                checkpoints.save(state, snapshot=True)
            if clock.due():
                checkpoints.save(state)
            report(trainer, row)
    finally:
        checkpoints.save(state)
    return trainer.finished


def resume(trainer: Trainer, checkpoints: Checkpoints) -> None:
    """Take the runs up where their checkpoints left them (all at the same epoch)."""
    states = [checkpoints.load(run) for run in trainer.runs]
    known = [state for state in states if state is not None]
    if len(known) == len(states):
        trainer.restore(known)


def keep_memory() -> None:
    """Have the C library keep freed blocks: returning and re-faulting them costs a tenth of a training step."""
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        m_trim_threshold, m_mmap_max = -1, -4
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 2**31 - 1)
    except (OSError, AttributeError):
        os.environ.setdefault("MALLOC_ARENA_MAX", "1")
