"""The list of mutants is true of the code; how a mutant is made, whatever the code looks like."""

import textwrap

import mutants
import pytest


@pytest.mark.slow
def test_the_list_is_true_of_the_code():
    listed = mutants.listed()
    _, problems = mutants.changes_of(listed)
    assert problems == []
    assert all(m.why for m in listed)


def mutant(before: str, after: str, scope: str = "Sums.larger"):
    return mutants.Mutant("sums.py", scope, before, after, (), "")


SOURCE = textwrap.dedent('''
    LEVEL = 0.5


    class Sums:
        def larger(self, a, b):
            """Tell whether `a` is larger."""
            return compare(
                a,  # the first
                b["x"],
                level=LEVEL,
            )

        def equal(self, a, b):
            if a == b:
                return True
            return compare(a, b)
''')


def test_a_mutant_is_made_whatever_the_line_breaks_and_quotes():
    mutated = mutants.mutated(
        SOURCE, mutant("compare(a, b['x'], level=LEVEL)", "not compare(a, b['x'], level=LEVEL)")
    )
    assert "return (not compare(a, b['x'], level=LEVEL))" in mutated
    assert "LEVEL = 0.4" in mutants.mutated(SOURCE, mutant("LEVEL = 0.5", "LEVEL = 0.4", ""))
    mutated = mutants.mutated(SOURCE, mutant("if a == b:\n    return True", "pass", "Sums.equal"))
    assert "return True" not in mutated
    compile(mutated, "made", "exec")
    mutated = mutants.mutated(SOURCE, mutant("if a == b:\n    return True", "f(a)", "Sums.equal"))
    compile(mutated, "made", "exec")


@pytest.mark.parametrize(
    ("before", "scope", "message"),
    [
        ("LEVEL = 0.6", "", "it is there 0 times"),
        ("compare(a, b)", "Sums.larger", "it is there 0 times"),  # it does in another method
        ("a", "Sums.equal", "it is there 2 times"),
        ("LEVEL", "Sums.smaller", "there is no Sums.smaller"),
    ],
)
def test_a_list_that_is_out_of_date_is_said(before, scope, message):
    with pytest.raises(mutants.Stale, match=message):
        mutants.mutated(SOURCE, mutant(before, "None", scope))
