"""The verdict rules on hand-made numbers."""

import math
from collections.abc import Sequence
from datetime import date

import numpy as np
import pytest
import scipy.stats

from carry_paper.ledger.claims import Claim
from carry_paper.ledger.exchangeability import TableTest
from carry_paper.ledger.verdicts import (
    CANNOT_TELL,
    NO_VERDICT,
    Count,
    Judgement,
    judge_author,
    judge_count,
    judge_ours,
    judge_runs,
)


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


def printed(value: float, rule: str = "drawn", **more) -> Claim:
    since = date(2026, 11, 26)
    return Claim("id", "Tab. 1", value, "page", "heading", "reason", rule, since=since, **more)


def ours(paper: Claim, runs: np.ndarray, author_runs: np.ndarray = column()):  # noqa: B008
    return judge_ours(paper, runs.mean(0) if len(runs) else np.zeros(1), runs, author_runs)


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
    judgement = judge_author(printed(0.52), np.array([0.52]), 0, 1)
    assert judgement.verdict == CANNOT_TELL
    assert "1 of the paper's 6" in judgement.detail
    assert judge_author(printed(0.52, single=True), np.array([0.52]), 0, 1).verdict == "reproduced"


@pytest.mark.parametrize(
    ("shift", "scatter", "verdict"),
    [
        (0.0, 0.01, "reproduced"),
        (0.05, 0.01, "reproduced"),  # a difference that was seen, and is too small to count
        (0.12, 0.01, "differs"),
        (0.0, 0.2, CANNOT_TELL),  # a difference of a tenth would not have been seen
    ],
)
def test_ours_is_judged_by_equivalence_to_the_authors_runs(shift, scatter, verdict):
    author_runs = column(*(0.5 + scatter * np.array([-1, 1, -0.5, 0.5, 0, 0])))
    judgement = ours(printed(0.5), author_runs + shift, author_runs)
    assert (judgement.verdict, judgement.tolerance) == (verdict, pytest.approx(0.105))
    assert (
        ours(printed(50, range=100, unit=1), 100 * (author_runs + shift), 100 * author_runs).verdict
        == verdict
    )


def test_a_printed_mean_takes_a_prediction_interval_where_the_author_has_no_runs():
    runs = column(0.50, 0.52, 0.51)
    width = scipy.stats.t.ppf(0.975, 2) * runs.std(ddof=1) * math.sqrt(1 / 6 + 1 / 3)
    for author_runs in (column(), column(0.1)):
        judgement = ours(printed(0.5), runs, author_runs)
        assert judgement.interval[0] == pytest.approx([0.01 - width, 0.01 + width])


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ((0.40, 0.60, 0.70), "within our 3: 1 below it, 2 above"),
        ((0.40, 0.504, 0.70), "within our 3: 1 below it, 1 above, 1 equal as printed"),
        ((0.60, 0.70, 0.80), "below all 3 of ours"),
        ((0.10, 0.20, 0.30), "above all 3 of ours"),
        ((0.50, 0.501, 0.499), "that of all 3 of ours"),
        ((0.10,), "above that of our one run"),
    ],
)
def test_a_number_of_one_run_is_shown_among_ours_and_judged_on_his(values, place):
    claim = printed(0.5, single=True)
    for author_runs in (column(), column(0.5), column(0.4, 0.5, 0.6)):
        judgement = ours(claim, column(*values), author_runs)
        assert (judgement.verdict, judgement.interval, judgement.tolerance) == (
            NO_VERDICT,
            None,
            None,
        )
        assert place in judgement.detail
    assert judge_author(claim, np.array([0.6]), 0, 1).verdict == "differs"
    # Nothing lies between in a number that needs no runs.
    exact = judge_ours(printed(0.5, "exact", single=True), np.array([0.5]), column(), column())
    assert exact.verdict == "reproduced"


