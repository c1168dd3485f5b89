"""The small model: its tokens and sums, its trainer, and the weights that are shipped."""

import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from carry_core import cli
from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_core.llm import loading, prompts, small, surveyor

TINY = small.Recipe(width=8, layers=1, heads=2, steps=250, batch=16, warmup=5)
SHIPPED = ROOT / "data" / "llm" / "small"


def test_the_tokens_are_the_tokenizers():
    tokenizer = small.tokenizer()
    pairs = torch.cat([prompts.draw(50), torch.tensor([[1000, 1000], [9999, 9999], [4999, 5001], [4999, 5000]])])
    for (a, b), row in zip(pairs.tolist(), small.encode(pairs), strict=True):
        text = f"{a} + {b} = {a + b}"
        expected = [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
        assert row.tolist() == expected + [tokenizer.pad_token_id] * (17 - len(expected))
        assert tokenizer.decode(expected, skip_special_tokens=True) == text.replace(" ", "")
    assert small.encode(pairs).shape[1] == 17
    assert len(tokenizer(prompts.TEMPLATES["bare"].prompt(1234, 5678))["input_ids"]) == small.PROMPT_LENGTH


def test_batches_are_four_digit_sums_with_many_ones_that_travel():
    recipe = small.Recipe(width=8, batch=20_000)
    pairs = small.draw(recipe, 3)
    assert torch.equal(pairs, small.draw(recipe, 3))
    assert not torch.equal(pairs, small.draw(recipe, 4))
    assert int(pairs.min()) >= 1000
    assert int(pairs.max()) <= 9999
    nines = torch.stack([(pairs // 10**i % 10).sum(1) == 9 for i in range(3)]).double().mean().item()
    assert nines == pytest.approx(0.5 * 0.1 + 0.5 * (0.5 + 0.5 * 0.1), abs=0.01)


def test_the_loss_sees_the_answer_only_and_never_a_prompt_of_the_protocol():
    asked = prompts.draw(1000)[17]
    pairs = torch.stack([asked, asked.flip(0), torch.tensor([4000, 2000])])
    found = small.labels(pairs, small.encode(pairs))
    assert (found[0] == -100).all()
    assert found[2].tolist() == [small.ZERO + 6, *[small.ZERO] * 3, small.EOS, -100]
    assert found[1, 0] != -100


def test_validation_is_the_share_of_whole_answers():
    trainer = small.Trainer(TINY)
    generator = torch.Generator().manual_seed(TINY.seed + 1)
    pairs = torch.randint(1000, 10000, (small.N_VALIDATION, 2), generator=generator)
    tokens = small.encode(pairs)
    wrong = 0

    def logits(tokens):
        nonlocal wrong
        found = torch.nn.functional.one_hot(tokens[:, small.PROMPT_LENGTH :], len(small.TOKENS)).float()
        found[:100, 2] = 0  # the third digit of a hundred sums becomes a padding token
        return found

    trainer.logits = logits
    assert trainer.validate() == pytest.approx(0.9)
    assert tokens[:, small.PROMPT_LENGTH + 2].min() >= small.ZERO


def test_training_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    whole = small.train(TINY, tmp_path / "whole.safetensors")

    def stop(trainer):
        trainer.save(tmp_path / "part.safetensors")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small.train(TINY, tmp_path / "part.safetensors", report=stop)
    again = small.train(TINY, tmp_path / "part.safetensors")
    assert again.history == whole.history
    assert [row["step"] for row in again.history] == [100, 200, 250]
    for p, q in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(p, q)
    assert whole.history[-1]["loss"] < whole.history[0]["loss"]


def test_another_recipe_or_a_damaged_checkpoint_is_refused(tmp_path):
    path = tmp_path / "some.safetensors"
    small.Trainer(TINY).save(path)
    with pytest.raises(BadInput, match="of another recipe: move it away"):
        small.Trainer(small.Recipe(width=16, layers=1, heads=2)).load(path)
    path.write_bytes(b"0" * 30)
    with pytest.raises(BadInput, match="is damaged"):
        small.Trainer(TINY).load(path)


def test_the_ladder_stops_at_the_first_good_size(tmp_path, monkeypatch):
    recipes = [small.Recipe(width=w, layers=1, heads=2, steps=3, batch=8) for w in (8, 12, 16)]
    monkeypatch.setattr(small.Trainer, "validate", lambda self: 0.97 if self.recipe.width == 12 else 0.5)
    names = small.climb(tmp_path / "out", tmp_path / "checkpoints", ladder=recipes)
    assert {"config.json", "model.safetensors", "tokenizer.json", "training.json"} <= set(names)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").config.hidden_size == 12
    assert AutoTokenizer.from_pretrained(tmp_path / "out").decode([1, 11, 12]) == "<s>56"
    with pytest.raises(BadInput, match="No size reached"):
        small.climb(tmp_path / "out", tmp_path / "checkpoints", ladder=recipes[::2])


def test_the_command_trains_and_lists_its_files(data, monkeypatch, capsys):
    monkeypatch.setattr(small, "LADDER", (small.Recipe(width=8, layers=1, heads=2, steps=3, batch=8),))
    monkeypatch.setattr(small, "ENOUGH", 0.0)
    for command in ("train-llm", "verify"):
        monkeypatch.setattr(sys, "argv", ["carry", command])
        cli.main()
    out = capsys.readouterr().out
    assert "model.safetensors" in out
    assert "is as its manifest says" in out
    assert (data / "checkpoints" / "llm" / "small_width8.safetensors").exists()


# ---------------------------------------------------------------- what is shipped


def test_the_shipped_model_adds_and_is_small(tmp_path):
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 8 * 2**20
    bare = prompts.TEMPLATES["bare"]
    source = loading.find(str(SHIPPED), bare)
    plan = surveyor.Plan(batch=250, pairs=0)
    found = surveyor.Surveyor(source, plan, tmp_path).run()
    assert found.answers.accuracy >= 0.95
    assert found.answers.right.tolist() == [
        r == str(s) for r, s in zip(found.answers.replies, found.answers.totals.tolist(), strict=True)
    ]
