"""Words for rows of the ledger: values, verdicts with their meaning, and what would settle them.

A number is written in one of three ways: what is compared with a printed number has that one's
decimals (`number`), what was measured beside it has three (`ledger.report.text`), and a distance or
the end of an interval has two digits (`in_short`).
"""

import re
from collections.abc import Sequence
from math import floor, log10
from statistics import median
from typing import Any

from markupsafe import Markup, escape

from carry_paper.ledger.claims import Claim, claims
from carry_paper.ledger.results import Row, gathered
from carry_paper.ledger.verdicts import (
    CANNOT_TELL,
    EQUIVALENT,
    NO_VERDICT,
    NOT_RUN,
    OPEN,
    TO_EXPLAIN,
)
from carry_paper.pages.minus import minus_signs
from carry_train import groups

SMALLEST_IN_DECIMALS = 1e-4  # a smaller number has an exponent
ACCURACY_RANGE = 1.0  # that of a quantity in claims.yml, unless it names another
NEVER = "never"  # how `settles` begins where nothing settles a row
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

# What would settle a row of which we can't tell, by a part of `settles`; no full stop.
REASONS = {
    NEVER: (
        "We can't tell, and nothing would settle it: the author's runs, or ours, scatter too much"
    ),
    "of our runs": "We can't tell yet: more of our runs would settle it",
    "table": "We can't tell as long as the whole table is not told apart from the author's",
    "": "We can't tell without runs that were not released, or that do not exist yet",
}


def meaning(row: Row) -> str:
    """Return the meaning of a row's verdict, in a sentence."""
    if claims()[row.id].beyond:
        return MEANINGS_BEYOND[row.verdict]
    if row.verdict == NO_VERDICT and claims()[row.id].quantifier == OPEN:
        return "It is a part of a sentence, which another row judges as a whole."
    of_number, of_finding = MEANINGS[row.verdict]
    return of_finding if row.paper is None else of_number


def reason(row: Row) -> str:
    """Return the reason why a row is neither reproduced nor differs, without a full stop.

    It is empty for others. For rows of which we can't tell it is the kind of thing that would
    settle them.
    """
    if row.verdict == NOT_RUN:
        return row.detail.rstrip(".")
    if row.verdict == CANNOT_TELL:
        return next(words for part, words in REASONS.items() if part in row.settles)
    if row.verdict in ("mixed", "mostly", NO_VERDICT) or claims()[row.id].beyond:
        return meaning(row).rstrip(".")
    return ""


def number(value: Any, claim: Claim) -> str:
    """Return a value with as many decimals as the paper's number has; a dash for None.

    Heads are `layer:head`.
    """
    if isinstance(value, list):
        heads = all(isinstance(x, int) for x in value)
        return (":" if heads else ", ").join(number(x, claim) for x in value)
    if value is None:
        return "–"
    last_digit = f"{claim.unit:f}".rstrip("0")  # 0.05 or 10.
    places = len(last_digit.partition(".")[2])
    rounded = round(value, places) + 0.0  # no -0.00
    return minus_signs(f"{rounded:,.{places if isinstance(value, float) else 0}f}")


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


def at_bars(row: Row) -> str:
    """Return the verdicts of a row at other bars in words: `mixed at share 0.9`."""
    parts = [f"{verdict} at {bar}" for bar, verdict in row.sensitivity.items()]
    return ", ".join(parts).replace("=", " ").replace("_", " ")


def without(row: Row) -> str:
    """Return the runs that do not show a finding in words: `not in runs 3 and 4`."""
    shows = row.fields.get("shows", [])
    keys = [key for key, shows_it in zip(row.keys, shows, strict=False) if shows_it is False]
    if not keys or len(shows) == 1:
        return ""
    return "in no run" if len(keys) == len(shows) else f"not in {of_groups(keys)}"


def on_rows(rows: Sequence[Row]) -> list[str]:
    """Return sentences on rows with one verdict: their rule, and how they were judged.

    Of a table's cells it is what would settle them, and the test of the table as a whole. The first
    sentence on why they are not reproduced is said elsewhere (`Line.whys`).
    """
    row = rows[0]
    sentences = [sentence(row.reason)]
    tolerances = [row.tolerance for row in rows if row.tolerance is not None]
    if tolerances:
        ends = dict.fromkeys(in_short(end) for end in (min(tolerances), max(tolerances)))
        sentences.append(f"Allowed here: ±{' to ±'.join(ends)}.")
    if len(rows) == 1:
        sentences += [row.detail, sentence(without(row)), settled_by(row)]
        if row.sensitivity:
            sentences.append(f"The verdict hangs on the bar: {at_bars(row)}.")
    elif row.verdict == CANNOT_TELL:
        for settling, alike in gathered(rows, reason).items():
            sentences.append(f"{len(alike)} of {len(rows)} cells: {settling}.")
        needed = [int(n) for row in rows for n in re.findall(r"(\d+) of our runs", row.settles)]
        if needed:
            fewest_and_most = dict.fromkeys(map(str, (min(needed), max(needed))))
            sentences.append(f"A cell takes {' to '.join(fewest_and_most)} of our runs.")
        if row.table is not None:
            sentences.append(row.table.words)
    for row in rows:
        if row.why is not None:
            first, rest = first_sentence(row.why.text)
            sentences.append(rest if row.verdict in TO_EXPLAIN else f"{first} {rest}")
    return list(filter(None, dict.fromkeys(sentences)))


def settled_by(row: Row) -> str:
    """Return a sentence on what would settle a row of which we can't tell; "" for others."""
    if row.settles.startswith(NEVER):
        return f"Nothing would settle it{row.settles.removeprefix(NEVER)}."
    return row.settles and f"To settle it: {row.settles}."


def sentence(text: str) -> str:
    """Return a text as a sentence; "" for none."""
    return text and f"{text[:1].upper()}{text[1:]}."


def words(plain: str) -> Markup:
    """Return plain text as HTML, with the text between backticks as code, and with minus signs."""
    return Markup(re.sub(r"`([^`]+)`", _code, minus_signs(str(escape(plain)))))


def _code(quoted: re.Match[str]) -> str:
    """Return quoted code as Sphinx writes it, so that it breaks between its words only."""
    parts = re.sub(r"[^ ]+", r'<span class="pre">\g<0></span>', quoted[1])
    return f"<code>{parts}</code>"


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
