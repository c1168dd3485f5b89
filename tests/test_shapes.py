"""Shapes in signatures are checked while the tests run: `make fast` and users go without."""

import pytest
import torch
from jaxtyping import TypeCheckError

from carry_core import sums
from tests.helpers import shapes


@pytest.mark.slow
def test_the_first_calls_of_each_test_are_checked():
    if not hasattr(sums.digit_tokens, "__wrapped__"):
        pytest.skip("shapes are not checked here")
    numbers, no_numbers = torch.tensor([123, 45]), torch.tensor([1.5, 2.0])
    with pytest.raises(TypeCheckError):
        sums.digit_tokens(no_numbers, 3)
    for _ in range(shapes.N_CHECKED):
        sums.digit_tokens(numbers, 3)
    sums.digit_tokens(no_numbers, 3)
    shapes.begin_test()
    with pytest.raises(TypeCheckError):
        sums.digit_tokens(no_numbers, 3)
