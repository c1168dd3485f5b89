"""Training runs from start to finished files: what is missing, resuming, when to save."""

import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_core.fast.layers import keep_memory
from carry_core.groups import Group, Recipe
from carry_core.runs import run_path
from carry_core.sums import n_sums
from carry_paper.training import fused
from carry_paper.training.bench import in_turns
from carry_paper.training.checkpoints import Checkpoints
from carry_paper.training.seeds import OWN, Seeds, recorded
from carry_paper.training.trainer import State, Trainer

SAVE_EVERY = 15.0  # seconds between checkpoints
TESTING = 0.3  # of a step: what the same sums cost in a test, which is a forward pass

# takes what is trained, how far it is in words, and as a share of the whole
Report = Callable[[str, str, float], None]
Progress = tuple[int, int]  # epochs done, and batches of the next


class Clock:
    """How long a training may go on, and when it last saved: seconds of `time.monotonic`."""

    def __init__(self, minutes: float | None = None) -> None:
        self.saved = time.monotonic()
        self.end = math.inf if minutes is None else self.saved + 60 * minutes

    @property
    def over(self) -> bool:
        return not time.monotonic() < self.end  # NaN ends at once

    def pause(self) -> bool:
        """Whether to stop between two batches, for a checkpoint or for good."""
        return self.over or time.monotonic() - self.saved >= SAVE_EVERY


def train_runs(trainer: Trainer, checkpoints: Checkpoints, clock: Clock, report: Report) -> bool:
    """Train to the end of the recipe (True) or of the time; `report` is told after each epoch and each save."""
    title, epochs = (
        f"{trainer.group.name} {named(trainer.runs)}",
        trainer.recipe.epochs(trainer.group),
    )
    while not trainer.finished and not clock.over:
        row = trainer.run_epoch(clock.pause)
        snapshot = any(
            trainer.epoch in trainer.recipe.snapshots(trainer.group, run) for run in trainer.runs
        )
        if row is None or snapshot or trainer.finished or clock.over:
            checkpoints.save(trainer.states())
            clock.saved = time.monotonic()
        far = f"batch {trainer.done}/{trainer.group.steps}" if row is None else last_test(trainer)
        report(
            title, f"{far}, epoch {trainer.epoch + (row is None)}/{epochs}", trainer.epoch / epochs
        )
    return trainer.finished


def last_test(trainer: Trainer) -> str:
    """What came out of the last test, and when that was if it is not the epoch just done."""
    names = ("test_loss", "test_whole", "epochs")
    loss, exact, epochs = (trainer.history[name][-1] for name in names)
    when = "" if epochs[0] == trainer.epoch else f" (after {epochs[0]})"
    return f"loss {loss.mean():.1e}, accuracy {exact.mean():.3f}{when}"


def prepare(trainer: Trainer, checkpoints: Checkpoints) -> None:
    """Go on from the runs' checkpoints; finetuning starts from the parent (App. H.2). BadInput if unusable."""
    states = [
        state for run in trainer.runs if (state := resumable(checkpoints, run, trainer.precision))
    ]
    if len(states) == len(trainer.runs):
        trainer.restore(states)
        trainer.seeds = [recorded(record) for _, record in states]
        if trainer.epoch and "epochs" not in trainer.history:  # begun when every epoch was tested
            epochs = np.arange(1, trainer.epoch + 1)
            trainer.history["epochs"] = list(np.tile(epochs[:, None], len(trainer.runs)))
    elif trainer.group.parent is not None:
        parents = [parent_state(checkpoints, *trainer.group.parent, run) for run in trainer.runs]
        trainer.load(parents)
        for seeds, (_, record) in zip(trainer.seeds, parents, strict=True):
            seeds.pop("init")
            seeds["parent"] = recorded(record)


def resumable(checkpoints: Checkpoints, run: int, precision: str) -> State | None:
    """The run's checkpoint, None where it has none; BadInput where this step would not continue it to the same bits."""
    path = checkpoints.path(run)
    if not path.exists():
        return None
    state = checkpoints.load(run)
    record = state[1]
    if record["precision"] != precision:
        raise BadInput(
            f"{path} was trained in {record['precision']}, not {precision}:"
            f" pass --precision {record['precision']}, or move it away."
        )
    if precision == "fused" and record.get("step", 1) != fused.VERSION:
        raise BadInput(
            f"{path} was made at commit {record.get('commit', 'unknown')}, whose step rounds otherwise:"
            " continue it with a clone at that commit, or move it away."
        )
    return state


def parent_state(checkpoints: Checkpoints, name: str, after: int, run: int) -> State:
    """That run of group `name` after as many of the paper's epochs; BadInput where it was not trained so far."""
    parent, recipe = replace(checkpoints, group=groups.find(name)), checkpoints.recipe
    (epoch,) = (
        ours for ours, papers in recipe.snapshots(parent.group, run).items() if papers == after
    )
    if not parent.path(run, epoch).exists():
        raise BadInput(
            f"{checkpoints.group.name} continues run {run} of {name} with its optimiser's state, but"
            f" {parent.path(run, epoch)} does not exist: first run `carry train {name} --recipe"
            f" {recipe.name} --runs {run} --out FOLDER` with a folder that does not have that run."
        )
    return parent.load(run, epoch)


