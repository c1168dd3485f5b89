"""The runs that there are of a group, and the recipe whose runs stand for it.

`carry_core.load` reads runs by their files, or by a list in the data folder, `leading.json`. The
list is made here: `leading` decides whose runs lead, and `write_leading` writes it down. `load` and
`load_curves` below go by the same rule, know the epochs of each recipe, and say how to get what is
missing.
"""

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple, cast

import filelock
import numpy as np

from carry_core import runs as runs_module
from carry_core.errors import BadInput
from carry_core.files import damaged, data_dir, is_packaged
from carry_core.runs import (
    FIRST,
    LEADING,
    REMEDY,
    SUFFIX,
    History,
    Runs,
    TrainedRun,
    at_path,
    check_numbers,
    describe,
    folder,
    leading_recipes,
    numbered,
)
from carry_train import groups
from carry_train.curves import aligned, at_tests, read_curves
from carry_train.files import json_bytes, replacing
from carry_train.groups import Group
from carry_train.loop import runs_in_words

ENOUGH = 3  # finished runs by the paper's protocol that lead, even if `quick` has more


def epochs_of_recipe(group: Group, recipe: str) -> int:
    """Return the number of epochs in a whole training by one of our recipes, or by `author`."""
    return group.epochs if recipe == "author" else groups.RECIPES[recipe].planned_epochs(group)


def progress(group: Group, recipe: str, epochs: int) -> str:
    """Return the epochs that a training got through: `60`, or `1 of 5` if its recipe has more."""
    planned = epochs_of_recipe(group, recipe)
    return f"{epochs}" if epochs >= planned else f"{epochs} of {planned}"


class GroupRuns(Runs):
    """Runs of a group whose name says what its recipes are, so that their epochs have a plan."""

    @property
    def planned_epochs(self) -> int:
        """Epochs of the whole recipe; the runs may have been trained for only some of them."""
        return epochs_of_recipe(groups.find(self.group), self.record["recipe"])

    def check_epochs(self) -> None:
        """Raise `BadInput` if the runs' training is too short to be counted in epochs."""
        recipe = self.record["recipe"]
        if self.source == "ours" and groups.RECIPES[recipe].in_segments(groups.find(self.group)):
            raise BadInput(
                f"{self.group} was trained by the recipe “{recipe}”, which is too short for "
                "learning curves by epoch: expected runs of another, such as “quick”."
            )

    def own_epoch(self, paper_epoch: int | None) -> int:
        """Return the runs' own epoch that stands for one of the paper's.

        It lies at the same share of the whole training. If the weights at that epoch were not
        kept, it is the last one.
        """
        if paper_epoch is None or paper_epoch not in self.snapshots:
            return int(self.record["epochs"])
        share = self.planned_epochs / groups.find(self.group).epochs
        return max(1, round(share * paper_epoch))

    def paper_epochs(self) -> dict[int | None, int]:
        """Return the epochs that `model` takes, with the paper's epoch that each stands for.

        The end of the training has the key None.
        """
        paper_epochs: dict[int | None, int] = {epoch: epoch for epoch in self.snapshots}
        whole = groups.find(self.group).epochs
        paper_epochs[None] = round(whole * self.record["epochs"] / self.planned_epochs)
        return paper_epochs

    @property
    def stand_in(self) -> bool:
        """True for our runs if their recipe is not the paper's, or did not run to its end."""
        if self.source != "ours":
            return False
        whole = groups.find(self.group).epochs
        return bool(self.record["recipe"] != "paper" or self.record["epochs"] != whole)

    @property
    def training(self) -> str:
        """The recipe and how far the runs got by it: `recipe “paper”, 100 of 1000 epochs`."""
        group, recipe = groups.find(self.group), self.record["recipe"]
        epochs = progress(group, recipe, self.record["epochs"])
        unit = groups.RECIPES[recipe].unit(group) if recipe in groups.RECIPES else "epoch"
        return f"recipe “{recipe}”, {epochs} {unit}s"


def load(
    group: str | os.PathLike[str],
    source: str | None = None,
    *,
    recipe: str | None = None,
    runs: Collection[int] | None = None,
) -> GroupRuns:
    """Return the runs of a group, all of one recipe.

    They are those numbered `runs` (0 to 5 if None), of the recipe that leads (see `find`). In place
    of a group's name, you may give the path of a run's file, or of a folder with the files of some
    runs, in it or one folder down: then their records say which runs they are, and `runs` chooses
    some of them. `source` is `ours`, unless it is `author` or a path's records say so.

    Raises:
        BadInput: The group, source or recipe is unknown, or a file is missing, damaged, or
            of another version, or a path's runs are of another source or recipe.
    """
    name, source, trained = _chosen(group, source, recipe, runs)
    absent = sorted(set(runs or ()) - trained.keys())
    if not trained or absent:
        raise missing("weights", name, source, recipe, absent)
    return GroupRuns.of(name, source, trained)


