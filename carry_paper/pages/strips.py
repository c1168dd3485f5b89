"""Strips: the runs behind a row of the ledger, drawn on the row's own scale beside the paper.

The verdict box and the ledger page have the same ones. A lane is one source's. A number's lane has
a dot for each run, the paper's value as a dashed line, the tolerance as a band around it, and what
is judged as a tick. A finding's has a dot for each run, filled if the run shows it. The lane of a
table has a tick for each cell: how far it lies from the paper's.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from carry_paper.ledger.claims import Claim, claims
from carry_paper.ledger.report import shown_in_words, text
from carry_paper.ledger.results import Row
from carry_paper.pages.minus import minus_signs
from carry_paper.pages.playground import address
from carry_paper.pages.row_words import in_short, without

# All lengths are in px.
LEFT = 6
WIDTH = 138  # from the lowest value to the highest
HEIGHT = 18  # of a lane
CLOSE = 4  # dots that are closer than this are put above each other
APART = 2.6  # between their centres, or less, so that they stay in the lane
MOST_APART = 12
PITCH = 12  # of the dots of a finding, or less, so that all have room
RADIUS = 2.5  # of a dot, or less in a finding of many runs

NARROW = 3  # a scale of fewer tolerances is widened: two of them are the band
WHOSE = {"author": "author’s", "ours": "ours"}

LIMITS = (0.25, 0.5, 1.0)  # of a table's scale, of which the narrowest that fits is taken
NUMBER = "number"
FINDING = "finding"
TABLE = "table"


class Mark(NamedTuple):
    """A run, or a cell of a table; `x` and `y` are from the left and the top of its lane.

    Its `look` is `full`; `open` for a run that does not show a finding, `unknown` for one that
    can't say; `differs` for a cell that does.
    """

    x: float
    y: float
    words: str  # its name and value
    look: str = "full"
    link: str = ""  # to the playground with this run


class Lane(NamedTuple):
    """A source's side of a strip."""

    source: str
    kind: str  # `NUMBER`, `FINDING` or `TABLE`
    label: str  # the runs in words
    marks: list[Mark]
    bands: Sequence[tuple[float, float]] = ()  # allowed around the paper's values
    paper: Sequence[float] = ()  # places of the paper's values
    judged: Sequence[float] = ()  # places of what is judged
    ends: tuple[str, str] | None = None  # of the scale, unless 0 and 1
    radius: float = RADIUS  # of the dots


class Scale(NamedTuple):
    """The values at both ends of a lane."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Return a value's place in px; one beyond an end is put there."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(LEFT + WIDTH * share, 1)

    def band(self, value: float, tolerance: float) -> tuple[float, float]:
        """Return the ends of what is allowed around a value, at least a pixel apart."""
        left, right = self.place(value - tolerance), self.place(value + tolerance)
        return left, max(right, left + 1)

    @property
    def ends(self) -> tuple[str, str] | None:
        """Both ends in words; None if they are 0 and 1, which need not be said."""
        if (self.low, self.high) == (0, 1):
            return None
        digits = 3
        while in_short(self.low, digits) == in_short(self.high, digits):
            digits += 1
        return in_short(self.low, digits), in_short(self.high, digits)


def lanes(entries: Sequence[Claim], rows: Mapping[str, Sequence[Row]]) -> list[Lane]:
    """Return the lane of each source that has something to draw, on one scale.

    The last one says where the scale ends. A line has one claim, or those of a table's cells.
    """
    all_rows = [*chain.from_iterable(rows.values())]
    drawn: list[Lane] = []
    for source, own in rows.items():
        if len(entries) > 1:
            lane = _of_table(source, own, _scale_of_table(all_rows))
        elif own and own[0].shown is not None:
            lane = _of_finding(source, own[0])
        elif own and own[0].value is not None:
            lane = _of_number(source, own[0], _scale(entries[0], all_rows))
        else:
            continue
        if lane.marks or lane.judged:
            if drawn:
                drawn[-1] = drawn[-1]._replace(ends=None)
            drawn.append(lane)
    return drawn


def _of_number(source: str, row: Row, scale: Scale) -> Lane:
    """Return the lane of a number: a dot for each value of each run, and the paper's value."""
    marks = []
    values = []
    for key, run in zip(row.keys, row.runs, strict=True):
        for value in flat(run):
            values.append(value)
            words, link = _words_and_link(source, row, key, f": {text(value)}")
            marks.append(Mark(scale.place(value), HEIGHT / 2, words, link=link))
    label = text(row.value)
    if values:
        low, high = text(min(values)), text(max(values))
        n_runs = "1 run" if len(row.runs) == 1 else f"{len(row.runs)} runs"
        label = f"{n_runs}: {low}" if low == high else f"{n_runs}: {low} to {high}"
    papers = flat(row.paper)
    return Lane(
        source,
        NUMBER,
        label,
        marks=_spread(marks),
        bands=[scale.band(value, row.tolerance) for value in papers if row.tolerance is not None],
        paper=[scale.place(value) for value in papers],
        judged=[scale.place(value) for value in flat(row.value)],
        ends=scale.ends,
    )


