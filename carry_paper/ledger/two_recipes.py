"""Our runs by both recipes, compared row by row of the ledger.

The recipe `quick` stands in for the paper's protocol. Groups of which runs by both were measured
tell how far their numbers agree. Both were measured on the same sums: `SUMS` of each carry class,
or those that a quantity draws itself. Runs by `quick` that no longer exist are compared too, as
they were measured.

The ledger itself never judges by this comparison. It says which rows wait for the paper's protocol
(`recipe_sensitive` in `data/claims.yml`).
"""

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import scipy

from carry_core import measure, runs
from carry_core.errors import BadInput
from carry_paper import measurements
from carry_paper.ledger import exchangeability, intervals, ledger, registry, verdicts
from carry_paper.ledger.claims import Claim, claims
from carry_paper.ledger.entries import Entry, name_of, picked
from carry_paper.ledger.exchangeability import FEWEST_RUNS, SIGNIFICANT
from carry_paper.ledger.intervals import Array
from carry_paper.ledger.ledger import Measured
from carry_train.groups import GROUPS

PAPER, QUICK = "paper", "quick"
# Sums of each carry class on which runs were surveyed for the comparison. A share that is counted
# on them has a standard error of 0.01, and the same sums are taken for all runs.
SUMS = 2_000
# Findings whose value is 1 in a run where they hold, and 0 in others.
COUNTED = ("beyond/zero_names_it",)


# ---- the query


def values() -> pd.DataFrame:
    """Return what was measured on single runs of each group that has some by both recipes.

    Returns:
        A row for each `group`, `recipe`, `run` and row of the ledger (`id`), with its `value`.

    Raises:
        BadInput: The stored measurements are damaged.
    """
    stored = measurements.read("ours")
    by_recipe = {}
    for recipe in (PAPER, QUICK):
        by_recipe[recipe] = Measured("ours", _on_same_sums(stored, recipe), all_runs=True)
    rows = []
    for name, claim in claims().items():
        entry = registry.entry(name)
        is_of_runs = entry.combine not in ("standard deviation", "count")
        if entry.function is None or not is_of_runs or not isinstance(entry.field, str):
            continue
        for group in entry.groups:
            own = {x: _of_runs(entry, group, measured) for x, measured in by_recipe.items()}
            if all(own.values()):
                rows += [
                    {"group": group, "recipe": recipe, "id": claim.id, **row}
                    for recipe, rows_of_recipe in own.items()
                    for row in rows_of_recipe
                ]
    return pd.DataFrame(rows, columns=["group", "recipe", "run", "id", "value"])


def _on_same_sums(stored: pd.DataFrame, recipe: str) -> pd.DataFrame:
    """Return the rows of a recipe's first runs, surveyed on `SUMS` of each class if at all."""
    n_sums = {}
    for name, group in GROUPS.items():
        n_sums[name] = len(measure.sample(SUMS, group.n_digits, seed=0)[0])
    is_first = stored.run.isin(runs.FIRST) & (stored.recipe == recipe)
    is_same = stored.sums.isna() | (stored.sums == stored.group.map(n_sums))
    return stored[is_first & is_same.fillna(value=True)]


def _of_runs(entry: Entry, group: str, measured: Measured) -> list[dict[str, Any]]:
    """Return the value of a row in each run of a group."""
    rows = []
    for record in measured.of(name_of(entry.function), (group,), entry.epoch):
        try:
            part = picked(ledger.whole(record), str(entry.field))
        except BadInput:
            continue  # a run that is gone was measured before a row asked for this field
        rows.append({"run": record["run"], "value": part.value})
    return rows


def compared(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `values`, compared between the recipes.

    Returns:
        For each `group` and row of the ledger (`id`): the ends `low` and `high` of the 95% interval
        of the difference, `quick` less `paper`; the `margin`, the largest difference that does not
        count; `p`, the p-value of the row by itself, over all relabelings of runs; the `test`, the
        beginning of the ids of the cells that were tested together; and `p_test`, its p-value,
        corrected for all tests. NaN where there are too few runs, or no margin is defined.
    """
    by_id = claims()
    rows = []
    for (group, name), own in table.groupby(["group", "id"], sort=False):
        claim = by_id[name]
        by_recipe = []
        for recipe in (PAPER, QUICK):
            by_recipe.append(own.value[own.recipe == recipe].dropna().to_numpy(np.float64))
        paper, quick = by_recipe
        row = {"group": group, "id": name, "test": claim.table or name}
        row |= {"low": np.nan, "high": np.nan, "p": np.nan}
        row["margin"] = margin(claim, np.concatenate(by_recipe))
        if min(len(paper), len(quick)) >= FEWEST_RUNS:
            row["low"], row["high"] = interval(claim, paper, quick)
            row["p"] = p_value(paper[:, None], quick[:, None])
        rows.append(row)
    columns = ["group", "id", "test", "low", "high", "margin", "p"]
    comparisons = pd.DataFrame(rows, columns=columns)
    tests = tested(table, comparisons)
    keys = list(zip(comparisons.group, comparisons.test, strict=True))
    return comparisons.assign(p_test=[tests[key] for key in keys])


def is_counted(claim: Claim) -> bool:
    """Return True if the value of a run is 1 or 0, so that a row compares two counts of runs."""
    return claim.rule == "count" or claim.id in COUNTED


def interval(claim: Claim, paper: Array, quick: Array) -> tuple[float, float]:
    """Return the 95% interval of the difference, `quick` less `paper`.

    It is Welch's, or that of two shares of runs.
    """
    if is_counted(claim):
        counts = [round(quick.sum()), len(quick), round(paper.sum()), len(paper)]
        return intervals.difference_of_shares(*counts)
    comparison = verdicts.of_means(quick[:, None], paper[:, None])
    assert comparison.interval is not None
    low, high = comparison.interval[0].tolist()
    return low, high


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
    """Return how often relabeled runs, `[run, cell]`, lie as far apart as the recipes do."""
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


# ---- in short


def in_short(comparisons: pd.DataFrame) -> dict[str, int]:
    """Return how many rows were compared, and what the comparison says of them.

    Returns:
        The number of rows that were `compared`, once for each group; of those `within` the margin,
        by the whole 95% interval; and of those `told_apart`, by the corrected test and, for a cell
        of a table, by itself too. A row of neither kind says little: six runs are few.
    """
    within = (comparisons.low >= -comparisons.margin) & (comparisons.high <= comparisons.margin)
    return {
        "compared": len(comparisons),
        "within": int(within.sum()),
        "told_apart": int(told_apart(comparisons).sum()),
    }


def told_apart(comparisons: pd.DataFrame) -> "pd.Series[bool]":
    """Return True for the rows in which the runs of the two recipes are told apart."""
    return (comparisons.p_test <= SIGNIFICANT) & (comparisons.p <= SIGNIFICANT)


def by_kind(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return the numbers of `in_short` for each kind of row: a table, or a part of the ledger."""
    by_id = claims()

    def kind_of(name: str) -> str:
        waits = ", by the paper’s protocol alone" if by_id[name].recipe_sensitive else ""
        return f"{by_id[name].heading}{waits}"

    kinds = comparisons.id.map(kind_of).rename("kind")
    rows = {kind: in_short(own) for kind, own in comparisons.groupby(kinds, sort=False)}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("kind")
