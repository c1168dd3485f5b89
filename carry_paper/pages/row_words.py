"""Words for rows of the ledger: values, verdicts with their meaning, and what would settle them.

A number is written in one of three ways: what is compared with a printed number has that one's
decimals (`number`), what was measured beside it has three (`ledger.report.text`), and a distance or
the end of an interval has two digits (`in_short`).
"""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from math import floor, log10
from statistics import median
from typing import Any

import numpy as np

from carry_paper.ledger.claims import Claim, claims
from carry_paper.ledger.report import percents
from carry_paper.ledger.results import Row, gathered
from carry_paper.ledger.verdicts import (
    CANNOT_TELL,
    EQUIVALENT,
    NO_VERDICT,
    NOT_RUN,
    place_among,
)
from carry_paper.pages.minus import minus_signs
from carry_train import groups

SMALLEST_IN_DECIMALS = 1e-4  # a smaller number has an exponent
ACCURACY_RANGE = 1.0  # that of a quantity in claims.yml, unless it names another
NEVER = "never"  # how `settles` begins where nothing settles a row
OUR_RUNS = re.compile(r"with (\d+) of our runs")
SENTENCE_END = re.compile(r"(?<=\.)\s+(?=[A-Z])")
QUANTITIES = {
    "all": "all runs",
    "most": "most runs",
    "some": "some runs",
    "one": "one run",
    "none": "no run",
    "open": "groups",
    "range": "settings",
}

# The meaning of each verdict on a number and on a finding; "" where it has none.
MEANINGS = {
    "reproduced": (
        "The author's weights: equal up to rounding and the noise of random sums. Ours: the"
        f" 95% interval of the difference lies within {EQUIVALENT:.0%} of the quantity's range.",
        "As many runs show it as the paper says: all; two thirds for “most”; one for “some”.",
    ),
    "mostly": ("", "The paper says it of all runs; two thirds or more show it, but not all."),
    "mixed": ("", "Between a third and two thirds of the runs show it."),
    CANNOT_TELL: (
        "The interval is too wide: its half-width is beside the verdict, and the row says what"
        " would settle it, if anything can.",
        "There are too few runs, or no run can say; or the paper says “some”, and none of ours"
        " shows it, which six runs cannot contradict; or few of ours show it, and too few runs"
        " tell them from the author's.",
    ),
    "differs": (
        "The interval excludes zero by more than rounding and, in a table, the whole table is told"
        " apart from the author's.",
        "At most a third of the runs show it; if the paper says “some”, none of the author's six."
        " Ours, if his do not show it either, or if Fisher's exact test tells them apart.",
    ),
    NO_VERDICT: (
        "The paper gives one run's number: it is judged on the author's run, and ours show where it"
        " lies among six. Or the text leaves open what the number is of.",
        "The paper says it of one of the author's runs, which is judged; ours show how general it"
        " is.",
    ),
    NOT_RUN: ("The row says what it waits for.", "The row says what it waits for."),
}

# The same of rows beyond the paper, which speak for the book.
MEANINGS_BEYOND = {
    "reproduced": "As many runs show it as the row asks for: all, or for “most” two thirds.",
    "mostly": "The row asks it of all runs; two thirds or more show it, but not all.",
    "mixed": MEANINGS["mixed"][1],
    CANNOT_TELL: (
        "There are too few runs, no run can say, or it is of groups for which no rule is fixed yet."
    ),
    "differs": "At most a third of the runs show it. The paper does not say that they do.",
    NO_VERDICT: "It is shown, and not judged.",
    NOT_RUN: MEANINGS[NOT_RUN][1],
}


def meaning(row: Row) -> str:
    """Return the meaning of a row's verdict, in a sentence."""
    if claims()[row.id].beyond:
        return MEANINGS_BEYOND[row.verdict]
    of_number, of_finding = MEANINGS[row.verdict]
    return of_finding if row.paper is None else of_number


