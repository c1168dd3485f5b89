"""Prompts, answers, mistakes and the tokens of digits, each against the naive way."""

import pytest
import torch
from scipy.stats import binom

from carry_core.errors import BadInput
from carry_paper.llm import prompts, small
from carry_paper.llm.head_survey import RIGHT_TO_RANK
from carry_paper.llm.model import MOST_PAIRS, Size
from carry_paper.llm.prompts import Answers
from carry_paper.llm.staircases import frequent_pairs, most_frequent, random_pairs
from tests.helpers.llm_models import TOKENIZERS

BARE, ALPACA = prompts.TEMPLATES["bare"], prompts.TEMPLATES["alpaca"]


def test_more_prompts_begin_with_the_same():
    assert torch.equal(prompts.draw(1500)[:7], prompts.draw(7))
    assert BARE.prompt(5542, 2067) == "5542 + 2067 = "
    assert "### Instruction:\n5542 + 2067 = \n\n### Response:" in ALPACA.prompt(5542, 2067)


@pytest.mark.parametrize(
    ("reply", "first", "last"),
    [
        ("7609\n\n\nQuestion 1", 7609, 1),
        (" 5542 + 2067 = 7,609.", 5542, 7609),
        ("I do not know", -1, -1),
        ("٧٦٠٩", -1, -1),
    ],
)
def test_the_answer_is_the_first_or_the_last_integer(reply, first, last):
    assert BARE.answer(reply) == first
    assert ALPACA.answer(reply) == last


def naive_carrying(a: int, b: int, value: int) -> bool:
    """By hand: add column by column, and look at each digit that gets a one."""
    if value == a + b:
        return False
    carry, has_mistake = 0, False
    for i in range(5):
        da, db, answer_digit = (n // 10**i % 10 for n in (a, b, value))
        right = (da + db + carry) % 10
        has_mistake |= carry == 1 and (right - answer_digit) % 10 == 1
        carry = int(da + db + carry >= 10)
    return has_mistake


def test_carrying_mistakes_by_column_addition():
    generator = torch.Generator().manual_seed(0)
    pairs = prompts.draw(2000, seed=1)
    wrong = (
        pairs.sum(1) + torch.randint(-1111, 1112, (2000,), generator=generator) // 10 * 10
    ).tolist()
    values = [10 * x if i % 50 == 0 else x for i, x in enumerate(wrong)]
    answers = Answers(pairs, tuple(map(str, values)), BARE)
    expected = [naive_carrying(a, b, v) for (a, b), v in zip(pairs.tolist(), values, strict=True)]
    assert answers.carrying.tolist() == expected
    assert 0.1 < sum(expected) / len(expected) < 0.9
    assert answers.carry_share == pytest.approx(sum(expected) / int((~answers.right).sum()))


def test_random_digits_make_as_many_carrying_mistakes_as_chance_says():
    pairs = prompts.draw(4000, seed=2)
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(10**5, (len(pairs),), generator=generator).tolist()
    answers = Answers(pairs, tuple(map(str, values)), BARE)
    assert 0.1 < answers.carry_chance < 0.4
    assert answers.carry_share == pytest.approx(answers.carry_chance, abs=0.02)


@pytest.mark.parametrize(
    ("name", "template"), [*((name, BARE) for name in TOKENIZERS), ("bytes_and_threes", ALPACA)]
)
def test_every_digit_is_in_the_token_that_holds_it(name, template):
    """By walking through the tokens' own characters and counting digits, with no offsets."""
    tokenizer = TOKENIZERS[name]()
    grouped = 0
    for a, b in [*prompts.draw(50, seed=5).tolist(), [1111, 1111], [1000, 1001]]:
        prompt = template.prompt(a, b)
        encoding = tokenizer(prompt, return_offsets_mapping=True)
        places = prompts.locate(prompt, encoding["offset_mapping"], a, b)
        tokens = tokenizer.convert_ids_to_tokens(encoding["input_ids"])
        holders = [i for i, token in enumerate(tokens) for c in token if c.isdigit()]
        assert holders[-8:] == [*places.a, *places.b]
        assert "+" in tokens[places.plus]
        assert places.last == len(tokens) - 1
        grouped += len(set(places.a)) < 4
    assert (grouped > 0) == (name in ("grouped_digits", "bytes_and_threes"))


@pytest.mark.parametrize("sign", ["+", "7"])
def test_a_tokenizer_that_leaves_a_sign_out(sign, monkeypatch):
    monkeypatch.setattr(
        small, "TOKENS", tuple("?" if token == sign else token for token in small.TOKENS)
    )
    with pytest.raises(BadInput, match=f"cannot write 1234 . 5678, but '[^{sign}]*': expected"):
        prompts.check_tokenizer(small.tokenizer(), BARE)


def test_frequent_and_random_pairs():
    wins = torch.zeros(3, 4, dtype=torch.int64)
    wins[0, 1], wins[2, 3], wins[1, 0], wins[1, 2] = 10, 30, 20, 10
    assert most_frequent(wins) == ((2, 3), (1, 0), (0, 1), (1, 2))
    assert frequent_pairs(wins, 2) == [((1, 0), (2, 3)), ((0, 1), (2, 3))]
    size = Size(3, 4)
    excluded = {*most_frequent(wins), (0, 0)}
    targets = [((1, 0), (2, 3)), ((2, 0), (2, 3)), ((2, 1),)]
    pairs = random_pairs(size, targets, excluded, seed=0)
    assert [[layer for layer, _ in heads] for heads in pairs] == [[1, 2], [2, 2], [2]]
    assert not {head for heads in pairs for head in heads} & excluded
    all_pairs = random_pairs(size, [((1, 0), (2, 3))] * 100, excluded, seed=0)
    assert len(all_pairs) == len({*all_pairs}) == 2 * 3
    assert random_pairs(size, targets, excluded, seed=0) == pairs
    assert any(random_pairs(size, targets, excluded, seed=seed) != pairs for seed in (1, 2, 3))


def test_a_reply_without_a_number_has_no_digit_right():
    answers = Answers(torch.tensor([[5000, 1000], [5542, 1558]]), ("6000", "no idea"), BARE)
    assert answers.by_position == [0.5] * 4


def test_a_model_needs_as_many_correct_answers_as_a_sign_test_of_all_pairs():
    """It sees half of them lost in nine of ten surveys, at 0.05 over all pairs."""

    def is_seen(lost: int) -> bool:
        return bool(2 * 0.5**lost <= 0.05 / MOST_PAIRS)

    fewest = next(lost for lost in range(100) if is_seen(lost))
    powers = {right: binom.sf(fewest - 1, right, 0.5) for right in range(100)}
    assert min(right for right, power in powers.items() if power >= 0.9) == RIGHT_TO_RANK
