"""The rule by which the recipe `quick` may stand in for the paper's protocol, row by row.

Each row of the ledger is compared between a group's runs by both recipes, as `recipes` measured
them. It gets the first verdict that holds:

- `quick` *may stand in* if the 95% interval of the difference between the two means lies within the
  margin by which the ledger calls numbers equivalent; of a finding, both recipes also have to get
  the same verdict;
- it *may not* if the runs of the two recipes are told apart: by an exact test over all relabelings
  of runs, corrected for the number of tests;
- otherwise we *can't tell*: with six runs of each, a p-value above the bar says little.

The cells of a table are tested together, since they are no independent facts. A cell of a table
that is told apart may not stand in only if it is told apart by itself, too.
"""

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from carry_paper.ledger import exchangeability, settling, verdicts
from carry_paper.ledger.claims import Claim, claims
from carry_paper.ledger.exchangeability import FEWEST_RUNS, SIGNIFICANT

MAY, MAY_NOT, CANNOT_TELL = "may stand in", "may not", "can't tell"
VERDICTS = (MAY, MAY_NOT, CANNOT_TELL)
PAPER, QUICK = "paper", "quick"
# Findings whose value is 1 in a run where they hold, and 0 in others.
COUNTED = ("beyond/zero_names_it",)
# Rows that wait for the paper's protocol although `quick` may stand in for them, and why.
STAY_FLAGGED = {
    "finding/layer0_nine_either": "the row of the axis that the paper names cannot tell",
    "finding/layer0_tens_either": "the row of the axis that the paper names cannot tell",
    "n2/squashing/pos8": "the rows of the same runs' other positions cannot tell",
    "finding/one_layer_no_carry": "other rows about planes depend on the recipe, and the recipes"
    " were compared in this one group only",
}

Array = NDArray[np.float64]


class Comparison(NamedTuple):
    """A row of the ledger in a group, compared between runs by both recipes.

    Attributes:
        group: The group.
        id: The row's id.
        test: The beginning of the ids of the cells that were tested together; the id if it is no
            cell of a table.
        n_paper: The number of runs by `paper` that have a value.
        n_quick: The number of runs by `quick` that have one.
        paper: The mean of the runs by `paper`; NaN if there are none.
        quick: The mean of the runs by `quick`.
        difference: `quick` less `paper`.
        low: The lower end of the 95% interval of the difference; NaN if there are too few runs.
        high: The upper end.
        margin: The largest difference that does not count; NaN if none is defined.
        p: The p-value of the row by itself; NaN if there are too few runs.
        shown_paper: For a finding, the number of runs by `paper` that show it, such as `5 of 6`.
        shown_quick: The number of runs by `quick` that show it.
        same_verdict: True unless a finding gets other words by one recipe than by the other.
    """

    group: str
    id: str
    test: str
    n_paper: int
    n_quick: int
    paper: float
    quick: float
    difference: float
    low: float
    high: float
    margin: float
    p: float
    shown_paper: str
    shown_quick: str
    same_verdict: bool


