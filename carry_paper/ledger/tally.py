"""A tally of the ledger that adds up: each row is in one place, and each table counts once.

A source's rows are printed numbers or findings of the paper. A table is one number, its cells are
details of it: each ablation of Tables 1, 3, 4 and 5, and Table 2 as a whole. What was not run, and
what is shown without a verdict, is counted apart, so that each count is beside what it is a share
of. Rows that can hardly fail are no part of it, and the book's own findings, beyond the paper, are
counted apart.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from carry_paper.ledger.claims import Claim
from carry_paper.ledger.results import Row
from carry_paper.ledger.verdicts import CANNOT_TELL, NO_VERDICT, NOT_RUN

# The verdicts on what was judged, the best first.
JUDGED = ("reproduced", "mostly", "mixed", CANNOT_TELL, "differs")


class Kind(NamedTuple):
    """A kind of row that is counted by itself.

    Attributes:
        name: Its name.
        remark: What counts as one, for those who add up.
        names: The words for one with a verdict, and for several.
        has: Returns True for a claim of this kind.
    """

    name: str
    remark: str
    names: Mapping[str, tuple[str, str]]
    has: Callable[[Claim], bool]


def table_of(claim: Claim) -> str:
    """Return the table with which a number is counted, the beginning of its cells' ids; or ""."""
    return claim.table or ("tab2" if claim.section == "Table 2" else "")


_HOLDS = {
    "reproduced": ("holds", "hold"),
    "mostly": ("holds mostly", "hold mostly"),
    "mixed": ("holds in some runs", "hold in some runs"),
    CANNOT_TELL: ("is open", "are open"),
    "differs": ("fails", "fail"),
}
NUMBERS = Kind(
    "printed numbers",
    "each table counts once",
    {
        "reproduced": ("reproduced", "reproduced"),
        CANNOT_TELL: ("can’t tell", "can’t tell"),
        "differs": ("differs", "differ"),
    },
    lambda claim: claim.paper is not None and not table_of(claim),
)
FINDINGS = Kind(
    "findings", "what the paper says in words", _HOLDS, lambda claim: bool(claim.finding)
)
BEYOND = Kind("beyond the paper", "the book’s own findings", _HOLDS, lambda claim: claim.beyond)
KINDS = (NUMBERS, FINDINGS, BEYOND)


@dataclass(frozen=True)
class Tally:
    """A source's rows of a kind.

    Attributes:
        kind: The kind.
        verdicts: The number of judged ones by verdict, of `JUDGED`.
        unjudged: The number of those that are shown and not judged.
        not_run: The number of those that were not run.
    """

    kind: Kind
    verdicts: Mapping[str, int]
    unjudged: int
    not_run: int

    @property
    def judged(self) -> int:
        """The number of those that were judged."""
        return sum(self.verdicts.values())

    @property
    def total(self) -> int:
        """The number of all."""
        return self.judged + self.unjudged + self.not_run

    @property
    def counts(self) -> dict[str, int]:
        """The number of all by verdict, those of none included; they add up to `total`."""
        return {**self.verdicts, NO_VERDICT: self.unjudged, NOT_RUN: self.not_run}

    def words(self) -> str:
        """Return the tally in words, such that each count is beside what it is a share of.

        For example `of 65, 18 were judged: 8 reproduced, 10 can’t tell; 27 are shown and not
        judged, 20 were not run`.
        """
        parts = [f"{n} {self.kind.names[v][n != 1]}" for v, n in self.verdicts.items() if n]
        judged = "1 was" if self.judged == 1 else f"{self.judged or 'none'} were"
        sentence = f"of {self.total}, {judged} judged"
        if parts:
            sentence += f": {', '.join(parts)}"
        others = []
        if self.unjudged:
            are = "is" if self.unjudged == 1 else "are"
            others.append(f"{self.unjudged} {are} shown and not judged")
        if self.not_run:
            were = "was" if self.not_run == 1 else "were"
            others.append(f"{self.not_run} {were} not run")
        return "; ".join([sentence, ", ".join(others)] if others else [sentence])


def tables(rows: Mapping[str, Row], claims: Iterable[Claim]) -> dict[str, str]:
    """Return the verdict on each table of a source, by the beginning of its cells' ids.

    A table differs if a cell does. Else it has the verdict of all its cells, and it can't tell if
    they have several, or if some of them were not run.
    """
    cells: dict[str, list[str]] = {}
    for claim in claims:
        if table_of(claim):
            cells.setdefault(table_of(claim), []).append(rows[claim.id].verdict)
    verdicts = {}
    for name, of_cells in cells.items():
        kinds = set(of_cells)
        if "differs" in kinds:
            verdicts[name] = "differs"
        elif len(kinds) == 1:
            verdicts[name] = kinds.pop()
        else:
            verdicts[name] = CANNOT_TELL
    return verdicts


def counted(
    kind: Kind, rows: Mapping[str, Row], claims: Collection[Claim], left_out: Collection[str]
) -> Tally:
    """Return the tally of a source's rows of a kind; `left_out` are ids."""
    verdicts = []
    for claim in claims:
        if kind.has(claim) and claim.id not in left_out:
            verdicts.append(rows[claim.id].verdict)
    if kind is NUMBERS:
        verdicts += tables(rows, claims).values()
    count = Counter(verdicts)
    return Tally(
        kind, {verdict: count[verdict] for verdict in JUDGED}, count[NO_VERDICT], count[NOT_RUN]
    )
