"""The verdict rules on hand-made numbers."""

import math

import numpy as np
import pytest
import scipy.stats

from carry_core.ledger import verdicts
from carry_core.ledger.verdicts import Printed, judge_author, judge_finding, judge_ours


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


def printed(*values: float, unit: float = 0.01, **more) -> Printed:
    return Printed(np.array(values, dtype=float), unit, **more)


def ours(paper: Printed, runs: np.ndarray, theirs: np.ndarray | None = None, rule: str = "drawn"):
    return judge_ours(rule, paper, runs.mean(0) if len(runs) else np.zeros(1), runs, theirs)


@pytest.mark.parametrize(
    ("rule", "value", "noise", "verdict"),
    [
        ("drawn", 0.525, 0.0, "reproduced"),  # rounding alone
        ("drawn", 0.5251, 0.0, "differs"),
        ("drawn", 0.528, 0.001, "reproduced"),  # and three standard errors
        ("drawn", 0.5281, 0.001, "differs"),
        ("selected", 0.55, 0.01, "reproduced"),
        ("fixed", 0.528, 0.001, "differs"),  # nothing was drawn
        ("exact", 0.528, 0.001, "differs"),
    ],
)
def test_author_rounding_and_noise(rule, value, noise, verdict):
    assert judge_author(rule, printed(0.52), np.array([value]), noise, 6).verdict == verdict


def test_the_printed_places_come_from_the_unit_and_not_from_the_number():
    assert judge_author("drawn", printed(1.0), np.array([0.996]), 0, 6).verdict == "reproduced"
    assert judge_author("drawn", printed(1.0, unit=0.001), np.array([0.996]), 0, 6).verdict == "differs"
    assert judge_author("fixed", printed(650, unit=10), np.array([654.8]), 0, 6).verdict == "reproduced"
    assert judge_author("exact", printed(5e7, unit=1e7), np.array([50_005_000.0]), 0, 0).verdict == "reproduced"


def test_author_lists_agree_in_every_entry_and_in_length():
    assert (
        judge_author("fixed", printed(0.1, 0.15, single=True), np.array([0.102, 0.148]), 0, 1).verdict == "reproduced"
    )
    assert judge_author("fixed", printed(0.1, 0.15, single=True), np.array([0.102, 0.2]), 0, 1).verdict == "differs"
    assert judge_author("exact", printed(1, 2), np.array([1.0]), 0, 0).verdict == "differs"


def test_a_part_of_the_release_cannot_settle_a_mean_over_six():
    found = judge_author("drawn", printed(0.52), np.array([0.52]), 0, 1)
    assert found.verdict == "undecided"
    assert "1 of the paper's 6" in found.detail
    assert judge_author("drawn", printed(0.52, single=True), np.array([0.52]), 0, 1).verdict == "reproduced"


def test_a_run_that_the_paper_does_not_name_may_be_any_of_them():
    runs = column(0.998, 0.9997, 1, 0.549, 1, 1)
    found = judge_author("unnamed", printed(0.98), np.median(runs, 0), 0.0, 6, runs)
    assert found.verdict == "undecided"
    close = judge_author("unnamed", printed(0.98), np.array([0.985]), 0.0, 6, column(0.98, 0.99, 0.985, 0.98))
    assert close.verdict == "reproduced"


def test_welch_by_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.5, 0.02, (6, 1)), rng.normal(0.5, 0.01, (5, 1))
    interval = scipy.stats.ttest_ind(a[:, 0], b[:, 0], equal_var=False).confidence_interval(0.95)
    found = ours(printed(0.5), a, b)
    assert found.tolerance == pytest.approx((interval.high - interval.low) / 2 + 0.005)
    assert found.verdict == "reproduced"
    assert "Welch" in found.detail
    assert ours(printed(0.6), a, b).verdict == "differs"


def test_one_run_of_the_paper_takes_a_prediction_interval():
    runs = column(0.50, 0.52, 0.51)
    expected = scipy.stats.t.ppf(0.975, 2) * runs.std(ddof=1) * math.sqrt(1 + 1 / 3) + 0.005
    theirs = column(0.1, 0.9)  # not looked at: the number is one run's
    assert ours(printed(0.5, single=True), runs, theirs).tolerance == pytest.approx(expected)
    assert "one run's" in ours(printed(0.5, single=True), runs, theirs).detail


def test_without_the_authors_runs_our_own_scatter_stands_in():
    found = ours(printed(0.51), column(0.50, 0.52, 0.51, 0.50, 0.52, 0.51))
    assert found.verdict == "reproduced"
    assert "not at hand" in found.detail


