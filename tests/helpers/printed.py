"""The output of examples, compared with that which pages print."""

import re

import pytest


def words(text: str) -> list[str | float]:
    """The words of a text, its numbers as numbers."""
    return [float(word) if re.fullmatch(r"-?\d+\.\d+", word) else word for word in text.split()]


def assert_same_words(printed: str, expected: str) -> None:
    """Numbers may differ by a few of the 1000 sums of a cell: processors round differently."""
    printed_words, expected_words = words(printed), words(expected)
    assert len(printed_words) == len(expected_words)
    for word, expected_word in zip(printed_words, expected_words, strict=True):
        if isinstance(expected_word, float):
            assert word == pytest.approx(expected_word, abs=0.02)
        else:
            assert word == expected_word
