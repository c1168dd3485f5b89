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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex, TypeVar, cast

from numpy.typing import NDArray
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.files import author_dir, damaged, data_dir, is_packaged, open_tensors, reading
from carry_core.model import ModelConfig, Transformer, parameter_shapes

FORMAT = "2"
SOURCES = ("ours", "author")
LAST = 999  # the highest number of a run
FIRST = range(6)  # the runs that are loaded unless others are asked for
LEADING = "leading.json"  # the recipe that leads, by group, in the folder of our runs
RUN_FILE = re.compile("run(0|[1-9][0-9]*)")  # without its suffix: `run00` is no run
SUFFIX = ".safetensors"
REMEDY = "get it again, or train it again"  # for a damaged file

Record = dict[str, Any]
Weights = Mapping[str, Tensor]
History = dict[str, NDArray[Any]]
SomeRuns = TypeVar("SomeRuns", bound="Runs")  # not `Self`, with which beartype checks no class


# ---- a run's file


def describe(path: Path, group: str | None = None) -> "TrainedRun":
    """Return what a run's file says of the run, without its weights.

    Raises:
        BadInput: The file is damaged, has another format, or is not of this group or of the run
            that its name says.
    """
    with open_tensors(path, REMEDY) as file:
        metadata = file.metadata() or {}
        if "carry" not in metadata:
            raise BadInput(
                f"{path} has no record of its training, so its group is not known: "
                "expected a file that `carry train`, `make hub` or `save_run` wrote."
            )
        content: dict[str, Any] = json.loads(metadata["carry"])
        if content["format"] != FORMAT:
            raise ValueError(f"it has format {content['format']!r}, expected {FORMAT!r}")
        if group not in (None, content["group"]):
            raise ValueError(f"it is of {content['group']}, not of {group}")
        config, record = ModelConfig(**content["config"]), content["record"]
        if not isinstance(record["recipe"], str):
            raise ValueError(f"record.recipe: {record['recipe']!r} is no name")
        check_count("run", record["run"], 0)
        check_count("epochs", record["epochs"], 1)
        for epoch in record.get("snapshots", []):
            check_count("snapshot", epoch, 1)
        match = RUN_FILE.fullmatch(path.stem)
        if match and record["run"] != int(match[1]):
            raise ValueError(f"its record is of run {record['run']}")
    return TrainedRun(path, content["group"], config, record)


def check_count(name: str, value: object, lowest: int) -> None:
    """Raise `ValueError` unless an entry of a record is a whole number, `lowest` or more."""
    if type(value) is not int or value < lowest:
        raise ValueError(f"record.{name}: {value!r} is no whole number from {lowest} on")


class TrainedRun(NamedTuple):
    """A run's file, and what it says of the run: the group, its config, and the record."""

    path: Path
    group: str
    config: ModelConfig
    record: Record

    def weights_at(self, epoch: int | None) -> Weights:
        """Return the parameters in float32, at the epoch of a snapshot or, for None, at the end.

        Raises:
            BadInput: The file has no such parameters, or is no longer that of this run.
        """
        if describe(self.path).record != self.record:
            raise BadInput(f"{self.path} has changed since it was loaded: load it again.")
        prefix = "" if epoch is None else f"epoch_{epoch}/"
        weights = {}
        with open_tensors(self.path, REMEDY) as file:
            for name, shape in parameter_shapes(self.config).items():
                p = file.get_tensor(prefix + name)
                if p.shape != shape or not p.is_floating_point():
                    raise ValueError(
                        f"{prefix}{name} is {p.dtype} {[*p.shape]}, expected floats {[*shape]}"
                    )
                weights[name] = p.float()
        if not are_finite(weights):
            raise damaged(self.path, "it has weights that are not finite", REMEDY)
        return weights


def are_finite(tensors: Weights) -> bool:
    """Return True if no tensor has a NaN or an infinity."""
    return all(bool(p.isfinite().all()) for p in tensors.values())