def compared(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the stored table, compared between the recipes.

    Rows of claims that the ledger no longer has are left out.

    Args:
        table: The rows of `recipes.saved`.

    Returns:
        The fields of `Comparison` for each group and row, with `p_test`, the p-value of its test
        (of the whole table, for a cell of one) corrected for all tests, and `verdict`, one of
        `VERDICTS`.
    """
    by_id = claims()
    rows = []
    for (group, name), values in table.groupby(["group", "id"], sort=False):
        if name in by_id:
            rows.append(comparison(group, by_id[name], values))
    comparisons = pd.DataFrame(rows, columns=Comparison._fields)
    tests = tested(table, comparisons)
    keys = list(zip(comparisons.group, comparisons.test, strict=True))
    comparisons["p_test"] = [tests[key] for key in keys]
    comparisons["verdict"] = [verdict(row) for row in comparisons.to_dict("records")]
    return comparisons


# ---- one row


def comparison(group: str, claim: Claim, values: pd.DataFrame) -> Comparison:
    """Return the comparison of a row, from its values in the runs of a group."""
    by_recipe = {}
    for recipe in (PAPER, QUICK):
        by_recipe[recipe] = values.value[values.recipe == recipe].dropna().to_numpy(np.float64)
    paper, quick = by_recipe[PAPER], by_recipe[QUICK]
    means = [float(runs.mean()) if len(runs) else float("nan") for runs in (paper, quick)]
    low = high = p = float("nan")
    if min(len(paper), len(quick)) >= FEWEST_RUNS:
        low, high = interval(claim, paper, quick)
        p = p_value(paper[:, None], quick[:, None])
    runs_that_can_say = {recipe: _shown(values, recipe) for recipe in (PAPER, QUICK)}
    words = set()
    for shows in runs_that_can_say.values():
        words.add(verdicts.judge_finding(claim.quantifier, shows).verdict if shows else "")
    return Comparison(
        group=group,
        id=claim.id,
        test=claim.table or claim.id,
        n_paper=len(paper),
        n_quick=len(quick),
        paper=means[0],
        quick=means[1],
        difference=means[1] - means[0],
        low=low,
        high=high,
        margin=margin(claim, np.concatenate([paper, quick])),
        p=p,
        shown_paper=_count(runs_that_can_say[PAPER]),
        shown_quick=_count(runs_that_can_say[QUICK]),
        same_verdict=len(words) == 1,
    )


def _shown(values: pd.DataFrame, recipe: str) -> list[bool]:
    """Return True or False for each run by a recipe that can say whether it shows a finding."""
    shows = values.shows[values.recipe == recipe]
    return [bool(shows_it) for shows_it in shows if shows_it is not None]


def _count(shows: list[bool]) -> str:
    return f"{sum(shows)} of {len(shows)}" if shows else ""


def is_counted(claim: Claim) -> bool:
    """Return True if the value of a run is 1 or 0, so that a row compares two counts of runs."""
    return claim.rule == "count" or claim.id in COUNTED


def interval(claim: Claim, paper: Array, quick: Array) -> tuple[float, float]:
    """Return the 95% interval of the difference, `quick` less `paper`.

    It is Welch's, or that of two shares of runs.
    """
    if is_counted(claim):
        counts = [round(quick.sum()), len(quick), round(paper.sum()), len(paper)]
        return settling.difference_of_shares(*counts)
    ((low, high),) = verdicts.welch(quick[:, None], paper[:, None])
    return float(low), float(high)


def margin(claim: Claim, values: Array) -> float:
    """Return the largest difference that does not count, as the ledger has it.

    That is a tenth of the quantity's own range, and the rounding of a printed number. NaN for a
    finding whose values go beyond its range, so that it is no share and no correlation.
    """
    if is_counted(claim):
        return verdicts.EQUIVALENT
    if claim.paper is not None:
        return float(verdicts.EQUIVALENT * claim.range + claim.unit / 2)
    if (np.abs(values) <= claim.range).all():
        return float(verdicts.EQUIVALENT * claim.range)
    return float("nan")


def p_value(paper: Array, quick: Array) -> float:
    """Return how often relabeled runs lie as far apart as the recipes do (energy distance).

    Args:
        paper: The runs by `paper`, by `[run, cell]`.
        quick: Those by `quick`, likewise.
    """
    labels = exchangeability.relabelings(len(paper), len(quick))
    return exchangeability.p_value(paper, quick, labels)


# ---- all rows


def tested(table: pd.DataFrame, comparisons: pd.DataFrame) -> dict[tuple[Hashable, ...], float]:
    """Return the p-value of each test, by group and name, corrected for all of them together.

    The correction is Benjamini and Hochberg's, so that of the tests that tell recipes apart, one in
    twenty is expected to do so by chance. It is NaN where there are too few runs.
    """
    p_values: dict[tuple[Hashable, ...], float] = {}
    for key, rows in comparisons.groupby(["group", "test"], sort=False):
        group, test = key
        if len(rows) == 1 and rows.id.iloc[0] == test:
            p_values[key] = float(rows.p.iloc[0])
        else:
            p_values[key] = p_of_table(table[(table.group == group) & table.id.isin(rows.id)])
    corrected = dict(p_values)
    names = [key for key, p in p_values.items() if not np.isnan(p)]
    if names:
        adjusted = scipy.stats.false_discovery_control(
            [p_values[key] for key in names], method="bh"
        )
        corrected.update(zip(names, map(float, adjusted), strict=True))
    return corrected


def p_of_table(rows: pd.DataFrame) -> float:
    """Return the p-value of a table's runs over its informative cells; NaN if there are too few."""
    by_recipe = {}
    for recipe in (PAPER, QUICK):
        cells = rows[rows.recipe == recipe].pivot_table("value", "run", "id", dropna=False)
        by_recipe[recipe] = cells.reindex(columns=rows.id.unique()).dropna().to_numpy()
    paper, quick = by_recipe[PAPER], by_recipe[QUICK]
    if min(len(paper), len(quick)) < FEWEST_RUNS:
        return float("nan")
    cells = exchangeability.informative_cells(paper, quick)
    return p_value(paper[:, cells], quick[:, cells]) if cells else 1.0


def verdict(row: dict[Hashable, Any]) -> str:
    """Return the verdict on a row of `compared`."""
    is_equivalent = -row["margin"] <= row["low"] and row["high"] <= row["margin"]
    if is_equivalent and row["same_verdict"]:
        return MAY
    if row["p_test"] <= SIGNIFICANT and row["p"] <= SIGNIFICANT:
        return MAY_NOT
    return CANNOT_TELL


# ---- in short


def kind_of(claim: Claim) -> str:
    """Return the kind of a row: its table, or its part of the ledger and if it has to wait."""
    waits = ", by the paper’s protocol alone" if claim.recipe_sensitive else ""
    return f"{claim.heading}{waits}"


def by_kind(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return how many rows of each kind get each of `VERDICTS`, and their number in `rows`.

    A row counts once for each group in which it is compared.
    """
    by_id = claims()
    kinds = comparisons.id.map(lambda name: kind_of(by_id[name])).rename("kind")
    counts = comparisons.groupby([kinds, "verdict"], sort=False).size().unstack(fill_value=0)
    counts = counts.reindex(columns=list(VERDICTS), fill_value=0)
    return counts.assign(rows=counts.sum(axis=1))


def to_flag(comparisons: pd.DataFrame) -> set[str]:
    """Return the ids of the rows for which `quick` may not stand in, in some group.

    If a cell of a table is such, all cells of the table are.
    """
    by_id = claims()
    tests = set(comparisons.test[comparisons.verdict == MAY_NOT])
    return {name for name, claim in by_id.items() if (claim.table or name) in tests}


def flagged_although_it_may(comparisons: pd.DataFrame) -> set[str]:
    """Return the ids of flagged rows for which `quick` may stand in, in each group compared."""
    verdicts_of_rows = comparisons.groupby("id").verdict.agg(set)
    may = set(verdicts_of_rows.index[verdicts_of_rows.map(lambda words: words == {MAY})])
    return {name for name, claim in claims().items() if claim.recipe_sensitive and name in may}
