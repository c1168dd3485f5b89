"""From finished checkpoints to group files: which runs are put together, and what they may take the place of."""

import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor

from carry_core import manifest, runs
from carry_core.checkpoints import Checkpoints
from carry_core.errors import BadInput
from carry_core.files import locked
from carry_core.groups import RECIPES, Group, Recipe
from carry_core.words import counted, named


@dataclass(frozen=True)
class Run:
    """One run as it is published.

    Attributes:
        curves: its learning curves, `[epoch, …]`.
        record: how it was trained; of runs whose weights are kept.
        weights: float16, snapshots under `epoch_500/…`; empty if they are not kept.
    """

    curves: dict[str, NDArray[Any]]
    record: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Training:
    """Runs of one group by one recipe that got equally far, by their numbers, and where they are published."""

    recipe: str
    epochs: int
    runs: dict[int, Run]
    where: Path | None = None


def publish(checkpoints: Checkpoints, out: Path) -> str:
    """Put a group's finished runs together as its group file; says what was done, or why not.

    Published runs that have no checkpoint here stay, if they got as far. Runs with fewer epochs never replace those
    with more, and `paper` leads, whichever came first, where it has as many runs and as many epochs as `quick`; what is
    by the other recipe is kept beside, in a folder of that name.
    Weights are rounded to float16, which moves no number of the ledger by 0.001 (`tests/test_runs.py`, training.md).

    Raises:
        BadInput: a checkpoint is unusable, or the files cannot be written; what was published is untouched.
    """
    with locked(manifest.home(out)[0]):  # from the first look at what is there: another training may publish now
        return _publish(checkpoints, out)


def _publish(checkpoints: Checkpoints, out: Path) -> str:
    group, recipe = checkpoints.group, checkpoints.recipe
    new, behind = _finished(checkpoints)
    if new.epochs < recipe.epochs(group):
        if known := published_runs(group, recipe, out):
            return f"{group.name}: published already, as far or further: {_told(known)} by {recipe.name}."
        return f"{group.name}: no run has finished its {recipe.epochs(group)} epochs yet."
    put_back(group, out)
    check_usable(checkpoints, out)
    there = _published(group, out)
    mine, rival = there.pop(recipe.name, None), next(iter(there.values()), None)
    if mine is not None:
        lost = sorted(set(mine.runs) - set(new.runs))
        if mine.epochs > new.epochs or (mine.epochs < new.epochs and lost):
            return f"{group.name}: the {recipe.name} group with {mine.epochs} epochs, {_told(mine.runs)}, is kept."
        if mine.epochs == new.epochs:
            new = Training(recipe.name, new.epochs, mine.runs | new.runs)

    where = out
    if rival is not None and rival.where == out:
        if _leads(new, rival):
            keep_beside(out, group.name)
        else:
            where = out / recipe.name
    text = _save(where, group, new)
    if where == out:
        forget(out / recipe.name, group.name)
    waiting = "".join(f" Run {run} is at {epoch} epochs and waits." for run, epoch in behind.items())
    return f"{group.name}: {text}{waiting}"


def put_back(group: Group, out: Path) -> None:
    """Restore what a killed publishing had begun to replace."""
    for where in filter(Path.is_dir, (out, *(out / recipe for recipe in RECIPES))):
        manifest.put_back(where, _files(group.name))


def check_usable(checkpoints: Checkpoints, out: Path) -> None:
    """Find out before anything is trained, and before anything is replaced, whether what is published can be read.

    What cannot be read may be replaced where a checkpoint of each of its runs is here that got as far. Files that no
    manifest lists are those of a first publishing that was killed, and count for nothing.

    Raises:
        BadInput: one of the group's files is damaged, or gone without the other, and cannot be made again from here.
    """
    group = checkpoints.group
    for where in (out, *(out / recipe for recipe in RECIPES)):
        names = [name for name in _files(group.name) if (where / name).exists()]
        if names and any(manifest.expected(where, name) for name in _files(group.name)):
            try:
                runs.read(where, group.name)
            except BadInput as error:
                if not _at_hand(checkpoints, where):
                    raise BadInput(
                        f"Published runs of {group.name} in {where} cannot be read, and are not replaced: {error}"
                        f" Or move {' and '.join(names)} away."
                    ) from error


def _at_hand(checkpoints: Checkpoints, where: Path) -> bool:
    """Whether a damaged file still tells its runs, and there is a checkpoint of each of them that got as far."""
    group = checkpoints.group
    try:
        record = runs.describe(where / f"{group.name}.safetensors")["record"]
        curves_alone = range(group.n_runs) if group.kept < group.n_runs else ()  # untold by the weights
        states = [checkpoints.load(run) for run in {*curves_alone, *(run["run"] for run in record["runs"])}]
        return record["recipe"] == checkpoints.recipe.name and all(
            state is not None and state[1]["epoch"] >= record["epochs"] for state in states
        )
    except (SafetensorError, OSError, KeyError, ValueError):
        return False


def published_runs(group: Group, recipe: Recipe, out: Path) -> set[int]:
    """Runs that are published there with all epochs of a recipe, with or without their weights."""
    for where in (out, out / recipe.name):
        with suppress(BadInput):
            loaded, history = runs.read(where, group.name)
            if loaded.record["recipe"] == recipe.name and loaded.record["epochs"] >= recipe.epochs(group):
                return set(history["runs"].tolist())
    return set()


