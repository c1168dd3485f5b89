"""The page of `carry compare` is one file, with a figure for each table and a text for each."""

import json
import re
from dataclasses import asdict

import pandas as pd
import pytest

from carry_paper import catalogue, cli
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


def test_what_is_asked_along_the_line_is_in_text_json_and_page(monkeypatch):
    summary = pd.DataFrame({"lowest": 0.96, "late": 0.25, "writers": 2}, index=[7])
    monkeypatch.setattr(compare.line_table, "lines_of", lambda loaded, share: summary)
    path = catalogue.find(groups.MAIN, recipe="quick", runs=[7])[7]
    subject = compare.subject(str(path))
    answers = compare.line_answers(subject, compare.Reference(subject.loaded), compare.PAIRS)
    by_id = {answer.id: answer for answer in answers}
    page = comparison.html({subject.name: answers}, [subject])
    text = compare.summary(answers).set_index("question")
    stored = {row["id"]: row for row in json.loads(json.dumps([*map(asdict, answers)]))}
    strips = {row.question: row for row in comparison.strip_rows(answers)}
    for column, question in compare.LINE.items():
        answer = by_id[f"carry/line/{column}"]
        value = answer.runs["7"]
        assert value == summary[column][7]
        assert text.yours[question] == f"{value:.3g}"
        assert stored[answer.id]["runs"] == strips[question].yours == {"7": value}
        assert f">{question}</th>" in page
        assert len(answer.seeds) == len(strips[question].seeds) > 1


def test_a_strip_has_each_run_the_paper_and_our_seeds(answered):
    _, answers = answered
    (row,) = [row for row in comparison.strip_rows(answers) if row.question == "Carry neurons"]
    assert (row.paper, len(row.seeds), [*row.yours]) == (86, 6, ["0", "3"])


def test_the_command_writes_what_it_prints(data, few_random_sums, tmp_path, monkeypatch, capsys):
    save_random(groups.find(NAME), (0,), "quick", 9)
    ask = compare.ask
    monkeypatch.setattr(compare, "ask", lambda subject, report: ask(subject, report, 8, few_sums))
    monkeypatch.setattr(comparison, "drawings", lambda *_: [])  # they are tested above
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
