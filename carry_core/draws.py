"""What a notebook or a command may draw: how many sums, and from which seed."""

from carry_core.errors import BadInput

FEWEST = 10
MOST = 200_000  # more than any three-digit class has, and they still fit into memory


def check(*, n_examples: object = FEWEST, seed: object = 0, fewest: int = FEWEST) -> None:
    """Check how many sums a notebook is to draw, and from which seed; what is left out passes, but None does not.

    Args:
        n_examples: how many sums.
        seed: of the draw.
        fewest: with which what the notebook measures is defined.

    Raises:
        BadInput: one of them is not what it should be.
    """
    if type(n_examples) is not int or not fewest <= n_examples <= MOST:
        allowed = f"{fewest:,} to {MOST:,}"
        raise BadInput(f"n_examples={n_examples!r}: expected a whole number of sums from {allowed}.")
    check_seed(seed)


def check_seed(seed: object) -> None:
    """Check that a seed is one that every generator takes.

    Raises:
        BadInput: it is not.
    """
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise BadInput(f"seed={seed!r}: expected a whole number from 0 to 2**63 - 1.")
