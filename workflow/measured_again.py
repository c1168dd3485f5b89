"""Measure a part of the stored rows anew: measured_again.py --seconds 60 | --renew 2.

With `--seconds` (`make measured-again`), rows of our runs in `data/runs` are measured in an order
that the hash of the commit chooses, until so many seconds of the processor are over. Stale ones,
which other code measured, come first. With `--renew`, so many stale rows of each quantity, source
and recipe are measured; if all of a quantity's are as stored, its stale rows get the digest of
today's code. That is for code that was only written differently: what it measures anew is a sample.

A row that differs from what is stored by more than `CLOSE` is printed, and the exit code is 1.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from part import commit_number

from carry_core import carries, measure, runs, sums
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


def of_runs(table: pd.DataFrame, asked: Mapping[Key, Quantity]) -> list[Row]:
    """Return the rows of single runs that can be measured anew."""
    rows = []
    for row in table[can_be_loaded(table)].to_dict("records"):
        for name in measurements.WHOLE:
            row[name] = None if pd.isna(row[name]) else int(row[name])
        if (row["quantity"], row["epoch"]) in asked:
            rows.append(row)
    return rows


def can_be_loaded(table: pd.DataFrame) -> "pd.Series[bool]":
    """Return True for each row of a run whose weights ship, or are the author's."""
    return table.run.notna() & ((table.ships == 1) | (table.source == "author"))


def in_order(number: int, asked: Mapping[Key, Quantity]) -> list[Row]:
    """Return our rows that can be measured anew: stale ones first, else as the number shuffles."""
    rows = of_runs(measurements.read("ours"), asked)
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
    chosen = {"runs": [row["run"]]}
    if row["source"] == "ours":
        chosen["recipe"] = row["recipe"]
    evidence = Evidence(
        row["source"],
        selection={row["group"]: chosen},
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
        if not abs(stored - again) <= CLOSE * max(1.0, abs(stored)):  # nor is NaN close
            yield f"{place}: {stored} is stored, {again} is measured now"
    elif stored != again:
        yield f"{place}: {stored!r} is stored, {again!r} is measured now"


def print_differences(row: Row, asked: Mapping[Key, Quantity]) -> bool:
    """Measure a row anew, and print a line for each difference; return True if there is one."""
    again = measured(row, asked[row["quantity"], row["epoch"]])
    lines = list(differences(all_fields(row), all_fields(again)))
    for line in lines:
        where = f"{row['group']} run {row['run']}, {row['recipe']}"
        print(f"{row['quantity']} of {where}{line}")
    return bool(lines)


def measure_for(seconds: float) -> int:
    """Measure rows anew for some seconds; return 1 if one differs, else 0."""
    asked = of_single_runs()
    rows = in_order(commit_number(), asked)
    n_stale = sum(is_stale(row, asked) for row in rows)
    n_measured = n_differing = 0
    start = time.process_time()
    while rows and time.process_time() - start < seconds:
        n_differing += print_differences(rows.pop(0), asked)
        n_measured += 1
    print(
        f"{n_measured} rows measured again, {n_differing} differ; {n_stale} stale rows, which "
        "`carry measure` renews."
    )
    return int(n_differing > 0)


def renew(source: str, n_rows: int) -> int:
    """Give stale rows today's digest, if so many of each quantity are as they are stored.

    Returns:
        1 if a row differs, else 0.
    """
    asked = of_single_runs()
    table = measurements.read(source)
    stale = [row for row in of_runs(table, asked) if is_stale(row, asked)]
    random.Random(commit_number()).shuffle(stale)
    samples: dict[tuple[str, int | None, str], list[Row]] = {}
    for row in stale:
        sample = samples.setdefault((row["quantity"], row["epoch"], row["recipe"]), [])
        if len(sample) < n_rows:
            sample.append(row)
    differing = set()
    for (name, epoch, _), sample in samples.items():
        if any(print_differences(row, asked) for row in sample):
            differing.add((name, epoch))
    for (name, epoch), quantity in asked.items():
        if (name, epoch) not in differing:
            is_epoch = table.epoch.isna() if epoch is None else table.epoch == epoch
            is_of_quantity = (table.quantity == name) & is_epoch & can_be_loaded(table)
            table.loc[is_of_quantity, "code"] = code_digest.digest(quantity.function)
    measurements.write(source, table)
    print(
        f"{source}: {sum(map(len, samples.values()))} of {len(stale)} stale rows measured again, "
        f"of {len(samples)} quantities and recipes; {len(differing)} quantities differ."
    )
    return int(bool(differing))


def main(arguments: list[str]) -> int:
    """Measure rows anew; return 1 if one differs, else 0."""
    parser = argparse.ArgumentParser(prog="measured_again.py")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--seconds", type=float)
    how.add_argument("--renew", type=int, metavar="ROWS")
    parser.add_argument("--source", choices=runs.SOURCES, default="ours")
    chosen = parser.parse_args(arguments)
    if chosen.renew is None:
        return measure_for(chosen.seconds)
    return renew(chosen.source, chosen.renew)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
