"""Training groups from start to published file: order, checkpoints, resuming, progress."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_core.files import check_writable, keep_memory, replacing
from carry_core.groups import Group, Recipe
from carry_core.sums import n_sums
from carry_core.train import State, Trainer

FORMAT = "1"
SAVE_EVERY = 15.0  # seconds between checkpoints


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
    state = trainer.freeze()
    try:
        while not trainer.finished and not clock.over:
            began = time.perf_counter()
            row = trainer.run_epoch()
            trainer.seconds += time.perf_counter() - began
            state = trainer.freeze()
            if trainer.epoch in trainer.recipe.snapshots(trainer.group):
                checkpoints.save(state(), snapshot=True)
            if clock.due():
                checkpoints.save(state())
            report(trainer, row)
    finally:
        checkpoints.save(state())
    return trainer.finished


def prepare(trainer: Trainer, checkpoints: Checkpoints) -> None:
    """Take the runs up where their checkpoints left them; a finetuned run starts from its parent.

    Raises:
        BadInput: a checkpoint is unusable, was trained at another precision, or the parent was not trained.
    """
    states = [checkpoints.load(run) for run in trainer.runs]
    known = [state for state in states if state is not None]
    if len(known) == len(states):
        precision = known[0][1]["precision"]
        if precision != trainer.precision:
            raise BadInput(
                f"{checkpoints.path(trainer.runs[0])} was trained in {precision}, not {trainer.precision}:"
                f" pass --precision {precision}, or move it away."
            )
        trainer.restore(known)
    elif trainer.group.parent is not None:
        trainer.load([_parent(checkpoints, trainer.group.parent, run) for run in trainer.runs])


def _parent(checkpoints: Checkpoints, parent: tuple[str, int], run: int) -> State:
    group = groups.find(parent[0])
    there = replace(checkpoints, group=group)
    epochs = [ours for ours, papers in checkpoints.recipe.snapshots(group).items() if papers == parent[1]]
    state = there.load(run, epochs[0])
    if state is None:
        raise BadInput(
            f"{checkpoints.group.name} continues run {run} of {group.name}, but {there.path(run, epochs[0])} does"
            f" not exist: first run `carry train {group.name} --recipe {checkpoints.recipe.name}`."
        )
    return state


def publish(checkpoints: Checkpoints, out: Path) -> str:
    """Put a group's finished runs together as its group file; says what was done, or why not.

    A group with fewer epochs or runs never replaces one with more, `quick` never replaces `paper`, and `paper`
    replaces `quick` only when all its epochs are done.
    """
    group, recipe = checkpoints.group, checkpoints.recipe
    folder = checkpoints.path(0).parent
    numbers = sorted(int(p.stem.removeprefix("run")) for p in folder.glob("run*.safetensors") if p.stem[3:].isdigit())
    states = [state for run in numbers if (state := checkpoints.load(run)) is not None]
    epochs = max((record["epoch"] for _, record in states), default=0)
    if epochs < recipe.epochs(group):
        return f"{group.name}: no run has finished its {recipe.epochs(group)} epochs yet."
    states = [state for state in states if state[1]["epoch"] == epochs]
    if better := _better(group, out, recipe.name, epochs, len(states)):
        return f"{group.name}: {better} is kept."

    kept = states[: group.kept] if len(states) <= group.n_runs else states
    weights = _stacked(kept, "parameters/")
    for epoch, papers in recipe.snapshots(group).items():
        early = [checkpoints.load(record["run"], epoch) for _, record in kept]
        if None not in early:
            weights |= {f"epoch_{papers}/{k}": v for k, v in _stacked([s for s in early if s], "parameters/").items()}
    hidden = {"dropout", "epoch", "group", "recipe", "adam_step"}
    record = {
        "recipe": recipe.name, "epochs": epochs,
        "runs": [{key: value for key, value in r.items() if key not in hidden} for _, r in kept],
    }  # fmt: skip
    curves: runs.History = {key: value.numpy() for key, value in _stacked(states, "history/").items()}
    curves["runs"] = np.array([r["run"] for _, r in states])
    runs.save(out, group.name, group.config, weights, record, curves)
    return f"{group.name}: published {len(kept)} run(s) of {epochs} epochs to {out}."


def _stacked(states: list[State], prefix: str) -> dict[str, Tensor]:
    keys = [key for key in states[0][0] if key.startswith(prefix)]
    return {key.removeprefix(prefix): torch.stack([tensors[key] for tensors, _ in states]) for key in keys}


def _better(group: Group, out: Path, recipe: str, epochs: int, n_runs: int) -> str | None:
    """What is published already, if it must not be replaced by `n_runs` runs of `epochs` epochs."""
    try:
        record = runs.describe(out / f"{group.name}.safetensors")["record"]
    except (OSError, SafetensorError, KeyError, json.JSONDecodeError):
        return None
    there = len(record["runs"])
    same = record["recipe"] == recipe
    enough = epochs >= (record["epochs"] if same else group.epochs) and n_runs >= there
    if enough and (same or recipe != "quick"):
        return None
    return f"the {record['recipe']} group with {record['epochs']} epochs and {there} run(s)"


def train_group(
    checkpoints: Checkpoints,
    numbers: list[int],
    out: Path,
    *,
    device: str = "cpu",
    precision: str = "fp32",
    clock: Clock | None = None,
    report: Report = lambda trainer, row: None,
    say: Callable[[str], None] = print,
) -> bool:
    """Train what is missing of a group and publish it; True if the runs asked for are finished.

    Runs are trained one after the other on a CPU, and all in lockstep on a GPU. Runs at different epochs (an
    interruption fell between two saves) are trained apart.
    """
    clock = clock or Clock()
    check_writable(out)
    check_writable(checkpoints.folder)
    keep_memory()
    todo: dict[int, list[int]] = {}
    for run in numbers:
        state = checkpoints.load(run)
        epoch = 0 if state is None else state[1]["epoch"]
        if epoch < checkpoints.recipe.epochs(checkpoints.group):
            todo.setdefault(epoch, []).append(run)
    stacks = [stack for _, stack in sorted(todo.items(), reverse=True)]
    if device == "cpu":
        stacks = sorted([run] for stack in stacks for run in stack)
    finished = True
    for stack in stacks:
        if clock.over:
            return False
        trainer = Trainer(checkpoints.group, checkpoints.recipe, stack, device, precision)
        prepare(trainer, checkpoints)
        finished = train_runs(trainer, checkpoints, clock, report) and finished
    if finished:
        say(publish(checkpoints, out))
    return finished


def complete(checkpoints: Checkpoints, numbers: list[int], out: Path) -> bool:
    """Whether the published group already holds these runs at these epochs (or better), undamaged."""
    group, recipe = checkpoints.group, checkpoints.recipe
    if out.resolve() != runs.folder("ours").resolve():
        return False
    try:
        there = runs.load(group.name)
        trained = set(runs.history(group.name)["runs"].tolist())
    except BadInput:
        return False
    if there.record["recipe"] != recipe.name:
        return recipe.name == "quick" and set(numbers) <= trained
    return there.record["epochs"] >= recipe.epochs(group) and set(numbers) <= trained


def estimate(checkpoints: Checkpoints, numbers: list[int], device: str, precision: str) -> float:
    """Seconds that the missing epochs should take, from a few steps on random sums of the group's shape."""
    group, recipe = checkpoints.group, checkpoints.recipe
    left = 0
    for run in numbers:
        state = checkpoints.load(run)
        left += recipe.epochs(group) - min(recipe.epochs(group), state[1]["epoch"] if state else 0)
    if not left:
        return 0.0
    small = replace(group, fraction=2 * group.batch / n_sums(group.n_digits), primed=0, parent=None)
    trainer = Trainer(small, recipe, [0], device, precision)
    trainer.step(*trainer.batches(trainer.train, group.batch)[0], 0)
    began = time.perf_counter()
    for a, b in trainer.batches(trainer.train, group.batch):
        trainer.step(a, b, 0)["loss"].sum().item()
    step = (time.perf_counter() - began) / 2
    testing = 1 + 0.3 * (group.parent is None)  # a test epoch is forward only, on as many sums
    return left * group.steps * step * testing
