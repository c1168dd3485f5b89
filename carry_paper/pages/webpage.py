"""The claims page of the book: the ledger, which reads without a script, and filters and sorts with one.

Its HTML is `claims.html.j2`; `book/_static/claims.js` reads the `data-` attributes that are written
there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup, escape

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_paper import author
from carry_paper.ledger import claims, results
from carry_paper.ledger.claims import QUANTIFIERS, RULES, Claim
from carry_paper.ledger.report import badness, text
from carry_paper.ledger.results import Row
from carry_paper.ledger.verdicts import ENOUGH, EQUIVALENT, PAPER_RUNS, runs_show
from carry_paper.pages.box import TEMPLATES, Html, number

HEADINGS = {"author": "Author’s weights", "ours": "Our weights"}
SOURCES = {"author": "the author's weights", "ours": "our weights"}
REASONS = {
    "mixed": "Some of the runs show it, others do not",
    "mostly": "Two thirds of the runs or more show it, but not all of them, as the paper has it",
    "wide": "The runs scatter too much: the interval of the difference includes zero, and is not within"
    f" {EQUIVALENT:.0%} of the quantity's range",
    "short": f"Too few runs are here: it takes {ENOUGH} to say what all do, or most, and {PAPER_RUNS} that none does",
    "few": f"The paper's number is a mean over {PAPER_RUNS} runs, and fewer of them are here",
    "one": "There is one run on each side, and nothing says how far two runs lie apart",
}  # why a row is neither reproduced nor differs, as a sentence without its end


@dataclass(frozen=True)
class Entry:
    """A claim and what became of it, by source."""

    claim: Claim
    rows: dict[str, Row]
    order: dict[str, int]  # the worst come first
    weightless: str = ""  # why it can hardly fail and is counted apart; empty if it can

    def verdict(self, source: str) -> str:
        return self.rows[source].verdict

    @property
    def kind(self) -> str:
        """What it is counted among: numbers, findings, and what the ledger has besides."""
        if self.claim.paper is None:
            return "findings" if self.claim.finding else "beyond the paper"
        return "numbers that can hardly fail" if self.weightless else "numbers"


@dataclass(frozen=True)
class Outcomes:
    """Every claim in the ledger's order, for some of `SOURCES`; by source, the sha256 of the files behind its rows."""

    sources: tuple[str, ...]
    entries: tuple[Entry, ...]
    weights: dict[str, dict[str, str]]

    def origin(self, source: str) -> str:
        """A sentence on the weights behind a source's results, and whether they are still those that lie here."""
        files = self.weights[source]
        if source == "author":
            return f"The author's weights are {len(files)} of the {len(author.checksums())} files of his release."
        if results.weights(source) != files:
            return "**The results are stale**: other weights lie here now; run `carry claims --source ours --save`."
        trained = []
        for group in sorted({name.split("/")[1] for name in files}):
            records = [runs.describe(path)["record"] for path in runs.find(group).values()]
            recipe, n_runs = (
                records[0]["recipe"],
                f"{len(records)} run{'s' if len(records) > 1 else ''}",
            )
            reached = runs.progress(groups.find(group), recipe, records[0]["epochs"])
            trained.append(f"{group} (recipe “{recipe}”, {n_runs}, epochs: {reached})")
        return f"Our weights: {', '.join(trained) if trained else 'none yet'}."


def read(source: str | None = None) -> Outcomes:
    """The ledger with the committed results of one source, or of both (None); `BadInput` if they cannot be read.

    A claim that the results do not know, or that has been given another number since, is `not run`.
    """
    if source is not None and source not in tuple(SOURCES):
        raise BadInput(f"Unknown source {source!r}: expected 'ours', 'author', or None for both.")
    known, weightless = (
        claims.claims(),
        results.uninformative({s: results.by_id(s) for s in SOURCES}),
    )
    rows: dict[str, dict[str, Row]] = {}
    order, weights = {}, {}
    for s in SOURCES if source is None else (source,):
        saved, why = (
            results.read(s),
            f"Newer than the results: `carry claims --source {s} --save` computes it.",
        )
        stored = {
            row.id: row
            for row in saved["rows"]
            if row.id in known and row.paper == known[row.id].paper
        }
        rows[s] = {
            name: stored.get(name) or Row(name, c.where, c.paper, detail=why)
            for name, c in known.items()
        }
        order[s] = {row.id: i for i, row in enumerate(sorted(rows[s].values(), key=badness))}
        weights[s] = saved["weights"]
    entries = [
        Entry(
            claim,
            {s: rows[s][name] for s in rows},
            {s: order[s][name] for s in rows},
            weightless.get(name, ""),
        )
        for name, claim in known.items()
    ]
    return Outcomes(tuple(rows), tuple(entries), weights)


