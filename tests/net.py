"""A net under refactorings: every row of the ledger on few sums and one run a group, against a golden file.

Not a test that pytest collects, since it needs the author's release for half of the rows. By hand, a minute a source:

    export OMP_NUM_THREADS=1 CARRY_AUTHOR=/path/to/data/author
    .venv/bin/python -m tests.net ours FOLDER              # compares with FOLDER/net_ours.json; exit code 1 if not
    .venv/bin/python -m tests.net author FOLDER --only tab1/
    .venv/bin/python -m tests.net ours FOLDER --write      # makes the golden file

Equal are the verdict, and values within 5e-4 (of 1, or of the value where that is larger).
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from carry_core import groups, measure, runs, sums
from carry_core.errors import BadInput
from carry_core.ledger import compute
from carry_core.training import histories

EXAMPLES = 500  # sums of every class
SMALLER = {"DRAWN": 500, "SAMPLE": 2_000, "BALANCED": 890, "RANDOM": 2_000, "ORDERED": 2_000}
SMALLER |= {"ADDED": 3_000, "COUNT": 300}  # what one part of the full adder is fitted on; pairs of sums
CLOSE = 5e-4


def few_sums(group: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Fixed sums of every class, and of three digits those that squashing is about."""
    n_digits = groups.find(group).n_digits
    a, b = measure.sample(EXAMPLES, n_digits, seed=0)
    return tuple(map(torch.cat, zip((a, b), sums.equal_sums(74, n_digits), strict=True)))


def make_small() -> None:
    """Few sums and one run everywhere."""
    load, history = runs.load, histories.load

    def first_run(*args: Any, **more: Any) -> runs.Runs:
        loaded = load(*args, **more)
        return replace(loaded, numbers=loaded.numbers[:1])

    runs.load = first_run

    def of_first_run(*args: Any, **more: Any) -> histories.History:
        curves = history(*args, **more)
        return {name: x if name == "epochs" else x[:1] for name, x in curves.items()}

    histories.load = of_first_run
    for name, module in list(sys.modules.items()):
        if name.startswith(("carry_core.findings.", "carry_core.ledger.")):
            for constant in SMALLER.keys() & vars(module).keys():
                setattr(module, constant, SMALLER[constant])
            if hasattr(module, "fixed_sums"):
                module.fixed_sums = few_sums


def rows(source: str, only: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Verdict and value of every row; an error's name where it falls over."""
    ledger = compute.Ledger(source, only)
    for claim in ledger.claims:
        try:
            row = ledger.row(claim)
            yield claim.id, {"verdict": row.verdict, "value": row.value}
        except BadInput:
            raise
        except Exception as error:
            yield claim.id, {"verdict": f"{type(error).__name__}: {error}", "value": None}


def close(one: Any, other: Any) -> bool:
    """Whether two values, or lists of them, are the same within `CLOSE`."""
    one, other = (np.array(x, dtype=float) for x in (one, other))  # None as NaN
    return one.shape == other.shape and np.allclose(one, other, rtol=CLOSE, atol=CLOSE, equal_nan=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=["ours", "author"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    make_small()
    path, start = asked.folder / f"net_{asked.source}.json", time.perf_counter()
    found = dict(rows(asked.source, asked.only))
    print(f"{len(found)} rows in {time.perf_counter() - start:.0f} s", file=sys.stderr)
    if asked.write:
        path.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    golden = {name: row for name, row in json.loads(path.read_text()).items() if name.startswith(asked.only)}
    differing = [
        name
        for name in golden | found
        if not (name in golden and name in found and golden[name]["verdict"] == found[name]["verdict"])
        or not close(golden[name]["value"], found[name]["value"])
    ]
    for name in differing:
        print(f"{name}: {golden.get(name)} -> {found.get(name)}")
    print(f"{len(differing)} of {len(golden | found)} rows differ")
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