def digest(weights: Weights) -> str:
    """Return the sha256 of parameters, by their names and their values in float32.

    It does not depend on the file that has them, nor on the order of the names.
    """
    sha256 = hashlib.sha256()
    for name, p in sorted(weights.items()):
        sha256.update(f"{name} {[*p.shape]}\n".encode())
        sha256.update(p.detach().cpu().float().contiguous().numpy().tobytes())
    return sha256.hexdigest()


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
    stored: Mapping[int, TrainedRun] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls: type[SomeRuns], group: str, source: str, trained: Mapping[int, TrainedRun]
    ) -> SomeRuns:
        """Return a group's runs, read from these files, which are of one training."""
        records = [run.record for run in trained.values()]
        epochs_of_runs = [set(record.get("snapshots", ())) for record in records]
        first = next(iter(trained.values()))
        return cls(
            group=group,
            source=source,
            config=first.config,
            numbers=tuple(trained),
            weights={number: run.weights_at(None) for number, run in trained.items()},
            record={key: first.record[key] for key in ("recipe", "epochs")} | {"runs": records},
            snapshots=tuple(sorted(set.intersection(*epochs_of_runs))),
            stored=trained,
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
            raise BadInput(
                f"No run {run!r} of {self.group} from {self.source}: expected one of {numbers}."
            )
        if epoch not in (None, self.record["epochs"], *self.snapshots):
            epochs = ", ".join(["None (the last)", *map(str, self.snapshots)])
            raise BadInput(
                f"No weights of {self.group} at epoch {epoch!r}: expected one of {epochs}."
            )
        number = int(run)
        weights = self.weights[number]
        if epoch in self.snapshots:
            weights = self.stored[number].weights_at(epoch)
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
    list in the folder of our runs. In place of a group's name, you may give the path of a run's
    file, or of a folder with the files of some runs, in it or one folder down: then their records
    say which runs they are, and `runs` chooses some of them. `source` is `ours`, unless it is
    `author` or a path's records say so.

    Raises:
        BadInput: There are no such runs, or they were not trained alike, or a file is missing,
            damaged, or of another version.
    """
    if is_path(name, source or "ours"):
        return Runs.of(*at_path(Path(name), runs, source, recipe))
    group, source = cast(str, name), source or "ours"
    place = folder(source) / group
    if source == "ours":
        place /= recipe or leading_recipe(group)
    elif recipe is not None:
        raise BadInput(f"recipe={recipe!r} with the author's runs, which have none: leave it out.")
    numbers = FIRST if runs is None else check_numbers(runs)
    paths = {number: path for number, path in numbered(place, SUFFIX).items() if number in numbers}
    absent = sorted(set(runs or ()) - paths.keys())
    if not paths or absent:
        listed = f" runs {','.join(map(str, absent))}" if absent else ""
        raise BadInput(
            f"No weights of {group}{listed} in {place}: expected files such as run0{SUFFIX}; "
            f"{where_others_are(place)}."
        )
    trained = {number: describe(path, group) for number, path in sorted(paths.items())}
    check_alike(place, trained.values())
    return Runs.of(group, source, trained)


def leading_recipe(group: str) -> str:
    """Return the recipe whose runs of a group are loaded: by the list, or the only one there is."""
    root = folder("ours")
    recipes = leading_recipes(root)
    trained = sorted(path.name for path in (root / group).glob("*") if path.is_dir())
    if group not in recipes and len(trained) != 1:
        names = ", ".join(list(recipes)[:8])
        raise BadInput(
            f"No group {group!r} with one recipe in {root}, or one that {LEADING} names: expected "
            f"a name such as {names}, one of recipes {trained}, or the path of a run's file; "
            f"{where_others_are(root)}."
        )
    return recipes.get(group) or trained[0]


def where_others_are(place: Path) -> str:
    """Return words that say how to get runs that a folder lacks."""
    if not is_packaged(place):
        return "train them, name another data folder in CARRY_DATA, or give a path"
    shipped = sorted(path.parent.parent.name for path in folder("ours").glob(f"*/*/run*{SUFFIX}"))
    return (
        f"the installed package has the runs of {', '.join(dict.fromkeys(shipped))} alone, and the "
        "repository has the others: name its data/ in CARRY_DATA"
    )


def leading_recipes(root: Path) -> dict[str, str]:
    """Return the list of the recipes that lead, by group, in a folder of runs."""
    path = root / LEADING
    if not path.exists():
        return {}
    with reading(path, "delete it and run `carry train` again"):
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
) -> tuple[str, str, dict[int, TrainedRun]]:
    """Return the group, the source and the files of the runs in a file or folder, by number.

    `source` and `recipe` are as in `load`; None for whatever the records say.

    Raises:
        BadInput: There is no such file, run, or record; or the runs were not trained alike, or
            are of another source or recipe.
    """
    files = [path]
    if path.is_dir():
        files = sorted(path.glob(f"*{SUFFIX}")) or sorted(path.glob(f"*/*{SUFFIX}"))
    if not files:
        raise BadInput(
            f"{path} has no runs: expected a folder with files such as run0{SUFFIX}, in it or one "
            "folder down."
        )
    described = [describe(file) for file in files]
    check_alike(path, described)
    first = described[0]
    trained = {run.record["run"]: run for run in described}
    if len(trained) < len(described):
        raise BadInput(f"{path} has several files of one run: expected one of each.")
    absent = sorted(set() if runs is None else set(check_numbers(runs)) - trained.keys())
    if absent:
        raise BadInput(f"{path} has no runs {absent}: expected some of {sorted(trained)}.")
    own_recipe = first.record["recipe"]
    own_source = "author" if own_recipe == "author" else "ours"
    if source not in (None, own_source) or recipe not in (None, own_recipe):
        raise BadInput(
            f"source={source!r}, recipe={recipe!r}, and {path} has runs of source {own_source!r}, "
            f"recipe {own_recipe!r}: leave both out with a path."
        )
    chosen = {run: trained[run] for run in sorted(trained) if runs is None or run in runs}
    return first.group, own_source, chosen


def check_alike(place: Path, trained: Collection[TrainedRun]) -> None:
    """Raise `BadInput` unless these runs are of one training."""
    trainings: dict[tuple[str, ModelConfig, str, int], str] = {}
    for path, group, config, record in trained:
        training = (group, config, record["recipe"], record["epochs"])
        words = f"{path.name} of {group}, recipe {record['recipe']}, {record['epochs']} epochs"
        trainings.setdefault(training, words)
    if len(trainings) > 1:
        raise BadInput(
            f"{place} has runs that were not trained alike ({'; '.join(trainings.values())}): "
            "expected those of one training; choose some by `runs`, or name one folder or file."
        )


# ---- which files they are


def folder(source: str) -> Path:
    """Return the folder with the groups of a source, which is `ours` or `author`."""
    if source not in SOURCES:
        raise BadInput(f"Unknown source {source!r}: expected 'ours' or 'author'.")
    return author_dir() if source == "author" else data_dir() / "runs"


def run_path(out: Path, group: str, recipe: str, run: int) -> Path:
    """Return the path of a run's weights in the folder `out`, such as `data/runs`."""
    return out / group / recipe / f"run{run}{SUFFIX}"


def check_numbers(runs: Any) -> Collection[int]:
    """Return numbers of runs; raise `BadInput` unless they are valid."""
    are_numbers = isinstance(runs, Collection) and all(
        isinstance(run, SupportsIndex) for run in runs
    )
    if not are_numbers or not len(runs) or not all(0 <= int(run) <= LAST for run in runs):
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