def _chosen(
    group: str | os.PathLike[str],
    source: str | None,
    recipe: str | None,
    runs: Collection[int] | None,
) -> tuple[str, str, dict[int, TrainedRun]]:
    """Return the group, the source and the files of the runs that `load` is asked for."""
    if not is_path(group, source or "ours"):
        name, source = cast(str, group), source or "ours"
        return name, source, leading(name, source, recipe, runs)
    name, source, trained = at_path(Path(group), runs, source, recipe)
    for run in trained.values():
        check_fits(run, name)
    return name, source, trained


def is_path(group: str | os.PathLike[str], source: str = "ours") -> bool:
    """Return True if this is a path of runs and not the name of a group."""
    if isinstance(group, str):
        with suppress(BadInput):
            groups.find(group)
            return False
    return runs_module.is_path(group, source)


def load_curves(
    group: str | os.PathLike[str],
    source: str | None = None,
    run: int | None = None,
    *,
    recipe: str | None = None,
    runs: Collection[int] | None = None,
) -> History:
    """Return the learning curves of a group, their `runs` and the `epochs` of their rows.

    Runs are chosen as in `runs.load`, also by a path; the author's release has curves and weights
    of different runs. Curves are `[run, row, …]`, and NaN where a run has no such curve or was not
    trained that far. A run is tested after only some of its epochs (`Recipe.tested`). The rows are
    the epochs after which every run that got that far was tested: nothing is interpolated.

    Raises:
        BadInput: As `runs.load`; or `run` is not among the runs.
    """
    by_path = is_path(group, source or "ours")
    name, source, trained = _chosen(group, source, recipe, runs)
    paths = _of_author(name, runs) if source == "author" and not by_path else _curve_files(trained)
    if by_path and not paths:
        raise BadInput(
            f"No learning curves in {group}: expected files such as run0.npz beside the "
            "weights, as `carry train` writes them."
        )
    absent = [] if by_path else sorted(set(runs or ()) - paths.keys())
    if not paths or absent:
        raise missing("learning curves", name, source, recipe, absent)
    if run not in (None, *paths):
        raise BadInput(
            f"No learning curves of run {run!r} of {name} from {source}: "
            f"expected one of {[*paths]}."
        )

    curves_of_runs = []
    for number, path in paths.items():
        epochs = trained[number].record["epochs"] if source == "ours" else None
        curves = read_curves(path, groups.find(name), epochs)
        curves_of_runs.append(at_tests(curves))
    return {"runs": np.array(list(paths))} | aligned(curves_of_runs)


def _curve_files(trained: Mapping[int, TrainedRun]) -> dict[int, Path]:
    """Return the files with learning curves that stand beside runs, by the run's number."""
    paths = {number: run.path.with_suffix(".npz") for number, run in trained.items()}
    return {number: path for number, path in paths.items() if path.exists()}


def _of_author(name: str, runs: Collection[int] | None) -> dict[int, Path]:
    """Return the author's files with learning curves of a group, by the run's number."""
    paths = dict(sorted(numbered(folder("author") / name, ".npz").items()))
    return {number: path for number, path in paths.items() if runs is None or number in runs}


# ---- which files they are


def find(
    group: str,
    source: str = "ours",
    *,
    recipe: str | None = None,
    runs: Collection[int] | None = None,
) -> dict[int, Path]:
    """Return the files of the runs that `load` returns, by number; empty if there are none.

    The runs were all trained for the same number of epochs by one recipe: `paper`, if three of
    them or more have all its epochs (`ENOUGH`); else the one with the most runs, then the one with
    the most epochs, then `paper`. Those of a recipe that does not lead (`Recipe.leads`) are
    returned if there are no others, or by its name.

    Raises:
        BadInput: The group, source or recipe is unknown, or a file is damaged or not of this
            group.
    """
    trained = leading(group, source, recipe, runs)
    return {number: run.path for number, run in trained.items()}


def leading(
    group: str, source: str = "ours", recipe: str | None = None, runs: Collection[int] | None = None
) -> dict[int, TrainedRun]:
    """Return the files that `find` returns, each with its record; raise what it raises."""
    check_recipe(recipe, source)
    if runs is not None:
        check_numbers(runs)
    group_folder = folder(source) / groups.find(group).name
    if source == "author":
        folders = {"author": group_folder}
    else:
        folders = {name: group_folder / name for name in groups.RECIPES if recipe in (None, name)}
    numbers = FIRST if runs is None else runs
    return _leader(group, folders, numbers)


