"""A directive, `try`: a question to predict, its answer folded away, and a command that goes on.

    :::{try} -p run 4 -p n_examples 5000
    A question, in one paragraph.

    The answer, with the page's own values glued in.
    :::

The argument is what the page's papermill command gets: parameters of the notebook. The command is a
block of code, so it has a button that copies it.
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def command(notebook: str, parameters: str) -> str:
    """Return the command that runs a notebook again, from the root of the repository.

    The copy of a numbered page has its number as a name, such as `fig03`.
    """
    number = re.match(r"(?:fig|tab)\d\d(?=_)", notebook)
    copy = number[0] if number else notebook
    return f".venv/bin/papermill notebooks/{notebook}.ipynb _build/{copy}.ipynb {parameters}"


class Try(SphinxDirective):
    """A question, its folded answer, and the command."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the three parts."""
        content = nodes.Element()
        self.state.nested_parse(self.content, self.content_offset, content)
        question, *answer = content.children
        if not isinstance(question, nodes.paragraph) or not answer:
            raise self.error("`try` needs a question and, in another paragraph, its answer.")
        question.insert(0, [nodes.strong("", "Try."), nodes.Text(" ")])
        block = nodes.literal_block("", command(Path(self.env.docname).name, self.arguments[0]))
        block["language"] = "text"
        opened = nodes.raw("", "<details><summary>Answer</summary>", format="html")
        closed = nodes.raw("", "</details>", format="html")
        return [nodes.container("", question, opened, *answer, closed, block, classes=["try"])]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("try", Try)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
