"""Lists of runs on hover: `(0, 1, 3 and 4)` becomes a title of *four of our six* before it.

Stylesheets bring the list back on paper and where nothing can hover.
"""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

RUNS_LISTED = re.compile(
    r"(?P<count>\d+ of (?:our |the author’s )?\d+ runs) \((?P<runs>\d[\d–, and]*)\)"
)


LIST_ALONE = re.compile(r"\((?P<runs>\d[\d–, and]*)\)")
NUMBER = r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|all|both)\b"
# The words before a list from its count on: *five of our six*, *all six*, *three runs*.
COUNT_IN_WORDS = re.compile(
    rf"(?P<count>{NUMBER}(?: {NUMBER})?(?: of (?:our|his|the author[’']s|the) {NUMBER})?"
    rf"(?:(?!{NUMBER})[^.;:,()])*) $",
    re.I,
)


def on_its_count(before: str, listed: str) -> list[nodes.Node] | None:
    """Return the words before a list of runs as nodes, with the list as a title; None if none."""
    is_list, count = LIST_ALONE.fullmatch(listed), COUNT_IN_WORDS.search(before)
    if is_list is None or count is None:
        return None
    runs = "run" if is_list["runs"].isdigit() else "runs"
    title = f"{runs} {is_list['runs']}"
    abbreviation = nodes.abbreviation("", count["count"], explanation=title, classes=["runs"])
    return [nodes.Text(before[: count.start()]), abbreviation]


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
        place = glued.parent.index(glued)
        before = glued.parent[place - 1] if place else None
        if isinstance(before, nodes.Text):
            parts = on_its_count(before.astext(), glued.astext())
            if parts is not None:
                glued.parent.remove(glued)
                before.parent.replace(before, parts)
                continue
        for text in [*glued.findall(nodes.Text)]:
            if RUNS_LISTED.search(text):
                text.parent.replace(text, in_parts(text))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("doctree-resolved", run_lists)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
