"""The ledger on a page: the verdict box at its top, and its rows as a table.

Both are made from the committed results, so they need no weights and are the same wherever a page is run. A page that
is run with another group than the claims are about says what the paper claims, and judges nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from pandas.io.formats.style import Styler

from carry_core import carries, groups
from carry_core.files import RESOURCES
from carry_core.ledger import quantities, results
from carry_core.ledger.claims import CLASSES, Claim, chosen, claims
from carry_core.ledger.results import Row

SOURCES = {"author": "author’s weights", "ours": "ours"}
LONG = 12  # rows of a ledger table from which on it is collapsed
SAID = {"all": "all runs", "most": "most runs", "some": "some runs", "one": "one run", "none": "no run"}
SIGNS = {"reproduced": "✓", "mostly": "≈", "mixed": "±", "compatible": "?", "differs": "≠", "not run": "–"}

TEMPLATES = Environment(loader=FileSystemLoader(RESOURCES), autoescape=True, trim_blocks=True, lstrip_blocks=True)


@dataclass(frozen=True)
class Html:
    """Something for `plots.page.show`; `text` stands in its place where there is no HTML."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


def counted(n: int, verdict: str) -> str:
    """How many rows have a verdict: `1 differs`, `8 differ`, `3 mostly reproduced`."""
    words = {"mostly": "mostly reproduced", "differs": "differs" if n == 1 else "differ"}
    return f"{n} {words.get(verdict, verdict)}"


def address(name: str) -> str:
    """Where a row stands on the built site, from a page of `notebooks` or `book`."""
    return f"../notebooks/claims.html#{name}"


def pill(name: str, verdict: str, count: int | None = None) -> Markup:
    """A verdict that links to the row of the ledger which has it; with how many have it, for a table."""
    words = f"{SIGNS[verdict]} {verdict if count is None else counted(count, verdict)}"
    link = '<a class="verdict {}" href="{}">{}</a>'
    return Markup(link).format(verdict.replace(" ", "-"), address(name), words)


@dataclass(frozen=True)
class Side:
    """What one source has of some claims: a value in words, the verdicts as links and in words, how many runs."""

    value: str
    pills: list[Markup]
    verdicts: str
    n: int


@dataclass(frozen=True)
class Entry:
    """A line of the box: one claim, or all cells of a table.

    Attributes:
        words: what the paper claims.
        claims: one, or those of the cells.
        rows: their results, by source.
    """

    words: str
    claims: list[Claim]
    rows: dict[str, list[Row]]

    @property
    def where(self) -> str:
        return self.claims[0].where

    @property
    def paper(self) -> str:
        """The printed number, or of how many runs the paper says it; nothing for a table."""
        claim = self.claims[0]
        if claim.finding:
            return "one run" if claim.single else SAID[claim.quantifier]
        return number(claim.paper, claim) if len(self.claims) == 1 and claim.paper is not None else ""

    @property
    def groups(self) -> list[str]:
        return sorted({name for claim in self.claims for name in quantities.groups_of(claim.id)})

    def side(self, source: str) -> Side | None:
        """What a source has; None where it has no results."""
        found = self.rows[source]
        if not found:
            return None
        row, counts = found[0], Counter(row.verdict for row in found)
        if len(self.claims) > 1:
            value = f"{len(found)} cells"
        elif row.shown:
            value = f"{row.shown[0]} of {row.n} run{'s' if row.n > 1 else ''}"
        else:
            value = number(row.value, self.claims[0])
        first = {row.verdict: row.id for row in reversed(found)}
        verdicts = [v for v in SIGNS if counts[v]]
        several = len(verdicts) > 1  # then with how many they are
        pills = [pill(first[v], v, counts[v] if several else None) for v in verdicts]
        words = ", ".join(counted(counts[v], v) if several else v for v in verdicts)
        return Side(value, pills, words, max(row.n for row in found))

    def difference(self, source: str) -> str:
        """In words what is not as the paper has it in a source's runs; nothing where all is."""
        found = self.rows[source]
        if all(row.verdict == "reproduced" for row in found):
            return ""
        if len(self.claims) == 1:
            return difference(self.claims[0], found[0])
        pairs = [(row, c) for row, c in zip(found, self.claims, strict=False) if row.value is not None]
        row, claim = max(pairs, key=lambda pair: abs(pair[0].value - pair[1].paper), default=(None, self.claims[0]))
        gap = difference(claim, row) if row else ""
        return f"largest gap in {claim.words.partition(': ')[2]}: {gap}" if gap else ""


def number(value: Any, claim: Claim) -> str:
    """A value with the places that the paper's number has, heads as `layer:head`; a dash for none."""
    if isinstance(value, list):
        heads = all(isinstance(x, int) for x in value)
        return (":" if heads else ", ").join(number(x, claim) for x in value)
    if value is None:
        return "–"
    places = max(0, round(-log10(claim.unit)))
    return f"{round(value, places) + 0.0:,.{places if isinstance(value, float) else 0}f}".replace("-", "−")  # no -0.00


def difference(claim: Claim, row: Row) -> str:
    """In words how a row differs from what the paper has; nothing of one that was not run, as its verdict says so."""
    if row.value is None:
        return ""
    if row.shown:
        without = [key for key, shows in zip(row.keys, row.fields["shows"], strict=True) if not shows]
        if not without:
            return ""
        return "in no run" if len(without) == len(row.keys) else f"not in {of_groups(without)}"
    if isinstance(row.value, list):
        return ""
    paper, ours = number(claim.paper, claim), number(row.value, claim)
    return f"{ours} against {paper} in the paper" if paper != ours else ""


