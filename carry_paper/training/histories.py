"""Learning curves: what the trainer wrote beside a run's weights, of a group's runs together.

A run's file has `epochs`, after which it was tested, or was tested after all if it has none. Curves
called `train_…` have a row for every epoch, all others one for each test.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from carry_core import carries, groups
from carry_core.errors import BadInput
from carry_core.files import damaged, read_arrays
from carry_core.groups import Group
from carry_core.runs import History, folder, leading, missing, numbered, remedy

PER_EPOCH = "train_"  # curves that have a value for every epoch also where only some were tested


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
    trained = leading(group, source, recipe, runs)
    files = {number: path.with_suffix(".npz") for number, (path, _) in trained.items()}
    if source == "author":
        released = numbered(folder(source) / group, ".npz")
        files = {
            number: released[number]
            for number in sorted(released)
            if runs is None or number in runs
        }
    paths = {number: path for number, path in files.items() if path.exists()}
    if not paths or set(runs or ()) - {*paths}:
        raise missing("learning curves", group, source, recipe, sorted(set(runs or ()) - {*paths}))
    if run not in (None, *paths):
        raise BadInput(
            f"No learning curves of run {run!r} of {group} from {source}: expected one of {[*paths]}."
        )
    curves = []
    for number, path in paths.items():
        epochs = trained[number][1]["epochs"] if source == "ours" else None
        curves.append(at_tests(read(path, groups.find(group), epochs)))
    return {"runs": np.array(list(paths))} | aligned(curves)


def read(path: Path, group: Group, epochs: int | None) -> History:
    """The curves of one run, `[epoch, …]`, of so many epochs, or of equally many if that is None; else `BadInput`."""
    curves = read_arrays(path, remedy(path))
    try:
        check(curves, group, epochs)
    except ValueError as error:
        raise damaged(path, str(error), remedy(path)) from error
    return curves


def check(curves: History, group: Group, epochs: int | None) -> None:
    """Raise `ValueError` unless curves have the names, shapes and lengths that a run of the group can have.

    A curve has a value for each of the `epochs` of the training, which are as many as the longest
    has if None is given. Where there is an array `epochs` with those after which the run was
    tested, all but `train_…` have one for each of these.
    """
    shapes = shapes_of_curves(group)
    if not curves.keys() & shapes.keys():
        raise ValueError("it has no curves")
    last = max(map(len, curves.values())) if epochs is None else epochs
    tested = curves.get("epochs", np.arange(1, last + 1))
    if tested.dtype.kind not in "iu" or tested.ndim != 1 or not len(tested):
        raise ValueError("its epochs are not whole numbers")
    if tested[0] < 1 or tested[-1] > last or (np.diff(tested) < 1).any():
        raise ValueError(f"its epochs do not ascend from 1 to {last}")
    for name, curve in curves.items():
        if name == "epochs":
            continue
        if name not in shapes:
            raise ValueError(f"{name!r} is no curve of {group.name}")
        expected = (last if name.startswith(PER_EPOCH) else len(tested), *shapes[name])
        if curve.shape != expected or curve.dtype.kind != "f":
            raise ValueError(
                f"{name} is {curve.dtype} {[*curve.shape]}, expected numbers {[*expected]}"
            )


def shapes_of_curves(group: Group) -> dict[str, tuple[int, ...]]:
    """The shape of one epoch of each curve that a run of the group can have, ours or the author's."""
    config, layout = group.config, group.config.layout
    digits = (len(layout.loss_positions),)
    pattern = (config.heads, layout.length, layout.length)
    shapes: dict[str, tuple[int, ...]] = {
        "weight_norm": (),
        "pattern": pattern if config.layers == 1 else (config.layers, *pattern),
        # classes NC, C@1, C@2, C all of three-digit sums: the author's only
        "class_accuracy": (4, 3),
        "class_corrected": (4, 3),
    }
    for sums in ("train", "test", "long"):
        shapes |= {f"{sums}_loss": (), f"{sums}_whole": (), f"{sums}_accuracy": digits}
    of_classes = (len(carries.patterns(group.n_digits)), *digits)
    return shapes | {"test_ablated_accuracy": of_classes, "test_ablated_corrected": of_classes}


def at_tests(curves: History) -> History:
    """Return the rows of a run's curves, as `read` gives them, at the `epochs` after which it was tested."""
    n_rows = max(map(len, curves.values()))
    epochs = curves.get("epochs", np.arange(1, n_rows + 1))
    rows = {"epochs": epochs}
    for name, curve in curves.items():
        every_epoch = name.startswith(PER_EPOCH)
        rows[name] = curve[epochs - 1] if every_epoch else curve
    return rows


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
