"""A directive, `gallery`: a card for each figure and table, with a thumbnail and what was found.

The words are those that the page's notebook glued; a thumbnail is made from the first figure of the
executed notebook, small enough to be part of the page.
"""

import base64
import io
import re
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
OUTCOME = "_outcome"  # the end of the name under which a page's outcome is glued
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


def card(path: Path, outcome: str, verdict: str) -> str:
    """Return the HTML of a page's card."""
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
    word = ""
    if verdict in SIGNS:
        word = f'<span class="verdict {slug(verdict)}">{SIGNS[verdict]} {escape(verdict)}</span>'
    return (
        f'<li><a href="{path.stem}.html">{picture}<strong>{escape(name)}</strong>'
        f" {escape(title)}</a><p>{escape(outcome)} {word}</p></li>"
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
                cards.append(card(path, outcome, values[f"{page}_verdict"]))
        html = f'<ul class="gallery">{"".join(cards)}</ul>'
        return [nodes.raw("", html, format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("gallery", Gallery)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
