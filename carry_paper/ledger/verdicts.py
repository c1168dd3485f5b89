"""The rules that `data/claims.yml` names, which give numbers and findings their verdicts.

A number from the author's weights, which produced the printed ones, may be off for two reasons
only: rounding, and the noise of the random sums that the paper used. A number from our weights,
which are other runs, is compared with the author's runs by equivalence: the 95% interval of the
difference must lie within a tenth of the quantity's range, so that a real difference would have
been seen. A cell of a table differs only if the whole table is told apart from the author's. A
finding is judged by how many runs show it, and how many should by the paper's words. Where neither
holds, the verdict is that we can't tell, with what would settle it. A number that the paper gives
of one run, and a finding that it states of one, is judged on the author's runs; ours are shown
beside it, and not judged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from carry_paper.ledger import intervals
from carry_paper.ledger.claims import QUANTIFIERS, RULES, Claim
from carry_paper.ledger.exchangeability import FEWEST_RUNS, SIGNIFICANT, TableTest
from carry_paper.ledger.intervals import Array

CANNOT_TELL = "can't tell"
NO_VERDICT = "no verdict"  # on our runs, where the paper speaks of one run of the author's
NOT_JUDGED = "shown"  # the rule of a number that is judged on no source's runs
NOT_RUN = "not run"
# The worst come first.
VERDICTS = ("differs", "mixed", CANNOT_TELL, "mostly", NO_VERDICT, NOT_RUN, "reproduced")
TO_EXPLAIN = ("differs", "mixed", "mostly")  # rows with these verdicts have to say why
# More than a hundred cells are judged: with two standard errors, five in a hundred would differ by
# chance.
STANDARD_ERRORS = 3
EQUIVALENT = 0.1  # share of a quantity's range; smaller differences do not count
PAPER_RUNS = 6  # runs behind a mean of the paper
OPEN = "open"  # the quantifier of a part of a sentence about groups, which is judged as a whole
RANGE = "range"  # the quantifier of that sentence, which is judged by settings
ENOUGH = 3  # runs that a finding needs, unless the paper states it of a single run
# What is asked of a finding of the paper about several runs, beside its quantifier.
OF_OURS = (
    "ours differ only if the author's do, or if Fisher's exact test tells them apart; "
    "several groups are judged by the one that shows it least"
)
EPSILON = 1e-6  # rounding of shares in float32


@dataclass(frozen=True)
class Judgement:
    """A verdict, and how it was reached.

    Its parts are those of a `Row`; the interval is [entry, (low, high)].
    """

    verdict: str
    tolerance: float | None
    detail: str = ""
    interval: Array | None = None
    settles: str = ""


def rule_text(claim: Claim) -> str:
    """State the rule of a claim: its name and sentence, and the runs that it is about."""
    name = claim.rule or claim.quantifier
    of_one_run = " (of one run)" if claim.single else ""
    by_protocol = " (on runs by the paper's protocol)" if claim.recipe_sensitive else ""
    text = f"{name}{of_one_run}{by_protocol}: {(RULES | QUANTIFIERS)[name]}"
    return f"{text}; {OF_OURS}" if claim.finding and name in BANDS and not claim.single else text


def as_array(value: Any) -> Array:
    """Return a number, or several, as an array of one dimension."""
    return np.atleast_1d(np.asarray(value, dtype=np.float64))


def _compare(claim: Claim, value: Array, tolerance: float) -> str:
    """Return `reproduced` if each entry is within the tolerance, else `differs`."""
    paper = as_array(claim.paper)
    allowed = tolerance + EPSILON * np.maximum(1.0, np.abs(paper))
    is_near = value.shape == paper.shape and bool((np.abs(value - paper) <= allowed).all())
    return "reproduced" if is_near else "differs"


# ---- numbers from the author's weights


def judge_author(
    claim: Claim, value: Array, noise: float | int, n_runs: int, runs: Array | None = None
) -> Judgement:
    """Judge the value that stands for the author's runs.

    The `noise` is the standard deviation that the paper's own random sums add to it. The `runs` are
    their values, [run, entry], which are only needed if the paper names no run.
    """
    if claim.rule == NOT_JUDGED:
        return Judgement(NO_VERDICT, None)
    if claim.rule == "unnamed" and runs is not None:
        judgement = _equivalence(claim, value, runs, runs[:0], n_runs)
        if judgement.verdict == CANNOT_TELL:
            judgement = replace(judgement, settles="the weights of that run, which is not released")
        return judgement
    tolerance = claim.unit / 2
    if claim.rule in ("drawn", "selected"):
        tolerance += STANDARD_ERRORS * noise
    if claim.rule != "exact" and not claim.single and n_runs < PAPER_RUNS:
        return Judgement(
            CANNOT_TELL,
            tolerance,
            detail=f"Only {n_runs} of the paper's {PAPER_RUNS} runs were released.",
            settles="the author's other runs, which were not released",
        )
    return Judgement(_compare(claim, value, tolerance), tolerance)


# ---- numbers from our weights


class Comparison(NamedTuple):
    """Our runs and the author's, as a number compares them."""

    words: str  # what the interval is of
    interval: Array | None = None  # [entry, (low, high)]; None if unknown
    # The half-width of the widest entry, if there were so many of our runs.
    half_width_of: Callable[[int], float] = lambda n_runs: inf
    floor_words: str = ""  # what scatters, however many we run


