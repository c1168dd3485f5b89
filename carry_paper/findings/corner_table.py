"""The carry and the nine in whole groups: what the criteria make of the stored table.

`line_table` measures and stores it. `book/protocol.md` dates the criteria.
"""

import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import pandas as pd
import scipy

from carry_paper.findings import carry_line, corners, critiques, line_table, scrubbing
from carry_paper.findings.bars import Bar, at_least
from carry_paper.findings.base import MAIN
from carry_paper.findings.corners import IN_EACH_STATE
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.line_table import KEY
from carry_train import groups

# A control that moves more does move the carry.
CONTROL_MOVES = Bar(0.2, perfect=0)


def saved() -> pd.DataFrame:
    """Return the stored rows of columns that were asked in each state; see `line_table.saved`."""
    return by_state(line_table.saved())


def by_state(table: pd.DataFrame) -> pd.DataFrame:
    """Return the stored rows of columns that were asked in each state."""
    return table[table.states.notna()]


# ---- what the criteria decide


def decided(table: pd.DataFrame) -> pd.DataFrame:
    """Return a summary of each row of the table, with its key.

    Returns:
        For the swaps called `line`, `plane`, `natural` and `gradient`, the lowest cell, NaN where
        one is empty; `on_line`, `in_plane` and `by_gradient`, True if that is at least the bar,
        None where there is none, and False of a line by gradient that is an illusion; `nine`, the
        place of the nine; and the shares of the loss that are recovered.
    """
    rows = []
    for stored in table.to_dict("records"):
        states, losses = stored["states"], stored["losses"]
        row: dict[str, Any] = {name: stored[name] for name in KEY}
        row["reason"] = states["reason"]
        if states["reason"] is None:
            for name in ("line", "plane", "natural", "gradient"):
                row[name] = corners.lowest(states[name])
            row["on_line"] = corners.in_each_state(states["line"])
            row["in_plane"] = corners.in_each_state(states["plane"])
            row["by_gradient"] = _on_line_by_gradient(stored)
            row["nine"] = states["place"]["nine"]
            row |= {f"second: {name}": x for name, x in states["seconds"].items()}
        for name in losses:
            if name not in ("intact", "resampled"):
                row[f"recovered: {name}"] = scrubbing.recovered(losses, name)
        rows.append(row)
    return pd.DataFrame(rows)


def _on_line_by_gradient(stored: Mapping[str, Any]) -> bool | None:
    objections = stored.get("gradient_critiques")
    if isinstance(objections, Mapping) and critiques.is_illusion(objections["read"]):
        return False
    return corners.in_each_state(stored["states"]["gradient"])


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


def criteria(summary: pd.DataFrame, late: pd.Series) -> pd.DataFrame:
    """Return what the criteria come to on the rows of `decided`.

    `late` is the mean late share of each run of the main group by `quick` (`line_table.by_run`).

    Returns:
        By statement: the things of which it is true or not (`unit`), the number of which it is true
        (`hits`) and that were tested (`of`); their `value`, the share or the area under the curve,
        the least that was asked for (`bar`), and `holds`, True if the value reaches it.
    """
    encoders = two_layer_encoders(summary)
    in_plane = _all_columns(encoders, encoders.in_plane.eq(True))
    explained = _all_columns(encoders, encoders["recovered: plane: carry, nine"].ge(EXPLAINED))
    needs_the_nine = encoders[encoders.on_line.eq(False) & encoders.in_plane.eq(True)]
    by_no_other = ~needs_the_nine["second: random"].ge(IN_EACH_STATE)
    area, n_late, n_shared = place_of_nine(summary, late, HELD_BACK)
    n_in_order = area * n_late * n_shared
    table = pd.DataFrame(
        {
            "unit": ["runs", "columns", "pairs of runs", "runs"],
            "hits": [in_plane.sum(), by_no_other.sum(), n_in_order, explained.sum()],
            "of": [len(in_plane), len(by_no_other), n_late * n_shared, len(explained)],
            "bar": [MOST_RUNS, 1 - RANDOM_SERVES, TELLS_APART, MOST_RUNS],
        },
        [
            "Carry and nine together move it in each pair of states",
            "A random direction in place of the nine does not",
            "The place of the nine tells late runs from shared ones",
            "Carry and nine explain the loss",
        ],
    )
    table.insert(3, "value", table.hits / table.of)
    return table.assign(holds=table.value >= table.bar)


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


