"""From finished checkpoints to group files: which runs are put together, and what they may take the place of."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor

from carry_core import runs
from carry_core.checkpoints import Checkpoints
from carry_core.files import locked, replacing
from carry_core.groups import Group, Recipe
from carry_core.train import State


def publish(checkpoints: Checkpoints, out: Path) -> str:
    """Put a group's finished runs together as its group file; says what was done, or why not.

    A group with fewer epochs or runs never replaces one with more, `quick` never replaces `paper`, and `paper`
    replaces `quick` only when all its epochs are done. What is by the other recipe is kept beside, to be compared.
    Weights are rounded to float16, which moves no number of the ledger by 0.001 (`tests/test_runs.py`, training.md).
    """
    group, recipe = checkpoints.group, checkpoints.recipe
    folder = checkpoints.path(0).parent
    numbers = sorted(int(p.stem.removeprefix("run")) for p in folder.glob("run*.safetensors") if p.stem[3:].isdigit())
    states = [state for run in numbers if (state := checkpoints.load(run)) is not None]
    epochs = max((record["epoch"] for _, record in states), default=0)
    if epochs < recipe.epochs(group):
        return f"{group.name}: no run has finished its {recipe.epochs(group)} epochs yet."
    states = [state for state in states if state[1]["epoch"] == epochs]
    there, beside = _published(group, out), out / recipe.name
    if there is not None and there.recipe != recipe.name:
        if _replaces(group, there, recipe, states):
            keep_beside(out, group.name)
            there = None
        else:
            out, there = beside, _published(group, beside)
    if there is not None and not _replaces(group, there, recipe, states):
        return f"{group.name}: the {there.recipe} group with {there.epochs} epochs and {there.runs} run(s) is kept."

    kept = states[: group.kept] if len(states) <= group.n_runs else states  # who trains more of them wants them all
    weights = _stacked(kept, "parameters/")
    for epoch, papers in recipe.snapshots(group).items():
        early = [checkpoints.load(record["run"], epoch) for _, record in kept]
        if None not in early:
            weights |= {f"epoch_{papers}/{k}": v for k, v in _stacked([s for s in early if s], "parameters/").items()}
    weights = {name: p.half() for name, p in weights.items()}
    hidden = {"dropout", "epoch", "group", "recipe", "adam_step"}
    record = {
        "recipe": recipe.name, "epochs": epochs,
        "runs": [{key: value for key, value in r.items() if key not in hidden} for _, r in kept],
    }  # fmt: skip
    curves: runs.History = {key: value.numpy() for key, value in _stacked(states, "history/").items()}
    curves["runs"] = np.array([r["run"] for _, r in states])
    runs.save(out, group.name, group.config, weights, record, curves)
    if out != beside:
        forget(beside, group.name)
    return f"{group.name}: published {len(kept)} run(s) of {epochs} epochs to {out}."


def keep_beside(where: Path, group: str) -> None:
    """Copy a group's files into the folder of their recipe, before another recipe's take their place."""
    beside = where / runs.describe(where / f"{group}.safetensors")["record"]["recipe"]
    with locked(runs.manifest_folder(where)):
        for name in (f"{group}.{suffix}" for suffix in runs.SUFFIXES):
            if (where / name).exists():
                with replacing(beside / name) as temporary:
                    shutil.copyfile(where / name, temporary)
        runs.list_files(beside, group)


def forget(where: Path, group: str) -> None:
    """Remove a group's files and their manifest entries."""
    with locked(runs.manifest_folder(where)):
        for suffix in runs.SUFFIXES:
            (where / f"{group}.{suffix}").unlink(missing_ok=True)
        runs.list_files(where, group)


def _stacked(states: list[State], prefix: str) -> dict[str, Tensor]:
    keys = [key for key in states[0][0] if key.startswith(prefix)]
    return {key.removeprefix(prefix): torch.stack([tensors[key] for tensors, _ in states]) for key in keys}


class _There(NamedTuple):
    """What is published of a group: how it was trained, how far, and how many runs, of which not all may be kept."""

    recipe: str
    epochs: int
    runs: int


def _published(group: Group, out: Path) -> _There | None:
    """What `out` has of the group, None if nothing that can be read."""
    with suppress(OSError, SafetensorError, KeyError, ValueError, BadZipFile):
        record = runs.describe(out / f"{group.name}.safetensors")["record"]
        trained = len(record["runs"])
        with suppress(FileNotFoundError), np.load(out / f"{group.name}.history.npz", allow_pickle=False) as file:
            trained = max(trained, len(file["runs"]))
        return _There(record["recipe"], record["epochs"], trained)
    return None


def _replaces(group: Group, there: _There, recipe: Recipe, states: list[State]) -> bool:
    """Whether runs trained by `recipe` are to take the place of those that are there."""
    epochs, same = states[0][1]["epoch"], there.recipe == recipe.name
    enough = epochs >= (there.epochs if same else group.epochs) and len(states) >= there.runs
    return enough and (same or recipe.name != "quick")
