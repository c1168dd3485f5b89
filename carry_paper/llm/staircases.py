"""The search for heads that attend most where column addition would look (Sec. 6, App. A.3).

An example has these cells. Digit k of the second number attends to digit k of the first; the
prompt's last token attends to the first digit of the second number; and generated token j attends
to the token j places after that digit. The head with the most attention in a cell, over all layers,
wins it.
"""

from collections.abc import Collection, Sequence
from itertools import combinations, product

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_paper.llm.model import N_FREQUENT, Head, Heads, Size
from carry_paper.llm.prompts import DIGITS, Positions

N_MAPPED = 5  # generated tokens on a map of the attention
# Axis labels of a map; `*` stands for a digit.
MARKS = ("⊢", *"*" * DIGITS, "+", *"*" * DIGITS, "=", *"•" * N_MAPPED)


def cells(places: Positions, generated: int) -> list[tuple[int, int]]:
    """Return the row and the column of each cell in an unpadded sequence.

    Cells of `generated` tokens are included, even if the example ends earlier.
    """
    positions = list(zip(places.b, places.a, strict=True))
    for j in range(generated):
        positions.append((places.last + j, places.b[0] + j))
    return positions


def map_cells(places: Positions) -> list[tuple[int, int]]:
    """Return the row and the column of each cell of a map: marked and first generated tokens."""
    marked = [*places.marked, *(places.last + j for j in range(1, N_MAPPED + 1))]
    return [*product(marked, marked)]


def strongest_cell(maps: Float[Tensor, "shown query key"]) -> float:
    """Return the largest attention in a cell of the search, on maps between the marked tokens.

    Cells of tokens that no map shows do not count. Evenly spread attention is one part in the
    number of tokens that a query sees: at most a sixth.
    """
    first = Positions(
        a=tuple(range(1, DIGITS + 1)),
        plus=DIGITS + 1,
        b=tuple(range(DIGITS + 2, 2 * DIGITS + 2)),
        last=2 * DIGITS + 2,
    )
    rows, columns = zip(*cells(first, N_MAPPED + 1), strict=True)
    return float(maps[:, rows, columns].max())


def attention_at(
    generated: Sequence[Sequence[Tensor]],
    rows: Int[Tensor, "batch cell"],
    columns: Int[Tensor, "batch cell"],
) -> Float[Tensor, "batch layer head cell"]:
    """Return the attention of every head at these cells of a left-padded batch.

    Cells beyond what was generated have no meaning. The patterns `[batch, head, query, key]` are by
    generated token and layer, as `generate` returns them.
    """
    last_position = generated[-1][0].shape[-1] - 1
    rows = rows.clamp(max=last_position)
    columns = columns.clamp(max=last_position)
    batch = torch.arange(len(rows)).unsqueeze(1)
    by_layer = []
    for patterns in zip(*generated, strict=True):  # of one layer, by generated token
        padded = []
        for i, pattern in enumerate(patterns, 1):
            padded.append(F.pad(pattern, (0, len(generated) - i)))
        whole = torch.cat(padded, -2)  # (batch, head, query, key)
        by_layer.append(whole[batch, :, rows, columns].float().cpu())  # (batch, cell, head)
    return torch.stack(by_layer, 1).transpose(2, 3)


def count_wins(
    attention: Float[Tensor, "batch layer head cell"], exists: Bool[Tensor, "batch cell"]
) -> Int[Tensor, "cell layer head"]:
    """Return the wins of each head in each cell that exists; ties go to the first head."""
    n_layers, n_heads = attention.shape[1:3]
    winner = attention.flatten(1, 2).argmax(1)  # (batch, cell)
    wins = []
    for cell in range(winner.shape[1]):
        winners = winner[exists[:, cell], cell]
        wins.append(winners.bincount(minlength=n_layers * n_heads))
    return torch.stack(wins).view(-1, n_layers, n_heads)


def most_frequent(wins: Int[Tensor, "layer head"], count: int = N_FREQUENT) -> Heads:
    """Return the heads that win most often, the most frequent first; none that never wins."""
    order = wins.flatten().sort(descending=True, stable=True).indices[:count].tolist()
    return tuple(divmod(i, wins.shape[1]) for i in order if wins.flatten()[i] > 0)


def frequent_pairs(wins: Int[Tensor, "layer head"], count: int) -> list[Heads]:
    """Return pairs among the most frequent winners, the most frequent pair first (App. A.3)."""
    pairs = sorted(
        combinations(most_frequent(wins), 2),
        key=lambda pair: -sum(int(wins[head]) for head in pair),
    )
    return [tuple(sorted(pair)) for pair in pairs[:count]]


def random_pairs(
    size: Size, targets: Collection[Heads], excluded: Collection[Head], seed: int
) -> list[Heads]:
    """Return random heads for each target, as many and of the same layers, no set twice.

    The layers are the same, since a pair may cost much only because its layer does. A target is
    left out if its layers have no other heads than those that are excluded.
    """
    generator = torch.Generator().manual_seed(seed)
    chosen_sets: list[Heads] = []
    for target in targets:
        candidates = []  # for each head of the target
        for layer, _ in target:
            of_layer = [(layer, head) for head in range(size.heads)]
            candidates.append([head for head in of_layer if head not in excluded])
        choices = set()
        for heads in product(*candidates):
            if len(set(heads)) == len(heads):
                choices.add(tuple(sorted(heads)))
        choices -= set(chosen_sets)
        if choices:
            i = int(torch.randint(len(choices), (), generator=generator))
            chosen_sets.append(sorted(choices)[i])
    return chosen_sets
