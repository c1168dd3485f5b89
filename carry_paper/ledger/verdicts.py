"""Whether a number agrees with the printed one, and whether a finding holds: the rules that `data/claims.yml` names.

A number from the author's weights, which gave the printed ones, may be off by two things only:
rounding, and the noise of the sums that the paper drew. A number from ours, which are other runs,
is compared with his runs by equivalence: the 95% interval of the difference must lie within a tenth
of the quantity's range, so that a real difference would have been seen. A finding is judged by how
many runs show it, and by how many runs the paper says that they do.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from carry_paper.ledger.claims import QUANTIFIERS, RULES, Claim

# what to look at first comes first
VERDICTS = ("differs", "mixed", "compatible", "mostly", "not run", "reproduced")
# a hundred cells and more are judged: two would let five in a hundred differ by chance
STANDARD_ERRORS = 3
CONFIDENCE = 0.95
EQUIVALENT = 0.1  # of the range: smaller differences do not count
PAPER_RUNS = 6  # behind a mean of the paper
ENOUGH = 3  # runs that a finding takes, unless the paper says it of one
EPSILON = 1e-6  # float32 shares
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Judgement:
    """A verdict, the distance that it allows (None where nothing says how far is far), and how it was found.

    `interval` is that of the difference to the author's runs or the printed value, `[entry, (low,
    high)]`.
    """

    verdict: str
    tolerance: float | None
    detail: str = ""
    interval: Array | None = None


def rule_text(claim: Claim) -> str:
    """State the rule that judges a claim: its name, its sentence, and whether the paper speaks of one run."""
    name = claim.rule or claim.quantifier
    of_one_run = " (of one run)" if claim.single else ""
    return f"{name}{of_one_run}: {(RULES | QUANTIFIERS)[name]}"


def judge_author(
    claim: Claim, value: Array, noise: float | int, n_runs: int, runs: Array | None = None
) -> Judgement:
    """A value from the author's weights, which are of `n_runs` runs, 0 if the number needs none.

    `noise` is the standard deviation that the paper's own draw adds to it; `runs`, by `[run,
    entry]`, matter only where the paper does not name its run.
    """
    if claim.rule == "unnamed" and runs is not None:
        return judge_ours(replace(claim, single=True), value, runs, runs[:0])
    tolerance = claim.unit / 2 + (
        STANDARD_ERRORS * noise if claim.rule in ("drawn", "selected") else 0.0
    )
    if claim.rule != "exact" and not claim.single and n_runs < PAPER_RUNS:
        return Judgement(
            "compatible",
            tolerance,
            f"Only {n_runs} of the paper's {PAPER_RUNS} runs were released.",
        )
    return Judgement(_compare(claim, value, tolerance), tolerance)


def judge_ours(
    claim: Claim, value: Array, runs: Array, theirs: Array, n_runs: int = PAPER_RUNS
) -> Judgement:
    """What stands for runs of our own, by `[run, entry]`; `theirs` are the author's, as far as these are known.

    `n_runs` is how many runs a standard deviation over them has.
    """
    rounding = claim.unit / 2
    if claim.rule == "exact":
        return Judgement(_compare(claim, value, rounding), rounding)
    tolerance = EQUIVALENT * claim.range + rounding
    how, interval = _interval(claim, value, runs, theirs, n_runs)
    if interval is None or not np.isfinite(interval).all():
        distance = ", ".join(f"{x:.3g}" for x in value - as_array(claim.paper))
        return Judgement("compatible", None, f"It differs from the paper by {distance}; {how}.")
    low, high = interval.T
    ends = "; ".join(f"{a:.3g} to {b:.3g}" for a, b in interval)
    detail = f"95% interval of the difference, {how}: {ends}."
    if (np.maximum(-low, high) <= tolerance + EPSILON).all():
        verdict = "reproduced"
    elif (np.maximum(low, -high) > rounding + EPSILON).any():
        verdict = "differs"
    else:
        verdict = "compatible"
        detail += f" It could have detected a difference of {((high - low) / 2).max() + rounding:.2g} or more."
    return Judgement(verdict, tolerance, detail, interval)


def as_array(value: Any) -> Array:
    """A number, or several, as an array of one dimension."""
    return np.atleast_1d(np.asarray(value, dtype=np.float64))


def _compare(claim: Claim, value: Array, tolerance: float) -> str:
    paper = as_array(claim.paper)
    allowed = tolerance + EPSILON * np.maximum(1.0, np.abs(paper))
    near = value.shape == paper.shape and bool((np.abs(value - paper) <= allowed).all())
    return "reproduced" if near else "differs"


def _within(difference: Array, width: Array) -> Array:
    return np.stack([difference - width, difference + width], axis=1)


def _interval(
    claim: Claim, value: Array, runs: Array, theirs: Array, n_runs: int
) -> tuple[str, Array | None]:
    """What the 95% interval of the difference is of, and its ends; None if nothing says how runs scatter.

    To the author's runs if there are several, else to the printed value. Standard deviations have n
    - 1.
    """
    n, known = len(runs), len(theirs)
    if claim.rule == "spread":
        width = 1.96 * np.abs(value) * sqrt(sum(1 / (2 * (m - 1)) for m in (n_runs, PAPER_RUNS)))
        return f"of a standard deviation of {n_runs} runs", _within(
            value - as_array(claim.paper), width
        )
    if n > 1 and known > 1:
        return f"Welch's, to the author's {known} runs", welch(runs, theirs)
    if n > 1:
        width = _half_width(runs, 1 if claim.single else PAPER_RUNS)
        return f"to the printed value, from the scatter of {n} runs", _within(
            value - as_array(claim.paper), width
        )
    if known > 1 and theirs.std(0).all():
        return f"of one run to the author's {known}", _within(
            value - theirs.mean(0), _half_width(theirs, 1)
        )
    return "nothing says how far runs lie apart", None


def welch(ours: Array, theirs: Array) -> Array:
    """The 95% interval of the difference of two means, `[entry, (low, high)]`; variances need not be equal (Welch)."""
    difference = ours.mean(0) - theirs.mean(0)
    # of runs that are all the same it is the difference itself
    still = (ours.std(0) == 0) & (theirs.std(0) == 0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # scipy says of nearly equal runs that digits cancel
        warnings.simplefilter("ignore", RuntimeWarning)
        found = scipy.stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(CONFIDENCE)
    return np.stack([np.where(still, difference, end) for end in (found.low, found.high)], axis=1)


def _half_width(runs: Array, others: int) -> Array:
    """Of the 95% interval of the difference of a mean of `runs` and one of so many others that scatter as they do."""
    quantile = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, len(runs) - 1))
    return quantile * np.asarray(runs.std(0, ddof=1)) * sqrt(1 / len(runs) + 1 / others)


def runs_show(count: int, n: int) -> str:
    """In words how many of the runs show a finding."""
    if n == 1:
        return f"the one run {'shows' if count else 'does not show'} it"
    return f"{count} of {n} runs show{'s' if count == 1 else ''} it"


def judge_finding(quantifier: str, shows: Sequence[bool], *, single: bool = False) -> Judgement:
    """A finding with one of the `QUANTIFIERS`, from whether each run shows it.

    If the paper does not say it of a `single` run, fewer than three are `compatible` at best.
    """
    count, n = sum(shows), len(shows)
    told = runs_show(count, n)
    detail = f"{told[:1].upper()}{told[1:]}."
    agreeing = n - count if quantifier == "none" else count
    if quantifier in ("some", "one"):
        verdict = "reproduced" if count else "differs" if n >= PAPER_RUNS else "compatible"
    elif agreeing == n or (quantifier == "most" and 3 * agreeing >= 2 * n):
        verdict = "reproduced"
    else:
        verdict = "mostly" if 3 * agreeing >= 2 * n else "differs" if 3 * agreeing <= n else "mixed"
    decided = (
        ("reproduced", "mostly", "mixed", "differs")
        if quantifier == "most"
        else ("reproduced", "mostly")
    )
    # two runs cannot contradict what is said of most
    if n < ENOUGH and not single and verdict in decided:
        return Judgement("compatible", None, f"{detail} It takes {ENOUGH} to say more.")
    return Judgement(verdict, None, detail)
