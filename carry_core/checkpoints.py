"""Checkpoints of runs in training, to go on from anywhere: on a like processor to the same bits."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.files import locked, replacing
from carry_core.groups import Group, Recipe
from carry_core.model import Transformer
from carry_core.train import State

FORMAT = "1"
Moment = int | Literal["midway"] | None  # after an epoch, within one, or after the last whole one
RECORD: dict[str, type | tuple[type, ...]] = {
    "group": str, "recipe": str, "run": int, "precision": str, "epoch": int, "adam_step": int, "seconds": (int, float),
    "dropout": dict, "device": str, "torch": str, "numpy": str, "commit": str,
}  # fmt: skip


def digest(tensors: dict[str, Tensor]) -> str:
    """sha256 over the tensors' bytes, in the order of their names."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].contiguous().numpy().tobytes())
    return found.hexdigest()


@dataclass(frozen=True)
class Checkpoints:
    """The unfinished (and finished) runs of one group and recipe: a file a run, after its last whole epoch.

    Beside it lie its snapshots and, in the course of a long epoch, where it was within that.
    """

    folder: Path
    group: Group
    recipe: Recipe

    def path(self, run: int, moment: Moment = None) -> Path:
        suffix = "" if moment is None else ".midway" if moment == "midway" else f".epoch{moment}"
        return self.folder / f"{self.group.name}.{self.recipe.name}" / f"run{run}{suffix}.safetensors"

    def runs(self) -> list[int]:
        """The runs that have one."""
        names = (path.stem.removeprefix("run") for path in self.path(0).parent.glob("run*.safetensors"))
        return sorted(int(name) for name in names if name.isdigit())

    @contextmanager
    def training(self, run: int) -> Iterator[None]:
        """Hold the run while it is trained, without what a killed save left of it.

        Raises:
            NotNow: it is being trained, here or by another process.
        """
        path = self.path(run)
        busy = (
            f"Run {run} of {self.group.name}, recipe {self.recipe.name}, is being trained by another process:"
            " let it finish or stop it, or choose other runs with --runs."
        )
        with locked(path.parent, f".{path.stem}.lock", busy):
            for left in path.parent.glob(f".{path.stem}.*safetensors.*"):
                left.unlink(missing_ok=True)
            yield

    def save(self, states: list[State], snapshot: bool = False) -> None:
        """Write each run's state, whole or not at all; one within an epoch only beside that of the epoch before."""
        for tensors, record in states:
            moment: Moment = record["epoch"] if snapshot else "midway" if record["batches"] else None
            with replacing(self.path(record["run"], moment)) as temporary:
                told = json.dumps(record)
                sums = {"sha256": digest(tensors), "record_sha256": hashlib.sha256(told.encode()).hexdigest()}
                save_file(tensors, temporary, {"format": FORMAT, "record": told, **sums})
            if moment is None:
                self.path(record["run"], "midway").unlink(missing_ok=True)

    def latest(self, run: int) -> State | None:
        """How far the run came, within an epoch or after one; None where it was never saved.

        Another process may train the run meanwhile, and remove what lay midway: then an epoch may be missed.

        Raises:
            BadInput: as `load`.
        """
        whole = self.load(run)
        midway = None if whole is None else self.load(run, "midway")
        return whole if midway is None or whole is None or midway[1]["epoch"] != whole[1]["epoch"] else midway

    def load(self, run: int, moment: Moment = None) -> State | None:
        """The run's state, None where it was never saved.

        Raises:
            BadInput: the file is damaged, or is not this group's, recipe's or version's.
        """
        path = self.path(run, moment)
        if not path.exists():
            return None
        try:
            with safe_open(path, "pt") as file:
                metadata = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
            if metadata["sha256"] != digest(tensors):
                raise ValueError("its tensors are not those that were written")
            written = hashlib.sha256(metadata["record"].encode()).hexdigest()
            if metadata.get("record_sha256", written) != written:  # older ones have none
                raise ValueError("its record is not the one that was written")
            record = json.loads(metadata["record"])
            if not isinstance(record, dict):
                raise ValueError("its record is none")
        except (SafetensorError, OSError, RuntimeError, KeyError, ValueError) as error:
            if not path.exists():  # removed meanwhile, by who trains the run
                return None
            raise self._damaged(run, moment, str(error)) from error
        expected = {"format": FORMAT, "group": self.group.name, "recipe": self.recipe.name, "run": run}
        expected |= {"epoch": moment} if isinstance(moment, int) else {}
        found = {key: {**record, "format": metadata.get("format")}.get(key) for key in expected}
        if found != expected:
            raise BadInput(f"Checkpoint {path} is of {found}, expected {expected}: move it away to train this run.")
        if flaw := self._flaw(tensors, record, moment):
            raise self._damaged(run, moment, flaw)
        return tensors, record

    def snapshots(self, run: int, reached: int) -> dict[int, State]:
        """What a run that reached an epoch has kept on its way, by the paper's epochs that it stands for.

        Raises:
            BadInput: a snapshot is missing, or as `load`.
        """
        kept = {}
        for epoch, papers in self.recipe.snapshots(self.group).items():
            if epoch <= reached:
                if (state := self.load(run, epoch)) is None:
                    raise BadInput(f"Checkpoint {self.path(run, epoch)} is missing{self._remedy(run, epoch)}")
                kept[papers] = state
        return kept

    def _damaged(self, run: int, moment: Moment, why: str) -> BadInput:
        return BadInput(f"Checkpoint {self.path(run, moment)} is damaged ({why}){self._remedy(run, moment)}")

    def _remedy(self, run: int, moment: Moment) -> str:
        """What is lost and what to do, the end of a message; a run that trains anew writes its snapshots again."""
        if moment is None:
            return ": delete it to train this run anew."
        if moment == "midway":
            return ": delete it to go on from the last whole epoch."
        lost = f", and with it the weights of run {run} after epoch {moment}, which are published too"
        return f"{lost}: delete {self.path(run)} to train this run anew."

    def _flaw(self, tensors: dict[str, Tensor], record: dict[str, Any], moment: Moment) -> str | None:
        """What of a state is not as a training of this group can go on from, None if all is."""
        for key, kind in RECORD.items():
            if not isinstance(record.get(key), kind):
                return f"its record’s {key} is {record.get(key)!r}"
        batches = record.get("batches", 0)  # older ones have none
        fits = range(1, self.group.steps + 1) if moment == "midway" else (0,)  # after the last comes the test
        if not isinstance(batches, int) or batches not in fits:
            return f"its record’s batches is {batches!r}"
        with torch.device("meta"):
            model = Transformer(self.group.config)
        expected = {
            f"{kind}/{name}": tuple(p.shape)
            for kind in ("parameters", "exp_avg", "exp_avg_sq")
            for name, p in model.named_parameters()
        }
        if batches:
            each = (len(self.group.config.layout.read),)
            expected |= {"running/loss": (), "running/accuracy": each, "running/whole": ()}
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        curves = {name: shape for name, shape in shapes.items() if name.startswith("history/")}
        for name in sorted({*expected, *shapes} - {*curves}):
            if shapes.get(name) != expected.get(name):
                return f"its {name} has shape {shapes.get(name)}, {self.group.name} {expected.get(name)}"
        if {shape[:1] for shape in curves.values()} != ({(record["epoch"],)} if record["epoch"] else set()):
            return f"its learning curves are not those of {record['epoch']} epochs"
        return None
