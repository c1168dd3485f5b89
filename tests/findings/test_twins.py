"""Twins and the map on planted rows: an effect that is there is seen, one that is not is not."""

import numpy as np
import pandas as pd
import pytest
import scipy

from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_paper import measurements
from carry_paper.findings import cell_map, cells, twins
from carry_paper.findings.evidence import Evidence
from carry_paper.ledger.verdicts import Count, judge_range
from carry_paper.measurements import to_store

CELL = cells.find_cell("n2_s0.3_w0.2", "minute")
N = cells.N_RUNS
NUMBERS = list(range(cells.FIRST, cells.FIRST + N))


def rows(late, exact=1.0, nine=0.5, plane=1.0, **other):
    """Rows of a cell whose runs have these values."""
    columns = {"late": late, "exact": exact, "nine": nine, "plane": plane, "run": NUMBERS}
    made = dict.fromkeys(cells.MADE_BY, "one") | {"sha256": "a" * 64}
    return pd.DataFrame(columns | made | CELL.key | other, index=range(N))


def planted(generator, effect=0.0):
    """Bases, their twins at the floor, and twins of a factor that adds to what the floor moves."""
    late = generator.uniform(0.2, 0.8, N)
    floor, factor = (generator.choice([-1, 1], N) * generator.uniform(0, 0.1, N) for _ in range(2))
    base = rows(late)
    return [
        twins.compared(base, rows(late + change), NUMBERS)
        for change in (floor, factor + np.sign(factor) * effect)
    ]


def compared_late(seed, effect):
    floor, factor = planted(np.random.default_rng(seed), effect)
    results = twins.comparisons(dict.fromkeys(twins.FACTORS, (factor, floor)))
    return next(result for result in results if result.outcome == "late")


def test_a_planted_factor_is_seen_and_the_floor_against_itself_is_not(monkeypatch):
    monkeypatch.setattr(twins, "PERMUTATIONS", 9_999)
    effect = compared_late(0, effect=0.05)
    assert effect.adjusted < twins.ALPHA
    assert effect.low < 0.05 < effect.high
    assert effect.mean - effect.floor == pytest.approx(0.05, abs=0.02)
    assert effect.pairs == N
    absent = compared_late(0, effect=0.0)
    assert absent.adjusted > 0.5
    assert absent.low < 0 < absent.high


@pytest.mark.slow
def test_errors_are_as_rare_and_effects_seen_as_often_as_is_said(monkeypatch):
    """Of 100 planted factors without effect few are seen; of detectable ones four in five."""
    monkeypatch.setattr(twins, "PERMUTATIONS", 1_000)
    generator = np.random.default_rng(1)
    wrong, seen = 0, 0
    n_tests = len(twins.FACTORS) * len(twins.OUTCOMES)
    for _ in range(100):
        floor, factor = planted(generator)
        differences = (factor.late - floor.late).to_numpy()
        wrong += twins.permutation_p(differences) <= twins.ALPHA
        effect = twins.detectable(differences, n_tests)
        seen += twins.permutation_p(differences + effect) <= twins.ALPHA / n_tests
    assert scipy.stats.binomtest(wrong, 100, twins.ALPHA).pvalue > 0.01
    assert seen / 100 == pytest.approx(twins.POWER, abs=0.15)


def test_the_permutation_test_is_that_of_all_signs():
    differences = np.array([0.3, -0.1, 0.2, 0.5, -0.2])
    signs = np.array(np.meshgrid(*[[-1, 1]] * 5)).reshape(5, -1)
    means = (signs * differences[:, None]).mean(0)
    expected = (means >= differences.mean() - 1e-12).mean()
    assert twins.permutation_p(differences) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("mean", "adjusted", "hangs"), [(0.30, 0.01, True), (0.30, 0.2, False), (0.15, 0.01, False)]
)
def test_an_answer_hangs_on_the_recipe_if_one_sees_what_the_other_excludes(mean, adjusted, hangs):
    seen = twins.Comparison("mask", "late", 30, mean, 0.05, 0, 1, adjusted, adjusted, 0.1)
    unseen = seen._replace(mean=0.05, low=-0.1, high=0.12, adjusted=1.0)
    assert twins.hangs_on_recipe(seen, unseen) is hangs
    assert twins.hangs_on_recipe(unseen, seen) is hangs


