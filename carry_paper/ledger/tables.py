"""The cells of Tables 1, 3, 4 and 5, by carry class, kind of accuracy and position."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from carry_core.measure import ClassAccuracies
from carry_paper.findings.base import Fields
from carry_paper.findings.survey import Dissected, Need, Survey
from carry_paper.ledger import quantities
from carry_paper.ledger.claims import CLASSES, KINDS
from carry_paper.ledger.entries import NO_NEED, Entry, number
from carry_train.groups import GROUPS, MAIN


class Cell(NamedTuple):
    """A cell of a table: a carry class, `accuracy` or `corrected`, and an answer position.

    Attributes:
        end: The end of the cell's id.
        pattern: The class as a carry pattern.
        task: The number of the class.
        kind: "accuracy" or "corrected".
        pos: The number of the position, from the left.
    """

    end: str
    pattern: str
    task: int
    kind: str
    pos: int

    def of(self, table: ClassAccuracies) -> float:
        """Return the entry of a table of accuracies."""
        return float(getattr(table, self.kind)[self.task, self.pos])


def all_cells() -> Iterator[Cell]:
    """Yield the cells of a table of three-digit sums."""
    position_names = GROUPS[MAIN].config.layout.position_names
    for task, (name, pattern) in enumerate(CLASSES.items()):
        for kind in KINDS:
            for pos, position_name in enumerate(position_names):
                yield Cell(f"{name}/{kind}/{position_name}", pattern, task, kind, pos)


@dataclass(frozen=True)
class AblatedCell:
    """A cell under an ablation, as a function of a survey."""

    cell: Cell
    table: Callable[[Survey], ClassAccuracies]
    n_drawn: float | int

    def __call__(self, survey: Survey) -> Fields:
        """Return the share of digits, and its variance if counted on the paper's random sums."""
        return quantities.drawn_share(self.cell.of(self.table(survey)), self.n_drawn)


@dataclass(frozen=True)
class DissectedCell:
    """A cell without the carry neurons (Sec. 5), as a function of a survey."""

    cell: Cell

    def __call__(self, survey: Survey) -> Fields:
        """Return the share of digits, and its variance over choices of the neurons."""
        return quantities.over_draws(survey, self._share)

    def _share(self, dissected: Dissected) -> float:
        return self.cell.of(dissected.cells)


def cells(
    table: str,
    group: str,
    accuracies: Callable[[Survey], ClassAccuracies],
    need: Need = NO_NEED,
) -> dict[str, Entry]:
    """Return the entries of a table, such as `tab1/final_mlp`, by id.

    `accuracies` reads a run's table off its survey.
    """
    entries = {}
    for cell in all_cells():
        n_drawn = quantities.sums_drawn(group, cell.pattern)
        function = AblatedCell(cell, accuracies, n_drawn)
        entries[f"{table}/{cell.end}"] = number(group, function, need)
    return entries


def dissected_cells(table: str, group: str) -> dict[str, Entry]:
    """Return the entries of a table without the carry neurons, by id; the paper shows run 0."""
    entries = {}
    for cell in all_cells():
        function = DissectedCell(cell)
        entries[f"{table}/{cell.end}"] = quantities.dissection(group, function, shown_run=0)
    return entries