def _of_finding(source: str, row: Row) -> Lane:
    """Return the lane of a finding: a dot for each run, in the order of the runs."""
    shows = row.fields["shows"]
    marks = []
    for i, (key, shows_it) in enumerate(zip(row.keys, shows, strict=True)):
        words = {True: "shows it", False: "does not show it", None: "can't say"}[shows_it]
        look = {True: "full", False: "open", None: "unknown"}[shows_it]
        x = round(LEFT + min(PITCH, WIDTH / len(shows)) * i, 1)
        named, link = _words_and_link(source, row, key, f" {words} ({text(row.runs[i])})")
        marks.append(Mark(x, HEIGHT / 2, named, look, link))
    label = ", ".join(filter(None, (shown_in_words(row), without(row))))
    radius = round(min(RADIUS, 0.4 * WIDTH / len(shows)), 1)
    return Lane(source, FINDING, label, marks, radius=radius)


def _of_table(source: str, rows: Sequence[Row], scale: Scale) -> Lane:
    """Return the lane of a table: each cell's distance from the paper's, as a share of its range.

    The band is what the cell with the least room may be off.
    """
    marks = []
    gaps = []
    tolerances = []
    for row in rows:
        claim = claims()[row.id]
        for gap in _gaps(row):
            gaps.append(gap)
            look = "differs" if row.verdict == "differs" else "full"
            rounded = minus_signs(f"{round(gap, 2) + 0.0:+.2f}")  # no -0.00
            words = f"{claim.words.rpartition(': ')[2]}: {rounded}"
            marks.append(Mark(scale.place(gap), HEIGHT / 2, words, look))
        if row.tolerance is not None:
            tolerances.append(row.tolerance / claim.range)
    label = ""
    if gaps:
        low, high = in_short(min(gaps)), in_short(max(gaps))
        label = f"{len(gaps)} cells, each less the paper’s: {low} to {high}"
    bands = [scale.band(0.0, min(tolerances))] if tolerances else []
    return Lane(source, TABLE, label, marks, bands, paper=[scale.place(0.0)], ends=scale.ends)


def _gaps(row: Row) -> list[float]:
    """Return how far each entry of a row lies from the paper's, as a share of its range."""
    entries = zip(flat(row.value), flat(row.paper), strict=False)
    return [(value - paper) / claims()[row.id].range for value, paper in entries]


def _scale_of_table(rows: Sequence[Row]) -> Scale:
    """Return the scale of a table's lanes, with zero in its middle."""
    largest = max((abs(gap) for row in rows for gap in _gaps(row)), default=0.0)
    limit = next((limit for limit in LIMITS if limit >= largest), largest)
    return Scale(-limit, limit)


def flat(value: Any) -> list[float]:
    """Return the numbers in a value of a row: a number, a list, or None; none of deeper lists."""
    values = value if isinstance(value, list) else [value]
    return [float(x) for x in values if isinstance(x, (int, float))]


def _words_and_link(source: str, row: Row, key: str, words: str) -> tuple[str, str]:
    """Return the name of a run with these words after it, and the playground with this run.

    The link is "" if the run is not ours, or if the playground does not have it.
    """
    group, _, run = key.rpartition(" ")
    named = f"{key}{words}" if group or not run.isdecimal() else f"run {run}{words}"
    group = group or "".join(row.groups[:1])
    link = address(group, int(run)) if source == "ours" and run.isdecimal() else ""
    return named, link


def _spread(marks: list[Mark]) -> list[Mark]:
    """Return dots such that those which would cover each other stand above each other."""
    clusters: list[list[Mark]] = []
    for mark in sorted(marks):
        if clusters and mark.x - clusters[-1][-1].x < CLOSE:
            clusters[-1].append(mark)
        else:
            clusters.append([mark])
    spread = []
    for cluster in clusters:
        apart = min(APART, MOST_APART / len(cluster))
        top = HEIGHT / 2 - apart * (len(cluster) - 1) / 2
        for i, mark in enumerate(cluster):
            spread.append(mark._replace(y=round(top + apart * i, 1)))
    return spread


def _scale(claim: Claim, rows: Sequence[Row]) -> Scale:
    """Return the scale of a number: 0 to 1 for a share, else such that all values fit."""
    values = flat(claim.paper)
    for row in rows:
        for value in [row.value, *row.runs]:
            values += flat(value)
    if claim.range == 1 and all(0 <= value <= 1 for value in values):
        return Scale(0.0, 1.0)
    tolerance = max((row.tolerance for row in rows if row.tolerance is not None), default=0.0)
    for value in flat(claim.paper):
        values += [value - tolerance, value + tolerance]
    low = min(values)
    high = max(values)
    if high == low:
        return Scale(low - 1, high + 1)
    if high - low < NARROW * tolerance:  # else the band would be as wide as the scale
        return Scale(low - tolerance, high + tolerance)
    return Scale(low, high)
