"""A page that runs again with another group is about its runs, but for its text, and says so."""

import pytest

from carry_core.files import ROOT
from carry_core.runs import Runs
from carry_paper.pages import parameters
from carry_paper.pages.standalone import standalone
from carry_train import groups
from tests.helpers.rerun import rerun
from tests.helpers.trainings import planted_curves, save_random

ONE_LAYER = "n1_s0.3_w0.2"
FIG03, FIG07 = "fig03_attention_per_task", "fig07_one_layer_journey"


@pytest.mark.slow
def test_a_page_of_another_group_and_run_opens_with_a_line_and_does_not_stop():
    """Some of its facts are false there, and there is no verdict on claims about the main model."""
    group = "n2_s0.1_w0.2"
    notebook, values = rerun(FIG03, {"group": group, "run": 5, "n_examples": 40})
    assert values["maps"]["run"] == 5
    copy = standalone(notebook, ROOT / "notebooks")
    title, banner, *_ = copy.cells[0].source.split("\n\n")
    assert title.startswith("# Figure 3")
    assert banner.startswith("> **The text is about the page as it is in the book (source = 'ours'")
    assert banner.endswith(f"yours (group = '{group}', run = 5, n_examples = 40).**")
    assert not any("{glue" in cell.source for cell in copy.cells if cell.cell_type == "markdown")
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not any('class="verdict ' in output.data.get("text/html", "") for output in outputs)
    (alt,) = (o.metadata["image/png"]["alt"] for o in outputs if "image/png" in o.data)
    assert alt.startswith(f"Drawn with group = '{group}', run = 5, n_examples = 40. In the book")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "group"),
    [(FIG03, groups.MAIN), *((page, ONE_LAYER) for page in ("fig02_one_layer_transition", FIG07))],
)
def test_random_weights_make_a_page_s_text_false(name, group, data):
    curves = planted_curves(groups.find(group))
    curves["train_loss"] = curves["test_loss"]
    save_random(groups.find(group), range(6), **curves)
    with pytest.raises(AssertionError, match="^The page's text says what is not so: “"):
        rerun(name, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tab01_decision_head_and_final_mlp", "five of our six"),  # ablations
        ("tab04_dissection", "in two of our six models"),  # neurons
        ("two_ways_to_break_a_head", "in four of our six models"),  # swaps
    ],
)
def test_the_weights_of_one_run_in_all_make_a_page_s_text_false(name, sentence, monkeypatch):
    model = Runs.model
    monkeypatch.setattr(Runs, "model", lambda runs, *_: model(runs, runs.numbers[0]))
    monkeypatch.setattr(parameters, "changed", dict)  # with fewer sums, as in the book
    with pytest.raises(AssertionError, match=f"text says what is not so: .*“{sentence}"):
        rerun(name, {"n_examples": 100})
