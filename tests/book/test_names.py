"""No name is bound that says nothing, such as `found`; and the figures of `make mirror`."""

import ast

import mirror
import pytest

from carry_core.files import ROOT


def banned_bindings(code: str) -> list[str]:
    """Return the banned names that some code binds, as often as it binds them."""
    names = mirror.bound_names(ast.parse(code))
    return [name for name in names if name in mirror.BANNED]


def test_no_file_binds_a_banned_name():
    bindings = {}
    for folder in mirror.OUR_FOLDERS:
        for path in mirror.code_files(ROOT / folder):
            names = [name for code in mirror.code_of(path) for name in banned_bindings(code)]
            if names:
                bindings[path.relative_to(ROOT).as_posix()] = sorted(names)
    assert bindings == {}, "call these by what they are"


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
