"""The claims page of the book: the ledger as HTML that reads without a script, and filters and sorts with one.

`book/_static/claims.js` reads the `data-` attributes that are written here; `claims.css` gives them their looks.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from carry_core import author, groups, runs
from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_core.ledger import claims, names, results
from carry_core.ledger.claims import Claim
from carry_core.ledger.results import Row
from carry_core.ledger.verdicts import ENOUGH, FINDING_RULES, PAPER_RUNS, RULES, VERDICTS, WIDEST

PAPER = "https://arxiv.org/abs/2401.07993"
MARKS = {"reproduced": "✓", "undecided": "?", "differs": "≠", "not run": "–"}  # none relies on its colour
HEADINGS = {"author": "Author’s weights", "ours": "Our weights"}
FEW = 3  # rows that a list names at once; more open at a click


SOURCES = {"author": "the author's weights", "ours": "our weights"}
CAUSES = {
    "scatter": "The runs scatter too much: the interval in which the difference to the paper would have to lie is wider"
    " than a quarter of the range of the quantity, so that agreement would mean little",
    "some": "Most runs show it, but not all of them",
    "none": "It is said of some runs; none at hand shows it, but these are fewer than the paper had",
    "short": f"Fewer than {ENOUGH} runs are at hand, which cannot say what every run does, or most",
    "few": f"The paper's number is a mean over {PAPER_RUNS} runs, and fewer of them are at hand",
    "one": "There is one run on each side, and nothing says how far two runs lie apart",
}  # why a row is undecided, as a sentence without its end


@dataclass(frozen=True)
class Entry:
    """A claim and what became of it, by source; `order` says the worst come first, by source."""

    claim: Claim
    rows: dict[str, Row]
    order: dict[str, int]

    @property
    def title(self) -> str:
        """The claim in words."""
        return names.title(self.claim)

    def verdict(self, source: str) -> str:
        """What became of it."""
        return self.rows[source].verdict


@dataclass(frozen=True)
class Outcomes:
    """The whole ledger for some sources.

    Attributes:
        sources: among `SOURCES`, in that order.
        entries: every claim, in the ledger's order.
        weights: by source, the sha256 of each file behind its results.
    """

    sources: tuple[str, ...]
    entries: tuple[Entry, ...]
    weights: dict[str, dict[str, str]]

    def count(self, source: str, verdict: str, *, findings: bool | None = None, section: str = "") -> int:
        """How many claims have a verdict: numbers, findings or both (None), of one section or of all."""
        return sum(e.verdict(source) == verdict for e in self.chosen(findings=findings, section=section))

    def chosen(self, *, findings: bool | None = None, section: str = "") -> list[Entry]:
        """Claims that are numbers, findings or either (None), of one section or of all."""
        return [
            e
            for e in self.entries
            if findings in (None, e.claim.paper is None) and section in ("", names.place(e.claim.id)[0].key)
        ]

    def runs_that_show(self, name: str) -> str:
        """How many runs of each source show a finding, such as `5 of 6 of the author's runs, 4 of 6 of ours`."""
        (entry,) = [e for e in self.entries if e.claim.id == name]
        whose, told = {"author": "of the author's runs", "ours": "of ours"}, []
        for source in self.sources:
            counts = entry.rows[source].shown
            missing = f"{entry.verdict(source)} with {SOURCES[source]}"
            told.append(f"{counts[0]} of {counts[1]} {whose[source]}" if counts else missing)
        return ", ".join(told)

    def undecided(self, source: str) -> dict[str, list[Entry]]:
        """The claims that a source leaves undecided, by the key of their cause in `CAUSES`."""
        found: dict[str, list[Entry]] = {cause: [] for cause in CAUSES}
        for entry in self.entries:
            if entry.verdict(source) == "undecided":
                found[cause(entry.claim, entry.rows[source])].append(entry)
        return {key: entries for key, entries in found.items() if entries}

    def waiting(self, source: str) -> dict[str, list[Entry]]:
        """The claims that were not run from a source, by the reason."""
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            if entry.verdict(source) == "not run":
                found.setdefault(entry.rows[source].detail, []).append(entry)
        return found

    def origin(self, source: str) -> str:
        """A sentence on the weights behind a source's results, and whether they are still those that lie here."""
        files = self.weights[source]
        if source == "author":
            return f"The author's weights are {len(files)} of the {len(author.checksums())} files of his release."
        if results.weights(source) != files:
            return "**The results are stale**: other weights lie here now; run `carry claims --source ours --save`."
        found = []
        for group in sorted({name.split("/")[1] for name in files}):
            record = runs.load(group).record
            reached = groups.reached(group, record["recipe"], record["epochs"])
            n_runs = f"{len(record['runs'])} run{'s' * (len(record['runs']) != 1)}"
            found.append(f"{group} (recipe “{record['recipe']}”, {n_runs}, epochs: {reached})")
        return f"Our weights: {', '.join(found) if found else 'none yet'}."


