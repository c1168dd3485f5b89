"""Learning curves: what `training/trainer.py` wrote beside a run's weights, of a group's runs together."""

import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carry_core.errors import BadInput
from carry_core.runs import damaged, find, folder, missing

History = dict[str, NDArray[Any]]


def load(
    group: str,
    source: str = "ours",
    run: int | None = None,
    *,
    recipe: str | None = None,
    runs: Collection[int] | None = None,
) -> History:
    """The learning curves of a group, `[run, epoch, …]` each, and the `runs` they belong to; as in `runs.load`.

    NaN where a run has no such curve or epoch. The author's release has the curves of other runs than weights.
    `BadInput` as in `runs.load`, or if `run` is not among them.
    """
    files = {number: path.with_suffix(".npz") for number, path in find(group, source, recipe=recipe, runs=runs).items()}
    if source == "author":
        released = {int(path.stem[3:]): path for path in (folder(source) / group).glob("run*.npz")}
        files = {number: released[number] for number in sorted(released) if runs is None or number in runs}
    paths = {number: path for number, path in files.items() if path.exists()}
    if not paths or set(runs or ()) - {*paths}:
        raise missing("learning curves", group, source, recipe, sorted(set(runs or ()) - {*paths}))
    if run not in (None, *paths):
        raise BadInput(f"No learning curves of run {run!r} of {group} from {source}: expected one of {[*paths]}.")
    curves = [_curves(path) for path in paths.values()]
    stacked = {"runs": np.array(list(paths))}
    for key in dict.fromkeys(key for of_run in curves for key in of_run):
        arrays = {i: of_run[key] for i, of_run in enumerate(curves) if key in of_run}
        shape = np.max([array.shape for array in arrays.values()], axis=0)
        stacked[key] = np.full((len(curves), *shape), np.nan, np.float32)
        for i, array in arrays.items():
            stacked[key][i, : len(array)] = array
    return stacked


def _curves(path: Path) -> History:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:  # else a damaged one stays open
            return {key: file[key] for key in file.files}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise damaged(path, str(error)) from error
