"""Ablated heads against zeroed weights, and the search for staircases on planted ones."""

import pytest
import torch

from carry_paper.llm import prompts, staircases
from carry_paper.llm.model import ablated, blocks
from tests.helpers.llm_models import KINDS, build

pytestmark = [pytest.mark.slow, pytest.mark.machine]


@pytest.mark.parametrize("kind", KINDS)
def test_an_ablated_head_is_zeroed_columns_of_the_output_projection(kind):
    model, heads = build(kind, 40), ((2, 3), (1, 1), (1, 0))
    ids = torch.randint(3, 40, (5, 9), generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        intact = model(ids).logits
        with ablated(model, heads):
            logits = model(ids).logits
        again = model(ids).logits
        d_head = blocks(model)[0].projection.weight.numel() // (24 * 4)
        for layer, head in heads:
            weight = blocks(model)[layer].projection.weight
            columns = slice(head * d_head, (head + 1) * d_head)
            # GPT-2 stores it transposed
            if type(blocks(model)[layer].projection).__name__ == "Conv1D":
                weight[columns] = 0
            else:
                weight[:, columns] = 0
        expected = model(ids).logits
    assert (logits - expected).abs().max() == 0.0
    assert torch.equal(intact, again)  # the hooks are gone
    assert (logits - intact).abs().max() > 1e-3


def test_planted_staircases_are_found_exactly():
    n, length = 6, 11
    # `<s> a a a a + b b b b =`
    cells = staircases.cells(prompts.Positions((1, 2, 3, 4), 5, (6, 7, 8, 9), 10), n)
    plant = {
        (0, 1): cells[4:5],
        (1, 2): cells[:4],
        (2, 3): [*cells[5:8], (3, 3)],
        (2, 0): [(12, 1)],
    }
    # [layer, batch, head, query, key]
    whole = torch.full((3, 7, 4, length + n - 1, length + n - 1), 0.01)
    for (layer, head), planted in plant.items():
        for row, column in planted:
            whole[layer, :, head, row, column] = 0.9
    ends = [(0, length), *((length + j, length + j + 1) for j in range(n - 1))]
    generated = [[layer[:, :, start:end, :end] for layer in whole] for start, end in ends]
    rows, columns = torch.tensor([cells] * 7).permute(2, 0, 1)
    wins = staircases.count_wins(
        staircases.attention_at(generated, rows, columns), torch.ones(7, 10, dtype=torch.bool)
    )
    expected = torch.zeros(10, 3, 4, dtype=torch.int64)
    expected[4, 0, 1] = 7
    expected[:4, 1, 2] = 7
    expected[5:8, 2, 3] = 7
    expected[8:, 0, 0] = 7  # all heads are equal in the last two cells: the first wins
    assert torch.equal(wins, expected)
