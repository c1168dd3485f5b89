from collections import Counter

import pytest
import torch

from carry_core import carries, sums


def by_hand(a: int, b: int, n_digits: int) -> str:
    """The pattern of one sum, digit by digit from the right, as one would on paper."""
    pattern, carry = "", False
    for _ in range(n_digits):
        total = a % 10 + b % 10
        symbol = "1" if total >= 10 else "2" if total == 9 and carry else "0"
        pattern, carry = symbol + pattern, symbol != "0"
        a, b = a // 10, b // 10
    return pattern


@pytest.mark.parametrize("n_digits", [2, pytest.param(3, marks=pytest.mark.slow, id="3"), 4, 6])
def test_classes_are_as_by_hand(n_digits):
    """All sums of two and of three digits are classified, and some that have more."""
    few = sums.long_sums(500, n_digits, torch.Generator().manual_seed(0))
    a, b = sums.all_sums(n_digits) if n_digits < 4 else few
    patterns = [carries.patterns(n_digits)[i] for i in carries.classify(a, b, n_digits).tolist()]
    expected = [by_hand(x, y, n_digits) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert patterns == expected
    if n_digits < 4:
        assert {p: carries.n_sums_in_class(p) for p in carries.patterns(n_digits)} == Counter(
            expected
        )


def test_sizes_of_the_paper():
    assert [carries.n_sums_in_class(p) for p in carries.patterns(3)] == [
        166375,
        111375,
        111375,
        91125,
        20250,
    ]
    assert [carries.paper_name(p) for p in carries.patterns(3)] == [
        "NC",
        "C@1",
        "C@2",
        "C all",
        "C all con.",
    ]
    for n_digits, count in ((4, 13), (5, 34), (6, 89)):
        assert len(set(carries.patterns(n_digits))) == count
        assert sum(carries.n_sums_in_class(p) for p in carries.patterns(n_digits)) == sums.n_sums(
            n_digits
        )


def test_carry_arrives_where_the_answer_differs_from_the_digit_sum():
    a, b = sums.all_sums(3)
    plain = (sums.digits(a, 3) + sums.digits(b, 3)) % 10
    assert torch.equal(carries.carry_in(3)[carries.classify(a, b)], sums.digits(a + b, 3) != plain)


@pytest.mark.parametrize("pattern", carries.patterns(3)[::2])
def test_draw_is_uniform_over_the_class(pattern):
    """Chi-square against the enumerated class: 12 draws a sum on average, 5 standard deviations."""
    n_digits, count = len(pattern), carries.n_sums_in_class(pattern)
    a, b = carries.sample_class(pattern, 12 * count, torch.Generator().manual_seed(0))
    assert {
        carries.patterns(n_digits)[i] for i in set(carries.classify(a, b, n_digits).tolist())
    } == {pattern}
    counts = torch.bincount(a * 10**n_digits + b).double()
    chi = ((counts[counts > 0] - 12) ** 2 / 12).sum() + 12 * (count - (counts > 0).sum())
    assert abs(chi - (count - 1)) < 5 * (2 * count) ** 0.5
