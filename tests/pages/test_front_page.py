"""The front page: its words come from the ledger, and its sum from the model itself."""

from dataclasses import replace
from itertools import combinations

import pytest
import torch

from carry_core import measure
from carry_core.interventions import Ablation
from carry_paper import catalogue
from carry_paper.findings import adder
from carry_paper.pages import claims_page, front_page, playground
from carry_paper.pages.claims_page import JudgedClaim
from carry_train.groups import MAIN
from tests.helpers.answers import answer
from tests.helpers.needs import SITE

FRONT_PAGE = SITE / "book" / "index.html"

needs_site = pytest.mark.needs("the built site")


@pytest.fixture(scope="module")
def staircase() -> JudgedClaim:
    (entry,) = [e for e in claims_page.read().entries if e.claim.id == "finding/staircase"]
    return entry


def judged(
    entry: JudgedClaim, author: tuple[str, int, int], ours: tuple[str, int, int]
) -> JudgedClaim:
    """The same claim with other verdicts, each with how many runs of how many show it."""
    rows = {}
    for source, (verdict, n_showing, n) in {"author": author, "ours": ours}.items():
        fields = {"shows": [True] * n_showing + [False] * (n - n_showing)}
        row = replace(entry.rows[source], verdict=verdict, fields=fields)
        rows[source] = row
    return replace(entry, rows=rows)


@pytest.mark.parametrize(
    ("author", "ours", "lead", "count"),
    [
        (("reproduced", 6, 6), ("reproduced", 6, 6), "Holds", (12, 12)),
        (("reproduced", 6, 6), ("mostly", 5, 6), "Mostly", (11, 12)),
        (("differs", 1, 6), ("reproduced", 6, 6), "Not so", (7, 12)),
        (("reproduced", 1, 1), ("not run", 0, 0), "Holds", (1, 1)),
        (("reproduced", 1, 1), ("no verdict", 1, 1), "Holds", (2, 2)),
        (("differs", 0, 6), ("differs", 0, 6), "Not so", (0, 12)),
        (("not run", 0, 0), ("mixed", 3, 6), "In some models", (3, 6)),
        (("not run", 0, 0), ("not run", 0, 0), "Not judged", (0, 0)),
    ],
)
def test_a_finding_begins_with_the_weaker_verdict(staircase, author, ours, lead, count):
    entry = judged(staircase, author, ours)
    assert front_page.lead(entry) == lead
    assert front_page.count(entry) == count


TEXT = "document.getElementById('pg-{}').textContent"
ANSWER, SPOKEN = TEXT.format("answer"), TEXT.format("spoken")
READY = "document.getElementById('pg-live')?.dataset.seconds"
PRESS = "[...document.querySelectorAll('#pg-parts button')][{}].click()"


@pytest.mark.machine
@needs_site
def test_the_sum_is_answered_as_pytorch_does_with_each_set_of_parts_off(browser):
    browser.open(FRONT_PAGE.as_uri())
    browser.wait(READY, 20)
    model = catalogue.load(MAIN).model(0)
    a, b = playground.FIRST_SUM
    last, head = model.config.layers - 1, measure.decision_head(model)
    parts = [
        Ablation(heads={(last, head)}),
        Ablation(heads={(last, 1 - head)}),
        Ablation(mlps={last}),
    ]

    assert browser.run(ANSWER) == answer(model, a, b, parts[0].hook(model)) == "633"
    assert browser.run(SPOKEN).startswith("The tens digit is one too large: the model carried")
    browser.run(PRESS.format(0))
    for size in range(4):
        for chosen in combinations(range(3), size):
            for i in chosen:
                browser.run(PRESS.format(i))
            digits = answer(model, a, b, *(parts[i].hook(model) for i in chosen))
            assert browser.run(ANSWER) == digits, chosen
            assert browser.run(SPOKEN).startswith("Correct") == (digits == str(a + b))
            for i in chosen:
                browser.run(PRESS.format(i))
    browser.run(PRESS.format(2))
    assert browser.run(SPOKEN) == (
        "The hundreds digit is one too small: the carry from the tens was not added."
    )
    link = browser.run("document.getElementById('pg-more').href")
    ablation = f"%7B%22kind%22:%22Ablation%22,%22mlps%22:%5B{last}%5D%7D"
    assert link.endswith(f"playground.html#run={MAIN}/0&sum={a}+{b}&do={ablation}")


@needs_site
def test_another_sum_has_its_own_steps(browser):
    browser.open(FRONT_PAGE.as_uri())
    browser.wait(READY, 20)
    for _ in range(5):
        browser.run("document.getElementById('pg-random').click()")
        a, b = map(int, browser.run(TEXT.format("sum")).rstrip("= ").split("+"))
        rows = browser.run(
            "[...document.querySelectorAll('#pg-steps tbody tr')].map((row) =>"
            " [...row.querySelectorAll('td')].map((cell) => cell.textContent).slice(0, 3))"
        )
        wires = adder.schoolbook(torch.tensor([a]), torch.tensor([b]), 3)
        numerals = list(zip(f"{a:03}", f"{b:03}", strict=True))
        assert rows[0] == [f"{x} + {y}" for x, y in numerals]
        assert rows[1] == [str(int(x) + int(y)) for x, y in numerals]
        assert rows[2] == ["yes" if x else "no" for x in wires.carry_in[0].tolist()]
        assert rows[3] == [*f"{a + b:03}"]