def line(evidence: Evidence, group: str = MAIN) -> pd.DataFrame:
    """What swaps of the line move in each run: the lowest interchange accuracies.

    The value is the lowest of all, over columns and pairs of states; `rightmost_column` is that in
    the rightmost column with a carry-in, and `without_sums_below_nine` that between sums whose next
    columns add to nine or more. A run with a column that it gets too few sums right in has no
    values.

    Raises:
        BadInput: As `line_table.rows_of`.
    """
    rows = by_state(line_table.rows_of(evidence, group))
    columns = line_table.own_length(decided(rows)).sort_values("reads")
    cells = all_cells(rows, "line")
    low = corners.STATES[corners.LOW]
    without_low = cells[(cells.base != low) & (cells.source_state != low)]
    return pd.DataFrame(
        {
            "value": columns.groupby("run").line.agg(_lowest),
            "rightmost_column": columns.drop_duplicates("run", keep="last").set_index("run").line,
            "without_sums_below_nine": without_low.groupby("run").accuracy.agg(_lowest),
        }
    )


def swaps(evidence: Evidence) -> pd.DataFrame:
    """What swaps of line and nine move in each run, and what that explains.

    `plane` is the lowest interchange accuracy, over columns and pairs of states, and `explained`
    the lowest share of the loss that carry and nine in the plane recover. A run with a column that
    it gets too few sums right in has no values.

    Raises:
        BadInput: As `line_table.rows_of`.
    """
    rows = by_state(line_table.rows_of(evidence))
    by_column = line_table.own_length(decided(rows)).groupby("run")
    return pd.DataFrame(
        {
            "plane": by_column.plane.agg(_lowest),
            "explained": by_column["recovered: plane: carry, nine"].agg(_lowest),
        }
    )


def _lowest(values: "pd.Series[float]") -> float:
    return float(values.min(skipna=False))


moves_in_each_state = at_least(IN_EACH_STATE)
explains = at_least(EXPLAINED)

# ---- what the page shows


