"""Trained runs: a pair of files each, and those of a group together.

`data/runs/<group>/<recipe>/run<k>.safetensors` holds a run's parameters in float16 under the names of
`model.Transformer`, those of earlier epochs under `epoch_500/…`, and as JSON in its metadata the group, its config and
a record: recipe, run (its only seed), epochs reached, precision, device, versions, commit. `run<k>.npz` beside it has
the learning curves, `[epoch, …]`, attention patterns in float16. A run exists if its safetensors does, which is written
last. What was imported from the author's release is in `data/author/<group>/` likewise, in float32.
"""

import json
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from carry_core import groups
from carry_core.errors import BadInput
from carry_core.files import author_dir, data_dir, replacing
from carry_core.model import ModelConfig, Transformer

FORMAT = "2"
SOURCES = ("ours", "author")
FIRST = range(6)  # the runs of a group that stand for it; others are there for who asks for them
MIN_EXAMPLES, MAX_EXAMPLES = 10, 200_000  # sums of a draw: more than any class has, and they still fit into memory
Record = dict[str, Any]
History = dict[str, NDArray[Any]]
Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Runs:
    """Runs of one group that were trained alike.

    Attributes:
        group: its name.
        source: `ours` or `author`.
        numbers: the runs' numbers.
        weights: each run's parameters by name.
        record: how they were trained: `recipe`, `epochs`, and in `runs` the record of each.
        snapshots: parameters at earlier epochs, by the paper's number of each, then by run.
    """

    group: str
    source: str
    config: ModelConfig
    numbers: tuple[int, ...]
    weights: Mapping[int, Weights]
    record: Record
    snapshots: Mapping[int | None, Mapping[int, Weights]]

    def model(self, run: SupportsIndex, epoch: int | None = None) -> Transformer:
        """One run as a model of its own, ready to look into; at the epoch of a snapshot if one is given.

        Snapshots are called by the paper's epochs; those of `quick` were kept at the same share of its fewer epochs.

        Raises:
            BadInput: no such run, no snapshot of that epoch, or the run's file is damaged.
        """
        if run not in self.numbers:
            known = ", ".join(map(str, self.numbers))
            raise BadInput(f"No run {run!r} of {self.group} from {self.source}: expected one of {known}.")
        if epoch not in (None, self.record["epochs"], *self.snapshots):
            known = ", ".join(map(str, [*self.snapshots, self.record["epochs"]]))
            raise BadInput(f"No weights of {self.group} at epoch {epoch!r}: expected one of {known}.")
        model = Transformer(self.config)
        try:
            model.load_state_dict(dict(self.snapshots.get(epoch, self.weights)[int(run)]))
        except RuntimeError as error:
            why = " ".join(str(error).split())
            raise BadInput(f"Run {run} of {self.group} from {self.source} is damaged: {why}") from error
        return model.requires_grad_(requires_grad=False).eval()

    def own_epoch(self, epoch: int | None) -> int:
        """The epoch of these runs that stands for the paper's: the same share of the whole; the last for None."""
        if epoch is None or epoch not in self.snapshots:
            return int(self.record["epochs"])
        return max(1, round(epoch * self.planned_epochs / groups.find(self.group).epochs))

    def models(self) -> Iterator[tuple[int, Transformer]]:
        """Every run's number and model."""
        for run in self.numbers:
            yield run, self.model(run)

    @property
    def planned_epochs(self) -> int:
        """Epochs of their whole recipe, of which they may have had a part only."""
        group = groups.find(self.group)
        return group.epochs if self.source == "author" else groups.RECIPES[self.record["recipe"]].epochs(group)

    @property
    def stands_in(self) -> bool:
        """Whether they stand in for runs trained as the paper's: by another recipe, or not to its end."""
        as_in_paper = (self.record["recipe"], self.record["epochs"]) == ("paper", groups.find(self.group).epochs)
        return self.source == "ours" and not as_in_paper

    @property
    def training(self) -> str:
        """By which recipe ours were trained and how far they got: `recipe “paper”, 100 of 1000 epochs`."""
        recipe, epochs = self.record["recipe"], self.record["epochs"]
        return f"recipe “{recipe}”, {groups.reached(self.group, recipe, epochs)} epochs"

    @property
    def provenance(self) -> str:
        """Where the weights come from, and whether they stand in for others, for the page that uses them."""
        one = len(self.numbers) == 1
        n_runs = "1 run" if one else f"{len(self.numbers)} runs"
        if self.source == "author":
            return f"{self.group}: {n_runs} of the author's release."
        sessions = [session for r in self.record["runs"] for session in (r, *r.get("sessions", ()))]
        precision, device, torchs = (
            ", ".join(sorted({s[key] for s in sessions if key in s})) for key in ("precision", "device", "torch")
        )
        text = f"{self.group}: {n_runs} of our own, {self.training}, {precision}, {device}, torch {torchs}."
        stand = "It stands in for a run" if one else "They stand in for runs"
        planned = groups.find(self.group).epochs
        return text + (f" {stand} of all {planned} epochs by the recipe “paper”." if self.stands_in else "")

    def beside(self, other: "Runs") -> str:
        """Where these weights and those that a page compares them with come from; says if they differ in training."""
        how = {(x.record["recipe"], x.record["epochs"] / x.planned_epochs) for x in (self, other) if x.source == "ours"}
        note = "" if len(how) < 2 else " They were not trained alike: what differs may be the training's doing."
        return f"{self.provenance} Beside it {other.provenance}{note}"


