"""Trained runs: a pair of files each, and those of a group together.

`data/runs/<group>/<recipe>/run<k>.safetensors` holds a run's parameters in float16 under the names
of `model.Transformer`, those of earlier epochs under `epoch_500/…`, and as JSON in its metadata the
group, its config and a record: recipe, run, seeds, epochs reached, precision, device, versions,
commit. `run<k>.npz` beside it has the learning curves (`training/histories.py`), attention patterns
in float16. A run exists if its safetensors does, which is written last. What was imported from the
author's release is in `data/author/<group>/` likewise, in float32.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from carry_core import groups
from carry_core.errors import BadInput
from carry_core.files import author_dir, damaged, data_dir, open_tensors, replacing_all
from carry_core.groups import Group
from carry_core.model import ModelConfig, Transformer

FORMAT = "2"
SOURCES = ("ours", "author")
LAST = 999  # number of a run
FIRST = range(6)  # the runs of a group that stand for it; others are there for who asks for them
RUN_FILE = re.compile("run(0|[1-9][0-9]*)")  # without its suffix: `run00` is no run
STORED_AS = (torch.float16, torch.float32)

Record = dict[str, Any]
Weights = Mapping[str, Tensor]
History = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class RunFile:
    """What a run's file says of itself; `ValueError` for what no training writes.

    The record says how the run was trained: `recipe`, `run`, `epochs` and, if there are any,
    `snapshots`. On what, with which versions and seeds are further entries.
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
        recipe, snapshots = self.record["recipe"], self.record.get("snapshots", [])
        recipes = [*groups.RECIPES, "author"]
        if recipe not in recipes:
            raise ValueError(
                f"record.recipe: {recipe!r} is unknown, expected one of {', '.join(recipes)}"
            )
        check_count("run", self.record["run"], 0)
        check_count("epochs", self.record["epochs"], 1)
        if not isinstance(snapshots, list):
            raise ValueError("its snapshots are no list")
        for epoch in snapshots:
            check_count("snapshot", epoch, 1)
        check_seeds(self.record.get("seeds", {}))


def check_seeds(seeds: object) -> None:
    """Raise `ValueError` unless these are seeds by name, its parent's among those of a finetuned run."""
    if not isinstance(seeds, dict):
        raise ValueError("its seeds are no object")
    for name, seed in seeds.items():
        if name == "parent":
            check_seeds(seed)
        elif seed is not None:
            check_count(f"seeds.{name}", seed, 0)


