"""The verdict box at the top of a page: the paper's claims, the runs behind each, the verdicts.

It is judged from the committed measurements, so it needs no weights and is the same wherever a page
runs.
A page that runs with a group other than that of the claims says what the paper claims, but judges
nothing. Nor does a page show a verdict beside other weights than those behind it.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from carry_core import carries
from carry_core.runs import Runs
from carry_paper.ledger import ledger, registry, tally
from carry_paper.ledger.claims import CAUSES, CLASSES, Claim, chosen, claims
from carry_paper.ledger.report import counted, in_words, percents
from carry_paper.ledger.results import Row, gathered
from carry_paper.ledger.verdicts import CANNOT_TELL, TO_EXPLAIN
from carry_paper.pages import row_words, strips
from carry_paper.pages.html import SIGNS, Html, environment
from carry_paper.pages.strips import Lane
from carry_train import groups

SOURCES = {"author": "author’s weights", "ours": "ours"}
NAMES = {"author": "Author’s", "ours": "Ours"}
NOT_IN_AN_ID = re.compile(r"[^\w-]+")
TEMPLATES = environment()
TEMPLATES.globals |= {
    "in_words": strips.in_words,
    "verdict_in_words": in_words,
    "meaning": row_words.meaning,
}


class Pill(NamedTuple):
    """A verdict that explains itself.

    Attributes:
        id: The id of its explanation on the page.
        words: The verdict in words, such as `10 can't tell · ±0.3`.
        row: A row of the ledger that has it.
        beyond: True if the paper does not say it, so that nothing differs from the paper.
        on_rows: Sentences on these rows: their rule, the runs that differ, what would settle them.
    """

    id: str
    words: str
    row: Row
    beyond: bool
    on_rows: list[str]


class Why(NamedTuple):
    """The cause why a line is not reproduced.

    Attributes:
        cause: One of `claims.CAUSES`.
        meaning: The meaning of the cause.
        sentences: The first sentence of each reason, with its source unless it holds for both.
    """

    cause: str
    meaning: str
    sentences: list[str]


class Side(NamedTuple):
    """A line's results from one source.

    Attributes:
        value: The value in words.
        beside: The 95% interval of a share of runs, or else the number of runs.
        pills: The verdicts.
        lane: The runs, drawn; None if there is nothing to draw.
    """

    value: str
    beside: str
    pills: list[Pill]
    lane: Lane | None


class Line:
    """A line of the box or of the table: a claim of the paper, and its results.

    Attributes:
        words: The claim, in words.
        claims: The claim, or those of all cells of a table.
        rows: The results of each source.
        sides: The same in words; None where a source has none.
        groups: The groups that the claims are about.
    """

    def __init__(self, words: str, claims: list[Claim], rows: Mapping[str, list[Row]]) -> None:
        self.words = words
        self.claims = claims
        self.rows = rows
        self.lanes = {lane.source: lane for lane in strips.lanes(claims, self.rows)}
        self.sides = {}
        for source, results_of_source in self.rows.items():
            side = self._side(source, results_of_source) if results_of_source else None
            self.sides[source] = side
        names = set[str]()
        for claim in claims:
            names.update(registry.entry(claim.id).all_groups)
        self.groups = sorted(names)

    @property
    def paper(self) -> str:
        """The printed number, or the runs for which the paper states it; "" for a table."""
        claim = self.claims[0]
        if claim.finding:
            return "one run" if claim.single else row_words.QUANTITIES[claim.quantifier]
        if len(self.claims) > 1 or claim.paper is None:
            return ""
        return row_words.number(claim.paper, claim)

    def about(self, group: str | None) -> bool:
        """Return True if a page about this group judges the line; None stands for all groups."""
        return group is None or not self.groups or group in self.groups

    def _side(self, source: str, rows: list[Row]) -> Side:
        row = rows[0]
        n_runs = max(row.n for row in rows)
        beside = f"n = {n_runs}" if n_runs else ""
        if len(self.claims) > 1:
            value = f"{len(rows)} cells"
        elif row.shown:
            n_showing, n = row.shown
            value = f"{n_showing} of {n}" if n else "none can tell"
            beside = percents(row.interval[0]) if row.interval is not None else ""
        else:
            value = row_words.number(row.value, self.claims[0])
        by_verdict = gathered(rows, lambda row: row.verdict)
        pills = []
        for verdict in SIGNS:
            if verdict in by_verdict:
                own = by_verdict[verdict]
                beyond = self.claims[0].beyond
                words = in_words(verdict, beyond=beyond)
                if len(by_verdict) > 1:
                    words = counted(len(own), verdict, beyond=beyond)
                pills.append(self._pill(source, words, own))
        return Side(value, beside, pills, self.lanes.get(source))

    def _pill(self, source: str, words: str, rows: list[Row]) -> Pill:
        """Return the verdict of rows that have the same one."""
        row = rows[0]
        on_rows = [row_words.rule_here(rows, source), row_words.place_among_ours(rows, source)]
        gap = self._difference(rows)
        if gap:
            on_rows.append(f"{gap[:1].upper()}{gap[1:]}.")
        if row.verdict == CANNOT_TELL:
            words += row_words.half_widths(rows)
            undecided = [row for row in rows if row.settles]
            table = next((row.table for row in undecided if row.table is not None), None)
            if table is not None:
                on_rows.append(table.words)
            if undecided:
                on_rows.append(f"{row_words.what_settles(undecided)}.")
        return Pill(
            id=NOT_IN_AN_ID.sub("-", f"verdict-{source}-{row.id}-{row.verdict}"),
            words=words,
            row=row,
            beyond=self.claims[0].beyond,
            on_rows=[sentence for sentence in on_rows if sentence],
        )

    def _difference(self, rows: list[Row]) -> str:
        """Return how rows differ from the paper in words; of a table, the largest gap."""
        if len(self.claims) == 1:
            return row_words.difference(rows[0])
        measured = [row for row in rows if isinstance(row.value, float)]
        if not measured:
            return ""
        farthest = max(measured, key=lambda row: abs(row.value - row.paper))
        gap = row_words.difference(farthest)
        cell = claims()[farthest.id].words.partition(": ")[2]
        return f"largest gap in {cell}: {gap}" if gap else ""

    @property
    def _said(self) -> dict[tuple[str, str], list[str]]:
        """The sources of each reason that the box says in the open: its cause, its sentence."""
        sources: dict[tuple[str, str], list[str]] = {}
        for source, rows in self.rows.items():
            for row in rows:
                if row.why is not None and row.verdict in TO_EXPLAIN:
                    sentence = row_words.first_sentence(row.why.text)[0]
                    sources.setdefault((row.why.cause, sentence), []).append(source)
        return sources

    @property
    def whys(self) -> list[Why]:
        """The causes why the line is not reproduced, in a sentence each; none is said twice."""
        sentences: dict[str, list[str]] = {}
        for (cause, sentence), of_sources in self._said.items():
            whose = "" if {*of_sources} == {*SOURCES} else f"{NAMES[of_sources[0]]}: "
            sentences.setdefault(cause, []).append(f"{whose}{sentence}")
        return [Why(cause, CAUSES[cause], own) for cause, own in sentences.items()]

    def more(self, source: str) -> str:
        """Return the rest of the reasons, and at which other bars the verdict would be another."""
        in_the_open = {sentence for _, sentence in self._said}
        sentences: dict[str, None] = {}
        for row in self.rows[source]:
            if row.why is not None:
                first, rest = row_words.first_sentence(row.why.text)
                sentences[rest if first in in_the_open else row.why.text] = None
        at_other_bars = dict.fromkeys(
            bar for row in self.rows[source] for bar in row_words.at_bars(row)
        )
        if at_other_bars:
            sentences[f"The verdict hangs on the bar: {', '.join(at_other_bars)}."] = None
        return " ".join(filter(None, sentences))

    @property
    def has_more(self) -> bool:
        """True if there is more to say on why the line is not reproduced."""
        return any(self.more(source) for source in self.rows)


def verdict_box(
    ids: Iterable[str],
    group: str | None = None,
    words: Mapping[str, str] | None = None,
    page_runs: Runs | None = None,
    path: Path | None = None,
) -> Html:
    """Return the box at the top of a page: the paper's claims, and the verdicts on them.

    Keep it to about six rows, which can be read at a glance.

    Args:
        ids: The claims' ids, or the beginning of ids for a whole table.
        group: The group that the page shows; a claim about others is not judged there.
        words: The page's own words for a claim, by id, in place of its `short` in claims.yml.
        page_runs: The runs that the page shows, which may be others than those that lead.
        path: The path that the page was given in place of a group.

    Raises:
        BadInput: There is no such id.
    """
    stored = {source: ledger.by_id(source) for source in SOURCES}
    other_runs = page_runs if page_runs and ledger.are_other_weights(page_runs) else None
    names = list(ids)
    has_tables = any(name not in claims() for name in names)
    weightless = tally.uninformative(stored) if has_tables else {}
    lines = []
    for name in names:
        claims_of_line = [claims()[name]] if name in claims() else informative(name, weightless)
        line_words = (words or {}).get(name) or claims_of_line[0].short or claims_of_line[0].words
        rows = {
            source: rows_of_source(claims_of_line, source, stored[source], other_runs)
            for source in SOURCES
        }
        lines.append(Line(line_words, claims_of_line, rows))
    judged = [line for line in lines if line.about(group)]
    judged_groups = {name for line in judged for name in line.groups}
    if other_runs is not None and other_runs.group not in judged_groups:
        other_runs = None

    html = TEMPLATES.get_template("box.html.j2").render(
        lines=lines,
        judged=judged,
        beyond=all(claim.beyond for line in lines for claim in line.claims),
        group=group,
        trainings=sorted(_trainings(line for line in judged if line.groups == [group])),
        others=bool(_trainings(line for line in judged if line.groups != [group])),
        named=groups.find,
        names=NAMES,
        other_weights=other_runs.group if other_runs else "",
        path=path,
        missing=not any(stored.values()),
        waiting={
            source: row_words.not_run(row for line in judged for row in line.rows[source])
            for source in SOURCES
        },
    )
    text = "\n".join(_plain(line, line in judged) for line in lines)
    return Html(html, text)


def rows_of_source(
    claims: Iterable[Claim], source: str, by_id: Mapping[str, Row], other_runs: Runs | None
) -> list[Row]:
    """Return a source's rows, less those on the group of runs that have other weights."""
    rows = [by_id[claim.id] for claim in claims if claim.id in by_id]
    if other_runs is None or other_runs.source != source:
        return rows
    return [row for row in rows if other_runs.group not in row.groups]


