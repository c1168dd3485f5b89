"""A net under refactorings: compare today's numbers with the golden files in `tests/golden/`.

`make net` runs it. Pytest does not collect it, since half of the rows need the author's release. By
hand:

    .venv/bin/python -m tests.net                    # everything, in two minutes on one core
    .venv/bin/python -m tests.net ours --only tab1/  # one source's rows with ids from tab1/ on
    .venv/bin/python -m tests.net author --write     # write the golden file anew

The rows of the ledger are computed on few sums and one run per group. Two rows are equal if their
verdicts are, and their values within 5e-4 (of 1, or of the value where that is larger). The
exported playground is decoded, and its numbers are compared within the same distance, since the
last bits of a fit differ between processors.
"""

import argparse
import json
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from carry_core import measure, runs, sums
from carry_core.files import author_dir
from carry_core.runs import History
from carry_paper import catalogue
from carry_paper.findings.evidence import Evidence
from carry_paper.ledger import claims, ledger, registry
from carry_paper.ledger.measuring import Measuring, quantities
from carry_paper.pages import playground
from carry_train import groups
from carry_train.files import write_json

GOLDEN = Path(__file__).parent / "golden"
# the rows come last: `make_small` changes the modules for good
PARTS = ("playground", "ours", "author")
EXAMPLES = 500  # sums of every class
SMALLER = {"DRAWN": 500, "SAMPLE": 2_000, "BALANCED": 890, "RANDOM": 2_000, "ORDERED": 2_000}
# what one part of the full adder is fitted on; pairs of sums
SMALLER |= {"ADDED": 3_000, "COUNT": 300}
CLOSE = 5e-4


