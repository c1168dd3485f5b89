"""Training groups from start to published file: what is missing, resuming, progress."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from carry_core import groups, runs
from carry_core.checkpoints import Checkpoints
from carry_core.errors import BadInput
from carry_core.files import check_writable, keep_memory
from carry_core.publishing import publish
from carry_core.sums import n_sums
from carry_core.train import State, Trainer

SAVE_EVERY = 15.0  # seconds between checkpoints


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
        own = runs.load(group.name).record["recipe"]
        stands = own if recipe.name == "quick" and own == "paper" else recipe.name
        there, trained = runs.load(group.name, recipe=stands), runs.history(group.name, recipe=stands)["runs"]
    except BadInput:
        return False
    enough = stands != recipe.name or there.record["epochs"] >= recipe.epochs(group)
    return enough and set(numbers) <= set(trained.tolist())


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
