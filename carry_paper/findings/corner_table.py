"""The carry and the nine in whole groups: what the criteria make of the stored table.

`line_table` measures and stores it. `book/protocol.md` dates the criteria.
"""

import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import scipy

from carry_core.errors import BadInput
from carry_paper.findings import carry_line, corners, critiques, line_table, scrubbing
from carry_paper.findings.bars import Bar
from carry_paper.findings.base import MAIN, Fields
from carry_paper.findings.corners import IN_EACH_STATE
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.line_table import KEY
from carry_train import groups

# A control that moves more does move the carry.
CONTROL_MOVES = Bar(0.2, perfect=0)


def saved(folder: Path | None = None) -> pd.DataFrame:
    """Return the stored rows of columns that were asked in each state; see `line_table.saved`."""
    table = line_table.saved(folder)
    return table[table.states.notna()]


# ---- what the criteria decide


def decided(table: pd.DataFrame, bar: float = IN_EACH_STATE) -> pd.DataFrame:
    """Return a summary of each row of the table, with its key.

    Returns:
        For the swaps called `line`, `plane`, `natural` and `gradient`, the lowest cell, NaN where
        one is empty; `on_line` and `in_plane`, True if that is at least the bar, None where there
        is none; `nine`, the place of the nine; and the shares of the loss that are recovered.
    """
    rows = []
    for stored in table.to_dict("records"):
        states, losses = stored["states"], stored["losses"]
        row: dict[str, Any] = {name: stored[name] for name in KEY}
        row["reason"] = states["reason"]
        if states["reason"] is None:
            for name in ("line", "plane", "natural", "gradient"):
                row[name] = corners.lowest(states[name])
            row["on_line"] = corners.in_each_state(states["line"], bar)
            row["in_plane"] = corners.in_each_state(states["plane"], bar)
            row["nine"] = states["place"]["nine"]
            row["late_nine"] = states["late_nine"]
            row |= {f"second: {name}": x for name, x in states["seconds"].items()}
        for name in losses:
            if name not in ("intact", "resampled"):
                row[f"recovered: {name}"] = scrubbing.recovered(losses, name)
        rows.append(row)
    return pd.DataFrame(rows)


# At least this share of the two-layer encoders must have their carry in the plane, and must have
# this share of the loss recovered by it.
MOST_RUNS = Bar(0.8, perfect=1)
EXPLAINED = Bar(0.95, perfect=1)
# At most this share of the columns that the plane serves, and the line does not, may be served by
# the line and a random direction.
RANDOM_SERVES = Bar(0.05, perfect=0)
# The area under the curve by which the place of the nine tells late runs from shared ones.
CHANCE = 0.5
TELLS_APART = Bar(0.8, perfect=1, chance=CHANCE)
LOOKED_AT, HELD_BACK = range(6, 35), range(35, 64)  # seeds of the main group by `quick`


class Criterion(NamedTuple):
    """What one of the criteria comes to.

    Attributes:
        name: What is asked.
        hits: The number of runs, columns or pairs of runs of which it is true.
        of: The number of those that were asked.
        value: The share, or the area under the curve.
        bar: The bar for it.
        holds: True if the value is on the right side of the bar.
    """

    name: str
    hits: float
    of: int
    value: float
    bar: float
    holds: bool


def criteria(summary: pd.DataFrame, late: pd.Series) -> list[Criterion]:
    """Return what the criteria come to.

    Args:
        summary: The rows of `decided`.
        late: The mean late share of each run of the main group by `quick` (`line_table.by_run`).
    """
    encoders = two_layer_encoders(summary)
    in_plane = _all_columns(encoders, encoders.in_plane.eq(True))
    explained = _all_columns(encoders, encoders["recovered: plane: carry, nine"].ge(EXPLAINED))
    needs_the_nine = encoders[encoders.on_line.eq(False) & encoders.in_plane.eq(True)]
    by_random = needs_the_nine["second: random"].ge(IN_EACH_STATE)
    area, n_late, n_shared = place_of_nine(summary, late, HELD_BACK)
    return [
        _share("carry and nine move it in each state", in_plane, MOST_RUNS, at_least=True),
        _share("a random second direction does", by_random, RANDOM_SERVES, at_least=False),
        Criterion(
            "the nine's place tells late from shared runs",
            area * n_late * n_shared,
            n_late * n_shared,
            area,
            TELLS_APART,
            area >= TELLS_APART,
        ),
        _share("carry and nine explain the loss", explained, MOST_RUNS, at_least=True),
    ]


