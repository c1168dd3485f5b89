"""A page that runs again with another group says what is true of its runs."""

import nbformat
import pytest
import reruns
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from carry_core.errors import BadInput
from carry_paper.pages.show import GLUED

ONE_LAYER, LITTLE_DATA = "n1_s0.3_w0.2", "n2_s0.1_w0.2"
FIG03 = "fig03_attention_per_task"


@pytest.mark.slow
def test_a_page_is_true_of_two_other_groups_and_of_another_run():
    """One has no second layer; of neither is there a verdict on the claims about the main model."""
    texts = {}
    for group in (ONE_LAYER, LITTLE_DATA):
        page = reruns.rerun(FIG03, {"group": group, "run": 5, "n_examples": 40})
        assert reruns.faults(page, group) == []
        assert page.values["maps"]["run"] == 5
        texts[group] = [paragraph.text for paragraph in reruns.paragraphs(page.notebook)]
        (alt,) = reruns.texts_of_images(page.notebook)
        assert alt.startswith(f"Drawn with group = '{group}', run = 5, n_examples = 40.")
        page.notebook.cells[2].outputs[0].data["text/html"] = (
            '<button class="verdict reproduced">x</button><a href="claims.html#finding/staircase">'
        )
        (verdict,) = reruns.faults(page, group)
        assert verdict.startswith("a verdict on finding/staircase, which is about ")
    assert len(texts[ONE_LAYER]) == len(texts[LITTLE_DATA]) > 2
    caption, result, *_ = texts[ONE_LAYER]
    assert "rebuilt** for one of our runs." in caption  # no arrays of the author are stored
    assert "in none of our 6 runs" in result
    assert result != texts[LITTLE_DATA][1]


@pytest.mark.parametrize(
    ("sentence", "fault"),
    [
        ("It is so in {glue:text}`x`.", "no number"),
        ("Runs 0, , 3 do.", "an empty list"),
        ("Some runs () do.", "an empty list"),
        ("It is so in 0 of our 0 runs.", "0 of 0"),
        ("It is so in 1 of 1 models.", "1 of 1"),
        ("Of these 1 runs are late.", "a plural for one"),
        ("There are 3 run here.", "a singular for several"),
        ("It is so in {glue}`x`.", "a marker without its value"),
        ("It is so .", "a space before a mark"),
        ("It is so..", "two full stops"),
        ("It is so in all 6 of our runs and in –.", "a dash for a value"),
        ("The correlation is -0.41 here.", "a hyphen for a minus"),
        ("Our only run answer every sum.", "a plural for one"),
        ("There are 102 to 102 neurons.", "a range of one number"),
        ("It lies between 0.25 and 0.25.", "a range of one number"),
    ],
)
def test_what_no_sentence_has_is_seen(sentence, fault):
    filled = reruns.paragraphs(notebook_with(sentence + " {glue:text}`x`"))[0].text
    assert fault in {sentence.partition(":")[0] for sentence in reruns.odd_words(filled)}


@pytest.mark.parametrize(
    "sentence",
    [
        "It is so in 4 of our 6 runs (0, 1, 3 and 4), at 1:0 and from 0.1 to 1, in 11 models.",
        "The head `1:0` reads pos. 7; none of 6 runs, 1 of our 6 runs, run 1, 2-layer models do.",
        "A cell | – | has none; runs 6–63 do, our only run answers, at −0.4, in n2_s0.3_w-1, 0-5.",
        "Between 0.2 and 0.25, from 10 to 100, of 3 to 30, at 10.5 to 5.",
        "The paper prints 0.13 ± 0.1, of 1,000 sums; at epoch 40 all 3 runs and 1 run more did.",
    ],
)
def test_nothing_is_seen_in_what_sentences_have(sentence):
    assert reruns.odd_words(sentence) == []
    assert reruns.wrong_counts(sentence, 6, "ours") == []


def test_counts_are_those_of_their_lists_and_of_the_page():
    (wrong,) = reruns.wrong_counts("It is so in 3 of our 6 runs (0 and 4).", 6, "ours")
    assert wrong.endswith("3 of our 6 runs (0 and 4)")
    (wrong,) = reruns.wrong_counts("It is so in all 6 of our runs.", 2, "ours")
    assert "which are 2" in wrong
    assert reruns.wrong_counts("It is so in all 6 of the author’s runs.", 2, "ours") == []
    others = "It is so in one. In the main model it is so in all 6 of our runs."
    assert reruns.wrong_counts(others, 2, "ours") == []
    assert reruns.wrong_counts(f"{others} Here in all 4 of our runs.", 2, "ours") != []


def test_what_a_page_refuses_is_no_fault():
    with pytest.raises(BadInput, match="has no decoders"):
        reruns.rerun("fig15_decoder_attention", {"group": LITTLE_DATA})


def notebook_with(text: str) -> nbformat.NotebookNode:
    """A notebook with a text, and a value called x that is no number."""
    metadata = {"scrapbook": {"name": "x", "mime_prefix": GLUED}}
    output = new_output("display_data", {f"{GLUED}text/plain": "nan"}, metadata=metadata)
    return new_notebook(cells=[new_markdown_cell(text), new_code_cell("", outputs=[output])])
