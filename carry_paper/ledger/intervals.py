"""Intervals of counts and of differences, and how many runs would settle what they leave open."""

from bisect import bisect_left
from collections.abc import Callable
from math import comb, sqrt

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[np.float64]

CONFIDENCE = 0.95
MOST_RUNS = 10_000  # no larger number of our runs is considered


def clopper_pearson(count: int, n_runs: int) -> tuple[float, float]:
    """Return the 95% interval, by Clopper and Pearson, of a share that `count` of `n_runs` show."""
    in_a_tail = (1 - CONFIDENCE) / 2
    low, high = 0.0, 1.0
    if count > 0:
        low = float(scipy.special.betaincinv(count, n_runs - count + 1, in_a_tail))
    if count < n_runs:
        high = float(scipy.special.betaincinv(count + 1, n_runs - count, 1 - in_a_tail))
    return low, high


def difference_of_shares(
    count: int, n_runs: int, their_count: int, n_theirs: int
) -> tuple[float, float]:
    """Return the 95% interval of the difference between two shares of runs, ours less theirs.

    It adds the squares of the distances from each share to the ends of its own interval (Newcombe).
    """
    share, low, high = (count / n_runs, *clopper_pearson(count, n_runs))
    their_share, their_low, their_high = (
        their_count / n_theirs,
        *clopper_pearson(their_count, n_theirs),
    )
    difference = share - their_share
    below = sqrt((share - low) ** 2 + (their_high - their_share) ** 2)
    above = sqrt((high - share) ** 2 + (their_share - their_low) ** 2)
    return difference - below, difference + above


def difference_of_spreads(
    std: float, n_runs: int, their_std: float, n_theirs: int
) -> tuple[float, float]:
    """Return the 95% interval of the difference of two standard deviations, ours less theirs.

    Each has the chi-squared interval of normal runs, and they are put together as the shares of
    `difference_of_shares` are (Zou and Donner).
    """
    (low, high), (their_low, their_high) = spread_factors(n_runs), spread_factors(n_theirs)
    below = sqrt((std * (1 - low)) ** 2 + (their_std * (their_high - 1)) ** 2)
    above = sqrt((std * (high - 1)) ** 2 + (their_std * (1 - their_low)) ** 2)
    return std - their_std - below, std - their_std + above


def spread_factors(n_runs: int) -> tuple[float, float]:
    """Return the ends of the 95% interval of a standard deviation of normal runs, over itself.

    They are 0.62 and 2.45 for six runs.
    """
    in_a_tail = (1 - CONFIDENCE) / 2
    freedom = n_runs - 1
    largest, smallest = (
        float(scipy.special.chdtri(freedom, share)) for share in (in_a_tail, 1 - in_a_tail)
    )
    return sqrt(freedom / largest), sqrt(freedom / smallest)


def fisher(count: int, n_runs: int, their_count: int, n_theirs: int) -> float:
    """Return the p-value of Fisher's exact test of two counts of runs.

    It is the share of the ways to spread all that are counted over the runs of both that are no
    more frequent than this one. (`scipy.stats` takes a second to load, and each page is judged.)
    """
    both = count + their_count
    ways = {}
    for k in range(max(0, both - n_theirs), min(n_runs, both) + 1):
        ways[k] = comb(n_runs, k) * comb(n_theirs, both - k)
    as_rare = [number for number in ways.values() if number <= ways[count]]
    return sum(as_rare) / comb(n_runs + n_theirs, both)


def t_quantile(freedom: Array | float | int) -> Array:
    """Return the quantile of Student's t that bounds a 95% interval."""
    return np.asarray(scipy.special.stdtrit(freedom, (1 + CONFIDENCE) / 2))


def half_width(stds: Array, n_runs: int, their_stds: Array, n_theirs: int) -> Array:
    """Return half the widths of Welch's 95% intervals of differences between two means, [entry].

    Standard deviations, `[entry]`, have n - 1.
    """
    ours, theirs = stds**2 / n_runs, their_stds**2 / n_theirs
    with np.errstate(invalid="ignore"):  # runs that are all the same
        freedom = (ours + theirs) ** 2 / (ours**2 / (n_runs - 1) + theirs**2 / (n_theirs - 1))
    return np.nan_to_num(t_quantile(freedom) * np.sqrt(ours + theirs))


def prediction_half_width(stds: Array, n_runs: int, n_others: int) -> Array:
    """Return half the widths of the 95% intervals between our means and those of others, [entry].

    The other runs are taken to scatter as ours do.
    """
    return t_quantile(n_runs - 1) * stds * sqrt(1 / n_runs + 1 / n_others)


def runs_that_settle(
    half_width_of: Callable[[int], float], tolerance: float, n_runs: int
) -> int | None:
    """Return the number of our runs from which the half-width is at most `tolerance`.

    None if no number up to `MOST_RUNS` suffices. `half_width_of` returns the half-width for a
    number of our runs, and falls with it. `n_runs` is the number of runs at hand.
    """
    counts = range(n_runs, MOST_RUNS + 1)
    first = bisect_left(counts, True, key=lambda n: half_width_of(n) <= tolerance)
    return counts[first] if first < len(counts) else None
