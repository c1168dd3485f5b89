"""The row of the ledger for one source: what was measured, and how it was judged."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from carry_paper.ledger.claims import Why
from carry_paper.ledger.exchangeability import TableTest
from carry_paper.ledger.verdicts import NOT_RUN

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Row:
    """A row of the ledger for one source, as `carry claims --json` writes it.

    Attributes:
        id: The claim's id.
        where: The place in the paper, from `claims.yml`.
        paper: The printed number, or a list of them; None for a finding.
        value: The measured value, a list if `paper` is one; None if it was not run.
        std: The standard deviation between `runs`, with n - 1; None for fewer than two runs, or
            runs of several groups.
        runs: The value of each run.
        tolerance: How far `value` may lie from `paper`; None where there is no such distance.
        verdict: One of `verdicts.VERDICTS`.
        detail: Sentences on how the row was obtained and judged, or why it was not run.
        n: The number of runs on which it is judged.
        fields: Lists with an entry for each run: `run` (its number, with its group before it where
            there are several), for a finding `shows`, `training` if runs were not trained as the
            paper's were, and whatever else was measured.
        interval: The 95% interval of the difference from the author's runs or from the paper, by
            entry; for a finding, that of the share of runs that show it.
        rule: The rule that gave the verdict (`verdicts.rule_text`); empty in older results.
        reason: The claim's reason for that rule, with its criteria filled in.
        groups: The groups whose runs it is about.
        settles: What would settle a verdict of `verdicts.CANNOT_TELL`; "" for other verdicts.
        table: The comparison of our whole table with the author's, for a cell of one.
        why: The reason why it is not reproduced, from `claims.yml`; None if that gives none.
        sensitivity: The verdict that it would have with a bar of its rule at half or at twice the
            distance from perfect, by that bar; only where this is another verdict.
    """

    id: str
    where: str = ""
    paper: Any = None
    value: Any = None
    std: Any = None
    runs: list[Any] = field(default_factory=list)
    tolerance: float | None = None
    verdict: str = NOT_RUN
    detail: str = ""
    n: int = 0
    fields: dict[str, list[Any]] = field(default_factory=dict)
    interval: list[list[float]] | None = None
    rule: str = ""
    reason: str = ""
    groups: list[str] = field(default_factory=list)
    settles: str = ""
    table: TableTest | None = None
    why: Why | None = None
    sensitivity: dict[str, str] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """Return the name of each run."""
        return self.fields.get("run", [])

    @property
    def trainings(self) -> list[str]:
        """Return how runs were trained that were not trained as the paper's were."""
        return sorted({*self.fields.get("training", [])} - {""})

    @property
    def shown(self) -> tuple[int, int] | None:
        """Return how many runs show a finding, and how many can say; None for a number."""
        if "shows" not in self.fields:
            return None
        shows = self.fields["shows"]
        return shows.count(True), len(shows) - shows.count(None)

    @property
    def half_width(self) -> float | None:
        """Return half the width of a number's interval, the widest of its entries; None if none."""
        if self.interval is None or self.paper is None:
            return None
        return max((high - low) / 2 for low, high in self.interval)

    @property
    def measured(self) -> dict[str, list[Any]]:
        """Return the fields that were measured besides the value, with an entry for each run."""
        others = ("run", "shows", "training")
        return {name: values for name, values in self.fields.items() if name not in others}


def gathered(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return items in lists by what `key` returns of each, in the order of first occurrence."""
    lists: dict[K, list[T]] = {}
    for item in items:
        lists.setdefault(key(item), []).append(item)
    return lists
