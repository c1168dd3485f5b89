"""The claims page of the book: the ledger, readable without scripts, and filtered by one.

Its template is `claims.html.j2`; `book/_static/claims.js` reads the `data-` attributes that the
template writes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any
from urllib.parse import urlencode

from carry_core.errors import BadInput
from carry_paper import catalogue
from carry_paper.ledger import claims, export, ledger, results, tally
from carry_paper.ledger.claims import QUANTIFIERS, RULES, Claim
from carry_paper.ledger.exchangeability import TableTest
from carry_paper.ledger.report import badness, counted, shown_in_words, text
from carry_paper.ledger.results import Row
from carry_paper.pages import strips
from carry_paper.pages.html import SIGNS, Html, environment
from carry_paper.pages.row_words import (
    MEANINGS,
    at_bars,
    in_short,
    number,
    reason,
    sentence,
    settled_by,
)

HEADINGS = {"author": "Author’s weights", "ours": "Our weights"}
SOURCES = {"author": "the author's weights", "ours": "our weights"}
# Kinds of rows, in the order of the page; those that can hardly fail are counted separately.
KINDS = ("numbers", "findings", "rows that can hardly fail", "beyond the paper")
JUDGED_KINDS = ("numbers", "findings")
# The beginnings of the names of the pages that rebuild a figure or a table.
FLOATS = (
    *(f"fig{number:02d}" for number in range(1, 27)),
    *(f"tab{number:02d}" for number in range(1, 6)),
)


@dataclass(frozen=True)
class JudgedClaim:
    """A claim and what became of it."""

    claim: Claim
    rows: dict[str, Row]  # by source
    order: dict[str, int]  # its place, the worst first
    weightless: str = ""  # why it can hardly fail

    def verdict(self, source: str) -> str:
        return self.rows[source].verdict

    @property
    def reason(self) -> str:
        """The reason for the claim's rule, as stored with its results; "" if they have none."""
        return next((row.reason for row in self.rows.values() if row.reason), "")

    @property
    def lanes(self) -> list[strips.Lane]:
        """The drawing of the row: the runs of each source."""
        return strips.lanes([self.claim], {name: [row] for name, row in self.rows.items()})

    @property
    def kind(self) -> str:
        """The kind of row as which the claim is counted, one of `KINDS`."""
        if self.weightless:
            return "rows that can hardly fail"
        if self.claim.paper is not None:
            return "numbers"
        return "findings" if self.claim.finding else "beyond the paper"


@dataclass(frozen=True)
class Outcomes:
    """The ledger with the results of some sources."""

    sources: tuple[str, ...]  # some of `SOURCES`
    entries: tuple[JudgedClaim, ...]  # every claim, in the ledger's order

    def entry(self, name: str) -> JudgedClaim:
        """Return what became of the claim with an id."""
        return next(entry for entry in self.entries if entry.claim.id == name)

    def origin(self, source: str) -> str:
        """Return a sentence on the weights behind a source's results.

        It also says if other weights are stored now.
        """
        measured = ledger.by_id(source).measured.runs
        if not measured:
            return f"No results yet: `carry measure --source {source}` makes them."
        trained = [catalogue.load(name) for name in sorted(measured) if catalogue.find(name)]
        if source == "ours" and any(map(ledger.are_other_weights, trained)):
            return (
                "**The results are stale**: other weights lie here now; run"
                " `carry measure --source ours`."
            )
        n_runs = sum(map(len, measured.values()))
        runs = f"{n_runs} runs of {len(measured)} groups"
        if source == "author":
            return f"The author's weights: {runs} of his release."
        return f"Our weights: {runs} (“What was trained” lists them)."


def read(source: str | None = None) -> Outcomes:
    """Return the ledger with the committed results of one source, or of both (None).

    All claims are `not run` if nothing was measured.

    Raises:
        BadInput: The measurements cannot be read.
    """
    if source is not None and source not in SOURCES:
        raise BadInput(f"Unknown source {source!r}: expected 'ours', 'author', or None for both.")
    rows = {name: ledger.by_id(name) for name in SOURCES}
    weightless = tally.uninformative(rows)
    if source is not None:
        rows = {source: rows[source]}
    order: dict[str, dict[str, int]] = {}
    for name, by_id in rows.items():
        worst_first = sorted(by_id.values(), key=badness)
        order[name] = {row.id: place for place, row in enumerate(worst_first)}

    entries = []
    for id_, claim in claims.claims().items():
        entry = JudgedClaim(
            claim,
            rows={name: rows[name][id_] for name in rows},
            order={name: order[name][id_] for name in rows},
            weightless=weightless.get(id_, ""),
        )
        entries.append(entry)
    return Outcomes(tuple(rows), tuple(entries))


# ---- counts, for sentences and a table


def in_words(counts: Mapping[str, int], signs: bool = False) -> str:
    """Return the number of rows with each verdict in words, with the verdicts' signs if asked."""
    parts = []
    for verdict, sign in SIGNS.items():
        if counts.get(verdict):
            words = counted(counts[verdict], verdict)
            parts.append(f"{sign} {words}" if signs else words)
    return ", ".join(parts)