def test_a_run_that_the_paper_does_not_name_is_judged_by_the_authors_scatter():
    claim = printed(0.5, "unnamed", single=True)
    runs = column(0.50, 0.52, 0.51)
    width = scipy.stats.t.ppf(0.975, 2) * runs.std(ddof=1) * math.sqrt(1 + 1 / 3)
    judgement = judge_author(claim, np.array([0.51]), 0, 3, runs)
    assert judgement.interval[0] == pytest.approx([0.01 - width, 0.01 + width])
    assert judgement.verdict == "reproduced"
    assert ours(claim, runs, runs).verdict == NO_VERDICT
    apart = judge_author(claim, np.array([0.51]), 0, 3, column(0.1, 0.5, 0.9))
    assert (apart.verdict, apart.settles) == (
        CANNOT_TELL,
        "the weights of that run, which is not released",
    )


def test_one_run_of_ours_is_judged_by_the_authors_scatter_if_there_is_any():
    assert ours(printed(0.5), column(0.5), column(0.5, 0.51, 0.49)).verdict == "reproduced"
    lonely = ours(printed(0.5), column(0.51), column(0.5))
    assert (lonely.verdict, lonely.tolerance, lonely.interval) == (CANNOT_TELL, None, None)
    assert "from the paper by 0.01" in lonely.detail
    assert ours(printed(1.0), column(0.98), column(1, 1, 1)).verdict == CANNOT_TELL


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


def spread(value: float, paper: float, n_runs: int = 6):
    """Judge a standard deviation of ours against a printed one."""
    claim = printed(paper, "spread", range=0.5)
    return judge_ours(claim, np.array([value]), column(), column(), n_runs)


def test_a_spread_of_six_runs_says_little_and_differs_as_by_an_f_test():
    assert spread(0.38, 0.38).verdict == CANNOT_TELL
    assert spread(0.01, 0.01).verdict == "reproduced"
    assert spread(0.02, 0.02).verdict == "reproduced"
    assert spread(0.037, 0.02).verdict == CANNOT_TELL
    assert "never: a standard deviation of the author's 6 runs" in spread(0.38, 0.38).settles
    ratio = math.sqrt(scipy.stats.f.ppf(0.975, 5, 5))
    assert spread(1.1 * ratio * 0.2, 0.2).verdict == "differs"
    assert spread(0.9 * ratio * 0.2, 0.2).verdict == CANNOT_TELL


def judge_shown(quantifier: str, shows: Sequence[bool], **more) -> Judgement:
    return judge_runs(quantifier, Count.of(shows), **more)


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
    assert [
        judge_shown(quantifier, shown_by_run).verdict for shown_by_run in shows
    ] == verdicts_by_count


def test_fewer_than_three_runs_cannot_tell_unless_the_paper_speaks_of_one():
    for quantifier in ("all", "most"):
        judged = judge_shown(quantifier, [True] * 2)
        assert (judged.verdict, judged.settles) == (CANNOT_TELL, "with 3 runs instead of 2")
        assert judge_shown(quantifier, [True], single=True).verdict == "reproduced"
        assert judge_shown(quantifier, [True] * 3).verdict == "reproduced"
    assert judge_shown("some", [True] * 2).verdict == "reproduced"  # there are such runs
    assert judge_shown("all", [False] * 2).verdict == "differs"
    assert judge_shown("most", [False] * 2).verdict == CANNOT_TELL
    assert judge_shown("some", [False] * 5).verdict == CANNOT_TELL  # the paper had six
    assert judge_shown("all", []).verdict == CANNOT_TELL


@pytest.mark.parametrize("quantifier", ["some", "one"])
def test_some_runs_is_about_all_such_runs_and_cannot_differ_on_ours(quantifier):
    for n in (6, 12, 64):
        judged = judge_shown(quantifier, [False] * n, source="ours")
        assert judged.verdict == CANNOT_TELL
        upper = scipy.stats.binomtest(0, n).proportion_ci(method="exact").high
        assert f"none of {n} does, so up to {upper:.0%} of all such runs may" in judged.settles
        assert judge_shown(quantifier, [True] + [False] * n, source="ours").settles == ""


