"""The ledger's rows, and the files in `data/results/` that keep those of each source."""

import json
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from carry_core.errors import BadInput
from carry_core.files import data_dir, write_json
from carry_core.ledger import verdicts
from carry_core.ledger.evidence import weights
from carry_core.ledger.published import numeric

VERSION = 1  # of results files
TRAINED = re.compile(r"by the (recipe “\w+”(?:, \d+ of \d+ epochs)?)")  # in a row's detail
NAMED = re.compile(r"Runs in order: (.+?)\.(?: |$)")  # in a row's detail


@dataclass(frozen=True)
class Row:
    """A row of the ledger for one source, as `carry claims --json` writes it.

    Attributes:
        value: a number, a list where `paper` is one, None if it was not run.
        std: standard deviation between runs with n - 1; None for fewer than two, or runs of several groups.
        runs: the value of each run.
        tolerance: how far `value` may lie from `paper`; None where there is no such distance.
        verdict: `reproduced`, `differs`, `undecided` or `not run`.
        detail: how it was obtained, what the alternatives give, or why it was not run.
    """

    id: str
    where: str
    paper: Any
    value: Any
    std: Any
    runs: list[Any]
    tolerance: float | None
    verdict: str
    detail: str

    @property
    def keys(self) -> list[str]:
        """What each run is called: its number, with its group before it where there are several."""
        said = NAMED.search(self.detail)
        if not said:
            return [str(number) for number in range(len(self.runs))]
        parts = [part.rpartition(" ")[0::2] for part in said[1].replace(", ", ",").split("; ")]
        return [f"{group} {number}".strip() for group, numbers in parts for number in numbers.split(",")]

    @property
    def trainings(self) -> list[str]:
        """How its groups were trained that were not trained as the paper's: recipes, and how far they got."""
        return sorted(set(TRAINED.findall(self.detail)))


def named(keys: Collection[Any]) -> str:
    """The sentence from which `Row.keys` knows the runs; none where they are 0, 1, 2 and so on."""
    if list(keys) == list(range(len(keys))):
        return ""
    groups: dict[str, list[str]] = {}
    for key in keys:
        group, number = key if isinstance(key, tuple) else ("", key)
        groups.setdefault(group, []).append(str(number))
    told = "; ".join(f"{group} {', '.join(numbers)}".strip() for group, numbers in groups.items())
    return f"Runs in order: {told}."


def path_of(source: str) -> Path:
    """Where the committed results of a source lie."""
    return data_dir() / "results" / f"{source}.json"


def save(source: str, rows: list[Row]) -> Path:
    """Write a source's rows, with the sha256 of the weights that they come from."""
    kept = {"version": VERSION, "source": source, "weights": weights(source), "rows": [asdict(row) for row in rows]}
    write_json(path_of(source), kept)
    return path_of(source)


def read(source: str) -> dict[str, Any]:
    """A source's committed results: `version`, `source`, `weights` and `rows`, these as `Row`.

    Raises:
        BadInput: the file is missing, damaged, or of another version.
    """
    path = path_of(source)
    remedy = f"write it with `carry claims --source {source} --save`"
    try:
        found = json.loads(path.read_text())
        if found["version"] != VERSION:
            raise BadInput(f"{path} has version {found['version']!r}, expected {VERSION}: {remedy}.")
        if found["source"] != source:
            raise BadInput(f"{path} has the results of {found['source']!r}, expected {source!r}: {remedy}.")
        return {**found, "weights": dict(found["weights"]), "rows": [_row(row) for row in found["rows"]]}
    except FileNotFoundError as error:
        raise BadInput(f"{path} does not exist: {remedy}.") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path} is damaged ({error}): {remedy}.") from error


def _row(values: dict[str, Any]) -> Row:
    """A row as it was read, if every entry is of its kind."""
    row = Row(**values)
    texts = all(isinstance(x, str) for x in (row.id, row.where, row.detail)) and row.verdict in verdicts.VERDICTS
    numbers = all(map(_numbers, (row.paper, row.value, row.std, row.tolerance, row.runs)))
    if not (texts and numbers and isinstance(row.runs, list)):
        raise ValueError(f"an entry of {row.id!r} is not of its kind")
    return row


def _numbers(value: Any) -> bool:
    """Whether it is a number, None where there is none, or a list of such."""
    return value is None or (all(map(_numbers, value)) if isinstance(value, list) else numeric(value))


def author_rows() -> dict[str, Row]:
    """The committed results of the author's weights by id; empty where there are none."""
    return {row.id: row for row in read("author")["rows"]} if path_of("author").exists() else {}
