"""Interchange maps of whole groups: measured on all runs, stored with the results, read back.

A run's map is a frame of `interchange.sweep`. A group's maps are stored with `STORED_COLUMNS`,
without the rows that `interchange.completed` adds. The sha256 of the weights is stored with them
(`runs.digest`), so maps of other weights than are here are noticed.
"""

import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from carry_core import runs
from carry_core.errors import BadInput
from carry_core.files import damaged, data_dir
from carry_core.model import Transformer
from carry_core.pairs import VARIABLES
from carry_fast.swaps import components
from carry_paper import catalogue
from carry_paper.findings.interchange import CELL, PairCounts, completed, pair_counts, sweep
from carry_paper.schemas import one_of, read_table, save_table
from carry_train import groups

COLUMNS = ["source", "group", "run", *CELL, "pairs", "accuracy", "elsewhere"]  # of a record
STORED_COLUMNS = [*COLUMNS[2:], "right", "control", "sha256"]

# Components of a map that `interchange.completed` adds.
ADDED = r"blocks\.[1-9]\d*\.resid_pre"

# Pairs for a swap at an answer position. All maps of all runs take an hour on one core.
PAIRS = 10_000
PAIRS_OF_OTHERS = 2_000  # in every group but the main one

Share = Annotated[float, Field(ge=0, le=1)] | None
Position = Annotated[str, Field(pattern="^pos[0-9]+$")]


class StoredMaps(BaseModel):
    """The columns of a group's stored maps."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    component: list[str]
    position: list[Position]
    reads: list[Position]
    variable: list[Annotated[str, one_of(VARIABLES)]]
    direction: list[Literal["up", "down"]]
    pairs: list[Annotated[int, Field(ge=0)]]
    accuracy: list[Share]
    elsewhere: list[Share]
    right: list[Share]
    control: list[Literal[0, 1]]
    sha256: Annotated[list[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]], Field(min_length=1)]


def default_pairs(name: str) -> int:
    """Return the number of pairs for a swap at an answer position in a group's maps."""
    return PAIRS if name == groups.MAIN else PAIRS_OF_OTHERS


def measure_group(
    source: str,
    name: str,
    report: Callable[[str], object] = lambda done: None,
    pairs: int = PAIRS,
) -> pd.DataFrame:
    """Return the maps of all runs of a group, and those of their controls.

    Controls have a fifth of the pairs at every position. `report` is called with each finished run.
    """
    maps = measure_models(catalogue.load(name, source).models(), groups.find(name), report, pairs)
    return maps.assign(source=source, group=name)


def measure_models(
    models: Iterable[tuple[int, Transformer]],
    group: groups.Group,
    report: Callable[[str], object] = lambda done: None,
    pairs: int = PAIRS,
) -> pd.DataFrame:
    """Return the maps of some runs of a group and of their controls, as `measure_group` does."""
    counts = pair_counts(pairs)
    control_counts = PairCounts(counts.elsewhere, counts.elsewhere)
    frames = []
    for run, model in models:
        about = {"run": run, "sha256": runs.digest(dict(model.named_parameters()))}
        control = sweep(model, control_counts, group.n_digits, own=True, control=True)
        frames.append(sweep(model, counts, group.n_digits).assign(control=False, **about))
        frames.append(control.assign(control=True, **about))
        report(f"{group.name} run {run}")
    maps = pd.concat(frames, ignore_index=True)
    return maps.round({"accuracy": 5, "elsewhere": 5, "right": 3})


def path_of(source: str, name: str) -> Path:
    """Return the path of a group's stored maps."""
    return data_dir() / "results" / "interchange" / source / f"{name}.csv.gz"


def save(source: str, name: str, maps: pd.DataFrame) -> Path:
    """Store a group's maps with the results; raise `BadInput` as `check_replaces`."""
    thin = _to_store(maps)
    check_replaces(source, name, int(thin.pairs.max()), thin.run.unique().tolist())
    return save_table(path_of(source, name), thin)


def check_replaces(source: str, name: str, pairs: int, numbers: Collection[int]) -> None:
    """Check that maps of this many pairs, of the runs `numbers`, may replace a group's stored maps.

    Raises:
        BadInput: The stored ones are of more pairs, or of runs that are not among `numbers`.
    """
    path = path_of(source, name)
    if not os.path.lexists(path):
        return
    stored = _read(source, name)
    remedy = f"or delete {path} to begin anew"
    if stored.pairs.max() > pairs:
        raise BadInput(
            f"{path} has maps of {stored.pairs.max()} pairs, and these are of {pairs}: "
            f"ask for more, {remedy}."
        )
    lost = sorted(set(stored.run) - set(numbers))
    if lost:
        raise BadInput(
            f"{path} has maps of runs {', '.join(map(str, lost))}, which are missing: "
            f"get them, {remedy}."
        )


