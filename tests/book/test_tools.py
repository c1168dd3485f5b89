"""The examples of the page on other tools run, and print what it shows."""

import re
import runpy
import warnings
from typing import Any

import pytest
import torch

from carry_core.files import ROOT
from tests.helpers.hooked_transformer import hooked_transformer
from tests.helpers.printed import assert_same_words

pytestmark = pytest.mark.machine

PAGE = (ROOT / "book" / "tools.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
EXAMPLES = {
    title: re.search(r"```python\n(.*?)```", text, re.DOTALL)[1] for title, text in SECTIONS
}
PRINTED = {title: re.findall(r"```\n\n```\n(.*?)```", text, re.DOTALL) for title, text in SECTIONS}
FIRST = "Pairs that differ in one carry"
ACTIVATION = "Activation patching"
DIRECT = "Direct logit attribution"
# An example goes on from these.
BEFORE = {
    "Activation patching": [FIRST],
    "Attribution patching": [FIRST, ACTIVATION],
    DIRECT: [FIRST],
    "TransformerLens": [FIRST, ACTIVATION],
    "nnsight": [FIRST, "from carry_core import bridges\n"],
    "pyvene": [FIRST, "from carry_core import bridges\n"],
}
LIBRARIES = ("TransformerLens", "nnsight", "pyvene")


def test_the_page_has_an_example_for_each_tool():
    assert [*EXAMPLES] == [FIRST, *BEFORE]
    assert [len(PRINTED[title]) for title in EXAMPLES] == [0, 1, 1, 1, 1, 1, 1]


def run(capsys, monkeypatch, tmp_path, title):
    """An example is a file: nnsight reads its source."""
    monkeypatch.chdir(ROOT)
    script = tmp_path / "example.py"
    parts = [EXAMPLES.get(part, part) for part in BEFORE[title]]
    script.write_text("".join(parts), encoding="utf-8")
    runpy.run_path(str(script))
    printed_before = capsys.readouterr().out
    script.write_text("".join([*parts, EXAMPLES[title]]), encoding="utf-8")
    runpy.run_path(str(script))
    printed = capsys.readouterr().out.removeprefix(printed_before)
    outputs = [re.sub(r"[][(),']", " ", text) for text in (printed, *PRINTED[title])]
    assert_same_words(*outputs)


@pytest.mark.slow
@pytest.mark.usefixtures("as_a_user_has_it")
@pytest.mark.parametrize("title", [ACTIVATION, "Attribution patching", DIRECT])
def test_an_example_of_the_core_prints_what_the_page_shows(capsys, monkeypatch, tmp_path, title):
    run(capsys, monkeypatch, tmp_path, title)


@pytest.mark.lens
@pytest.mark.usefixtures("as_a_user_has_it")
@pytest.mark.parametrize(
    "title", [pytest.param(name, marks=pytest.mark.needs(name)) for name in LIBRARIES]
)
def test_an_example_in_another_library_prints_what_the_page_shows(
    capsys, monkeypatch, tmp_path, title
):
    with warnings.catch_warnings():  # the library's own
        warnings.simplefilter("ignore")
        run(capsys, monkeypatch, tmp_path, title)


def attributed() -> dict[str, Any]:
    """The names of the page's direct logit attribution, of a model in float64."""
    names: dict[str, Any] = {}
    exec(EXAMPLES[FIRST], names)
    names["model"].double()
    exec(EXAMPLES[DIRECT], names)
    return names


def logit_difference(logits: torch.Tensor, names: dict[str, Any]) -> torch.Tensor:
    """Each sum's logit of the digit with the carry, less that of the digit without it."""
    at_hundreds = logits[:, names["position"]]
    with_carry, without = (at_hundreds.gather(1, names[x]) for x in ("with_carry", "without"))
    return (with_carry - without).squeeze(1)


@pytest.mark.slow
@pytest.mark.usefixtures("as_a_user_has_it")
def test_attributions_add_up_to_the_logits():
    names = attributed()
    model, attributions = names["model"], names["attributions"]
    assert len(attributions) == 1 + model.config.layers * (model.config.heads + 1) + 1
    expected = logit_difference(model(names["encode"](*names["clean"], names["layout"])), names)
    torch.testing.assert_close(sum(attributions.values()), expected, rtol=0, atol=1e-10)


@pytest.mark.lens
@pytest.mark.lens3
@pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated:DeprecationWarning")
@pytest.mark.usefixtures("as_a_user_has_it", "lens")
def test_attributions_are_those_of_transformer_lens():
    """Its own model computes them, once the final norm's weight is part of its unembedding."""
    names = attributed()
    theirs = hooked_transformer(names["model"])
    theirs.unembed.b_U += theirs.ln_final.b @ theirs.unembed.W_U
    theirs.unembed.W_U *= theirs.ln_final.w[:, None]
    theirs.ln_final.w.fill_(1)
    theirs.ln_final.b.fill_(0)
    _, cache = theirs.run_with_cache(names["encode"](*names["clean"], names["layout"]))
    position = names["position"]
    digits = [names[x].squeeze(1) for x in ("with_carry", "without")]
    compared = 0
    for stack in (cache.decompose_resid, cache.stack_head_results):
        parts, labels = stack(return_labels=True, pos_slice=position)
        values = cache.logit_attrs(parts, *digits, pos_slice=position)
        for label, value in zip(labels, values, strict=True):
            name = re.sub(r"L(.)H(.)", r"head \1:\2", re.sub("(.)_mlp_out", r"MLP \1", label))
            if name in names["attributions"]:  # attention has its heads and its bias there
                ours = names["attributions"][name]
                torch.testing.assert_close(value, ours, rtol=0, atol=1e-10, msg=name)
                compared += 1
    assert compared == len(names["attributions"]) - 1, "all but the biases"
