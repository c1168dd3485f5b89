"""The verdict rules on hand-made numbers."""

import math

import numpy as np
import pytest
import scipy.stats

from carry_paper.ledger.claims import Claim
from carry_paper.ledger.verdicts import judge_author, judge_finding, judge_ours


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


def printed(value: float, rule: str = "drawn", **more) -> Claim:
    return Claim("id", "Tab. 1", value, "page", "heading", "reason", rule, **more)


def ours(paper: Claim, runs: np.ndarray, theirs: np.ndarray = column()):  # noqa: B008
    return judge_ours(paper, runs.mean(0) if len(runs) else np.zeros(1), runs, theirs)


@pytest.mark.parametrize(
    ("rule", "value", "noise", "verdict"),
    [
        ("drawn", 0.525, 0.0, "reproduced"),  # rounding alone
        ("drawn", 0.5251, 0.0, "differs"),
        ("drawn", 0.528, 0.001, "reproduced"),  # and three standard errors
        ("drawn", 0.5281, 0.001, "differs"),
        ("fixed", 0.528, 0.001, "differs"),  # nothing was drawn
    ],
)
def test_author_rounding_and_noise(rule, value, noise, verdict):
    assert judge_author(printed(0.52, rule), np.array([value]), noise, 6).verdict == verdict


def test_a_part_of_the_release_cannot_settle_a_mean_over_six():
    found = judge_author(printed(0.52), np.array([0.52]), 0, 1)
    assert found.verdict == "compatible"
    assert "1 of the paper's 6" in found.detail
    assert judge_author(printed(0.52, single=True), np.array([0.52]), 0, 1).verdict == "reproduced"


def test_welch_by_hand():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.5, 0.02, (6, 1)), rng.normal(0.5, 0.01, (5, 1))
    errors = [x.var(ddof=1) / len(x) for x in (a, b)]
    freedom = sum(errors) ** 2 / (errors[0] ** 2 / 5 + errors[1] ** 2 / 4)
    width = scipy.stats.t.ppf(0.975, freedom) * math.sqrt(sum(errors))
    difference = a.mean() - b.mean()
    found = ours(printed(0.5), a, b)
    assert found.interval[0] == pytest.approx([difference - width, difference + width])
    assert (found.verdict, found.tolerance) == ("reproduced", pytest.approx(0.105))


@pytest.mark.parametrize(
    ("shift", "scatter", "verdict"),
    [
        (0.0, 0.01, "reproduced"),
        (0.05, 0.01, "reproduced"),  # a difference that was seen, and is too small to count
        (0.12, 0.01, "differs"),
        (0.0, 0.2, "compatible"),  # a difference of a tenth would not have been seen
    ],
)
def test_ours_is_judged_by_equivalence_to_the_authors_runs(shift, scatter, verdict):
    theirs = column(*(0.5 + scatter * np.array([-1, 1, -0.5, 0.5, 0, 0])))
    assert ours(printed(0.5), theirs + shift, theirs).verdict == verdict
    assert (
        ours(printed(50, range=100, unit=1), 100 * (theirs + shift), 100 * theirs).verdict
        == verdict
    )


def test_one_run_of_the_paper_takes_a_prediction_interval():
    runs = column(0.50, 0.52, 0.51)
    width = scipy.stats.t.ppf(0.975, 2) * runs.std(ddof=1) * math.sqrt(1 + 1 / 3)
    for theirs in (column(), column(0.1)):
        found = ours(printed(0.5, single=True), runs, theirs)
        assert found.interval[0] == pytest.approx([0.01 - width, 0.01 + width])
    mean = ours(printed(0.5), runs).interval[0]
    assert mean[1] - mean[0] == pytest.approx(2 * width * math.sqrt((1 / 3 + 1 / 6) / (1 / 3 + 1)))


def test_one_run_of_ours_is_judged_by_the_authors_scatter_if_there_is_any():
    assert ours(printed(0.5), column(0.5), column(0.5, 0.51, 0.49)).verdict == "reproduced"
    lonely = ours(printed(0.5, single=True), column(0.51), column(0.5))
    assert (lonely.verdict, lonely.tolerance, lonely.interval) == ("compatible", None, None)
    assert "from the paper by 0.01" in lonely.detail
    assert ours(printed(1.0), column(0.98), column(1, 1, 1)).verdict == "compatible"


def test_runs_that_do_not_scatter():
    same = column(1, 1, 1)
    assert ours(printed(1.0), same, same).interval.tolist() == [[0, 0]]
    assert ours(printed(1.0), same, same).verdict == "reproduced"
    apart = ours(printed(0.75), same, same - 0.25)
    assert (apart.verdict, apart.interval.tolist()) == ("differs", [[0.25, 0.25]])
    one_sided = ours(printed(0.99), same, column(0.98, 0.99, 1.0)).interval[0]
    assert one_sided[1] - one_sided[0] == pytest.approx(
        2 * scipy.stats.t.ppf(0.975, 2) * 0.01 / math.sqrt(3)
    )


def test_a_spread_is_known_to_a_third_of_itself():
    found = judge_ours(printed(0.38, "spread", range=0.5), np.array([0.3]), column(), column())
    assert found.verdict == "compatible"
    small = judge_ours(printed(0.02, "spread", range=0.5), np.array([0.02]), column(), column(), 3)
    assert small.verdict == "reproduced"
    assert small.interval[0, 1] == pytest.approx(1.96 * 0.02 * math.sqrt(1 / 4 + 1 / 10))


@pytest.mark.parametrize(
    ("quantifier", "verdicts_by_count"),
    [
        ("all", ["differs"] * 3 + ["mixed"] + ["mostly"] * 2 + ["reproduced"]),
        ("most", ["differs"] * 3 + ["mixed"] + ["reproduced"] * 3),
        ("some", ["differs"] + ["reproduced"] * 6),
        ("one", ["differs"] + ["reproduced"] * 6),
        ("none", ["reproduced"] + ["mostly"] * 2 + ["mixed"] + ["differs"] * 3),
    ],
)
def test_findings_of_six_runs(quantifier, verdicts_by_count):
    shows = [[True] * count + [False] * (6 - count) for count in range(7)]
    assert [judge_finding(quantifier, some).verdict for some in shows] == verdicts_by_count


def test_fewer_than_three_runs_are_compatible_at_best_unless_the_paper_speaks_of_one():
    for quantifier in ("all", "most", "some"):
        assert judge_finding(quantifier, [True] * 2).verdict == "compatible"
        assert judge_finding(quantifier, [True], single=True).verdict == "reproduced"
        assert judge_finding(quantifier, [True] * 3).verdict == "reproduced"
    assert judge_finding("all", [False] * 2).verdict == "differs"
    assert judge_finding("most", [False] * 2).verdict == "compatible"
    assert judge_finding("some", [False] * 5).verdict == "compatible"  # the paper had six
