"""Group files: the weights and histories of all runs of a group, from our trainer or from the author's release.

`<group>.safetensors` holds every parameter stacked over runs, `[run, …]`, in float16 if it is ours, under the names
of `model.Transformer` (snapshots under `epoch_500/…`), with the group's config and the training record as
JSON in its metadata. `<group>.history.npz` holds the learning curves, `[run, epoch, …]`, of which attention patterns
are in float16 if they are ours. Of our own groups, a folder `quick/` or `paper/` beside them holds what was trained by
the other recipe, to compare the two.
"""

import json
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from carry_core import draws, groups, manifest, release
from carry_core.errors import BadInput
from carry_core.files import author_dir, data_dir, sha256, steady
from carry_core.manifest import Publication
from carry_core.model import ModelConfig, Transformer
from carry_core.words import counted

FORMAT = "1"
SOURCES = ("ours", "author")
Record = dict[str, Any]
History = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Runs:
    """The runs of one group.

    Attributes:
        group: its name.
        source: `ours` or `author`.
        numbers: the runs' numbers, in the order of the leading axis of `weights`.
        weights: parameters by name, float32, `[run, …]`.
        record: how they were trained, as stored (`recipe`, `epochs` and a record for each run).
        snapshots: parameters at earlier epochs, by the paper's number of each, `[run, …]`.
    """

    group: str
    source: str
    config: ModelConfig
    numbers: tuple[int, ...]
    weights: dict[str, Tensor]
    record: Record
    snapshots: dict[int, dict[str, Tensor]]

    def model(self, run: SupportsIndex, epoch: int | None = None) -> Transformer:
        """One run as a model of its own, ready to look into; at a snapshot's epoch if one is given.

        Args:
            run: its number.
            epoch: one of `snapshots`, which are called by the paper's epochs; those of `quick` were kept at the same
                share of its fewer epochs.

        Raises:
            BadInput: no such run, or no snapshot of that epoch.
        """
        if isinstance(run, bool) or not isinstance(run, int | np.integer) or run not in self.numbers:
            raise BadInput(
                f"No run {run!r} of {self.group} from {self.source}: expected one of"
                f" {', '.join(map(str, self.numbers))}."
            )
        if epoch is not None and epoch != self.record["epochs"] and epoch not in self.snapshots:
            known = ", ".join(map(str, [*self.snapshots, self.record["epochs"]]))
            raise BadInput(f"No weights of {self.group} at epoch {epoch!r}: expected one of {known}.")
        weights = self.snapshots.get(epoch, self.weights) if epoch is not None else self.weights
        model = Transformer(self.config)
        model.load_state_dict({name: p[self.numbers.index(run)] for name, p in weights.items()})
        return model.requires_grad_(requires_grad=False).eval()

    def models(self) -> Iterator[tuple[int, Transformer]]:
        """Every run's number and model."""
        for run in self.numbers:
            yield run, self.model(run)

    @property
    def whole(self) -> int:
        """Epochs of their whole recipe, of which they may have had a part only."""
        group = groups.find(self.group)
        return group.epochs if self.source == "author" else groups.RECIPES[self.record["recipe"]].epochs(group)

    @property
    def stands_in(self) -> bool:
        """Whether they stand in for runs trained as the paper's: by another recipe, or not to its end."""
        if self.source == "author":
            return False
        return (self.record["recipe"], self.record["epochs"]) != ("paper", groups.find(self.group).epochs)

    @property
    def training(self) -> str:
        """By which recipe ours were trained and how far they got: `recipe “paper”, 100 of 1000 epochs`."""
        recipe, epochs = self.record["recipe"], self.record["epochs"]
        return f"recipe “{recipe}”, {groups.reached(self.group, recipe, epochs)} epochs"

    @property
    def provenance(self) -> str:
        """Where the weights come from, and whether they stand in for others, for the page that uses them."""
        if self.source == "author":
            return f"{self.group}: {counted(len(self.numbers), 'run')} of the author's release."
        precisions = ", ".join(sorted({r["precision"] for r in self.record["runs"]}))
        sessions = [session for r in self.record["runs"] for session in (r, *r.get("sessions", ()))]
        devices, torches = (", ".join(sorted({s[key] for s in sessions})) for key in ("device", "torch"))
        whole = groups.find(self.group).epochs
        stand = "It stands in for a run" if len(self.numbers) == 1 else "They stand in for runs"
        note = f" {stand} of all {whole} epochs by the recipe “paper”." if self.stands_in else ""
        return (
            f"{self.group}: {counted(len(self.numbers), 'run')} of our own, {self.training}, {precisions}, {devices},"
            f" torch {torches}.{note}"
        )

    def beside(self, other: "Runs") -> str:
        """Where these weights and those that a page compares them with come from; says if they differ in training."""
        how = {(x.record["recipe"], x.record["epochs"] / x.whole) for x in (self, other) if x.source == "ours"}
        note = "" if len(how) < 2 else " They were not trained alike: what differs may be the training's doing."
        return f"{self.provenance} Beside it {other.provenance}{note}"