def judge_ours(
    claim: Claim,
    value: Array,
    runs: Array,
    theirs: Array,
    n_runs: int = PAPER_RUNS,
    table: TableTest | None = None,
) -> Judgement:
    """Judge a value from our runs by equivalence to the author's.

    Args:
        claim: The printed number.
        value: What stands for our runs.
        runs: The value of each of our runs, [run, entry].
        theirs: That of each of the author's, as far as they were released.
        n_runs: The number of runs behind a standard deviation.
        table: The comparison of the whole table, if the number is a cell of one.
    """
    if claim.rule == NOT_JUDGED:
        return Judgement(NO_VERDICT, None)
    if claim.rule == "exact":
        rounding = claim.unit / 2
        return Judgement(_compare(claim, value, rounding), rounding)
    if claim.single:
        return Judgement(NO_VERDICT, None, place_among(claim, runs[:, 0]))
    return _equivalence(claim, value, runs, theirs, n_runs, table)


def place_among(claim: Claim, runs: Array) -> str:
    """Return the place of a printed number of one run among our runs, in a sentence.

    Runs that would be printed as it is count as equal.
    """
    paper = float(as_array(claim.paper)[0])
    near = claim.unit / 2 + EPSILON * max(1.0, abs(paper))
    n_below = int((runs < paper - near).sum())
    n_above = int((runs > paper + near).sum())
    n_equal = len(runs) - n_below - n_above
    if len(runs) == 1:
        place = "above" if n_below else "below" if n_above else "equal to"
        return f"The printed value, of one run, is {place} that of our one run."
    if n_below == len(runs):
        place = f"lies above all {len(runs)} of ours"
    elif n_above == len(runs):
        place = f"lies below all {len(runs)} of ours"
    elif n_equal == len(runs):
        place = f"is that of all {len(runs)} of ours"
    else:
        place = f"lies within our {len(runs)}: {n_below} below it, {n_above} above"
        if n_equal:
            place += f", {n_equal} equal as printed"
    return f"The printed value, of one run, {place}."


def _equivalence(
    claim: Claim,
    value: Array,
    runs: Array,
    theirs: Array,
    n_runs: int,
    table: TableTest | None = None,
) -> Judgement:
    """Judge a value by the interval of its difference; arguments are as in `judge_ours`."""
    rounding = claim.unit / 2
    tolerance = EQUIVALENT * claim.range + rounding
    comparison = _comparison(claim, value, runs, theirs, n_runs)
    interval = comparison.interval
    if interval is None or not np.isfinite(interval).all():
        distance = ", ".join(f"{x:.3g}" for x in value - as_array(claim.paper))
        detail = f"It differs from the paper by {distance}; {comparison.words}."
        return Judgement(CANNOT_TELL, None, detail, settles=f"with {ENOUGH} of our runs")

    low, high = interval.T
    ends = "; ".join(f"{a:.3g} to {b:.3g}" for a, b in interval)
    detail = f"95% interval of the difference, {comparison.words}: {ends}."
    if (np.maximum(-low, high) <= tolerance + EPSILON).all():
        return Judgement("reproduced", tolerance, detail, interval)
    excludes_zero = bool((np.maximum(low, -high) > rounding + EPSILON).any())
    if excludes_zero and (table is None or table.told_apart):
        return Judgement("differs", tolerance, detail, interval)
    if excludes_zero and table is not None and table.p is not None:
        settles = f"a table that is told apart as a whole: today p = {table.p:.2g}"
    elif excludes_zero:
        settles = f"with {FEWEST_RUNS} runs on either side, which the table's test takes"
    else:
        settles = _what_narrows(comparison, tolerance, max(len(runs), n_runs))
    return Judgement(CANNOT_TELL, tolerance, detail, interval, settles)


