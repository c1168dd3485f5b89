"""Runs by both recipes compared, on planted tables and as they are shipped."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from carry_paper import measurements
from carry_paper.ledger import claims, intervals, two_recipes
from carry_paper.ledger.measuring import as_table
from carry_train.groups import MAIN

NUMBER = "n2/no_skip_accuracy"
FINDING = "finding/previous_sum"
COUNT = "beyond/zero_names_it"
CELLS = [name for name in claims.claims() if name.startswith("tab1/final_mlp/")]
# The scatter of six runs, with a mean of zero.
SCATTER = np.array([-0.02, -0.01, 0.0, 0.0, 0.01, 0.02])


def rows_of(name, paper, quick):
    """Return stored rows."""
    rows = []
    for recipe, values in (("paper", paper), ("quick", quick)):
        for run, value in enumerate(values):
            rows.append((MAIN, recipe, run, name, value))
    return pd.DataFrame(rows, columns=["group", "recipe", "run", "id", "value"])


def said_of(*tables):
    """Return what is said of the first row of some: `within`, `told apart` or nothing."""
    comparisons = two_recipes.compared(pd.concat(tables))
    first = comparisons.iloc[:1]
    if two_recipes.in_short(first)["within"]:
        return "within"
    return "told apart" if two_recipes.told_apart(comparisons).iloc[0] else ""


def test_equal_runs_are_within_the_margin_and_shifted_ones_are_told_apart():
    assert said_of(rows_of(NUMBER, 0.5 + SCATTER, 0.5 + SCATTER)) == "within"
    # A small shift is told apart, and does not count.
    small = two_recipes.compared(rows_of(NUMBER, 0.5 + SCATTER, 0.55 + SCATTER))
    assert small.p[0] <= 0.05
    assert two_recipes.in_short(small)["within"] == 1
    assert said_of(rows_of(NUMBER, 0.5 + SCATTER, 0.7 + SCATTER)) == "told apart"
    # Runs that scatter as widely as they differ.
    wide = rows_of(NUMBER, 0.5 + 20 * SCATTER, 0.6 + 20 * SCATTER)
    assert said_of(wide) == ""


def test_of_too_few_runs_nothing_is_said():
    few = rows_of(NUMBER, [0.5] * 6, [0.5] * 2)
    (row,) = two_recipes.compared(few).to_dict("records")
    assert np.isnan([row["p"], row["low"], row["p_test"]]).all()
    assert said_of(few) == ""
    assert said_of(rows_of(NUMBER, [0.5] * 6, [])) == ""
    assert said_of(rows_of(NUMBER, [0.5] * 6, [0.5] * 2 + [np.nan])) == ""
    assert said_of(rows_of(NUMBER, [0.5] * 6, [0.5] * 3)) == "within"


def test_the_numbers_are_those_of_scipy_and_of_all_relabelings():
    paper, quick = 0.5 + SCATTER, np.array([0.5, 0.53, 0.56, 0.54])
    (row,) = two_recipes.compared(rows_of(NUMBER, paper, quick)).to_dict("records")
    welch = stats.ttest_ind(quick, paper, equal_var=False).confidence_interval(0.95)
    assert (row["low"], row["high"]) == pytest.approx((welch.low, welch.high))
    assert row["margin"] == pytest.approx(0.1 + claims.claims()[NUMBER].unit / 2)

    runs = np.concatenate([paper, quick])

    def distance(chosen):
        others = [run for run in range(len(runs)) if run not in chosen]
        return stats.energy_distance(runs[list(chosen)], runs[others])

    distances = [distance(chosen) for chosen in combinations(range(len(runs)), len(paper))]
    assert row["p"] == pytest.approx(np.mean(np.array(distances) >= distances[0] - 1e-9))


def test_epochs_and_norms_have_no_margin():
    epochs = rows_of(FINDING, 50 + SCATTER, 50 + SCATTER)
    (row,) = two_recipes.compared(epochs).to_dict("records")
    assert np.isnan(row["margin"])
    assert said_of(epochs) == ""
    assert said_of(rows_of(FINDING, 50 + SCATTER, 60 + SCATTER)) == "told apart"


def test_counts_of_runs_are_compared_as_counts():
    # Welch's interval of six ones and six ones would be a point.
    (row,) = two_recipes.compared(rows_of(COUNT, [1] * 6, [1] * 6)).to_dict("records")
    assert (row["low"], row["high"]) == intervals.difference_of_shares(6, 6, 6, 6)
    assert said_of(rows_of(COUNT, [1] * 6, [1] * 6)) == ""
    assert said_of(rows_of(COUNT, [1] * 6, [0] * 6)) == "told apart"


def test_a_cell_is_told_apart_only_if_its_table_is():
    generator = np.random.default_rng(0)
    same, shifted = [], []
    for i, name in enumerate(CELLS):
        paper, quick = generator.uniform(0, 1, (2, 6))
        same.append(rows_of(name, paper, quick))
        shift = 0.3 if i == 0 else 0
        shifted.append(rows_of(name, 0.2 + SCATTER, 0.2 + shift + SCATTER))
    comparisons = two_recipes.compared(pd.concat(shifted))
    assert comparisons.p_test.nunique() == 1
    assert comparisons.id[two_recipes.told_apart(comparisons)].tolist() == CELLS[:1]
    assert two_recipes.in_short(comparisons)["within"] == len(CELLS) - 1
    # A cell that is told apart by itself, in a table that is not.
    same[0] = rows_of(CELLS[0], 0.2 + SCATTER, 0.5 + SCATTER)
    table = two_recipes.compared(pd.concat(same))
    assert table.p[0] <= 0.05 < table.p_test[0]
    assert not two_recipes.told_apart(table).any()


def test_p_values_are_corrected_for_all_tests():
    """One of 45 tests is told apart at 0.05 by chance, and all are if all differ."""
    names = [
        name
        for name, claim in claims.claims().items()
        if not claim.table and claim.rule != "count" and name != COUNT
    ][:45]
    one, all_differ = [], []
    for i, name in enumerate(names):
        paper = 0.5 + 20 * SCATTER
        one.append(rows_of(name, paper, paper + (1 if i == 0 else 0)))
        all_differ.append(rows_of(name, paper, paper + 1))
    first = two_recipes.compared(pd.concat(one)).set_index("id").loc[names[0]]
    assert first.p == pytest.approx(2 / 924)
    assert first.p_test == pytest.approx(45 * 2 / 924)
    together = two_recipes.compared(pd.concat(all_differ))
    assert together.p_test.max() == pytest.approx(2 / 924)
    assert two_recipes.told_apart(together).all()


def test_rows_are_counted_by_kind():
    tables = [rows_of(name, 0.2 + SCATTER, 0.2 + SCATTER) for name in CELLS]
    tables[0] = rows_of(CELLS[0], 0.2 + SCATTER, 0.5 + SCATTER)
    tables += [rows_of("n2/squashing/pos7", [0.5] * 6, [0.5] * 6)]
    tables += [rows_of(NUMBER, [0.5] * 2, [0.5] * 2)]
    counts = two_recipes.by_kind(two_recipes.compared(pd.concat(tables)))
    assert counts.loc["Table 1, without the final MLP"].tolist() == [30, 29, 1]
    assert counts.loc["Two and three layers"].tolist() == [1, 0, 0]
    waiting = "Two and three layers, by the paper’s protocol alone"
    assert counts.loc[waiting].tolist() == [1, 1, 0]


# ---- the query


def measured(recipe, run, value, n_sums=None, quantity="quantities.exact_match_without_skips"):
    about = {"source": "ours", "group": MAIN, "recipe": recipe, "run": run, "sums": n_sums}
    return about | {"quantity": quantity, "value": value, "fields": {}, "ships": 0}


def test_runs_are_compared_on_the_same_sums(data, monkeypatch):
    monkeypatch.setattr(two_recipes, "SUMS", 10)
    n_sums = len(two_recipes.measure.sample(10, 3, seed=0)[0])
    rows = [measured("paper", 0, 0.9, 10**6), measured("quick", 0, 0.4, n_sums)]
    measurements.save(as_table(rows))
    assert two_recipes.values().empty
    measurements.save(as_table([measured("paper", 0, 0.8, n_sums), measured("quick", 7, 0.1)]))
    values = two_recipes.values()
    assert values[["recipe", "run", "id", "value"]].to_numpy().tolist() == [
        ["paper", 0, NUMBER, 0.8],
        ["quick", 0, NUMBER, 0.4],
    ]


def test_a_finding_is_compared_that_needs_no_survey(data):
    rows = [measured("paper", 0, 0.9, quantity="heads.staircase")]
    rows += [measured("quick", 3, 0.1, quantity="heads.staircase")]
    measurements.save(as_table(rows))
    values = two_recipes.values().set_index("recipe")
    assert values.id.tolist() == ["finding/staircase"] * 2
    assert values.value.to_dict() == {"paper": 0.9, "quick": 0.1}


def test_rows_in_which_the_recipes_differ_wait_for_the_papers_protocol():
    comparisons = two_recipes.compared(two_recipes.values())
    assert len(comparisons) > 250
    apart = comparisons[two_recipes.told_apart(comparisons)]
    flagged = {name for name, claim in claims.claims().items() if claim.recipe_sensitive}
    assert set(apart.id) <= flagged
