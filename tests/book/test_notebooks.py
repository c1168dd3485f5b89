"""Every notebook has outputs, parameters and texts for its images, and refuses bad input."""

import ast
import json
import re
import shlex
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import IPython
import IPython.display
import nbformat
import pytest

from carry_core.errors import BadInput
from carry_paper.ledger import claims
from carry_paper.pages.standalone import glued
from carry_train import groups

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = sorted((ROOT / "book").glob("*.md"))
# show the committed results of both sources, and so need no group
LEDGER = ("claims", "figure_by_figure")
TRY = re.compile(r"^:::\{try\} (.*)\n(.*)\n\n(.*)\n:::$", re.MULTILINE)


@cache
def read(path: Path) -> Any:
    return nbformat.read(path, 4)


def code(path: Path) -> list[Any]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def outputs(path: Path) -> list[Any]:
    return [output for cell in code(path) for output in cell.outputs]


def parameters(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    exec(code(path)[0].source, values)
    return values


def test_each_is_stored_with_its_parameters_its_outputs_and_texts_for_its_images():
    for path in NOTEBOOKS:
        first, *later_cells = code(path)
        assert first.metadata.tags[0] == "parameters", path.stem
        assert parameters(path)["source"] == (None if path.stem in LEDGER else "ours"), path.stem
        assert all(cell.execution_count for cell in (first, *later_cells)), path.stem
        tags = [tag for cell in later_cells for tag in cell.metadata.get("tags", [])]
        assert "injected-parameters" not in tags, path.stem
        # no errors, warnings, reprs
        assert {output.output_type for output in outputs(path)} == {"display_data"}, path.stem
        for output in outputs(path):
            for kind in (kind for kind in output.data if kind.startswith("image/")):
                assert len(output.metadata[kind]["alt"]) > 40, path.stem
                assert len(output.data[kind]) < 1_000_000, path.stem


def facts(path: Path) -> list[str]:
    """Return the parts of a page's text that facts guard."""
    texts = []
    for cell in code(path):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "page.facts":
                texts += [ast.literal_eval(key) for key in node.args[0].keys]
    return texts


def prose(path: Path) -> str:
    return "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")


def test_facts_are_parts_of_the_text_word_for_word():
    """Those of the front page, which has no code, are checked on *Every figure*."""
    for path in NOTEBOOKS:
        captions = [cell.metadata.get("mystnb", {}).get("figure", {}) for cell in code(path)]
        text = " ".join([prose(path), *(figure.get("caption", "") for figure in captions)])
        if path.stem == "figure_by_figure":
            text += (ROOT / "book" / "index.md").read_text()
        words = " ".join(text.split())
        assert [fact for fact in facts(path) if fact not in words] == [], path.stem


@pytest.mark.slow
def test_the_command_of_a_question_has_parameters_in_their_ranges(monkeypatch):
    """The second cell, which checks them, takes them."""
    monkeypatch.setattr(IPython.display, "display", lambda *_, **__: None)
    for path in NOTEBOOKS:
        for arguments, _, _ in TRY.findall(prose(path)):
            words = shlex.split(arguments)
            values = parameters(path)
            for name, value in zip(words[1::3], words[2::3], strict=True):
                values[name] = int(value) if value.isdecimal() else value
            # The author's release need not be here, and to ask a language model takes long.
            if values["source"] != "author" and "model" not in values:
                exec(code(path)[1].source, values)


def test_the_second_cell_refuses_another_source_and_a_parameter_that_is_none(monkeypatch):
    injected = '# Parameters\nsource = "ours"\nsourcee = "author"\n'
    for path in NOTEBOOKS:
        assert "nbval-ignore-output" not in str(read(path))
        with pytest.raises(BadInput, match="Unknown source 'authr': expected 'ours'"):
            exec(code(path)[1].source, parameters(path) | {"source": "authr"})
        kernel = SimpleNamespace(user_ns={"In": ["", code(path)[0].source, injected]})
        with monkeypatch.context() as patch:
            patch.setattr(IPython, "get_ipython", lambda kernel=kernel: kernel)
            with pytest.raises(BadInput, match="^Unknown parameter sourcee: expected some of s"):
                exec(code(path)[1].source, parameters(path))


