"""Trained runs: reading their files, which `carry_train.files.save_run` writes.

A run is a pair of files. `data/runs/<group>/<recipe>/run<k>.safetensors` has

- the parameters, in float16, under the names of `model.Transformer`;
- those of earlier epochs, the run's snapshots, under `epoch_500/…`;
- in its metadata, as JSON, the group, its config and a record: recipe, run, seeds, epochs
  reached, precision, device, versions, commit.

`run<k>.npz` beside it has the learning curves, with attention patterns in float16. A run exists if
its safetensors file does, which is written last. `data/runs/leading.json` names, for each group,
the recipe whose runs `load` returns: training keeps it.

What was imported from the author's release is in `data/author/<group>/`, in the same format but in
float32. `load` also takes the path of such a file, or of a folder of them, wherever they are: also
of a group's folder, and of one that `make hub` wrote, whose files have no learning curves. Weights
that somebody converted to bfloat16 or float64 are loaded as well.
"""

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, TypeVar, cast

import torch
from numpy.typing import NDArray
from torch import Tensor

from carry_core.errors import BadInput, moved
from carry_core.files import author_dir, damaged, data_dir, is_packaged, open_tensors, reading
from carry_core.model import ModelConfig, Transformer, parameter_shapes

FORMAT = "2"
SOURCES = ("ours", "author")
LAST = 999  # the highest number of a run
FIRST = range(6)  # the runs that are loaded unless others are asked for
LEADING = "leading.json"  # the recipe that leads, by group, in the folder of our runs
RUN_FILE = re.compile("run(0|[1-9][0-9]*)")  # without its suffix: `run00` is no run
SUFFIX = ".safetensors"
STORED_AS = ("F16", "BF16", "F32", "F64")  # safetensors' names of the types of weights
LISTED = 8  # folders that an error lists
# The types of entries that a run's record, or that of a session, has if they are known.
TEXTS = ("recipe", "precision", "device", "torch", "numpy", "commit", "kernel")
KINDS = dict.fromkeys(TEXTS, str) | {"seeds": dict, "sessions": list}

Record = dict[str, Any]
Weights = Mapping[str, Tensor]
History = dict[str, NDArray[Any]]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> None:
        raise moved(__name__, "NamedConfig save_run", name)


# ---- what a file says of its run


def describe(path: Path, group: str | None = None) -> dict[str, Any]:
    """Return the metadata of a run's file (`group`, `config`, `record`), without its weights.

    Raises:
        BadInput: The file is damaged, has another format, or is not of this group or of the run
            that its name says.
    """
    with open_tensors(path, remedy(path, group)) as file:
        metadata_text = (file.metadata() or {}).get("carry")
        if metadata_text is None:
            raise BadInput(
                f"{path} has no record of its training, so its group is not known: "
                "expected a file that `carry train`, `make hub` or `save_run` wrote."
            )
        content: dict[str, Any] = json.loads(metadata_text)
        version = content["format"]
        if version != FORMAT:
            raise BadInput(
                f"{path} has format {version!r}, expected {FORMAT!r}: "
                "use that carry-core's version."
            )
        if group not in (None, content["group"]):
            raise ValueError(f"it is of {content['group']}, not of {group}")
        ModelConfig(**content["config"])
        check_record(content["record"])
        match = RUN_FILE.fullmatch(path.stem)
        if match and content["record"]["run"] != int(match[1]):
            raise ValueError(f"its record is of run {content['record']['run']}")
    return content


def check_record(record: Record) -> None:
    """Raise an error unless a training can have written this record.

    It has at least `recipe`, `run` and `epochs`, and `snapshots` if there are any; and in
    `sessions`, records of the parts of a training that was interrupted.
    """
    if not record["recipe"]:
        raise ValueError("record.recipe has no name")
    for session in (record, *record.get("sessions", ())):
        for name, kind in KINDS.items():
            if type(session.get(name, kind())) is not kind:
                raise ValueError(f"record.{name}: {session[name]!r} is no {kind.__name__}")
    check_count("run", record["run"], 0)
    check_count("epochs", record["epochs"], 1)
    for epoch in record.get("snapshots", []):
        check_count("snapshot", epoch, 1)