def _finished(checkpoints: Checkpoints) -> tuple[Training, dict[int, int]]:
    """The runs with a checkpoint that got furthest, and how far the others are."""
    states = {run: state for run in checkpoints.runs() if (state := checkpoints.load(run)) is not None}
    reached = {run: record["epoch"] for run, (_, record) in states.items()}
    epochs = max(reached.values(), default=0)
    hidden = {"dropout", "epoch", "batches", "group", "recipe", "adam_step"}
    found = {}
    for run, (tensors, record) in states.items():
        if reached[run] < epochs:
            continue
        weights = _part(tensors, "parameters/")
        for papers, (early, _) in checkpoints.snapshots(run, epochs).items():
            weights |= {f"epoch_{papers}/{name}": p for name, p in _part(early, "parameters/").items()}
        found[run] = Run(
            {name: curve.numpy() for name, curve in _part(tensors, "history/").items()},
            {key: value for key, value in record.items() if key not in hidden},
            {name: p.half() for name, p in weights.items()},
        )
    return Training(checkpoints.recipe.name, epochs, found), {r: e for r, e in reached.items() if e < epochs}


def _published(group: Group, out: Path) -> dict[str, Training]:
    """What can be read of a group's published runs by recipe: its own file, then what lies beside."""
    found: dict[str, Training] = {}
    for where in (out, *(out / recipe for recipe in RECIPES)):
        if not (where / f"{group.name}.safetensors").exists():
            continue
        try:
            loaded, history = runs.read(where, group.name)
        except BadInput:
            continue
        curves = {run: {k: v[i] for k, v in history.items() if k != "runs"} for i, run in enumerate(history["runs"])}
        each = {int(run): Run(curve) for run, curve in curves.items()}
        for i, run in enumerate(loaded.numbers):
            weights = {name: p[i].half() for name, p in loaded.weights.items()}
            for epoch, early in loaded.snapshots.items():
                weights |= {f"epoch_{epoch}/{name}": p[i].half() for name, p in early.items()}
            each[run] = Run(each[run].curves, loaded.record["runs"][i], weights)
        recipe = loaded.record["recipe"]
        found.setdefault(recipe, Training(recipe, loaded.record["epochs"], each, where))
    return found


def _leads(new: Training, rival: Training) -> bool:
    """Whether the group's own file is to be by the recipe of `new`, and not by the other's."""
    paper, quick = (new, rival) if new.recipe == "paper" else (rival, new)
    stands_in = quick.epochs > paper.epochs or len(quick.runs) > len(paper.runs)
    return stands_in == (new is quick)


def _save(where: Path, group: Group, training: Training) -> str:
    """Write the files of a training; says what is in them, and what could not be."""
    numbers = sorted(training.runs)
    kept = [run for run in numbers if training.runs[run].weights]
    if len(numbers) <= group.n_runs:  # who trains more of them than the group has wants all their weights
        kept = kept[: group.kept]
    records = [training.runs[run].record for run in kept]
    weights, less = _stacked({run: training.runs[run].weights for run in kept}, torch.stack)
    curves, fewer = _stacked({run: training.runs[run].curves for run in numbers}, np.stack)
    curves["runs"] = np.array(numbers)
    record = {"recipe": training.recipe, "epochs": training.epochs, "runs": records}
    runs.save(where, group.name, group.config, weights, record, curves)
    precisions = " and ".join(sorted({r["precision"] for r in records}))
    told = f"{counted(len(kept), 'run')} of {counted(training.epochs, 'epoch')} in {precisions}"
    return f"published {told} to {where}.{less}{fewer}"


def _stacked(parts: dict[int, dict[str, Any]], stack: Any) -> tuple[dict[str, Any], str]:
    """What all of the runs have, `[run, …]`, and a sentence on what is left out since some have it not."""
    every = dict.fromkeys(name for part in parts.values() for name in part)
    lack = {name: [run for run, part in parts.items() if name not in part] for name in every}
    without = {name.split("/")[0]: _told(lack[name]) for name in every if lack[name]}
    left_out = "".join(f" Left out: {name}, missing in {who}." for name, who in without.items())
    return {name: stack([part[name] for part in parts.values()]) for name in every if not lack[name]}, left_out


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _told(found: Iterable[int]) -> str:
    return named("run", sorted(found))


def keep_beside(where: Path, group: str) -> None:
    """Copy a group's files into the folder of their recipe, before another recipe's take their place."""
    beside = where / runs.describe(where / f"{group}.safetensors")["record"]["recipe"]
    names = [name for name in _files(group) if (where / name).exists()]
    with manifest.replacing_all(beside, names) as temporaries:
        for name, temporary in zip(names, temporaries, strict=True):
            shutil.copyfile(where / name, temporary)


def _files(group: str) -> list[str]:
    return [f"{group}.{suffix}" for suffix in runs.SUFFIXES]


def forget(where: Path, group: str) -> None:
    """Remove a group's files, their manifest entries first: a kill leaves a file too many, none too few."""
    names = _files(group)
    if any((where / name).exists() for name in names):
        with locked(manifest.home(where)[0]):
            manifest.remove(where, names)
            for name in names:
                (where / name).unlink(missing_ok=True)