def read(source: str | None = None) -> Outcomes:
    """The ledger with the committed results of one source, or of both (None).

    A claim that the results do not know, or that has been given another number since, is `not run`.

    Raises:
        BadInput: unknown source, or the ledger or the results cannot be read.
    """
    if source is not None and source not in SOURCES:
        raise BadInput(f"Unknown source {source!r}: expected 'ours', 'author', or None for both.")
    sources = tuple(SOURCES) if source is None else (source,)
    known_claims, saved = claims.claims(), {s: results.read(s) for s in sources}
    known = {s: {row.id: row for row in saved[s]["rows"]} for s in sources}
    rows = {s: [_current(claim, s, known[s].get(claim.id)) for claim in known_claims.values()] for s in sources}
    ranks = {s: _ranks(rows[s]) for s in sources}
    entries = [
        Entry(claim, {s: rows[s][i] for s in sources}, {s: ranks[s][i] for s in sources})
        for i, claim in enumerate(known_claims.values())
    ]
    return Outcomes(sources, tuple(entries), {s: saved[s]["weights"] for s in sources})


def _current(claim: Claim, source: str, row: Row | None) -> Row:
    if row is not None and row.paper == claim.paper:
        return row
    detail = f"Newer than the results: `carry claims --source {source} --save` computes it."
    return Row(claim.id, claim.where, claim.paper, None, None, [], None, "not run", detail)


def _ranks(rows: Sequence[Row]) -> list[int]:
    order = sorted(range(len(rows)), key=lambda i: badness(rows[i]))
    return [order.index(i) for i in range(len(rows))]


def badness(row: Row) -> tuple[int, float]:
    """A key to sort by: the worst verdict first, then the farthest from the paper for what is allowed."""
    order = VERDICTS.index(row.verdict)
    if not isinstance(row.value, (int, float)) or not isinstance(row.paper, (int, float)):
        return order, 0.0
    return order, -abs(row.value - row.paper) / (row.tolerance or 1.0)


def cause(claim: Claim, row: Row) -> str:
    """Why a row is undecided, as a key of `CAUSES`."""
    if claim.paper is None:
        counts = row.shown
        return "none" if claim.rule == "some" else "short" if counts and counts[1] < ENOUGH else "some"
    if row.tolerance is None:
        return "one"
    return "scatter" if 2 * row.tolerance > WIDEST * claim.range else "few"


def text(value: Any) -> str:
    """A number of a row, or a list of them, as short as it can be read."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return "[" + ", ".join(map(text, value)) + "]"
    if isinstance(value, float) and value != int(value):
        if abs(value) < 0.01:
            return f"{value:.2g}"
        return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"
    return f"{int(value)}" if abs(value) < 1e4 else f"{int(value):,}"


def printed(claim: Claim) -> str:
    """The paper's number with the places that it has there."""
    places = max(0, round(-math.log10(claim.unit)))

    def one(value: Any) -> str:
        if isinstance(value, list):
            return "[" + ", ".join(map(one, value)) + "]"
        return f"{value:.{places}f}" if isinstance(value, float) and places else text(value)

    return one(claim.paper)


@dataclass(frozen=True)
class Html:
    """A piece of the page; `summary` is what stands in its place where there is no HTML."""

    html: str
    summary: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.summary


def tag(element: str, /, *inside: str, **attributes: Any) -> str:
    """An element. `inside` is HTML; attributes are escaped, and left out if None or False; `class_` is `class`."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    line = "\n" if element in ("tr", "li") else ""  # so that a row that changes is a line that changes
    return f"{line}<{element}{written}>{''.join(inside)}</{element}>"


def words(plain: str) -> str:
    """Plain text as HTML, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(plain, quote=False))


