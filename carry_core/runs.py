"""Trained runs: reading and writing their files, and how far their training got.

A run is a pair of files. `data/runs/<group>/<recipe>/run<k>.safetensors` has

- the parameters, in float16, under the names of `model.Transformer`;
- those of earlier epochs, the run's snapshots, under `epoch_500/…`;
- in its metadata, as JSON, the group, its config and a record: recipe, run, seeds, epochs
  reached, precision, device, versions, commit.

`run<k>.npz` beside it has the learning curves, with attention patterns in float16; the module
`curves` reads them. A run exists if its safetensors file does, which is written last.

What was imported from the author's release is in `data/author/<group>/`, in the same format but in
float32. `load` also takes the path of such a file, or of a folder of them, wherever they are: also
of a group's folder, and of one that `make hub` wrote, whose files have no learning curves. Weights
that somebody converted to bfloat16 or float64 are loaded as well.
"""

import hashlib
import importlib.metadata
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from carry_core import groups
from carry_core.errors import BadInput
from carry_core.files import (
    author_dir,
    damaged,
    data_dir,
    is_packaged,
    open_tensors,
    replacing_all,
)
from carry_core.groups import Group
from carry_core.model import ModelConfig, Transformer, parameter_shapes

FORMAT = "2"
SOURCES = ("ours", "author")
LAST = 999  # the highest number of a run
FIRST = range(6)  # the runs that are loaded unless others are asked for
ENOUGH = 3  # finished runs by the paper's protocol that lead, even if `quick` has more
RUN_FILE = re.compile("run(0|[1-9][0-9]*)")  # without its suffix: `run00` is no run
SUFFIX = ".safetensors"
STORED_AS = ("F16", "BF16", "F32", "F64")  # safetensors' names of the types of weights
LISTED = 8  # folders that an error lists

Record = dict[str, Any]
Weights = Mapping[str, Tensor]
History = dict[str, NDArray[Any]]


# ---- what a file says of its run


@dataclass(frozen=True)
class RunFile:
    """The metadata of a run's file; anything that no training writes raises `ValueError`.

    Attributes:
        format: The version of the file's format.
        group: The name of the run's group.
        config: The shape of the model.
        record: How the run was trained: `recipe`, `run`, `epochs` and, if there are any,
            `snapshots`. Further entries give the device, the versions and the seeds.
    """

    format: str
    group: str
    config: dict[str, Any]
    record: Record

    def __post_init__(self) -> None:
        groups.find(self.group)
        if not isinstance(self.config, dict):
            raise ValueError("its config is no object")
        if not isinstance(self.record, dict):
            raise ValueError("its record is no object")
        recipe = self.record["recipe"]
        recipes = [*groups.RECIPES, "author"]
        if recipe not in recipes:
            raise ValueError(
                f"record.recipe: {recipe!r} is unknown, expected one of {', '.join(recipes)}"
            )
        check_count("run", self.record["run"], 0)
        check_count("epochs", self.record["epochs"], 1)
        snapshots = self.record.get("snapshots", [])
        if not isinstance(snapshots, list):
            raise ValueError("its snapshots are no list")
        for epoch in snapshots:
            check_count("snapshot", epoch, 1)
        check_seeds(self.record.get("seeds", {}))


def check_seeds(seeds: object) -> None:
    """Raise `ValueError` unless these are seeds by name; `parent` has those of a parent run."""
    if not isinstance(seeds, dict):
        raise ValueError("its seeds are no object")
    for name, seed in seeds.items():
        if name == "parent":
            check_seeds(seed)
        elif seed is not None:
            check_count(f"seeds.{name}", seed, 0)


def check_count(name: str, value: object, lowest: int) -> None:
    """Raise `ValueError` unless an entry of a record is a whole number, `lowest` or more."""
    if type(value) is not int or value < lowest:
        raise ValueError(f"record.{name}: {value!r} is no whole number from {lowest} on")