def test_holm_multiplies_the_smallest_most_and_keeps_the_order():
    assert twins.holm([0.04, 0.01, 0.03, 0.5]) == pytest.approx([0.09, 0.04, 0.09, 0.5])
    assert twins.holm([0.9, 0.8]) == [1.0, 1.0]


def test_twins_are_compared_by_word_share_and_nine_and_those_that_do_not_learn_are_counted():
    base, twin = rows(0.5, nine=0.5), rows([0.97, 0.5, *[0.6] * (N - 2)], nine=0.2)
    twin.loc[1, "exact"] = 0.99
    pairs = twins.compared(base, twin, NUMBERS)
    assert pairs.learns.tolist() == [True, False, *[True] * (N - 2)]
    assert pairs.late.tolist()[:1] + pairs.late.tolist()[2:] == pytest.approx(
        [0.47, *[0.1] * (N - 2)]
    )
    assert pairs.flip.tolist()[2:] == [0.0] * (N - 2)
    assert pairs.flip.iloc[0] == 1
    assert pairs.nine.iloc[0] == pytest.approx(0.3)
    assert pairs.iloc[1][list(twins.OUTCOMES)].isna().all()
    assert twins.compared(base, twin, NUMBERS, learns=0.99).learns.all()


def test_a_twin_that_is_missing_or_of_another_step_is_refused_in_one_line():
    with pytest.raises(BadInput, match="Of 32 twins 1 are missing, such as run 203"):
        twins.compared(rows(0.5), rows(0.5).drop(3), NUMBERS)
    other = rows(0.5)
    other.loc[4, "precision"] = "torch-fp32"
    with pytest.raises(BadInput, match="Run 204 and its base were trained by different steps"):
        twins.compared(rows(0.5), other, NUMBERS)


def test_bases_are_the_first_that_learn():
    table = rows(0.5)
    table.loc[2, "exact"] = 0.3
    assert twins.bases(table, CELL, 5) == [200, 201, 203, 204, 205]
    assert twins.bases(table, CELL, 3, learns=0.2) == [200, 201, 202]
    with pytest.raises(BadInput, match="has 31 that learn: expected 32"):
        twins.bases(table, CELL)
    with pytest.raises(BadInput, match="lacks run 201"):
        twins.bases(table.drop(1), CELL, 5)
    with pytest.raises(BadInput, match="lacks run 200"):
        twins.bases(table, cells.find_cell("n2_s0.3_w0.2", "quick"), 1)


def test_unrelated_runs_are_compared_each_with_each():
    base = rows([0.0, 0.5, 1.0, *[0.5] * (N - 3)])
    expected = {"late": 1 / 2, "flip": 5 / 6, "nine": 0}
    assert twins.unrelated(base, NUMBERS[:4]) == pytest.approx(expected)
    without = base.assign(late=base.late.where(base.run != NUMBERS[1]))
    assert twins.unrelated(without, NUMBERS[:3]) == pytest.approx({"late": 1, "flip": 1, "nine": 0})


# ---- the map


def test_the_map_has_the_main_cell_once_and_groups_that_differ_in_one_setting():
    of_map = cell_map.map_cells()
    keys = [tuple(cell.key.values()) for cell in of_map]
    assert len(set(keys)) == len(keys)
    assert len(keys) == 33
    assert sum(cell == CELL for cell in of_map) == 1
    assert {cell.group.name for cell in of_map} >= set(cell_map.IN_THE_PAPER)


@pytest.mark.parametrize(
    ("late", "plane", "exact", "verdict"),
    [
        (0.5, 1.0, 1.0, "holds"),
        (1.0, 1.0, 1.0, "holds"),
        (0.01, 1.0, 1.0, "does not hold"),
        (0.5, 0.9, 1.0, "does not hold"),
        (np.nan, np.nan, 0.2, "does not learn"),
        (np.nan, 1.0, 1.0, "does not hold"),
        (0.5, [1.0] * 18 + [0.5] * (N - 18), 1.0, "can't tell"),
    ],
)
def test_a_cell_holds_if_more_than_half_of_the_runs_that_learn_carry_so(
    late, plane, exact, verdict
):
    assert cell_map.summary(rows(late, exact, plane=plane))["verdict"] == verdict