def pages(root: Path = ROOT) -> frozenset[str]:
    """The notebooks that the book has: they are there, and its table of contents names them."""
    toc = root / "_toc.yml"
    parts = yaml.safe_load(toc.read_text())["parts"] if toc.exists() else []
    named = [Path(chapter["file"]) for part in parts for chapter in part["chapters"]]
    return frozenset(path.name for path in named if (root / path).with_suffix(".ipynb").exists())


# ---------------------------------------------------------------- the text on top


def counted(outcomes: Outcomes, source: str) -> str:
    """A sentence in Markdown: how much of the paper a source gives back."""

    def counts(*, findings: bool) -> str:
        n = {verdict: outcomes.count(source, verdict, findings=findings) for verdict in VERDICTS}
        ran = sum(n.values()) - n["not run"]
        what = "findings" if findings else "numbers"
        return (
            f"{n['reproduced']} of the {ran} {what} that could be computed are **reproduced**, {n['differs']}"
            f" **{'differs' if n['differs'] == 1 else 'differ'}** and {n['undecided']}"
            f" {'is' if n['undecided'] == 1 else 'are'} **undecided**; {n['not run']} more"
            f" {'was' if n['not run'] == 1 else 'were'} **not run**"
        )

    chance = _by_chance(outcomes) if source == "ours" else ""
    return (
        f"From {SOURCES[source]}, {counts(findings=False)}.{chance} Of what it says in words, {counts(findings=True)}."
    )


def _by_chance(outcomes: Outcomes) -> str:
    """A sentence: how many of our numbers would differ if ours and the paper's runs were of one kind."""
    judged = [entry.verdict("ours") for entry in outcomes.entries if entry.claim.rule not in ("exact", *FINDING_RULES)]
    decided = sum(verdict in ("reproduced", "differs") for verdict in judged)
    return (
        f" A 95% interval decides {decided} of the numbers, so {0.05 * decided:.0f} or so would differ by chance alone."
    )


def glued(outcomes: Outcomes) -> dict[str, int]:
    """The counts that other pages glue in, such as `numbers_ours_differs` and `findings_author_not_run`."""
    kinds = {"numbers": False, "findings": True}
    return {
        f"{kind}_{source}_{verdict.replace(' ', '_')}": outcomes.count(source, verdict, findings=findings)
        for kind, findings in kinds.items()
        for source in outcomes.sources
        for verdict in VERDICTS
    }


def glued_findings(outcomes: Outcomes) -> dict[str, str]:
    """`Outcomes.runs_that_show` of each finding, such as `shown_decision_head`."""
    ids = [e.claim.id for e in outcomes.chosen(findings=True)]
    return {f"shown_{name.removeprefix('finding/')}": outcomes.runs_that_show(name) for name in ids}


def overview(outcomes: Outcomes) -> Html:
    """A table of sections by sources: how many rows have which verdict, each count a link to those rows."""
    header = [tag("th", "Part of the paper", scope="col"), tag("th", "Rows", scope="col")]
    header += [tag("th", HEADINGS[source], scope="col") for source in outcomes.sources]
    lines = []
    for section in names.SECTIONS:
        if entries := outcomes.chosen(section=section.key):
            parts = "; ".join(section.parts.values()) if all(section.parts.values()) else ""
            name = tag("strong", escape(section.title)) + (tag("small", " ", escape(parts)) if parts else "")
            bars = [tag("td", _bar(outcomes, source, section.key)) for source in outcomes.sources]
            lines.append(tag("tr", tag("th", name, scope="row"), tag("td", str(len(entries))), *bars))
    bars = [tag("td", _bar(outcomes, source)) for source in outcomes.sources]
    lines.append(tag("tr", tag("th", "All", scope="row"), tag("td", str(len(outcomes.entries))), *bars))
    caption = tag("caption", "Verdicts by part of the paper")
    html = tag("table", caption, tag("thead", tag("tr", *header)), tag("tbody", *lines), class_="claims-overview")
    return Html(html, "; ".join(counted(outcomes, source) for source in outcomes.sources))