def describe(path: Path, group: str | None = None) -> dict[str, Any]:
    """Return the metadata of a run's file (`group`, `config`, `record`), without its weights.

    Raises:
        BadInput: The file is damaged, has another format or belongs to another group, or its
            record cannot be true.
    """
    with open_tensors(path, remedy(path, group)) as file:
        metadata_text = (file.metadata() or {}).get("carry")
        if metadata_text is None:
            raise BadInput(
                f"{path} has no record of its training, so its group is not known: "
                "expected a file that `carry train`, `make hub` or `runs.save_run` wrote."
            )
        content: dict[str, Any] = json.loads(metadata_text)
        version = content["format"]
        if version != FORMAT:
            raise BadInput(
                f"{path} has format {version!r}, expected {FORMAT!r}: "
                "use that carry-core's version."
            )
        metadata = RunFile(**content)
        own_group = groups.find(metadata.group)
        record = metadata.record
        if group not in (None, metadata.group):
            raise ValueError(f"it is of {metadata.group}, not of {group}")
        expected = asdict(own_group.config)
        differing = {name for name, _ in expected.items() ^ metadata.config.items()}
        if differing:
            name = min(differing)
            raise ValueError(
                f"its config has {name} {metadata.config.get(name)!r}, "
                f"and {metadata.group} has {expected.get(name)!r}"
            )
        planned = epochs_of_recipe(own_group, record["recipe"])
        if record["epochs"] > planned:
            raise ValueError(f"its record has {record['epochs']} epochs, and its recipe {planned}")
        last_snapshot = max(record.get("snapshots", ()), default=0)
        if last_snapshot > own_group.epochs:
            raise ValueError(
                f"its record has a snapshot of epoch {last_snapshot} of {own_group.epochs}"
            )
        match = RUN_FILE.fullmatch(path.stem)
        if match and record["run"] != int(match[1]):
            raise ValueError(f"its record is of run {record['run']}")
    return content


def epochs_of_recipe(group: Group, recipe: str) -> int:
    """Return the number of epochs in a whole training by one of our recipes, or by `author`."""
    return group.epochs if recipe == "author" else groups.RECIPES[recipe].planned_epochs(group)


def progress(group: Group, recipe: str, epochs: int) -> str:
    """Return the epochs that a training got through: `60`, or `1 of 5` if its recipe has more."""
    planned = epochs_of_recipe(group, recipe)
    return f"{epochs}" if epochs >= planned else f"{epochs} of {planned}"


# ---- the runs of a group


@dataclass(frozen=True)
class Runs:
    """Runs of one group that were trained alike.

    Attributes:
        group: The group's name.
        source: `ours` or `author`.
        config: The shape of the models.
        numbers: The numbers of the runs.
        weights: Each run's parameters by name.
        record: How the runs were trained: `recipe`, `epochs`, and the record of each in `runs`.
        snapshots: The earlier epochs at which the weights of all runs were kept, by the
            paper's count.
        stored: Each run's file, from which `model` reads the weights at these epochs.
    """

    group: str
    source: str
    config: ModelConfig
    numbers: tuple[int, ...]
    weights: Mapping[int, Weights] = field(repr=False)
    record: Record
    snapshots: tuple[int, ...] = ()
    stored: Mapping[int, "StoredWeights"] = field(default_factory=dict, repr=False)

    def model(self, run: SupportsIndex, epoch: int | None = None) -> Transformer:
        """Return one run as a new model, at the end or at the epoch of a snapshot.

        Snapshots are named by the paper's epochs; those of other recipes were kept at the same
        share of the training.

        Raises:
            BadInput: There is no such run or snapshot, or its file has changed.
        """
        if run not in self.numbers:
            numbers = ", ".join(map(str, self.numbers))
            hint = ", a number and not text" if isinstance(run, str) else ""
            raise BadInput(
                f"No run {run!r} of {self.group} from {self.source}: "
                f"expected one of {numbers}{hint}."
            )
        if epoch not in (None, self.record["epochs"], *self.snapshots):
            epochs = ", ".join(["None (the last)", *map(str, self.snapshots)])
            raise BadInput(
                f"No weights of {self.group} at epoch {epoch!r}: expected one of {epochs}."
            )
        number = int(run)
        is_snapshot = epoch is not None and epoch in self.snapshots
        weights = self.stored[number].at(epoch) if is_snapshot else self.weights[number]
        model = Transformer(self.config)
        model.load_state_dict(dict(weights))
        return model.requires_grad_(requires_grad=False).eval()

    def models(self) -> Iterator[tuple[int, Transformer]]:
        """Yield each run's number and model."""
        for run in self.numbers:
            yield run, self.model(run)

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
    source: str = "ours",
    *,
    recipe: str | None = None,
    runs: Collection[int] | None = None,
) -> Runs:
    """Return the runs of a group, all of one recipe.

    They are those numbered `runs` (0 to 5 if None), of the recipe that leads (see `find`). In place
    of a group's name, you may give the path of a run's file, or of a folder with the files of some
    runs, in it or one folder down: then their records say which runs they are, and `runs` chooses
    some of them.

    Raises:
        BadInput: The group, source or recipe is unknown, or a file is missing, damaged, or
            of another version.
    """
    if is_path(group):
        return load_path(Path(group), runs)
    name = cast(str, group)
    trained = leading(name, source, recipe, runs)
    absent = sorted(set(runs or ()) - trained.keys())
    if not trained or absent:
        raise missing("weights", name, source, recipe, absent)
    return loaded(name, source, trained)


