"""Names that say nothing are bound no more often than `banned_names.txt` lists, file by file.

The list may only shrink. `python -m tests.book.test_names --write` takes out what is gone.
"""

import ast
import sys
from pathlib import Path

import pytest

from carry_core.files import ROOT

sys.path.insert(0, str(ROOT / "workflow"))

import mirror

FOLDERS = ("carry_core", "carry_paper", "notebooks", "workflow")
LIST = Path(__file__).with_name("banned_names.txt")


def listed(path: Path = LIST) -> dict[str, int]:
    """Return how many bindings each file may have."""
    counts = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, count = line.split()
        # After a merge (see .gitattributes) a file may be listed twice.
        counts[name] = min(int(count), counts.get(name, int(count)))
    return counts


def banned_bindings(code: str) -> list[str]:
    """Return the banned names that some code binds, as often as it binds them."""
    names = mirror.bound_names(ast.parse(code))
    return [name for name in names if name in mirror.BANNED]


def counted(root: Path = ROOT) -> dict[str, list[str]]:
    """Return the banned bindings of each file of code that has any."""
    bindings = {}
    for folder in FOLDERS:
        for path in mirror.code_files(root / folder):
            names = [name for code in mirror.code_of(path) for name in banned_bindings(code)]
            if names:
                bindings[path.relative_to(root).as_posix()] = sorted(names)
    return bindings


def test_no_file_binds_more_banned_names_than_are_listed():
    allowed = listed()
    more = {file: names for file, names in counted().items() if len(names) > allowed.get(file, 0)}
    assert more == {}, "call these by what they are"


def test_the_list_shrinks_with_the_code():
    bindings = counted()
    fewer = {}
    for file, count in listed().items():
        if len(bindings.get(file, [])) < count:
            fewer[file] = f"{len(bindings.get(file, []))} of {count}"
    assert fewer == {}, "shrink the list: python -m tests.book.test_names --write"


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("found = 1\nfound = kept", ["found", "found"]),
        (
            "def f(told, *, known): shown = [each for each in told]",
            ["told", "known", "shown", "each"],
        ),
        ("for here, (its, x) in y: pass", ["here", "its"]),
        ("with x as said: founds = {'kept': x.kept}", ["said"]),
    ],
)
def test_a_banned_name_is_seen_wherever_it_is_bound(code, names):
    assert sorted(banned_bindings(code)) == sorted(names)


def test_the_figures_of_a_piece_of_code():
    figures = mirror.Figures()
    figures.add('"""What it is."""\n\na, b = 1, 2\nfound = [x for x in "' + 80 * "-" + '"]\nc = a')
    row = figures.row()
    assert row["lines"] == "4"
    assert row["mean"] == f"{(17 + 11 + 103 + 5) / 4:.1f}"
    assert (row["% over 100"], row["% over 110"]) == ("25.0", "0.0")
    assert (row["comprehensions"], row["tuples"]) == ("250.0", "250.0")
    assert row["% vague"] == "20.0", "one of a, b, found, x and c"
    assert row["questions"] == "1 of 1"


def write() -> None:
    """Write the list of what is left; refuse to let it grow."""
    allowed = listed()
    lines = []
    for file, names in sorted(counted().items()):
        if len(names) > allowed.get(file, 0):
            sys.exit(f"{file} binds {', '.join(names)}: expected {allowed.get(file, 0)} of these.")
        lines.append(f"{file} {len(names)}\n")
    LIST.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        sys.exit("Expected --write.")
