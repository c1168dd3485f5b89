"""Every notebook has outputs, parameters and texts for its images, and refuses bad input."""

import ast
import json
import re
import shlex
import subprocess
import sys
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
from carry_paper.pages.page import Page
from carry_paper.pages.parameters import check_addends
from carry_paper.pages.standalone import glued
from carry_train import groups

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = sorted((ROOT / "book").glob("*.md"))
# show the committed results of both sources, and so need no group
LEDGER = ("claims", "figure_by_figure")
LONGEST_OPEN_CELL = 20  # lines
# what it says of the ledger's rows is about the group that its sentences name
NAMES_THE_GROUP_OF_ROWS = ("fig02_one_layer_transition", "two_ways_to_break_a_head")
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


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_it_is_stored_with_its_parameters_its_outputs_and_texts_for_its_images(notebook: Path):
    first, *later_cells = code(notebook)
    assert first.metadata.tags[0] == "parameters"
    assert parameters(notebook)["source"] == (None if notebook.stem in LEDGER else "ours")
    assert all(cell.execution_count for cell in (first, *later_cells))
    assert not any("injected-parameters" in cell.metadata.get("tags", []) for cell in later_cells)
    # no errors, warnings, reprs
    assert {output.output_type for output in outputs(notebook)} == {"display_data"}
    for output in outputs(notebook):
        for kind in (kind for kind in output.data if kind.startswith("image/")):
            assert len(output.metadata[kind]["alt"]) > 40
            assert len(output.data[kind]) < 1_000_000


def is_open(cell: Any) -> bool:
    """Return True if a page shows a cell's code unasked."""
    return not {"hide-input", "remove-input", "remove-cell"} & set(cell.metadata.get("tags", []))


def test_its_open_cells_are_short_and_those_that_draw_are_collapsed(notebook: Path):
    """On *Start here* the drawing is part of the lesson."""
    for cell in filter(is_open, code(notebook)):
        assert cell.source.count("\n") < LONGEST_OPEN_CELL, cell.source
        assert "alt=" not in cell.source or notebook.stem == "start_here", cell.source


