"""Strips show each run where its value is, and the verdict box says why a row differs."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from bs4 import BeautifulSoup

from carry_paper.ledger import ledger
from carry_paper.ledger.claims import claims
from carry_paper.ledger.results import Row
from carry_paper.ledger.verdicts import TO_EXPLAIN
from carry_paper.pages import box, row_words, strips
from carry_paper.pages.row_words import first_sentence
from carry_train.groups import MAIN

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


def test_the_ends_of_a_short_scale_have_the_digits_that_tell_them_apart():
    assert strips.Scale(0.99991, 1.0).ends == ("0.9999", "1")
    assert strips.Scale(0.979, 1.021).ends == ("0.979", "1.02")


def test_both_sources_have_one_scale_and_the_last_lane_says_where_it_ends():
    theirs, ours = of_number(author=number([-1.0]), ours=number([3.0]))
    assert (theirs.marks[0].x, ours.marks[0].x) == (strips.LEFT, RIGHT)
    assert (theirs.ends, ours.ends) == (None, ("−1", "3"))


def test_a_band_is_narrower_than_its_scale():
    """A count that is right, within half of one: the scale goes on beyond the half."""
    exact = Row("tab2/llemma/staircase_heads", paper=190, value=190.0, tolerance=0.5)
    (lane,) = strips.lanes([claims()[exact.id]], {"author": [exact]})
    ((left, right),) = lane.bands
    assert strips.LEFT < left < right < RIGHT
    assert lane.ends == ("189", "191")


def test_a_row_about_several_groups_counts_the_runs_of_each():
    row = ledger.by_id("author")["beyond/elsewhere_mlp"]
    html = box.verdict_box([row.id]).html
    meaning = BeautifulSoup(html, "html.parser").select_one(".verdict-meaning").get_text()
    assert "By group: 5 of 6 of n2_s0.3_w0.2, " in meaning
    assert not ledger.by_id("author")["finding/staircase"].shown_by_group


@pytest.mark.parametrize(
    ("value", "expected"),
    [(104.3, "104"), (-44.2, "−44"), (0.0434, "0.043"), (0.5, "0.5"), (1.0, "1"), (52, "52")],
)
def test_a_distance_has_two_digits_and_no_exponent(value, expected):
    assert row_words.in_short(value) == expected


def test_a_number_has_the_decimals_of_the_last_printed_digit():
    claim = claims()["pad6/accuracy_range"]
    assert claim.unit == 0.05
    assert row_words.number(claim.paper, claim) == "0.10, 0.15"


def test_equal_runs_stand_above_each_other_and_stay_in_the_lane():
    (lane,) = of_number(ours=number([0.5] * 24))
    heights = sorted(mark.y for mark in lane.marks)
    assert min(after - before for before, after in pairwise(heights)) >= 0.3
    assert strips.HEIGHT / 2 - 6.1 <= heights[0] < heights[-1] <= strips.HEIGHT / 2 + 6.1


def test_what_was_not_run_has_no_lane():
    not_run = number([], value=None, n=0)
    assert of_number(ours=not_run, author=not_run) == []
    (lane,) = of_number(author=not_run, ours=number([0.5]))
    assert lane.source == "ours"


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


@pytest.fixture(scope="module")
def table_1() -> BeautifulSoup:
    ids = ["finding/decision_head", "finding/decision_head_carries", "tab1/final_mlp/", NUMBER]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CARRY_DATA", raising=False)
        return BeautifulSoup(box.verdict_box(ids, MAIN).html, "html.parser")


def test_the_box_draws_the_runs_of_each_row_and_names_them(table_1):
    drawings = table_1.find_all("svg")
    assert len(drawings) == 2 * 4
    assert all(drawing["role"] == "img" and drawing["aria-label"] for drawing in drawings)
    stored = ledger.by_id("ours")[NUMBER]
    titles = [title.text for title in drawings[-1].find_all("title")]
    assert Counter(title.partition(":")[0] for title in titles) == Counter(
        f"run {key}" for key in stored.keys
    )


def test_a_verdict_says_what_it_means_and_links_to_its_row(table_1):
    buttons = table_1.find_all("button", popovertarget=True)
    opened = [button["popovertarget"] for button in buttons]
    assert len({*opened}) == len(opened) == 9
    for name in opened:
        explanation = table_1.find(id=name)
        assert explanation.has_attr("popover")
        assert explanation.find("strong").text
        row = explanation.find("a")["href"].removeprefix("../notebooks/claims.html#")
        assert row in claims()


@pytest.mark.parametrize("source", ["author", "ours"])
def test_each_row_that_is_not_reproduced_says_why_in_the_open_and_nothing_twice(source):
    rows = [row for row in ledger.by_id(source).values() if row.verdict in TO_EXPLAIN and row.why]
    assert len(rows) > 10
    html = BeautifulSoup(box.verdict_box([row.id for row in rows]).html, "html.parser")
    details = html.find("details").text
    for row, line in zip(rows, html.find_all("tbody"), strict=True):
        first, rest = first_sentence(row.why.text)
        assert f"Why: {row.why.cause}." in line.find("tr", class_="why").text
        assert line.text.count(first) == 1, row.id
        assert first not in details
        assert rest in details