def folder(source: str) -> Path:
    """Where the groups of a source lie.

    Raises:
        BadInput: the source is neither `ours` nor `author`.
    """
    if source not in SOURCES:
        raise BadInput(f"Unknown source {source!r}: expected 'ours' or 'author'.")
    return author_dir() if source == "author" else data_dir() / "runs"


def run_path(out: Path, group: str, recipe: str, run: int) -> Path:
    """Where a run's weights lie in `data/runs` or a folder like it; its learning curves lie beside, as `.npz`."""
    return out / group / recipe / f"run{run}.safetensors"


def find(
    group: str, source: str = "ours", *, recipe: str | None = None, runs: Collection[int] | None = None
) -> dict[int, Path]:
    """The files of the runs that `load` gives, by number; empty where there are none.

    Of those that were trained equally long by one recipe: where there are most of the runs, then the most epochs, then
    `paper`. So `paper` leads, unless `quick` has more of the first six runs or reached further.

    Raises:
        BadInput: unknown group, source or recipe, or a file is damaged or not of this group.
    """
    if recipe is not None and (source != "ours" or recipe not in groups.RECIPES):
        raise BadInput(f"recipe={recipe!r} of {source}: expected one of {', '.join(groups.RECIPES)}, of ours.")
    where, alike = folder(source) / groups.find(group).name, dict[tuple[int, bool], dict[int, Path]]()
    for path in sorted(where.glob("run*.safetensors" if source == "author" else f"{recipe or '*'}/run*.safetensors")):
        number = path.stem.removeprefix("run")
        if number.isdecimal() and int(number) in (FIRST if runs is None else runs):
            record = describe(path, group)["record"]
            alike.setdefault((record["epochs"], record["recipe"] == "paper"), {})[int(number)] = path
    _, found = max(alike.items(), key=lambda item: (len(item[1]), item[0]), default=(None, {}))
    return dict(sorted(found.items()))


