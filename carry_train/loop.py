"""The training of runs from start to finished files: planning, resuming and saving."""

import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from carry_core.errors import BadInput
from carry_fast.layers import keep_memory
from carry_train import groups
from carry_train.checkpoints import Checkpoints
from carry_train.choice import trainer_class
from carry_train.groups import Group
from carry_train.progress import REFERENCE, Conditions, Progress, missing
from carry_train.seeds import recorded
from carry_train.trainer import State, Trainer

SAVE_EVERY = 15.0  # seconds between checkpoints

# Called with the runs in training, their progress in words, and their progress as a share.
Report = Callable[[str, str, float], None]


class Clock:
    """The end of a training's time, and the time of its last save, by `time.monotonic`."""

    def __init__(self, minutes: float | None = None) -> None:
        self.saved = time.monotonic()
        self.end = math.inf if minutes is None else self.saved + 60 * minutes

    @property
    def over(self) -> bool:
        return not time.monotonic() < self.end  # NaN ends at once

    def pause(self) -> bool:
        """Return True if it is time to stop between two batches, for a checkpoint or for good."""
        return self.over or time.monotonic() - self.saved >= SAVE_EVERY


def train_runs(trainer: Trainer, checkpoints: Checkpoints, clock: Clock, report: Report) -> bool:
    """Train until the recipe or the time ends; return True if the recipe was finished.

    `report` is called after each epoch and each save.
    """
    group, recipe = trainer.group, trainer.recipe
    title = f"{group.name} {runs_in_words(trainer.runs)}"
    epochs, unit = recipe.epochs(group), recipe.unit(group)
    while not trainer.finished and not clock.over:
        row = trainer.run_epoch(clock.pause)
        snapshot = any(trainer.epoch in recipe.snapshots(group, run) for run in trainer.runs)
        if row is None or snapshot or trainer.finished or clock.over:
            checkpoints.save(trainer.states())
            clock.saved = time.monotonic()
        if row is None:  # in the middle of an epoch
            batch = f"batch {trainer.done}/{trainer.steps_in_epoch}"
            state = f"{batch}, {unit} {trainer.epoch + 1}/{epochs}"
        else:
            state = f"{last_test(trainer)}, {unit} {trainer.epoch}/{epochs}"
        report(title, state, trainer.epoch / epochs)
    return trainer.finished


def last_test(trainer: Trainer) -> str:
    """Return the result of the last test in words, with its epoch if that is not the last one.

    Before the first test, it is the training loss.
    """
    if "epochs" not in trainer.history:
        return f"training loss {trainer.history['train_loss'][-1].mean():.1e}"
    names = ("test_loss", "test_whole", "epochs")
    loss, exact, epochs = (trainer.history[name][-1] for name in names)
    epoch_note = "" if epochs[0] == trainer.epoch else f" (after {epochs[0]})"
    return f"loss {loss.mean():.1e}, accuracy {exact.mean():.3f}{epoch_note}"


# ---- checkpoints


def prepare(trainer: Trainer, checkpoints: Checkpoints) -> None:
    """Resume from the runs' checkpoints; finetuning starts from the parent (App. H.2).

    All runs of a trainer have a checkpoint, or none has. Raises `BadInput` if the parent's is
    missing.
    """
    if checkpoints.path(trainer.runs[0]).exists():
        states = [checkpoints.load(run) for run in trainer.runs]
        trainer.restore(states)
        trainer.seeds = [recorded(record) for _, record in states]
        if "test_loss" in trainer.history and "epochs" not in trainer.history:
            # The run was started when every epoch was still followed by a test.
            epochs = np.arange(1, trainer.epoch + 1)
            trainer.history["epochs"] = list(np.tile(epochs[:, None], len(trainer.runs)))
    elif trainer.group.parent is not None:
        parents = [parent_state(checkpoints, *trainer.group.parent, run) for run in trainer.runs]
        trainer.load(parents)
        for seeds, (_, record) in zip(trainer.seeds, parents, strict=True):
            seeds.pop("init")
            seeds["parent"] = recorded(record)


