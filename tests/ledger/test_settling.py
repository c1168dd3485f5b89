"""Intervals and run counts, against scipy on drawn runs and against intervals by inversion."""

from math import sqrt

import numpy as np
import pytest
import scipy.stats

from carry_paper.ledger.settling import (
    Scatter,
    clopper_pearson,
    floor_of_mean,
    half_width,
    runs_that_settle,
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
    ours, theirs = generator.normal(0, 0.3, 9), generator.normal(0, 0.1, 6)
    interval = scipy.stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    scatters = Scatter(ours.std(ddof=1), 9), Scatter(theirs.std(ddof=1), 6)
    assert half_width(*scatters) == pytest.approx((interval.high - interval.low) / 2)
    assert half_width(Scatter(0.0, 9), Scatter(0.0, 6)) == 0


def test_as_many_runs_settle_as_make_the_interval_narrow_enough():
    ours, theirs = Scatter(0.3, 6), Scatter(0.05, 6)
    n_runs = runs_that_settle(ours, theirs, tolerance=0.1)
    assert 6 < n_runs < 1000
    assert half_width(Scatter(0.3, n_runs), theirs) <= 0.1
    assert half_width(Scatter(0.3, n_runs - 1), theirs) > 0.1


def test_no_number_of_runs_settles_what_the_authors_leave_open():
    theirs = Scatter(0.2, 6)
    floor = floor_of_mean(theirs)
    assert floor == pytest.approx(2.5706 * 0.2 / sqrt(6), rel=1e-3)
    ours = Scatter(0.1, 6)
    assert runs_that_settle(ours, theirs, tolerance=0.99 * floor) is None
    assert runs_that_settle(ours, theirs, tolerance=1.2 * floor) is not None