def load(group: str, source: str = "ours", *, recipe: str | None = None, runs: Collection[int] | None = None) -> Runs:
    """The runs of a group, never of two recipes: 0 to 5 of the one that leads (see `find`), or those numbered `runs`.

    Raises:
        BadInput: unknown group, source or recipe, or a file is missing, damaged, or of another version.
    """
    paths = find(group, source, recipe=recipe, runs=runs)
    if not paths or set(runs or ()) - {*paths}:
        raise _missing("weights", group, source, recipe, sorted(set(runs or ()) - {*paths}))
    records = [describe(path, group)["record"] for path in paths.values()]
    tensors = {run: _tensors(path) for run, path in paths.items()}
    snapshots = {epoch for record in records for epoch in record.get("snapshots", ())}
    return Runs(
        group,
        source,
        groups.find(group).config,
        tuple(paths),
        {run: _part(of_run, "") for run, of_run in tensors.items()},
        {"recipe": records[0]["recipe"], "epochs": records[0]["epochs"], "runs": records},
        {
            epoch: {run: _part(of_run, f"epoch_{epoch}/") for run, of_run in tensors.items()}
            for epoch in sorted(snapshots)
            if all(epoch in record.get("snapshots", ()) for record in records)
        },
    )


def _tensors(path: Path) -> Weights:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise _damaged(path, str(error)) from error


def _part(tensors: Weights, prefix: str) -> Weights:
    """Parameters at one epoch, in float32 under the model's own names."""
    chosen = [name for name in tensors if name.rpartition("/")[0] == prefix.removesuffix("/")]
    return {name.removeprefix(prefix): tensors[name].float() for name in chosen}


def describe(path: Path, group: str | None = None) -> dict[str, Any]:
    """What a run's file says of itself (`group`, `config`, `record`), without reading its weights.

    Raises:
        BadInput: the file is damaged, has another format, or is not of the group.
    """
    try:
        if not path.is_file():
            raise ValueError("it is not a file")
        with safe_open(path, "pt") as file:
            about: dict[str, Any] = json.loads((file.metadata() or {})["carry"])
        if about["format"] == FORMAT:
            record = about["record"]
            if not (isinstance(record["recipe"], str) and type(record["epochs"]) is int):
                raise ValueError("its record is not one of a training")
            if group is not None and (about["group"], about["config"]) != (group, groups.find(group).config.to_dict()):
                raise ValueError(f"it is of {about['group']} with {about['config']}, not of {group}")
            return about
    except (SafetensorError, OSError, KeyError, TypeError, RecursionError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    raise BadInput(f"{path} has format {about['format']!r}, expected {FORMAT!r}: use that carry-core's version.")


def history(
    group: str,
    source: str = "ours",
    run: int | None = None,
    *,
    recipe: str | None = None,
    runs: Collection[int] | None = None,
) -> History:
    """The learning curves of a group, `[run, epoch, …]` each, and the `runs` they belong to; arguments as in `load`.

    NaN where a run has no such curve or epoch. The author's release has the curves of other runs than weights; `run`
    is one that has to be among them.

    Raises:
        BadInput: as `load`, or the run is not among them.
    """
    paths = _histories(group, source, recipe, runs)
    if not paths:
        raise _missing("learning curves", group, source, recipe)
    if run is not None and run not in paths:
        raise BadInput(
            f"No learning curves of run {run!r} of {group} from {source}: expected one of {', '.join(map(str, paths))}."
        )
    return {"runs": np.array(list(paths))} | _stacked([_curves(path) for path in paths.values()])


def _histories(
    group: str, source: str, recipe: str | None = None, runs: Collection[int] | None = None
) -> dict[int, Path]:
    if source == "author":
        where = folder(source) / groups.find(group).name
        paths = {int(path.stem.removeprefix("run")): path for path in where.glob("run*.npz")}
    else:
        paths = {number: path.with_suffix(".npz") for number, path in find(group, recipe=recipe, runs=runs).items()}
    return {number: path for number, path in sorted(paths.items()) if path.exists()}


def _curves(path: Path) -> History:
    try:
        if not path.is_file():
            raise ValueError("it is not a file")
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:  # else a damaged one stays open
            curves = {key: file[key] for key in file.files}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise _damaged(path, str(error)) from error
    return {key: x.astype(np.float32) if x.dtype == np.float16 else x for key, x in curves.items()}


def _stacked(curves: list[History]) -> History:
    stacked = {}
    for key in dict.fromkeys(key for each in curves for key in each):
        arrays = [each[key] for each in curves if key in each]
        shape = np.max([array.shape for array in arrays], axis=0)
        stacked[key] = np.full((len(curves), *shape), np.nan, arrays[0].dtype)
        for row, each in zip(stacked[key], curves, strict=True):
            if key in each:
                row[tuple(map(slice, each[key].shape))] = each[key]
    return stacked


def save(
    path: Path, group: str, config: ModelConfig, weights: Weights, record: Record, curves: History | None = None
) -> None:
    """Write a run's pair of files, the learning curves `[epoch, …]` first.

    Args:
        weights: parameters by name, snapshots under `epoch_500/…`.
        record: how it was trained: at least `run`, `recipe` and `epochs`.

    Raises:
        BadInput: the folder cannot be written or the disk is full.
    """
    if curves:
        with replacing(path.with_suffix(".npz")) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **curves)
    snapshots = sorted({int(name.split("/")[0].removeprefix("epoch_")) for name in weights if "/" in name})
    record = record | ({"snapshots": snapshots} if snapshots else {})
    about = {"format": FORMAT, "group": group, "config": config.to_dict(), "record": record}
    with replacing(path) as temporary:  # one entry of metadata: several are written in random order
        save_file({key: p.contiguous() for key, p in weights.items()}, temporary, {"carry": json.dumps(about)})


