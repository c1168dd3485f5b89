import pytest
import torch

from carry_core import sums
from carry_core.errors import BadInput
from carry_core.sums import Layout


def test_layout_of_the_paper():
    encoder, decoder = Layout(), Layout(causal=True)
    a, b = torch.tensor([123]), torch.tensor([456])
    assert "".join(sums.SYMBOLS[t] for t in sums.encode(a, b, encoder)[0]) == "123+456==="
    assert "".join(sums.SYMBOLS[t] for t in sums.encode(a, b, decoder)[0]) == "123+456579"
    assert encoder.loss_positions == encoder.answer == (7, 8, 9)
    assert decoder.loss_positions == (6, 7, 8, 9)
    assert decoder.answer == (6, 7, 8)
    assert encoder.position_names == decoder.position_names == ("pos7", "pos8", "pos9")
    assert sums.targets(a, b, encoder).tolist() == [[5, 7, 9]]
    assert sums.targets(a, b, decoder).tolist() == [[5, 7, 9, sums.EQUALS]]
    assert (
        "".join(sums.SYMBOLS[t] for t in sums.encode(a, b, Layout(6))[0]) == "000123+000456======"
    )


@pytest.mark.parametrize(("a", "b"), [(-1, 5), (500, 500), (2**63 - 1, 1)])
def test_what_is_no_sum_of_so_many_digits_is_not_encoded(a, b):
    layout = Layout(causal=True)
    with pytest.raises(
        BadInput, match=f"a={a}, b={b} is no sum of 3 digits: .* whose sum is below 1000"
    ):
        sums.encode(torch.tensor([[1, 999], [a, 3]]), torch.tensor([[2, 0], [b, 4]]), layout)


def test_the_largest_sums_are_encoded():
    a = torch.tensor([10**10 - 1, 0, 1])
    texts = [
        "".join(sums.SYMBOLS[t] for t in row)
        for row in sums.encode(a, 10**10 - 1 - a, Layout(10, causal=True))
    ]
    assert texts == [f"{x:010}+{9_999_999_999 - x:010}9999999999" for x in a.tolist()]
    # ten digits reach further than such numbers
    large = torch.tensor([2_000_000_007], dtype=torch.int32)
    assert sums.encode(large, large, Layout(10))[0, :10].tolist() == [2, 0, 0, 0, 0, 0, 0, 0, 0, 7]


@pytest.mark.parametrize("n_digits", [1, 3])
def test_unrank_lists_every_sum_once(n_digits):
    expected = [(a, b) for a in range(10**n_digits) for b in range(10**n_digits - a)]
    a, b = sums.all_sums(n_digits)
    assert list(zip(a.tolist(), b.tolist(), strict=True)) == expected
    assert sums.n_sums(n_digits) == len(expected)


@pytest.mark.parametrize("n_digits", [4, 6, 9])
def test_unrank_is_exact_for_long_sums(n_digits):
    """The square root is only a first guess: rows start and end where integers say."""
    side, last = 10**n_digits, sums.n_sums(n_digits) - 1
    row = torch.randint(side, (2000,), generator=torch.Generator().manual_seed(0))
    start = row * side - row * (row - 1) // 2
    a, b = sums.unrank(torch.cat([start, start[start > 0] - 1, torch.tensor([0, last])]), n_digits)
    assert torch.equal(a[:2000], row)
    assert (b[:2000] == 0).all()
    assert (a + b)[2000:-2].eq(side - 1).all()
    assert (a[-2:].tolist(), b[-2:].tolist()) == ([0, side - 1], [0, 0])


def test_long_sums_are_uniform():
    """Chi-square over all 55 one-digit sums; and ten digits, whose number exceeds 64 bits."""
    a, b = sums.long_sums(55_000, 1, torch.Generator().manual_seed(0))
    counts = torch.bincount(10 * a + b, minlength=100).view(10, 10)
    allowed = torch.arange(10)[:, None] + torch.arange(10) < 10
    assert (counts[~allowed] == 0).all()
    chi = ((counts[allowed].double() - 1000) ** 2 / 1000).sum()
    assert abs(chi - 54) < 5 * (2 * 54) ** 0.5
    a, b = sums.long_sums(500, 10, torch.Generator().manual_seed(0))
    assert len(a) == len(b) == 500
    assert (a + b < 10**10).all()
    assert a.max() > 10**9
