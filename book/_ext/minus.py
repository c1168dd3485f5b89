"""Minus signs for the hyphens that Python prints, in numbers that pages glue into sentences."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from carry_paper.pages.minus import minus_signs


def minus(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace the hyphens before a page's glued numbers."""
    for glued in [
        node for node in doctree.findall(nodes.inline) if "pasted-text" in node["classes"]
    ]:
        for text in [*glued.findall(nodes.Text)]:
            text.parent.replace(text, nodes.Text(minus_signs(text)))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("doctree-resolved", minus)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
