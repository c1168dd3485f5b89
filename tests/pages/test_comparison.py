"""The page of `carry compare` is one file, with a figure for each table and a text for each."""

import re

import pytest

from carry_paper.ledger import compare
from carry_paper.pages import comparison
from carry_train import groups
from tests.conftest import drawing_few
from tests.helpers.trainings import few_sums, save_random

pytestmark = pytest.mark.slow

NAME = "n1_s0.4_w0.5_dff64_h4"


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, drawing_few():
        patch.setenv("CARRY_DATA", str(tmp_path_factory.mktemp("data")))
        save_random(groups.find(NAME), (0, 3), "quick", 9)
        subject = compare.Subject.of(NAME)
        return subject, compare.ask(subject, pairs=8, surveyed=few_sums)


def test_the_page_needs_no_other_file(answered):
    subject, answers = answered
    page = comparison.html({NAME: answers}, [subject])
    assert f"<h2>{NAME}</h2>" in page
    assert page.count("<img ") == 4  # strips, two tables, attention
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert all(len(alt) > 40 for alt in re.findall(r'alt="([^"]*)"', page))
    exact = next(answer for answer in answers if answer.id == "n2/accuracy")
    assert compare.value_words(exact) in page


def test_a_strip_has_each_run_the_paper_and_our_seeds(answered):
    _, answers = answered
    (row,) = [row for row in comparison.strip_rows(answers) if row.question == "Carry neurons"]
    assert (row.paper, len(row.seeds), [*row.yours]) == (86, 6, ["0", "3"])
