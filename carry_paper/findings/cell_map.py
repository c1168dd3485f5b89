"""The map: cells in which one setting at a time is another than in the paper's main group.

The settings go from where nothing is learned to where all runs agree. What a cell shows was
written down before any of them was looked at (`book/protocol.md`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import scipy

from carry_core.errors import BadInput
from carry_paper.findings import carry_line, cells
from carry_paper.findings.base import Fields
from carry_paper.findings.corners import IN_EACH_STATE
from carry_paper.findings.evidence import Evidence
from carry_train.groups import MAIN, Group

RECIPE = "minute"
NUMBERS = range(cells.FIRST, cells.FIRST + cells.N_RUNS)  # of a cell's runs
# By factor, the groups of the cells, from low to high; the main group's is part of each.
GROUPS = {
    "fraction of the sums": [
        f"n2_s{s}_w0.2" for s in (0.002, 0.005, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5)
    ],
    "weight decay": [f"n2_s0.3_w{w}" for w in (0.0, 0.2, 1.0, 3.0, 10.0, 30.0)],
    "neurons of an MLP": [
        "n2_s0.3_w0.2_dff32",
        MAIN,
        *(f"{MAIN}_dff{d}" for d in (256, 512, 1024)),
    ],
    "layers": [f"n{n}_s0.3_w0.2" for n in (1, 2, 3, 4)],
    "heads": [f"{MAIN}_h1", MAIN, *(f"{MAIN}_h{h}" for h in (4, 8, 16))],
    "dropout": [f"{MAIN}_p0.0", f"{MAIN}_p0.05", MAIN, *(f"{MAIN}_p{p}" for p in (0.2, 0.3, 0.5))],
}
# And the lengths of the main group's schedule, in steps.
STEPS = (1000, 2000, 4000, 8000, 16000)
LENGTH = "steps of the schedule"
SETTINGS: Mapping[str, Callable[[Group], float]] = {
    "fraction of the sums": lambda group: group.fraction,
    "weight decay": lambda group: group.decay,
    "neurons of an MLP": lambda group: group.config.d_ff,
    "layers": lambda group: group.config.layers,
    "heads": lambda group: group.config.heads,
    "dropout": lambda group: group.dropout,
}
# Those with a value that the paper tried in two-layer or three-layer models, one at a time.
IN_THE_PAPER = (
    MAIN,
    "n2_s0.1_w0.2",
    "n2_s0.2_w0.2",
    "n2_s0.3_w0.0",
    "n2_s0.3_w1.0",
    "n2_s0.3_w0.2_dff512",
    "n2_s0.3_w0.2_dff1024",
    "n3_s0.3_w0.2",
)

SUMMARY = ["runs", "learn", "show", "low", "high", "verdict"]
FEWEST_LEARN = 6  # fewer runs that learn say nothing of a cell
HALF = 0.5


def cells_by_setting() -> dict[tuple[str, float], cells.Cell]:
    """Return the cells of the map by factor and setting; the main group's is part of each."""
    by_setting = {}
    for factor, names in GROUPS.items():
        for name in names:
            cell = cells.find_cell(name, RECIPE)
            by_setting[factor, SETTINGS[factor](cell.group)] = cell
    for steps in STEPS:
        by_setting[LENGTH, steps] = cells.find_cell(MAIN, RECIPE, steps=steps)
    return by_setting


def map_cells() -> list[cells.Cell]:
    """Return the cells of the map, the main group's once."""
    of_map: list[cells.Cell] = []
    for cell in cells_by_setting().values():
        if cell not in of_map:
            of_map.append(cell)
    return of_map


def by_setting(table: pd.DataFrame) -> pd.DataFrame:
    """Return what each cell of the map comes to, if all its runs are in the table.

    Returns:
        A row for each of these cells, by `factor` and `setting`, with the name of its `group`, the
        fields of `summary`, and `tried`, True for a setting that the paper tried.
    """
    tried = [cells.find_cell(name, RECIPE) for name in IN_THE_PAPER]
    rows = []
    for (factor, setting), cell in cells_by_setting().items():
        of_cell = cell.of(table)
        of_cell = of_cell[of_cell.run.isin(NUMBERS)]
        if len(of_cell) == len(NUMBERS):
            place = {"factor": factor, "setting": setting, "group": cell.group.name}
            rows.append({**place, **summary(of_cell), "tried": cell in tried})
    return pd.DataFrame(rows, columns=["factor", "setting", "group", *SUMMARY, "tried"])


def shows(rows: pd.DataFrame, learns: float = cells.LEARNS) -> "pd.Series[bool]":
    """Return True for runs that learn and carry as the paper says, in the sense of the corners.

    Swapping carry and nine moves the carry in each pair of states and each column, and the last
    layer's attention writes a part of the carry's coordinate: the run is not early. A run learns if
    its exact match reaches `learns`.
    """
    is_early = rows.late.map(carry_line.who_writes, na_action="ignore") == "early"
    shows: pd.Series[bool] = (
        (rows.exact >= learns) & (rows.plane >= IN_EACH_STATE) & rows.late.notna() & ~is_early
    )
    return shows


def summary(rows: pd.DataFrame, learns: float = cells.LEARNS) -> dict[str, Any]:
    """Return what a cell comes to, from its runs, which have learned from `learns` on (`shows`).

    Returns:
        The number of `runs`, of those that `learn`, and of those that show it; the 95% interval of
        their share among those that learn (`low`, `high`); and `verdict`: *holds* if it lies above
        one half, *does not hold* if below, *can't tell* if neither, and *does not learn* if fewer
        than `FEWEST_LEARN` runs learn.
    """
    n_learn, n_show = int((rows.exact >= learns).sum()), int(shows(rows, learns).sum())
    fields: dict[str, Any] = {"runs": len(rows), "learn": n_learn, "show": n_show}
    if n_learn < FEWEST_LEARN:
        return {**fields, "low": None, "high": None, "verdict": "does not learn"}
    low, high = scipy.stats.binomtest(n_show, n_learn).proportion_ci()
    verdict = "can't tell"
    if low > HALF or high < HALF:
        verdict = "holds" if low > HALF else "does not hold"
    return {**fields, "low": float(low), "high": float(high), "verdict": verdict}


def settings(evidence: Evidence) -> pd.DataFrame:
    """Share of runs that carry as the paper says, in each setting that it tried (abstract).

    Returns:
        The share, among the runs that learn, as `value`, with the other fields of `summary`; all
        are NaN for a setting whose runs are not all there.

    Raises:
        BadInput: The source is the author's.
    """
    if evidence.source == "author":
        raise BadInput(
            f"The author's release has six runs of a setting; the map has {len(NUMBERS)}."
        )
    of_map = by_setting(cells.stored_runs("ours", cells.STEP, cells.PROCESSOR))
    tried = of_map[of_map.tried].drop_duplicates("group").set_index("group")
    of_groups = tried[SUMMARY].reindex(IN_THE_PAPER)
    of_groups.insert(0, "value", of_groups.show / of_groups.learn.clip(lower=1))
    return of_groups.set_index("by minute: " + of_groups.index)


def holds(measured: Fields) -> bool | None:
    """Return True if a setting holds, False if it does not or does not learn; else None."""
    says = {"holds": True, "does not hold": False, "does not learn": False}
    return says.get(measured["verdict"])
