"""The staircase search: which head attends most where column addition would look (Sec. 6, App. A.3).

The cells of an example, each won by the head with the largest value over all layers: digit k of the
second number looking at digit k of the first; the prompt's last token looking at the first digit of
the second number; and each generated token j looking j tokens further on.
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
# axis labels of a map; `*` for a digit
MARKS = ("⊢", *"*" * DIGITS, "+", *"*" * DIGITS, "=", *"•" * N_MAPPED)


def cells(places: Positions, generated: int) -> list[tuple[int, int]]:
    """Row and column of each cell in an unpadded sequence, whether or not the example gets that far."""
    return [
        *zip(places.b, places.a, strict=True),
        *((places.last + j, places.b[0] + j) for j in range(generated)),
    ]


def map_cells(places: Positions) -> list[tuple[int, int]]:
    """Row and column of all cells between the marked and the first generated tokens, row by row."""
    marked = [*places.marked, *(places.last + j for j in range(1, N_MAPPED + 1))]
    return [*product(marked, marked)]


def attention_at(
    generated: Sequence[Sequence[Tensor]],
    rows: Int[Tensor, "batch cell"],
    columns: Int[Tensor, "batch cell"],
) -> Float[Tensor, "batch layer head cell"]:
    """The attention of every head at these cells of the left-padded batch; of no meaning beyond what was generated.

    Patterns are `[batch, head, query, key]` for each generated token and layer, as `generate` gives
    them.
    """
    batch, n_tokens = torch.arange(len(rows)).unsqueeze(1), len(generated)
    rows, columns = (x.clamp(max=generated[-1][0].shape[-1] - 1) for x in (rows, columns))
    found = []
    for layer in zip(*generated, strict=True):
        pattern = torch.cat([F.pad(step, (0, n_tokens - i)) for i, step in enumerate(layer, 1)], -2)
        # indices around a slice: [batch, cell, head]
        found.append(pattern[batch, :, rows, columns].float().cpu())
    return torch.stack(found, 1).transpose(2, 3)


def count_wins(
    attention: Float[Tensor, "batch layer head cell"], exists: Bool[Tensor, "batch cell"]
) -> Int[Tensor, "cell layer head"]:
    """How often each head has the largest value in each of the cells that exist; of equals the first wins."""
    winner, (n_layers, n_heads) = attention.flatten(1, 2).argmax(1), attention.shape[1:3]
    wins = [
        winner[exists[:, cell], cell].bincount(minlength=n_layers * n_heads)
        for cell in range(winner.shape[1])
    ]
    return torch.stack(wins).view(-1, n_layers, n_heads)


def most_frequent(wins: Int[Tensor, "layer head"], count: int = N_FREQUENT) -> Heads:
    """The heads that win most often, the most frequent first; of equals the earlier; none that never wins."""
    order = wins.flatten().sort(descending=True, stable=True).indices[:count].tolist()
    return tuple(divmod(i, wins.shape[1]) for i in order if wins.flatten()[i] > 0)


def frequent_pairs(wins: Int[Tensor, "layer head"], count: int) -> list[Heads]:
    """Pairs among the most frequent winners, the most frequent pair first (App. A.3)."""
    pairs = sorted(
        combinations(most_frequent(wins), 2),
        key=lambda pair: -sum(int(wins[head]) for head in pair),
    )
    return [tuple(sorted(pair)) for pair in pairs[:count]]


def random_pairs(
    size: Size, targets: Collection[Heads], others: Collection[Head], seed: int
) -> list[Heads]:
    """For each target as many heads of the same layers, drawn from all but `others`, no pair twice.

    Matched by layer, since a pair may cost much only because its layer does. Fewer where a layer
    has no more.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn: list[Heads] = []
    for target in targets:
        heads = [
            [(layer, h) for h in range(size.heads) if (layer, h) not in others]
            for layer, _ in target
        ]
        choices = {tuple(sorted(pair)) for pair in product(*heads) if len({*pair}) == len(pair)} - {
            *drawn
        }
        if choices:
            drawn.append(sorted(choices)[int(torch.randint(len(choices), (), generator=generator))])
    return drawn