def _bar(outcomes: Outcomes, source: str, section: str = "") -> str:
    parts = []
    for verdict, mark in MARKS.items():
        if n := outcomes.count(source, verdict, section=section):
            filters = {"verdict": verdict, "source": source, "section": section}
            query = urlencode({key: value for key, value in filters.items() if value})
            inside = [tag("span", mark, aria_hidden="true"), f" {n}", tag("span", f" {verdict}", class_="claims-sr")]
            css = {"class_": _class(verdict), "style": f"flex-grow: {n}", "title": verdict}
            parts.append(tag("a", *inside, href="#claims", data_filter=query, **css))
    return tag("div", *parts, class_="claims-bar")


def differing(outcomes: Outcomes) -> Html:
    """What differs from the paper, in sentences."""
    lists = []
    for source in outcomes.sources:
        entries = [entry for entry in outcomes.entries if entry.verdict(source) == "differs"]
        lines = [tag("li", _link(entry), " ", _why_differs(entry, source)) for entry in _by_order(entries, source)]
        heading = f"From {SOURCES[source]}: {_rows(len(lines))}."
        lists.append(tag("p", tag("strong", escape(heading))) + (tag("ul", *lines) if lines else ""))
    return Html(tag("div", *lists, class_="claims-list"), f"{sum(x.count('<li>') for x in lists)} differ")


def _why_differs(entry: Entry, source: str) -> str:
    row = entry.rows[source]
    if entry.claim.paper is None:
        k, n = row.shown or (0, 0)
        runs = f"{k} of {n} runs show it" if n > 1 else "the one run does not show it"
        rule = RULES[entry.claim.rule].removeprefix("a finding: ")
        more = f"A finding is {rule}. Measured: {entry.claim.measure}."
        return f"({escape(row.where)}): {runs}. " + tag("small", words(more))
    numbers = f"the paper prints {printed(entry.claim)}, {SOURCES[source]} give {text(row.value)}"
    allowed = f", and {text(row.tolerance)} would be allowed" if row.tolerance else ""
    return f"({escape(row.where)}): {numbers}{allowed}. " + tag("small", words(row.detail))


def undecided(outcomes: Outcomes) -> Html:
    """What is undecided, by the reason why."""
    return _grouped(
        (source, CAUSES[cause], entries)
        for source in outcomes.sources
        for cause, entries in outcomes.undecided(source).items()
    )


def waiting(outcomes: Outcomes) -> Html:
    """What was not run, by what it waits for."""
    return _grouped(
        (source, reason.rstrip("."), entries)
        for source in outcomes.sources
        for reason, entries in sorted(outcomes.waiting(source).items(), key=lambda item: -len(item[1]))
    )


def _grouped(found: Iterable[tuple[str, str, list[Entry]]]) -> Html:
    lists, total = [], 0
    for source, some in groupby(found, key=lambda item: item[0]):
        lines, here = [], 0
        for _, reason, entries in some:
            here += len(entries)
            lines.append(tag("li", words(reason), ". ", _listed(entries)))
        lists.append(tag("p", tag("strong", escape(f"From {SOURCES[source]}: {_rows(here)}."))) + tag("ul", *lines))
        total += here
    return Html(tag("div", *lists, class_="claims-list"), f"{total} rows")


def _listed(entries: Sequence[Entry]) -> str:
    if len(entries) <= FEW:
        return "; ".join(map(_link, entries)) + "."
    parts = [
        tag("p", tag("strong", escape(heading)), ": ", "; ".join(map(_link, members)))
        for heading, members in _by_heading(entries).items()
    ]
    return tag("details", tag("summary", _rows(len(entries))), *parts)


