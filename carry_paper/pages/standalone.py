"""Notebooks that can be read anywhere: values and figures in place of the book's markers.

The book's pages refer to what their cells computed by {glue:text}`name`, which JupyterLab, GitHub
and other readers show as it is written. A copy made here has the values in its sentences. A figure
stays below the cell that draws it, so its marker leaves the caption behind. Roles and directives of
MyST become Markdown.
"""

import ast
import copy
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from carry_core.errors import BadInput
from carry_core.files import ROOT, reading
from carry_paper.pages.data_files import write_beside
from carry_paper.pages.minus import minus_signs
from carry_paper.pages.parameters import BANNER
from carry_paper.pages.show import GLUED
from carry_train.files import read_text, replacing

MISSING = "–"  # in place of a value that no output has
VALUE = re.compile(
    r"\{glue:text\}`(?:(?P<notebook>[\w.]+)::)?(?P<name>\w+)(?::(?P<format>[^`]*))?`"
)
# ```{glue:} verdicts``` stands alone; ```{glue:figure} figure``` has options and a caption.
FIGURE = re.compile(
    r"^```\{(?:glue:(?:any|figure)?|gallery)\} *\S*\n"
    r"(?::[\w-]+:[^\n]*\n)*\n?(?P<caption>.*?)\n?^```$",
    re.M | re.S,
)
FOLDED = re.compile(
    r"^:::\{admonition\} (?P<title>[^\n]*)\n"
    r"(?P<options>(?::[\w-]+:[^\n]*\n)*)\n?(?P<body>.*?)\n:::$",
    re.M | re.S,
)
TRY = re.compile(
    r"^:::\{try\} (?P<parameters>[^\n]*)\n(?P<question>.*?)\n\n(?P<answer>.*?)\n:::$", re.M | re.S
)
MARGIN = re.compile(r"^```\{margin\}\n(?P<body>.*?)\n?^```$", re.M | re.S)
RAW = re.compile(r"^```\{raw\} html\n(?P<html>.*?)\n?^```$", re.M | re.S)
ROLE = re.compile(
    r"\{(?P<role>doc|ref|word|cite(?::\w+)?)\}`(?:(?P<text>[^`<]*?) *<)?(?P<target>[^`>]*)>?`"
)
PAGE_LINK = re.compile(r'(?<=href=")(\w+)\.html')
LABEL = re.compile(r"^\([\w-]+\)=\n", re.M)


def fill(paths: Sequence[Path]) -> dict[Path, list[Path]]:
    """Make executed notebooks standalone, in place; return the files of data beside each.

    Where a sentence has a value of another notebook, it is the one stored in the book's.

    Raises:
        BadInput: One of them is the book's own, is damaged, or was not executed to its end; none
            has changed then.
    """
    for path in paths:
        if path.resolve().parent == ROOT / "notebooks":
            raise BadInput(f"{path} is the book's own: expected what papermill wrote elsewhere.")
    executed = {path: read_executed(path) for path in paths}
    files = {}
    for path, notebook in executed.items():
        files[path] = write_beside(notebook, path)
        with replacing(path) as temporary:
            nbformat.write(standalone(notebook, ROOT / "notebooks"), temporary)
    return files


def read_executed(path: Path) -> NotebookNode:
    """Read a notebook of the book that papermill has run.

    Raises:
        BadInput: It is damaged, was not executed, or an error or the end of its kernel stopped it.
    """
    remedy = "run papermill again"
    text = read_text(path, remedy)
    with reading(path, remedy):
        notebook: NotebookNode = nbformat.reads(text, 4)
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    for output in outputs:
        if output.output_type == "error":
            message = f"{output.ename}: {output.evalue}".splitlines()[0]
            raise BadInput(f"{path} lacks values, since an error stopped it ({message}).")
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    n_executed = sum(cell.execution_count is not None for cell in code)
    if n_executed < len(code):
        raise BadInput(
            f"{path} has {n_executed} of {len(code)} cells executed: its kernel ended early, or a "
            f"cell was added since; {remedy}."
        )
    return notebook


