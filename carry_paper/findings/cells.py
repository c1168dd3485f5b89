"""Cells: runs of one setting by one recipe, trained to be measured once and thrown away.

A cell is a group, a recipe of some length, and runs. All runs of a cell have their own seeds, or
one thing `new`: then that stream has the seed `NEW_SEEDS` + run, and everything else is that of the
run with the same number in the cell where nothing is new, its base. `twins` compares the two. A
*fork* is its base up to some epoch, and only what comes `since` is new. The same run by another
step, or on another processor, has another row, as the last bits make another run of it.

The stored table has a row for each run: its seeds, what trained it, the sha256 of its weights, and
what was measured. The weights do not ship, since `make cell` makes them again. These runs are no
rows of `measurements`: its rows have no seeds, and every run in it counts as one of the book's.

The measures are those of `carry_line` and `corners`, on the same samples: of the leftmost column
they are what `carry lines` stores.
"""

import json
import os
import platform
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import filelock
import pandas as pd
import torch
from pydantic import BaseModel, ConfigDict, Field, Json

from carry_core import runs
from carry_core.errors import BadInput
from carry_core.files import data_dir
from carry_core.model import Transformer
from carry_fast import processor
from carry_paper.findings import carry_line, corners
from carry_paper.schemas import one_of, read_table, rounded, save_table
from carry_train import choice, groups, loop
from carry_train.checkpoints import Checkpoints
from carry_train.curves import read_curves
from carry_train.groups import Group, Recipe
from carry_train.loop import Clock, Report
from carry_train.precisions import Request
from carry_train.progress import Conditions
from carry_train.seeds import Seeds
from carry_train.trainer import commit, part, round_otherwise

NOTHING = "nothing"
ROUNDING = "rounding"
CHANCE = "mask+order"  # all that is left to chance once a training has begun
OF_FORKS = (CHANCE, ROUNDING)  # what can be new in a fork
NEW = (NOTHING, ROUNDING, "mask", "order", CHANCE, "split", "init")
NEW_SEEDS = 1000  # no run has such a high number, so no stream of another run is taken
FIRST, N_RUNS = 200, 32
RUNS = f"{FIRST}-{FIRST + N_RUNS - 1}"  # of a cell, unless others are asked for
LEARNS = 0.999  # from this exact match on test sums on, a run has learned to add

DECIMALS = 4  # places of a stored number; of the exact match, which counts 150,150 sums, 6
REMEDY = "restore it with `git checkout`, or delete it and run `make cell`"
CELL = ["group", "recipe", "steps", "epochs", "new", "since"]
# Runs that differ in one of these may differ in bits for no other reason.
MADE_BY = ["precision", "step", "processor"]
KEY = [*CELL, "run", "precision", "processor"]
# The step, and the kind of processor, of the runs that the book compares (`book/protocol.md`).
STEP, PROCESSOR = "fused-bf16", "AMD EPYC, x86_64, avx512f"

Share = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[float, Field(ge=0, multiple_of=1)]


