"""Ablated heads, attention cells and residual streams, against zeroed weights and whole forward passes."""

import pytest
import torch

from carry_core.llm import prompts, staircases
from carry_core.llm.model import OUTPUTS, Size, ablated, blocks, cached_streams
from tests.llm_models import KINDS, TOKENIZERS, build


@pytest.fixture(params=KINDS)
def model(request):
    return build(request.param, 40)


def tokens(batch: int = 5, length: int = 9) -> torch.Tensor:
    return torch.randint(3, 40, (batch, length), generator=torch.Generator().manual_seed(2))


def test_an_ablated_head_is_zeroed_columns_of_the_output_projection(model):
    ids, chosen = tokens(), ((2, 3), (1, 1), (1, 0))
    with torch.inference_mode():
        intact = model(ids).logits
        with ablated(model, chosen):
            found = model(ids).logits
        again = model(ids).logits
        size = Size.of(model.config)
        for layer, head in chosen:
            weight = blocks(model)[layer].projection.weight
            columns = slice(head * size.d_head, (head + 1) * size.d_head)
            if type(blocks(model)[layer].projection).__name__ == "Conv1D":  # GPT-2 stores it transposed
                weight[columns] = 0
            else:
                weight[:, columns] = 0
        expected = model(ids).logits
    assert (found - expected).abs().max() == 0.0
    assert torch.equal(intact, again)  # the hooks are gone
    assert (found - intact).abs().max() > 1e-3


def test_planted_staircases_are_found_exactly():
    n, length = 6, 11
    cells = staircases.cells(prompts.Positions((1, 2, 3, 4), 5, (6, 7, 8, 9), 10), n)  # `<s> a a a a + b b b b =`
    plant = {(0, 1): cells[4:5], (1, 2): cells[:4], (2, 3): [*cells[5:8], (3, 3)], (2, 0): [(12, 1)]}
    whole = torch.full((3, 7, 4, length + n - 1, length + n - 1), 0.01)  # [layer, batch, head, query, key]
    for (layer, head), planted in plant.items():
        for row, column in planted:
            whole[layer, :, head, row, column] = 0.9
    ends = [(0, length), *((length + j, length + j + 1) for j in range(n - 1))]
    generated = [[layer[:, :, start:end, :end] for layer in whole] for start, end in ends]
    rows, columns = torch.tensor([cells] * 7).permute(2, 0, 1)
    wins = staircases.count_wins(staircases.attention_at(generated, rows, columns), torch.ones(7, 10, dtype=torch.bool))
    expected = torch.zeros(10, 3, 4, dtype=torch.int64)
    expected[4, 0, 1] = 7
    expected[:4, 1, 2] = 7
    expected[5:8, 2, 3] = 7
    expected[8:, 0, 0] = 7  # all heads are equal in the last two cells: the first wins
    assert torch.equal(wins, expected)


@pytest.mark.parametrize(("kind", "name"), list(zip(KINDS, TOKENIZERS, strict=True)))
def test_what_is_read_while_generating_is_what_a_whole_pass_has(kind, name):
    """Attention and stream of every layer, one prompt at a time, unpadded, without a cache."""
    tokenizer, n = TOKENIZERS[name](), 5
    model = build(kind, len(tokenizer))
    tokenizer.padding_side = "left"
    pairs = [*prompts.draw(6, seed=9).tolist(), [1000, 1000], [9876, 5432]]
    texts = [prompts.TEMPLATES["bare"].prompt(a, b) for a, b in pairs]
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    pads = (inputs["attention_mask"] == 0).sum(1)
    found = []
    for text, (a, b) in zip(texts, pairs, strict=True):
        place = prompts.locate(text, tokenizer(text, return_offsets_mapping=True)["offset_mapping"], a, b)
        found.append(staircases.cells(place, n) + staircases.map_cells(place))
    length = inputs["input_ids"].shape[1]
    options = {"max_new_tokens": n, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    options |= {"return_dict_in_generate": True, "output_attentions": True}
    with cached_streams(model) as streams, torch.inference_mode():
        output = model.generate(inputs["input_ids"], attention_mask=inputs["attention_mask"], **options)
    new = output.sequences[:, length:]
    rows, columns = torch.tensor(found).permute(2, 0, 1) + pads.unsqueeze(1)
    attention = staircases.attention_at(output.attentions, rows, columns)
    streams = torch.stack(streams).unflatten(0, (OUTPUTS, 3, 2))
    for i, text in enumerate(texts):
        ids = torch.cat([torch.tensor(tokenizer(text)["input_ids"]), new[i]]).unsqueeze(0)
        prompt = ids.shape[1] - n
        with torch.inference_mode():
            whole = model(ids, output_attentions=True, output_hidden_states=True)
        for c, (row, column) in enumerate(found[i]):
            if row < prompt + n - 1:  # the last generated token is never fed back
                expected = torch.stack([layer[0, :, row, column] for layer in whole.attentions])
                torch.testing.assert_close(attention[i, :, :, c], expected, atol=1e-5, rtol=0)
        at = torch.arange(OUTPUTS) + prompt - 1
        for layer, block in enumerate(blocks(model)):
            middle, end = streams[:, layer, :, i].unbind(1)
            if layer + 1 < len(blocks(model)):  # the last entry of hidden_states is after the final norm
                torch.testing.assert_close(end, whole.hidden_states[layer + 1][0, at], atol=1e-4, rtol=1e-4)
            with torch.inference_mode():
                added = block.layer.mlp(block.norm(middle))
            torch.testing.assert_close(middle + added, end, atol=1e-4, rtol=1e-4)
    assert bool(pads.any()) == (name in ("grouped_digits", "bytes_and_threes"))