def _leader(
    group: str, folders: Mapping[str, Path], numbers: Collection[int]
) -> dict[int, TrainedRun]:
    """Return the runs that lead among those in the folders of some recipes."""
    leaders = {name: path for name, path in folders.items() if leads(name)}
    runs_by_rank = ranked(group, leaders, numbers) or ranked(group, folders, numbers)
    if not runs_by_rank:
        return {}

    protocol = Rank(groups.RECIPES["paper"].epochs(groups.find(group)), by_paper=True)
    leading_runs = runs_by_rank.get(protocol, {})
    if len(leading_runs) < ENOUGH:
        leading_runs = max(runs_by_rank.items(), key=lambda item: (len(item[1]), item[0]))[1]
    return dict(sorted(leading_runs.items()))


def leads(recipe: str) -> bool:
    """Return True if the runs of a recipe, or the author's, are loaded before those of others."""
    return recipe == "author" or groups.RECIPES[recipe].leads


class Rank(NamedTuple):
    """What decides between sets of as many runs: their epochs, then their recipe."""

    epochs: int
    by_paper: bool


def ranked(
    group: str, folders: Mapping[str, Path], numbers: Collection[int]
) -> dict[Rank, dict[int, TrainedRun]]:
    """Return the runs with these numbers, by rank; `folders` are those of each recipe.

    Raises:
        BadInput: A file is damaged, or its record is of another recipe.
    """
    runs_by_rank: dict[Rank, dict[int, TrainedRun]] = {}
    for name, recipe_folder in folders.items():
        for number, path in numbered(recipe_folder, SUFFIX).items():
            if number not in numbers:
                continue
            run = describe(path, group)
            check_fits(run, group)
            if run.record["recipe"] != name:
                reason = f"its record is of the recipe {run.record['recipe']}, not {name}"
                raise damaged(path, reason, REMEDY)
            rank = Rank(run.record["epochs"], name == "paper")
            runs_by_rank.setdefault(rank, {})[number] = run
    return runs_by_rank


def check_recipe(recipe: str | None, source: str) -> None:
    """Raise `BadInput` unless this is a recipe of ours, or None."""
    if recipe is None:
        return
    if source != "ours":
        raise BadInput(
            f"recipe={recipe!r} with the {source}'s runs, which have none: leave it out."
        )
    if recipe not in groups.RECIPES:
        raise BadInput(f"recipe={recipe!r}: expected one of {', '.join(groups.RECIPES)}.")


def check_fits(run: TrainedRun, group: str) -> None:
    """Raise `BadInput` unless a run's record is of a training that its group can have had."""
    path, _, config, record = run
    own_group = groups.find(group)
    recipes = [*groups.RECIPES, "author"]
    if record["recipe"] not in recipes:
        reason = f"record.recipe: {record['recipe']!r} is unknown, expected one of "
        raise damaged(path, reason + ", ".join(recipes), REMEDY)
    for name, expected in asdict(own_group.config).items():
        if getattr(config, name) == expected:
            continue
        reason = f"its config has {name} {getattr(config, name)!r}, and {group} has {expected!r}"
        raise damaged(path, reason, REMEDY)
    planned = epochs_of_recipe(own_group, record["recipe"])
    if record["epochs"] > planned:
        reason = f"its record has {record['epochs']} epochs, and its recipe {planned}"
        raise damaged(path, reason, REMEDY)


def write_leading(root: Path, group: str) -> None:
    """Write into a folder of runs which recipe leads a group, for `carry_core.load`.

    Several trainings may end at once, so the list is locked while it is read and written.
    """
    folders = {name: root / group / name for name in groups.RECIPES}
    recipe = _leader(group, folders, FIRST)
    if not recipe:
        return
    name = next(iter(recipe.values())).record["recipe"]
    with filelock.FileLock(root / f".{LEADING}.lock"):
        recipes = leading_recipes(root)
        if recipes.get(group) != name:
            with replacing(root / LEADING) as temporary:
                temporary.write_bytes(json_bytes(dict(sorted((recipes | {group: name}).items()))))


# ---- what is missing


def missing(
    kind: str, group: str, source: str, recipe: str | None = None, numbers: Collection[int] = ()
) -> BadInput:
    """Return the error that says what does not exist, and how to get it."""
    listed = ",".join(map(str, numbers))
    run_words = f" {runs_in_words(numbers)}" if listed else ""
    start = f"No {kind} of {group}{run_words} from {source} in {folder(source)}:"
    if source == "author":
        return BadInput(f"{start} `carry import-author DIR` imports what his release has.")
    if not data_dir().is_dir():
        return BadInput(f"{start} weights come with the repository; name its data/ in CARRY_DATA.")
    if is_packaged(folder(source)):
        return BadInput(
            f"{start} the installed package has {groups.MAIN} alone; the repository has "
            "the others: name its data/ in CARRY_DATA."
        )
    command = f"carry train {group}"
    if recipe:
        command += f" --recipe {recipe}"
    if listed:
        command += f" --runs {listed}"
    return BadInput(f"{start} make them with `{command}`.")
