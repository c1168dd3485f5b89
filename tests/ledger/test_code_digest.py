"""Digests of measuring code: what changes them, and what does not."""

import importlib.util
import sys

import pytest

from carry_paper.ledger import code_digest, registry
from carry_paper.ledger.measuring import quantities

SOURCE = '''"""Planted."""

FACTOR = 2


class Scale:
    """A class."""

    def times(self, x):
        """Return a product."""
        return x * FACTOR


def helped(x: Scale):
    return x.times(3)


def unrelated():
    return 5


def measured(model):
    """Share of nothing."""
    return helped(Scale()) + 1  # it calls another
'''
CHANGES = {
    "a docstring": ("Share of nothing", "Share of all", False),
    "a comment": ("# it calls another", "# it does", False),
    "a line break": ("helped(Scale()) + 1", "helped(\n        Scale()\n    ) + 1", False),
    "a function that is not called": ("return 5", "return 6", False),
    "its own number": ("+ 1", "+ 2", True),
    "a function that it calls": ("x.times(3)", "x.times(4)", True),
    "a method of a class that it names": ("x * FACTOR", "x + FACTOR", True),
    "a constant on the way": ("FACTOR = 2", "FACTOR = 3", True),
}


@pytest.fixture
def digest(tmp_path, monkeypatch):
    """A function that returns the digest of `measured` in a source."""
    counter = iter(range(100))

    def of_source(source):
        path = tmp_path / f"planted{next(counter)}.py"
        path.write_text(source)
        name = "carry_paper.findings.planted"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return code_digest.digest(module.measured)

    return of_source


@pytest.mark.parametrize("change", CHANGES)
def test_a_digest_changes_with_the_code_and_not_with_its_words(digest, change):
    before, after, changes = CHANGES[change]
    assert before in SOURCE
    assert (digest(SOURCE) != digest(SOURCE.replace(before, after))) is changes


def test_no_digest_depends_on_a_place_in_memory_or_on_the_processor():
    for quantity in quantities(registry.ROWS.values()):
        lines = "".join(code_digest.lines_of(quantity.function))
        assert " at 0x" not in lines, quantity.function
        assert "-march" not in lines, quantity.function
