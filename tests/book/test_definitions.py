"""Words with their definitions, and pages at old addresses."""

import re
from pathlib import Path

import torch
from definitions import anchor, definitions

from carry_core import carries, encode
from carry_paper.pages.playground import FIRST_SUM
from carry_train import groups

ROOT = Path(__file__).parents[2]
WORDS = (ROOT / "book" / "words.md").read_text(encoding="utf-8")
PAGES = [*(ROOT / "book").glob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]


def test_every_word_that_a_page_explains_is_defined():
    meanings = definitions(WORDS)
    assert len({anchor(word) for word in meanings}) == len(meanings)
    used = [
        text.partition(" <")[2].removesuffix(">") or text
        for path in PAGES
        for text in re.findall(r"\{word\}`([^`]+)`", path.read_text(encoding="utf-8"))
    ]
    assert {*used} - meanings.keys() == set()
    assert len(used) > 5


def test_the_example_of_words_is_the_sum_of_the_whole_book():
    a, b = FIRST_SUM
    assert f"of {a} + {b}" in WORDS
    layout = groups.find(groups.MAIN).config.layout
    tokens = encode(torch.tensor([a]), torch.tensor([b]), layout)[0].tolist()
    written = ["0123456789+="[token] for token in tokens]
    (row,) = (line for line in WORDS.splitlines() if line.startswith(f"| of {a} + {b} |"))
    assert [cell.strip(" `") for cell in row.split("|")[2:-1]] == written
    (answer,) = (line for line in WORDS.splitlines() if line.startswith("| answer |"))
    assert answer.replace("|", " ").split()[1:] == [*str(a + b)]


def test_the_examples_of_carry_classes_are_of_these_classes():
    row = re.compile(r"^\| `([^`]+)` \| `([012]{3})` \| .* \| (\d+) \+ (\d+) \|$", re.MULTILINE)
    examples = row.findall(WORDS)
    assert len(examples) == 5
    for name, pattern, a, b in examples:
        (index,) = carries.classify(torch.tensor([int(a)]), torch.tensor([int(b)]), 3).tolist()
        assert carries.patterns(3)[index] == pattern
        assert carries.paper_name(pattern) == name