def tallied(outcomes: Outcomes) -> list[dict[str, tally.Tally]]:
    """Return each source's tally of each kind of row; those that can hardly fail are in none."""
    all_claims = [entry.claim for entry in outcomes.entries]
    left_out = {entry.claim.id for entry in outcomes.entries if entry.weightless}
    rows: dict[str, dict[str, Row]] = {}
    for source in outcomes.sources:
        rows[source] = {entry.claim.id: entry.rows[source] for entry in outcomes.entries}
    return [
        {source: tally.counted(kind, own, all_claims, left_out) for source, own in rows.items()}
        for kind in tally.KINDS
    ]


def n_printed(outcomes: Outcomes) -> dict[str, int]:
    """Return the number of printed numbers, of those in tables, of tables, and of rows left out.

    Those are rows that can hardly fail or repeat another, tables' cells left out.
    """
    printed = [entry.claim for entry in outcomes.entries if entry.claim.paper is not None]
    tables = [tally.table_of(claim) for claim in printed if tally.table_of(claim)]
    apart = [e for e in outcomes.entries if e.weightless and not tally.table_of(e.claim)]
    return {
        "numbers": len(printed),
        "cells": len(tables),
        "tables": len({*tables}),
        "left_out": len(apart),
    }


# ---- parts of the page


def table_tests(outcomes: Outcomes) -> list[TableTest]:
    """Return the comparison of each of our tables with the author's."""
    rows = [entry.rows["ours"] for entry in outcomes.entries if "ours" in entry.rows]
    return list({row.table.name: row.table for row in rows if row.table is not None}.values())


def part(name: str, outcomes: Outcomes, *verdicts: str) -> Html:
    """Return a part of the page.

    Args:
        name: `tally`, how many numbers and findings got which verdict, each table counted once;
            `legend`, the verdicts with their meaning; `tables`, the comparisons of whole tables;
            `overview`, sections by sources with how many rows have which verdict, each count a link
            to those rows; `differing`, rows with some `verdicts` in sentences, the worst first;
            `grouped`, lists of such rows, those for the same `reason` together; or `ledger`, all
            rows as a table, with a form that filters it.
        outcomes: The ledger and its results.
        verdicts: The verdicts of the rows in a list.
    """
    entries = {}
    reasons: dict[str, dict[str, list[JudgedClaim]]] = {}
    for source in outcomes.sources:
        entries[source] = [e for e in outcomes.entries if e.verdict(source) in verdicts]
        reasons[source] = {}
        for entry in entries[source]:
            reasons[source].setdefault(reason(entry.rows[source]), []).append(entry)
    template = TEMPLATES.get_template("claims.html.j2")
    html = template.render(
        part=name,
        outcomes=outcomes,
        entries=outcomes.entries,
        some=entries,
        reasons=reasons,
        tests=table_tests(outcomes),
        kinds=tallied(outcomes),
        printed=n_printed(outcomes),
    ).strip()
    n_rows = len(outcomes.entries)
    if name in ("differing", "grouped"):
        n_rows = sum(map(len, entries.values()))
    text = f"{n_rows} differ" if name == "differing" else f"{n_rows} rows"
    if name != "ledger":
        return Html(html, text)
    rows = {}
    for source in outcomes.sources:
        rows[source] = [entry.rows[source] for entry in outcomes.entries]
    return Html(html, text, export.table(rows))


def share_a_rule(entries: Sequence[JudgedClaim]) -> bool:
    """Return True if several rows have one rule, reason and date, which need saying only once."""
    rules = set()
    for entry in entries:
        claim = entry.claim
        rules.add((claim.rule, claim.quantifier, entry.reason, claim.made, claim.since))
    return len(entries) > 1 and len(rules) == 1


def by_run(row: Row) -> str:
    """Return what was measured, each quantity with its values run by run."""
    lists = {}
    if row.runs:
        label = "runs" if len(row.runs) > 1 else "run"
        if row.keys != [str(number) for number in range(len(row.runs))]:
            label += f" {', '.join(row.keys)}"
        lists[label] = [text(value) for value in row.runs]
    for name, values in row.measured.items():
        lists[name.replace("_", " ")] = [_measured(value) for value in values]
    parts = []
    for name, texts in lists.items():
        is_same = len(texts) > 1 and len({*texts}) == 1
        listed = f"{texts[0]} in each" if is_same else ", ".join(texts)
        parts.append(f"{name}: {listed}")
    return sentence("; ".join(parts))


def _measured(value: Any) -> str:
    """Return an entry of a field in words, with its numbers written as those of runs are."""
    if isinstance(value, list):
        return " ".join(_measured(part) for part in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return text(value) if value is None or isinstance(value, float) else str(value)


TEMPLATES = environment()
TEMPLATES.filters |= {
    "by": lambda entries, name: results.gathered(entries, attrgetter(name)).items(),
    "distance": in_short,
    "number": text,
    "query": urlencode,
    "share_a_rule": share_a_rule,
    "frequent": lambda groups: sorted(groups.items(), key=lambda item: -len(item[1])),
}
TEMPLATES.globals |= {
    "at_bars": at_bars,
    "headings": HEADINGS,
    "sources": SOURCES,
    "rules": RULES | QUANTIFIERS,
    "number": number,
    "shown_in_words": shown_in_words,
    "meanings": MEANINGS,
    "by_run": by_run,
    "settled_by": settled_by,
}
