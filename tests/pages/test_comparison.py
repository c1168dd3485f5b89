"""The page of `carry compare` is one file, with a figure for each table and a text for each."""

import json
import re

import pytest

from carry_core import groups
from carry_paper import cli
from carry_paper.ledger import compare
from carry_paper.pages import comparison
from tests.helpers.trainings import few_sums, save_random

pytestmark = pytest.mark.slow

NAME = "n1_s0.4_w0.5_dff64_h4"


@pytest.fixture
def answered(data, few_draws):
    save_random(groups.find(NAME), (0, 3), "quick", 9)
    subject = compare.subject(NAME)
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


def test_the_command_writes_what_it_prints(data, few_draws, tmp_path, monkeypatch, capsys):
    save_random(groups.find(NAME), (0,), "quick", 9)
    ask = compare.ask
    monkeypatch.setattr(compare, "ask", lambda subject, report: ask(subject, report, 8, few_sums))
    rows, page = tmp_path / "rows.json", tmp_path / "page.html"
    monkeypatch.setattr(
        "sys.argv", ["carry", "compare", NAME, "--json", str(rows), "--html", str(page)]
    )
    cli.main()
    printed = capsys.readouterr().out
    answers = json.loads(rows.read_text())
    assert {answer["runs_of"] for answer in answers} == {NAME}
    for answer in answers:
        if answer["id"] == "finding/staircase":
            assert f"{answer['runs']['0']:.3g}" in printed
    assert "tab1/final_mlp: mean accuracy" in printed
    assert page.read_text().startswith("<!doctype html>")
