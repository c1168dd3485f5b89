"""Training runs from start to finished files: what is missing, resuming, when to save."""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_core.sums import n_sums
from carry_core.training.checkpoints import Checkpoints
from carry_core.training.layers import keep_memory
from carry_core.training.trainer import State, Trainer

SAVE_EVERY = 15.0  # seconds between checkpoints, which fall between epochs
SAVE_WITHIN = 60.0  # seconds after which one falls within an epoch, between batches
TESTING = 0.3  # of a step: what the same sums cost in a test, which is a forward pass

Report = Callable[[Trainer, dict[str, Any] | None], None]
Progress = tuple[int, int]  # epochs done, and batches of the next


@dataclass
class Clock:
    """How long a training may go on, and when it last saved: seconds of `time.monotonic`."""

    minutes: float | None = None
    start: float = field(default_factory=time.monotonic)
    saved: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> bool:
        return self.minutes is not None and time.monotonic() - self.start >= 60 * self.minutes

    @property
    def due(self) -> bool:
        """Whether it is time to save again, after an epoch."""
        return time.monotonic() - self.saved >= SAVE_EVERY

    def pause(self) -> bool:
        """Whether an epoch is to be left half done, to be saved or for good."""
        return self.over or time.monotonic() - self.saved >= SAVE_WITHIN


def train_runs(trainer: Trainer, checkpoints: Checkpoints, clock: Clock, report: Report) -> bool:
    """Train to the end of the recipe, or until the clock is over; True if finished.

    What is on disk can be resumed after any interruption, on a CPU to the same bits; Ctrl-C loses no finished epoch.
    `report` gets the new row of the history after an epoch, and None within one.
    """
    unsaved = [trainer.freeze()]

    def save() -> None:
        while unsaved:
            checkpoints.save(unsaved[0]())
            del unsaved[0]  # not before: an interrupted save is made up for
        clock.saved = time.monotonic()

    try:
        while not trainer.finished and not clock.over:
            began = time.perf_counter()
            row = trainer.run_epoch(clock.pause)
            trainer.seconds += time.perf_counter() - began
            state = trainer.freeze()
            if row is not None and trainer.epoch in trainer.recipe.snapshots(trainer.group):
                checkpoints.save(state(), snapshot=True)
            unsaved[:] = [state]  # not before: no run is past an epoch whose snapshot it lacks
            if row is None or clock.due:
                save()
            report(trainer, row)
    finally:
        save()
    return trainer.finished


def prepare(trainer: Trainer, checkpoints: Checkpoints) -> None:
    """Take the runs up where their checkpoints left them; a finetuned run starts from its parent.

    Raises:
        BadInput: a checkpoint is unusable, was trained at another precision, or the parent was not trained.
    """
    states = [state for run in trainer.runs if (state := checkpoints.load(run)) is not None]
    for _, record in states:
        if record["precision"] != trainer.precision:
            raise BadInput(
                f"{checkpoints.path(record['run'])} was trained in {record['precision']}, not {trainer.precision}:"
                f" pass --precision {record['precision']}, or move it away."
            )
    if len(states) == len(trainer.runs):
        trainer.restore(states)
    elif trainer.group.parent is not None:
        trainer.load([parent_state(checkpoints, *trainer.group.parent, run) for run in trainer.runs])


def parent_state(checkpoints: Checkpoints, name: str, after: int, run: int) -> State:
    """The state that a finetuned run starts from: that run of group `name` after as many of the paper's epochs.

    Raises:
        BadInput: it is not there.
    """
    parent = replace(checkpoints, group=groups.find(name))
    (epoch,) = (ours for ours, papers in checkpoints.recipe.snapshots(parent.group).items() if papers == after)
    state = parent.load(run, epoch)
    if state is None:
        raise BadInput(
            f"{checkpoints.group.name} continues run {run} of {name} with its optimiser's state, but"
            f" {parent.path(run, epoch)} does not exist: first run `carry train {name} --recipe"
            f" {checkpoints.recipe.name} --runs {run} --out FOLDER` with a folder that does not have that run."
        )
    return state


