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
import torch
from matplotlib.figure import Figure

from carry_core import carries, runs
from carry_core.errors import BadInput
from carry_core.sums import Layout
from carry_paper import measurements
from carry_paper.findings import adder, dynamics, heads, neurons, pentagon
from carry_paper.ledger import ledger, results
from carry_paper.ledger.claims import claims
from carry_paper.pages import box, words
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


def test_words_are_glued_with_the_provenance_of_the_weights(page, outputs):
    page.words(shows={0: True, 3: False}, share=np.float32(0.123456), text="as it is")
    assert outputs.glued() == {
        "shows": "1 of our 2 runs (0)",
        "share": 0.1235,
        "text": "as it is",
        "provenance": words.provenance(page.runs),
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
    injected, page, outputs, monkeypatch
):
    with_parameters(monkeypatch, OWN, *injected)
    Page("fig99", source="ours", group=NAME, n_examples=50)
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


def test_a_page_about_runs_at_a_path_is_not_the_book_s(page, tmp_path):
    assert page.as_in_the_book
    page.path = tmp_path
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


@pytest.mark.parametrize(
    ("shows", "expected"),
    [
        ({}, "no run (there is none)"),
        ({4: True}, "the only run"),
        ({4: False}, "no run"),
        ({1: True, 2: True}, "both runs"),
        (pd.Series([True] * 3), "all 3 runs"),
        (pd.Series([False] * 3), "none of 3 runs"),
        ({0: True, 1: False, 4: True, 5: True}, "3 of 4 runs (0, 4 and 5)"),
    ],
)
def test_runs_are_counted_and_named(shows, expected):
    assert words.of_runs(shows) == expected
    assert words.in_words(shows) == expected


@pytest.mark.parametrize(
    ("shows", "expected"),
    [
        ({}, "no run (there is none)"),
        ({4: True}, "our only run"),
        ({4: False}, "none of our runs (there is only one)"),
        ({1: True, 2: True}, "both of our runs"),
        ({1: False, 2: False}, "neither of our runs"),
        ({1: True, 2: True, 3: True}, "all 3 of our runs"),
        ({1: False, 2: False, 3: False}, "none of our 3 runs"),
        ({0: True, 1: False, 4: True, 5: True}, "3 of our 4 runs (0, 4 and 5)"),
    ],
)
def test_counted_runs_have_an_owner(shows, expected):
    assert words.of_runs(shows, "our") == expected


@pytest.mark.parametrize(
    ("name", "source", "owner"),
    [
        ("axis", "ours", "our"),
        ("axis", "author", "the author’s"),
        ("author_axis", "ours", "the author’s"),
        ("axis_author", "ours", "the author’s"),
        ("axis_ours", "author", "our"),
    ],
)
def test_the_name_of_words_or_the_source_of_a_page_tells_whose_the_runs_are(name, source, owner):
    assert words.in_words({0: True}, name, source) == f"{owner} only run"


def test_both_sides_are_put_into_the_same_words():
    sides = {AUTHORS: pd.Series([1, 5]), OURS: pd.Series([2, 3])}

    def highest(side: pd.Series) -> dict[str, int]:
        return {"highest": side.max()}

    assert words.both_sides(sides, highest) == {"highest": 3, "author_highest": 5}
    assert words.both_sides({OURS: sides[OURS]}, highest) == {
        "highest": 3,
        "author_highest": words.MISSING,
    }


def test_runs_of_a_side_that_is_not_stored_are_none_in_a_sentence():
    runs_of_side = words.both_sides({OURS: {0: True}}, lambda side: {"shows": side})
    assert runs_of_side == {
        "shows": {0: True},
        "author_shows": "none of the author’s runs (none is stored)",
    }
    assert words.parts_that_move_it("ours", None)["mlp_ours"] == (
        "none of our runs (none is stored)"
    )


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        ((AUTHORS, OURS), "his above"),
        ((OURS,), "one of our runs"),
        ((AUTHORS,), "one of the author’s runs"),
    ],
)
def test_a_caption_names_the_sides_that_are_drawn(sides, expected):
    assert words.drawn(sides, "his above", "one of {whose} runs") == expected