def check_count(name: str, value: object, lowest: int) -> None:
    """Raise `ValueError` unless an entry of a record is a whole number from `lowest` on."""
    if type(value) is not int or value < lowest:
        raise ValueError(f"record.{name}: {value!r} is no whole number from {lowest} on")


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

        Snapshots are called by the paper's epochs; those of `quick` were kept at the same share of
        its fewer epochs. `BadInput` if there is no such run or snapshot.
        """
        if run not in self.numbers:
            known = ", ".join(map(str, self.numbers))
            text = ", a number and not text" if isinstance(run, str) else ""
            raise BadInput(
                f"No run {run!r} of {self.group} from {self.source}: expected one of {known}{text}."
            )
        if epoch not in (None, self.record["epochs"], *self.snapshots):
            known = ", ".join(["None (the last)", *map(str, self.snapshots)])
            raise BadInput(
                f"No weights of {self.group} at epoch {epoch!r}: expected one of {known}."
            )
        model = Transformer(self.config)
        model.load_state_dict(dict(self.snapshots.get(epoch, self.weights)[int(run)]))
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
    group: str,
    source: str = "ours",
    *,
    recipe: str | None = None,
    runs: Collection[int] | None = None,
) -> dict[int, Path]:
    """The files of the runs that `load` gives, by number; empty where there are none.

    Of those that were trained equally long by one recipe: where there are most of the runs, then
    the most epochs, then `paper`. So `paper` leads, unless `quick` has more of the first six runs
    or reached further. `BadInput` if group, source or recipe is unknown, or a file is damaged or
    not of this group.
    """
    return {number: path for number, (path, _) in leading(group, source, recipe, runs).items()}


def load(
    group: str,
    source: str = "ours",
    *,
    recipe: str | None = None,
    runs: Collection[int] | None = None,
) -> Runs:
    """The runs of a group, never of two recipes: 0 to 5 of the one that leads (see `find`), or those numbered `runs`.

    `BadInput` if group, source or recipe is unknown, or a file is missing, damaged, or of another
    version.
    """
    chosen = leading(group, source, recipe, runs)
    absent = sorted(set(runs or ()) - {*chosen})
    if not chosen or absent:
        raise missing("weights", group, source, recipe, absent)
    config = groups.find(group).config
    by_epoch = {run: _weights(path, config, record) for run, (path, record) in chosen.items()}
    records = [record for _, record in chosen.values()]
    snapshots = set[int].intersection(*({*record.get("snapshots", ())} for record in records))
    return Runs(
        group,
        source,
        config,
        tuple(chosen),
        {run: weights[None] for run, weights in by_epoch.items()},
        {"recipe": records[0]["recipe"], "epochs": records[0]["epochs"], "runs": records},
        {
            epoch: {run: weights[epoch] for run, weights in by_epoch.items()}
            for epoch in sorted(snapshots)
        },
    )


def leading(
    group: str, source: str = "ours", recipe: str | None = None, runs: Collection[int] | None = None
) -> dict[int, tuple[Path, Record]]:
    """The files that `find` gives and how each run was trained, by number; `BadInput` as in `find`."""
    if recipe is not None and (source != "ours" or recipe not in groups.RECIPES):
        raise BadInput(
            f"recipe={recipe!r} of {source}: expected one of {', '.join(groups.RECIPES)}, of ours."
        )
    if runs is not None:
        check_numbers(runs)
    place = folder(source) / groups.find(group).name
    if source == "author":
        places = {"author": place}
    else:
        places = {name: place / name for name in groups.RECIPES if recipe in (None, name)}
    alike: dict[tuple[int, bool], dict[int, tuple[Path, Record]]] = {}
    for by, own in places.items():
        for number, path in numbered(own, ".safetensors").items():
            if number in (FIRST if runs is None else runs):
                record = describe(path, group)["record"]
                if record["recipe"] != by:
                    raise damaged(
                        path,
                        f"its record is of the recipe {record['recipe']}, not {by}",
                        remedy(path),
                    )
                alike.setdefault((record["epochs"], by == "paper"), {})[number] = (path, record)
    _, most = max(alike.items(), key=lambda item: (len(item[1]), item[0]), default=(None, {}))
    return dict(sorted(most.items()))


def check_numbers(runs: Any) -> None:
    """Raise `BadInput` unless these are numbers of runs."""
    are_numbers = isinstance(runs, Collection) and all(
        isinstance(run, SupportsIndex) for run in runs
    )
    if not are_numbers or not all(0 <= int(run) <= LAST for run in runs):
        raise BadInput(f"runs={runs!r}: expected numbers of runs from 0 to {LAST}, such as [0, 1].")


def numbered(place: Path, suffix: str) -> dict[int, Path]:
    """The files of runs in a folder with that suffix, by number."""
    matches = {path: RUN_FILE.fullmatch(path.stem) for path in sorted(place.glob(f"run*{suffix}"))}
    return {int(match[1]): path for path, match in matches.items() if match}


@cache
def parameter_shapes(config: ModelConfig) -> dict[str, torch.Size]:
    """The shape of each parameter of a model, by name."""
    with torch.device("meta"):
        return {name: p.shape for name, p in Transformer(config).named_parameters()}


def _weights(path: Path, config: ModelConfig, record: Record) -> dict[int | None, Weights]:
    """A run's parameters in float32 under the model's own names, at its snapshots and, under None, at the end."""
    mend, shapes = remedy(path), parameter_shapes(config)
    prefixes = {None: ""} | {epoch: f"epoch_{epoch}/" for epoch in record.get("snapshots", ())}
    with open_tensors(path, mend) as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    expected = {
        f"{prefix}{name}": shape for prefix in prefixes.values() for name, shape in shapes.items()
    }
    odd = sorted(stored.keys() ^ expected.keys())
    if odd:
        raise damaged(path, f"it has {odd[0]!r} too {'many' if odd[0] in stored else 'few'}", mend)
    for name, p in stored.items():
        if p.dtype not in STORED_AS or p.shape != expected[name]:
            shape = [*expected[name]]
            raise damaged(
                path, f"{name} is {p.dtype} {[*p.shape]}, expected float16 or float32 {shape}", mend
            )
    parameters = {name: p.float() for name, p in stored.items()}
    if not are_finite(parameters):
        raise damaged(path, "it has weights that are not finite", mend)
    return {
        epoch: {name: parameters[f"{prefix}{name}"] for name in shapes}
        for epoch, prefix in prefixes.items()
    }


def are_finite(tensors: Weights) -> bool:
    """Return whether no tensor has a NaN or an infinity, from the sum of each: looking at all values takes longer."""
    return bool(torch.stack([p.sum() for p in tensors.values()]).isfinite().all())


def describe(path: Path, group: str | None = None) -> dict[str, Any]:
    """What a run's file says of itself (`group`, `config`, `record`), without reading its weights.

    `BadInput` if the file is damaged, has another format, or is not of the group, or its record
    cannot be true.
    """
    with open_tensors(path, remedy(path, group)) as file:
        content: dict[str, Any] = json.loads((file.metadata() or {})["carry"])
        if content["format"] != FORMAT:
            version = content["format"]
            raise BadInput(
                f"{path} has format {version!r}, expected {FORMAT!r}: use that carry-core's version."
            )
        about = RunFile(**content)
        own, record = groups.find(about.group), about.record
        if group not in (None, about.group) or about.config != asdict(own.config):
            raise ValueError(
                f"it is of {about.group} with {about.config}, not of {group or about.group}"
            )
        planned = own.planned_epochs(groups.RECIPES.get(record["recipe"]))
        if record["epochs"] > planned:
            raise ValueError(f"its record has {record['epochs']} epochs, and its recipe {planned}")
        last_snapshot = max(record.get("snapshots", ()), default=0)
        if last_snapshot > own.epochs:
            raise ValueError(f"its record has a snapshot of epoch {last_snapshot} of {own.epochs}")
        match = RUN_FILE.fullmatch(path.stem)
        if match and record["run"] != int(match[1]):
            raise ValueError(f"its record is of run {record['run']}")
    return content


def remedy(path: Path, group: str | None = None) -> str:
    """How to get a run's file again where git does not have it."""
    if path.is_relative_to(author_dir()):
        return "run `carry import-author DIR` again"
    return f"move it away and train {group or path.parent.parent.name} again"