def is_path(group: str | os.PathLike[str]) -> bool:
    """Return True if this is a path of runs and not the name of a group.

    A text without a slash is a path only if it is no group's name, and there is such a file.
    """
    if not isinstance(group, str):
        return isinstance(group, os.PathLike)
    if "/" in group or os.sep in group or group.endswith(SUFFIX):
        return True
    try:
        groups.find(group)
    except BadInput:
        return bool(group) and os.path.lexists(group)
    return False


def load_path(path: Path, runs: Collection[int] | None = None) -> Runs:
    """Return the runs in a file or in a folder of files, or those numbered `runs`.

    Raises:
        BadInput: As `at_path`.
    """
    return loaded(*at_path(path, runs))


def at_path(
    path: Path, runs: Collection[int] | None = None
) -> tuple[str, str, dict[int, "TrainedRun"]]:
    """Return the group, the source and the files of the runs in a file or folder, by number.

    Raises:
        BadInput: There is no such file, run, or record; or the runs were not trained alike.
    """
    files = _files_at(path)
    if runs is not None:
        check_numbers(runs)

    records: dict[Path, Record] = {}
    trainings: dict[tuple[str, str, int], Path] = {}
    for file in files:
        content = describe(file)
        record = records[file] = content["record"]
        trainings.setdefault((content["group"], record["recipe"], record["epochs"]), file)
    if len(trainings) > 1:
        described = []
        for (group, recipe, epochs), file in trainings.items():
            name = file.relative_to(path)
            described.append(f"{name} of {group}, recipe {recipe}, {epochs} epochs")
        raise BadInput(
            f"{path} has runs that were not trained alike ({'; '.join(described)}): "
            "expected those of one training; name their folder, or one file."
        )
    trained: dict[int, TrainedRun] = {}
    for file, record in records.items():
        if record["run"] in trained:
            other = trained[record["run"]].path
            raise BadInput(f"{other} and {file} are both of run {record['run']}: expected one.")
        trained[record["run"]] = TrainedRun(file, record)
    absent = sorted(set(runs or ()) - trained.keys())
    if absent:
        raise BadInput(
            f"{path} has no runs {','.join(map(str, absent))}: "
            f"expected some of {','.join(map(str, sorted(trained)))}."
        )
    chosen = {run: trained[run] for run in sorted(trained) if runs is None or run in runs}
    ((group, recipe, _),) = trainings
    return group, "author" if recipe == "author" else "ours", chosen


