"""Checkpoints of runs in training, one file a run, to go on from anywhere: on a like processor to the same bits."""

import hashlib
import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.files import locked, replacing
from carry_core.groups import Group, Recipe
from carry_core.train import State

FORMAT = "1"


def digest(tensors: dict[str, Tensor]) -> str:
    """sha256 over the tensors' bytes, in the order of their names."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].contiguous().numpy().tobytes())
    return found.hexdigest()


@dataclass(frozen=True)
class Checkpoints:
    """The unfinished (and finished) runs of one group and recipe, one file a run."""

    folder: Path
    group: Group
    recipe: Recipe

    def path(self, run: int, epoch: int | None = None) -> Path:
        suffix = "" if epoch is None else f".epoch{epoch}"
        return self.folder / f"{self.group.name}.{self.recipe.name}" / f"run{run}{suffix}.safetensors"

    def runs(self) -> list[int]:
        """The runs that have one."""
        names = (path.stem.removeprefix("run") for path in self.path(0).parent.glob("run*.safetensors"))
        return sorted(int(name) for name in names if name.isdigit())

    def training(self, run: int) -> AbstractContextManager[None]:
        """Hold the run while it is trained: whoever else trains it, here or in another process, is refused."""
        path = self.path(run)
        busy = (
            f"Run {run} of {self.group.name}, recipe {self.recipe.name}, is being trained by another process:"
            " let it finish or stop it, or choose other runs with --runs."
        )
        return locked(path.parent, f".{path.stem}.lock", busy)

    def save(self, states: list[State], snapshot: bool = False) -> None:
        """Write each run's state, whole or not at all."""
        for tensors, record in states:
            with replacing(self.path(record["run"], record["epoch"] if snapshot else None)) as temporary:
                metadata = {"format": FORMAT, "record": json.dumps(record), "sha256": digest(tensors)}
                save_file(tensors, temporary, metadata)

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
            if metadata["sha256"] != digest(tensors):
                raise ValueError("its tensors are not those that were written")
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise BadInput(f"Checkpoint {path} is damaged ({error}): delete it to train this run anew.") from error
        expected = {"format": FORMAT, "group": self.group.name, "recipe": self.recipe.name, "run": run}
        found = {"format": metadata.get("format"), **{key: record.get(key) for key in ("group", "recipe", "run")}}
        if found != expected:
            raise BadInput(f"Checkpoint {path} is of {found}, expected {expected}: move it away to train this run.")
        return tensors, record