def test_a_range_of_one_number_is_that_number():
    assert words.lowest_to_highest(pd.Series([0.25, 0.5])) == "0.25 to 0.50"
    assert words.lowest_to_highest(pd.Series([0.251, 0.249])) == "0.25"
    assert words.lowest_to_highest([102, 102], digits=0) == "102"
    assert words.lowest_to_highest([0.1, -0.2], digits=1) == "−0.2 to 0.1"


def test_spans_have_the_ends():
    assert words.spans(x=[3, 1, 2]) == {"x_low": 1, "x_high": 3}


def test_a_group_is_told_from_the_main_one():
    assert words.difference_from_main(groups.MAIN) == "the main model"
    assert words.difference_from_main("decoder_n2_s0.3_w0.2") == "decoder"


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        ("-0.5", "−0.5"),
        ("1.2e-05", "1.2e−05"),
        ("from 0-5 and pad6-7", "from 0-5 and pad6-7"),
        ("n2_s0.3_w-1", "n2_s0.3_w-1"),
        ("(-3)", "(−3)"),
        ("recipe-2", "recipe-2"),
    ],
)
def test_only_hyphens_that_begin_numbers_become_minus_signs(plain, expected):
    assert minus_signs(plain) == expected


# ---- sentences of single pages


def test_forgetting_is_told_run_by_run():
    fates = pd.DataFrame(
        {"run": [0, 4], "best": [0.5, 0.25], "peak": [90, 100], "epochs": 300, "last": [0.1, 0.25]}
    )
    fates["first to go"] = ["2", "none"]
    assert words.forgetting(fates) == (
        "run 0 falls from 0.50 at epoch 90 of 300 to 0.10, position 2 first; "
        "run 4 falls from 0.25 at epoch 100 of 300 to 0.25, and no position is lost"
    )


def test_a_staircase_that_stood_falls():
    rows = []
    for run, path in {0: [0.6, 0.4], 1: [0.4, 0.6], 2: [0.4, 0.3]}.items():
        for epoch, weakest in zip((500, 1000), path, strict=True):
            rows.append(("unprimed", run, epoch, "answer in layer 1", weakest))
            rows.append(("unprimed", run, epoch, "answer in layer 0", 1 - weakest))
            rows.append(("primed", run, epoch, "answer in layer 1", 1 - weakest))
    columns = ["group", "run", "epoch", "staircase", "weakest long"]
    steps = pd.DataFrame(rows, columns=columns).sample(frac=1, random_state=0)
    assert words.staircase_falls(steps) == {
        "breaks": {0: True, 1: False, 2: False},
        "path": "0.60 → 0.40; 0.40 → 0.60; 0.40 → 0.30",
    }


def test_the_path_of_a_correlation_has_minus_signs():
    rows = {"run": [0, 0, 1, 1], "correlation": [-0.1, 0.95, 0.4, 0.2]}
    assert words.final_mlp_paths(pd.DataFrame(rows)) == {
        "mlp_path": "−0.10 → 0.95; 0.40 → 0.20",
        "mlp_rises": {0: True, 1: False},
    }


def test_parts_of_a_primed_model_are_needed_where_their_loss_is_large():
    rows = []
    for part, accuracy in {"intact": 1.0, "head 0:0": 0.97, "MLP 1": 0.4}.items():
        rows.append((part, "without a carry-in", accuracy))
        rows.append((part, "with a carry-in", 0.0))
    accuracies = pd.DataFrame(rows, columns=["without", "digits", "accuracy"])
    columns = ["carried", "corrected", "trained", "spared"]
    costs = pd.DataFrame({"run": [0], "head": ["0:0"]} | {name: [0.25] for name in columns})
    separations = pd.DataFrame(
        {"step": "tens", "position": [0, 5], "run": 0, "accuracy": [0.5, 1.0]}
    )
    glued = words.primed_parts((separations, costs, accuracies), 3)
    assert glued["needed"] == "MLP 1 (0.60)"
    assert glued["carried"] == "0.25"
    assert glued["tens_long"].tolist() == [False]
    assert glued["tens_trained"].tolist() == [True]


