"""What a row of the ledger reads of planted runs."""

import math
from dataclasses import replace
from statistics import mean
from typing import Any, NamedTuple

from carry_paper.findings.evidence import Evidence
from carry_paper.ledger import ledger, registry
from carry_paper.ledger.entries import VALUE, Entry, Picked, picked
from carry_paper.ledger.measuring import Fields, Key, Measuring, quantities, together


class Answers(NamedTuple):
    """The runs of a row, by number, or by group and number if there are several groups.

    The value is their mean.
    """

    runs: dict[Any, Any]
    shows: dict[Any, bool | None]
    fields: dict[Any, dict[str, Any]]

    @property
    def value(self) -> float:
        return mean(self.runs.values())


def measured(name: str, evidence: Evidence) -> Answers:
    """Measure a row on the runs of some evidence; raise `BadInput` if that is impossible."""
    entry = registry.entry(name)
    parts = of_entry(entry, evidence)
    answers = Answers({}, {}, {})
    one_group = len({group for group, _ in parts}) == 1
    for (group, run), part in parts.items():
        key: Any = group if run is None else run if one_group else (group, run)
        answers.runs[key] = part.value
        answers.fields[key] = dict(part.fields)
        if entry.rule is not None:
            fields = {"value": part.value, **part.fields}
            answers.shows[key] = ledger.says(entry.rule, fields)
    return answers


def of_entry(entry: Entry, evidence: Evidence) -> dict[Key, Picked]:
    """Return what a row of the ledger reads of each run: its value, and what its rule reads.

    Raises:
        BadInput: It cannot be measured on these runs.
    """
    (quantity, *others) = quantities([replace(entry, among=None)])
    assert not others
    measuring = Measuring(evidence, [quantity])
    fields_by_key: dict[Key, Fields] = {}
    for places in together(quantity):
        fields_by_key |= measuring.fields(quantity, places)
    beside: dict[str, Any] = {}
    if entry.beside is not None:
        compared = [x for (group, _), x in fields_by_key.items() if group == entry.beside.group]
        beside[entry.beside.field] = [fields[VALUE] for fields in compared]
    parts = {}
    for key, fields in fields_by_key.items():
        if entry.beside is None or key[0] in entry.groups:
            own_fields = {VALUE: math.nan, **fields}
            value = picked(own_fields, entry.field).value if isinstance(entry.field, str) else None
            parts[key] = Picked(value, 0.0, {**fields, **beside})
    return parts
