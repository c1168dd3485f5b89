"""Training groups from start to published file: what is missing, resuming, progress."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from carry_core import groups, manifest
from carry_core.checkpoints import Checkpoints
from carry_core.errors import BadInput, NotNow
from carry_core.files import author_dir, check_writable, keep_memory, locked, read_manifest
from carry_core.publishing import look, publish, published_runs
from carry_core.sums import n_sums
from carry_core.train import State, Trainer

SAVE_EVERY = 15.0  # seconds between checkpoints, which fall between epochs
SAVE_WITHIN = 60.0  # seconds after which one falls within an epoch, between batches
TESTING = 0.3  # of a step: what the same sums cost in a test, which is a forward pass


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


Report = Callable[[Trainer, dict[str, Any] | None], None]


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
            if row is None:
                unsaved.append(state)
            else:
                if trainer.epoch in trainer.recipe.snapshots(trainer.group):
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
    states = [checkpoints.latest(run) for run in trainer.runs]
    known = [state for state in states if state is not None]
    _check_precision(checkpoints, known, trainer.precision)
    if len(known) == len(states):
        trainer.restore(known)
    elif trainer.group.parent is not None:
        trainer.load([_parent(checkpoints, *trainer.group.parent, run) for run in trainer.runs])


def _check_precision(checkpoints: Checkpoints, states: Iterable[State], precision: str) -> None:
    for _, record in states:
        if record["precision"] != precision:
            raise BadInput(
                f"{checkpoints.path(record['run'])} was trained in {record['precision']}, not {precision}:"
                f" pass --precision {record['precision']}, or move it away."
            )


def _parent(checkpoints: Checkpoints, name: str, after: int, run: int) -> State:
    """What a finetuned run starts from: that run of group `name` after as many of the paper's epochs."""
    group = groups.find(name)
    there = replace(checkpoints, group=group)
    epochs = [ours for ours, papers in checkpoints.recipe.snapshots(group).items() if papers == after]
    state = there.load(run, epochs[0])
    if state is None:
        raise NotNow(
            f"{checkpoints.group.name} continues run {run} of {group.name} with its optimiser's state, which is in no"
            f" published file, but {there.path(run, epochs[0])} does not exist: first run `carry train {group.name}"
            f" --recipe {checkpoints.recipe.name} --runs {run} --out FOLDER` with another folder than data/runs."
        )
    return state


def check_parents(
    checkpoints: Checkpoints, numbers: list[int], out: Path, before: Mapping[str, Collection[int]] | None = None
) -> None:
    """Find out before anything is written whether each run has what it is to continue.

    Args:
        checkpoints: of the group.
        numbers: runs that are to be trained.
        out: where they are published.
        before: runs of other groups that are trained before these.

    Raises:
        NotNow: a run that has not begun lacks its parent, which is not trained before it far enough either.
    """
    if checkpoints.group.parent is None:
        return
    name, after = checkpoints.group.parent
    parent, recipe = groups.find(name), checkpoints.recipe
    comes = after in [papers for ours, papers in recipe.snapshots(parent).items() if ours <= recipe.epochs(parent)]
    coming = (before or {}).get(name, ()) if comes else ()
    for run in missing(checkpoints, numbers, out):
        if run not in coming and checkpoints.latest(run) is None:
            _parent(checkpoints, name, after, run)


def check(checkpoints: Checkpoints, out: Path, *, dry: bool = False) -> None:
    """Find out before anything long starts what would stop a training or its publishing.

    Args:
        checkpoints: of the group.
        out: where it is to be published.
        dry: write nothing.

    Raises:
        BadInput: a folder cannot be written or is another's, or a checkpoint or the manifest is damaged.
    """
    for taken, what in ((checkpoints.folder, "checkpoints"), (author_dir(), "the author's release")):
        if out.resolve().is_relative_to(taken.resolve()):
            raise BadInput(f"--out {out}: {taken} is for {what}; choose a folder outside of it.")
    root, inside = manifest.home(out)
    if inside.name in groups.RECIPES:
        raise BadInput(f"--out {out}: that folder is for what {out.parent} has by another recipe; choose {out.parent}.")
    read_manifest(root)
    for folder in (out, checkpoints.folder):
        check_writable(folder, dry=dry)
    with nullcontext() if dry else locked(root):  # from now on there is a lock for readers to wait for
        look(checkpoints.group, out)
    for run in checkpoints.runs():
        if (state := checkpoints.latest(run)) is not None:
            checkpoints.snapshots(run, state[1]["epoch"])