def load(source: str, name: str, *, control: bool = False) -> pd.DataFrame:
    """Return a group's stored maps, or those of its controls: `COLUMNS` and `right`.

    Raises `BadInput` if there are none, or they are damaged, or of other weights than are here.
    """
    group = groups.find(name).name
    other = other_runs(source, group)
    if other:
        raise BadInput(
            f"{path_of(source, group)} has maps of other weights than those of run {other[0]} of "
            f"{group} from {source} here: measure them anew with "
            f"`carry interchange --source {source} {group} --save`."
        )
    return _as_loaded(_read(source, group), source, group, control=control)


def _as_loaded(maps: pd.DataFrame, source: str, name: str, *, control: bool) -> pd.DataFrame:
    """Return stored maps, or those of controls, as `load` does."""
    maps = maps.astype({"accuracy": float, "elsewhere": float})
    maps = maps[maps.control == control].drop(columns=["control", "sha256"])
    return completed(maps).assign(source=source, group=name)[[*COLUMNS, "right"]]


def other_runs(source: str, name: str, loaded: runs.Runs | None = None) -> list[int]:
    """Return the runs of a group whose stored maps are of other weights than are here.

    If the maps are of none of the runs that are here, these are all runs. `loaded` are the runs
    that are here, those that lead if None; if there are none, the maps are of no other weights.

    Raises:
        BadInput: There are no maps, or they are damaged.
    """
    maps = _read(source, name)
    if loaded is None:
        if not catalogue.find(name, source):
            return []
        loaded = catalogue.load(name, source)
    present = {run: runs.digest(weights) for run, weights in loaded.weights.items()}
    stored = dict(zip(maps.run, maps.sha256, strict=True))
    common = [run for run in present if run in stored]
    if not common:
        return sorted(present)
    return [run for run in common if stored[run] != present[run]]


def load_by_source(name: str) -> dict[str, pd.DataFrame]:
    """Return a group's stored maps by source, for the sources that have them of their weights."""
    maps = {}
    group = groups.find(name).name
    for source in runs.SOURCES:
        if path_of(source, group).exists() and not other_runs(source, group):
            maps[source] = load(source, group)
    return maps


class MapsOfRuns:
    """Maps of some runs, stored or not: those of other weights than are stored are measured.

    Attributes:
        measured: The runs whose maps were measured, with `PAIRS_OF_OTHERS`: half a minute each.
    """

    def __init__(self, loaded: runs.Runs) -> None:
        self._loaded = loaded
        stored = pd.DataFrame(columns=STORED_COLUMNS)
        if path_of(loaded.source, loaded.group).exists():
            others = other_runs(loaded.source, loaded.group, loaded)
            maps = _read(loaded.source, loaded.group)
            stored = maps[maps.run.isin(set(loaded.numbers) - set(others))]
        self.measured = [run for run in loaded.numbers if run not in set(stored.run)]
        self._maps = stored
        if self.measured:
            models = [(run, loaded.model(run)) for run in self.measured]
            group = groups.find(loaded.group)
            new = _to_store(measure_models(models, group, pairs=PAIRS_OF_OTHERS))
            self._maps = pd.concat([stored, new]) if len(stored) else new

    def load(self, *, control: bool = False) -> pd.DataFrame:
        """Return the maps, or those of the controls, as `interchange_maps.load` does."""
        return _as_loaded(self._maps, self._loaded.source, self._loaded.group, control=control)


def _to_store(maps: pd.DataFrame) -> pd.DataFrame:
    """Return maps as they are stored, without the rows that `completed` adds."""
    is_added = (maps.direction == "both") | maps.component.str.match(ADDED)
    return maps[~is_added][STORED_COLUMNS].astype({"control": int})


def _read(source: str, name: str) -> pd.DataFrame:
    """Return a group's stored maps as they are in the file, checked."""
    path = path_of(source, name)
    remedy = f"delete it and write it with `carry interchange --source {source} {name} --save`"
    maps = read_table(path, StoredMaps, remedy, ["run", *CELL, "control"], "cell")
    unknown = set(maps.component) - set(components(groups.find(name).config))
    if unknown:
        raise damaged(path, f"{name} has no component {min(unknown)!r}", remedy)
    if len(maps[["run", "sha256"]].drop_duplicates()) > maps.run.nunique():
        raise damaged(path, "a run has maps of two weights", remedy)
    return maps