def check_count(name: str, value: object, lowest: int) -> None:
    """Raise `ValueError` unless an entry of a record is a whole number, `lowest` or more."""
    if type(value) is not int or value < lowest:
        raise ValueError(f"record.{name}: {value!r} is no whole number from {lowest} on")


# ---- the runs of a group

SomeRuns = TypeVar("SomeRuns", bound="Runs")  # not `Self`, with which beartype checks no class


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

    @classmethod
    def of(
        cls: type[SomeRuns], group: str, source: str, trained: Mapping[int, "TrainedRun"]
    ) -> SomeRuns:
        """Return a group's runs, read from these files, which are of one training."""
        stored = {number: StoredWeights(*run) for number, run in trained.items()}
        records = [run.record for run in trained.values()]
        epochs_of_runs = [set(record.get("snapshots", ())) for record in records]
        recipe, epochs = records[0]["recipe"], records[0]["epochs"]
        return cls(
            group=group,
            source=source,
            config=next(iter(trained.values())).config,
            numbers=tuple(trained),
            weights={run: weights.at(None) for run, weights in stored.items()},
            record={"recipe": recipe, "epochs": epochs, "runs": records},
            snapshots=tuple(sorted(set.intersection(*epochs_of_runs))),
            stored=stored,
        )

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


def load(
    name: str | os.PathLike[str],
    source: str | None = None,
    *,
    recipe: str | None = None,
    runs: Collection[int] | None = None,
) -> Runs:
    """Return the runs of a group, all of one training.

    They are those numbered `runs` (0 to 5 if None), of this recipe, or of the one that leads by the
    list in the folder of our runs; where that has none of these numbers, of another that has. Of
    runs that were trained for different numbers of epochs, they are the most that are alike. In
    place of a group's name, you may give the path of a run's file,
    or of a folder with the files of some runs, in it or one folder down: then their records say
    which runs they are, and `runs` chooses some of them. `source` is `ours`, unless it is
    `author` or a path's records say so.

    Raises:
        BadInput: There are no such runs, or a file is missing, damaged, or of another version.
    """
    if is_path(name, source or "ours"):
        return Runs.of(*at_path(Path(name), runs, source, recipe))
    group, source = cast(str, name), source or "ours"
    if recipe is not None and source != "ours":
        raise BadInput(
            f"recipe={recipe!r} with the {source}'s runs, which have none: leave it out."
        )
    place = folder(source) / group
    places = [place]
    if source == "ours":
        place /= recipe or leading_recipe(group)
        others = [] if recipe else sorted(place.parent.glob("*"), reverse=True)
        places = [place, *others]
    numbers = check_numbers(FIRST if runs is None else runs)
    trained = (_most_alike(folder_of_recipe, group, numbers) for folder_of_recipe in places)
    alike = next(filter(None, trained), {})
    absent = sorted(set(runs or ()) - alike.keys())
    if not alike or absent:
        listed = f" runs {','.join(map(str, absent))}" if absent else ""
        raise BadInput(
            f"No weights of {group}{listed} in {place}: expected files such as run0{SUFFIX}; "
            "train them, name another data folder in CARRY_DATA, or give a path."
        )
    return Runs.of(group, source, dict(sorted(alike.items())))


def _most_alike(place: Path, group: str, numbers: Collection[int]) -> dict[int, "TrainedRun"]:
    """Return the runs with these numbers in a folder: the most that have equal epochs."""
    by_epochs: dict[int, dict[int, TrainedRun]] = {}
    for number, path in numbered(place, SUFFIX).items():
        if number in numbers:
            run = TrainedRun.at(path, group)
            by_epochs.setdefault(run.record["epochs"], {})[number] = run
    return max(by_epochs.items(), key=lambda item: (len(item[1]), item[0]), default=(0, {}))[1]


def leading_recipe(group: str) -> str:
    """Return the recipe whose runs of a group are loaded: by the list, or the only one there is.

    Raises:
        BadInput: The group is not on the list, or the list is damaged.
    """
    root = folder("ours")
    recipes = leading_recipes(root)
    if group in recipes:
        return recipes[group]
    trained = sorted(path.name for path in (root / group).glob("*") if path.is_dir())
    if len(trained) == 1:
        return trained[0]
    if trained:
        raise BadInput(
            f"{group} in {root} has runs by {', '.join(trained)}, and {LEADING} names none of "
            f"them: name one, as in recipe={trained[0]!r}."
        )
    names = ", ".join(list(recipes)[:LISTED]) or "n2_s0.3_w0.2"
    raise BadInput(
        f"No group {group!r} in {root}: expected a name such as {names}, or the path of a run's "
        "file or of a folder with some."
    )


