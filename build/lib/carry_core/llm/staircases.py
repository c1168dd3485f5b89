"""The staircase search: which head attends most where column addition would look (Sec. 6, App. A.3).

The cells of an example, each won by the head with the largest value over all layers: digit k of the second number
looking at digit k of the first; the prompt's last token looking at the first digit of the second number; and each
generated token j looking j tokens further on.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core.llm.model import Size
from carry_core.llm.prompts import DIGITS, Positions

N_MAPPED = 5  # generated tokens on a map of the attention


def n_cells(generated: int) -> int:
    """How many cells an example has when so many tokens are generated: the last of them is never fed back."""
    return DIGITS + generated


def cells(places: Positions, generated: int) -> list[tuple[int, int]]:
    """Row and column of each cell in an unpadded sequence, whether or not the example gets that far."""
    within = list(zip(places.b, places.a, strict=True))
    return within + [(places.last + j, places.b[0] + j) for j in range(generated)]


def map_cells(places: Positions) -> list[tuple[int, int]]:
    """Row and column of all cells on and below the diagonal between the marked and the first generated tokens."""
    marked = [*places.marked, *(places.last + j for j in range(1, N_MAPPED + 1))]
    return [(row, column) for i, row in enumerate(marked) for column in marked[: i + 1]]


def grid(values: Float[Tensor, "*batch cell"]) -> Float[Tensor, "*batch query key"]:
    """`map_cells` as a square, zero above the diagonal."""
    side = int((8 * values.shape[-1] + 1) ** 0.5 - 1) // 2
    row, column = torch.tril_indices(side, side)
    square = torch.zeros(*values.shape[:-1], side, side, dtype=values.dtype)
    square[..., row, column] = values
    return square


def padded(cells: Sequence[Sequence[tuple[int, int]]], pads: Int[Tensor, " batch"]) -> Int[Tensor, "two batch cell"]:
    """Rows and columns of every example's cells in the left-padded batch."""
    rows_and_columns: Tensor = torch.tensor(cells).permute(2, 0, 1)
    return rows_and_columns + pads.unsqueeze(1)


def reached(
    rows: Int[Tensor, "batch cell"], length: int, produced: Int[Tensor, " batch"]
) -> Bool[Tensor, "batch cell"]:
    """Which cells exist: rows of the prompt, and of generated tokens that were fed back.

    Args:
        rows: in the padded batch.
        length: tokens of the padded prompts.
        produced: how many tokens each example generated, the one that ended it included.
    """
    return rows < length + produced.unsqueeze(1) - 1


def count_wins(
    attention: Float[Tensor, "batch layer head cell"], exists: Bool[Tensor, "batch cell"], size: Size
) -> Int[Tensor, "cell layer head"]:
    """How often each head has the largest value in each of the cells that exist; of equals the first wins."""
    winner, n_heads = attention.flatten(1, 2).argmax(1), size.layers * size.heads
    wins = [winner[exists[:, cell], cell].bincount(minlength=n_heads) for cell in range(winner.shape[1])]
    return torch.stack(wins).view(-1, size.layers, size.heads)