def not_run(rows: Iterable[Row]) -> str:
    """Why rows were not run, without the commands that would change it; nothing where all were."""
    reasons = [row.detail.partition(": `")[0].rstrip(".") for row in rows if row.value is None]
    return "; ".join(why[:1].lower() + why[1:] for why in dict.fromkeys(reasons))


def of_groups(keys: Sequence[str | int]) -> str:
    """Which runs are meant: `runs 3 and 4`, or of a row on several groups, whose keys name them, `run 3 of …`."""
    by_group: dict[str, list[str]] = {}
    for key in keys:
        group, _, run = str(key).rpartition(" ")
        by_group.setdefault(group, []).append(run)
    words = []
    for group, runs in by_group.items():
        *some, last = runs
        which = f"runs {', '.join(some)} and {last}" if some else f"run {last}"
        words.append(f"{which} of {group}" if group else which)
    return "; ".join(words)


def _entry(words: str, some: list[Claim], rows: Mapping[str, Mapping[str, Row]]) -> Entry:
    """A line about some claims, with what each source's results have of them."""
    return Entry(words, some, {source: [row[c.id] for c in some if c.id in row] for source, row in rows.items()})


def verdict_box(wanted: Mapping[str, str], group: str | None = None, pages: bool = False) -> Html:
    """The box at the top of a page: what the paper claims, and what the author's weights and ours have of it.

    Args:
        wanted: in words what is claimed, by id, or by the beginning of ids for a whole table. Six rows can be read at a
            glance.
        group: the one that the page shows; where a claim is about others, nothing is judged.
        pages: whether each row links to the page that computes it, for a box that is about many pages.

    Raises:
        BadInput: no such id.
    """
    rows = {source: results.by_id(source) for source in SOURCES}
    weightless, entries = results.uninformative(rows), []
    for prefix, words in wanted.items():
        some = [claims()[prefix]] if prefix in claims() else chosen(prefix)
        entries.append(_entry(words, [claim for claim in some if claim.id not in weightless] or some, rows))
    judged = [e for e in entries if group is None or not e.groups or group in e.groups]
    own, others = (
        sorted({t for e in judged if (e.groups == [group]) == mine for row in e.rows["ours"] for t in row.trainings})
        for mine in (True, False)
    )
    template = TEMPLATES.get_template("box.html.j2")
    more: dict[str, Any] = {"group": group, "trainings": own, "others": others, "named": groups.find, "pages": pages}
    more["waiting"] = {source: not_run(row for e in judged for row in e.rows[source]) for source in SOURCES}
    html = template.render(entries=entries, judged=judged, **more)
    lines = []
    for entry in entries:
        sides = [entry.side(source) if entry in judged else None for source in SOURCES]
        told = [f"{name}: {x.value} {x.verdicts}" for name, x in zip(SOURCES.values(), sides, strict=True) if x]
        lines.append(" | ".join([entry.words, entry.paper, *told]))
    return Html(html, "\n".join(lines))


def ledger(*prefixes: str, group: str | None = None) -> Html:
    """The page's rows of the ledger: paper, author's weights, ours, runs, verdicts, and which of our runs differ.

    Args:
        prefixes: beginnings of ids, such as `tab1/` or `finding/decision_head`.
        group: the one that the page shows; rows about others name theirs.

    Raises:
        BadInput: no id starts with one of them.
    """
    rows = {source: results.by_id(source) for source in SOURCES}
    entries = [_entry(claim.words, [claim], rows) for prefix in prefixes for claim in chosen(prefix)]
    lines = []
    for entry in entries:
        name = entry.claims[0].id
        elsewhere = group and entry.groups and group not in entry.groups
        other = f"<small>of {', '.join(entry.groups)}</small>" if elsewhere else ""
        line = {"row": f'<a href="{address(name)}">{name}</a>{other}', "paper": entry.paper or "–"}
        for source, title in SOURCES.items():
            side = entry.side(source)
            line[title] = f"{side.value} {side.pills[0]}" if side else "–"
            line[f"n, {title}"] = f"{side.n or '–'}" if side else "–"
        lines.append(line | {"which of ours": "" if entry.claims[0].paper is not None else entry.difference("ours")})
    frame = pd.DataFrame(lines)
    styler = (
        Styler(frame.loc[:, (frame != "").any()], cell_ids=False)
        .hide(axis="index")
        .set_table_attributes('class="dataframe ledger-rows"')
        .set_uuid("ledger")
    )
    table = f'<div class="table-scroll" tabindex="0">{styler.to_html()}</div>'
    if len(lines) > LONG:
        summary = f"All {len(lines)} rows of the ledger that this page is about"
        table = f"<details><summary>{summary}</summary>{table}</details>"
    plain = [" | ".join([e.claims[0].id, e.paper, *(s.value for s in map(e.side, SOURCES) if s)]) for e in entries]
    return Html(table, "\n".join(plain))


def printed_cells(table: str) -> pd.DataFrame:
    """A table of the paper as a frame: `carry_class`, `position`, `accuracy`, `corrected`.

    Args:
        table: the beginning of its ids, such as `tab1/final_mlp`.
    """
    rows = [
        (carries.paper_name(CLASSES[task]), position, kind, claim.paper)
        for name, claim in claims().items()
        if name.startswith(f"{table}/")
        for task, kind, position in [name.removeprefix(f"{table}/").split("/")]
    ]
    cells = pd.DataFrame(rows, columns=["carry_class", "position", "kind", "paper"])
    return cells.pivot_table("paper", ["carry_class", "position"], "kind", sort=False).reset_index()