def number(value: Any, claim: Claim) -> str:
    """Return a value with as many decimals as the paper's number has; a dash for None.

    Heads are `layer:head`.
    """
    if isinstance(value, list):
        heads = all(isinstance(x, int) for x in value)
        return (":" if heads else ", ").join(number(x, claim) for x in value)
    if value is None:
        return "–"
    places = _decimals(claim.unit)
    rounded = round(value, places) + 0.0  # no -0.00
    return minus_signs(f"{rounded:,.{places if isinstance(value, float) else 0}f}")


def _decimals(unit: float | int) -> int:
    """Return the number of decimals of the last printed digit: 2 for 0.05, 0 for 10."""
    exponent = Decimal(str(unit)).normalize().as_tuple().exponent
    assert isinstance(exponent, int), "a unit is finite"
    return max(0, -exponent)


def in_short(value: float | int, digits: int = 2) -> str:
    """Return a distance, such as `±0.43` or the end of an interval, with two digits.

    A number of more digits keeps them: `104`, and not `1e+02`.
    """
    if abs(value) < SMALLEST_IN_DECIMALS:
        return minus_signs(f"{value:.{digits}g}")
    places = max(0, digits - 1 - floor(log10(abs(value))))
    written = f"{value:,.{places}f}"
    if places:
        written = written.rstrip("0").rstrip(".")
    return minus_signs(written)


def half_widths(rows: Sequence[Row]) -> str:
    """Return the median half-width of rows of which we can't tell: ` · ±0.43`; "" if none has.

    Two runs of an accuracy can leave an interval that is wider than the scale from 0 to 1: then it
    is ` · ±1 or more`.
    """
    widths = [row.half_width for row in rows if row.half_width is not None]
    if not widths:
        return ""
    width = median(widths)
    is_accuracy = all(claims()[row.id].range == ACCURACY_RANGE for row in rows)
    if is_accuracy and width > ACCURACY_RANGE:
        return f" · ±{in_short(ACCURACY_RANGE)} or more"
    return f" · ±{in_short(width)}"


def place_among_ours(rows: Sequence[Row], source: str) -> str:
    """Return where the paper's numbers of one run lie among our runs; "" if they are none such.

    Of a table it is how many cells' numbers lie within our runs.
    """
    by_id = claims()
    unjudged = [row for row in rows if row.paper is not None and row.runs and by_id[row.id].single]
    if source != "ours" or not unjudged or unjudged[0].verdict != NO_VERDICT:
        return ""
    if len(unjudged) == 1:
        return place_among(by_id[unjudged[0].id], np.array(unjudged[0].runs, dtype=float))
    n_outside = 0
    for row in unjudged:
        place = place_among(by_id[row.id], np.array(row.runs, dtype=float))
        n_outside += "below all" in place or "above all" in place
    n_within = len(unjudged) - n_outside
    return f"The printed value lies within our runs in {n_within} of {len(unjudged)} cells."


def what_settles(rows: Sequence[Row]) -> str:
    """Return what would settle rows of which we can't tell: `To settle it: with 24 of our runs`."""
    pronoun = "it" if len(rows) == 1 else "them"
    never = [row for row in rows if row.settles.startswith(NEVER)]
    if len(never) == len(rows):
        return f"Nothing would settle {pronoun}: {_without_never(never[0])}"
    if len(rows) == 1:
        return f"To settle it: {rows[0].settles}"
    parts = []
    if never:
        parts.append(f"{_cells(len(never))}: nothing would, since {_without_never(never[0])}")
    numbers = []
    others: dict[str, int] = {}
    for row in rows:
        match = OUR_RUNS.search(row.settles)
        if match:
            numbers.append(int(match.group(1)))
        elif row not in never:
            others[row.settles] = others.get(row.settles, 0) + 1
    if numbers:
        low, high = min(numbers), max(numbers)
        range_ = str(high) if low == high else f"{low} to {high}"
        parts.append(f"{_cells(len(numbers))}: with {range_} of our runs")
    for settles, count in others.items():
        parts.append(f"{_cells(count)}: {settles}")
    return f"To settle {'; '.join(parts)}"


