"""The verdict box at the top of a page: the paper's claims, the runs behind each, the verdicts.

It is judged from the committed measurements, so it needs no weights and is the same wherever a page
runs.
A page that runs with a group other than that of the claims says what the paper claims, but judges
nothing. Nor does a page show a verdict beside other weights than those behind it.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from carry_core import carries
from carry_core.runs import Runs
from carry_paper.ledger import ledger, tally
from carry_paper.ledger.claims import CAUSES, CLASSES, Claim, chosen, claims, of_line
from carry_paper.ledger.report import counted, in_words, percents
from carry_paper.ledger.results import Row
from carry_paper.ledger.verdicts import CANNOT_TELL, NOT_RUN, RANGE, TO_EXPLAIN
from carry_paper.pages import row_words, strips
from carry_paper.pages.html import SIGNS, Html, environment, slug
from carry_paper.pages.strips import Lane
from carry_train import groups

SOURCES = {"author": "Author’s", "ours": "Ours"}
TEMPLATES = environment()


class Pill(NamedTuple):
    """A verdict that explains itself."""

    id: str  # of its explanation on the page
    words: str  # such as `10 can't tell · ±0.3`
    row: Row  # of the ledger that has it
    on_rows: list[str]  # sentences on these rows


class Side(NamedTuple):
    """A line's results from one source."""

    value: str
    beside: str  # a share's 95% interval, or `n`
    pills: list[Pill]


class Line(NamedTuple):
    """A line of the box: a claim of the paper, or all cells of a table, and its results."""

    words: str
    claim: Claim  # or that of the first cell
    paper: str  # as printed, or the runs that it is said of
    rows: Mapping[str, list[Row]]  # of each source
    sides: dict[str, Side | None]  # the same in words
    lanes: list[Lane]  # the same drawn
    groups: set[str]  # that the claims are about


def line_of(
    name: str,
    words: str | None,
    stored: Mapping[str, Mapping[str, Row]],
    apart: Collection[str],
    others: Runs | None,
) -> Line:
    """Return the line of a claim, by its id, or of a table, by the beginning of its cells' ids.

    Cells that are counted `apart` are left out, and so are the rows of other weights, if a page
    shows `others`. The `words` are the page's own.
    """
    cells = [claim for claim in of_line(name) if claim.id not in apart] or of_line(name)
    claim = cells[0]
    paper = ""
    if claim.finding:
        paper = "one run" if claim.single else row_words.QUANTITIES[claim.quantifier]
    elif not claim.table and claim.paper is not None:
        paper = row_words.number(claim.paper, claim)
    rows = {}
    sides = {}
    names = set[str]()
    for source, by_id in stored.items():
        own = [by_id[cell.id] for cell in cells]
        names.update(*map(attrgetter("groups"), own))
        if others is not None and others.source == source:
            own = [row for row in own if others.group not in row.groups]
        rows[source] = own
        sides[source] = side(source, own) if own else None
    lanes = strips.lanes(cells, rows)
    return Line(words or claim.short or claim.words, claim, paper, rows, sides, lanes, names)


def whys(rows: Mapping[str, list[Row]]) -> dict[str, list[str]]:
    """Return the reasons why a line is not reproduced, in a sentence, by cause; none is said twice.

    Each has its source, unless it holds for both.
    """
    sources: dict[tuple[str, str], list[str]] = {}
    for source, own in rows.items():
        for row in own:
            if row.why is not None and row.verdict in TO_EXPLAIN:
                sentence = row_words.first_sentence(row.why.text)[0]
                sources.setdefault((row.why.cause, sentence), []).append(source)
    sentences: dict[str, list[str]] = {}
    for (cause, sentence), of_sources in sources.items():
        whose = "" if {*of_sources} == {*SOURCES} else f"{SOURCES[of_sources[0]]}: "
        sentences.setdefault(cause, []).append(f"{whose}{sentence}")
    return sentences


def side(source: str, rows: list[Row]) -> Side:
    """Return the results of a line from one source in words: of a claim, or of a table's cells."""
    row = rows[0]
    claim = claims()[row.id]
    n_runs = max(rows, key=attrgetter("n")).n
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
    pills = []
    for verdict in SIGNS:
        own = [row for row in rows if row.verdict == verdict]
        if not own:
            continue
        words = in_words(verdict, beyond=claim.beyond)
        if len(own) < len(rows):
            words = counted(len(own), verdict, beyond=claim.beyond)
        if verdict == CANNOT_TELL:
            words += row_words.half_widths(own)
        name = re.sub(r"[^\w-]+", "-", f"verdict-{source}-{own[0].id}-{slug(verdict)}")
        pills.append(Pill(name, words, own[0], row_words.on_rows(own)))
    return Side(value, beside, pills)


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
        path: Where they lie, if the page was given a path.

    Raises:
        BadInput: There is no such id.
    """
    stored = {source: ledger.by_id(source) for source in SOURCES}
    others = page_runs if page_runs and ledger.are_other_weights(page_runs) else None
    names = list(ids)
    apart = tally.uninformative(stored) if {*names} - claims().keys() else {}
    lines = []
    judged = []
    texts = []
    trainings: set[str] = set()
    waiting: dict[str, dict[str, None]] = {}
    for name in names:
        line = line_of(name, (words or {}).get(name), stored, apart, others)
        is_judged = not line.groups or group in (None, *line.groups)
        lines.append(line)
        texts.append(text(line, judged=is_judged))
        if not is_judged:
            continue
        judged.append(line)
        for source, own_rows in line.rows.items():
            for row in own_rows:
                trainings.update(row.trainings)
                if row.verdict == NOT_RUN:
                    waiting.setdefault(source, {})[row.detail] = None
    if others is not None and not any(others.group in line.groups for line in judged):
        others = None

    html = TEMPLATES.get_template("box.html.j2").render(
        lines=lines,
        judged=judged,
        whys=whys,
        group=group,
        trainings=sorted(trainings),
        named=groups.find,
        sources=SOURCES,
        causes=CAUSES,
        other_weights=others.group if others else "",
        path=path,
        waiting=waiting,
    )
    return Html(html, "\n".join(texts))


def text(line: Line, *, judged: bool) -> str:
    """Return a line as text."""
    parts = [line.words, line.paper]
    for source, own in line.sides.items():
        if judged and own:
            verdicts = ", ".join(map(attrgetter("words"), own.pills))
            parts.append(f"{source}: {own.value} {own.beside} {verdicts}")
    return " | ".join(parts)


def printed_cells(table: str) -> pd.DataFrame:
    """Return a table of the paper as a frame of `carry_class`, `position` and both accuracies.

    `table` is the beginning of its ids, such as `tab1/final_mlp`.
    """
    rows = [(*claim.id.split("/")[2:], claim.paper) for claim in chosen(f"{table}/")]
    cells = pd.DataFrame(rows, columns=["carry_class", "kind", "position", "paper"])
    cells["carry_class"] = [carries.paper_name(CLASSES[name]) for name in cells.carry_class]
    return cells.pivot_table("paper", ["carry_class", "position"], "kind", sort=False).reset_index()