def few_sums(group: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Fixed sums of every class, and of three digits those that squashing is about."""
    n_digits = groups.find(group).n_digits
    a, b = measure.sample(EXAMPLES, n_digits, seed=0)
    return tuple(map(torch.cat, zip((a, b), sums.equal_sums(74, n_digits), strict=True)))


@cache
def make_small() -> None:
    """Replace the sums and runs of every measurement by few sums and one run."""
    load, history = catalogue.load, catalogue.load_curves

    def first_run(*args: Any, **more: Any) -> runs.Runs:
        loaded = load(*args, **more)
        return replace(loaded, numbers=loaded.numbers[:1])

    catalogue.load = first_run

    def of_first_run(*args: Any, **more: Any) -> History:
        curves = history(*args, **more)
        return {name: x if name == "epochs" else x[:1] for name, x in curves.items()}

    catalogue.load_curves = of_first_run
    for name, module in list(sys.modules.items()):
        if name.startswith(("carry_paper.findings.", "carry_paper.ledger.")):
            for constant in SMALLER.keys() & vars(module).keys():
                setattr(module, constant, SMALLER[constant])
            if hasattr(module, "fixed_sums"):
                module.fixed_sums = few_sums


def rows(source: str, only: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the id, verdict and value of each row; one that fails is `not run`."""
    asked = quantities(registry.entry(claim.id) for claim in claims.chosen(only))
    table = Measuring(Evidence(source), asked).rows()
    author = ledger.by_id("author").measured if source == "ours" else None
    judged = ledger.Query(ledger.Measured(source, table), author)
    for name, row in ((claim.id, judged[claim.id]) for claim in claims.chosen(only)):
        yield name, {"verdict": row.verdict, "value": row.value}


def exported(folder: Path) -> dict[str, Any]:
    """Export the playground into a folder and describe each of its files."""
    described = {}
    for path in playground.export(folder):
        received = json.loads(script_argument(path))
        described[path.name] = fingerprint(*unpacked(received)) if "text" in received else received
    return described


def script_argument(path: Path) -> str:
    """Return the JSON that an exported script passes to its function."""
    content = path.read_bytes()
    text = content.decode("utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8")
    return text[text.index("(") + 1 : text.rindex(")")]


def unpacked(packed: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Undo `playground._packed`: the description of a run, and its tensors."""
    characters = np.frombuffer(packed["text"].encode("utf-16-le"), "<u2") - 0x3000
    bits = (characters[:, None] >> np.arange(15)[::-1]) & 1
    deflated = np.packbits(bits.astype(np.uint8).ravel()).tobytes()[: packed["deflated"]]
    content = zlib.decompress(deflated, wbits=-15)
    header, body = json.loads(content[: packed["header"]]), content[packed["header"] :]
    high_and_low = np.frombuffer(body, "u1").reshape(2, -1)
    values = high_and_low[::-1].T.copy().view("<f2").ravel()
    tensors = {}
    for name, shape in header.pop("shapes").items():
        size = int(np.prod(shape))
        tensors[name], values = values[:size].reshape(shape).astype(np.float64), values[size:]
    assert not values.size
    return header, tensors


def fingerprint(header: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Describe a run by few numbers: each tensor's shape, norm and projections in its units."""
    described = {}
    for name, tensor in tensors.items():
        norm = float(np.linalg.norm(tensor))
        waves = np.cos(
            np.outer([0.3, 0.7, 1.1], np.arange(tensor.size))
        )  # fixed directions in which every entry counts
        projections = waves @ tensor.ravel() / max(norm, 1e-9)
        described[name] = {
            "shape": [*tensor.shape],
            "norm": norm,
            "projections": projections.tolist(),
        }
    return {"about": dict(header), "tensors": described}


def close(actual: Any, expected: Any) -> bool:
    """Compare two values of JSON: numbers within `CLOSE`, None as NaN, all else exactly."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        return actual.keys() == expected.keys() and all(
            close(actual[name], expected[name]) for name in actual
        )
    if isinstance(actual, list) and isinstance(expected, list):
        return len(actual) == len(expected) and all(map(close, actual, expected))
    if type(actual) in (int, float) and type(expected) in (int, float):
        return bool(np.isclose(actual, expected, rtol=CLOSE, atol=CLOSE, equal_nan=True))
    return bool(actual == expected)


def differing(golden: Mapping[str, Any], computed: Mapping[str, Any]) -> list[str]:
    """List the names that only one side has, or that are not `close`."""
    both = golden.keys() & computed.keys()
    return [
        name
        for name in {**golden, **computed}
        if name not in both or not close(golden[name], computed[name])
    ]


def check(part: str, only: str, write: bool) -> bool:
    """Compare a part with its golden file, or write that; False if something differs."""
    path, start = GOLDEN / f"{part}.json", time.perf_counter()
    if part == "author" and not (author_dir() / "sources.json").exists():
        print(
            "author: the release is not imported (`carry import-author`), "
            "so its rows are not compared."
        )
        return True
    if part == "playground":
        with tempfile.TemporaryDirectory() as folder:
            computed = exported(Path(folder))
    else:
        make_small()
        computed = dict(rows(part, only))
    took = f"{time.perf_counter() - start:.0f} s"
    if write:
        write_json(path, computed)
        print(f"{part}: {len(computed)} written to {path} in {took}.")
        return True
    golden = json.loads(path.read_text())
    if part != "playground":
        golden = {name: row for name, row in golden.items() if name.startswith(only)}
    names = differing(golden, computed)
    for name in names:
        is_row = part != "playground"
        print(
            f"{part}: {name}"
            + (f": {golden.get(name)} -> {computed.get(name)}" if is_row else " differs")
        )
    print(f"{part}: {len(names)} of {len(golden | computed)} differ from {path.name}, in {took}.")
    return not names


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"Some of {', '.join(PARTS)}; all if none is named.",
    )
    parser.add_argument(
        "--only", default="", metavar="PREFIX", help="Rows whose id starts with this."
    )
    parser.add_argument(
        "--write", action="store_true", help="Write the golden files instead of comparing."
    )
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(
            f"Unknown part {', '.join(sorted(unknown))}: expected some of {', '.join(PARTS)}."
        )
    if options.only and (options.write or "playground" in options.parts):
        parser.error("--only chooses rows of ours and author to compare: drop it here.")
    parts = [
        part
        for part in PARTS
        if part in (options.parts or PARTS) and not (options.only and part == "playground")
    ]
    same = [check(part, options.only, options.write) for part in parts]
    return 0 if all(same) else 1


if __name__ == "__main__":
    raise SystemExit(main())