def check_parents(plan: Iterable[tuple[Checkpoints, Collection[int]]]) -> None:
    """BadInput where a run of `plan`, trained in this order, will lack its parent; before anything long starts."""
    coming: set[tuple[str, int, int]] = set()  # group, the paper's epoch and run
    for checkpoints, numbers in plan:
        group, recipe = checkpoints.group, checkpoints.recipe
        for run in numbers:
            if (
                group.parent
                and (*group.parent, run) not in coming
                and not checkpoints.path(run).exists()
            ):
                parent_state(checkpoints, *group.parent, run)
            snapshots = recipe.snapshots(group, run).items()
            coming |= {
                (group.name, papers, run)
                for ours, papers in snapshots
                if ours <= recipe.epochs(group)
            }


def missing(
    checkpoints: Checkpoints,
    numbers: Collection[int],
    out: Path,
    seeds: Seeds = OWN,
) -> dict[int, Progress]:
    """Runs that `out` lacks, or has with fewer epochs, and how far their checkpoints are.

    BadInput for damaged ones, and for those that have other seeds.
    """
    group, recipe, found = checkpoints.group, checkpoints.recipe, {}
    seeds.check_group(group)
    for run in numbers:
        path = run_path(out, group.name, recipe.name, run)
        if is_finished(path, group, recipe, seeds):
            continue
        found[run] = (0, 0)
        if checkpoints.path(run).exists():
            record = checkpoints.load(run)[1]
            seeds.check_run(group, record, checkpoints.path(run))
            found[run] = (record["epoch"], record.get("batches", 0))
    return found


def is_finished(path: Path, group: Group, recipe: Recipe, seeds: Seeds = OWN) -> bool:
    """Tell if a run's file has all epochs; BadInput if it is damaged or has other seeds."""
    if not path.exists():
        return False
    record = runs.describe(path, group.name)["record"]
    seeds.check_run(group, record, path)
    epochs: int = record["epochs"]
    return epochs >= recipe.epochs(group)


def train_group(
    checkpoints: Checkpoints,
    numbers: Collection[int],
    out: Path,
    *,
    device: str = "cpu",
    precision: str = "fp32",
    seeds: Seeds = OWN,
    clock: Clock | None = None,
    report: Report = lambda *told: None,
) -> bool:
    """Train what `out` lacks of a group's runs and write each when it is done; True if all are.

    One after the other on a CPU, in lockstep on a GPU but for runs that came unequally far.
    BadInput where another process trains one of the runs, or as in `prepare` and `missing`.
    """
    clock = clock or Clock()
    keep_memory()
    with ExitStack() as held:
        for run in numbers:
            held.enter_context(checkpoints.lock(run))
        todo = missing(checkpoints, numbers, out, seeds)
        for run in todo:  # before the first is trained
            resumable(checkpoints, run, precision)
        stacks = [
            [run for run in todo if todo[run] == far]
            for far in sorted({*todo.values()}, reverse=True)
        ]
        for stack in stacks if device != "cpu" else [[run] for run in todo]:
            if clock.over:
                return False
            how = (device, precision, seeds)
            trainer = Trainer(checkpoints.group, checkpoints.recipe, stack, *how)
            prepare(trainer, checkpoints)
            if not train_runs(trainer, checkpoints, clock, report):
                return False
            for run in stack:
                print(
                    f"Run {run} of {checkpoints.group.name}: {checkpoints.publish(run, out)}",
                    flush=True,
                )
    return True


def parse_run_numbers(text: str | None, group: Group) -> list[int]:
    """Return numbers of runs given as text, such as `0-5` or `0,2`; those of the group if None.

    Raises:
        BadInput: The text is another, or a number is not below 1000.
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


def named(numbers: Collection[int]) -> str:
    """Which runs are meant: `run 3`; `runs 0,1,2`."""
    return f"run{'s' * (len(numbers) > 1)} {','.join(map(str, numbers))}"


def estimate(
    checkpoints: Checkpoints, todo: Mapping[int, Progress], device: str, precision: str
) -> float:
    """Seconds that runs should take to their end, from two steps; on a GPU a step is one of all runs in lockstep."""
    group, recipe, stacked = checkpoints.group, checkpoints.recipe, device != "cpu"
    left = [
        max(0, recipe.epochs(group) - epoch - batches / group.steps)
        for epoch, batches in todo.values()
    ]
    small = replace(group, fraction=group.batch / n_sums(group.n_digits), primed=0, parent=None)
    trainer = Trainer(small, recipe, list(todo) if stacked else [0], device, precision)
    a, b = trainer.train.unbind(1)
    step: float = in_turns({"step": partial(trainer.step, a, b, 0)}, 1, torch.get_num_threads())[
        "step"
    ].item()
    n_test = group.fraction * n_sums(group.n_digits) + (groups.N_LONG if group.padded else 0)
    tested = len(recipe.tested(group)) / recipe.epochs(group)  # of the epochs
    epoch = step * (group.n_train + tested * TESTING * n_test) / group.batch
    return epoch * (max(left) if stacked else sum(left))