def reason(source: str, entry: Entry) -> str:
    """Why a source's row is neither reproduced nor differs, as a sentence without its end."""
    row = entry.rows[source]
    if row.verdict == "not run":
        return row.detail.rstrip(".")
    if row.verdict in REASONS:
        return REASONS[row.verdict]
    if row.paper is None:
        return REASONS["short"]
    return REASONS[
        "wide" if row.interval is not None else "few" if row.tolerance is not None else "one"
    ]


def part(name: str, outcomes: Outcomes, *verdicts: str) -> Html:
    """A part of the page.

    `overview` is sections by sources with how many rows have which verdict, each count a link to
    those rows; `differing` has rows with some `verdicts` in sentences, the worst first; `grouped`
    lists of such rows, those for the same `reason` together; and `ledger` is the whole of it as one
    table, with what filters it.
    """
    some = {
        s: [entry for entry in outcomes.entries if entry.verdict(s) in verdicts]
        for s in outcomes.sources
    }
    reasons = {s: results.gathered(entries, partial(reason, s)) for s, entries in some.items()}
    template = TEMPLATES.get_template("claims.html.j2", globals=NAMES)
    html = template.render(
        part=name, outcomes=outcomes, entries=outcomes.entries, some=some, reasons=reasons
    ).strip()
    count = (
        sum(map(len, some.values())) if name in ("differing", "grouped") else len(outcomes.entries)
    )
    return Html(html, f"{count} differ" if name == "differing" else f"{count} rows")


def words(plain: str) -> Markup:
    """Plain text as HTML, with what stands between backticks as code, and a minus for a hyphen before a number."""
    return Markup(
        re.sub(
            r"`([^`]+)`", r"<code>\1</code>", re.sub(r"(?<![^\We])-(?=\d)", "−", str(escape(plain)))
        )
    )


def flat(value: Any) -> list[float]:
    """The numbers in a value of a row: a number, a list of them, None; nothing of deeper lists."""
    values = value if isinstance(value, list) else [value]
    return [float(x) for x in values if isinstance(x, (int, float))]


def domain(claim: Claim, rows: Mapping[str, Row]) -> tuple[float, float]:
    """The ends of a row's drawing: 0 and 1 for what ranges between them, else such that all values lie between."""
    values = flat(claim.paper) + [
        x for row in rows.values() for run in [row.value, *row.runs] for x in flat(run)
    ]
    if claim.range == 1 and min(values) >= 0 and max(values) <= 1:
        return 0.0, 1.0
    allowed = max(
        [row.tolerance for row in rows.values() if row.tolerance is not None], default=0.0
    )
    values += [x + side * allowed for x in flat(claim.paper) for side in (-1, 1)]
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 1, high + 1)


def x(value: float, low: float, high: float) -> float:
    """Where a value stands between the ends of the drawing, in px."""
    return round(6 + 168 * (min(max(value, low), high) - low) / (high - low), 1)


def ranges(claim: Claim, rows: Mapping[str, Row]) -> str:
    """A row's drawing in words: from where to where runs lie, and the paper's value; nothing where there are none."""
    words = []
    for source, row in rows.items():
        if values := [value for run in row.runs for value in flat(run)]:
            n = "1 run" if len(row.runs) == 1 else f"{len(row.runs)} runs"
            words.append(f"{n} of {SOURCES[source]}: {text(min(values))} to {text(max(values))}")
    if words and claim.paper is not None:
        words.append(f"paper: {text(claim.paper)}")
    return "; ".join(words)


TEMPLATES.filters |= {
    "by": lambda entries, name: results.gathered(entries, attrgetter(name)).items(),
    "flat": flat,
    "number": text,
    "query": urlencode,
    "frequent": lambda groups: sorted(groups.items(), key=lambda item: -len(item[1])),
    "slug": lambda name: name.lower().replace(" ", "-"),
    "words": words,
}
NAMES: dict[str, Any] = {"headings": HEADINGS, "sources": SOURCES, "rules": RULES | QUANTIFIERS}
NAMES |= {function.__name__: function for function in (number, runs_show, domain, x, ranges)}
