"""Lists of runs on hover: `4 of 6 runs (0, 1, 3 and 4)` becomes `4 of 6 runs` with a title.

Stylesheets bring the list back on paper and where nothing can hover.
"""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

RUNS_LISTED = re.compile(
    r"(?P<count>\d+ of (?:our |the author’s )?\d+ runs) \((?P<runs>\d[\d–, and]*)\)"
)


def in_parts(text: str) -> list[nodes.Node]:
    """Return a text as nodes, with an abbreviation for each list of runs."""
    parts: list[nodes.Node] = []
    end = 0
    for listed in RUNS_LISTED.finditer(text):
        parts.append(nodes.Text(text[end : listed.start()]))
        runs = "run" if listed["runs"].isdigit() else "runs"
        title = f"{runs} {listed['runs']}"
        parts.append(nodes.abbreviation("", listed["count"], explanation=title, classes=["runs"]))
        end = listed.end()
    return [*parts, nodes.Text(text[end:])]


def run_lists(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace the lists of runs in the words that a page glues into its sentences."""
    for glued in [
        node for node in doctree.findall(nodes.inline) if "pasted-text" in node["classes"]
    ]:
        for text in [*glued.findall(nodes.Text)]:
            if RUNS_LISTED.search(text):
                text.parent.replace(text, in_parts(text))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("doctree-resolved", run_lists)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
