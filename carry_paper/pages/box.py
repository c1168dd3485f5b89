"""The ledger on a page: the verdict box at its top, and its rows as a table.

Both are made from the committed results, so they need no weights and are the same wherever a page
is run. A page that is run with another group than the claims are about says what the paper claims,
and judges nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, FileSystemLoader

from carry_core import carries, groups
from carry_paper.ledger import registry, results
from carry_paper.ledger.claims import CLASSES, Claim, chosen, claims
from carry_paper.ledger.report import counted
from carry_paper.ledger.results import Row, gathered

SOURCES = {"author": "author’s weights", "ours": "ours"}
LONG = 12  # rows of a ledger table from which on it is collapsed
SAID = {
    "all": "all runs",
    "most": "most runs",
    "some": "some runs",
    "one": "one run",
    "none": "no run",
}
SIGNS = {
    "reproduced": "✓",
    "mostly": "≈",
    "mixed": "±",
    "compatible": "?",
    "differs": "≠",
    "not run": "–",
}

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.globals["signs"] = SIGNS


@dataclass(frozen=True)
class Html:
    """Something for `pages.page.show`; `text` stands in its place where there is no HTML."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


class Side(NamedTuple):
    """What one source has of a line: a value in words, each verdict in words with a row that has it, how many runs."""

    value: str
    verdicts: list[tuple[Row, str]]
    n: int


class Line:
    """A line of the box or of the table: what the paper claims, in `words` and by one claim, or by those of all cells.

    `rows` are the results of each source, by id.
    """

    def __init__(
        self, words: str, claims: list[Claim], rows: Mapping[str, Mapping[str, Row]]
    ) -> None:
        self.words, self.claims = words, claims
        self.rows = {
            source: [by_id[c.id] for c in claims if c.id in by_id] for source, by_id in rows.items()
        }
        self.sides = {source: self._side(own) if own else None for source, own in self.rows.items()}
        self.groups = sorted({name for claim in claims for name in registry.entry(claim.id).groups})

    @property
    def paper(self) -> str:
        """The printed number, or of how many runs the paper says it; nothing for a table."""
        claim = self.claims[0]
        if claim.finding:
            return "one run" if claim.single else SAID[claim.quantifier]
        return (
            number(claim.paper, claim) if len(self.claims) == 1 and claim.paper is not None else ""
        )

    def about(self, group: str | None) -> bool:
        """Whether it is about a group, so that a page of that group judges it; any line is about None."""
        return group is None or not self.groups or group in self.groups

    def _side(self, rows: list[Row]) -> Side:
        row, by_verdict = rows[0], gathered(rows, lambda row: row.verdict)
        if len(self.claims) > 1:
            value = f"{len(rows)} cells"
        elif row.shown:
            value = f"{row.shown[0]} of {row.n} run{'s' if row.n > 1 else ''}"
        else:
            value = number(row.value, self.claims[0])
        told = {
            v: counted(len(by_verdict[v]), v) if len(by_verdict) > 1 else v
            for v in SIGNS
            if v in by_verdict
        }
        return Side(
            value,
            [(by_verdict[v][0], words) for v, words in told.items()],
            max(row.n for row in rows),
        )

    def difference(self, source: str) -> str:
        """In words what is not as the paper has it in a source's runs; nothing where all is."""
        rows = self.rows[source]
        if all(row.verdict == "reproduced" for row in rows):
            return ""
        if len(self.claims) == 1:
            return difference(rows[0])
        ran = [row for row in rows if row.value is not None]
        farthest = max(ran, key=lambda row: abs(row.value - row.paper), default=rows[0])
        gap = difference(farthest)
        return (
            f"largest gap in {claims()[farthest.id].words.partition(': ')[2]}: {gap}" if gap else ""
        )

    @property
    def which(self) -> str:
        """Which of our runs do not show a finding."""
        return "" if self.claims[0].paper is not None else self.difference("ours")


def number(value: Any, claim: Claim) -> str:
    """A value with the places that the paper's number has, heads as `layer:head`; a dash for none."""
    if isinstance(value, list):
        heads = all(isinstance(x, int) for x in value)
        return (":" if heads else ", ").join(number(x, claim) for x in value)
    if value is None:
        return "–"
    places = max(0, round(-log10(claim.unit)))
    # no -0.00
    return f"{round(value, places) + 0.0:,.{places if isinstance(value, float) else 0}f}".replace(
        "-", "−"
    )


