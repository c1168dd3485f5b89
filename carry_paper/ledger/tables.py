"""The cells of Tables 1, 3, 4 and 5, by carry class, kind of accuracy and position."""

from collections.abc import Iterator
from typing import NamedTuple

from carry_paper.findings.survey import Need
from carry_paper.ledger import quantities
from carry_paper.ledger.claims import CLASSES, KINDS
from carry_paper.ledger.entries import NO_NEED, Entry, Function, number
from carry_train.groups import GROUPS, MAIN


class Cell(NamedTuple):
    """A cell of a table: a carry class, `accuracy` or `corrected`, and an answer position.

    Attributes:
        end: The end of the cell's id.
        field: The path of the cell in the fields of a quantity.
        pattern: The class as a carry pattern.
    """

    end: str
    field: str
    pattern: str


def all_cells() -> Iterator[Cell]:
    """Yield the cells of a table of three-digit sums."""
    position_names = GROUPS[MAIN].config.layout.position_names
    for name, pattern in CLASSES.items():
        for kind in KINDS:
            for position_name in position_names:
                yield Cell(
                    f"{name}/{kind}/{position_name}", f"{kind}/{name}/{position_name}", pattern
                )


# Cells where a model without its decision head is unsure: no carry is due, but it may add one.
UNSURE = tuple(f"accuracy/{cell}" for cell in ("NC/pos7", "C@2/pos7", "NC/pos8", "C@1/pos8"))


def cells(table: str, group: str, function: Function, need: Need = NO_NEED) -> dict[str, Entry]:
    """Return the entries of a table, such as `tab1/final_mlp`, by id.

    `function` measures all cells of a run, by kind, class and position.
    """
    entries = {}
    for cell in all_cells():
        drawn = quantities.sums_drawn(group, cell.pattern)
        entries[f"{table}/{cell.end}"] = number(
            group, function, need, field=cell.field, drawn=drawn
        )
    return entries


def dissected_cells(table: str, group: str) -> dict[str, Entry]:
    """Return the entries of a table without the carry neurons, by id; the paper shows run 0."""
    entries = {}
    for cell in all_cells():
        entries[f"{table}/{cell.end}"] = quantities.dissection(group, cell.field, shown_run=0)
    return entries