@pytest.mark.slow
def test_a_page_about_runs_at_a_path_shows_these_and_no_shipped_verdict(monkeypatch, tmp_path):
    """Two runs of the main group that the stored results were not made from."""
    outputs_of_page: list[Any] = []
    monkeypatch.setattr(IPython.display, "display", lambda data, **_: outputs_of_page.append(data))
    folder = ROOT / "data" / "runs" / groups.MAIN / "quick"
    for run in (7, 9):
        for suffix in (".safetensors", ".npz"):
            (tmp_path / f"run{run}{suffix}").symlink_to(folder / f"run{run}{suffix}")
    path = ROOT / "notebooks" / "fig11_learning_dynamics.ipynb"
    values = parameters(path) | {"group": str(tmp_path), "run": 9, "n_examples": 40}
    for cell in code(path)[1:3]:
        exec(cell.source, values)
    assert values["group"] == values["page"].group == groups.MAIN
    assert values["page"].runs.numbers == (7, 9)
    box = outputs_of_page[0]["text/html"]
    assert f"No verdicts here on {groups.MAIN}: these weights are not the ones" in box
    assert f"carry compare {tmp_path}" in box
    assert {*re.findall('data-label="Ours">(.)', box)} == {"–"}
    assert values["history"]["runs"].tolist() == [7, 9]
    with pytest.raises(BadInput, match=f"No run 3 of {tmp_path}: expected one of 7, 9"):
        exec(code(path)[1].source, values | {"group": str(tmp_path), "run": 3})


def test_each_links_to_the_rows_that_the_ledger_says_are_on_it():
    """At its foot, once; a page without rows of its own has no such link."""
    for path in NOTEBOOKS:
        linked = re.findall(r'href="claims\.html#page=(\w+)"', prose(path))
        has_rows = any(claim.notebook == path.stem for claim in claims.claims().values())
        assert linked == [path.stem] * has_rows


NUMBERS = (
    *("no", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
NUMBER = "|".join(NUMBERS)
COUNT_AND_LIST = re.compile(
    rf"\b({NUMBER})\b(?: of (?:our|his|the author[’']s|the) (?:{NUMBER})| of six)?"
    r"((?: [\w’']+){0,3}?) \{glue:text\}`(?:[./]*notebooks/)?(?:([\w.]+)::)?(\w+)(?::s)?`",
    re.IGNORECASE,
)


def n_listed(runs: str) -> int:
    """Return the number of runs in a list such as `(0–7, 9 and 11)`."""
    parts = re.findall(r"(\d+)(?:–(\d+))?", runs)
    return sum(int(last or first) - int(first) + 1 for first, last in parts)


def test_a_count_in_words_is_that_of_the_list_that_follows_it():
    stored = {path.name: glued(read(path)) for path in NOTEBOOKS}
    texts = [(page.name, page.read_text()) for page in PAGES]
    for path in NOTEBOOKS:
        cells = [cell.source for cell in read(path).cells if cell.cell_type == "markdown"]
        texts.append((path.name, "\n".join(cells)))
    wrong = []
    for name, text in texts:
        for match in COUNT_AND_LIST.finditer(" ".join(text.split())):
            runs = str(stored[match[3] or name].get(match[4], ""))
            if runs.startswith("(") and n_listed(runs) != NUMBERS.index(match[1].lower()):
                wrong.append(f"{name}: {match[0]} {runs}")
    assert wrong == []


def test_every_number_that_a_page_glues_in_is_computed_by_a_notebook():
    names = [
        o.metadata.get("scrapbook", {}).get("name", "") for path in NOTEBOOKS for o in outputs(path)
    ]
    markers = re.compile(r"::(\w+)(?::|`)|\{glue:any\} (\w+)")
    glued_names = {
        key for page in PAGES for match in markers.findall(page.read_text()) for key in match if key
    }
    assert glued_names
    assert glued_names <= {name.rsplit(".", 1)[-1] for name in names}


def test_every_work_that_is_cited_is_listed_and_every_work_listed_is_cited():
    listed = set(
        re.findall(r"^@\w+\{(\w+),", (ROOT / "book" / "references.bib").read_text(), re.MULTILINE)
    )
    texts = [page.read_text() for page in PAGES] + [json.dumps(read(path)) for path in NOTEBOOKS]
    cited = [keys for text in texts for keys in re.findall(r"\{cite\}`([\w, ]+)`", text)]
    assert {key for keys in cited for key in re.split(r", *", keys)} == listed
