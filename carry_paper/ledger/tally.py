"""A tally of the ledger that adds up: each row is in one place, and each table counts once.

A source's rows are printed numbers or findings of the paper. A table is one number, its cells are
details of it. What was not run, and what is shown without a verdict, is counted apart, so that each
count is a share of what could be judged. Rows that can hardly fail, and rows beyond the paper, are
no part of it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from carry_paper.ledger.claims import Claim
from carry_paper.ledger.results import Row
from carry_paper.ledger.verdicts import CANNOT_TELL, NO_VERDICT, NOT_RUN

# The verdicts on what was judged, the best first.
JUDGED = ("reproduced", "mostly", "mixed", CANNOT_TELL, "differs")


@dataclass(frozen=True)
class Tally:
    """A source's printed numbers, or its findings.

    Attributes:
        verdicts: The number of judged ones by verdict, of `JUDGED`.
        unjudged: The number of those that are shown and not judged.
        not_run: The number of those that were not run.
    """

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

    def words(self, names: Mapping[str, str]) -> str:
        """Return the tally as a sentence whose counts add up.

        Args:
            names: The word for each verdict, such as `reproduced` or `hold`; others have none.
        """
        parts = []
        for verdict in JUDGED:
            if verdict in names and self.verdicts[verdict]:
                parts.append(f"{self.verdicts[verdict]} {names[verdict]}")
        sentence = f"of {self.judged} judged, {', '.join(parts)}" if parts else "none judged"
        if self.unjudged:
            sentence += f"; {self.unjudged} shown and not judged"
        if self.not_run:
            sentence += f"; {self.not_run} not run"
        return f"{sentence} ({self.total} in all)"


NUMBERS = {"reproduced": "reproduced", "differs": "differ", CANNOT_TELL: "can’t tell"}
FINDINGS = {
    "reproduced": "hold",
    "mostly": "hold mostly",
    "mixed": "hold in some runs",
    CANNOT_TELL: "open",
    "differs": "fail",
}


def tables(rows: Mapping[str, Row], claims: Iterable[Claim]) -> dict[str, str]:
    """Return the verdict on each table of a source, by the beginning of its cells' ids.

    A table differs if a cell does; else it is not judged where no cell is; else it is reproduced if
    all cells are; else it can't tell.
    """
    cells: dict[str, list[str]] = {}
    for claim in claims:
        if claim.table:
            cells.setdefault(claim.table, []).append(rows[claim.id].verdict)
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


def numbers(rows: Mapping[str, Row], claims: Collection[Claim], left_out: Collection[str]) -> Tally:
    """Return the tally of printed numbers, each table counted once; `left_out` are ids."""
    single = []
    for claim in claims:
        if claim.paper is not None and not claim.table and claim.id not in left_out:
            single.append(rows[claim.id].verdict)
    return _counted([*single, *tables(rows, claims).values()])


def findings(
    rows: Mapping[str, Row], claims: Collection[Claim], left_out: Collection[str]
) -> Tally:
    """Return the tally of findings that the paper states in words; `left_out` are ids."""
    verdicts = []
    for claim in claims:
        if claim.finding and claim.id not in left_out:
            verdicts.append(rows[claim.id].verdict)
    return _counted(verdicts)


def _counted(verdicts: Collection[str]) -> Tally:
    by_verdict = dict.fromkeys(JUDGED, 0)
    unjudged = not_run = 0
    for verdict in verdicts:
        if verdict == NO_VERDICT:
            unjudged += 1
        elif verdict == NOT_RUN:
            not_run += 1
        else:
            by_verdict[verdict] += 1
    return Tally(by_verdict, unjudged, not_run)
