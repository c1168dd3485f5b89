"""What became of each claim, from both sources: the ledger and its committed results, joined, counted and explained."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carry_core import groups, release, runs
from carry_core.errors import BadInput
from carry_core.files import data_dir
from carry_core.ledger import evidence, names, published, results
from carry_core.ledger.published import Claim
from carry_core.ledger.results import Row
from carry_core.ledger.verdicts import ENOUGH, PAPER_RUNS, VERDICTS, WIDEST
from carry_core.words import counted

SOURCES = {"author": "the author's weights", "ours": "our weights"}
SHOWN = re.compile(r"(\d+) of (\d+) runs show it")
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
            counts = shown(entry.rows[source])
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
            return f"The author's weights are {len(files)} of the {len(release.checksums())} files of his release."
        if evidence.weights(source) != files:
            return "**The results are stale**: other weights lie here now; run `carry claims --source ours --save`."
        found = []
        for path in [data_dir() / name for name in files if name.endswith(".safetensors")]:
            record = runs.describe(path)["record"]
            reached = groups.reached(path.stem, record["recipe"], record["epochs"])
            n_runs = counted(len(record["runs"]), "run")
            found.append(f"{path.stem} (recipe “{record['recipe']}”, {n_runs}, epochs: {reached})")
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
    claims, saved = published.claims(), {s: results.read(s) for s in sources}
    known = {s: {row.id: row for row in saved[s]["rows"]} for s in sources}
    rows = {s: [_current(claim, s, known[s].get(claim.id)) for claim in claims.values()] for s in sources}
    ranks = {s: _ranks(rows[s]) for s in sources}
    entries = [
        Entry(claim, {s: rows[s][i] for s in sources}, {s: ranks[s][i] for s in sources})
        for i, claim in enumerate(claims.values())
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
        counts = shown(row)
        return "none" if claim.rule == "some" else "short" if counts and counts[1] < ENOUGH else "some"
    if row.tolerance is None:
        return "one"
    return "scatter" if 2 * row.tolerance > WIDEST * claim.range else "few"


def shown(row: Row) -> tuple[int, int] | None:
    """Of a finding, how many runs show it and how many there are; None if the row does not say."""
    found = SHOWN.search(row.detail)
    return (int(found[1]), int(found[2])) if found else None


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