def informative(table: str, weightless: Collection[str]) -> list[Claim]:
    """Return the cells of a table that can fail; all of them if none can."""
    cells = chosen(table)
    return [cell for cell in cells if cell.id not in weightless] or cells


def _trainings(lines: Iterable[Line]) -> set[str]:
    """Return the trainings of the runs behind lines, other than by the paper's protocol."""
    trainings: set[str] = set()
    for line in lines:
        for row in line.rows["ours"]:
            trainings.update(row.trainings)
    return trainings


def _plain(line: Line, judged: bool) -> str:
    """Return a line of the box as text."""
    parts = [line.words, line.paper]
    for source, side in line.sides.items():
        if judged and side:
            verdicts = ", ".join(pill.words for pill in side.pills)
            beside = f" ({side.beside})" if side.beside else ""
            parts.append(f"{SOURCES[source]}: {side.value}{beside} {verdicts}")
    return " | ".join(parts)


def printed_cells(table: str) -> pd.DataFrame:
    """Return a table of the paper as a frame of `carry_class`, `position` and both accuracies.

    `table` is the beginning of its ids, such as `tab1/final_mlp`.
    """
    rows = [(*claim.id.split("/")[2:], claim.paper) for claim in chosen(f"{table}/")]
    cells = pd.DataFrame(rows, columns=["carry_class", "kind", "position", "paper"])
    cells["carry_class"] = [carries.paper_name(CLASSES[name]) for name in cells.carry_class]
    return cells.pivot_table("paper", ["carry_class", "position"], "kind", sort=False).reset_index()
