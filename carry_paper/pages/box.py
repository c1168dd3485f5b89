"""The verdict box at the top of a page: the paper's claims, the runs behind each, the verdicts.

It is judged from the committed measurements, so it needs no weights and is the same wherever a page
runs.
A page that runs with a group other than that of the claims says what the paper claims, but judges
nothing. Nor does a page show a verdict beside other weights than those behind it.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from carry_core import carries
from carry_core.runs import Runs
from carry_paper.ledger import ledger, registry, tally
from carry_paper.ledger.claims import CAUSES, CLASSES, Claim, chosen, claims
from carry_paper.ledger.report import counted, in_words, percents
from carry_paper.ledger.results import Row, gathered
from carry_paper.ledger.verdicts import CANNOT_TELL, NOT_RUN, RANGE, TO_EXPLAIN
from carry_paper.pages import row_words, strips
from carry_paper.pages.html import SIGNS, Html, environment, slug
from carry_paper.pages.strips import Lane
from carry_train import groups

SOURCES = {"author": "Author’s", "ours": "Ours"}
TEMPLATES = environment()


class Pill(NamedTuple):
    """A verdict that explains itself.

    Attributes:
        id: The id of its explanation on the page.
        words: The verdict in words, such as `10 can't tell · ±0.3`.
        row: A row of the ledger that has it.
        on_rows: Sentences on these rows: their rule, the runs that differ, what would settle them.
    """

    id: str
    words: str
    row: Row
    on_rows: list[str]


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
    """A line of the box: a claim of the paper, or all cells of a table, and its results.

    Attributes:
        words: The claim, in words.
        claim: The claim, or that of the first cell.
        rows: The results of each source.
        sides: The same in words; None where a source has none.
        groups: The groups that the claims are about.
    """

    def __init__(self, words: str, claims: list[Claim], rows: Mapping[str, list[Row]]) -> None:
        self.words = words
        self.claim = claims[0]
        self.rows = rows
        lanes = {lane.source: lane for lane in strips.lanes(claims, rows)}
        self.sides = {}
        for source, own in rows.items():
            self.sides[source] = side(source, own, lanes.get(source)) if own else None
        names = set[str]()
        for claim in claims:
            names.update(registry.entry(claim.id).all_groups)
        self.groups = sorted(names)

    @property
    def paper(self) -> str:
        """The printed number, or the runs for which the paper states it; "" for a table."""
        claim = self.claim
        if claim.finding:
            return "one run" if claim.single else row_words.QUANTITIES[claim.quantifier]
        return "" if claim.table or claim.paper is None else row_words.number(claim.paper, claim)

    @property
    def whys(self) -> dict[str, list[str]]:
        """The reasons why the line is not reproduced, in a sentence, by cause; none is said twice.

        Each has its source, unless it holds for both.
        """
        sources: dict[tuple[str, str], list[str]] = {}
        for source, rows in self.rows.items():
            for row in rows:
                if row.why is not None and row.verdict in TO_EXPLAIN:
                    sentence = row_words.first_sentence(row.why.text)[0]
                    sources.setdefault((row.why.cause, sentence), []).append(source)
        sentences: dict[str, list[str]] = {}
        for (cause, sentence), of_sources in sources.items():
            whose = "" if {*of_sources} == {*SOURCES} else f"{SOURCES[of_sources[0]]}: "
            sentences.setdefault(cause, []).append(f"{whose}{sentence}")
        return sentences

    def text(self, *, judged: bool) -> str:
        """Return the line as text."""
        parts = [self.words, self.paper]
        for source, own in self.sides.items():
            if judged and own:
                verdicts = ", ".join(pill.words for pill in own.pills)
                parts.append(f"{source}: {own.value} {own.beside} {verdicts}")
        return " | ".join(parts)


def side(source: str, rows: list[Row], lane: Lane | None) -> Side:
    """Return the results of a line from one source in words: of a claim, or of a table's cells."""
    row = rows[0]
    claim = claims()[row.id]
    n_runs = max(row.n for row in rows)
    beside = f"n = {n_runs}" if n_runs else ""
    if claim.table:
        value = f"{len(rows)} cells"
    elif row.shown is None:
        value = row_words.number(row.value, claim)
    elif claim.quantifier == RANGE:
        value, beside = f"{row.shown[0]} of {row.n}", "settings"
    else:
        n_showing, n = row.shown
        value = f"{n_showing} of {n}" if n else "none can tell"
        beside = percents(row.interval[0]) if row.interval is not None else ""
    by_verdict = gathered(rows, lambda row: row.verdict)
    pills = []
    for verdict, own in sorted(by_verdict.items(), key=lambda item: [*SIGNS].index(item[0])):
        words = in_words(verdict, beyond=claim.beyond)
        if len(by_verdict) > 1:
            words = counted(len(own), verdict, beyond=claim.beyond)
        if verdict == CANNOT_TELL:
            words += row_words.half_widths(own)
        name = re.sub(r"[^\w-]+", "-", f"verdict-{source}-{own[0].id}-{slug(verdict)}")
        pills.append(Pill(name, words, own[0], row_words.on_rows(own)))
    return Side(value, beside, pills, lane)


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
    others = page_runs if page_runs and ledger.are_other_weights(page_runs) else None
    names = list(ids)
    is_apart = tally.uninformative(stored) if {*names} - claims().keys() else {}
    lines = []
    for name in names:
        all_claims = [claims()[name]] if name in claims() else chosen(name)
        own = [claim for claim in all_claims if claim.id not in is_apart] or all_claims
        rows = {}
        for source, by_id in stored.items():
            rows[source] = [by_id[claim.id] for claim in own]
            if others is not None and others.source == source:
                rows[source] = [row for row in rows[source] if others.group not in row.groups]
        lines.append(Line((words or {}).get(name) or own[0].short or own[0].words, own, rows))

    judged = [line for line in lines if group is None or not line.groups or group in line.groups]
    if others is not None and not any(others.group in line.groups for line in judged):
        others = None
    trainings: set[str] = set()
    waiting: dict[str, dict[str, None]] = {source: {} for source in SOURCES}
    for line in judged:
        for source, own_rows in line.rows.items():
            for row in own_rows:
                trainings.update(row.trainings)
                if row.verdict == NOT_RUN:
                    waiting[source][row.detail] = None

    html = TEMPLATES.get_template("box.html.j2").render(
        lines=lines,
        judged=judged,
        beyond=all(line.claim.beyond for line in lines),
        group=group,
        trainings=sorted(trainings),
        named=groups.find,
        sources=SOURCES,
        causes=CAUSES,
        other_weights=others.group if others else "",
        path=path,
        waiting={source: list(reasons) for source, reasons in waiting.items()},
    )
    return Html(html, "\n".join(line.text(judged=line in judged) for line in lines))


def printed_cells(table: str) -> pd.DataFrame:
    """Return a table of the paper as a frame of `carry_class`, `position` and both accuracies.

    `table` is the beginning of its ids, such as `tab1/final_mlp`.
    """
    rows = [(*claim.id.split("/")[2:], claim.paper) for claim in chosen(f"{table}/")]
    cells = pd.DataFrame(rows, columns=["carry_class", "kind", "position", "paper"])
    cells["carry_class"] = [carries.paper_name(CLASSES[name]) for name in cells.carry_class]
    return cells.pivot_table("paper", ["carry_class", "position"], "kind", sort=False).reset_index()
