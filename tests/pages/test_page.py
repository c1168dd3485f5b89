"""A page as an object: what it checks, what it puts on the page, and in which words."""

import ast
import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import IPython.display
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from carry_core import runs
from carry_core.errors import BadInput
from carry_paper import measurements
from carry_paper.ledger import ledger, results
from carry_paper.ledger.claims import claims
from carry_paper.pages import box, provenance, values
from carry_paper.pages.banner import BANNER
from carry_paper.pages.html import Html
from carry_paper.pages.minus import minus_signs
from carry_paper.pages.page import Page, PageWithoutRuns
from carry_paper.pages.parameters import INJECTED, check_suits
from carry_paper.pages.show import GLUED, alt_with_parameters, show
from carry_paper.plots.sides import AUTHORS, OURS
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


def test_words_are_glued_as_they_are_given(page, outputs):
    page.words(share=np.float32(0.123456), text="as it is", provenance=page.provenance())
    assert outputs.glued() == {
        "share": 0.1235,
        "text": "as it is",
        "provenance": provenance.provenance(page.runs),
    }


def test_runs_that_are_given_as_a_list_follow_their_count(page, outputs):
    page.words(adds=[0, 3], forgets=pd.Index([3]), neither=[])
    glued = outputs.glued()
    assert (glued["adds"], glued["forgets"], glued["neither"]) == ("(0 and 3)", "(3)", "(none)")


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


def test_a_page_that_says_where_its_weights_come_from_is_not_contradicted(page, outputs):
    page.words(provenance="elsewhere")
    assert outputs.glued() == {"provenance": "elsewhere"}


def test_a_page_without_runs_says_nothing_of_weights(outputs):
    PageWithoutRuns("app_z").words(count=3)
    assert outputs.glued() == {"count": 3}


def test_the_box_has_the_short_words_of_its_claims_and_the_page_s_own(page, outputs):
    ids = ["finding/transition", "finding/norm_bounce"]
    page.verdicts(*ids, words={"finding/norm_bounce": "It bounces"})
    ((name, box),) = outputs
    assert name == "verdicts"
    lines = box["text/plain"].splitlines()
    assert lines[0].startswith(claims()["finding/transition"].short)
    assert lines[1].startswith("It bounces | ")


def test_a_page_judges_what_is_about_its_group_or_about_any(page, monkeypatch):
    groups_of_boxes = []

    def verdict_box(claims, group, words, page_runs):
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
    for page_runs, weights in (
        (with_one_more.runs, digests),
        (page.runs, changed),
        (None, changed),
    ):
        store_results(weights)
        unjudged = box.verdict_box(["finding/transition"], NAME, page_runs=page_runs)
        assert "ours" not in unjudged.text
        assert f"No verdicts here on {NAME}: these weights are not" in unjudged.html
        assert f"carry compare {NAME}" in unjudged.html
        assert "<svg" in judged.html
        assert "<svg" not in unjudged.html
    store_results(changed)
    assert ledger.of_these_weights("ours", "finding/transition").runs == []
    store_results(digests)
    assert ledger.of_these_weights("ours", "finding/transition").runs == [1.0, 1.0]


def test_the_box_is_empty_where_there_are_no_results(page):
    empty = box.verdict_box(["finding/transition", "tab1/final_mlp/"], None, page_runs=page.runs)
    assert "ours: " not in empty.text
    assert "There are no results of the ledger in this data folder" in empty.html
    assert ledger.of_these_weights("author", "finding/transition").runs == []


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


def test_a_figure_has_a_part_for_each_side(page, outputs):
    runs = []
    sides = {AUTHORS: {"run": 2}, OURS: {"run": 3}}
    page.figure(lambda figure, side: runs.append(side["run"]), sides, height=1, alt="Nothing.")
    assert runs == [2, 3]
    ((_, data),) = outputs
    assert data["text/plain"] == "Nothing."
    assert data["image/png"].startswith(b"\x89PNG")


def test_a_figure_needs_a_text_and_a_table_has_none():
    with pytest.raises(AssertionError, match="needs a text"):
        show(Figure())


def test_a_table_is_the_same_in_every_run_and_has_minus_signs(outputs):
    for _ in range(2):
        show(pd.DataFrame({"a_b": [-0.5, -0.001, np.nan]}).rename_axis("run_number"))
    (_, first), (_, second) = outputs
    assert first == second
    assert ">−0.50<" in first["text/html"]
    assert ">0.00<" in first["text/html"], "no -0.00"
    assert "run number" in first["text/html"]


def test_spans_have_the_ends():
    assert values.spans(x=[3, 1, 2]) == {"x_low": 1, "x_high": 3}


def test_a_group_is_told_from_the_main_one():
    assert provenance.difference_from_main(groups.MAIN) == "the main model"
    assert provenance.difference_from_main("decoder_n2_s0.3_w0.2") == "decoder"


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


# ---- sentences of single pages


# ---- tables of runs