def test_the_parts_that_move_the_carry_of_a_side_s_runs():
    runs = pd.DataFrame({"one head": [0.8, 0.79], "final MLP": [0.1, 0.9]}, index=[2, 4])
    glued = words.parts_that_move_it("ours", runs)
    assert {name: words.in_words(value) for name, value in glued.items()} == {
        "one_ours": "1 of 2 runs (2)",
        "mlp_ours": "1 of 2 runs (4)",
    }
    assert set(words.parts_that_move_it("author", None).values()) == {words.none_stored("author")}


def test_values_are_spread_and_counted():
    assert words.n_of_runs(pd.Series([True, False, True])) == "2 of 3 runs"
    assert words.n_of_runs(pd.Series([True, True, True])) == "all 3 runs"
    assert words.spread(pd.Series([0.5, 0.25])) == "0.25 to 0.50 (mean 0.38)"
    assert words.spread(pd.Series(dtype=float)) == words.MISSING
    assert words.counted(pd.Series(["a", "b", "b"])) == "2 b, 1 a"


def test_the_small_model_is_the_last_of_its_ladder():
    record = {
        "recipe": {"width": 128},
        "history": [{"accuracy": 0.5}, {"accuracy": 0.9}],
        "parameters": 1_000,
        "seconds": 90,
        "steps": 2_000,
        "device": "CPU",
    }
    alone = words.small_model(record)
    for part in ("width 128", "1,000 parameters", "0.900", "2,000 steps", "2 minutes on a CPU"):
        assert part in alone
    ladder = [{"width": width, "parameters": 10 * width, "accuracy": 0.7} for width in (64, 96)]
    earlier, last = words.small_model(record | {"ladder": ladder}).split(". ")
    for sentence, parts in {earlier: ("width 64", "640"), last: ("width 96", "960")}.items():
        assert all(part in sentence for part in (*parts, "0.700"))


# ---- tables of runs


def test_a_training_that_finds_the_same_parts_is_told_from_one_that_does_not():
    def inside(*has_part: bool) -> pd.DataFrame:
        index = pd.MultiIndex.from_product(
            [["paper", "quick"], [0, 1, 2]], names=["training", "run"]
        )
        cost = [heads.EXACT_MATCH_COST + (0.01 if has else -0.01) for has in has_part]
        correlation = [
            heads.CANNOT_CARRY_CORRELATION + (0.01 if has else -0.01) for has in has_part
        ]
        columns = {
            "lost without the decision head": cost,
            "lost without the other head": 0.0,
            "no final MLP: correlation with no carries": correlation,
        }
        return pd.DataFrame(columns, index)

    same = words.same_parts(inside(True, True, False, True, True, True))
    assert same == {
        "verdict": "The short training finds the same parts",
        "decision": "2 of 3 runs (0 and 1) with the recipe “paper” "
        "and in all 3 runs with the recipe “quick”",
        "mlp": same["decision"],
    }
    for has_part in ((True, True, False, True, False, False), (True,) * 3 + (False,) * 3):
        verdict = words.same_parts(inside(*has_part))["verdict"]
        assert verdict == "The short training does not find the same parts"
    assert words.same_parts(inside(*[False] * 6))["verdict"].endswith("finds the same parts")
    single = words.same_parts(inside(*[True] * 6).loc[["paper"]])
    assert single["verdict"] == "This group has one training only"