def _files_at(path: Path) -> list[Path]:
    """Return the file of weights at a path, or those in the folder there, or one folder down.

    Raises:
        BadInput: There are none; the message lists folders further down that have some.
    """
    if not os.path.lexists(path):
        raise BadInput(f"{path} does not exist: expected a run's file or a folder with some.")
    if path.is_dir():
        files = sorted(path.glob(f"*{SUFFIX}")) or _files_one_down(path)
        if not files:
            raise _no_runs(path)
        return files
    if path.is_file() and path.suffix != SUFFIX:
        raise BadInput(
            f"{path} is no file of weights: expected a run's file such as run0{SUFFIX}, or a "
            "folder with some."
        )
    return [path]


def _files_one_down(path: Path) -> list[Path]:
    """Return the files of weights in the folders in a folder.

    In one that `make hub` wrote, each run has a folder with its `config.json`. A file of weights
    that was not downloaded with it is listed as well, so that its reader reports it.
    """
    files = set(path.glob(f"*/*{SUFFIX}"))
    folders = {file.parent for file in files}
    for config in path.glob("*/config.json"):
        if config.parent not in folders:
            files.add(config.with_name(f"model{SUFFIX}"))
    return sorted(files)


def _no_runs(path: Path) -> BadInput:
    """Return the error that a folder has no runs, with the groups' folders further down."""
    groups_below: list[str] = []
    for file in [*path.glob(f"*/*/*{SUFFIX}"), *path.glob(f"*/*/*/*{SUFFIX}")]:
        group_folder = str(file.parent.parent.relative_to(path))
        if group_folder not in groups_below:
            with suppress(BadInput):  # such as a checkpoint
                describe(file)
                groups_below.append(group_folder)
    expected = f"expected a folder with files such as run0{SUFFIX}"
    if groups_below:
        listed = sorted(groups_below)
        more = ", …" if len(listed) > LISTED else ""
        expected += f"; name one of those further down: {', '.join(listed[:LISTED])}{more}"
    return BadInput(f"{path} has no runs: {expected}.")


def loaded(group: str, source: str, trained: Mapping[int, "TrainedRun"]) -> Runs:
    """Return a group's runs, read from these files."""
    config = groups.find(group).config
    stored = {run: StoredWeights(path, record, config) for run, (path, record) in trained.items()}
    records = [record for _, record in trained.values()]
    epochs_of_runs = [set(record.get("snapshots", ())) for record in records]
    return Runs(
        group=group,
        source=source,
        config=config,
        numbers=tuple(trained),
        weights={run: weights.at(None) for run, weights in stored.items()},
        record={"recipe": records[0]["recipe"], "epochs": records[0]["epochs"], "runs": records},
        snapshots=tuple(sorted(set.intersection(*epochs_of_runs))),
        stored=stored,
    )


# ---- which files they are


class TrainedRun(NamedTuple):
    """A run's file, and the record of how the run was trained."""

    path: Path
    record: Record


def folder(source: str) -> Path:
    """Return the folder with the groups of a source.

    Raises:
        BadInput: The source is neither `ours` nor `author`.
    """
    if source not in SOURCES:
        raise BadInput(f"Unknown source {source!r}: expected 'ours' or 'author'.")
    return author_dir() if source == "author" else data_dir() / "runs"


def run_path(out: Path, group: str, recipe: str, run: int) -> Path:
    """Return the path of a run's weights in the folder `out`, such as `data/runs`."""
    return out / group / recipe / f"run{run}.safetensors"


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
    """Return the files that `find` returns, each with its record.

    Raises:
        BadInput: As `find`.
    """
    check_recipe(recipe, source)
    if runs is not None:
        check_numbers(runs)
    group_folder = folder(source) / groups.find(group).name
    if source == "author":
        folders = {"author": group_folder}
    else:
        folders = {name: group_folder / name for name in groups.RECIPES if recipe in (None, name)}
    numbers = FIRST if runs is None else runs
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
            record = describe(path, group)["record"]
            if record["recipe"] != name:
                reason = f"its record is of the recipe {record['recipe']}, not {name}"
                raise damaged(path, reason, remedy(path))
            rank = Rank(record["epochs"], name == "paper")
            runs_by_rank.setdefault(rank, {})[number] = TrainedRun(path, record)
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


