"""How far two results of one computation may be apart: by rounding, and by nothing else.

A processor, a library or a number of threads adds the same terms in an order of its own, so the
last digits differ. By how much depends on the type that was computed in, and on the largest value,
whatever the type that the result is kept in.
"""

from typing import Any

import torch

# Shares of the largest value: some hundred roundings. In half precision products are rounded, and
# sums are taken in float32.
SHARES = {torch.float64: 1e-12, torch.float32: 5e-5, torch.float16: 0.008, torch.bfloat16: 0.06}


def tolerance(dtype: torch.dtype, scale: float = 1.0) -> float:
    """Return how far values may be apart that were computed in a type and are at most `scale`."""
    return SHARES[dtype] * scale


def assert_close(
    actual: Any,
    expected: Any,
    computed_in: torch.dtype | None = None,
    scale: float | None = None,
    msg: str | None = None,
) -> None:
    """Assert that arrays of one shape differ by rounding only; infinity and NaN equal themselves.

    Args:
        actual: What is tested.
        expected: What it should be.
        computed_in: The type of the computation; by default the less precise one of the arrays.
        scale: The largest value that was added up; by default the largest one expected.
        msg: What to say besides.
    """
    actual, expected = (torch.as_tensor(x).detach() for x in (actual, expected))
    if computed_in is None:
        computed_in = max(actual.dtype, expected.dtype, key=SHARES.__getitem__)
    if scale is None:
        finite = expected[expected.isfinite()]
        scale = float(finite.abs().max()) if finite.numel() else 0.0
    torch.testing.assert_close(
        actual.double(),
        expected.double(),
        rtol=0,
        atol=tolerance(computed_in, scale),
        equal_nan=True,
        msg=msg and (lambda text: f"{msg}: {text}"),
    )
