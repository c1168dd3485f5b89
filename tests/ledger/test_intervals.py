"""Intervals and run counts, against scipy on drawn runs and against intervals by inversion."""

from math import comb

import numpy as np
import pytest
import scipy.stats

from carry_paper.ledger.intervals import (
    clopper_pearson,
    difference_of_shares,
    difference_of_spreads,
    fisher,
    half_width,
    prediction_half_width,
)


@pytest.mark.parametrize(("count", "n_runs"), [(0, 6), (4, 6), (6, 6), (21, 58)])
def test_clopper_pearson_inverts_the_exact_tests(count, n_runs):
    low, high = clopper_pearson(count, n_runs)
    if count:
        assert scipy.stats.binom.sf(count - 1, n_runs, low) == pytest.approx(0.025)
    else:
        assert low == 0
    if count < n_runs:
        assert scipy.stats.binom.cdf(count, n_runs, high) == pytest.approx(0.025)
    else:
        assert high == 1


def test_half_width_is_that_of_welchs_interval():
    generator = np.random.default_rng(0)
    ours, author_runs = generator.normal(0, 0.3, 9), generator.normal(0, 0.1, 6)
    interval = scipy.stats.ttest_ind(ours, author_runs, equal_var=False).confidence_interval(0.95)
    stds = np.array([ours.std(ddof=1), 0.0]), np.array([author_runs.std(ddof=1), 0.0])
    widths = half_width(stds[0], 9, stds[1], 6)
    assert widths.tolist() == pytest.approx([(interval.high - interval.low) / 2, 0])


def test_prediction_intervals_by_drawn_runs():
    """The interval between the mean of a few runs and one more holds 95% of such runs."""
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(2000):
        runs = generator.normal(0, 0.3, 6)
        width = prediction_half_width(runs.std(0, ddof=1, keepdims=True), 6, 1)
        inside += abs(generator.normal(0, 0.3) - runs.mean()) <= width[0]
    assert 0.935 <= inside / 2000 <= 0.965


def test_the_interval_of_a_spread_is_that_of_chi_squared():
    """Against a spread of nothing only the own one is open."""
    ends = np.sqrt(5 / scipy.stats.chi2.ppf([0.975, 0.025], 5))
    assert difference_of_spreads(0.3, 6, 0.0, 6) == pytest.approx(tuple(0.3 * ends))
    assert ends == pytest.approx([0.624, 2.453], abs=1e-3)
    low, high = difference_of_spreads(0.2, 6, 0.3, 9)
    assert difference_of_spreads(0.3, 9, 0.2, 6) == pytest.approx((-high, -low))


def test_the_interval_of_two_spreads_holds_by_drawn_runs():
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(2000):
        ours, theirs = generator.normal(0, 0.3, 6), generator.normal(0, 0.2, 6)
        low, high = difference_of_spreads(ours.std(ddof=1), 6, theirs.std(ddof=1), 6)
        inside += low <= 0.1 <= high
    assert 0.94 <= inside / 2000 <= 0.97


def test_fisher_by_counting_tables():
    """The share of ways to deal the showing runs that are no likelier than the one at hand."""
    weights = [comb(6, k) * comb(6, 8 - k) for k in range(2, 7)]
    expected = sum(w for w in weights if w <= comb(6, 6) * comb(6, 2)) / sum(weights)
    assert fisher(6, 6, 2, 6) == pytest.approx(expected)
    assert fisher(6, 6, 2, 6) > 0.05


@pytest.mark.slow
def test_the_interval_of_a_difference_of_shares_holds_it():
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(1000):
        ours, author_count = generator.binomial(6, 0.7), generator.binomial(6, 0.4)
        low, high = difference_of_shares(ours, 6, author_count, 6)
        inside += low <= 0.3 <= high
    assert inside >= 950
    low, high = difference_of_shares(6, 6, 6, 6)
    assert low == -high < 0
