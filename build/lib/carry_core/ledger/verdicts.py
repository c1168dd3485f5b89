"""Whether a number agrees with the printed one: the rules that `data/claims.yml` names, and when none can decide.

From the author's weights, which gave the printed numbers, only two things lie between: rounding, and the noise of
the sums that the paper drew. From ours, which are other runs, there is the scatter between runs: the 95% interval of
the difference to the author's runs (Welch; a prediction interval where the paper's number is one run's), plus the
rounding. Where that is wider than a quarter of the quantity's range, nothing is decided.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt

import numpy as np
import scipy.stats
from numpy.typing import NDArray

VERDICTS = ("differs", "undecided", "not run", "reproduced")  # what a reader should look at first comes first
RULES = {
    "exact": "nothing but rounding lies between, whatever the weights",
    "fixed": "author: rounding alone, since nothing is drawn; ours: the interval between runs",
    "drawn": "author: rounding and three standard errors of the shares counted on 20,000 sums; ours: the interval",
    "selected": "author: rounding and three times the scatter of ten draws of neurons; ours: the interval",
    "unnamed": "one run that the paper does not name, so for both: the prediction interval from the runs at hand",
    "spread": "a standard deviation over runs, uncertain by itself over the root of 2 (n - 1)",
    "every": "a finding: reproduced if every run shows it, differs if at most half do; of ours, three runs are needed",
    "most": "a finding: reproduced if more than half of the runs show it, else differs; of ours, three runs are needed",
    "some": "a finding: reproduced if a run shows it, differs if none of as many runs as the paper had does",
}
FINDING_RULES = ("every", "most", "some")
STANDARD_ERRORS = 3  # a hundred cells and more are judged: two would let five in a hundred differ by chance
WIDEST = 0.25  # of the quantity's range, as the width of the whole interval
PAPER_RUNS = 6  # behind a mean of the paper
ENOUGH = 3  # runs of ours that can say what every run does, or most; one is enough where the paper had one
APART = 1 / 3  # of the range: an empty gap between runs from which they are said to disagree
EPSILON = 1e-6  # float32 shares
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Printed:
    """A printed number: its value or values, its last digit, its range, and whether it is one run's."""

    value: Array
    unit: float | int
    range: float | int = 1.0
    single: bool = False


@dataclass(frozen=True)
class Judgement:
    """A verdict, the distance that it allows (None where nothing says how far is far), and how it was found."""

    verdict: str
    tolerance: float | None
    detail: str = ""


def judge_author(
    rule: str, printed: Printed, value: Array, noise: float | int, n_runs: int, runs: Array | None = None
) -> Judgement:
    """A value from the author's weights.

    Args:
        rule: one of `RULES`.
        printed: what the paper has.
        value: what its weights give.
        noise: standard deviation that the paper's own draw adds to it.
        n_runs: how many runs there are; 0 if the number needs none.
        runs: `[run, entry]`; only where the paper does not name its run.
    """
    if rule == "unnamed" and runs is not None:
        return judge_ours(rule, replace(printed, single=True), value, runs, None)
    tolerance = printed.unit / 2 + (STANDARD_ERRORS * noise if rule in ("drawn", "selected") else 0.0)
    if rule != "exact" and not printed.single and n_runs < PAPER_RUNS:
        return Judgement("undecided", tolerance, f"{n_runs} of the paper's {PAPER_RUNS} runs at hand.")
    return Judgement(_compare(printed, value, tolerance), tolerance)


def judge_ours(
    rule: str, printed: Printed, value: Array, runs: Array, theirs: Array | None, n_runs: int = PAPER_RUNS
) -> Judgement:
    """A value from runs of our own.

    Args:
        rule: one of `RULES`.
        printed: what the paper has.
        value: what stands for our runs.
        runs: `[run, entry]`.
        theirs: the same from the author's runs, None if these are not known.
        n_runs: how many runs a standard deviation over them has.
    """
    if not np.isfinite(value).all():
        return Judgement("undecided", None, "It is not a number.")
    rounding = printed.unit / 2
    if rule == "exact":
        return Judgement(_compare(printed, value, rounding), rounding)
    if rule == "spread":
        width = 1.96 * float(np.abs(value).max()) * sqrt(sum(1 / (2 * (n - 1)) for n in (n_runs, PAPER_RUNS)))
        how = f"A standard deviation of n runs is known to 1 / sqrt(2 (n - 1)) of itself: ours are {n_runs}."
    else:
        found, how = _interval(runs, theirs, single=printed.single)
        if found is None:
            return Judgement("undecided", None, how)
        width = found
    tolerance = width + rounding
    if 2 * tolerance > WIDEST * printed.range:
        outside = _compare(printed, value, tolerance) == "differs"
        more = " The difference lies outside of it all the same." if outside else ""
        return Judgement("undecided", tolerance, f"{how} It is wider than a quarter of the range.{more}")
    return Judgement(_compare(printed, value, tolerance), tolerance, how)