def test_what_never_happens_in_training_is_said_in_words():
    """Of runs of one layer, and of curves without exact match or attention, too."""
    ends = pd.DataFrame({"at the end": [0.9996, 0.2, 1.0], "0.999 from epoch": [40, np.nan, 90]})
    assert words.exact_match_at_the_end(ends, "ours") == (
        "At the end the exact match on test sums is 1.000, to three places, in 2 of our 3 runs"
        " (0 and 2), and 0.999 is first reached between epoch 40 and epoch 90, and never in 1 of 3"
        " runs."
    )
    low = ends.assign(**{"at the end": 0.5, "0.999 from epoch": np.nan})
    assert words.exact_match_at_the_end(low, "ours").endswith(", and no run reaches 0.999.")
    assert words.exact_match_at_the_end(None, "ours") == "The exact match was not recorded."
    assert words.staircases_in_training(np.array([7.0, 7.0]), "author") == (
        "In the author’s runs, whose attention was recorded, the staircases of layer 0 form at"
        " epoch 7."
    )
    assert "layer 0 never has" in words.staircases_in_training([np.nan, np.nan], "ours")
    assert words.staircases_in_training([], "ours") == "The attention was not recorded."


def test_the_text_of_a_figure_with_other_parameters_leaves_out_what_the_book_s_shows():
    text = "Maps of one run, heads as `1:0`: in the first layer digits meet. More of it."
    assert alt_with_parameters(text, "group = 'n1_s0.3_w0.2'") == (
        "Drawn with group = 'n1_s0.3_w0.2'. In the book this figure is: Maps of one run, heads as"
        " `1:0`."
    )


def test_the_norm_at_the_end_is_the_last_that_was_measured():
    curves = pd.DataFrame(
        {
            "training": ["b"] * 4 + ["a"] * 2,
            "run": [0, 0, 1, 1, 0, 0],
            "squared norm": [900.0, 400.0, 900.0, 600.0, 70.0, np.nan],
        }
    )
    assert words.final_norms(curves) == "500 (b) and 70 (a)"


def test_a_transition_with_strong_decay_is_near_and_visible():
    near = dynamics.window(1000, dynamics.ACCURACY_TO_ATTENTION)
    visible = dynamics.VISIBLE_BOUNCE
    rows = {
        # rise, lag, turn of the norm, lost before, gained after, head 0:0, head 0:1
        3: (100, near, 100, visible, visible, 90, 95),
        4: (100, near + 1, 100, visible, visible / 2, 90, 95),
        5: (100, 0, 999, visible, visible, 90, np.nan),
    }
    columns = ["rise", "lag", "turn of the norm", "lost before", "gained after"]
    frame = pd.DataFrame(rows, [*columns, "head 0:0", "head 0:1"]).T
    frame = frame.assign(epochs=1000).rename_axis("run").reset_index()
    glued = {name: shows.to_dict() for name, shows in words.strong_decay(frame).items()}
    assert glued == {
        "formed": {3: True, 4: True, 5: False},
        "coincide": {3: True, 4: False, 5: False},
        "bounce": {3: True, 4: False, 5: False},
    }
    passes = pd.DataFrame({"passes": [(90.0, 95.0), (90.0, np.nan)]}, index=[3, 5])
    assert words.all_heads_form_staircases(passes).to_dict() == {3: True, 5: False}


def test_digits_are_as_well_in_order_as_in_the_worst_other_run():
    order = pd.DataFrame({"run": [0, 1, 7, 8], "mean": [0.5, 0.4, 0.5, 0.9]})
    is_main = order.run < 5
    assert words.as_ordered_as_others(order, is_main).to_dict() == {0: True, 1: False}
    assert words.as_ordered_as_others(order[is_main], is_main[is_main]) == words.MISSING


def test_runs_that_never_learned_to_add_have_no_order_to_lose():
    order = pd.DataFrame({"run": [0, 1, 2, 0, 1], "decay": ["without"] * 3 + ["with"] * 2})
    order["mean"] = [0.9, 0.3, 0.3, 0.6, 0.5]
    lost = words.lost_orders((order, [0.8, 0.2, 0.5]))
    assert {name: shows.to_dict() for name, shows in lost.items()} == {
        "weaker": {0: False, 2: True},
        "weaker_of_all": {0: False, 1: True, 2: True},
        "unlearned": {0: False, 1: True, 2: False},
    }
    without = order[order.decay == "without"]
    assert {*words.lost_orders((without, [0.8, 0.2, 0.5])).values()} == {words.MISSING}


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
    assert words.in_ranges(list(numbers)) == listed


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