def test_it_asks_one_question_whose_command_names_its_parameters(notebook: Path):
    prose = "\n".join(cell.source for cell in read(notebook).cells if cell.cell_type == "markdown")
    questions = TRY.findall(prose)
    assert len(questions) == (notebook.stem not in LEDGER)  # these run no experiment
    for arguments, question, answer in questions:
        words = shlex.split(arguments)
        assert words[::3] == ["-p"] * (len(words) // 3)
        assert {*words[1::3]} <= parameters(notebook).keys()
        assert question.endswith("?")
        typed = re.sub(r"\{glue:text\}`[^`]*`", "", answer)
        assert not re.search(r"\d of \d", typed), "a number that nobody computes"


def test_what_it_says_of_other_runs_names_them(notebook: Path):
    """Another group may be here, whose runs are not those of other pages, nor of the ledger."""
    if "group" not in parameters(notebook):
        return
    for cell in read(notebook).cells:
        if cell.cell_type == "markdown":
            for paragraph in cell.source.split("\n\n"):
                if ".ipynb::" in paragraph:
                    assert re.search("main model|all groups", paragraph), paragraph
        elif notebook.stem not in NAMES_THE_GROUP_OF_ROWS:
            assert "of_these_weights(" not in cell.source, "page.of_ledger knows the page's group"


def facts(path: Path) -> list[str]:
    """Return the parts of a page's text that facts guard."""
    calls = [
        node
        for cell in code(path)
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "page.facts"
    ]
    keys = [key for call in calls for argument in call.args for key in argument.keys]
    return [ast.literal_eval(key) for key in keys]


def test_its_facts_are_parts_of_its_text_word_for_word(notebook: Path):
    """Those of the front page, which has no code, are checked on *Every figure*."""
    prose = " ".join(cell.source for cell in read(notebook).cells if cell.cell_type == "markdown")
    captions = [cell.metadata.get("mystnb", {}).get("figure", {}) for cell in code(notebook)]
    prose = " ".join([prose, *(figure.get("caption", "") for figure in captions)])
    if notebook.stem == "figure_by_figure":
        prose += (ROOT / "book" / "index.md").read_text()
    words = " ".join(prose.split())
    assert [fact for fact in facts(notebook) if fact not in words] == []


@pytest.mark.slow
def test_the_command_of_its_question_has_parameters_in_their_ranges(notebook: Path, monkeypatch):
    """The second cell, which checks them, takes them."""
    monkeypatch.setattr(IPython.display, "display", lambda *_, **__: None)
    prose = "\n".join(cell.source for cell in read(notebook).cells if cell.cell_type == "markdown")
    for arguments, _, _ in TRY.findall(prose):
        words = shlex.split(arguments)
        values = parameters(notebook)
        if "model" in values:
            values["n_examples"] = 100  # the cell asks a language model
        for name, value in zip(words[1::3], words[2::3], strict=True):
            values[name] = int(value) if value.isdecimal() else value
        if values["source"] != "author":  # whose release need not be here
            exec(code(notebook)[1].source, values)


def test_its_second_cell_checks_its_parameters_and_stops_with_one_line(notebook: Path):
    assert "nbval-ignore-output" not in str(read(notebook))
    with pytest.raises(BadInput, match="Unknown source 'authr': expected 'ours'"):
        exec(code(notebook)[1].source, parameters(notebook) | {"source": "authr"})


@pytest.mark.slow
@pytest.mark.usefixtures("as_a_user_has_it")
def test_a_parameter_of_the_wrong_kind_is_one_line(notebook: Path):
    """1.5 suits none. The third cell refuses it if the range depends on curves."""
    values = parameters(notebook)
    cells = "\n".join(cell.source for cell in code(notebook)[1:3])
    for name in [name for name in values if not name.startswith("__")]:
        with pytest.raises(BadInput):
            exec(cells, values | {name: 1.5})


def test_it_refuses_a_parameter_that_it_does_not_have(notebook: Path, monkeypatch):
    injected = '# Parameters\nsource = "ours"\nsourcee = "author"\n'
    ran = ["", code(notebook)[0].source, injected]
    kernel = SimpleNamespace(user_ns={"In": ran})
    monkeypatch.setattr(IPython, "get_ipython", lambda: kernel)
    with pytest.raises(BadInput, match="^Unknown parameter sourcee: expected some of source"):
        exec(code(notebook)[1].source, parameters(notebook))


def test_text_is_called_text():
    with pytest.raises(BadInput, match="run='0' is text: expected a whole number from 0"):
        Page("fig", source="ours", group="n2_s0.3_w0.2", run="0")


@pytest.mark.slow
def test_an_answer_has_to_fit():
    with pytest.raises(BadInput, match="a=999, b=1: expected two whole numbers"):
        check_addends(groups.find("n2_s0.3_w0.2").config, 999, 1)


@pytest.mark.slow
def test_papermill_stops_with_the_line_too(tmp_path: Path):
    out = tmp_path / "out.ipynb"
    path = ROOT / "notebooks" / "start_here.ipynb"
    parameter = ("-p", "sourcee", "author")
    command = [sys.executable, "-m", "papermill", path, out, *parameter, "--no-progress-bar"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    message = "BadInput: Unknown parameter sourcee: expected some of source, group"
    assert result.returncode != 0
    assert message in result.stderr
    ran = [cell for cell in code(out) if cell.execution_count]
    ((line,),) = [o.traceback for o in ran[-1].outputs if o.output_type == "error"]
    assert line.startswith(message)


@pytest.mark.slow
@pytest.mark.parametrize("stem", ["fig03_attention_per_task", "fig11_learning_dynamics"])
def test_a_page_about_runs_at_a_path_shows_these_and_no_shipped_verdict(
    stem: str, monkeypatch, tmp_path
):
    """Two runs of the main group that the stored results were not made from."""
    outputs_of_page: list[Any] = []
    monkeypatch.setattr(IPython.display, "display", lambda data, **_: outputs_of_page.append(data))
    folder = ROOT / "data" / "runs" / groups.MAIN / "quick"
    for run in (7, 9):
        for suffix in (".safetensors", ".npz"):
            (tmp_path / f"run{run}{suffix}").symlink_to(folder / f"run{run}{suffix}")
    path = ROOT / "notebooks" / f"{stem}.ipynb"
    values = parameters(path) | {"group": str(tmp_path), "run": 9, "n_examples": 40}
    cells = code(path)[1:3] if stem.startswith("fig11") else code(path)[1:]
    for cell in cells:
        exec(cell.source, values)
    assert values["group"] == values["page"].group == groups.MAIN
    assert values["page"].runs.numbers == (7, 9)
    box = outputs_of_page[0]["text/html"]
    assert f"No verdicts here on {groups.MAIN}: these weights are not the ones" in box
    assert f"carry compare {tmp_path}" in box
    assert {*re.findall('data-label="Ours">(.)', box)} == {"–"}
    if stem.startswith("fig11"):
        assert values["history"]["runs"].tolist() == [7, 9]
    else:
        assert values["maps"]["run"] == 9
    with pytest.raises(BadInput, match=f"No run 3 of {tmp_path}: expected one of 7, 9"):
        exec(code(path)[1].source, values | {"group": str(tmp_path), "run": 3})


def test_it_links_to_the_rows_that_the_ledger_says_are_on_it(notebook: Path):
    """At its foot, once; a page without rows of its own has no such link."""
    prose = [cell.source for cell in read(notebook).cells if cell.cell_type == "markdown"]
    linked = re.findall(r'href="claims\.html#page=(\w+)"', "\n".join(prose))
    has_rows = any(claim.notebook == notebook.stem for claim in claims.claims().values())
    assert linked == [notebook.stem] * has_rows


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


def test_runs_of_a_list_are_counted():
    assert n_listed("(0–7, 9 and 11)") == 10
    match = COUNT_AND_LIST.search("and in four of the author's six {glue:text}`a.ipynb::b:s`")
    assert match is not None
    assert match.groups() == ("four", "", "a.ipynb", "b")


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