def check_numbers(runs: Any) -> None:
    """Raise `BadInput` unless these are valid numbers of runs."""
    are_numbers = isinstance(runs, Collection) and all(
        isinstance(run, SupportsIndex) for run in runs
    )
    if not are_numbers or not all(0 <= int(run) <= LAST for run in runs):
        raise BadInput(f"runs={runs!r}: expected numbers of runs from 0 to {LAST}, such as [0, 1].")


def numbered(place: Path, suffix: str) -> dict[int, Path]:
    """Return a folder's files of runs with this suffix, by the run's number."""
    paths = {}
    for path in sorted(place.glob(f"run*{suffix}")):
        match = RUN_FILE.fullmatch(path.stem)
        if match:
            paths[int(match[1])] = path
    return paths


def remedy(path: Path, group: str | None = None) -> str:
    """Return the remedy for a damaged file of a run that git does not track."""
    if path.is_relative_to(author_dir()):
        return "run `carry import-author DIR` again"
    if not path.is_relative_to(data_dir()):
        return "get it again, or train it again"
    if is_packaged(path):
        return "install carry-core again with `pip install --force-reinstall`"
    return f"move it away and train {group or path.parent.parent.name} again"


def missing(
    kind: str, group: str, source: str, recipe: str | None = None, numbers: Collection[int] = ()
) -> BadInput:
    """Return the error that says what does not exist, and how to get it."""
    listed = ",".join(map(str, numbers))
    run_words = f" runs {listed}" if listed else ""
    start = f"No {kind} of {group}{run_words} from {source} in {folder(source)}:"
    if source == "author":
        return BadInput(f"{start} `carry import-author DIR` imports what his release has.")
    if not data_dir().is_dir():
        return BadInput(f"{start} weights come with the repository; name its data/ in CARRY_DATA.")
    if is_packaged(folder(source)):
        return BadInput(
            f"{start} the installed package has {groups.MAIN} alone; the repository{address()} has "
            "the others: name its data/ in CARRY_DATA."
        )
    command = f"carry train {group}"
    if recipe:
        command += f" --recipe {recipe}"
    if listed:
        command += f" --runs {listed}"
    return BadInput(f"{start} make them with `{command}`.")


def address() -> str:
    """Return where the repository is, in words that follow its name; "" if nobody has said."""
    try:
        labelled_urls = importlib.metadata.metadata("carry-core").get_all("Project-URL", [])
    except importlib.metadata.PackageNotFoundError:
        return ""
    for labelled_url in labelled_urls:
        label, _, url = labelled_url.partition(", ")
        if label == "Source":
            return f" at {url}"
    return ""


# ---- weights


def snapshot_prefix(epoch: int | None) -> str:
    """Return the prefix of a parameter's name in a file; "" at the end of the training."""
    return "" if epoch is None else f"epoch_{epoch}/"