def test_the_worst_fall_of_an_exact_match():
    exact = pd.DataFrame({"best": [1.0, 0.9, 0.7], "at the end": [0.95, 0.75, 0.7]}, [0, 2, 3])
    glued = words.exact_matches(exact)
    assert {name: words.in_words(value) for name, value in glued.items()} == {
        "perfect": "1 of 3 runs (0)",
        "best_range": "0.70 to 1.00",
        "drop_level": 0.1,
        "drops": "1 of 3 runs (2)",
        "falls": "It falls furthest in run 2, from 0.900 to 0.750.",
    }
    exact["at the end"] = exact["best"] - 0.0001
    assert words.exact_matches(exact)["falls"] == "No run ends visibly below its best."


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


def test_an_ablation_that_only_takes_carrying_away():
    cells = pd.concat([cells_without("final MLP", True), cells_without("carry neurons", False)])
    glued = words.carrying_ablations(cells.rename(columns={"without": "ablation"}))
    assert glued["whole"].to_dict() == {0: True, 1: True}
    assert glued["picked"].to_dict() == {0: False, 1: False}


def test_in_three_layers_a_head_may_matter_and_the_mlp_carries():
    cells = pd.concat([cells_without("final MLP", True), cells_without("one pair", False)])
    # In the paper's exception one run carries nonetheless.
    exception = (cells.without == "final MLP") & (cells.position == "pos8") & (cells.run == 1)
    cells.loc[exception, "accuracy"] = 1.0
    exact = pd.DataFrame(
        {
            "intact": [1.0, 1.0],
            "1:0": [0.99, 0.5],
            "2:1": [1.0, 1.0],
            "layer 1 and 2:1": [0.0, 0.0],
            "decides": [True, False],
        }
    )
    glued = words.three_layers(exact) | words.carries_but_for_the_exception(cells)
    assert {name: shows.to_dict() for name, shows in glued.items()} == {
        "matters": {0: False, 1: True},
        "alike": {0: True, 1: False},
        "carries": {0: True, 1: True},
    }
    cells.loc[cells.carry_in & (cells.position == "pos7") & (cells.run == 0), "accuracy"] = 1.0
    glued = words.carries_but_for_the_exception(cells)
    assert glued["carries"].to_dict() == {0: False, 1: True}


def test_axes_and_pentagons_are_judged_run_by_run():
    level = neurons.CARRY_AXIS_CORRELATION
    correlations = pd.DataFrame(
        {"run": [0.0, 2.0], "first": [level, 0], "second": 0.0, "plane": [level, level]}
    )
    axes = {name: shows.to_dict() for name, shows in words.carry_axes(correlations).items()}
    assert axes == {
        "first": {0: True, 2: False},
        "second": {0: False, 2: False},
        "plane": {0: True, 2: True},
    }
    visible = pentagon.VISIBLE_SCORE
    side = {
        "runs": np.array([0, 3]),
        "scores": np.array([[visible, 0.0], [0.1, visible]]),  # leading and best plane
        "shuffled": np.array([[0.2, 0.0], [0.2, 0.0]]),
    }
    glued = {name: shows.to_dict() for name, shows in words.pentagons(side).items()}
    assert glued == {
        "beyond": {0: True, 3: False},
        "visible": {0: True, 3: False},
        "anywhere": {0: False, 3: True},
    }


def test_a_full_adder_has_all_parts():
    """The second run has a carry-in that is there before the last attention, the third no XOR."""
    agreements = pd.DataFrame(
        {
            "run": [0, 1, 4],
            "ones": [1.0, 0.98, 1.0],
            "tens": 1.0,
            "carry": [1.0, 0.96, 1.0],
            "bypassed": [1.0, 1.0, 0.1],
            "early, high": [0.5, 0.96, 0.5],
            "halfway": [0.1, 0.4, 0.2],
            "head ablated, carry-in": [1.0, 1.0, 0.5],
            "head ablated, one added": [0.5, 1.0, 0.5],
        }
    )
    glued = {name: words.in_words(value) for name, value in words.full_adders(agreements).items()}
    assert glued == {
        "full": "1 of 3 runs (0)",
        "half": "all 3 runs",
        "carry": "2 of 3 runs (0 and 4)",
        "bypassed": "2 of 3 runs (0 and 1)",
        "rough": str(adder.ROUGH_AGREEMENT),
        "close": str(heads.CELL_ACCURACY),
        "ones": "2 of 3 runs (0 and 4)",
        "early": "none of 3 runs",
        "leaky": "1 of 3 runs (0)",
        "halfway": 0.4,
    }


