"""Learning curves, which the trainer writes beside a run's weights.

A run's file lists the `epochs` after which the run was tested; without such a list, it was tested
after every epoch. Curves called `train_…` have a row for each epoch, all others one for each test.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from carry_core import carries
from carry_core.files import damaged
from carry_core.runs import REMEDY, History
from carry_train.files import read_arrays
from carry_train.groups import Group

PER_EPOCH = "train_"  # begins the names of curves that have a value for every epoch
UNBOUNDED = ("_loss", "weight_norm")  # all other curves are shares
ROUNDING = 1e-3  # of attention probabilities in float16


def read_curves(path: Path, group: Group, epochs: int | None) -> History:
    """Return a run's learning curves, `[row, …]` each; raise `BadInput` if they are damaged."""
    curves = read_arrays(path, REMEDY)
    try:
        check_curves(curves, group, epochs)
    except ValueError as error:
        raise damaged(path, str(error), REMEDY) from error
    return curves


def check_curves(curves: History, group: Group, epochs: int | None) -> None:
    """Raise `ValueError` unless a run of the group can have curves of such names and shapes.

    A curve has a value for each of the `epochs` of the training; if that is None, for as many
    as the longest curve has. If the file has an array `epochs`, of those after which the run
    was tested, all curves but `train_…` have a value for each of these instead.
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
        n_rows = last if name.startswith(PER_EPOCH) else len(tested)
        expected = (n_rows, *shapes[name])
        if curve.shape != expected or curve.dtype.kind != "f":
            raise ValueError(
                f"{name} is {curve.dtype} {[*curve.shape]}, expected numbers {[*expected]}"
            )
        highest = np.inf if name.endswith(UNBOUNDED) else 1 + ROUNDING
        if (curve < 0).any() or (curve > highest).any():
            raise ValueError(f"{name} has numbers that are not from 0 to {highest:.0f}")


def shapes_of_curves(group: Group) -> dict[str, tuple[int, ...]]:
    """Return the shape of a row of each curve that a run of the group can have, from any source."""
    config = group.config
    layout = config.layout
    digits = (len(layout.loss_positions),)
    pattern = (config.heads, layout.length, layout.length)
    shapes: dict[str, tuple[int, ...]] = {
        "weight_norm": (),
        "pattern": pattern if config.layers == 1 else (config.layers, *pattern),
        # The author's runs alone have these, for NC, C@1, C@2 and C all of three-digit sums.
        "class_accuracy": (4, 3),
        "class_corrected": (4, 3),
    }
    for sums in ("train", "test", "long"):
        shapes[f"{sums}_loss"] = ()
        shapes[f"{sums}_whole"] = ()
        shapes[f"{sums}_accuracy"] = digits
    of_classes = (len(carries.patterns(group.n_digits)), *digits)
    shapes["test_ablated_accuracy"] = of_classes
    shapes["test_ablated_corrected"] = of_classes
    return shapes


def at_tests(curves: History) -> History:
    """Return the rows of a run's curves at the `epochs` after which it was tested."""
    n_rows = max(map(len, curves.values()))
    epochs = curves.get("epochs", np.arange(1, n_rows + 1))
    rows = {"epochs": epochs}
    for name, curve in curves.items():
        every_epoch = name.startswith(PER_EPOCH)
        rows[name] = curve[epochs - 1] if every_epoch else curve
    return rows


def aligned(curves_of_runs: Sequence[History]) -> History:
    """Return the curves of several runs together, at the `epochs` that they have in common.

    An epoch counts as common if every run that got that far was tested after it. Curves are
    `[row, …]` in each run, and `[run, row, …]` together.
    """
    tested = [curves["epochs"] for curves in curves_of_runs]
    epochs = np.unique(np.concatenate(tested))
    for own_epochs in tested:
        in_run = np.isin(epochs, own_epochs)
        after_run = epochs > own_epochs[-1]
        epochs = epochs[in_run | after_run]

    shapes: dict[str, tuple[int, ...]] = {}
    for curves in curves_of_runs:
        for name, curve in curves.items():
            if name != "epochs":
                shapes.setdefault(name, curve.shape[1:])
    together: History = {"epochs": epochs}
    for name, shape in shapes.items():
        together[name] = np.full((len(tested), len(epochs), *shape), np.nan, np.float32)
        for rows, curves in zip(together[name], curves_of_runs, strict=True):
            if name in curves:
                common = curves[name][np.isin(curves["epochs"], epochs)]
                rows[: len(common)] = common
    return together
