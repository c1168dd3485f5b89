"""Words of the book with their definition on hover and on focus: the role `{word}`.

The definitions are the tables of `words.md`, which thus has them for every page. A word is a link
to its row there; the definition stands beside it, hidden until a reader points at or tabs to it.
"""

import re
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

WORDS = "book/words"
# A row of a table that begins with one of these headings: the word, and what it means.
HEADINGS = ("here", "word")
MARKUP = re.compile(r"\*\*?|`|\{\w+\}|\$")
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def definitions(text: str) -> dict[str, str]:
    """Return what the words in the tables of a page mean, as plain text."""
    meanings = {}
    is_dictionary, says = False, ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            is_dictionary = False
        elif cells[0] in HEADINGS:
            is_dictionary, says = True, "" if cells[1] == "meaning" else f"{cells[1]}: "
        elif is_dictionary and not set(cells[0]) <= {"-", ":"}:
            meanings[plain(cells[0])] = says + plain(cells[1])
    return meanings


def plain(markdown: str) -> str:
    """Return a cell without its markup."""
    return MARKUP.sub("", LINK.sub(r"\1", markdown))


class Word(SphinxRole):
    """A word with its definition: `{word}`staircase``, or `{word}`two heads <head>``."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the word as a link, and its definition."""
        shown, _, named = self.text.partition(" <")
        word = named.removesuffix(">") or shown
        meanings = definitions((Path(self.env.srcdir) / f"{WORDS}.md").read_text(encoding="utf-8"))
        if word not in meanings:
            message = self.inliner.reporter.warning(
                f"{word!r} is not in a table of {WORDS}.md: expected one of {', '.join(meanings)}"
            )
            return [], [message]
        self.env.note_dependency(f"{WORDS}.md")
        depth = self.env.docname.count("/")
        address = f"{'../' * depth}{WORDS}.html#{anchor(word)}"
        own_id = f"definition-{self.env.new_serialno('word')}"
        html = (
            f'<span class="word"><a href="{address}" aria-describedby="{own_id}">{escape(shown)}'
            f'</a><span class="definition" role="tooltip" id="{own_id}">'
            f"{escape(meanings[word])}</span></span>"
        )
        return [nodes.raw("", html, format="html")], []


def anchor(word: str) -> str:
    """Return the id of a word's row."""
    return "word-" + re.sub(r"\W+", "-", word.lower()).strip("-")


def name_rows(app: Sphinx, doctree: nodes.document) -> None:
    """Give each word in the tables of `words.md` an id to link to."""
    if app.env.docname != WORDS:
        return
    for table in doctree.findall(nodes.table):
        head = next(table.findall(nodes.thead), None)
        if head is None or next(head.findall(nodes.entry)).astext() not in HEADINGS:
            continue
        for row in next(table.findall(nodes.tbody)).findall(nodes.row):
            word = next(row.findall(nodes.entry))
            word["ids"].append(anchor(plain(word.astext())))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_role("word", Word())
    app.connect("doctree-read", name_rows)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