def folder(source: str) -> Path:
    """Where the group files of a source lie.

    Raises:
        BadInput: the source is neither `ours` nor `author`.
    """
    if source not in SOURCES:
        raise BadInput(f"Unknown source {source!r}: expected 'ours' or 'author'.")
    return author_dir() if source == "author" else data_dir() / "runs"


def folder_of(group: str, source: str, recipe: str | None = None) -> Path:
    """The folder with a group's files: the source's own, or the one beside it if that has another recipe's runs."""
    where = folder(source)
    if recipe is None:
        return where
    if source != "ours" or recipe not in groups.RECIPES:
        raise BadInput(f"recipe={recipe!r} of {source}: expected one of {', '.join(groups.RECIPES)}, of ours.")
    with suppress(OSError, SafetensorError, KeyError, ValueError):
        if describe(where / f"{group}.safetensors")["record"]["recipe"] == recipe:
            return where
    return where / recipe


def files_of(group: str) -> tuple[str, str]:
    """The names of a group's files: weights, learning curves."""
    return f"{group}.safetensors", f"{group}.history.npz"


def load(group: str, source: str = "ours", *, recipe: str | None = None) -> Runs:
    """The runs of a group.

    Args:
        group: its name.
        source: `ours` or `author`.
        recipe: by which ours were trained; None for the group's own file, by whichever it is.

    Raises:
        BadInput: unknown group, source or recipe, or the file is missing, damaged, or of another version.
    """
    where = folder_of(groups.find(group).name, source, recipe)
    with steady(manifest.home(where)[0]):
        return _load(_checked(where, group, source, "safetensors", recipe), source)


def _load(path: Path, source: str) -> Runs:
    """A copy for each caller, who may change it, of a file that is read once."""
    return deepcopy(_read(path, source, path.stat().st_mtime_ns))


