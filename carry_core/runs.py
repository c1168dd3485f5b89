"""Trained runs: a pair of files each, and those of a group together.

`data/runs/<group>/<recipe>/run<k>.safetensors` holds a run's parameters in float16 under the names of
`model.Transformer`, those of earlier epochs under `epoch_500/…`, and as JSON in its metadata the group, its config and
a record: recipe, run (its only seed), epochs reached, precision, device, versions, commit. `run<k>.npz` beside it has
the learning curves, `[epoch, …]`, attention patterns in float16. A run exists if its safetensors does, which is written
last. What was imported from the author's release is in `data/author/<group>/` likewise, in float32.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, SupportsIndex

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from carry_core import groups
from carry_core.errors import BadInput
from carry_core.files import author_dir, data_dir
from carry_core.model import ModelConfig, Transformer

FORMAT = "2"
SOURCES = ("ours", "author")
FIRST = range(6)  # the runs of a group that stand for it; others are there for who asks for them

Record = dict[str, Any]
Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Runs:
    """Runs of one group that were trained alike."""

    group: str  # its name
    source: str  # `ours` or `author`
    config: ModelConfig
    numbers: tuple[int, ...]
    weights: Mapping[int, Weights] = field(repr=False)  # each run's parameters by name
    record: Record  # how they were trained: `recipe`, `epochs`, and in `runs` the record of each
    # parameters at earlier epochs, by the paper's number of each, then by run
    snapshots: Mapping[int | None, Mapping[int, Weights]] = field(repr=False)

    def model(self, run: SupportsIndex, epoch: int | None = None) -> Transformer:
        """One run as a model of its own, ready to look into; at the epoch of a snapshot if one is given.

        Snapshots are called by the paper's epochs; those of `quick` were kept at the same share of its fewer epochs.
        `BadInput` if there is no such run or snapshot, or the run's file is damaged.
        """
        if run not in self.numbers:
            known = ", ".join(map(str, self.numbers))
            raise BadInput(f"No run {run!r} of {self.group} from {self.source}: expected one of {known}.")
        if epoch not in (None, self.record["epochs"], *self.snapshots):
            known = ", ".join(["None (the last)", *map(str, self.snapshots)])
            raise BadInput(f"No weights of {self.group} at epoch {epoch!r}: expected one of {known}.")
        model = Transformer(self.config)
        try:
            model.load_state_dict(dict(self.snapshots.get(epoch, self.weights)[int(run)]))
        except RuntimeError as error:
            why = " ".join(str(error).split())
            raise BadInput(f"Run {run} of {self.group} from {self.source} is damaged: {why}") from error
        return model.requires_grad_(requires_grad=False).eval()

    def models(self) -> Iterator[tuple[int, Transformer]]:
        """Every run's number and model."""
        for run in self.numbers:
            yield run, self.model(run)


def folder(source: str) -> Path:
    """Where the groups of a source lie; `BadInput` if it is neither `ours` nor `author`."""
    if source not in SOURCES:
        raise BadInput(f"Unknown source {source!r}: expected 'ours' or 'author'.")
    return author_dir() if source == "author" else data_dir() / "runs"


def find(
    group: str, source: str = "ours", *, recipe: str | None = None, runs: Collection[int] | None = None
) -> dict[int, Path]:
    """The files of the runs that `load` gives, by number; empty where there are none.

    Of those that were trained equally long by one recipe: where there are most of the runs, then the most epochs, then
    `paper`. So `paper` leads, unless `quick` has more of the first six runs or reached further. `BadInput` if group,
    source or recipe is unknown, or a file is damaged or not of this group.
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

    `BadInput` if group, source or recipe is unknown, or a file is missing, damaged, or of another version.
    """
    paths = find(group, source, recipe=recipe, runs=runs)
    if not paths or set(runs or ()) - {*paths}:
        raise missing("weights", group, source, recipe, sorted(set(runs or ()) - {*paths}))
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
            epoch: {run: _part(of_run, f"epoch_{epoch}") for run, of_run in tensors.items()}
            for epoch in sorted(snapshots)
            if all(epoch in record.get("snapshots", ()) for record in records)
        },
    )


def _tensors(path: Path) -> Weights:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise damaged(path, str(error)) from error


def _part(tensors: Weights, epoch: str) -> Weights:
    """Parameters at one epoch, in float32 under the model's own names."""
    return {name.split("/")[-1]: p.float() for name, p in tensors.items() if name.rpartition("/")[0] == epoch}


def describe(path: Path, group: str | None = None) -> dict[str, Any]:
    """What a run's file says of itself (`group`, `config`, `record`), without reading its weights.

    `BadInput` if the file is damaged, has another format, or is not of the group.
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
            if group is not None and (about["group"], about["config"]) != (group, asdict(groups.find(group).config)):
                raise ValueError(f"it is of {about['group']} with {about['config']}, not of {group}")
            return about
    except (SafetensorError, OSError, KeyError, TypeError, RecursionError, ValueError) as error:
        raise damaged(path, str(error)) from error
    raise BadInput(f"{path} has format {about['format']!r}, expected {FORMAT!r}: use that carry-core's version.")


def missing(what: str, group: str, source: str, recipe: str | None = None, numbers: Collection[int] = ()) -> BadInput:
    """The error that says what is not there, and how to get it."""
    which, by = ",".join(map(str, numbers)), f" --recipe {recipe}" if recipe else ""
    start = f"No {what} of {group}{which and f' runs {which}'} from {source} in {folder(source)}:"
    if source == "author":
        return BadInput(f"{start} `carry import-author DIR` imports what his release has.")
    if group in groups.RELEASED_ONLY:
        return BadInput(f"{start} it is in the author's release, not in the paper.")
    if not data_dir().is_dir():
        return BadInput(f"{start} weights come with the repository; name its data/ in CARRY_DATA.")
    return BadInput(f"{start} make them with `carry train {group}{by}{which and f' --runs {which}'}`.")


def damaged(path: Path, why: str) -> BadInput:
    """The error that says why a file cannot be read, and how to get it again."""
    is_author = path.is_relative_to(author_dir())
    remedy = "run `carry import-author DIR` again" if is_author else f"restore it with `git checkout {path}`"
    return BadInput(f"{path} is damaged ({why}): {remedy}.")
