"""The ledger's counts of runs in words."""

import pytest

from carry_paper.findings.base import W0
from carry_paper.ledger import report, settling
from carry_paper.ledger.results import Row
from carry_train.groups import MAIN


def row(keys: list[str], shows: list[bool | None]) -> Row:
    """A finding that these runs show, with its exact interval."""
    answers = [x for x in shows if x is not None]
    interval = [list(settling.clopper_pearson(sum(answers), len(answers)))]
    return Row("finding/staircase", fields={"run": keys, "shows": shows}, interval=interval)


@pytest.mark.parametrize(
    ("keys", "shows", "words"),
    [
        (list("012345"), [True, False, True, True, True, False], "4 of 6 runs show it (22–96%)"),
        (list("0123"), [False, None, False, False], "0 of 3 runs show it (0–71%)"),
        (["0"], [True], "the one run shows it"),  # its interval says nothing
        ([f"{MAIN} 0", f"{W0} 0"], [True, True], "2 of 2 runs show it (16–100%)"),
    ],
)
def test_a_count_of_runs_has_its_exact_interval_beside_it(keys, shows, words):
    assert report.shown_in_words(row(keys, shows)) == words