def _compare(printed: Printed, value: Array, tolerance: float) -> str:
    near = value.shape == printed.value.shape and bool(
        (np.abs(value - printed.value) <= tolerance + EPSILON * np.maximum(1.0, np.abs(printed.value))).all()
    )
    return "reproduced" if near else "differs"


def _interval(runs: Array, theirs: Array | None, *, single: bool) -> tuple[float | None, str]:
    """Half the width of the 95% interval of the difference, the widest entry's; None if nothing says how runs scatter.

    Standard deviations have n - 1. A side that does not scatter adds nothing, and if neither does, nothing is added.
    """
    n, known = len(runs), theirs is not None and len(theirs) > 1 and not single
    if known and n > 1:
        assert theirs is not None
        ours_, theirs_ = runs.var(0, ddof=1) / n, theirs.var(0, ddof=1) / len(theirs)
        total = ours_ + theirs_
        weight = ours_**2 / (n - 1) + theirs_**2 / (len(theirs) - 1)
        freedom = np.divide(total**2, weight, out=np.full_like(total, np.inf), where=weight > 0)
        width = scipy.stats.t.ppf(0.975, freedom) * np.sqrt(total)
        return float(width.max()), f"Welch interval of the difference to the author's {len(theirs)} runs."
    if n > 1:
        others = 1 if single else PAPER_RUNS
        width = scipy.stats.t.ppf(0.975, n - 1) * runs.std(0, ddof=1) * sqrt(1 / n + 1 / others)
        why = "the paper's number is one run's" if single else "the author's runs are not at hand"
        return float(width.max()), f"Prediction interval from the scatter of {n} runs: {why}."
    if known:
        assert theirs is not None
        width = scipy.stats.t.ppf(0.975, len(theirs) - 1) * theirs.std(0, ddof=1) * sqrt(1 + 1 / len(theirs))
        if not width.all():
            return None, "One run of ours, and the author's do not scatter: nothing says how far runs lie apart."
        return float(width.max()), f"Prediction interval for our one run from the author's {len(theirs)}."
    return None, "One run of ours and one of the paper's: nothing says how far runs lie apart."


def judge_finding(rule: str, shows: Sequence[bool], enough: int = 1) -> Judgement:
    """A finding, from whether each run shows it; `enough` runs can say what every run does, or most."""
    count, n = sum(shows), len(shows)
    detail = f"{count} of {n} runs show it."
    if rule == "some":  # fewer runs than the paper's cannot show that none of so many would
        return Judgement("reproduced" if count else "differs" if n >= PAPER_RUNS else "undecided", None, detail)
    if n < enough:
        return Judgement("undecided", None, f"{detail} That is fewer than the {enough} that it takes.")
    if 2 * count <= n:
        return Judgement("differs", None, detail)
    return Judgement("reproduced" if rule == "most" or count == n else "undecided", None, detail)


def disagreement(runs: Sequence[float | int], range_: float | int = 1.0) -> str:
    """A sentence if the runs fall into two groups with more than a third of the range between them, else nothing."""
    ordered = sorted(runs)
    gaps = [high - low for low, high in pairwise(ordered)]
    if not gaps or max(gaps) <= APART * range_:
        return ""
    split = gaps.index(max(gaps)) + 1
    sides = ordered[:split], ordered[split:]
    low, high = (f"{len(x)} at {x[0]:.3g}" + (f" to {x[-1]:.3g}" if x[0] < x[-1] else "") for x in sides)
    return f"The runs disagree (bimodal): {low}, {high}; no run need be near the mean."
