"""What a verdict of "can't tell" rests on: intervals of counts, and how many runs would settle a number."""

from bisect import bisect_left
from dataclasses import dataclass
from math import sqrt

import scipy.stats

CONFIDENCE = 0.95
MOST_RUNS = 10_000  # more of our runs are not thought of


def clopper_pearson(count: int, n_runs: int) -> tuple[float, float]:
    """Return the 95% interval (Clopper and Pearson) of the share of runs, of which `count` of `n_runs` show a thing."""
    interval = scipy.stats.binomtest(count, n_runs).proportion_ci(CONFIDENCE, method="exact")
    return float(interval.low), float(interval.high)


@dataclass(frozen=True)
class Scatter:
    """How far apart runs lie, and how many there are.

    Attributes:
        std: Their standard deviation, with n - 1.
        n_runs: How many runs it was measured on; at least two.
    """

    std: float
    n_runs: int

    @property
    def variance_of_mean(self) -> float:
        """The squared standard error of the mean of these runs."""
        return self.std**2 / self.n_runs


def half_width(ours: Scatter, theirs: Scatter) -> float:
    """Return half the width of Welch's 95% interval of the difference between two means."""
    variance = ours.variance_of_mean + theirs.variance_of_mean
    if variance == 0:
        return 0.0
    freedom = variance**2 / (
        ours.variance_of_mean**2 / (ours.n_runs - 1)
        + theirs.variance_of_mean**2 / (theirs.n_runs - 1)
    )
    return float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * sqrt(variance)


def floor_of_mean(theirs: Scatter) -> float:
    """Return the half-width that infinitely many of our runs would leave, beside the author's few."""
    quantile = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, theirs.n_runs - 1))
    return quantile * sqrt(theirs.variance_of_mean)


def runs_that_settle(ours: Scatter, theirs: Scatter, tolerance: float) -> int | None:
    """Return how many of our runs make the half-width at most `tolerance`; None if no number does.

    Further runs are taken to scatter as ours do now, so that the half-width falls with each.
    """

    def is_enough(n_runs: int) -> bool:
        return half_width(Scatter(ours.std, n_runs), theirs) <= tolerance

    counts = range(ours.n_runs, MOST_RUNS + 1)
    first = bisect_left(counts, True, key=is_enough)
    return counts[first] if first < len(counts) else None