def _what_narrows(comparison: Comparison, tolerance: float, n_runs: int) -> str:
    """Return what would make an interval that includes zero as narrow as the tolerance."""
    half_width_of = comparison.half_width_of
    n_needed = intervals.runs_that_settle(half_width_of, tolerance, n_runs)
    if n_needed is None:
        floor = half_width_of(intervals.MOST_RUNS)
        return f"never: {comparison.floor_words} leaves ±{floor:.2g}"
    if n_needed == n_runs:
        return "more of our runs: the interval is narrow enough, and lies across the tolerance"
    return f"with {n_needed} of our runs"


def _comparison(claim: Claim, value: Array, runs: Array, theirs: Array, n_runs: int) -> Comparison:
    """Return the comparison of our runs with the author's, or with the printed value.

    It is with the author's runs if there are several. Standard deviations have n - 1.
    """
    if claim.rule == "spread":
        return _of_spreads(claim, value, n_runs)
    if len(runs) > 1 and len(theirs) > 1:
        return of_means(runs, theirs)
    if len(runs) > 1:
        return _to_print(claim, value, runs)
    if len(theirs) > 1 and theirs.std(0).all():
        width = intervals.prediction_half_width(theirs.std(0, ddof=1), len(theirs), 1)
        return Comparison(
            f"of one run to the author's {len(theirs)}", _within(value - theirs.mean(0), width)
        )
    return Comparison("nothing says how far runs lie apart")


def _of_spreads(claim: Claim, value: Array, n_runs: int) -> Comparison:
    """Return the comparison of a standard deviation with the printed one, both of normal runs."""
    ours, printed = float(value[0]), float(as_array(claim.paper)[0])

    def ends(n_ours: int) -> tuple[float, float]:
        return intervals.difference_of_spreads(ours, n_ours, printed, PAPER_RUNS)

    def half_width_of(n_ours: int) -> float:
        low, high = ends(n_ours)
        difference = ours - printed
        return max(high - difference, difference - low)

    return Comparison(
        words=f"of two standard deviations, of {n_runs} and {PAPER_RUNS} runs",
        interval=np.array([ends(n_runs)]),
        half_width_of=half_width_of,
        floor_words=f"a standard deviation of the author's {PAPER_RUNS} runs",
    )


def of_means(runs: Array, theirs: Array) -> Comparison:
    """Return the comparison of two means by Welch's interval; the variances need not be equal.

    For runs that are all the same, the interval is the difference itself.
    """
    stds, their_stds = runs.std(0, ddof=1), theirs.std(0, ddof=1)

    def widths(n_ours: int) -> Array:
        return intervals.half_width(stds, n_ours, their_stds, len(theirs))

    return Comparison(
        words=f"Welch's, to the author's {len(theirs)} runs",
        interval=_within(runs.mean(0) - theirs.mean(0), widths(len(runs))),
        half_width_of=lambda n_ours: float(widths(n_ours).max()),
        floor_words=f"the scatter of the author's {len(theirs)} runs",
    )


def _to_print(claim: Claim, value: Array, runs: Array) -> Comparison:
    """Return the comparison with a printed value, of one run or of six, that scatter as these."""
    n_theirs = 1 if claim.single else PAPER_RUNS
    stds = runs.std(0, ddof=1)

    def widths(n_ours: int) -> Array:
        return intervals.prediction_half_width(stds, n_ours, n_theirs)

    return Comparison(
        words=f"to the printed value, from the scatter of {len(runs)} runs",
        interval=_within(value - as_array(claim.paper), widths(len(runs))),
        half_width_of=lambda n_ours: float(widths(n_ours).max()),
        floor_words="one run" if claim.single else f"a mean of {PAPER_RUNS} runs",
    )


