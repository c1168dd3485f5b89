"""The small model: its tokens and sums, and its trainer."""

import pytest
import torch

from carry_paper.llm import prompts, small
from carry_paper.llm.model import inspect_model

pytestmark = [pytest.mark.slow, pytest.mark.machine]

BARE = prompts.TEMPLATES["bare"]


def test_the_tokens_are_the_tokenizers():
    tokenizer = small.tokenizer()
    pairs = torch.cat(
        [prompts.draw(50), torch.tensor([[1000, 1000], [9999, 9999], [4999, 5001], [4999, 5000]])]
    )
    for (a, b), row in zip(pairs.tolist(), small.encode(pairs), strict=True):
        text = f"{a} + {b} = {a + b}"
        expected = [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
        assert row.tolist() == expected + [tokenizer.pad_token_id] * (17 - len(expected))
        assert tokenizer.decode(expected, skip_special_tokens=True) == text.replace(" ", "")
    assert small.encode(pairs).shape[1] == 17
    assert (
        len(tokenizer(prompts.TEMPLATES["bare"].prompt(1234, 5678))["input_ids"])
        == small.PROMPT_LENGTH
    )


def test_the_loss_sees_the_answer_only_and_never_a_prompt_of_the_protocol():
    pair = prompts.draw(1000)[17]
    pairs = torch.stack([pair, pair.flip(0), torch.tensor([4000, 2000])])
    labels = small.labels(pairs, small.encode(pairs))
    assert (labels[0] == -100).all()
    assert labels[2].tolist() == [
        small.TOKENS.index("6"),
        *[small.TOKENS.index("0")] * 3,
        small.EOS,
        -100,
    ]
    assert labels[1, 0] != -100


def test_training_again_gives_the_same_bits_and_learns():
    tiny = small.Recipe(width=8, layers=1, heads=2, steps=110, batch=16, warmup=5)
    (first, record), (again, same) = small.train(tiny), small.train(tiny)
    assert record["history"] == same["history"]
    assert [row["step"] for row in record["history"]] == [100, 110]
    assert all(map(torch.equal, first.parameters(), again.parameters()))
    assert record["history"][-1]["loss"] < record["history"][0]["loss"]


def test_the_command_writes_a_model_that_can_be_loaded(data, carry, monkeypatch):
    monkeypatch.setattr(small, "RECIPE", small.Recipe(width=8, layers=1, heads=2, steps=3, batch=8))
    code, out, err = carry("train-llm")
    assert code == 0, err  # progress, where it takes longer than a moment, is on stderr
    names = {path.name for path in (data / "llm" / "small").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "training.json"} <= names
    assert all(name in out for name in names)
    assert inspect_model(str(data / "llm" / "small"), BARE).load().config.hidden_size == 8
