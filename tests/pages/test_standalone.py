"""Copies of notebooks have values where the book's have markers."""

import re
from pathlib import Path

import lab
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from carry_core.files import ROOT
from carry_paper.pages.parameters import BANNER
from carry_paper.pages.show import GLUED
from carry_paper.pages.standalone import glued, in_words, standalone

NOTEBOOKS = ROOT / "notebooks"
LEFT_OVER = re.compile(r":::|\{glue|\{(?:doc|cite|ref|raw|admonition|word|margin)\}")


def storing(**values: str) -> nbformat.NotebookNode:
    """A notebook whose cell stored some values, written as Python prints them."""
    outputs = []
    for name, stored in values.items():
        metadata = {"scrapbook": {"name": name, "mime_prefix": GLUED}}
        outputs.append(
            new_output("display_data", {f"{GLUED}text/plain": stored}, metadata=metadata)
        )
    return new_notebook(cells=[new_code_cell("page.words(…)", outputs=outputs, execution_count=1)])


def test_values_are_read_as_they_were_stored():
    stored = storing(share="0.1235", runs="'4 of 6 runs'", none="nan", count="3")
    values = glued(stored)
    assert (values["share"], values["runs"], values["count"]) == (0.1235, "4 of 6 runs", 3)
    assert in_words(values["none"], ".2f") == "nan"
    assert in_words(-0.1235, ".2f") == "−0.12"
    assert in_words("text", "s") == "text"
    assert in_words(87, "s") == "87"


def test_a_sentence_has_its_own_values_and_those_of_another_notebook(tmp_path):
    nbformat.write(storing(far="'5 of 6'"), tmp_path / "other.ipynb")
    notebook = storing(share="0.1235")
    source = "{glue:text}`share:.2f` here, {glue:text}`other.ipynb::far:s` there, {glue:text}`no`."
    notebook.cells.append(new_markdown_cell(source))
    copy = standalone(notebook, tmp_path)
    assert copy.cells[-1].source == "0.12 here, 5 of 6 there, –."
    assert notebook.cells[-1].source == source
    assert copy.cells[0] == notebook.cells[0]


def test_a_copy_with_parameters_of_its_own_opens_with_the_line_that_says_so(tmp_path):
    notebook = storing(share="0.1235")
    metadata = {"scrapbook": {"name": BANNER}}
    banner = new_output("display_data", {"text/plain": "The text is …"}, metadata=metadata)
    notebook.cells[0].outputs.insert(0, banner)
    notebook.cells.insert(0, new_markdown_cell("# Figure 99\n\nThe paper says."))
    copy = standalone(notebook, tmp_path)
    assert copy.cells[0].source == "# Figure 99\n\n> **The text is …**\n\n\nThe paper says."
    assert len(copy.cells[1].outputs) == 1


def executed(path: Path) -> Path:
    """Write a page as papermill leaves it, with its own value, one of the book, and a table."""
    notebook = storing(share="0.1235")
    notebook.cells[0].outputs.append(new_output("display_data", {"text/csv": "a\n1\n"}))
    of_the_book = "{glue:text}`claims.ipynb::origin_author`"
    notebook.cells.append(new_markdown_cell(f"{{glue:text}}`share:.2f`, {of_the_book}."))
    nbformat.write(notebook, path)
    return path


def test_a_notebook_that_papermill_wrote_gets_its_values_and_files(carry, tmp_path):
    path = executed(tmp_path / "mine.ipynb")
    code, printed, _ = carry("fill", str(path))
    report = f"{path}: values in its sentences; table1.csv in {tmp_path / 'mine'}.\n"
    assert (code, printed) == (0, report)
    assert (tmp_path / "mine" / "table1.csv").read_text() == "a\n1\n"
    filled = path.read_bytes()
    of_the_book = glued(nbformat.read(NOTEBOOKS / "claims.ipynb", 4))["origin_author"]
    assert nbformat.reads(filled, 4).cells[-1].source == f"0.12, {of_the_book}."
    assert carry("fill", str(path))[:2] == (0, f"{path}: values in its sentences.\n")
    assert path.read_bytes() == filled


def test_the_books_own_page_is_left_as_it_is(carry):
    page = NOTEBOOKS / "start_here.ipynb"
    before = page.read_bytes()
    code, _, message = carry("fill", str(page))
    assert (code, page.read_bytes() == before) == (2, True)
    assert "is the book's own" in message


@pytest.mark.slow
def test_the_copies_for_jupyterlab_have_no_markers_and_overwrite_nothing(tmp_path):
    changed = tmp_path / "fig03_attention_per_task.ipynb"
    changed.write_text("changed by the reader")
    lab.main(tmp_path)
    assert changed.read_text() == "changed by the reader"
    copies = {path.name for path in tmp_path.glob("*.ipynb")}
    assert copies == {path.name for path in NOTEBOOKS.glob("*.ipynb")}
    for path in set(tmp_path.glob("*.ipynb")) - {changed}:
        for cell in nbformat.read(path, 4).cells:
            if cell.cell_type == "markdown":
                assert not LEFT_OVER.search(cell.source), path.stem