def check_parents(plan: list[tuple[Checkpoints, list[int]]]) -> None:
    """Find out before anything long starts whether each run that continues another one will have it.

    Args:
        plan: the runs to be trained, in this order.

    Raises:
        BadInput: a run lacks its parent, which is not trained before it far enough either.
    """
    coming: dict[str, Collection[int]] = {}
    for checkpoints, numbers in plan:
        if checkpoints.group.parent is not None:
            name, after = checkpoints.group.parent
            reached = checkpoints.recipe.epochs(groups.find(name))
            snapshots = checkpoints.recipe.snapshots(groups.find(name))
            far_enough = any(papers == after and ours <= reached for ours, papers in snapshots.items())
            for run in numbers:
                if checkpoints.load(run) is None and not (far_enough and run in coming.get(name, ())):
                    parent_state(checkpoints, name, after, run)
        coming[checkpoints.group.name] = numbers


def missing(checkpoints: Checkpoints, numbers: Collection[int], out: Path) -> list[int]:
    """Runs that `out` lacks, or has with fewer epochs.

    Raises:
        BadInput: a run in `out` is unusable.
    """
    group, recipe = checkpoints.group, checkpoints.recipe
    paths = {run: runs.run_path(out, group.name, recipe.name, run) for run in numbers}
    return [
        run
        for run, path in paths.items()
        if not (path.exists() and runs.describe(path, group.name)["record"]["epochs"] >= recipe.epochs(group))
    ]


def progress(checkpoints: Checkpoints, numbers: Collection[int]) -> dict[int, Progress]:
    """How far the checkpoints of runs are.

    Raises:
        BadInput: a checkpoint is unusable.
    """
    records = {run: (checkpoints.load(run) or ({}, {"epoch": 0}))[1] for run in numbers}
    return {run: (record["epoch"], record.get("batches", 0)) for run, record in records.items()}


def train_group(
    checkpoints: Checkpoints,
    numbers: Collection[int],
    out: Path,
    *,
    device: str = "cpu",
    precision: str = "fp32",
    clock: Clock | None = None,
    report: Report = lambda trainer, row: None,
    say: Callable[[str], None] = print,
) -> bool:
    """Train what `out` lacks of a group's runs and write each when it is done; True if all are.

    One after the other on a CPU, in lockstep on a GPU but for runs that came unequally far.

    Raises:
        BadInput: another process trains one of the runs, or as `prepare` and `missing`.
    """
    clock = clock or Clock()
    keep_memory()
    todo = progress(checkpoints, missing(checkpoints, numbers, out))
    stacks = [[run for run in todo if todo[run] == far] for far in sorted({*todo.values()}, reverse=True)]
    for stack in stacks if device != "cpu" else [[run] for run in sorted(todo)]:
        if clock.over:
            return False
        with ExitStack() as held:
            for run in stack:
                held.enter_context(checkpoints.locked(run))
            waiting = missing(checkpoints, stack, out)  # again, now that nobody else trains them
            if not waiting:
                continue
            trainer = Trainer(checkpoints.group, checkpoints.recipe, waiting, device, precision)
            prepare(trainer, checkpoints)
            if not train_runs(trainer, checkpoints, clock, report):
                return False
            for run in waiting:
                say(f"Run {run} of {checkpoints.group.name}: {checkpoints.publish(run, out)}")
    return True


def estimate(checkpoints: Checkpoints, todo: Mapping[int, Progress], device: str, precision: str) -> float:
    """Seconds that runs should take to their end, from a few steps on random sums of the group's shape.

    On a GPU a step is one of all runs in lockstep.
    """
    group, recipe = checkpoints.group, checkpoints.recipe
    if not todo:
        return 0.0
    left = [max(0, recipe.epochs(group) - epoch - batches / group.steps) for epoch, batches in todo.values()]
    stacked = device != "cpu"
    small = replace(group, fraction=2 * group.batch / n_sums(group.n_digits), primed=0, parent=None)
    trainer = Trainer(small, recipe, list(todo) if stacked else [0], device, precision)
    batches = trainer.batches(trainer.train, group.batch)
    trainer.step(*batches[0], 0)["loss"].sum().item()
    began = time.perf_counter()
    for a, b in batches:
        trainer.step(a, b, 0)["loss"].sum().item()
    step = (time.perf_counter() - began) / len(batches)
    n_test = group.fraction * n_sums(group.n_digits) + (groups.N_LONG if group.padded else 0)
    epoch = step * (group.n_train + TESTING * n_test) / group.batch
    return epoch * (max(left) if stacked else sum(left))
