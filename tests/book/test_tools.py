"""The examples of the page on other tools run, and print what it shows."""

import re
import runpy
import warnings

import pytest

from carry_core.files import ROOT
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
# An example goes on from these.
BEFORE = {
    "Activation patching": [FIRST],
    "Attribution patching": [FIRST, ACTIVATION],
    "TransformerLens": [FIRST, ACTIVATION],
    "nnsight": [FIRST, "from carry_core import bridges\n"],
    "pyvene": [FIRST, "from carry_core import bridges\n"],
}
LIBRARIES = ("TransformerLens", "nnsight", "pyvene")


def test_the_page_has_an_example_for_each_tool():
    assert [*EXAMPLES] == [FIRST, *BEFORE]
    assert [len(PRINTED[title]) for title in EXAMPLES] == [0, 1, 1, 1, 1, 1]
    lengths = {title: len(re.findall(r"^.+$", code, re.M)) for title, code in EXAMPLES.items()}
    assert [title for title, lines in lengths.items() if lines > 10] == [FIRST]


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
@pytest.mark.parametrize("title", ["Activation patching", "Attribution patching"])
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