def _by_heading(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(names.heading(entry.claim.id), []).append(entry)
    return groups


def _rows(n: int) -> str:
    return "no row" if n == 0 else "1 row" if n == 1 else f"{n} rows"


def _link(entry: Entry) -> str:
    return tag("a", escape(entry.title), href=f"#{entry.claim.id}")


def _by_order(entries: Sequence[Entry], source: str) -> list[Entry]:
    return sorted(entries, key=lambda entry: entry.order[source])


# ---------------------------------------------------------------- the whole ledger


def ledger(outcomes: Outcomes, known: frozenset[str] | None = None) -> Html:
    """The whole ledger as one table, with what filters it.

    Args:
        outcomes: what to show.
        known: notebooks that can be linked to; those of `pages()` if None.
    """
    known = pages() if known is None else known
    columns = [("Claim", "order"), ("Paper", "paper"), *((HEADINGS[s], s) for s in outcomes.sources)]
    head = [tag("th", title, scope="col", role="columnheader", data_sort=key) for title, key in columns]
    head += [tag("th", title, scope="col", role="columnheader") for title in ("Runs", "Page", "How")]
    bodies = []
    for heading, entries in _by_heading(outcomes.entries).items():
        group = tag("th", escape(heading), scope="rowgroup", role="rowheader", colspan=len(head))
        rows = [_row(entry, outcomes.sources, known) for entry in entries]
        bodies.append(tag("tbody", tag("tr", group, class_="claims-group", role="row"), *rows, role="rowgroup"))
    caption = "What the paper prints or says, and what the weights give"
    html = tag(
        "table", tag("caption", caption), tag("thead", tag("tr", *head, role="row"), role="rowgroup"), *bodies,
        class_="claims-table", role="table",
    )  # fmt: skip
    return Html(tag("div", _form(outcomes), html, id="claims", class_="claims"), f"{len(outcomes.entries)} rows")


def _form(outcomes: Outcomes) -> str:
    def choice(label: str, name: str, options: Iterable[tuple[str, str]]) -> str:
        inside = [tag("option", escape(title), value=value) for value, title in options]
        return tag("label", escape(label), " ", tag("select", *inside, name=name))

    present = {s.key: s.title for s in (names.place(entry.claim.id)[0] for entry in outcomes.entries)}
    fields = [choice("Verdict", "verdict", [("", "any"), *((verdict, verdict) for verdict in MARKS)])]
    if len(outcomes.sources) > 1:
        fields.append(choice("Source", "source", [("", "either"), *((s, SOURCES[s]) for s in outcomes.sources)]))
    fields.append(choice("Part", "section", [("", "all"), *present.items()]))
    fields.append(tag("label", "Words ", tag("input", type="search", name="q", size="12").removesuffix("</input>")))
    fields += [tag("button", "Show all", type="reset"), tag("output")]
    return tag("form", *fields, class_="claims-form", role="search", aria_label="Filter the ledger", hidden=True)


def _row(entry: Entry, sources: Sequence[str], known: frozenset[str]) -> str:
    claim, number, section = entry.claim, entry.claim.paper, names.place(entry.claim.id)[0].key
    value = tag("b", "in words" if number is None else printed(claim))
    anchor = tag("a", escape(claim.id), href=f"#{claim.id}", class_="claims-id", title="Link to this row")
    where = tag("a", escape(claim.where), href=PAPER)
    page = names.page(claim.notebook)
    linked = tag("a", escape(page), href=f"{claim.notebook}.html") if claim.notebook in known else escape(page)
    cells = [
        tag("th", escape(entry.title), scope="row", role="rowheader"),
        tag("td", value, tag("small", where), **_cell("Paper")),
        *(tag("td", _result(entry.rows[source], claim), **_cell(HEADINGS[source])) for source in sources),
        tag("td", strip(claim, entry.rows) or "–", **_cell("Runs")),
        tag("td", linked, **_cell("Page")),
        tag("td", anchor, _how(entry, sources), **_cell("How")),
    ]
    verdicts = {f"data_{source}": entry.verdict(source) for source in sources}
    ranks = {f"data_rank_{source}": entry.order[source] for source in sources}
    paper = number if isinstance(number, (int, float)) else None
    return tag("tr", *cells, id=claim.id, role="row", data_section=section, data_paper=paper, **verdicts, **ranks)


def _cell(label: str) -> dict[str, str]:
    return {"role": "cell", "data_label": label}


def _class(verdict: str) -> str:
    return f"claims-verdict {verdict.replace(' ', '-')}"


def _result(row: Row, claim: Claim) -> str:
    mark = tag("span", MARKS[row.verdict], aria_hidden="true")
    parts = [tag("span", mark, " ", row.verdict, class_=_class(row.verdict))]
    if row.value is not None:
        spread = f" ± {text(row.std)}" if isinstance(row.std, float) else ""
        parts.append(tag("span", tag("b", escape(text(row.value))), spread, class_="claims-value"))
    if counts := row.shown:
        parts.append(tag("small", f"{counts[0]} of {counts[1]} runs show it"))
    if results.disagreement(row, claim.range):
        parts.append(tag("small", "runs disagree"))
    parts += [tag("small", training) for training in row.trainings]
    return "".join(parts)


def _how(entry: Entry, sources: Sequence[str]) -> str:
    claim = entry.claim
    about = [("Measured", claim.measure), ("In the paper", claim.note), ("Rule", f"{RULES[claim.rule]} ({claim.rule})")]
    about.append(("Why this rule", claim.reason))
    for source in sources:
        row = entry.rows[source]
        runs = f"Runs: {', '.join(map(text, row.runs))}. " if row.runs else ""
        allowed = f"Allowed: ± {text(row.tolerance)}. " if row.tolerance is not None else ""
        about.append((HEADINGS[source], f"{runs}{allowed}{row.detail}"))
    inside = [tag("dt", title) + tag("dd", words(said)) for title, said in about if said]
    return tag("details", tag("summary", "How"), tag("dl", *inside))


# ---------------------------------------------------------------- the runs of a row as dots on a line


WIDTH, LANE, EDGE, FOOT = 180, 14, 6, 10  # in px


def flat(value: Any) -> list[float]:
    """The numbers in a value of a row: a number, a list of them, None; nothing of deeper lists."""
    values = value if isinstance(value, list) else [value]
    return [float(x) for x in values if isinstance(x, (int, float))]


def domain(claim: Claim, rows: Mapping[str, Row]) -> tuple[float, float]:
    """The ends of the line: 0 and 1 for what ranges between them, else what holds the paper's value and all runs."""
    values = flat(claim.paper) + [x for row in rows.values() for run in [row.value, *row.runs] for x in flat(run)]
    low, high = min(values), max(values)
    if claim.range == 1 and low >= 0 and high <= 1:
        return 0.0, 1.0
    allowed = max([row.tolerance for row in rows.values() if row.tolerance is not None], default=0.0)
    for printed in flat(claim.paper):
        low, high = min(low, printed - allowed), max(high, printed + allowed)
    return (low, high) if high > low else (low - 1, high + 1)


def strip(claim: Claim, rows: Mapping[str, Row]) -> str:
    """The strip of a row, empty where there are no runs.

    Dots are runs, a tick is what is judged, the long line is the paper's value, the band what is allowed.
    """
    if not any(flat(run) for row in rows.values() for run in row.runs):
        return ""
    low, high = domain(claim, rows)
    drawn = []

    def x(value: float) -> float:
        return round(EDGE + (WIDTH - 2 * EDGE) * (min(max(value, low), high) - low) / (high - low), 1)

    for lane, (source, row) in enumerate(rows.items()):
        y = LANE * lane + LANE / 2
        drawn.append(f'<path class="axis" d="M{EDGE} {y:g}H{WIDTH - EDGE}"/>')
        for value in flat(claim.paper) if row.value is not None else []:
            left, right = (x(value + side * (row.tolerance or 0.0)) for side in (-1, 1))
            drawn.append(f'<path class="band" d="M{left:g} {y:g}H{max(right, left + 1):g}"/>')
        if dots := [x(value) for run in row.runs for value in flat(run)]:
            path = "".join(f"M{dot:g} {y:g}h0" for dot in dots)
            drawn.append(f'<path class="{source}" d="{path}"/>')
        drawn += [f'<path class="judged" d="M{x(value):g} {y - 5:g}v10"/>' for value in flat(row.value)]
    height = LANE * len(rows)
    drawn += [f'<path class="paper" d="M{x(value):g} 0V{height}"/>' for value in flat(claim.paper)]
    if (low, high) != (0.0, 1.0):
        drawn.append(f'<text x="{EDGE}" y="{height + FOOT - 1}">{low:.3g}</text>')
        drawn.append(f'<text x="{WIDTH - EDGE}" y="{height + FOOT - 1}" text-anchor="end">{high:.3g}</text>')
        height += FOOT
    name = escape(_said(claim, rows))
    return (
        f'<svg class="claims-strip" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-label="{name}">{"".join(drawn)}</svg>'
    )


def _said(claim: Claim, rows: Mapping[str, Row]) -> str:
    parts = []
    for source, row in rows.items():
        if values := [value for run in row.runs for value in flat(run)]:
            ends = f"{text(min(values))} to {text(max(values))}"
            parts.append(f"{len(row.runs)} {'run' if len(row.runs) == 1 else 'runs'} of {SOURCES[source]}: {ends}")
    if claim.paper is not None:
        parts.append(f"paper: {text(claim.paper)}")
    return "; ".join(parts)