def test_groups_that_forget_and_a_group_that_is_not_there():
    fates = {"group": ["unprimed"] * 2, "run": [0, 1], "epochs": [300] * 2, "peak": [90, 300]}
    fates |= {"best": [0.8, 0.8], "last": [0.3, 0.3]}
    side = {f"fate {name}": np.array(values) for name, values in fates.items()}
    glued = words.forgetful(side | {"unprimed epoch": np.arange(9)})
    assert glued["forget"].to_dict() == {0: True, 1: False}
    assert glued["forget_primed"] == words.MISSING


def test_the_mean_without_a_part_and_before_finetuning():
    means = pd.DataFrame(
        [
            ("MLP 1", "carry-in", 0.1, 0.9),
            ("MLP 1", "carry-in", 0.3, 0.7),
            ("MLP 1", "no carry-in", 0.8, 0.0),
            ("decision head", "carry-in", 1.0, 0.0),
            ("decision head", "no carry-in", 0.4, 0.0),
        ],
        columns=["ablation", "carry_in", "accuracy", "corrected"],
    )
    assert words.without_parts(means, "decision head", "MLP 1") == pytest.approx(
        {
            "mlp_carry": 0.2,
            "mlp_corrected": 0.8,
            "mlp_rest": 0.8,
            "head_carry": 1.0,
            "head_rest": 0.4,
        }
    )
    index = pd.MultiIndex.from_product(
        [[0, 1], ["3 digits", "6 digits"], ["before", "after"]], names=["run", "sums", "finetuning"]
    )
    exact = pd.DataFrame({"exact match": [0.1, 0.2, 0.3, 0.4, 0.3, 0.4, 0.5, 0.6]}, index)
    assert words.finetuned_sums(exact, {6: 6, 3: 3}) == {
        "before6": "0.40",
        "after6": "0.50",
        "before3": "0.20",
        "after3": "0.30",
    }


# ---- language models


def test_a_carry_in_fades_where_the_digit_grows():
    digit = "nearest to the digit’s centre"
    columns = pd.MultiIndex.from_tuples(
        [
            ("carry-in", "best"),
            ("carry-in", "after the"),
            ("carry-in", "at the end"),
            (digit, "there"),
            (digit, "at the end"),
        ]
    )
    rows = {
        "first": (0.9, "MLP of layer 1", 0.8, 0.1, 0.9),
        "second": (0.9, "MLP of layer 1", 0.8, 0.1, 0.9),
        "third": (0.7, "attention of layer 0", 0.7, 0.1, 0.9),
    }
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    assert words.fading(table) == {
        "fades": "1 of 2",
        "third": "attention of layer 0",
        "third_best": 0.7,
    }
    nothing = words.fading(pd.DataFrame())
    assert (nothing["fades"], nothing["third"]) == (words.MISSING, words.MISSING)
    assert np.isnan(nothing["third_best"])


def test_pairs_that_cost_more_than_each_random_one():
    answers = pd.DataFrame(
        {
            "kind": ["intact", *["frequent pair"] * 3, *["random pair"] * 2],
            "right": [1.0, 0.2, 0.5, 0.7, 0.6, 0.9],
        }
    )
    assert words.ablated_pairs(answers) == {
        "costlier": 2,
        "n_frequent": 3,
        "frequent": "0.20 to 0.70 (mean 0.47)",
        "random": "0.60 to 0.90 (mean 0.75)",
    }