def by_run(summary: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each run and length of sums, of the columns that can be asked.

    Returns:
        The key without `reads`; the number of `columns`; the lowest cell of all, for the swaps
        called `line`, `plane`, `natural` and `gradient`; `on_line`, `in_plane` and `by_gradient`;
        the place of the `nine` in the leftmost column; and the mean shares of the loss that are
        recovered.
    """
    answers = ["on_line", "in_plane", "by_gradient"]
    swaps = ["line", "plane", "natural", "gradient"]
    recovered = [name for name in summary if name.startswith("recovered: ")]
    asked = summary[summary.reason.isna()].astype(dict.fromkeys(answers, bool))
    columns = asked.groupby(KEY[:-1], sort=False)
    leftmost = asked.sort_values("reads").groupby(KEY[:-1], sort=False).head(1)
    parts = [columns.size().rename("columns"), columns[swaps].min(), columns[answers].all()]
    parts += [leftmost.set_index(KEY[:-1]).nine, columns[recovered].mean()]
    return pd.concat(parts, axis=1).reset_index()


def all_cells(table: pd.DataFrame, swap: str) -> pd.DataFrame:
    """Return a row for each pair of states of each column: `corners.cells` and the column's key.

    The `swap` is `line`, `plane`, `natural` or `gradient`. The state of the sum that coordinates
    come from is `source_state`, since `source` is in the key.
    """
    rows = []
    for stored in table.to_dict("records"):
        if stored["states"]["reason"] is None:
            key = {name: stored[name] for name in KEY}
            for cell in stored["states"][swap]:
                rows.append({**cell, "source_state": cell["source"], **key})
    return pd.DataFrame(rows)


def critiques_in_words(table: pd.DataFrame) -> pd.DataFrame:
    """Return what the critiques come to, as counts of columns and as medians.

    They are put to the columns in which a swap moves the carry in each pair of states: of the
    difference of means, of carry and nine, and of the line by gradient where that of means fails.
    """
    swaps_by_name = {
        "difference of means": "line",
        "carry and nine": "plane",
        "line by gradient": "gradient",
    }
    outcomes = {}
    for name, swap in swaps_by_name.items():
        tested = [
            stored[f"{swap}_critiques"]
            for stored in table.to_dict("records")
            if isinstance(stored[f"{swap}_critiques"], dict)
            and corners.in_each_state(stored["states"][swap])
        ]
        outcomes[name] = _outcomes(tested)
    return pd.DataFrame(outcomes).rename_axis(["objection", "measured"])


def _outcomes(columns: list[dict[str, Any]]) -> "pd.Series[str]":
    """Return the outcome of each critique over some columns."""

    def count(is_true: Callable[[dict[str, Any]], bool | None]) -> str:
        return f"{sum(bool(is_true(row)) for row in columns)} of {len(columns)}"

    def median(critique: str, name: str) -> str:
        values = [row[critique].get(name) for row in columns]
        return _two_decimals(pd.Series(values, dtype=float).median())

    illusion, unnatural = "illusion", "unnatural streams"
    more, no_variable = "it moves more than the carry", "it is no variable of a few values"
    rival = "a step of the own digit sum does it"

    outcomes = {}
    for share in critiques.READ_SHARES:
        words = f"columns moved by the part that is read, at {100 * share:g}%"
        outcomes[illusion, words] = count(partial(_part_moves, "read", share))
    words = f"by the part that is not read, at {100 * share:g}%"
    outcomes[illusion, words] = count(partial(_part_moves, "not read", share))
    cosines = pd.Series([row.get("cosine") for row in columns], dtype=float)
    outcomes[illusion, "cosine with the difference of means"] = _two_decimals(cosines.median())

    words = "distance to the nearest natural stream, swapped"
    outcomes[unnatural, words] = median("distance", "patched")
    outcomes[unnatural, "before the swap"] = median("distance", "before")
    outcomes[unnatural, "between natural streams"] = median("distance", "natural")
    outcomes[unnatural, "margin of the answer, swapped"] = median("margin", "patched")
    outcomes[unnatural, "of an intact answer"] = median("margin", "intact")

    words = "columns in which a same-carry swap moves the digit"
    outcomes[more, words] = count(lambda row: not corners.in_each_state(row["same carry"]))
    words = "columns not moved by the state’s mean"
    outcomes[no_variable, words] = count(lambda row: not corners.in_each_state(row["means"]))

    moves = count(lambda row: (row["rival"]["highest"] or 0) > CONTROL_MOVES)
    outcomes[rival, "columns moved by it"] = moves
    outcomes[rival, "its cosine with the carry"] = median("rival", "cosine")
    outcomes[rival, "its length, that of a carry being 1"] = median("rival", "length")
    return pd.Series(outcomes)


def _two_decimals(value: float) -> str:
    return "" if math.isnan(value) else f"{round(value, 2) + 0:.2f}".replace("-", "−")


def _part_moves(part: str, share: float, critiques_of_column: Mapping[str, Any]) -> bool:
    """Return True if a part of a subspace moves the carry in each pair of states, alone."""
    (row,) = [
        row for row in critiques_of_column["read"] if row["part"] == part and row["share"] == share
    ]
    return row["lowest"] is not None and row["lowest"] >= IN_EACH_STATE
