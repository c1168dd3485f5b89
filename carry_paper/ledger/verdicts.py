"""The rules that `data/claims.yml` names, which give numbers and findings their verdicts.

A number from the author's weights, which produced the printed ones, may be off for two reasons
only: rounding, and the noise of the random sums that the paper used. A number from our weights,
which are other runs, is compared with the author's runs by equivalence: the 95% interval of the
difference must lie within a tenth of the quantity's range, so that a real difference would have
been seen. A finding is judged by how many runs show it, and how many should by the paper's words.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from carry_paper.ledger.claims import QUANTIFIERS, RULES, Claim

VERDICTS = ("differs", "mixed", "compatible", "mostly", "not run", "reproduced")  # worst first
# More than a hundred cells are judged: with two standard errors, five in a hundred would differ by
# chance.
STANDARD_ERRORS = 3
CONFIDENCE = 0.95
EQUIVALENT = 0.1  # share of a quantity's range; smaller differences do not count
PAPER_RUNS = 6  # runs behind a mean of the paper
ENOUGH = 3  # runs that a finding needs, unless the paper states it of a single run
EPSILON = 1e-6  # rounding of shares in float32
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Judgement:
    """A verdict, and how it was reached.

    Attributes:
        verdict: One of `VERDICTS`.
        tolerance: The distance from the paper that the rule allows; None if there is none.
        detail: A sentence on how the verdict was reached.
        interval: The 95% interval of the difference from the author's runs, or from the printed
            value, as [entry, (low, high)].
    """

    verdict: str
    tolerance: float | None
    detail: str = ""
    interval: Array | None = None


def rule_text(claim: Claim) -> str:
    """State the rule of a claim: its name and sentence, and whether the paper speaks of one run."""
    name = claim.rule or claim.quantifier
    of_one_run = " (of one run)" if claim.single else ""
    return f"{name}{of_one_run}: {(RULES | QUANTIFIERS)[name]}"


# ---- numbers


def judge_author(
    claim: Claim, value: Array, noise: float | int, n_runs: int, runs: Array | None = None
) -> Judgement:
    """Judge a value from the author's weights.

    Args:
        claim: The printed number.
        value: The one value that stands for the author's runs.
        noise: The standard deviation that the paper's own random sums add to it.
        n_runs: The number of runs; 0 if the number needs none.
        runs: The value of each run, [run, entry]; only needed if the paper names no run.
    """
    if claim.rule == "unnamed" and runs is not None:
        return judge_ours(replace(claim, single=True), value, runs, runs[:0])
    tolerance = claim.unit / 2
    if claim.rule in ("drawn", "selected"):
        tolerance += STANDARD_ERRORS * noise
    if claim.rule != "exact" and not claim.single and n_runs < PAPER_RUNS:
        detail = f"Only {n_runs} of the paper's {PAPER_RUNS} runs were released."
        return Judgement("compatible", tolerance, detail)
    return Judgement(_compare(claim, value, tolerance), tolerance)


def judge_ours(
    claim: Claim, value: Array, runs: Array, theirs: Array, n_runs: int = PAPER_RUNS
) -> Judgement:
    """Judge a value from our runs by equivalence to the author's.

    Args:
        claim: The printed number.
        value: What stands for our runs.
        runs: The value of each of our runs, [run, entry].
        theirs: The value of each of the author's runs, as far as they were released.
        n_runs: The number of runs behind a standard deviation.
    """
    rounding = claim.unit / 2
    if claim.rule == "exact":
        return Judgement(_compare(claim, value, rounding), rounding)
    tolerance = EQUIVALENT * claim.range + rounding
    basis, interval = _interval(claim, value, runs, theirs, n_runs)
    if interval is None or not np.isfinite(interval).all():
        distance = ", ".join(f"{x:.3g}" for x in value - as_array(claim.paper))
        return Judgement("compatible", None, f"It differs from the paper by {distance}; {basis}.")

    low, high = interval.T
    ends = "; ".join(f"{a:.3g} to {b:.3g}" for a, b in interval)
    detail = f"95% interval of the difference, {basis}: {ends}."
    lies_within = (np.maximum(-low, high) <= tolerance + EPSILON).all()
    excludes_zero = (np.maximum(low, -high) > rounding + EPSILON).any()
    if lies_within:
        verdict = "reproduced"
    elif excludes_zero:
        verdict = "differs"
    else:
        verdict = "compatible"
        smallest = ((high - low) / 2).max() + rounding
        detail += f" It could have detected a difference of {smallest:.2g} or more."
    return Judgement(verdict, tolerance, detail, interval)


def as_array(value: Any) -> Array:
    """Return a number, or several, as an array of one dimension."""
    return np.atleast_1d(np.asarray(value, dtype=np.float64))


def _compare(claim: Claim, value: Array, tolerance: float) -> str:
    """Return `reproduced` if each entry is within the tolerance, else `differs`."""
    paper = as_array(claim.paper)
    allowed = tolerance + EPSILON * np.maximum(1.0, np.abs(paper))
    is_near = value.shape == paper.shape and bool((np.abs(value - paper) <= allowed).all())
    return "reproduced" if is_near else "differs"


def _within(difference: Array, width: Array) -> Array:
    """Return the interval of this half-width around each difference, [entry, (low, high)]."""
    return np.stack([difference - width, difference + width], axis=1)


def _interval(
    claim: Claim, value: Array, runs: Array, theirs: Array, n_runs: int
) -> tuple[str, Array | None]:
    """Return in words what the 95% interval is of, and its ends, [entry, (low, high)].

    It is that of the difference to the author's runs if there are several, else to the printed
    value; None if nothing says how runs scatter. Standard deviations have n - 1.
    """
    n_ours, n_theirs = len(runs), len(theirs)
    if claim.rule == "spread":
        difference = value - as_array(claim.paper)
        variance = 1 / (2 * (n_runs - 1)) + 1 / (2 * (PAPER_RUNS - 1))
        width = 1.96 * np.abs(value) * sqrt(variance)
        return f"of a standard deviation of {n_runs} runs", _within(difference, width)
    if n_ours > 1 and n_theirs > 1:
        return f"Welch's, to the author's {n_theirs} runs", welch(runs, theirs)
    if n_ours > 1:
        difference = value - as_array(claim.paper)
        width = _half_width(runs, 1 if claim.single else PAPER_RUNS)
        basis = f"to the printed value, from the scatter of {n_ours} runs"
        return basis, _within(difference, width)
    if n_theirs > 1 and theirs.std(0).all():
        difference = value - theirs.mean(0)
        basis = f"of one run to the author's {n_theirs}"
        return basis, _within(difference, _half_width(theirs, 1))
    return "nothing says how far runs lie apart", None


def welch(ours: Array, theirs: Array) -> Array:
    """Return Welch's 95% interval of the difference of two means, [entry, (low, high)].

    The variances need not be equal. For runs that are all the same, it is the difference itself.
    """
    difference = ours.mean(0) - theirs.mean(0)
    all_the_same = (ours.std(0) == 0) & (theirs.std(0) == 0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # SciPy warns about cancellation if runs are nearly equal.
        warnings.simplefilter("ignore", RuntimeWarning)
        test = scipy.stats.ttest_ind(ours, theirs, equal_var=False)
        interval = test.confidence_interval(CONFIDENCE)
    ends = [np.where(all_the_same, difference, end) for end in (interval.low, interval.high)]
    return np.stack(ends, axis=1)


def _half_width(runs: Array, n_others: int) -> Array:
    """Return half the width of the 95% interval of the difference of two means.

    One is the mean of `runs`, the other that of `n_others` runs that vary as much.
    """
    quantile = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, len(runs) - 1))
    return quantile * np.asarray(runs.std(0, ddof=1)) * sqrt(1 / len(runs) + 1 / n_others)


# ---- findings


class Bands(NamedTuple):
    """Shares of agreeing runs that give a finding's verdict; between the last two it is `mixed`.

    Attributes:
        reproduced: The lowest share for `reproduced`.
        mostly: The lowest share for `mostly`.
        differs: The highest share for `differs`.
    """

    reproduced: Fraction
    mostly: Fraction
    differs: Fraction


ALL, TWO_THIRDS, A_THIRD = Fraction(1), Fraction(2, 3), Fraction(1, 3)
BANDS = {
    "all": Bands(reproduced=ALL, mostly=TWO_THIRDS, differs=A_THIRD),
    "none": Bands(reproduced=ALL, mostly=TWO_THIRDS, differs=A_THIRD),
    "most": Bands(reproduced=TWO_THIRDS, mostly=TWO_THIRDS, differs=A_THIRD),
}


def runs_show(count: int, n: int) -> str:
    """Return the number of runs that show a finding, in words."""
    if n == 1:
        return f"the one run {'shows' if count else 'does not show'} it"
    return f"{count} of {n} runs show{'s' if count == 1 else ''} it"


def judge_finding(quantifier: str, shows: Sequence[bool], *, single: bool = False) -> Judgement:
    """Judge a finding by one of the `QUANTIFIERS`, given for each run whether it shows the finding.

    Fewer than three runs are `compatible` at best, unless the paper states it of a `single` run.
    """
    count, n = sum(shows), len(shows)
    words = runs_show(count, n)
    detail = f"{words[:1].upper()}{words[1:]}."
    if quantifier in BANDS:
        n_agreeing = n - count if quantifier == "none" else count
        verdict = _band(BANDS[quantifier], Fraction(n_agreeing, n))
    elif count:
        verdict = "reproduced"
    else:
        verdict = "differs" if n >= PAPER_RUNS else "compatible"
    if n < ENOUGH and not single and _takes_more_runs(quantifier, verdict):
        return Judgement("compatible", None, f"{detail} It takes {ENOUGH} to say more.")
    return Judgement(verdict, None, detail)


def _band(bands: Bands, share: Fraction) -> str:
    """Return the verdict of this share of agreeing runs."""
    if share >= bands.reproduced:
        return "reproduced"
    if share >= bands.mostly:
        return "mostly"
    return "differs" if share <= bands.differs else "mixed"


def _takes_more_runs(quantifier: str, verdict: str) -> bool:
    """Return True if one or two runs cannot give this verdict.

    They can contradict what is said of all runs, but not what is said of most.
    """
    if quantifier == "most":
        return verdict != "compatible"
    return verdict in ("reproduced", "mostly")