def train_group(
    checkpoints: Checkpoints,
    numbers: list[int],
    out: Path,
    *,
    device: str = "cpu",
    precision: str = "fp32",
    share: bool = False,
    clock: Clock | None = None,
    report: Report = lambda trainer, row: None,
    say: Callable[[str], None] = print,
) -> bool:
    """Train what is missing of a group and publish it; True if the runs asked for are finished.

    Runs are trained one after the other on a CPU, and all in lockstep on a GPU. Runs that came unequally
    far (an interruption fell between two saves) are trained apart. With `share`, runs that another process trains are
    left to it, which publishes them too, and runs whose parent is not there yet are left out.

    Raises:
        NotNow: another process trains one of the runs, or its parent is not there, and `share` is false.
        BadInput: see `check` and `prepare`.
    """
    clock = clock or Clock()
    if not share:
        check_parents(checkpoints, numbers, out)
    check(checkpoints, out)
    keep_memory()
    finished = True
    with ExitStack() as held:
        mine = []
        for run in missing(checkpoints, numbers, out):
            try:
                if checkpoints.group.parent is not None and checkpoints.latest(run) is None:
                    _parent(checkpoints, *checkpoints.group.parent, run)
                held.enter_context(checkpoints.training(run))
                mine.append(run)
            except NotNow as reason:
                if not share:
                    raise
                say(f"Left out for now: {reason}")
                finished = False
        todo = missing(checkpoints, mine, out)  # again, now that nobody else trains them
        _check_precision(checkpoints, filter(None, map(checkpoints.latest, todo)), precision)
        stacks = [[run for run in todo if todo[run] == far] for far in sorted({*todo.values()}, reverse=True)]
        for stack in stacks if device != "cpu" else [[run] for run in sorted(todo)]:
            if clock.over:
                return False
            trainer = Trainer(checkpoints.group, checkpoints.recipe, stack, device, precision)
            prepare(trainer, checkpoints)
            finished = train_runs(trainer, checkpoints, clock, report) and finished
    if not missing(checkpoints, mine, out) and set(numbers) > {*missing(checkpoints, numbers, out)}:
        say(publish(checkpoints, out))
    return finished


def missing(checkpoints: Checkpoints, numbers: list[int], out: Path) -> dict[int, tuple[int, int]]:
    """The runs that are neither finished here nor published: how many epochs they have, and batches of the next.

    Raises:
        BadInput: a checkpoint or what is published is unusable.
    """
    reached = {}
    for run in sorted(set(numbers) - published_runs(checkpoints.group, checkpoints.recipe, out)):
        state = checkpoints.latest(run)
        reached[run] = (state[1]["epoch"], state[1].get("batches", 0)) if state else (0, 0)
    return {run: far for run, far in reached.items() if far[0] < checkpoints.recipe.epochs(checkpoints.group)}


def complete(checkpoints: Checkpoints, numbers: list[int], out: Path) -> bool:
    """Whether these runs are published there at these epochs, or the whole of `paper` in place of `quick`.

    Raises:
        BadInput: as `publishing.look`.
    """
    group, recipe = checkpoints.group, checkpoints.recipe
    there, enough = look(group, out), {recipe.name: recipe.epochs(group)}
    if recipe.name == "quick":
        enough["paper"] = group.epochs
    return any(
        name in there and there[name].epochs >= epochs and {*numbers} <= {*there[name].runs}
        for name, epochs in enough.items()
    )


def estimate(checkpoints: Checkpoints, todo: Mapping[int, tuple[int, int]], device: str, precision: str) -> float:
    """Seconds that what `missing` found should take, from a few steps on random sums of the group's shape.

    On a GPU a step is one of all runs in lockstep.
    """
    group, recipe = checkpoints.group, checkpoints.recipe
    if not todo:
        return 0.0
    left = [recipe.epochs(group) - epoch - batches / group.steps for epoch, batches in todo.values()]
    waiting, stacked = list(todo), device != "cpu"
    small = replace(group, fraction=2 * group.batch / n_sums(group.n_digits), primed=0, parent=None)
    trainer = Trainer(small, recipe, waiting if stacked else [0], device, precision)
    batches = trainer.batches(trainer.train, group.batch)
    trainer.step(*batches[0], 0)["loss"].sum().item()
    began = time.perf_counter()
    for a, b in batches:
        trainer.step(a, b, 0)["loss"].sum().item()
    step = (time.perf_counter() - began) / len(batches)
    n_test = group.fraction * n_sums(group.n_digits) + (groups.N_LONG if group.padded else 0)
    epoch = step * (group.n_train + TESTING * n_test) / group.batch
    return epoch * (max(left) if stacked else sum(left))
