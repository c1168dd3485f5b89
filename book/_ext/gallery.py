"""A directive, `gallery`: a card for each figure and table, with a thumbnail and what was found.

That is a page's first claim, and how many of its rows got which verdict from each source. The words
are those that the page's notebook glued; a thumbnail is made from the first figure of the
executed notebook, small enough to be part of the page.
"""

import base64
import io
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

import nbformat
from docutils import nodes
from nbformat import NotebookNode
from PIL import Image, ImageOps
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from carry_paper.pages.html import SIGNS, slug
from carry_paper.pages.standalone import glued

SIZE = (240, 150)  # px
LARGEST = 6 * 1024  # bytes
QUALITIES = (70, 55, 40, 25, 10)  # of WebP, of which the first that is small enough is taken
OUTCOME = "_outcome"  # the end of the name under which a page's first claim is glued
# The names of those whose results are glued as `fig03_author` and `fig03_ours`.
SOURCES = {"author": "Author’s", "ours": "Ours"}
VERDICTS = {sign: verdict for verdict, sign in SIGNS.items()}
COUNTS = re.compile(r"(?:(?:^|, )[{}] \d+ [a-z', ]+)+".format("".join(VERDICTS)))
NEXT_COUNT = re.compile(r", (?=[{}] )".format("".join(VERDICTS)))  # “shown, not judged” is one
HEADING = re.compile(r"^# (.+)$", re.MULTILINE)


def thumbnail(png: bytes) -> bytes:
    """Return a figure as a small WebP on white."""
    picture = ImageOps.pad(Image.open(io.BytesIO(png)).convert("RGB"), SIZE, color="white")
    for quality in QUALITIES:
        small = io.BytesIO()
        picture.save(small, "WEBP", quality=quality, method=6)
        if small.tell() <= LARGEST:
            break
    return small.getvalue()


def first_figure(notebook: NotebookNode) -> bytes | None:
    """Return a notebook's main figure: the one glued as `figure`, or else the first."""
    figures = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                is_main = output.metadata.get("scrapbook", {}).get("name") == "figure"
                figures.append((not is_main, len(figures), output.data["image/png"]))
    return base64.b64decode(min(figures)[2]) if figures else None


def pills(counts: str) -> str:
    """Return the HTML of counts of verdicts, such as `✓ 2 reproduced, ≠ 1 differs`."""
    spans = []
    for words in NEXT_COUNT.split(counts):
        verdict = VERDICTS.get(words.partition(" ")[0]) if " " in words else None
        if verdict is not None:
            spans.append(f'<span class="verdict {slug(verdict)}">{escape(words)}</span>')
    return " ".join(spans) or escape(counts)


def card(path: Path, outcome: str, counts: Mapping[str, str]) -> str:
    """Return the HTML of a page's card.

    Args:
        path: The executed notebook.
        outcome: Its first claim, with the result.
        counts: How many of its rows got which verdict, by source.
    """
    notebook = nbformat.read(path, 4)
    heading = HEADING.search(notebook.cells[0].source)
    name, _, title = (heading[1] if heading else path.stem).partition(": ")
    figure = first_figure(notebook)
    picture = ""
    if figure is not None:
        source = f"data:image/webp;base64,{base64.b64encode(thumbnail(figure)).decode()}"
        width, height = SIZE
        picture = (
            f'<img src="{source}" alt="Thumbnail of {escape(name)}" width="{width}"'
            f' height="{height}" loading="lazy">'
        )
    lines = [f"<p>{escape(outcome)}</p>"]
    for source, words in counts.items():
        owner = f"<span>{SOURCES[source]}:</span>"
        lines.append(f'<p class="counts">{owner} <span>{pills(words)}</span></p>')
    return (
        f'<li><a href="{path.stem}.html">{picture}<strong>{escape(name)}</strong>'
        f" {escape(title)}</a>{''.join(lines)}</li>"
    )


class Gallery(SphinxDirective):
    """The cards of all pages that have an outcome."""

    def run(self) -> list[nodes.Node]:
        """Return them as a list."""
        folder = Path(self.env.srcdir, self.env.docname).parent
        values = glued(nbformat.read(Path(self.env.srcdir, f"{self.env.docname}.ipynb"), 4))
        cards = []
        for name, outcome in values.items():
            if name.endswith(OUTCOME):
                page = name.removesuffix(OUTCOME)
                (path,) = folder.glob(f"{page}_*.ipynb")
                counts = {}
                for source in SOURCES:
                    if f"{page}_{source}" in values:
                        counts[source] = values[f"{page}_{source}"]
                cards.append(card(path, outcome, counts))
        html = f'<ul class="gallery">{"".join(cards)}</ul>'
        return [nodes.raw("", html, format="html")]


def counts_as_pills(doctree: nodes.Element) -> None:
    """Replace counts of verdicts that a page glues, as lead pages do, by pills."""
    for inline in [*doctree.findall(nodes.inline)]:
        counts = inline.astext()
        if "pasted-text" in inline["classes"] and COUNTS.fullmatch(counts):
            html = f'<span class="counted">{pills(counts)}</span>'
            inline.replace_self(nodes.raw("", html, format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive, and the pills of other pages."""
    app.add_directive("gallery", Gallery)
    app.connect("doctree-resolved", lambda app, doctree, docname: counts_as_pills(doctree))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
