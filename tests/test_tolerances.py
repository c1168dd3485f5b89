"""Tolerances come from the type of a computation and its scale; no test trusts a default one."""

import pytest
import torch

from tests.helpers.tolerances import assert_close


def test_only_rounding_is_allowed_in_the_type_of_the_computation():
    exact = torch.linspace(-3, 3, 1000, dtype=torch.float64)
    in_float32 = (exact.float() * 7 / 7).double()
    assert not torch.equal(in_float32, exact)
    assert_close(in_float32, exact, torch.float32)
    with pytest.raises(AssertionError):
        assert_close(in_float32, exact)
    with pytest.raises(AssertionError, match="a name"):
        assert_close(exact * (1 + 1e-3), exact, torch.float32, msg="a name")


def test_infinity_and_nan_are_what_they_are():
    values = torch.tensor([1.0, torch.inf, torch.nan])
    assert_close(values, values)
    with pytest.raises(AssertionError):
        assert_close(torch.nan_to_num(values), values)