def test_what_the_author_recorded_of_the_published_models():
    columns = ["model", "kind", "right", "carry_share", "chance"]
    rows = [("Llemma 7B", "intact", 0.9, 0.6, 0.1), ("Alpaca 7B", "addition heads", 0.2, 0.3, 0.1)]
    glued = words.published_models(pd.DataFrame(rows, columns=columns))
    assert (glued["llemma"], glued["llemma_carry"], glued["llemma_chance"]) == (0.9, 0.6, 0.1)
    assert glued["alpaca_without"] == 0.2
    missing = {name for name, value in glued.items() if np.isnan(value)}
    nothing = words.published_models(None)
    assert missing == {name for name in nothing if name[:6] not in ("llemma", "alpaca")} | {
        "alpaca",
        "alpaca_carry",
        "alpaca_chance",
    }
    assert all(np.isnan(value) for value in nothing.values())


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


def test_a_progress_measure_that_was_not_recorded_has_no_numbers():
    assert "is −0.90 to −0.25:" in words.progress_measure([-0.25, -0.9])
    assert words.progress_measure([]) == "It was not recorded while these runs were trained."


def test_a_full_adder_is_tried_where_one_head_decides():
    sentence = words.full_adders_by_swaps({"digits": 0.616, "digits and answer": 0.895})
    assert "predicts 89.5% of all answers" in sentence
    assert "and 61.6% if at the digits alone" in sentence
    assert words.full_adders_by_swaps({}).startswith("In no run measured here")


def test_it_is_told_where_the_decision_head_looks_to_the_right():
    """In one side's run it does so wherever there is a carry-in, in the other's nowhere."""
    layout = Layout(3)
    attention = torch.zeros(5, 2, 2, layout.length, layout.length)
    attention[..., 0] = attention[..., 1] = 0.2  # hundreds and tens of the first number
    carry_in = carries.carry_in(3)
    for carry_class, position in carry_in[:, :-1].nonzero().tolist():
        row = attention[carry_class, 1, 1, layout.answer[position]]
        row[position + 1] = 0.9
    his, ours = (
        {"run": np.array(run), "decision_head": np.array(run), "attention": attention.numpy()}
        for run in (1, 0)
    )
    n_carry, n = int(carry_in.sum()), carry_in[:, :-1].numel()
    clauses = words.looks_right_by_class({AUTHORS: his, OURS: ours}, layout, 3)
    assert clauses.startswith(f"in {n_carry} of {n_carry} cells with a carry-in and in ")
    assert "in the author’s run 1, and in 0 of " in clauses
    assert clauses.endswith(f" of {n - n_carry} others in our run 0")


def test_longer_sums_are_those_of_the_group():
    assert words.longer_sums("pad10_primed500_n2_s0.3_w0.2") == "500 sums of 10 digits"


def test_a_group_that_does_not_suit_a_page_is_refused_in_one_line():
    check_suits(groups.MAIN, True, "anything")
    with pytest.raises(BadInput, match=r"^n1_s0.3_w0.2 has 1 layer, .*: expected two layers[.]$"):
        check_suits("n1_s0.3_w0.2", False, "two layers")


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        ([90.0, 140.0], "One head forms a staircase at epoch 90, the other at epoch 140."),
        ([140.0, 90.0], "One head forms a staircase at epoch 90, the other at epoch 140."),
        ([np.nan, 40.0], "One head forms a staircase at epoch 40, the other never."),
        ([np.nan, np.nan], "No head forms a staircase."),
        ([40.0], "One head forms a staircase at epoch 40."),
    ],
)
def test_a_head_may_never_form_its_staircase(epochs, expected):
    assert words.heads_form_staircases(epochs) == expected


def test_runs_end_with_their_staircases_or_without():
    exact = pd.Series([0.8, 0.5, 0.3], [0, 1, 4])
    some = words.ends_by_staircase(exact, pd.Series([True, True, False], exact.index))
    assert some == (
        "The lowest of these ends at 0.50 exact match, the highest of the others at 0.30."
    )
    for alike in (True, False):
        sentence = words.ends_by_staircase(exact, pd.Series([alike] * 3, exact.index))
        assert sentence == "The lowest run ends at 0.30 exact match."
