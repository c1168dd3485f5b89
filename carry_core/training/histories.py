"""Learning curves: what the trainer wrote beside a run's weights, of a group's runs together.

A run's file has `epochs`, after which it was tested, or was tested after all if it has none. Curves
called `train_…` have a row for every epoch, all others one for each test.
"""

import zipfile
from collections.abc import Collection, Sequence
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
    """The learning curves of a group, the `runs` they belong to and the `epochs` of their rows.

    Runs are chosen as in `runs.load`. Curves are `[run, row, …]`, NaN where a run has no such
    curve, or was not trained as far. A run is tested after some of its epochs only
    (`Recipe.tested`): rows are those epochs after which all runs were tested that came so far, and
    nothing is interpolated. The author's release has the curves of other runs than weights.
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
    return {"runs": np.array(list(paths))} | aligned(curves)


def aligned(curves: Sequence[History]) -> History:
    """Curves of several runs, `[row, …]` each, at `epochs` that all have that came so far."""
    tested = [of_run["epochs"] for of_run in curves]
    epochs = np.unique(np.concatenate(tested))
    for own in tested:
        epochs = epochs[np.isin(epochs, own) | (epochs > own[-1])]
    together: History = {"epochs": epochs}
    for name in dict.fromkeys(name for of_run in curves for name in of_run if name != "epochs"):
        shape = next(of_run[name].shape[1:] for of_run in curves if name in of_run)
        together[name] = np.full((len(curves), len(epochs), *shape), np.nan, np.float32)
        for rows, of_run in zip(together[name], curves, strict=True):
            if name in of_run:
                common = of_run[name][np.isin(of_run["epochs"], epochs)]
                rows[: len(common)] = common
    return together


def _curves(path: Path) -> History:
    """Curves of one run at the epochs after which it was tested, all if the file names none."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:  # else a damaged one stays open
            curves = {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise damaged(path, str(error)) from error
    n_rows = max((len(curve) for curve in curves.values()), default=0)
    epochs = curves.setdefault("epochs", np.arange(1, n_rows + 1))
    if epochs.dtype.kind not in "iu" or not len(epochs) or np.any(np.diff(epochs, prepend=0) < 1):
        raise damaged(path, "its epochs do not rise from 1")
    at_tests = {}
    for name, curve in curves.items():
        if len(curve) not in (len(epochs), epochs[-1]):
            expected = f"expected {len(epochs)} or {epochs[-1]}"
            raise damaged(path, f"{name} has {len(curve)} epochs, {expected}")
        at_tests[name] = curve if len(curve) == len(epochs) else curve[epochs - 1]
    return at_tests