def _within(difference: Array, width: Array) -> Array:
    """Return the interval of this half-width around each difference, [entry, (low, high)]."""
    return np.stack([difference - width, difference + width], axis=1)


# ---- counts of runs


class Count(NamedTuple):
    """The number of runs that show a thing, of some runs."""

    n_showing: int
    n_runs: int

    @classmethod
    def of(cls, shows: Sequence[bool | float]) -> "Count":
        """Return the count of runs, each with 1 or True if it shows the thing."""
        return cls(round(sum(shows)), len(shows))

    @property
    def words(self) -> str:
        """The count in words: `4 of 6`."""
        return f"{self.n_showing} of {self.n_runs}"


Counts = Mapping[str, Count]  # of the runs of each group


def judge_count(claim: Claim, ours: Count, theirs: Count) -> Judgement:
    """Judge a count of our runs by Fisher's exact test against the author's count.

    The interval is that of the difference between the two shares, times the paper's six runs.
    """
    p = intervals.fisher(*ours, *theirs)
    detail = _fishers_test(ours, theirs)
    low, high = intervals.difference_of_shares(*ours, *theirs)
    interval = PAPER_RUNS * np.array([[low, high]])
    tolerance = EQUIVALENT * claim.range + claim.unit / 2
    if max(-interval[0, 0], interval[0, 1]) <= tolerance:
        return Judgement("reproduced", tolerance, detail, interval)
    if p <= SIGNIFICANT:
        return Judgement("differs", tolerance, detail, interval)
    return Judgement(CANNOT_TELL, tolerance, detail, interval, _what_settles_counts(ours, theirs))


def _fishers_test(ours: Count, theirs: Count) -> str:
    """Return the test of a count of our runs against one of the author's in a sentence."""
    return (
        f"Fisher's exact test of {ours.words} of our runs against {theirs.words} of the author's:"
        f" p = {intervals.fisher(*ours, *theirs):.2g}."
    )


