"""A page as an object: what it checks, what it puts on the page, and in which words."""

import ast
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import IPython.display
import numpy as np
import pandas as pd
import pytest

from carry_core import runs
from carry_core.errors import BadInput
from carry_paper import measurements
from carry_paper.ledger import ledger, results
from carry_paper.pages import box
from carry_paper.pages.html import Html
from carry_paper.pages.minus import minus_signs
from carry_paper.pages.page import Page, PageWithoutRuns
from carry_paper.pages.parameters import BANNER, INJECTED
from carry_paper.pages.show import GLUED, show
from carry_paper.plots.sides import AUTHORS
from carry_train import groups
from tests.helpers.trainings import save_random

NAME = "n1_s0.3_w0.2"


class Outputs(list[tuple[str | None, dict[str, Any]]]):
    """Displayed objects, each with the name under which it is glued."""

    def glued(self) -> dict[str, Any]:
        key = f"{GLUED}text/plain"
        return {name: ast.literal_eval(data[key]) for name, data in self if name and key in data}


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> Outputs:
    displayed = Outputs()

    def display(data: dict[str, Any], metadata: dict[str, Any], raw: bool) -> None:
        assert raw
        displayed.append((metadata.get("scrapbook", {}).get("name"), data))

    monkeypatch.setattr(IPython.display, "display", display)
    return displayed


@pytest.fixture
def page(data, outputs) -> Page:
    save_random(groups.find(NAME), (0, 3))
    return Page("fig99", source="ours", group=NAME, n_examples=50)


def test_a_page_loads_the_runs_of_its_group(page):
    assert page.runs.numbers == (0, 3)
    assert page.has("digits4_n2_s0.3_w0.2"), "only the author's release lacks groups"
    with pytest.raises(BadInput, match="No run 1 of .*: expected one of 0, 3"):
        Page("fig99", source="ours", group=NAME, run=1)
    with pytest.raises(BadInput, match="Unknown source '': expected 'ours' or 'author'"):
        Page("fig99", source="", group=NAME)


def with_parameters(monkeypatch, own: str, *injected: str) -> None:
    """Let the cells with parameters be those that ran in this kernel."""
    ran = ["", own, *(INJECTED + code for code in injected)]
    kernel = SimpleNamespace(user_ns={"In": ran})
    monkeypatch.setattr(IPython, "get_ipython", lambda: kernel)


OWN = f'source = "ours"\ngroup = "{NAME}"\nseed = 0\n'


@pytest.mark.parametrize("injected", [(), ("seed = 0\n",)])
def test_a_false_fact_stops_a_page_with_its_own_parameters_and_is_named(
    injected, data, outputs, monkeypatch
):
    save_random(groups.find(NAME), (0, 3))
    with_parameters(monkeypatch, OWN, *injected)
    page = Page("fig99", source="ours", group=NAME, n_examples=50)
    assert not outputs, "no banner"
    page.facts({"Both models add": np.True_})
    with pytest.raises(AssertionError, match="^The page's text says what is not so: “No model"):
        page.facts({"Both models add": True, "No model forgets": np.False_})


def test_a_page_with_a_reader_s_parameters_opens_with_a_line_and_does_not_stop(
    page, outputs, monkeypatch
):
    with_parameters(monkeypatch, OWN, "seed = 1\n")
    Page("fig99", source="ours", group=NAME, n_examples=50, seed=1).facts({"Both add": False})
    ((name, banner),) = outputs
    assert name == BANNER
    assert banner["text/plain"] == (
        f"The text is about the page as it is in the book (source = 'ours', group = '{NAME}',"
        " seed = 0); figures and tables are yours (seed = 1)."
    )
    assert "<strong>The text is about" in banner["text/html"]


def test_a_false_fact_stops_nothing_in_jupyter(data, outputs, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "fig99.ipynb")
    page = PageWithoutRuns("fig99", source="ours")
    assert not page.as_in_the_book
    page.facts({"Both models add": False})


def test_a_page_judges_what_is_about_its_group_or_about_any(page, monkeypatch):
    groups_of_boxes = []

    def verdict_box(claims, group, words, page_runs, path):
        groups_of_boxes.append(group)
        return Html("", "")

    monkeypatch.setattr(box, "verdict_box", verdict_box)
    page.verdicts("finding/transition")
    page.verdicts("finding/transition", all_groups=True)
    PageWithoutRuns("fig99", source="ours", group="default").verdicts("finding/transition")
    assert groups_of_boxes == [NAME, None, None]


def test_a_box_judges_nothing_on_a_page_of_another_group():
    judged, unjudged = (
        box.verdict_box(["finding/transition"], group) for group in (NAME, groups.MAIN)
    )
    assert "ours: " in judged.text
    assert judged.text.startswith(unjudged.text)
    assert "ours: " not in unjudged.text
    for of_a_verdict in ("<svg", "<button", "Why: "):
        assert of_a_verdict not in unjudged.html
    assert "<svg" in judged.html