def _without_never(row: Row) -> str:
    """Return why nothing settles a row: `one run leaves ±0.6`."""
    return row.settles.removeprefix(NEVER).removeprefix(": ")


def _cells(count: int) -> str:
    """Return a number of cells in words."""
    return "1 cell" if count == 1 else f"{count} cells"


def at_bars(row: Row) -> list[str]:
    """Return the verdicts of a row at other bars in words: `mixed at share 0.9`."""
    return [
        f"{verdict} at {bar.replace('=', ' ').replace('_', ' ')}"
        for bar, verdict in row.sensitivity.items()
    ]


def rule_here(rows: Sequence[Row], source: str) -> str:
    """Return the rule by which a source's rows got their verdict, as sentences.

    For numbers it has the distance that was allowed and, for ours, the interval of the difference.
    """
    row = rows[0]
    sentences = []
    if row.reason:
        sentences.append(f"{row.reason[:1].upper()}{row.reason[1:]}.")
    if row.shown_by_group:
        sentences.append(row.shown_by_group)
    tolerances = [row.tolerance for row in rows if row.tolerance is not None]
    if tolerances:
        words = f"Allowed here: ±{in_short(min(tolerances))}"
        if in_short(max(tolerances)) != in_short(min(tolerances)):
            words += f" to ±{in_short(max(tolerances))}"
        sentences.append(f"{words}.")
    if len(rows) == 1 and source == "ours" and row.interval is not None:
        low, high = row.interval[0]
        if row.paper is None:
            sentences.append(f"95% interval of the share of runs: {percents((low, high))}.")
        else:
            ends = f"{in_short(low)} to {in_short(high)}"
            sentences.append(f"95% interval of the difference: {ends}.")
    return " ".join(sentences)


def difference(row: Row) -> str:
    """Return the difference of a row from the paper in words; "" if it was not run."""
    if row.shown:
        without = [
            key for key, shows in zip(row.keys, row.fields["shows"], strict=True) if shows is False
        ]
        if not without:
            return ""
        if len(without) == len(row.keys):
            return "in no run"
        return f"not in {of_groups(without)}"
    if row.value is None or isinstance(row.value, list):
        return ""
    claim = claims()[row.id]
    paper = number(claim.paper, claim)
    ours = number(row.value, claim)
    return f"{ours} against {paper} in the paper" if paper != ours else ""


def not_run(rows: Iterable[Row]) -> str:
    """Return the reason why rows were not run, without commands; "" if all were run."""
    reasons: list[str] = []
    for row in rows:
        reason = row.detail.partition(": `")[0].rstrip(".")
        if row.value is None and reason not in reasons:
            reasons.append(reason)
    if not reasons:
        return ""
    first = reasons[0][:1].lower() + reasons[0][1:]
    return f"{first}; the ledger has the other reasons" if len(reasons) > 1 else first


def of_groups(keys: Sequence[str]) -> str:
    """Return the names of runs in words: `runs 3 and 4`.

    The keys of a row about several groups name them; then it is `run 3 of …`.
    """
    words = []
    for group, group_keys in gathered(keys, lambda key: key.rpartition(" ")[0]).items():
        *earlier, last = (key.rpartition(" ")[2] for key in group_keys)
        text = f"runs {', '.join(earlier)} and {last}" if earlier else f"run {last}"
        if group in groups.GROUPS:
            text += f" of {group}"
        elif group:
            text += f" of the {group} group"
        words.append(text)
    return "; ".join(words)


def first_sentence(text: str) -> tuple[str, str]:
    """Return the first sentence of a text, and the rest."""
    first, *rest = SENTENCE_END.split(text, maxsplit=1)
    return first, "".join(rest)