def _what_settles_counts(ours: Count, theirs: Count) -> str:
    """Return the number of our runs from which the test tells, if their share stays as it is."""
    for n_runs in range(ours.n_runs + 1, intervals.MOST_RUNS // 10):
        count = round(n_runs * ours.n_showing / ours.n_runs)
        if intervals.fisher(count, n_runs, *theirs) <= SIGNIFICANT:
            return f"with {n_runs} of our runs, if their share stays as it is"
    return f"never: {theirs.words} of the author's runs leave too much open"


# ---- findings


class Bands(NamedTuple):
    """Shares of agreeing runs that give a finding's verdict; between the last two it is `mixed`."""

    reproduced: Fraction  # the lowest
    mostly: Fraction  # the lowest
    differs: Fraction  # the highest


ALL, TWO_THIRDS, A_THIRD = Fraction(1), Fraction(2, 3), Fraction(1, 3)
BANDS = {
    "all": Bands(reproduced=ALL, mostly=TWO_THIRDS, differs=A_THIRD),
    "none": Bands(reproduced=ALL, mostly=TWO_THIRDS, differs=A_THIRD),
    "most": Bands(reproduced=TWO_THIRDS, mostly=TWO_THIRDS, differs=A_THIRD),
}


def runs_show(count: int, n: int) -> str:
    """Return the number of runs that show a finding, of those that can tell, in words."""
    if n == 0:
        return "no run can tell"
    if n == 1:
        return f"the one run {'shows' if count else 'does not show'} it"
    return f"{count} of {n} runs show{'s' if count == 1 else ''} it"


def judge_finding(
    claim: Claim, source: str, counts: Counts, theirs: Counts = MappingProxyType({})
) -> Judgement:
    """Judge a finding by how many runs of each group show it.

    One about several groups has the judgement of the group that shows it least, so that no group
    can make up for another; those of fewer than `ENOUGH` runs are left out, if others are there.
    If its quantifier is `OPEN`, the runs of all groups are counted together. Counts are of the runs
    that can say; ours are compared with `theirs`, the author's.
    """
    if claim.quantifier == OPEN or not counts:
        total = Count(
            sum(n.n_showing for n in counts.values()), sum(n.n_runs for n in counts.values())
        )
        return judge_runs(claim.quantifier, total)
    judgements = {}
    for name, count in counts.items():
        judgements[name] = _judge_group(claim, source, count, theirs.get(name))
    if len(counts) == 1:
        return next(iter(judgements.values()))
    large = [name for name, count in counts.items() if count.n_runs >= ENOUGH] or list(counts)
    worst = min(large, key=lambda name: VERDICTS.index(judgements[name].verdict))
    judgement = judgements[worst]
    words = f"In the group that shows it least, {worst}: {runs_show(*counts[worst])}."
    return replace(judgement, detail=f"{words} {judgement.detail}".rstrip(), interval=None)


def _judge_group(claim: Claim, source: str, count: Count, theirs: Count | None) -> Judgement:
    """Judge a finding on the runs of a group.

    Ours differ only if the author's fail it, too, or if Fisher's exact test tells the two counts
    apart.
    """
    judge = partial(judge_runs, claim.quantifier, single=claim.single)
    judgement = judge(count, source=source)
    is_compared = source == "ours" and theirs is not None and not claim.beyond
    if judgement.verdict != "differs" or theirs is None or not is_compared:
        return judgement
    if judge(theirs, source="author").verdict == "differs":
        return judgement
    judgement = replace(judgement, detail=_fishers_test(count, theirs))
    if intervals.fisher(*count, *theirs) <= SIGNIFICANT:
        return judgement
    return replace(judgement, verdict=CANNOT_TELL, settles=_what_settles_counts(count, theirs))


def judge_runs(
    quantifier: str, count: Count, *, single: bool = False, source: str = "author"
) -> Judgement:
    """Judge a finding by one of the `QUANTIFIERS`, given how many runs show it.

    Fewer than three runs can't tell, unless the paper states it of a `single` run: then the
    author's run is judged, and `ours` get no verdict, but show how general it is. "Some runs" is a
    claim about all such runs there could be, so that six of ours, or any number, cannot contradict
    it; the author's six are those that the paper speaks of.
    """
    n_showing, n = count
    if n == 0:
        return Judgement(CANNOT_TELL, None, "No run can say.", settles="with other runs")
    low, high = intervals.clopper_pearson(n_showing, n)
    interval = None if n == 1 else np.array([[low, high]])
    if single and source == "ours":
        detail = "The paper says it of one run of the author's, which is judged."
        return Judgement(NO_VERDICT, None, detail, interval)

    if quantifier == OPEN:
        return Judgement(NO_VERDICT, None)
    settles = ""
    if quantifier in BANDS:
        n_agreeing = n - n_showing if quantifier == "none" else n_showing
        verdict = _band(BANDS[quantifier], Fraction(n_agreeing, n))
    elif n_showing:
        verdict = "reproduced"
    elif source == "author" and n >= PAPER_RUNS:
        verdict = "differs"
    else:
        verdict = CANNOT_TELL
        settles = f"a run that shows it: none of {n} does, so up to {high:.0%} of all such runs may"
    # One or two runs contradict what is said of all; they show neither this nor what most do.
    is_shown_by_few = quantifier != "most" and verdict not in ("reproduced", "mostly")
    if n < ENOUGH and not single and quantifier in BANDS and not is_shown_by_few:
        verdict, settles = CANNOT_TELL, settles or f"with {ENOUGH} runs instead of {n}"
    return Judgement(verdict, None, interval=interval, settles=settles)


def judge_range(count: Count, n_settings: int) -> Judgement:
    """Judge a sentence about a range of settings, by how many hold of those that can tell."""
    n_open = n_settings - count.n_runs
    needed = TWO_THIRDS * n_settings
    detail = f"It holds in {count.n_showing} of {n_settings} settings."
    if count.n_showing == n_settings:
        return Judgement("reproduced", None, detail)
    if count.n_showing >= needed:
        return Judgement("mostly", None, detail)
    if count.n_showing + n_open < needed:
        return Judgement("differs", None, detail)
    return Judgement(CANNOT_TELL, None, detail, settles=f"the {n_open} settings that can't tell")


def _band(bands: Bands, share: Fraction) -> str:
    """Return the verdict of this share of agreeing runs."""
    if share >= bands.reproduced:
        return "reproduced"
    if share >= bands.mostly:
        return "mostly"
    return "differs" if share <= bands.differs else "mixed"