def test_one_run_of_ours_is_judged_by_the_authors_scatter_if_there_is_any():
    assert ours(printed(0.5), column(0.5), column(0.5, 0.51, 0.49)).verdict == "reproduced"
    lonely = ours(printed(0.5, single=True), column(0.5), column(0.5))
    assert (lonely.verdict, lonely.tolerance) == ("undecided", None)


def test_an_interval_wider_than_a_quarter_of_the_range_decides_nothing():
    runs = column(0, 0, 1, 1, 0.1, 0.9)
    assert ours(printed(0.5), runs, runs).verdict == "undecided"
    assert ours(printed(0.5, range=100), runs, runs).verdict == "reproduced"
    near = ours(printed(0.9), column(0.30, 0.40, 0.20, 0.35, 0.30, 0.28), column(0.9, 0.6, 1, 0.9, 0.95, 0.5))
    assert near.verdict == "undecided"
    assert "outside" in near.detail


def test_runs_that_do_not_scatter():
    same = column(1, 1, 1)
    assert ours(printed(1.0), same, same).verdict == "reproduced"
    assert ours(printed(1.0), same, same).tolerance == pytest.approx(0.005)
    assert ours(printed(0.9), same, same).verdict == "differs"
    one_sided = ours(printed(0.99), same, column(0.98, 0.99, 1.0))
    assert one_sided.tolerance == pytest.approx(scipy.stats.t.ppf(0.975, 2) * 0.01 / math.sqrt(3) + 0.005)


def test_one_run_beside_runs_that_do_not_scatter_decides_nothing():
    beside = ours(printed(1.0), column(0.98), column(1, 1, 1))
    assert (beside.verdict, beside.tolerance) == ("undecided", None)
    assert ours(printed(1.0), column(0.98), column(1, 0.99, 0.98)).verdict == "reproduced"


def test_ours_lists_take_the_widest_entry():
    runs = np.array([[0.1, 0.2], [0.1, 0.21], [0.1, 0.19]])
    alone = ours(printed(0.2, single=True), runs[:, 1:])
    assert ours(printed(0.1, 0.2, single=True), runs).tolerance == pytest.approx(alone.tolerance)


def test_a_spread_is_known_to_a_third_of_itself():
    found = judge_ours("spread", printed(0.38, range=0.5), np.array([0.3]), np.zeros((0, 1)), None)
    assert found.verdict == "undecided"
    small = judge_ours("spread", printed(0.02, range=0.5), np.array([0.02]), np.zeros((0, 1)), None)
    assert small.verdict == "reproduced"
    error = 0.02 / math.sqrt(2 * 5)
    assert small.tolerance == pytest.approx(1.96 * error * math.sqrt(2) + 0.005)
    fewer = judge_ours("spread", printed(0.02, range=0.5), np.array([0.02]), np.zeros((0, 1)), None, 3)
    assert fewer.tolerance == pytest.approx(1.96 * 0.02 * math.sqrt(1 / 4 + 1 / 10) + 0.005)


def test_what_is_not_a_number_decides_nothing():
    nan = judge_ours("spread", printed(0.38), np.array([math.nan]), np.zeros((0, 1)), None)
    assert (nan.verdict, nan.tolerance) == ("undecided", None)


@pytest.mark.parametrize(
    ("rule", "shows", "verdict"),
    [
        ("every", [True] * 6, "reproduced"), ("every", [True] * 5 + [False], "undecided"),
        ("every", [True, False], "differs"), ("every", [False], "differs"),
        ("most", [True, True, False], "reproduced"), ("most", [True, False], "differs"),
        ("some", [False, False, True], "reproduced"), ("some", [False] * 6, "differs"),
        ("some", [False] * 5, "undecided"), ("some", [False], "undecided"),
    ],
)  # fmt: skip
def test_findings(rule, shows, verdict):
    assert judge_finding(rule, shows).verdict == verdict


@pytest.mark.parametrize("rule", ["every", "most"])
@pytest.mark.parametrize("shows", [True, False])
def test_fewer_runs_than_it_takes_decide_nothing(rule, shows):
    assert judge_finding(rule, [shows] * 2, 3).verdict == "undecided"
    assert judge_finding(rule, [shows] * 3, 3).verdict == ("reproduced" if shows else "differs")
    assert judge_finding("some", [True], 3).verdict == "reproduced"


def test_runs_that_fall_apart_are_marked():
    text = verdicts.disagreement([0.888, 1, 0.074, 1, 0, 0])
    assert "bimodal" in text
    assert "3 at 0 to 0.074, 3 at 0.888 to 1" in text
    assert "1 at 0.76" in verdicts.disagreement([0, 0, 0, 0, 0.08, 0.76])
    assert verdicts.disagreement([0.4, 0.5, 0.6, 0.3]) == ""
    assert verdicts.disagreement([86, 90, 70], 128) == ""
    assert verdicts.disagreement([0.5]) == verdicts.disagreement([]) == ""