def test_the_text_of_a_figure_with_other_parameters_leaves_out_what_the_book_s_shows():
    text = "Maps of one run, heads as `1:0`: in the first layer digits meet. More of it."
    assert alt_with_parameters(text, "group = 'n1_s0.3_w0.2'") == (
        "Drawn with group = 'n1_s0.3_w0.2'. In the book this figure is: Maps of one run, heads as"
        " `1:0`."
    )


@pytest.mark.parametrize(
    ("numbers", "listed"),
    [
        (range(64), ["0–63"]),
        ([0, 1, 2, 4], ["0", "1", "2", "4"]),
        ([2, *range(6, 13), 20], ["2", "6–12", "20"]),
        (["0", "1", "primed 2"], ["0", "1", "primed 2"]),
        ([], []),
    ],
)
def test_many_runs_in_a_row_are_a_range(numbers, listed):
    assert values.in_ranges(list(numbers)) == listed


def test_a_run_that_is_missing_is_refused_with_the_range_of_those_that_exist(data):
    save_random(groups.find(NAME), range(12))
    with pytest.raises(BadInput, match="No run 99 of .*: expected one of 0–11[.]"):
        Page("fig99", source="ours", group=NAME, run=99)


def test_a_count_of_runs_is_the_ledger_s_where_the_weights_are_its_own(page, monkeypatch):
    row = results.Row("a", runs=[1.0, 0.0], fields={"run": ["0", "3"]}, groups=[NAME])
    monkeypatch.setattr(ledger, "of_these_weights", lambda source, name: row)
    assert page.counted("a", "ours") == {"0": True, "3": False}
    assert page.of_ledger("a", "ours") == {"0": row.runs[0], "3": row.runs[1]}
    row = replace(row, groups=[NAME, "n1_s0.2_w1.0"])
    assert page.counted("a", "ours") is None
    assert page.of_ledger("a", "ours") is None


def test_a_short_cell_of_a_table_stays_in_one_line(outputs):
    show(pd.DataFrame({"x": ["0 of 6", "the answer without the final MLP", "1.00"]}))
    cells = re.findall(r'<td [^>]*class="([^"]*)"', outputs[0][1]["text/html"])
    assert ["short" in names.split() for names in cells] == [True, False, False]


def test_tables_name_positions_as_the_book_does_and_have_one_row_of_headers(outputs):
    table = pd.DataFrame([[1.0, 2.0]], pd.Index([3], name="run"), ["pos7", "pos8"])
    show(table)
    show(table.rename_axis(columns="position"))
    (_, plain), (_, named) = outputs
    html = plain["text/html"]
    assert ">position 7<" in html
    head = html[: html.index("</thead>")]
    assert head.count("<tr>") == 1
    assert head.index(">run<") < head.index(">position 7<")
    assert ">7<" in named["text/html"]
    assert ">run<" in named["text/html"]


def cells_without(part: str, correlated: bool) -> pd.DataFrame:
    """Accuracies of two runs: of a model that cannot carry, or that carries as it should not."""
    rows = []
    for run in (0, 1):
        for position in ("pos7", "pos8", "pos9"):
            for carry_in in (True, False):
                right = carry_in != correlated
                row = (part, run, "C all con.", position, carry_in, float(right), float(not right))
                rows.append(row)
    columns = ["without", "run", "carry_class", "position", "carry_in", "accuracy", "corrected"]
    return pd.DataFrame(rows, columns=columns)


# ---- language models


def test_an_author_s_side_may_be_stored_under_the_name_of_a_page_that_was_merged():
    page = PageWithoutRuns("fig06", source="ours", group="default")
    frame = pd.DataFrame({"digit": ["first"], "right": [0.5], "n": [100], "deviation": [0.5]})
    assert AUTHORS not in page.beside(frame, "digits")
    sides = page.beside(frame, stored_as="app_g")
    assert sides[AUTHORS].columns.tolist() == frame.columns.tolist()


# Each takes half a second or more to import, and most pages need none of them.
SLOW_TO_IMPORT = ("matplotlib.pyplot", "scipy.stats", "seaborn", "sklearn")


@pytest.mark.slow
def test_a_page_imports_what_is_slow_only_where_it_is_used():
    code = f"""
import importlib, pkgutil, sys
import carry_paper.findings, carry_paper.pages.page, carry_paper.plots
for package in (carry_paper.findings, carry_paper.plots):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{{package.__name__}}.{{module.name}}")
print([name for name in {SLOW_TO_IMPORT} if name in sys.modules])
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


# ---- sentences of pages that run again


def test_longer_sums_are_those_of_the_group():
    assert provenance.longer_sums("pad10_primed500_n2_s0.3_w0.2") == "500 sums of 10 digits"


def test_a_group_that_does_not_suit_a_page_is_refused_in_one_line():
    check_suits(groups.MAIN, True, "anything")
    with pytest.raises(BadInput, match=r"^n1_s0.3_w0.2 has 1 layer, .*: expected two layers[.]$"):
        check_suits("n1_s0.3_w0.2", False, "two layers")