def leading_recipes(root: Path) -> dict[str, str]:
    """Return the list of the recipes that lead, by group, in a folder of runs."""
    path = root / LEADING
    if not path.exists():
        return {}
    remedy_for_list = "delete it and run `carry train` again"
    with reading(path, remedy_for_list):
        recipes = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): str(recipe) for name, recipe in recipes.items()}


def is_path(name: str | os.PathLike[str], source: str = "ours") -> bool:
    """Return True if this is a path of runs and not the name of a group.

    A text without a slash is a path only if there is no group of this name, and such a file.
    """
    if not isinstance(name, str):
        return isinstance(name, os.PathLike)
    if "/" in name or os.sep in name or name.endswith(SUFFIX):
        return True
    is_group = (folder(source) / name).is_dir() or name in leading_recipes(folder("ours"))
    return bool(name) and not is_group and os.path.lexists(name)


def at_path(
    path: Path,
    runs: Collection[int] | None = None,
    source: str | None = None,
    recipe: str | None = None,
) -> tuple[str, str, dict[int, "TrainedRun"]]:
    """Return the group, the source and the files of the runs in a file or folder, by number.

    `source` and `recipe` are as in `load`; None for whatever the records say.

    Raises:
        BadInput: There is no such file, run, or record; or the runs were not trained alike, or
            are of another source or recipe.
    """
    files = _files_at(path)
    if runs is not None:
        check_numbers(runs)

    described_runs: dict[Path, TrainedRun] = {}
    trainings: dict[tuple[str, ModelConfig, str, int], Path] = {}
    for file in files:
        group = describe(file)["group"]
        run = described_runs[file] = TrainedRun.at(file, group)
        trainings.setdefault((group, run.config, run.record["recipe"], run.record["epochs"]), file)
    if len(trainings) > 1:
        described = []
        for (group, _, recipe, epochs), file in trainings.items():
            name = file.relative_to(path)
            described.append(f"{name} of {group}, recipe {recipe}, {epochs} epochs")
        raise BadInput(
            f"{path} has runs that were not trained alike ({'; '.join(described)}): "
            "expected those of one training; name their folder, or one file."
        )
    trained: dict[int, TrainedRun] = {}
    for file, run in described_runs.items():
        number = run.record["run"]
        if number in trained:
            other = trained[number].path
            raise BadInput(f"{other} and {file} are both of run {number}: expected one.")
        trained[number] = run
    absent = sorted(set(runs or ()) - trained.keys())
    if absent:
        raise BadInput(
            f"{path} has no runs {','.join(map(str, absent))}: "
            f"expected some of {','.join(map(str, sorted(trained)))}."
        )
    chosen = {run: trained[run] for run in sorted(trained) if runs is None or run in runs}
    ((group, _, own_recipe, _),) = trainings
    own_source = "author" if own_recipe == "author" else "ours"
    if source not in (None, own_source) or recipe not in (None, own_recipe):
        raise BadInput(
            f"source={source!r}, recipe={recipe!r}, and {path} has runs of source {own_source!r}, "
            f"recipe {own_recipe!r}: leave both out with a path."
        )
    return group, own_source, chosen


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


# ---- which files they are


class TrainedRun(NamedTuple):
    """A run's file, the record of how the run was trained, and the shape of the model."""

    path: Path
    record: Record
    config: ModelConfig

    @classmethod
    def at(cls, path: Path, group: str) -> "TrainedRun":
        """Return the run in a file of this group; raise `BadInput` as `describe`."""
        content = describe(path, group)
        return cls(path, content["record"], ModelConfig(**content["config"]))


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


def check_numbers(runs: Any) -> Collection[int]:
    """Return numbers of runs; raise `BadInput` unless they are valid."""
    are_numbers = isinstance(runs, Collection) and all(
        isinstance(run, SupportsIndex) for run in runs
    )
    if not are_numbers or not all(0 <= int(run) <= LAST for run in runs):
        raise BadInput(f"runs={runs!r}: expected numbers of runs from 0 to {LAST}, such as [0, 1].")
    return cast(Collection[int], runs)


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