def _missing(what: str, group: str, source: str, recipe: str | None = None, numbers: Collection[int] = ()) -> BadInput:
    which = f" runs {', '.join(map(str, numbers))}" if numbers else ""
    start = f"No {what} of {group}{which} from {source} in {folder(source)}:"
    if source == "author":
        return BadInput(f"{start} `carry import-author DIR` imports what his release has.")
    if group in groups.RELEASED_ONLY:
        return BadInput(f"{start} it is in the author's release, not in the paper.")
    if not data_dir().is_dir():
        return BadInput(
            f"{start} weights come with the repository, not with the package; name its data/ in CARRY_DATA."
        )
    return BadInput(f"{start} make them with `carry train {group}{f' --recipe {recipe}' if recipe else ''}`.")


def _damaged(path: Path, why: str) -> BadInput:
    is_author = path.is_relative_to(author_dir())
    remedy = "run `carry import-author DIR` again" if is_author else f"restore it with `git checkout {path}`"
    return BadInput(f"{path} is damaged ({why}): {remedy}.")


def check(
    *,
    source: str,
    group: str,
    run: object = None,
    n_examples: object = MAX_EXAMPLES,
    seed: object = 0,
    at_least: int = MIN_EXAMPLES,
) -> Runs:
    """Check a notebook's parameters before anything is computed, and load the group they name.

    Parameters that a notebook does not have are left out, and are then what passes. With `at_least` so many sums what
    it measures is defined; `seed` is that of their draw.

    Raises:
        BadInput: one of them is not what it should be; the message says which and what was expected.
    """
    if type(n_examples) is not int or not at_least <= n_examples <= MAX_EXAMPLES:
        allowed = f"{at_least:,} to {MAX_EXAMPLES:,}"
        raise BadInput(f"n_examples={n_examples!r}: expected a whole number of sums from {allowed}.")
    check_seed(seed)
    loaded = load(group, source)
    if run is not None:
        if type(run) is not int:
            raise BadInput(f"run={run!r}: expected None or the number of a run, such as {loaded.numbers[0]}.")
        loaded.model(run)
    return loaded


def check_seed(seed: object) -> None:
    """Check that a seed is one that every generator takes.

    Raises:
        BadInput: it is not.
    """
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise BadInput(f"seed={seed!r}: expected a whole number from 0 to 2**63 - 1.")
