"""Ablated heads, attention cells and residual streams, against zeroed weights and whole forward passes."""

import pytest
import torch

from carry_core.errors import BadInput
from carry_core.llm import prompts, staircases
from carry_core.llm.model import OUTPUTS, Observer, Size, ablated, blocks
from tests.llm_models import KINDS, TOKENIZERS, build


@pytest.fixture(params=KINDS)
def model(request):
    return build(request.param, 40)


def tokens(batch: int = 5, length: int = 9) -> torch.Tensor:
    return torch.randint(3, 40, (batch, length), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("chosen", [((0, 0),), ((2, 3), (1, 1)), ((1, 0), (1, 3))])
def test_an_ablated_head_is_zeroed_columns_of_the_output_projection(model, chosen):
    ids = tokens()
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


def test_a_head_that_does_not_exist(model):
    with pytest.raises(BadInput, match="No head 3:0: expected a layer from 0 to 2"), ablated(model, ((3, 0),)):
        pass


def test_a_model_laid_out_in_another_way():
    model = build("llama", 40)
    del model.model.layers[1].self_attn
    with pytest.raises(BadInput, match="LlamaForCausalLM is laid out in another way: expected layers"):
        blocks(model)


# ---------------------------------------------------------------- the staircase search


def places() -> prompts.Positions:
    """`<s> a a a a + b b b b =`."""
    return prompts.Positions(0, (1, 2, 3, 4), 5, (6, 7, 8, 9), 10)


class Planted:
    """Replaces what the attentions report: `plant[layer][head]` is a list of cells where the head looks hardest."""

    def __init__(self, model, plant):
        self.plant = plant
        for layer, block in enumerate(blocks(model)):
            block.attention.register_forward_hook(self.hook(layer))

    def hook(self, layer):
        def put(module, args, output):
            weights = torch.full_like(output[1], 0.01)
            start = weights.shape[-1] - weights.shape[-2]
            for head, cells in self.plant.get(layer, {}).items():
                for row, column in cells:
                    if start <= row < weights.shape[-1]:
                        weights[:, head, row - start, column] = 0.9
            return output[0], weights

        return put


def test_planted_staircases_are_found_exactly():
    model, n = build("mistral", 40), 6
    cells = staircases.cells(places(), n)
    Planted(model, {0: {1: cells[4:5]}, 1: {2: cells[:4]}, 2: {3: [*cells[5:8], (3, 3)], 0: [(12, 1)]}})
    ids = tokens(7, 11)
    observer = Observer(model, *staircases.padded([cells] * 7, torch.zeros(7, dtype=torch.int64)), 11)
    with observer.watching(), torch.inference_mode():
        model.generate(ids, max_new_tokens=n, do_sample=False, eos_token_id=None, pad_token_id=0)
    there = staircases.reached(observer.rows, 11, torch.tensor([n] * 7))
    wins = staircases.count_wins(observer.attention, there, Size.of(model.config))
    expected = torch.zeros(10, 3, 4, dtype=torch.int64)
    expected[4, 0, 1] = 7
    expected[:4, 1, 2] = 7
    expected[5:8, 2, 3] = 7
    expected[8:, 0, 0] = 7  # all heads are equal in the last two cells: the first wins
    assert torch.equal(wins, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TOKENIZERS)
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
    observer = Observer(model, *staircases.padded(found, pads), length)
    options = {"max_new_tokens": n, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    with observer.watching(), torch.inference_mode():
        new = model.generate(inputs["input_ids"], attention_mask=inputs["attention_mask"], **options)[:, length:]
    for i, text in enumerate(texts):
        ids = torch.cat([torch.tensor(tokenizer(text)["input_ids"]), new[i]]).unsqueeze(0)
        prompt = ids.shape[1] - n
        with torch.inference_mode():
            whole = model(ids, output_attentions=True, output_hidden_states=True)
        for c, (row, column) in enumerate(found[i]):
            expected = torch.stack([layer[0, :, row, column] for layer in whole.attentions])
            # a row of the last generated token is never computed while generating
            expected = torch.zeros_like(expected) if row == prompt + n - 1 else expected
            torch.testing.assert_close(observer.attention[i, :, :, c], expected, atol=1e-5, rtol=0)
        at = torch.arange(OUTPUTS) + prompt - 1
        for layer, block in enumerate(blocks(model)):
            middle, end = observer.stream[:, layer, 0, i], observer.stream[:, layer, 1, i]
            if layer + 1 < len(blocks(model)):  # the last entry of hidden_states is after the final norm
                torch.testing.assert_close(end, whole.hidden_states[layer + 1][0, at], atol=1e-4, rtol=1e-4)
            with torch.inference_mode():
                added = block.layer.mlp(block.norm(middle))
            torch.testing.assert_close(middle + added, end, atol=1e-4, rtol=1e-4)
    assert bool(pads.any()) == (name in ("grouped_digits", "bytes_and_threes"))