def test_ours_get_no_verdict_where_the_paper_speaks_of_one_run():
    for shows in ([True] * 6, [False] * 6):
        judged = judge_shown("all", shows, single=True, source="ours")
        assert (judged.verdict, judged.settles) == (NO_VERDICT, "")
        assert judged.interval[0][0] < 1
    assert judge_shown("all", [False], single=True, source="author").verdict == "differs"


def test_a_number_whose_text_is_open_is_judged_on_nobody():
    claim = printed(0.1, "shown")
    runs = column(0.4, 0.5, 0.6)
    assert judge_author(claim, np.array([0.5]), 0, 3, runs).verdict == NO_VERDICT
    assert ours(claim, runs, runs).verdict == NO_VERDICT


# ---- tables


def table(p: float | None, n_theirs: int = 6) -> TableTest:
    return TableTest("tab", 6, n_theirs, 5, p, 1.0, (0.1, 0.2, 0.7))


def test_a_cell_differs_only_if_its_table_is_told_apart():
    author_runs = column(*(0.5 + 0.01 * np.array([-1, 1, -0.5, 0.5, 0, 0])))
    runs = author_runs + 0.2
    for p, verdict in [(0.04, "differs"), (0.06, CANNOT_TELL)]:
        judged = judge_ours(printed(0.5), runs.mean(0), runs, author_runs, table=table(p))
        assert judged.verdict == verdict
    assert judged.settles == "a table that is told apart as a whole: today p = 0.06"
    same_runs = judge_ours(
        printed(0.5), author_runs.mean(0), author_runs, author_runs, table=table(0.01)
    )
    assert same_runs.verdict == "reproduced"


# ---- what would settle a verdict


def test_as_many_runs_settle_as_the_sentence_says():
    """Repeating our runs until there are as many narrows the interval to the tolerance."""
    author_runs = column(*(0.5 + 0.05 * np.array([-1, 1, -0.5, 0.5, 0, 0])))
    runs = column(*(0.5 + 0.2 * np.array([-1, 1, -1, 1, -1, 1])))
    judged = judge_ours(printed(0.5), runs.mean(0), runs, author_runs)
    assert judged.verdict == CANNOT_TELL
    n_needed = int(judged.settles.split()[1])
    for n_runs, verdict in [(n_needed, "reproduced"), (n_needed - 1, CANNOT_TELL)]:
        deviations = np.resize([-1.0, 1.0], n_runs) - np.resize([-1.0, 1.0], n_runs).mean()
        scatter = runs.std(ddof=1) / deviations.std(ddof=1)
        more = column(*(0.5 + scatter * deviations))
        assert judge_ours(printed(0.5), more.mean(0), more, author_runs).verdict == verdict


def test_no_number_of_runs_settles_what_the_authors_runs_leave_open():
    author_runs = column(*(0.5 + 0.4 * np.array([-1, 1, -0.5, 0.5, 0, 0])))
    runs = column(*(0.5 + 0.01 * np.array([-1, 1, -0.5, 0.5, 0, 0])))
    width = scipy.stats.t.ppf(0.975, 5) * author_runs.std(ddof=1) / math.sqrt(6)
    expected = f"never: the scatter of the author's 6 runs leaves ±{width:.2g}"
    assert judge_ours(printed(0.5), runs.mean(0), runs, author_runs).settles == expected


def test_counts_are_judged_by_fishers_exact_test():
    claim = printed(1, "count", range=6, unit=1)
    for ours_count, verdict in [(Count(6, 6), CANNOT_TELL), (Count(12, 12), "differs")]:
        judged = judge_count(claim, ours_count, Count(2, 6))
        assert judged.verdict == verdict
    settles = judge_count(claim, Count(6, 6), Count(2, 6)).settles
    assert settles == "with 7 of our runs, if their share stays as it is"
    assert judge_count(claim, Count(7, 7), Count(2, 6)).verdict == "differs"
    assert judge_count(claim, Count(2, 6), Count(2, 6)).verdict == CANNOT_TELL
    count = Count(1000, 6000)
    judged = judge_count(claim, count, count)
    assert (judged.verdict, judged.tolerance) == ("reproduced", pytest.approx(0.1 * 6 + 0.5))
