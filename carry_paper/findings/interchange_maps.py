"""Interchange maps of whole groups: measured on all runs, stored with the results, read back.

A run's map is a frame of `interchange.sweep`. A group's maps are stored with `STORED_COLUMNS`,
without the rows that `interchange.completed` adds.
"""

import gzip
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_core.fast.swaps import components
from carry_core.files import damaged, data_dir
from carry_core.pairs import VARIABLES
from carry_paper.checksums import save_listed
from carry_paper.findings.interchange import CELL, PairCounts, completed, pair_counts, sweep
from carry_paper.schemas import one_of, read_table

COLUMNS = ["source", "group", "run", *CELL, "pairs", "accuracy", "elsewhere"]  # of a record
STORED_COLUMNS = [*COLUMNS[2:], "right", "control"]

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
    n_digits = groups.find(name).n_digits
    counts = pair_counts(pairs)
    control_counts = PairCounts(counts.elsewhere, counts.elsewhere)
    frames = []
    for run, model in runs.load(name, source).models():
        control = sweep(model, control_counts, n_digits, own=True, control=True)
        frames.append(sweep(model, counts, n_digits).assign(control=False, run=run))
        frames.append(control.assign(control=True, run=run))
        report(f"{name} run {run}")
    maps = pd.concat(frames, ignore_index=True).assign(source=source, group=name)
    return maps.round({"accuracy": 5, "elsewhere": 5, "right": 3})


def path_of(source: str, name: str) -> Path:
    """Return the path of a group's stored maps."""
    return data_dir() / "results" / "interchange" / source / f"{name}.csv.gz"


def save(source: str, name: str, maps: pd.DataFrame) -> Path:
    """Store a group's maps with the results.

    Raises:
        BadInput: As `check_replaces`.
    """
    is_added = (maps.direction == "both") | maps.component.str.match(r"blocks\.[1-9]\d*\.resid_pre")
    thin = maps[~is_added][STORED_COLUMNS].astype({"control": int})
    check_replaces(source, name, int(thin.pairs.max()), thin.run.unique().tolist())
    return save_listed(
        path_of(source, name), gzip.compress(thin.to_csv(index=False).encode(), mtime=0)
    )


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

    Raises:
        BadInput: There are none, or they are damaged.
    """
    maps = _read(source, groups.find(name).name).astype({"accuracy": float, "elsewhere": float})
    maps = maps[maps.control == control].drop(columns="control")
    return completed(maps).assign(source=source, group=name)[[*COLUMNS, "right"]]


def load_by_source(name: str) -> dict[str, pd.DataFrame]:
    """Return a group's stored maps by source, for the sources that have them."""
    maps = {}
    for source in runs.SOURCES:
        if path_of(source, groups.find(name).name).exists():
            maps[source] = load(source, name)
    return maps


def _read(source: str, name: str) -> pd.DataFrame:
    """Return a group's stored maps as they are in the file, checked."""
    path = path_of(source, name)
    remedy = f"delete it and write it with `carry interchange --source {source} {name} --save`"
    maps = read_table(path, StoredMaps, remedy)
    unknown = set(maps.component) - set(components(groups.find(name).config))
    if unknown:
        raise damaged(path, f"{name} has no component {min(unknown)!r}", remedy)
    if maps.duplicated(["run", *CELL, "control"]).any():
        raise damaged(path, "a cell stands twice", remedy)
    return maps
