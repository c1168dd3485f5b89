"""When a run shows a claim: each criterion on planted accuracies, attention and axes."""

from dataclasses import replace

import torch

from carry_core import carries
from carry_core.findings import geometry, heads, neurons
from carry_core.measure import ClassAccuracies
from carry_core.sums import Layout

ARRIVES = carries.carry_in(3)


def without_decision(carry: float = 1.0, right: float = 0.4, too_large: float = 0.6) -> ClassAccuracies:
    """A model that always adds what it should, and elsewhere is right or one too large."""
    sure = ARRIVES.double()
    return ClassAccuracies(carry * sure + right * (1 - sure), too_large * (1 - sure), exact_match=0.5)


def test_a_head_decides_if_it_costs_and_leaves_every_one_that_is_needed():
    assert heads.decides(0.1, without_decision())
    assert not heads.decides(0.09, without_decision())
    assert not heads.decides(0.1, without_decision(carry=0.98))
    assert not heads.decides(0.1, without_decision(right=0.4, too_large=0.5))
    one_cell = without_decision()
    one_cell.accuracy[4, 1] = 0.5  # where a one arrives
    assert not heads.decides(0.1, one_cell)


def test_of_nothing_known_nothing_is_said():
    unknown = replace(without_decision(), corrected=torch.full((5, 3), torch.nan))
    assert not heads.decides(0.5, unknown)
    assert not heads.decides(float("nan"), without_decision())


def test_only_carrying_goes():
    assert heads.only_carrying_goes(carry=0.09, rest=0.99)
    assert not heads.only_carrying_goes(carry=0.1, rest=1.0)
    assert not heads.only_carrying_goes(carry=0.0, rest=0.98)


def test_the_decision_head_looks_right_more_than_the_other_and_more_than_by_chance():
    mass = torch.tensor([[0.3, 0.4], [0.1, 0.3]])
    assert heads.brings_previous_sum(mass, 0, Layout())
    assert not heads.brings_previous_sum(mass, 1, Layout())
    assert not heads.brings_previous_sum(mass - 0.11, 0, Layout())
    assert heads.brings_previous_sum(mass - 0.11, 0, Layout(4))  # 2 of 13 tokens, not of 10
    assert not heads.brings_previous_sum(torch.tensor([[0.3, 0.4], [0.1, 0.5]]), 0, Layout())


def test_a_head_looks_right_on_average_over_the_positions_that_can():
    """The last position has no column to its right, and counts for nothing."""
    own, right = torch.tensor([[0.1, 0.6, 9.0], [0.5, 0.5, 0.0]]), torch.tensor([[0.8, 0.1, torch.nan]] * 2)
    assert heads.looks_right(own, right, 0)
    assert not heads.looks_right(own, right, 1)
    assert not heads.looks_right(own, own, 0)


def test_the_leading_axis_must_separate_and_win():
    assert geometry.leading_axis_separates([[0.95, 0.9], [1.0, 1.0]])
    assert not geometry.leading_axis_separates([[0.94, 0.9], [1.0, 1.0]])
    assert not geometry.leading_axis_separates([[0.95, 0.96], [1.0, 1.0]])


def test_a_checkerboard_is_there_after_and_not_before():
    assert neurons.makes_checkerboard(0.05, 0.2)
    assert not neurons.makes_checkerboard(0.05, 0.1)
    assert not neurons.makes_checkerboard(0.3, 0.2)