def store_results(digests: dict[int, str]) -> None:
    """Store measurements of a claim on the group, of runs whose weights have these sha256."""
    fields = {"steepest_rise": 500.0, "attention_passes_half": 500.0}
    rows = []
    for run, digest in digests.items():
        about = {"source": "ours", "group": NAME, "recipe": "paper", "run": run, "epochs": 1000}
        measured = {"quantity": "dynamics.transition", "value": 1.0, "fields": fields}
        rows.append(about | measured | {"sha256": digest, "ships": 1})
    table = pd.DataFrame(rows, columns=measurements.COLUMNS)
    measurements.write("ours", table)


def test_no_verdict_stands_beside_other_weights(page):
    """Those that the results were made from, others, and one run more than they have."""
    digests = {run: runs.digest(weights) for run, weights in page.runs.weights.items()}
    store_results(digests)
    judged = box.verdict_box(["finding/transition"], NAME, page_runs=page.runs)
    assert "ours: 2 of 2 " in judged.text
    assert "sha256" not in judged.html

    save_random(groups.find(NAME), (40,))
    with_one_more = Page("fig99", source="ours", group=NAME, run=40)
    assert with_one_more.runs.numbers == (0, 3, 40)
    changed = dict.fromkeys(digests, "ab" * 32)
    for page_runs, weights in ((with_one_more.runs, digests), (page.runs, changed)):
        store_results(weights)
        unjudged = box.verdict_box(["finding/transition"], NAME, page_runs=page_runs)
        assert "ours" not in unjudged.text
        assert f"No verdicts here on {NAME}: these weights are not" in unjudged.html
        assert f"carry compare {NAME}" in unjudged.html
        assert "<svg" in judged.html
        assert "<svg" not in unjudged.html
    store_results(changed)
    assert page.of_ledger("finding/transition", "ours") is None
    store_results(digests)
    assert page.of_ledger("finding/transition", "ours") == {"0": 1.0, "3": 1.0}


def test_a_page_takes_any_run_that_exists(page):
    """By whichever recipe it was trained; those beside it are of the same one."""
    save_random(groups.find(NAME), (1, 77), "quick", 60)
    page_of_77 = Page("fig99", source="ours", group=NAME, run=77)
    assert page_of_77.runs.numbers == (1, 77)
    assert page_of_77.runs.record["recipe"] == "quick"
    with pytest.raises(
        BadInput, match=f"No run 78 of {NAME} from ours: expected one of 0, 1, 3, 77"
    ):
        Page("fig99", source="ours", group=NAME, run=78)


def test_a_table_is_the_same_in_every_run_and_has_minus_signs(outputs):
    for _ in range(2):
        show(pd.DataFrame({"a_b": [-0.5, -0.001, np.nan]}).rename_axis("run_number"))
    (_, first), (_, second) = outputs
    assert first == second
    assert ">−0.50<" in first["text/html"]
    assert ">0.00<" in first["text/html"], "no -0.00"
    assert "run number" in first["text/html"]


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        ("-0.5", "−0.5"),
        ("1.2e-05", "1.2e−05"),
        ("from 0-5 and pad6-7", "from 0-5 and pad6-7"),
        ("n2_s0.3_w-1", "n2_s0.3_w-1"),
        ("(-3)", "(−3)"),
        ("-0.00 to -0.004", "0.00 to −0.004"),
        ("recipe-2", "recipe-2"),
    ],
)
def test_only_hyphens_that_begin_numbers_become_minus_signs(plain, expected):
    assert minus_signs(plain) == expected


# ---- tables of runs


def test_a_count_of_runs_is_the_ledger_s_where_the_weights_are_its_own(page, monkeypatch):
    row = results.Row("a", runs=[1.0, 0.0], fields={"run": ["0", "3"]}, groups=[NAME])
    monkeypatch.setattr(ledger, "by_id", lambda source: {"a": row})
    assert page.counted("a", "ours") == {"0": True, "3": False}
    assert page.of_ledger("a", "ours") == {"0": row.runs[0], "3": row.runs[1]}
    row = replace(row, groups=[NAME, "n1_s0.2_w1.0"])
    assert page.counted("a", "ours") is None
    assert page.of_ledger("a", "ours") is None


# ---- language models


def test_an_author_s_side_may_be_stored_under_the_name_of_a_page_that_was_merged():
    page = PageWithoutRuns("fig06", source="ours", group="default")
    frame = pd.DataFrame({"digit": ["first"], "right": [0.5], "n": [100], "deviation": [0.5]})
    assert AUTHORS not in page.beside(frame, "digits")
    sides = page.beside(frame, stored_as="app_g")
    assert sides[AUTHORS].columns.tolist() == frame.columns.tolist()