def test_a_setting_can_say_if_all_its_runs_are_there(monkeypatch):
    main, lacks_one = rows(0.5), rows(0.5).drop(3)
    other = rows(0.5, plane=[1.0] * 18 + [0.5] * (N - 18))
    others = {"n2_s0.1_w0.2": other, "n2_s0.2_w0.2": lacks_one, "n3_s0.3_w0.2": rows(0.01)}
    of_groups = [x.assign(**cells.find_cell(name, "minute").key) for name, x in others.items()]
    table = pd.concat([main, *of_groups])
    monkeypatch.setattr(cells, "stored_runs", lambda *_: table)
    settings = cell_map.settings(Evidence("ours"))
    assert len(settings) == len(cell_map.IN_THE_PAPER)
    says = {name: cell_map.holds(x) for name, x in settings.to_dict("index").items()}
    assert says.pop("by minute: n2_s0.3_w0.2") is True
    assert says.pop("by minute: n3_s0.3_w0.2") is False
    assert set(says.values()) == {None}
    assert settings.value["by minute: n2_s0.1_w0.2"] == pytest.approx(18 / N)
    with pytest.raises(BadInput, match="six runs of a setting"):
        cell_map.settings(Evidence("author"))


@pytest.mark.parametrize(
    ("n_hold", "n_open", "verdict"),
    [
        (8, 0, "reproduced"),
        (7, 0, "mostly"),
        (6, 2, "mostly"),
        (5, 1, "can't tell"),
        (5, 0, "differs"),
        (0, 8, "can't tell"),
    ],
)
def test_a_range_is_most_of_what_the_paper_tried(n_hold, n_open, verdict):
    n_settings = len(cell_map.IN_THE_PAPER)
    judged = judge_range(Count(n_hold, n_settings - n_open), n_settings)
    assert judged.verdict == verdict
    assert bool(judged.settles) == (verdict == "can't tell")


def test_the_stored_rows_of_the_range_are_of_the_runs_that_are_stored():
    """The table of cells grows; `carry measure --source ours --only finding/range` follows."""
    table = measurements.read("ours", ROOT / "data")
    rows = table[table.quantity == "cell_map.settings"].set_index("group")
    settings = cell_map.settings(Evidence("ours"))
    assert set(rows.index) == set(settings.index)
    for name, fields in rows.fields.items():
        counts = settings.loc[name, ["runs", "learn", "show", "verdict"]].to_dict()
        assert fields | to_store(counts) == fields


END = [1.0, 0.9, 0.2, 0.4]


def test_runs_that_were_stopped_at_each_epoch_are_stored():
    table = cells.saved()
    for epoch in twins.EPOCHS:
        assert len(cells.find_cell(CELL.group.name, "minute", epochs=epoch).of(table)) >= N


def late_shares(late):
    return pd.DataFrame({"run": range(len(END)), "late": late})


def test_runs_on_the_way_are_compared_with_what_they_become():
    stopped = {
        20: late_shares([0.9, 1.0, 0.3, 0.3]),
        10: late_shares([None, 0.5, 0.9, 0.4]),
        2: late_shares([None] * 4),
    }
    way = twins.on_the_way(late_shares(END), stopped)
    assert way.index.tolist() == [2, 10, 20]
    assert way.runs.tolist() == [0, 3, 4]
    assert way.change[10] == pytest.approx((0.4 + 0.7 + 0) / 3)
    assert way["rank"][20] == pytest.approx(3.5 / (4.5 * 5) ** 0.5)  # ties share a rank
    assert way.flip[20] == pytest.approx(0.5)  # 1.0 is late, and 0.9 is not
    assert way.low[20] < way.change[20] < way.high[20]
    assert way.change.isna().tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("changes", "runs", "epoch"),
    [
        ([0.3, 0.1, 0.1], [32, 32, 32], 5),
        ([0.1, 0.3, 0.1], [32, 32, 32], 10),  # there and at later ones
        ([0.1, 0.1, 0.1], [10, 23, 24], 10),  # of too few runs
        ([0.1, 0.1, 0.3], [32, 32, 32], None),
    ],
)
def test_settled_is_from_where_on_no_epoch_is_further_than_the_floor(changes, runs, epoch):
    way = pd.DataFrame({"change": changes, "runs": runs}, index=[2, 5, 10])
    assert twins.settled(way, 0.2) == epoch
