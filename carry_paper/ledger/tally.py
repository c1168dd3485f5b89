"""A tally of the ledger that adds up: each row is in one place, and each table counts once.

A source's rows are printed numbers or findings of the paper. A table is one number, its cells are
details of it: each ablation of Tables 1, 3, 4 and 5, and Table 2 as a whole. What was not run, and
what is shown without a verdict, is counted apart, so that each count is beside what it is a share
of. Rows that can hardly fail are no part of it, and the book's own findings, beyond the paper, are
counted apart.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from carry_paper.ledger.claims import Claim, claims
from carry_paper.ledger.exchangeability import AS_PRINTED
from carry_paper.ledger.results import Row
from carry_paper.ledger.verdicts import CANNOT_TELL, NO_VERDICT, NOT_RUN
from carry_train import groups

# Two rows are one measurement if their values are perfectly correlated over so many runs.
RUNS_TO_COMPARE = 6
CORRELATION_ROUNDING = 1e-6
# The verdicts on what was judged, the best first.
JUDGED = ("reproduced", "mostly", "mixed", CANNOT_TELL, "differs")


class Kind(NamedTuple):
    """A kind of row that is counted by itself."""

    name: str
    remark: str  # what counts as one
    names: Mapping[str, tuple[str, str]]  # of one with a verdict, and of several
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
    """The numbers of a source's rows of a kind."""

    kind: Kind
    verdicts: Mapping[str, int]  # of judged ones, by verdict
    unjudged: int  # shown and not judged
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


# ---- rows that are counted apart


def uninformative(rows: Mapping[str, Mapping[str, Row]]) -> dict[str, str]:
    """Return why rows of some sources can hardly fail, or repeat another; they count apart."""
    reasons = {}
    by_id = {}
    units = groups.GROUPS[groups.MAIN].config.layout.position_names[-1]
    for name, claim in claims().items():
        own_rows = by_id[name] = [of_source[name] for of_source in rows.values()]
        needs_runs = any(row.runs or row.value is None for row in own_rows)
        if claim.hardly_fails:
            reasons[name] = claim.hardly_fails
        elif claim.rule == "exact" and not needs_runs:
            reasons[name] = "a fact of the data set"
        elif claim.table == "tab1/decision_head" and name.endswith(units):
            reasons[name] = "no carry can arrive there, with or without the head"
    for name, first in repeated(by_id, skipped=reasons).items():
        reasons[name] = f"over all runs of both sources it says what {first} says"
    return reasons


def repeated(rows: Mapping[str, list[Row]], skipped: Collection[str]) -> dict[str, str]:
    """Return the rows that are one measurement with another row, by the id of that row.

    Over `RUNS_TO_COMPARE` runs or more, of both sources, their values are perfectly correlated, as
    those of complements are. Findings come first, since numbers are details of them. Ids that are
    `skipped` are not compared.
    """
    values_by_groups: dict[tuple[str, ...], dict[str, dict[str, float]]] = {}
    names = sorted(rows, key=lambda name: all(row.paper is not None for row in rows[name]))
    first_of: dict[str, str] = {}
    for name in names:
        values = _values_of_runs(rows[name])
        if name in skipped or not values:
            continue
        earlier = values_by_groups.setdefault(tuple(rows[name][0].groups), {})
        for other, other_values in earlier.items():
            if _are_one_measurement(values, other_values):
                first_of[name] = other
                break
        else:
            earlier[name] = values
    return first_of


def _values_of_runs(rows: Iterable[Row]) -> dict[str, float]:
    """Return the value of each run, by its source's place and its name; none of lists."""
    values = {}
    for place, row in enumerate(rows):
        for key, value in zip(row.keys, row.runs, strict=False):
            if isinstance(value, int | float):
                values[f"{place} {key}"] = float(value)
    return values


def _are_one_measurement(values: Mapping[str, float], others: Mapping[str, float]) -> bool:
    """Return True if two rows' values are perfectly correlated over the runs that both have."""
    common = [key for key in values if key in others]
    if len(common) < RUNS_TO_COMPARE:
        return False
    x = np.array([values[key] for key in common])
    y = np.array([others[key] for key in common])
    x_apart, y_apart = x - x.mean(), y - y.mean()
    if min(np.ptp(x_apart), np.ptp(y_apart)) <= AS_PRINTED:
        return False
    # np.corrcoef takes ten times as long, and a page compares thousands of pairs.
    correlation = x_apart @ y_apart / math.sqrt((x_apart @ x_apart) * (y_apart @ y_apart))
    return bool(abs(correlation) > 1 - CORRELATION_ROUNDING)