def parent_state(checkpoints: Checkpoints, name: str, after: int, run: int) -> State:
    """Return the state of a run of group `name` after `after` of the paper's epochs.

    Raises `BadInput` if the run was not trained that far.
    """
    parent = replace(checkpoints, group=groups.find(name))
    recipe = checkpoints.recipe
    own_epochs = {
        paper_epoch: epoch for epoch, paper_epoch in recipe.snapshots(parent.group, run).items()
    }
    path = parent.path(run, own_epochs[after])
    if not path.exists():
        raise BadInput(
            f"{checkpoints.group.name} continues run {run} of {name} with its optimiser's state, "
            f"but {path} does not exist: first run `carry train {name} --recipe {recipe.name} "
            f"--runs {run} --out FOLDER` with a folder that does not have that run."
        )
    return parent.load(run, own_epochs[after])


def check_parents(plan: Iterable[tuple[Checkpoints, Collection[int]]]) -> None:
    """Raise `BadInput` if a run of `plan`, trained in this order, would lack its parent.

    This is checked before anything long starts.
    """
    will_exist: set[tuple[str, int, int]] = set()  # group, the paper's epoch, run
    for checkpoints, numbers in plan:
        group, recipe = checkpoints.group, checkpoints.recipe
        for run in numbers:
            begun = checkpoints.path(run).exists()
            if group.parent is not None and not begun and (*group.parent, run) not in will_exist:
                parent_state(checkpoints, *group.parent, run)
            for own_epoch, paper_epoch in recipe.snapshots(group, run).items():
                if own_epoch <= recipe.epochs(group):
                    will_exist.add((group.name, paper_epoch, run))


def train_group(
    checkpoints: Checkpoints,
    numbers: Collection[int],
    out: Path,
    conditions: Conditions = REFERENCE,
    clock: Clock | None = None,
    report: Report = lambda title, state, share: None,
) -> bool:
    """Train the runs of a group that `out` lacks; return True if all were finished in time.

    Each is written when it is finished. On a CPU runs are trained one after the other. On a GPU
    those with equal progress are trained in lockstep.

    Raises:
        BadInput: Another process is training one of the runs; or as `prepare` and `missing`.
    """
    clock = clock or Clock()
    keep_memory()
    with ExitStack() as locks:
        for run in numbers:
            locks.enter_context(checkpoints.lock(run))
        todo = missing(checkpoints, numbers, out, conditions)
        for stack in stacks(todo, conditions.device):
            if clock.over:
                return False
            precision = todo[stack[0]].precision
            trainer = trainer_class(precision)(
                checkpoints.group,
                checkpoints.recipe,
                stack,
                conditions.device,
                precision,
                conditions.seeds,
            )
            prepare(trainer, checkpoints)
            if not train_runs(trainer, checkpoints, clock, report):
                return False
            for run in stack:
                path = checkpoints.publish(run, out)
                print(f"Run {run} of {checkpoints.group.name}: {path}", flush=True)
    return True


def stacks(todo: Mapping[int, Progress], device: str) -> list[list[int]]:
    """Return the runs grouped into those trained together, the most advanced ones first."""
    if device == "cpu":
        return [[run] for run in todo]
    together: dict[Progress, list[int]] = {}
    for run, progress in todo.items():
        together.setdefault(progress, []).append(run)
    return [
        together[progress] for progress in sorted(together, key=lambda run: run[:2], reverse=True)
    ]


def parse_run_numbers(text: str | None, group: Group) -> list[int]:
    """Return numbers of runs given as text, such as `0-5` or `0,2`; those of the group if None.

    Raises:
        BadInput: The text has another form, or a number is not below 1000.
    """
    if text is None:
        return list(range(group.n_runs))
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise BadInput(
                f"--runs {text}: expected run numbers such as 0-5 or 0,2,4, "
                "lower ones first, below 1000."
            )
        numbers.update(range(first, last + 1))
    return sorted(numbers)


def runs_in_words(numbers: Collection[int]) -> str:
    """Return the numbers of runs in words: `run 3`; `runs 0,1,2`."""
    return f"run{'s' * (len(numbers) > 1)} {','.join(map(str, numbers))}"