def _share(name: str, is_hit: "pd.Series[bool]", bar: Bar, *, at_least: bool) -> Criterion:
    share = float(is_hit.mean())
    holds = share >= bar if at_least else share <= bar
    return Criterion(name, int(is_hit.sum()), len(is_hit), share, bar, holds)


def two_layer_encoders(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the leading runs of two-layer encoders, on sums of their own length.

    Columns that a run gets too few sums right in are left out.
    """
    rows = line_table.own_length(line_table.leading(summary))
    configs = rows.group.map(lambda name: groups.find(name).config)
    is_encoder = configs.map(lambda config: config.layers == 2 and not config.causal)
    return rows[is_encoder & rows.reason.isna()]


def _all_columns(rows: pd.DataFrame, is_hit: "pd.Series[bool]") -> "pd.Series[bool]":
    """Return, for each run, True if it is true of all its columns."""
    return is_hit.groupby([rows[name] for name in ("source", "group", "run")]).all()


def place_of_nine(
    summary: pd.DataFrame, late: pd.Series, seeds: Collection[int]
) -> tuple[float, int, int]:
    """Return how well the place of the nine at the hundreds tells late runs from shared ones.

    Returns:
        The area under the curve, and the numbers of late and of other runs. Which side of it is
        late is what `LOOKED_AT` says.
    """
    rows = summary[(summary.group == groups.MAIN) & (summary.recipe == "quick")]
    rows = rows[rows.digits == groups.DIGITS].sort_values("reads")
    place = rows.drop_duplicates("run").set_index("run").nine.dropna()

    def area(among: Collection[int]) -> tuple[float, int, int]:
        chosen = place[place.index.isin(among)]
        is_late = late.reindex(chosen.index) >= carry_line.WRITTEN_LATE
        late_runs, others = chosen[is_late], chosen[~is_late]
        statistic = scipy.stats.mannwhitneyu(late_runs, others).statistic
        return float(statistic) / (len(late_runs) * len(others)), len(late_runs), len(others)

    value, n_late, n_shared = area(seeds)
    looked_at, _, _ = area(LOOKED_AT)
    return (value if looked_at >= CHANCE else 1 - value), n_late, n_shared


# ---- rows of the ledger


def swaps(evidence: Evidence, group: str = MAIN) -> pd.DataFrame:
    """What swaps of the line, and of line and nine, move in each run, and what that explains.

    `line` and `plane` are the lowest interchange accuracies, over columns and pairs of states;
    `explained` is the lowest share of the loss that carry and nine in the plane recover. A run with
    a column that it gets too few sums right in has no values.

    Raises:
        BadInput: A run has no stored row, or one of other weights than are here.
    """
    loaded = evidence.group(group)
    rows = line_table.of_weights(saved(), loaded)
    missing = sorted(set(loaded.numbers) - set(rows.run))
    if missing:
        raise BadInput(
            f"{group}: no swaps by states of run {', '.join(map(str, missing))} are stored, with "
            f"the weights that are here: run `carry lines --source {evidence.source} {group} "
            "--save`."
        )
    by_column = line_table.own_length(decided(rows)).groupby("run")
    return pd.DataFrame(
        {
            "line": by_column.line.agg(_lowest),
            "plane": by_column.plane.agg(_lowest),
            "explained": by_column["recovered: plane: carry, nine"].agg(_lowest),
        }
    )


def _lowest(values: "pd.Series[float]") -> float:
    return float(values.min(skipna=False))


def moves_in_each_state(measured: Fields, *, share: float = IN_EACH_STATE) -> bool | None:
    """Return True if a swap moves the carry in each pair of states; None if that is not known."""
    return None if math.isnan(measured["value"]) else bool(measured["value"] >= share)


def explains(measured: Fields, *, share: float = EXPLAINED) -> bool | None:
    """Return True if this share of the loss is recovered; None if that is not known."""
    return None if math.isnan(measured["value"]) else bool(measured["value"] >= share)


# ---- what the page shows


def by_run(summary: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each run and length of sums, of the columns that can be asked.

    Returns:
        The key without `reads`; the number of `columns`; the lowest cell of all, for the swaps
        called `line`, `plane`, `natural` and `gradient`; `on_line` and `in_plane`; the place of the
        `nine` in the leftmost column; and the mean shares of the loss that are recovered.
    """
    asked = summary[summary.reason.isna()].astype({"on_line": bool, "in_plane": bool})
    rows = []
    for key, columns in asked.groupby(KEY[:-1], sort=False):
        row: dict[str, Any] = dict(zip(KEY[:-1], key, strict=True))
        row["columns"] = len(columns)
        for name in ("line", "plane", "natural", "gradient"):
            row[name] = columns[name].min()
        for name in ("on_line", "in_plane"):
            row[name] = bool(columns[name].all())
        row["nine"] = columns.sort_values("reads").nine.iloc[0]
        for name in (name for name in columns if name.startswith("recovered: ")):
            row[name] = columns[name].mean()
        rows.append(row)
    return pd.DataFrame(rows)


def all_cells(table: pd.DataFrame, swap: str) -> pd.DataFrame:
    """Return a row for each pair of states of each column: `corners.Cell` and the column's key.

    Args:
        table: Rows of the stored table.
        swap: `line`, `plane`, `natural` or `gradient`.
    """
    rows = []
    for stored in table.to_dict("records"):
        if stored["states"]["reason"] is None:
            key = {name: stored[name] for name in KEY}
            rows += [{**key, **cell} for cell in stored["states"][swap]]
    return pd.DataFrame(rows)


def critiques_in_words(table: pd.DataFrame) -> pd.DataFrame:
    """Return what the critiques come to: the share of columns, or a median, for line and plane.

    Only columns in which the swap moves the carry in each state are asked.
    """
    columns = {}
    for name, column in (("line", "line_critiques"), ("plane", "plane_critiques")):
        asked = [
            stored[column]
            for stored in table.to_dict("records")
            if stored["states"]["reason"] is None and corners.in_each_state(stored["states"][name])
        ]
        columns[name] = _outcomes(asked)
    return pd.DataFrame(columns)


def _outcomes(columns: list[dict[str, Any]]) -> dict[str, float]:
    """Return the outcome of each critique over some columns."""

    def share(is_true: Callable[[dict[str, Any]], bool]) -> float:
        return sum(map(is_true, columns)) / len(columns) if columns else float("nan")

    def median(value: Callable[[dict[str, Any]], float]) -> float:
        return float(pd.Series([value(row) for row in columns], dtype=float).median())

    return {
        "columns": len(columns),
        "its part that is read does not move the carry": share(
            lambda row: critiques.is_illusion(row["read"])
        ),
        "a swap between sums of the same carry moves the digit": share(
            lambda row: not corners.in_each_state(row["same carry"])
        ),
        "the state's mean in place of the other sum's own does not do": share(
            lambda row: not corners.in_each_state(row["means"])
        ),
        "a step of the own digit sum moves the carry": share(
            lambda row: (row["rival"]["highest"] or 0) > CONTROL_MOVES
        ),
        "distance to the nearest natural stream, after": median(
            lambda row: row["distance"].get("patched", float("nan"))
        ),
        "the same, before": median(lambda row: row["distance"].get("before", float("nan"))),
        "the same, between natural ones": median(
            lambda row: row["distance"].get("natural", float("nan"))
        ),
        "margin of the answer, after": median(lambda row: row["margin"]["patched"]),
        "margin of an intact answer": median(lambda row: row["margin"]["intact"]),
    }
