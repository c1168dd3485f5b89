"""What a row of the ledger reads of planted runs."""

from statistics import mean
from typing import Any, NamedTuple

from carry_paper.findings.evidence import Evidence
from carry_paper.ledger import ledger, registry
from carry_paper.ledger.measuring import of_entry


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