def difference(row: Row) -> str:
    """In words how a row differs from what the paper has; nothing of one that was not run, as its verdict says so."""
    if row.shown:
        without = [
            key for key, shows in zip(row.keys, row.fields["shows"], strict=True) if not shows
        ]
        if not without:
            return ""
        return "in no run" if len(without) == len(row.keys) else f"not in {of_groups(without)}"
    if row.value is None or isinstance(row.value, list):
        return ""
    claim = claims()[row.id]
    paper, ours = number(claim.paper, claim), number(row.value, claim)
    return f"{ours} against {paper} in the paper" if paper != ours else ""


def not_run(rows: Iterable[Row]) -> str:
    """Why rows were not run, without the commands that would change it; nothing where all were."""
    reasons = list(
        dict.fromkeys(
            row.detail.partition(": `")[0].rstrip(".") for row in rows if row.value is None
        )
    )
    return "".join(why[:1].lower() + why[1:] for why in reasons[:1]) + (
        "; others likewise" if reasons[1:] else ""
    )


def of_groups(keys: Sequence[str]) -> str:
    """Which runs are meant: `runs 3 and 4`, or of a row on several groups, whose keys name them, `run 3 of …`."""
    words = []
    for group, its in gathered(keys, lambda key: key.rpartition(" ")[0]).items():
        *some, last = (key.rpartition(" ")[2] for key in its)
        which = f"runs {', '.join(some)} and {last}" if some else f"run {last}"
        of = (
            ""
            if not group
            else f" of {group}"
            if group in groups.GROUPS
            else f" of the {group} group"
        )
        words.append(which + of)
    return "; ".join(words)


def verdict_box(wanted: Mapping[str, str], group: str | None = None, pages: bool = False) -> Html:
    """The box at the top of a page: what the paper claims, and what the author's weights and ours have of it.

    `wanted` has in words what is claimed, by id, or by the beginning of ids for a whole table; six
    rows can be read at a glance. `group` is the one that the page shows: where a claim is about
    others, nothing is judged. With `pages` each row links to the page that computes it, for a box
    that is about many. `BadInput` if there is no such id.
    """
    rows = {source: results.by_id(source) for source in SOURCES}
    weightless, lines = results.uninformative(rows), []
    for prefix, words in wanted.items():
        some = [claims()[prefix]] if prefix in claims() else chosen(prefix)
        lines.append(
            Line(words, [claim for claim in some if claim.id not in weightless] or some, rows)
        )
    judged = [line for line in lines if line.about(group)]
    own = {
        t
        for line in judged
        if line.groups == [group]
        for row in line.rows["ours"]
        for t in row.trainings
    }
    html = TEMPLATES.get_template("box.html.j2").render(
        lines=lines,
        judged=judged,
        group=group,
        pages=pages,
        trainings=sorted(own),
        others=any(
            row.trainings for line in judged if line.groups != [group] for row in line.rows["ours"]
        ),
        named=groups.find,
        waiting={
            source: not_run(row for line in judged for row in line.rows[source])
            for source in SOURCES
        },
    )
    text = []
    for line in lines:
        sides = line.sides.items() if line in judged else ()
        told = [
            f"{SOURCES[s]}: {side.value} {', '.join(w for _, w in side.verdicts)}"
            for s, side in sides
            if side
        ]
        text.append(" | ".join([line.words, line.paper, *told]))
    return Html(html, "\n".join(text))


def ledger(*prefixes: str, group: str | None = None) -> Html:
    """The page's rows of the ledger: paper, author's weights, ours, runs, verdicts, and which of our runs differ.

    `prefixes` are ids, or beginnings of ids such as `tab1/`; `BadInput` if there is none.
    `group` is the one that the page shows; rows about others name theirs.
    """
    rows = {source: results.by_id(source) for source in SOURCES}
    lines = [
        Line(c.words, [c], rows)
        for p in prefixes
        for c in chosen(p)
        if c.id == p or p not in claims()
    ]
    template = TEMPLATES.get_template("rows.html.j2")
    html = template.render(lines=lines, sources=SOURCES, group=group, collapsed=len(lines) > LONG)
    text = [
        " | ".join([x.claims[0].id, x.paper, *(side.value for side in x.sides.values() if side)])
        for x in lines
    ]
    return Html(html, "\n".join(text))


def printed_cells(table: str) -> pd.DataFrame:
    """A table of the paper, such as `tab1/final_mlp`: `carry_class`, `position`, `accuracy` and `corrected`."""
    rows = [(*claim.id.split("/")[2:], claim.paper) for claim in chosen(f"{table}/")]
    cells = pd.DataFrame(rows, columns=["carry_class", "kind", "position", "paper"])
    cells["carry_class"] = [carries.paper_name(CLASSES[task]) for task in cells.carry_class]
    return cells.pivot_table("paper", ["carry_class", "position"], "kind", sort=False).reset_index()