@lru_cache(maxsize=8)
def _read(path: Path, source: str, _modified: int) -> Runs:
    try:
        with safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key).float() for key in file.keys()}  # noqa: SIM118 (not a dict)
        found = describe(path)
        record = found["record"]
        snapshots: dict[int, dict[str, Tensor]] = {}
        for key in [key for key in tensors if key.startswith("epoch_")]:
            epoch, name = key.removeprefix("epoch_").split("/")
            snapshots.setdefault(int(epoch), {})[name] = tensors.pop(key)
        config = ModelConfig(**found["config"])
        numbers = tuple(r["run"] for r in record["runs"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path, source, str(error)) from error
    return Runs(found["group"], source, config, numbers, tensors, record, dict(sorted(snapshots.items())))


def describe(path: Path) -> dict[str, Any]:
    """What a group file says of itself (`group`, `config`, `record`), without reading its weights.

    Raises:
        BadInput: the file has another format.
        SafetensorError, OSError, KeyError, ValueError: it cannot be read.
    """
    with safe_open(path, "pt") as file:
        found = json.loads((file.metadata() or {})["carry"])
    if not isinstance(found, dict):
        raise ValueError(f"{path} says nothing of itself")
    if found["format"] != FORMAT:
        raise BadInput(f"{path} has format {found['format']!r}, expected {FORMAT!r}: update carry-core.")
    return dict(found)


def load_model(group: str, run: SupportsIndex = 0, source: str = "ours") -> Transformer:
    """One run of a group as a model."""
    return load(group, source).model(run)


def history(group: str, source: str = "ours", run: int | None = None, *, recipe: str | None = None) -> History:
    """The learning curves of a group, `[run, epoch, …]` each, and the `runs` they belong to.

    Args:
        group: its name.
        source: `ours` or `author`, whose release has the curves of fewer runs than weights.
        run: one that has to be among them.
        recipe: as in `load`.

    Raises:
        BadInput: as `load`, or the run is not among them.
    """
    where = folder_of(groups.find(group).name, source, recipe)
    with steady(manifest.home(where)[0]):
        curves = _curves(_checked(where, group, source, "history.npz", recipe), source)
    if run is not None and run not in curves["runs"]:
        known = ", ".join(map(str, curves["runs"]))
        raise BadInput(f"No learning curves of run {run!r} of {group} from {source}: expected one of {known}.")
    return curves


def _curves(path: Path, source: str) -> History:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:  # else a damaged one stays open
            curves = {key: _widened(file[key]) for key in file.files}
        curves["runs"] = curves["runs"].astype(int)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise _damaged(path, source, str(error)) from error
    return curves


def _widened(curve: NDArray[Any]) -> NDArray[Any]:
    return curve.astype(np.float32) if curve.dtype == np.float16 else curve


def read(where: Path, group: str) -> tuple[Runs, History]:
    """Our runs of a group in any folder, and their learning curves.

    Raises:
        BadInput: a file is missing, damaged, or of another version.
    """
    path = _checked(where, group, "ours", "safetensors")
    return _load(path, "ours"), _curves(_checked(where, group, "ours", "history.npz"), "ours")


def save(
    where: Path,
    group: str,
    config: ModelConfig,
    weights: dict[str, Tensor],
    record: Record,
    curves: History | None = None,
) -> None:
    """Write a group's files and its manifest entries, all or none.

    Raises:
        BadInput: as `manifest.publication`.
    """
    with manifest.publication(where) as publication:
        write(publication, group, config, weights, record, curves)


def write(
    publication: Publication,
    name: str,
    config: ModelConfig,
    weights: dict[str, Tensor],
    record: Record,
    curves: History | None = None,
) -> None:
    """Write a group's files as a part of what is published; `name` is the group's, after `quick/` if that is where.

    Attention patterns, most of a history's bytes, are rounded to float16: by less than 0.0003.
    """
    if curves is not None and "pattern" in curves:
        curves = curves | {"pattern": curves["pattern"].astype(np.float16)}
    description = {"format": FORMAT, "group": name.split("/")[-1], "config": config.to_dict(), "record": record}
    # one entry, since safetensors writes several in random order: the same weights are the same bytes
    metadata = {"carry": json.dumps(description)}
    parameters, history = files_of(name)
    save_file({key: value.contiguous() for key, value in weights.items()}, publication.new(parameters), metadata)
    if curves is not None:
        with publication.new(history).open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **curves)


def _checked(where: Path, group: str, source: str, suffix: str, recipe: str | None = None) -> Path:
    """Path of a group's file, once it is known to be there and to match the manifest."""
    path = where / f"{group}.{suffix}"
    if not path.exists():
        if source == "author" and not release.holds("weights" if suffix == "safetensors" else "history", group):
            raise BadInput(f"No {path.name} from author, whose release has none: expected another group or source.")
        if source == "ours" and group in groups.RELEASED_ONLY:
            raise BadInput(f"No {path.name} from ours: {group} is in the author's release, not in the paper.")
        by = "" if recipe is None else f" --recipe {recipe}"
        remedy = "`carry import-author DIR`" if source == "author" else f"`carry train {group}{by}`"
        raise BadInput(f"No {path.name} from {source}: {path} does not exist. Make it with {remedy}.")
    expected = manifest.expected(where, path.name)
    if expected is not None and sha256(path) != expected:
        if (manifest.home(where)[0] / manifest.JOURNAL).exists():
            raise BadInput(f"The publication of {path} was interrupted: `carry verify`, or `carry train`, finishes it.")
        raise _damaged(path, source, "its sha256 is not the manifest's")
    return path


def _damaged(path: Path, source: str, why: str) -> BadInput:
    remedy = "run `carry import-author DIR` again" if source == "author" else f"restore it with `git checkout {path}`"
    return BadInput(f"{path} is damaged ({why}): {remedy}.")


def check(
    *, source: str, group: str, run: int | None = None, n_examples: object = draws.FEWEST, seed: object = 0
) -> Runs:
    """Check a notebook's parameters before anything is computed, and load the group they name.

    Parameters that a notebook does not have are left out, and are then what passes.

    Raises:
        BadInput: one of them is not what it should be; the message says which and what was expected.
    """
    draws.check(n_examples=n_examples, seed=seed)
    loaded = load(group, source)
    if run is not None:
        loaded.model(run)
    return loaded


def summary(values: torch.Tensor) -> tuple[float, float | None]:
    """Mean over runs and standard deviation with n - 1 (None for a single run)."""
    return values.double().mean().item(), values.double().std().item() if len(values) > 1 else None
