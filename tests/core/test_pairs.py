"""Pairs of sums that differ in one variable, beside counting all pairs that there are."""

import itertools

import pytest
import torch

from carry_core.errors import BadInput
from carry_core.pairs import Contrast, sample_pairs
from carry_core.sums import Layout


@pytest.mark.parametrize("variable", ["carry_in", "both"])
def test_nothing_is_carried_into_the_last_column(variable):
    with pytest.raises(BadInput, match="column=2: nothing is carried into the last"):
        sample_pairs(Contrast(variable, 2), 5, torch.Generator(), Layout())


def test_a_variable_or_column_that_no_sum_has_is_refused():
    with pytest.raises(BadInput, match="variable='answer': expected one of carry_in, digit_sum"):
        Contrast("answer", 0)
    with pytest.raises(BadInput, match="column=-1: expected a whole number"):
        Contrast("digit_sum", -1)
    with pytest.raises(BadInput, match="column=3: expected a column from 0 to 2"):
        sample_pairs(Contrast("digit_sum", 3), 5, torch.Generator(), Layout())
    with pytest.raises(BadInput, match="count=-1: expected a whole number of pairs"):
        sample_pairs(Contrast("digit_sum", 0), -1, torch.Generator(), Layout())


def test_a_decoder_s_two_answers_agree_to_the_left_of_the_column():
    generator = torch.Generator().manual_seed(0)
    pairs = sample_pairs(Contrast("digit_sum", 2), 500, generator, Layout(causal=True))
    first, second = pairs.sum(1) // 10
    assert torch.equal(first, second)
    first, second = sample_pairs(Contrast("digit_sum", 2), 500, generator, Layout()).sum(1) // 10
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("variable", "control"), [("carry_in", False), ("digit_sum", False), ("both", True)]
)
def test_pairs_are_uniform_over_all_that_there_are(variable, control):
    """Two digits: the frequency of each four digits of the left column, by a chi-square test."""
    p, q, r, s = torch.cartesian_prod(*[torch.arange(10)] * 4).unbind(1)
    step, same_digits = (r + s) - (p + q), (p == r) & (q == s)
    fits = {"carry_in": same_digits, "digit_sum": step > 0, "both": (step == 0) & ~same_digits}[
        variable
    ]
    # Pairs of units digits without and with a carry; of a digit sum, both sums have the same.
    n_units = {0: 55, 1: 45}
    ways = torch.zeros(10_000)
    for low, high in [(0, 1)] if variable == "carry_in" else [(0, 0), (1, 1)]:
        n_pairs_of_units = n_units[low] * (1 if variable == "digit_sum" else n_units[high])
        ways += n_pairs_of_units * (fits & (p + q + low < 10) & (r + s + high < 10))
    n = 40_000
    contrast = Contrast(variable, 0, control)
    pairs = sample_pairs(contrast, n, torch.Generator().manual_seed(0), Layout(2))
    digits = pairs.flatten(0, 1).T // 10 @ torch.tensor([1000, 100, 10, 1])
    observed, expected = torch.bincount(digits, minlength=10_000), n * ways / ways.sum()
    assert not observed[ways == 0].any()
    freedom = int((ways > 0).sum()) - 1
    chi_square = ((observed - expected) ** 2 / expected)[ways > 0].sum()
    assert abs(float(chi_square) - freedom) < 5 * (2 * freedom) ** 0.5


def test_digit_sums_may_be_any_step_apart_but_ten():
    """Two digits, the last column: the frequency of each step, by a chi-square test."""
    ways = torch.zeros(19)
    for low, high in itertools.product(range(100), repeat=2):
        step = sum(divmod(high, 10)) - sum(divmod(low, 10))
        if step > 0 and step != 10:  # the column to the left is the same, and takes both carries
            ways[step] += 45 if sum(divmod(high, 10)) >= 10 else 55
    n, generator = 40_000, torch.Generator().manual_seed(0)
    pairs = sample_pairs(Contrast("digit_sum", 1), n, generator, Layout(2))
    digit_sums = (pairs % 10).sum(1)  # (side, pair)
    observed = torch.bincount(digit_sums[1] - digit_sums[0], minlength=19)
    expected = n * ways / ways.sum()
    assert not observed[ways == 0].any()
    assert ((observed - expected) ** 2 / expected)[ways > 0].sum() < 45  # 17 steps: 1 in 10,000
