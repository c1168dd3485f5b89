"""Strips show each run where its value is, and the verdict box says why a row differs."""

from dataclasses import replace

import pytest
from bs4 import BeautifulSoup

from carry_paper.findings.base import MAIN, S01
from carry_paper.ledger import ledger
from carry_paper.ledger.claims import claims
from carry_paper.ledger.results import Row
from carry_paper.ledger.verdicts import TO_EXPLAIN
from carry_paper.pages import box, strips
from carry_paper.pages.playground import address
from carry_paper.pages.row_words import first_sentence

NUMBER = "n2/no_skip_accuracy"
RIGHT = strips.LEFT + strips.WIDTH


def number(runs: list[float], value: float = 0.5, **changes) -> Row:
    names = {"run": [str(run) for run in range(len(runs))]}
    row = Row(NUMBER, paper=0.5, value=value, runs=runs, tolerance=0.1, n=len(runs), fields=names)
    return replace(row, **changes)


def of_number(**rows: Row) -> list[strips.Lane]:
    return strips.lanes([claims()[NUMBER]], {source: [row] for source, row in rows.items()})


def test_a_share_is_drawn_from_0_to_1_with_the_paper_and_its_tolerance():
    (lane,) = of_number(ours=number([0.0, 0.25, 1.0]))
    quarter = strips.LEFT + strips.WIDTH / 4
    assert [(mark.x, mark.words) for mark in lane.marks] == [
        (strips.LEFT, "run 0: 0"),
        (quarter, "run 1: 0.250"),
        (RIGHT, "run 2: 1"),
    ]
    middle = strips.LEFT + strips.WIDTH / 2
    assert lane.paper == lane.judged == [middle]
    ((left, right),) = lane.bands
    assert (left + right) / 2 == pytest.approx(middle)
    assert right - left == pytest.approx(0.2 * strips.WIDTH)
    assert lane.ends is None


def test_a_finding_has_a_dot_for_each_run_filled_if_it_shows_it():
    names = {"run": ["0", "1", "primed 2"], "shows": [True, False, None]}
    row = Row("finding/staircase", value=0.5, runs=[0.9, 0.1, 0.5], n=3, fields=names)
    (lane,) = strips.lanes([claims()[row.id]], {"ours": [row]})
    assert [(mark.look, mark.words) for mark in lane.marks] == [
        ("full", "run 0 shows it (0.900)"),
        ("open", "run 1 does not show it (0.100)"),
        ("unknown", "primed 2 can't say (0.500)"),
    ]
    assert lane.label == "1 of 2 runs shows it, not in run 1"


def test_a_row_on_a_range_counts_settings():
    names = {"run": ["a", "b", "c"], "shows": [True, None, True]}
    row = Row("finding/range", value=0.7, runs=[0.6, None, 0.8], n=3, fields=names)
    (lane,) = strips.lanes([claims()[row.id]], {"ours": [row]})
    assert lane.label == "it holds in 2 of 3 settings, and 1 can't tell"
    results = box.side("ours", [row])
    assert (results.value, results.beside) == ("2 of 3", "settings")


def test_a_dot_of_ours_opens_the_playground_with_its_run():
    runs = {"author": number([0.5]), "ours": number([0.5] * 7)}
    theirs, ours = of_number(**{source: replace(x, groups=[MAIN]) for source, x in runs.items()})
    links = [address(MAIN, run) for run in range(6)]
    assert {mark.link for mark in theirs.marks} == {""}
    assert sorted(mark.link for mark in ours.marks) == ["", *links]
    names = {"run": [f"{MAIN} 3", f"{S01} 3"], "shows": [True, False]}
    row = Row("finding/biases", runs=[0.0, 0.1], fields=names, groups=[MAIN, S01])
    (lane,) = strips.lanes([claims()[row.id]], {"ours": [row]})
    assert [mark.link for mark in lane.marks] == [links[3], ""]


def test_a_table_has_a_tick_for_each_cell_s_gap():
    cells = [claims()[f"tab1/final_mlp/C@1/accuracy/pos{position}"] for position in (7, 8)]
    rows = [
        Row(cells[0].id, paper=0.14, value=0.54, tolerance=0.1, verdict="differs"),
        Row(cells[1].id, paper=0.99, value=0.98, tolerance=0.05),
    ]
    (lane,) = strips.lanes(cells, {"ours": rows})
    assert [(mark.look, mark.words) for mark in lane.marks] == [
        ("differs", "C@1, accuracy at position 7: +0.40"),
        ("full", "C@1, accuracy at position 8: −0.01"),
    ]
    assert lane.ends == ("−0.5", "0.5")
    assert lane.marks[0].x == pytest.approx(strips.LEFT + 0.9 * strips.WIDTH)
    ((left, right),) = lane.bands
    assert right - left == pytest.approx(0.1 * strips.WIDTH)


@pytest.mark.parametrize("source", ["author", "ours"])
def test_each_row_that_is_not_reproduced_says_why_in_the_open_and_nothing_twice(source):
    rows = [row for row in ledger.by_id(source).values() if row.verdict in TO_EXPLAIN and row.why]
    assert len(rows) > 10
    html = BeautifulSoup(box.verdict_box([row.id for row in rows]).html, "html.parser")
    for row, line in zip(rows, html.find_all("tbody"), strict=True):
        first, rest = first_sentence(row.why.text)
        assert f"Why: {row.why.cause}." in line.find("tr", class_="why").text
        assert line.text.count(first) == 1, row.id
        assert rest in " ".join(x.text for x in line.find_all(class_="verdict-meaning"))
