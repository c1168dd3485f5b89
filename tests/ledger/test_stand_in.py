"""The rule by which one recipe may stand in for the other, on planted tables."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from carry_core import runs
from carry_core.files import ROOT
from carry_paper import catalogue
from carry_paper.ledger import claims, recipes, settling, stand_in
from carry_train.groups import MAIN, RECIPES

NUMBER = "n2/no_skip_accuracy"
FINDING = "finding/previous_sum"
COUNT = "beyond/zero_names_it"
CELLS = [name for name in claims.claims() if name.startswith("tab1/final_mlp/")]
# The scatter of six runs, with a mean of zero.
SCATTER = np.array([-0.02, -0.01, 0.0, 0.0, 0.01, 0.02])


def rows_of(name, paper, quick, bar=None):
    """Return stored rows; a run shows a finding from the bar on."""
    rows = []
    for recipe, values in (("paper", paper), ("quick", quick)):
        for run, value in enumerate(values):
            shows = None if bar is None else bool(value >= bar)
            rows.append((MAIN, recipe, run, name, value, shows))
    table = pd.DataFrame(rows, columns=["group", "recipe", "run", "id", "value", "shows"])
    return table.astype({"shows": object})


def verdict_on(*tables):
    """Return the verdict on the first row of some."""
    return stand_in.compared(pd.concat(tables)).verdict.iloc[0]


def test_equal_runs_may_stand_in_and_shifted_ones_may_not():
    assert verdict_on(rows_of(NUMBER, 0.5 + SCATTER, 0.5 + SCATTER)) == "may stand in"
    # A small shift is told apart, and does not count.
    small = stand_in.compared(rows_of(NUMBER, 0.5 + SCATTER, 0.55 + SCATTER)).iloc[0]
    assert small.p <= 0.05
    assert small.verdict == "may stand in"
    assert verdict_on(rows_of(NUMBER, 0.5 + SCATTER, 0.7 + SCATTER)) == "may not"
    # Runs that scatter as widely as they differ.
    wide = rows_of(NUMBER, 0.5 + 20 * SCATTER, 0.6 + 20 * SCATTER)
    assert verdict_on(wide) == "can't tell"


def test_too_few_runs_cannot_tell():
    few = rows_of(NUMBER, [0.5] * 6, [0.5] * 2)
    (row,) = stand_in.compared(few).to_dict("records")
    assert (row["n_paper"], row["n_quick"], row["verdict"]) == (6, 2, "can't tell")
    assert np.isnan([row["p"], row["low"], row["p_test"]]).all()
    assert verdict_on(rows_of(NUMBER, [0.5] * 6, [])) == "can't tell"
    assert verdict_on(rows_of(NUMBER, [0.5] * 6, [0.5] * 2 + [np.nan])) == "can't tell"
    assert verdict_on(rows_of(NUMBER, [0.5] * 6, [0.5] * 3)) == "may stand in"


def test_the_numbers_are_those_of_scipy_and_of_all_relabelings():
    paper, quick = 0.5 + SCATTER, np.array([0.5, 0.53, 0.56, 0.54])
    (row,) = stand_in.compared(rows_of(NUMBER, paper, quick)).to_dict("records")
    welch = stats.ttest_ind(quick, paper, equal_var=False).confidence_interval(0.95)
    assert (row["low"], row["high"]) == pytest.approx((welch.low, welch.high))
    assert row["difference"] == pytest.approx(quick.mean() - paper.mean())
    assert row["margin"] == pytest.approx(0.1 + claims.claims()[NUMBER].unit / 2)

    runs = np.concatenate([paper, quick])

    def distance(chosen):
        others = [run for run in range(len(runs)) if run not in chosen]
        return stats.energy_distance(runs[list(chosen)], runs[others])

    distances = [distance(chosen) for chosen in combinations(range(len(runs)), len(paper))]
    assert row["p"] == pytest.approx(np.mean(np.array(distances) >= distances[0] - 1e-9))


def test_a_finding_needs_the_same_verdict_by_both_recipes():
    same = rows_of(FINDING, 0.5 + SCATTER, 0.5 + SCATTER, bar=0.4)
    assert verdict_on(same) == "may stand in"
    (row,) = stand_in.compared(same).to_dict("records")
    assert (row["shown_paper"], row["shown_quick"]) == ("6 of 6", "6 of 6")
    other = rows_of(FINDING, 0.5 + SCATTER, 0.53 + SCATTER, bar=0.505)
    (row,) = stand_in.compared(other).to_dict("records")
    assert (row["shown_paper"], row["shown_quick"]) == ("2 of 6", "6 of 6")
    assert row["verdict"] != "may stand in"


def test_epochs_and_norms_have_no_margin():
    epochs = rows_of(FINDING, 50 + SCATTER, 50 + SCATTER, bar=0)
    (row,) = stand_in.compared(epochs).to_dict("records")
    assert np.isnan(row["margin"])
    assert row["verdict"] == "can't tell"
    assert verdict_on(rows_of(FINDING, 50 + SCATTER, 60 + SCATTER, bar=0)) == "may not"


def test_counts_of_runs_are_compared_as_counts():
    # Welch's interval of six ones and six ones would be a point.
    (row,) = stand_in.compared(rows_of(COUNT, [1] * 6, [1] * 6, bar=1)).to_dict("records")
    assert (row["low"], row["high"]) == settling.difference_of_shares(6, 6, 6, 6)
    assert row["verdict"] == "can't tell"
    assert verdict_on(rows_of(COUNT, [1] * 6, [0] * 6, bar=1)) == "may not"


def test_a_cell_may_not_stand_in_only_if_its_table_is_told_apart():
    generator = np.random.default_rng(0)
    same, shifted = [], []
    for i, name in enumerate(CELLS):
        paper, quick = generator.uniform(0, 1, (2, 6))
        same.append(rows_of(name, paper, quick))
        shift = 0.3 if i == 0 else 0
        shifted.append(rows_of(name, 0.2 + SCATTER, 0.2 + shift + SCATTER))
    told_apart = stand_in.compared(pd.concat(shifted)).set_index("id")
    assert told_apart.p_test.nunique() == 1
    assert told_apart.verdict[CELLS[0]] == "may not"
    assert set(told_apart.verdict[CELLS[1:]]) == {"may stand in"}
    # A cell that is told apart by itself, in a table that is not.
    same[0] = rows_of(CELLS[0], 0.2 + SCATTER, 0.5 + SCATTER)
    table = stand_in.compared(pd.concat(same)).set_index("id")
    assert table.p[CELLS[0]] <= 0.05 < table.p_test[CELLS[0]]
    assert table.verdict[CELLS[0]] == "can't tell"


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
    first = stand_in.compared(pd.concat(one)).set_index("id").loc[names[0]]
    assert first.p == pytest.approx(2 / 924)
    assert first.p_test == pytest.approx(45 * 2 / 924)
    assert first.verdict == "can't tell"
    together = stand_in.compared(pd.concat(all_differ))
    assert together.p_test.max() == pytest.approx(2 / 924)
    assert (together.verdict != "can't tell").all()


def test_rows_that_the_ledger_no_longer_has_are_left_out():
    rows = [rows_of("finding/gone", [1] * 6, [1] * 6), rows_of(NUMBER, [1] * 6, [1] * 6)]
    assert stand_in.compared(pd.concat(rows)).id.tolist() == [NUMBER]
    assert stand_in.compared(rows[0]).empty


def test_rows_are_counted_by_kind_and_a_table_is_flagged_as_a_whole():
    flagged = "n2/squashing/pos7"
    tables = [rows_of(name, 0.2 + SCATTER, 0.2 + SCATTER) for name in CELLS]
    tables[0] = rows_of(CELLS[0], 0.2 + SCATTER, 0.5 + SCATTER)
    tables += [rows_of(flagged, [0.5] * 6, [0.5] * 6), rows_of(NUMBER, [0.5] * 2, [0.5] * 2)]
    comparisons = stand_in.compared(pd.concat(tables))
    counts = stand_in.by_kind(comparisons)
    assert counts.loc["Table 1, without the final MLP"].tolist() == [29, 1, 0, 30]
    assert counts.loc["Two and three layers"].tolist() == [0, 0, 1, 1]
    assert counts.loc["Two and three layers, by the paper’s protocol alone"].tolist() == [
        1,
        0,
        0,
        1,
    ]
    assert stand_in.to_flag(comparisons) == set(CELLS)
    assert stand_in.flagged_although_it_may(comparisons) == {flagged}
    # In another group it can't tell.
    elsewhere = rows_of(flagged, [0.5] * 2, [0.5] * 2).assign(group="n3_s0.3_w0.2")
    comparisons = stand_in.compared(pd.concat([*tables, elsewhere]))
    assert stand_in.flagged_although_it_may(comparisons) == set()


# ---- the stored table


@pytest.fixture(scope="module")
def stored():
    return recipes.saved(ROOT / "data")


def test_flags_follow_the_stored_table(stored):
    comparisons = stand_in.compared(stored)
    flagged = {name for name, claim in claims.claims().items() if claim.recipe_sensitive}
    assert stand_in.to_flag(comparisons) - flagged == set()
    assert stand_in.flagged_although_it_may(comparisons) <= stand_in.STAY_FLAGGED.keys()
    assert stand_in.STAY_FLAGGED.keys() <= flagged


def test_the_stored_values_are_of_the_weights_that_are_shipped(stored):
    """The table also has rows of runs that are not shipped any more."""
    sha256 = stored.drop_duplicates(recipes.RUN).set_index(recipes.RUN).sha256
    compared = 0
    for group, recipe in sha256.index.droplevel("run").unique():
        if recipe in RECIPES and catalogue.find(group, recipe=recipe):
            for run, weights in catalogue.load(group, recipe=recipe).weights.items():
                if (group, recipe, run) in sha256.index:
                    assert sha256[group, recipe, run] == runs.digest(weights), (group, recipe, run)
                    compared += 1
    assert compared