class StoredCells(BaseModel):
    """The columns of the stored table.

    Attributes:
        group: The group.
        recipe: The recipe.
        steps: The optimiser steps of its whole schedule.
        epochs: The epochs, or segments of a short training, that were trained.
        new: What the runs have that their bases do not, one of `NEW`.
        since: The epochs that they share with their bases all the same: 0 but for forks.
        run: The run's number.
        split: The seeds: of the split,
        init: of the initial weights,
        order: of the order of the training sums; missing where they have that of the split,
        mask: of the dropout masks,
        rounding: and of the weights that are rounded otherwise; missing where none are.
        precision: The step that trained the run.
        step: The version of its rounding; missing for PyTorch's.
        processor: The processor, and its widest registers.
        torch: PyTorch's version.
        commit: The commit of the code that trained and measured, after a g, as git describes it.
        sha256: That of the weights (`runs.digest`).
        seconds: The wall time of the training.
        exact: Exact match on the test sums.
        late: The late share, the mean over columns; missing without a line, and for one layer.
        writers: The most heads of the last layer that write a column's coordinate.
        nine: The place of the nine in the leftmost column, on the way from low (0) to high (1).
        line: The lowest interchange accuracy of the balanced line, over columns and states.
        plane: The same for carry and nine together.
        columns: What was measured in each column, as JSON, with the share `right` of sampled pairs
            of which the run gets both sums right. Where it gets too few, the rest is missing.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    group: list[str]
    recipe: list[Annotated[str, one_of(groups.RECIPES)]]
    steps: list[Annotated[int, Field(ge=1)]]
    epochs: list[Annotated[int, Field(ge=1)]]
    new: list[Annotated[str, one_of(NEW)]]
    since: list[Annotated[int, Field(ge=0)]]
    run: list[Annotated[int, Field(ge=0, le=runs.LAST)]]
    split: list[Seed]
    init: list[Seed]
    order: list[Seed | None]
    mask: list[Seed]
    rounding: list[Seed | None]
    precision: list[str]
    step: list[Seed | None]
    processor: list[str]
    torch: list[str]
    commit: list[str]
    sha256: list[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]
    seconds: list[Annotated[float, Field(ge=0)]]
    exact: list[Share]
    late: list[float | None]
    writers: list[Seed | None]
    nine: list[float | None]
    line: list[Share | None]
    plane: list[Share | None]
    columns: list[Json[list[dict[str, Any]]]]


COLUMNS = list(StoredCells.model_fields)


# ---- a cell


@dataclass(frozen=True)
class Cell:
    """A group, a recipe, and what is new in its runs, one of `NEW`, since which epoch."""

    group: Group
    recipe: Recipe
    new: str = NOTHING
    since: int = 0

    @property
    def steps(self) -> int:
        """The optimiser steps of the whole schedule."""
        return self.recipe.planned_epochs(self.group) * self.recipe.steps_in_epoch(self.group)

    @property
    def key(self) -> dict[str, Any]:
        """The cell's columns of the table."""
        values = (
            self.group.name,
            self.recipe.name,
            self.steps,
            self.recipe.epochs(self.group),
            self.new,
            self.since,
        )
        return dict(zip(CELL, values, strict=True))

    def seeds(self, run: int) -> Seeds:
        """Return the seeds of a run; of a fork, those it has in the end."""
        names = [] if self.new == NOTHING else self.new.split("+")
        return Seeds(**dict.fromkeys(names, NEW_SEEDS + run))

    def folder(self, run: int) -> Path:
        """Return the folder of a run's files, which is removed once the run is measured."""
        name = ".".join(map(str, self.key.values()))
        return data_dir() / "checkpoints" / "cells" / name / f"run{run}"

    def of(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of this cell."""
        return table[(table[CELL] == pd.Series(self.key)).all(axis=1)]


def find_cell(
    name: str,
    recipe: str,
    new: str = NOTHING,
    steps: int | None = None,
    epochs: int | None = None,
    since: int | None = None,
) -> Cell:
    """Return the cell of a group, whose schedule may have another length than its recipe's.

    Raises:
        BadInput: There is no such group or recipe, the recipe has fewer epochs, its runs do not
            start from initial weights, or what is new cannot be new later.
    """
    group = groups.find(name)
    if group.parent is not None:
        raise BadInput(
            f"{name} goes on from runs of {group.parent[0]}, and a cell starts from initial "
            f"weights: expected another group, such as {groups.MAIN}."
        )
    if new not in NEW:
        raise BadInput(f"new={new!r}: expected one of {', '.join(NEW)}.")
    of_cell = groups.find_recipe(recipe, group)
    if steps is not None:
        of_cell = replace(of_cell, steps=steps)
        planned = Cell(group, of_cell).steps
        if planned != steps:
            raise BadInput(
                f"--steps {steps}: a schedule by {recipe} has whole {of_cell.unit(group)}s; "
                f"expected {planned}, for example."
            )
    planned_epochs = of_cell.planned_epochs(group)
    if epochs is not None and epochs > planned_epochs:
        raise BadInput(f"--epochs {epochs}: expected {planned_epochs} or fewer, as the cell has.")
    of_cell = replace(of_cell, limit=epochs)
    if since and new not in OF_FORKS:
        raise BadInput(f"--since {since} needs --new {' or '.join(OF_FORKS)}, not {new}.")
    last = of_cell.epochs(group)
    if since and since >= last:
        raise BadInput(f"--since {since}: expected an epoch before {last}, the last.")
    return Cell(group, of_cell, new, since or 0)


# ---- making it


def missing(cell: Cell, numbers: Collection[int], request: Request) -> list[int]:
    """Return the runs that the table lacks by the requested step on this processor.

    Raises:
        BadInput: The step that is requested cannot train the cell.
    """
    precision = choice.available(request, cell.group, cell.recipe, "cpu")[0]
    rows = trained_by(cell.of(saved()), str(precision), this_processor())
    return [run for run in numbers if run not in set(rows.run)]


def trained_by(table: pd.DataFrame, precision: str, processor: str) -> pd.DataFrame:
    """Return the rows of runs by one kind of step on one kind of processor."""
    return table[(table.precision == precision) & (table.processor == processor)]


def stored_runs(source: str, precision: str, processor: str) -> pd.DataFrame:
    """Return the stored rows of runs by one kind of step on one kind of processor.

    Raises:
        BadInput: The source is not ours, or there are no such rows.
    """
    if source != "ours":
        raise BadInput(f"Unknown source {source!r}: expected 'ours', the only one with cells.")
    table = saved()
    rows = trained_by(table, precision, processor)
    if not len(rows):
        stored = table[["precision", "processor"]].drop_duplicates().itertuples(index=False)
        expected = "; ".join(f"{step} on {made_on}" for step, made_on in stored) or "`make cell`"
        raise BadInput(f"No run by {precision} on {processor} is stored: expected {expected}.")
    return rows


def make_run(
    cell: Cell,
    run: int,
    request: Request,
    clock: Clock | None = None,
    report: Report = lambda title, state, share: None,
) -> bool:
    """Train a run, measure it, store its row and remove its files; False if time was up before.

    A run that was begun is resumed.

    Raises:
        BadInput: Another process is training it; or as `loop.train_group` and `save`.
    """
    folder = cell.folder(run)
    checkpoints = Checkpoints(folder, cell.group, cell.recipe)
    conditions = Conditions("cpu", request, cell.seeds(run))
    if cell.since and not _forked(cell, run, request, clock, report):
        return False
    if not loop.train_group(checkpoints, [run], folder / "runs", conditions, clock, report):
        return False
    path = runs.run_path(folder / "runs", cell.group.name, cell.recipe.name, run)
    save([row(cell, path)])
    shutil.rmtree(folder)
    return True


def _forked(cell: Cell, run: int, request: Request, clock: Clock | None, report: Report) -> bool:
    """Train a fork's base up to where it begins, for it to go on; False if time was up before.

    The fork's checkpoint is its base's with other seeds. With `rounding`, one weight of each matrix
    is moved; otherwise the state of the masks is removed, so that they begin from the new seed.
    """
    fork = Checkpoints(cell.folder(run), cell.group, cell.recipe)
    if fork.path(run).exists():
        return True
    folder = cell.folder(run) / "base"
    base = Checkpoints(folder, cell.group, replace(cell.recipe, limit=cell.since))
    conditions = Conditions("cpu", request)
    if not loop.train_group(base, [run], folder / "runs", conditions, clock, report):
        return False
    tensors, record = base.load(run)
    seeds = cell.seeds(run)
    rounding = seeds.streams(run).rounding
    if rounding is None:
        del record["dropout"]
    else:
        round_otherwise(part(tensors, "parameters/"), rounding)
    fork.save([(tensors, {**record, "seeds": seeds.record(run)})])
    return True


def row(cell: Cell, path: Path) -> dict[str, Any]:
    """Return the row of a finished run, from its file and its learning curves."""
    loaded = runs.load(path)
    (run,) = loaded.numbers
    (record,) = loaded.record["runs"]
    curves = read_curves(path.with_suffix(".npz"), cell.group, record["epochs"])
    return {
        **cell.key,
        "run": run,
        "order": None,
        "rounding": None,
        **record["seeds"],
        "precision": record["precision"],
        "step": record.get("step"),
        "processor": this_processor(),
        "torch": record["torch"],
        "commit": f"g{commit()}",  # of digits alone, it would be read as a number
        "sha256": runs.digest(loaded.weights[run]),
        "seconds": record["seconds"],
        "exact": round(float(curves["test_whole"][-1]), 6),
        **measured(loaded.model(run), cell.group.n_digits),
    }


def this_processor() -> str:
    """Return the processor of this machine, by what decides the last bits of a training."""
    this = processor.this()
    widest = next((name for name in ("avx512f", "avx2") if name in this.instructions), "")
    return ", ".join(filter(None, (this.model, platform.machine(), widest)))


# ---- measuring


@torch.inference_mode()
def measured(
    model: Transformer, n_digits: int, pairs: int = carry_line.PAIRS, tuples: int = corners.TUPLES
) -> dict[str, Any]:
    """Return `late`, `writers`, `nine`, `line` and `plane` of a run, and its `columns`."""
    columns = []
    for column in carry_line.carry_columns(model.config, n_digits):
        reads = model.config.layout.position_names[column.answer]
        of_column = {"reads": reads, **_writing(model, column, pairs)}
        columns.append(of_column | _moving(model, column, tuples))
    late = [x["late"] for x in columns if x.get("late") is not None]
    writers = [x["writers"] for x in columns if x.get("writers") is not None]
    return {
        "late": sum(late) / len(late) if late else None,
        "writers": max(writers, default=None),
        "nine": columns[0].get("nine"),
        "line": corners.lowest(columns, "line"),
        "plane": corners.lowest(columns, "plane"),
        "columns": columns,
    }


def _writing(model: Transformer, column: carry_line.Column, pairs: int) -> dict[str, Any]:
    """Return who writes a column's coordinate, as `carry_line.line_fields` has it."""
    generator = torch.Generator().manual_seed(0)
    right = carry_line.share_right(model, column, generator)
    if right < carry_line.FEWEST_RIGHT or model.config.layers < 2:  # nothing precedes the last
        return {"right": right}
    fitted = carry_line.fit_column(model, column, generator, pairs)
    shares = carry_line.shares(fitted.line, fitted.test)
    return {
        "right": fitted.right,
        "late": carry_line.late_share(shares, model.config),
        "writers": carry_line.n_writers(shares, model.config),
    }


def _moving(model: Transformer, column: carry_line.Column, tuples: int) -> dict[str, Any]:
    """Return the place of the nine, and the lowest cells of line and plane (`corners`)."""
    of = corners.corners_of(model, column, torch.Generator().manual_seed(0), tuples)
    if not corners.can_be_fitted(of):
        return {}
    values: dict[str, Any] = {"nine": corners.places(of)[corners.STATES[corners.NINE]]}
    for name, fit in (("line", corners.line_basis), ("plane", corners.plane_basis)):
        bases = corners.fitted_bases(of, fit)
        moved = corners.moved_by(model, of, bases, corners.carry_swaps(of))
        values[name] = corners.lowest(corners.cells(of, moved))
    return values


# ---- the stored table


def path_of(folder: Path | None = None) -> Path:
    """Return the path of the stored table, in another data folder than ours if one is given."""
    return (folder or data_dir()) / "results" / "cells.csv.gz"


def saved(folder: Path | None = None) -> pd.DataFrame:
    """Return the stored table, without rows if there is none; raise `BadInput` if it is damaged."""
    path = path_of(folder)
    if not os.path.lexists(path):
        return pd.DataFrame(columns=COLUMNS)
    table = read_table(path, StoredCells, REMEDY, KEY, "run of a cell")
    return table.assign(columns=table["columns"].map(json.loads))


def save(rows: Collection[Mapping[str, Any]]) -> Path:
    """Store rows in place of those of the same runs; all others stay.

    Jobs that save at once wait for each other.

    Raises:
        BadInput: The stored table is damaged, or cannot be written.
    """
    path = path_of()
    path.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(path.with_name(".cells.lock")):
        new = pd.DataFrame(rows, columns=COLUMNS)
        stored = saved()
        table = pd.concat([stored, new]) if len(stored) else new
        table = table.drop_duplicates(KEY, keep="last").sort_values(KEY)
        table = table.round(dict.fromkeys(("late", "nine", "line", "plane"), DECIMALS))
        table["columns"] = table["columns"].map(lambda x: json.dumps(rounded(x, DECIMALS)))
        return save_table(path, table)
