"""From finished checkpoints to group files: which runs are put together, and what they may take the place of."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carry_core import manifest, runs
from carry_core.checkpoints import Checkpoints
from carry_core.errors import BadInput
from carry_core.groups import RECIPES, Group, Recipe
from carry_core.manifest import Publication
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
    """Runs of one group by one recipe that got equally far.

    Attributes:
        runs: by their numbers.
        folder: in which they are published: none, or that of their recipe with a slash.
    """

    recipe: str
    epochs: int
    runs: dict[int, Run]
    folder: str = ""


def publish(checkpoints: Checkpoints, out: Path) -> str:
    """Put a group's finished runs together as its group file; says what was done, or why not.

    Published runs stay, and those that have a checkpoint here join them if they got as far. Runs with fewer epochs
    never replace those with more, and `paper` leads, whichever came first, where it has as many runs and as many epochs
    as `quick`; what is by the other recipe is kept beside, in a folder of that name.
    Weights are rounded to float16, which moves no number of the ledger by 0.001 (`tests/test_runs.py`, training.md).

    Raises:
        BadInput: a checkpoint or what is published is unusable, or the files cannot be written; these are untouched.
    """
    with manifest.publication(out) as publication:  # from the first look on: another training may publish now
        return _publish(publication, checkpoints, out)


def _publish(publication: Publication, checkpoints: Checkpoints, out: Path) -> str:
    group, recipe = checkpoints.group, checkpoints.recipe
    new, behind = _finished(checkpoints)
    there = look(group, out)
    mine, rival = there.pop(recipe.name, None), next(iter(there.values()), None)
    if new.epochs < recipe.epochs(group):
        if mine is not None and mine.epochs >= recipe.epochs(group):
            told = _told(mine.runs)
            return f"{group.name}: published already, as far or further: {told} by {recipe.name}."
        return f"{group.name}: no run has finished its {recipe.epochs(group)} epochs yet."
    if mine is not None:
        lost = {*mine.runs} - {*new.runs}
        if mine.epochs > new.epochs or (mine.epochs < new.epochs and lost):
            return f"{group.name}: the {recipe.name} group with {mine.epochs} epochs, {_told(mine.runs)}, is kept."
        if mine.epochs == new.epochs:
            new = _joined(mine, new)

    folder = ""
    if rival is not None and not rival.folder:
        if _leads(new, rival):
            for name in runs.files_of(group.name):
                publication.copy(out / name, f"{rival.recipe}/{name}")
        else:
            folder = f"{recipe.name}/"
    text = _write(publication, out, folder, group, new, mine)
    if not folder:
        for name in runs.files_of(group.name):
            publication.remove(f"{recipe.name}/{name}")
    waiting = "".join(f" Run {run} is at {epoch} epochs and waits." for run, epoch in behind.items())
    return f"{group.name}: {text}{waiting}"


def look(group: Group, out: Path) -> dict[str, Training]:
    """What is published of a group by recipe: its own file, then what lies beside.

    Raises:
        BadInput: one of its files is damaged, or gone without the other, or in the folder of another recipe.
    """
    found: dict[str, Training] = {}
    with manifest.settled(out):
        for folder in ("", *(f"{recipe}/" for recipe in RECIPES)):
            names = [name for name in runs.files_of(group.name) if os.path.exists(out / folder / name)]  # noqa: PTH110
            if not names:
                continue
            if len(names) == 1:
                raise BadInput(
                    f"{out / folder / names[0]} is there without the other file of its group: restore that"
                    f" with git, or move {names[0]} away."
                )
            try:
                training = _read(group, out, folder)
            except BadInput as error:
                raise BadInput(
                    f"Published runs of {group.name} in {out / folder} cannot be read, and are not replaced: {error}"
                    f" Else move {' and '.join(names)} away."
                ) from error
            if training.recipe in found or folder not in ("", f"{training.recipe}/"):
                raise BadInput(
                    f"{out / folder} has runs of {group.name} by {training.recipe}, expected none or those of another"
                    f" recipe than {out} has: move them away."
                )
            found[training.recipe] = training
    return found


def published_runs(group: Group, recipe: Recipe, out: Path) -> set[int]:
    """Runs that are published there with all epochs of a recipe, with or without their weights.

    Raises:
        BadInput: as `look`.
    """
    there = look(group, out).get(recipe.name)
    return {*there.runs} if there is not None and there.epochs >= recipe.epochs(group) else set()


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


def _read(group: Group, out: Path, folder: str) -> Training:
    loaded, history = runs.read(out / folder, group.name)
    numbers, epochs = history["runs"].tolist(), history["test_loss"].shape[1] if "test_loss" in history else 0
    if loaded.record.get("recipe") not in RECIPES:
        raise BadInput(f"the recipe is {loaded.record.get('recipe')}, expected one of {', '.join(RECIPES)}.")
    if epochs != loaded.record["epochs"] or not {*loaded.numbers} <= {*numbers}:
        raise BadInput("its weights and its learning curves are of other runs or epochs.")
    each = {run: Run({k: v[i] for k, v in history.items() if k != "runs"}) for i, run in enumerate(numbers)}
    for i, run in enumerate(loaded.numbers):
        weights = {name: p[i].half() for name, p in loaded.weights.items()}
        for epoch, early in loaded.snapshots.items():
            weights |= {f"epoch_{epoch}/{name}": p[i].half() for name, p in early.items()}
        each[run] = Run(each[run].curves, loaded.record["runs"][i], weights)
    return Training(loaded.record["recipe"], loaded.record["epochs"], each, folder)


def _joined(published: Training, new: Training) -> Training:
    """Published runs and others that got as far; one that is published stays if nothing is missing of it."""
    stay = {
        run: known
        for run, known in published.runs.items()
        if run not in new.runs or {*known.weights} >= {*new.runs[run].weights}
    }
    return replace(new, runs=new.runs | stay)


def _leads(new: Training, rival: Training) -> bool:
    """Whether the group's own file is to be by the recipe of `new`, and not by the other's."""
    paper, quick = (new, rival) if new.recipe == "paper" else (rival, new)
    stands_in = quick.epochs > paper.epochs or len(quick.runs) > len(paper.runs)
    return stands_in == (new is quick)


def _write(
    publication: Publication, out: Path, folder: str, group: Group, training: Training, before: Training | None
) -> str:
    """Write the files of a training; says what is in them, and what could not be."""
    numbers = sorted(training.runs)
    kept = [run for run in numbers if training.runs[run].weights]
    if len(numbers) <= group.n_runs:  # who trains more of them than the group has wants all their weights
        had = [run for run in kept if before is not None and run in before.runs and before.runs[run].weights]
        kept = sorted([*had, *(run for run in kept if run not in had)][: max(group.kept, len(had))])
    records = [training.runs[run].record for run in kept]
    weights, less = _stacked({run: training.runs[run].weights for run in kept}, torch.stack)
    curves, fewer = _stacked({run: training.runs[run].curves for run in numbers}, np.stack)
    curves["runs"] = np.array(numbers)
    record = {"recipe": training.recipe, "epochs": training.epochs, "runs": records}
    runs.write(publication, folder + group.name, group.config, weights, record, curves)
    precisions = " and ".join(sorted({r["precision"] for r in records}))
    told = f"{counted(len(kept), 'run')} of {counted(training.epochs, 'epoch')} in {precisions}"
    return f"published {told} to {out / folder}.{less}{fewer}"


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
