"""Outcomes and their sums, by enumeration."""

from itertools import pairwise

import pytest
import torch

from carry_core import sums
from carry_core.findings import heads


@pytest.mark.parametrize("step", [1, 13])
def test_outcomes_have_twenty_sums_and_the_papers_is_among_them(step):
    a, b = sums.all_sums(3)
    counts = torch.bincount((a + b)[a >= b], minlength=1000)
    found = heads.outcomes(step)
    assert 74 in found
    assert (counts[found] >= 20).all()
    assert {later - earlier for earlier, later in pairwise(found)} == {step}
    if step == 1:
        assert found == (counts >= 20).nonzero().flatten().tolist()


def test_where_carries_differ_by_enumeration():
    for outcome in (38, 74, 99, 100, 349, 500, 998, 999):
        seen = [set(), set(), set()]
        for b in range(outcome // 2 + 1):
            a = outcome - b
            arriving = [(a % 100 + b % 100) // 100, (a % 10 + b % 10) // 10, 0]
            for kinds, one in zip(seen, arriving, strict=True):
                kinds.add(one)
        assert heads.carry_differs(outcome).tolist() == [len(kinds) == 2 for kinds in seen], outcome