def missing(
    what: str, group: str, source: str, recipe: str | None = None, numbers: Collection[int] = ()
) -> BadInput:
    """The error that says what is not there, and how to get it."""
    which, by = ",".join(map(str, numbers)), f" --recipe {recipe}" if recipe else ""
    start = f"No {what} of {group}{which and f' runs {which}'} from {source} in {folder(source)}:"
    if source == "author":
        return BadInput(f"{start} `carry import-author DIR` imports what his release has.")
    if group in groups.RELEASED_ONLY:
        return BadInput(f"{start} it is in the author's release, not in the paper.")
    if not data_dir().is_dir():
        return BadInput(f"{start} weights come with the repository; name its data/ in CARRY_DATA.")
    return BadInput(
        f"{start} make them with `carry train {group}{by}{which and f' --runs {which}'}`."
    )


def run_path(out: Path, group: str, recipe: str, run: int) -> Path:
    """Where a run's weights lie in `data/runs` or a folder like it; its learning curves lie beside, as `.npz`."""
    return out / group / recipe / f"run{run}.safetensors"


def save_run(
    path: Path, group: Group, weights: Weights, record: Record, curves: History | None = None
) -> None:
    """Write a run's pair of files, both or neither, with learning curves `[row, …]`; BadInput if it cannot be done.

    Weights are by name, snapshots under `epoch_500/…`. The record has at least `run`, `recipe` and
    `epochs`.
    """
    snapshots = sorted(
        {int(name.split("/")[0].removeprefix("epoch_")) for name in weights if "/" in name}
    )
    record = record | ({"snapshots": snapshots} if snapshots else {})
    about = {
        "format": FORMAT,
        "group": group.name,
        "config": asdict(group.config),
        "record": record,
    }
    if not are_finite(weights):
        raise BadInput(
            f"Run {record['run']} of {group.name} has weights that are not finite: it is not written."
        )
    paths = [path.with_suffix(".npz"), path] if curves else [path]
    with replacing_all(*paths) as temporaries:
        if curves:
            with temporaries[0].open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **curves)
        contiguous = {key: p.contiguous() for key, p in weights.items()}
        # one entry of metadata: several are written in random order
        save_file(contiguous, temporaries[-1], {"carry": json.dumps(about)})