class StoredWeights:
    """The weights in a run's file: names and shapes are checked at once, values when read."""

    def __init__(self, path: Path, record: Record, config: ModelConfig) -> None:
        """Check which parameters the file has, without reading their values.

        Raises:
            BadInput: The file's parameters are not the model's, or differ in shape or type.
        """
        self.path = path
        self.shapes = parameter_shapes(config)
        self.version = _version(path)
        expected = {}
        for epoch in [None, *record.get("snapshots", ())]:
            for name, shape in self.shapes.items():
                expected[snapshot_prefix(epoch) + name] = [*shape]

        with open_tensors(path, remedy(path)) as file:
            stored = {}
            for name in file.keys():  # noqa: SIM118 (not a dict)
                entry = file.get_slice(name)
                stored[name] = (entry.get_dtype(), entry.get_shape())
        differing = sorted(stored.keys() ^ expected.keys())
        if differing:
            name = differing[0]
            amount = "many" if name in stored else "few"
            raise damaged(path, f"it has {name!r} too {amount}", remedy(path))
        for name, (dtype, shape) in stored.items():
            if dtype not in STORED_AS or shape != expected[name]:
                types = f"{', '.join(STORED_AS[:-1])} or {STORED_AS[-1]}"
                reason = f"{name} is {dtype} {shape}, expected {types} {expected[name]}"
                raise damaged(path, reason, remedy(path))

    def at(self, epoch: int | None) -> Weights:
        """Return the parameters in float32, at the epoch of a snapshot or, for None, at the end.

        Raises:
            BadInput: They are not finite, or the file is no longer the one that was checked.
        """
        prefix = snapshot_prefix(epoch)
        with open_tensors(self.path, remedy(self.path)) as file:
            if _version(self.path) != self.version:
                raise BadInput(f"{self.path} has changed since it was loaded: load it again.")
            weights = {name: file.get_tensor(prefix + name).float() for name in self.shapes}
        if not are_finite(weights):
            raise damaged(self.path, "it has weights that are not finite", remedy(self.path))
        return weights


def _version(path: Path) -> tuple[int, int, int] | None:
    """Return a key that changes when a file is rewritten; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def are_finite(tensors: Weights) -> bool:
    """Return True if no tensor has a NaN or an infinity.

    It is enough to look at the sum of each, which takes half as long as looking at all values.
    """
    totals = torch.stack([p.sum() for p in tensors.values()])
    return bool(totals.isfinite().all())


def digest(weights: Weights) -> str:
    """Return the sha256 of parameters, by their names and their values in float32.

    It does not depend on the file that has them, nor on the order of the names.
    """
    sha256 = hashlib.sha256()
    for name, p in sorted(weights.items()):
        sha256.update(f"{name} {[*p.shape]}\n".encode())
        sha256.update(p.detach().cpu().float().contiguous().numpy().tobytes())
    return sha256.hexdigest()


def digest_of_file(path: Path) -> str:
    """Return the `digest` of the parameters in a run's file, at the end of its training.

    Raises:
        BadInput: The file is missing or damaged.
    """
    with open_tensors(path, remedy(path)) as file:
        names = [name for name in file.keys() if "/" not in name]  # noqa: SIM118 (not a dict)
        return digest({name: file.get_tensor(name) for name in names})


def save_run(
    path: Path, group: Group, weights: Weights, record: Record, curves: History | None = None
) -> None:
    """Write a run's pair of files, both or neither.

    Args:
        path: The path of the safetensors file; learning curves are written beside it.
        group: The run's group.
        weights: Parameters by name, snapshots under `epoch_500/…`.
        record: At least `run`, `recipe` and `epochs`.
        curves: Learning curves, `[row, …]` each.

    Raises:
        BadInput: The files cannot be written, or weights are not finite.
    """
    if not are_finite(weights):
        raise BadInput(
            f"Run {record['run']} of {group.name} has weights that are not finite: "
            "it is not written."
        )
    prefixes = {name.split("/")[0] for name in weights if "/" in name}
    snapshots = sorted(int(prefix.removeprefix("epoch_")) for prefix in prefixes)
    if snapshots:
        record = record | {"snapshots": snapshots}
    metadata = {
        "format": FORMAT,
        "group": group.name,
        "config": asdict(group.config),
        "record": record,
    }
    paths = [path.with_suffix(".npz"), path] if curves else [path]
    with replacing_all(*paths) as temporaries:
        if curves:
            with temporaries[0].open("wb") as file:
                # NumPy before 2.2 would store the option `allow_pickle` as one more array.
                np.savez_compressed(file, **cast(dict[str, Any], curves))
        contiguous = {name: p.contiguous() for name, p in weights.items()}
        # All metadata is one entry, since safetensors writes several in random order.
        save_file(contiguous, temporaries[-1], {"carry": json.dumps(metadata)})
