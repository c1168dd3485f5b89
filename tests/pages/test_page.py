"""A page as an object: what it checks, what it puts on the page, and in which words."""

import ast
from typing import Any

import IPython.display
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from carry_core import groups
from carry_core.errors import BadInput
from carry_paper.ledger.claims import claims
from carry_paper.pages import box, words
from carry_paper.pages.html import Html
from carry_paper.pages.minus import minus_signs
from carry_paper.pages.page import Page, PageWithoutRuns
from carry_paper.pages.show import GLUED, show
from carry_paper.plots.sides import AUTHORS, OURS
from tests.helpers.trainings import save_random

NAME = "n1_s0.3_w0.2"


class Outputs(list[tuple[str | None, dict[str, Any]]]):
    """What was displayed, each with the name under which it is glued."""

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
    with pytest.raises(BadInput, match="No run 1"):
        Page("fig99", source="ours", group=NAME, run=1)


def test_words_are_glued_with_the_provenance_of_the_weights(page, outputs):
    page.words(shows={0: True, 3: False}, share=np.float32(0.123456), text="as it is")
    assert outputs.glued() == {
        "shows": "1 of 2 runs (0)",
        "share": 0.1235,
        "text": "as it is",
        "provenance": words.provenance(page.runs),
    }


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
    page.ledger()
    assert [line.partition(" | ")[0] for line in outputs[-1][1]["text/plain"].splitlines()] == ids


def test_a_page_judges_what_is_about_its_group_or_about_any(page, monkeypatch):
    groups_of_boxes = []

    def verdict_box(claims, group, words):
        groups_of_boxes.append(group)
        return Html("", "")

    monkeypatch.setattr(box, "verdict_box", verdict_box)
    page.verdicts("finding/transition")
    page.verdicts("finding/transition", all_groups=True)
    PageWithoutRuns("fig99", source="ours", group="default").verdicts("finding/transition")
    assert groups_of_boxes == [NAME, None, None]


def test_a_box_judges_nothing_on_a_page_of_another_group():
    about, other = (
        box.verdict_box(["finding/transition"], group).text for group in (NAME, groups.MAIN)
    )
    assert "ours: " in about
    assert about.startswith(other)
    assert "ours: " not in other


def test_a_figure_has_a_part_for_each_side(page, outputs):
    drawn = []
    sides = {AUTHORS: {"run": 2}, OURS: {"run": 3}}
    page.figure(lambda figure, side: drawn.append(side["run"]), sides, height=1, alt="Nothing.")
    assert drawn == [2, 3]
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
        ({}, "–"),
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


def test_both_sides_are_put_into_the_same_words():
    sides = {AUTHORS: pd.Series([1, 5]), OURS: pd.Series([2, 3])}

    def highest(side: pd.Series) -> dict[str, int]:
        return {"highest": side.max()}

    assert words.both_sides(sides, highest) == {"highest": 3, "author_highest": 5}
    assert words.both_sides({OURS: sides[OURS]}, highest) == {
        "highest": 3,
        "author_highest": words.MISSING,
    }


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
        "path": "−0.10 → 0.95; 0.40 → 0.20",
        "rises": {0: True, 1: False},
        "carries": {0: True, 1: False},
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
    said = words.primed_parts((separations, costs, accuracies), 3)
    assert said["needed"] == "MLP 1 (0.60)"
    assert said["carried"] == "0.25"
    assert said["tens_long"].tolist() == [False]
    assert said["tens_trained"].tolist() == [True]


def test_the_kinds_of_a_side_s_runs():
    runs = pd.DataFrame({"kind": ["one head", "split"], "final MLP": [0.9, 0.1]}, index=[2, 4])
    said = words.kinds_of_runs("ours", runs)
    assert {name: words.in_words(value) for name, value in said.items()} == {
        "one_ours": "1 of 2 runs (2)",
        "together_ours": "none of 2 runs",
        "earlier_ours": "none of 2 runs",
        "split_ours": "1 of 2 runs (4)",
        "not_one_ours": "1 of 2 runs (4)",
        "mlp_ours": "1 of 2 runs (2)",
    }
    assert set(words.kinds_of_runs("author", None).values()) == {words.MISSING}


def test_values_are_spread_and_counted():
    assert words.n_of_runs(pd.Series([True, False, True])) == "2 of 3 runs"
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
    end = "on other sums after 2,000 steps, 2 minutes on a CPU."
    assert words.small_model(record) == (
        f"The one of this page has width 128 (1,000 parameters) and reached 0.900 {end}"
    )
    ladder = [{"width": width, "parameters": 10 * width, "accuracy": 0.7} for width in (64, 96)]
    assert words.small_model(record | {"ladder": ladder}) == (
        "A model of width 64 (640 parameters) reached 0.700. "
        f"The one of this page has width 96 (960 parameters) and reached 0.700 {end}"
    )
