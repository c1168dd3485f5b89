"""Measure a part of the shipped rows anew, for `make measured-again`: measured_again.py SECONDS.

The rows are of our runs in `data/runs`. They are measured one after the other, in an order that the
hash of the commit chooses, until so many seconds of the processor are over. Stale ones, which other
code measured, come first. A row that differs from what is stored by more than `CLOSE` is printed,
and the exit code is 1.
"""

import random
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from part import commit_number

from carry_core import carries, measure, sums
from carry_core.model import Transformer
from carry_core.sums import Numbers
from carry_paper import measurements
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import LARGEST_WHOLE, Survey
from carry_paper.ledger import code_digest, registry
from carry_paper.ledger.entries import name_of, takes
from carry_paper.ledger.measuring import Measuring, Quantity, quantities
from carry_train import groups

# Of 1, or of the value where that is larger. The last bits differ between processors, and one sum
# in some thousands may get another answer.
CLOSE = 5e-4

Key = tuple[str, int | None]  # a quantity's name, and the epoch of the weights
Row = dict[str, Any]


def of_single_runs() -> dict[Key, Quantity]:
    """Return the quantities that are measured on one run by itself."""
    by_key = {}
    for quantity in quantities([*registry.ROWS.values(), *registry.UNCLAIMED.values()]):
        if takes(quantity.function) in (Transformer, Survey):
            by_key[name_of(quantity.function), quantity.epoch] = quantity
    return by_key


def in_order(number: int, asked: Mapping[Key, Quantity]) -> list[Row]:
    """Return the rows that can be measured anew: stale ones first, else as the number shuffles."""
    table = measurements.read("ours")
    rows = []
    for row in table[(table.ships == 1) & table.run.notna()].to_dict("records"):
        for name in measurements.WHOLE:
            row[name] = None if pd.isna(row[name]) else int(row[name])
        if (row["quantity"], row["epoch"]) in asked:
            rows.append(row)
    random.Random(number).shuffle(rows)
    return sorted(rows, key=lambda row: not is_stale(row, asked))


def is_stale(row: Row, asked: Mapping[Key, Quantity]) -> bool:
    """Return True if other code than today's measured a row."""
    quantity = asked[row["quantity"], row["epoch"]]
    return bool(row["code"] != code_digest.digest(quantity.function))


def surveyed_sums(group: str, n_sums: int) -> tuple[Numbers, Numbers]:
    """Return the sums of a survey of this size: all of them, or as many of each carry class."""
    n_digits = groups.find(group).n_digits
    if n_digits <= LARGEST_WHOLE and n_sums == sums.n_sums(n_digits):
        return sums.all_sums(n_digits)
    return measure.sample(n_sums // len(carries.patterns(n_digits)), n_digits, seed=0)


def measured(row: Row, quantity: Quantity) -> Row:
    """Return a row as it is measured now."""
    selection = {row["group"]: {"recipe": row["recipe"], "runs": [row["run"]]}}
    evidence = Evidence(
        "ours",
        selection=selection,
        surveyed=lambda group: surveyed_sums(group, row["sums"]),
    )
    quantity.places = {row["group"]: None}
    (again,) = Measuring(evidence, [quantity]).of_quantity(quantity)
    return again


def all_fields(row: Row) -> Row:
    """Return the fields of a row together with its value."""
    return {"value": row["value"], **(row["fields"] or {})}


def differences(stored: Any, again: Any, place: str = "") -> Iterator[str]:
    """Yield a line for each number or word of a row that differs."""
    if isinstance(stored, dict) and isinstance(again, dict):
        for name in stored.keys() | again.keys():
            yield from differences(stored.get(name), again.get(name), f"{place}/{name}")
    elif isinstance(stored, list) and isinstance(again, list) and len(stored) == len(again):
        for i, pair in enumerate(zip(stored, again, strict=True)):
            yield from differences(*pair, f"{place}/{i}")
    elif isinstance(stored, int | float) and isinstance(again, int | float):
        if abs(stored - again) > CLOSE * max(1.0, abs(stored)):
            yield f"{place}: {stored} is stored, {again} is measured now"
    elif stored != again:
        yield f"{place}: {stored!r} is stored, {again!r} is measured now"


def main(seconds: float) -> int:
    """Measure rows anew for some seconds; return 1 if one differs, else 0."""
    asked = of_single_runs()
    rows = in_order(commit_number(), asked)
    n_stale = sum(is_stale(row, asked) for row in rows)
    n_measured = n_differing = 0
    start = time.process_time()
    while rows and time.process_time() - start < seconds:
        row = rows.pop(0)
        again = measured(row, asked[row["quantity"], row["epoch"]])
        lines = list(differences(all_fields(row), all_fields(again)))
        n_measured += 1
        n_differing += bool(lines)
        name = f"{row['quantity']} of {row['group']} run {row['run']}, {row['recipe']}"
        for line in lines:
            print(f"{name}{line}")
    print(
        f"{n_measured} rows measured again, {n_differing} differ; {n_stale} stale rows, which "
        "`carry measure` renews."
    )
    return int(n_differing > 0)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