def standalone(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Return a copy of an executed notebook that needs no book to be read.

    Its sentences may refer to values of other notebooks in the folder.
    """
    others = cache(lambda name: glued(nbformat.read(folder / name, 4)))
    own = glued(notebook)

    def value_of(name: str, other: str | None) -> Any:
        """Return a value of this notebook, or of another one."""
        if other is None:
            return own.get(name, MISSING)
        return others(other).get(name, MISSING) if (folder / other).is_file() else MISSING

    readable = copy.deepcopy(notebook)
    for cell in readable.cells:
        if cell.cell_type == "markdown":
            cell.source = plain_markdown(cell.source, value_of)
    _open_with_the_banner(readable)
    return readable


def _open_with_the_banner(readable: NotebookNode) -> None:
    """Move the line of a page with parameters of a reader's own to its top, below the title."""
    for cell in readable.cells:
        for output in cell.get("outputs", []):
            if output.get("metadata", {}).get("scrapbook", {}).get("name") == BANNER:
                title, *text = readable.cells[0].source.split("\n", 1)
                banner = f"> **{output.data['text/plain']}**"
                readable.cells[0].source = "\n\n".join([title, banner, *text])
                cell.outputs.remove(output)
                return


def glued(notebook: NotebookNode) -> dict[str, Any]:
    """Return the values that a notebook's cells stored for its sentences, by name."""
    values = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            stored = output.get("data", {}).get(f"{GLUED}text/plain")
            if stored is not None:
                values[output.metadata["scrapbook"]["name"]] = _value(stored)
    return values


def _value(stored: str) -> Any:
    """Return a number or a text that is stored as Python prints it."""
    return float(stored) if stored in ("nan", "inf", "-inf") else ast.literal_eval(stored)


def plain_markdown(source: str, value_of: Callable[[str, str | None], Any]) -> str:
    """Return a text of the book as Markdown that other programs show as it is meant.

    `value_of` returns the value of a name, of another notebook if that is named.
    """
    text = FIGURE.sub(lambda match: match["caption"].strip(), source)
    text = FOLDED.sub(_folded, text)
    text = TRY.sub(_try, text)
    text = MARGIN.sub(lambda match: re.sub("^", "> ", match["body"].strip(), flags=re.M), text)
    text = RAW.sub(lambda match: match["html"], text)
    text = VALUE.sub(
        lambda match: in_words(value_of(match["name"], match["notebook"]), match["format"] or ""),
        text,
    )
    text = ROLE.sub(_role, text)
    text = PAGE_LINK.sub(r"\1.ipynb", text)
    return re.sub(r"\n{3,}", "\n\n", LABEL.sub("", text)).strip("\n")


def in_words(value: Any, format_: str = "") -> str:
    """Return a glued value as a sentence has it."""
    is_number = isinstance(value, int | float)
    if not is_number:
        return str(value)
    as_it_is = format_ == "s"  # with which markers ask for a value of another page
    return minus_signs(format(value, "" if as_it_is else format_))


def _folded(match: re.Match[str]) -> str:
    """Return an admonition as a part that unfolds, or under a heading of its own."""
    if "dropdown" not in match["options"]:
        return f"**{match['title']}**\n\n{match['body']}"
    return f"<details><summary>{match['title']}</summary>\n\n{match['body']}\n\n</details>"


def _try(match: re.Match[str]) -> str:
    """Return a question with its folded answer and the parameters that go on from there."""
    question = f"**Try.** {match['question']}"
    answer = f"<details><summary>Answer</summary>\n\n{match['answer']}\n\n</details>"
    return f"{question}\n\n{answer}\n\nThen run the notebook with `{match['parameters']}`."


def _role(match: re.Match[str]) -> str:
    """Return a link to another page; for what only the book can link to, its text."""
    text = (match["text"] or "").strip()
    target = match["target"]
    if match["role"] == "doc":
        is_notebook = not target.startswith("../")
        return f"[{text or target}]({target}{'.ipynb' if is_notebook else '.md'})"
    if match["role"] == "word":
        return text or target
    return text or f"[{target}]"
