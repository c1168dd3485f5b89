"""Put the figures that notebooks draw as SVG into their pages, so that they take the theme's ink and ground.

Their ids get a prefix, since a page has several, and the house's colours become CSS variables (`_static/page.css`).
The text that stands for a figure is the `dc:title` that `carry_core.plots.page.show` gave it, or else the page's.
"""

import re
from html import escape, unescape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

LARGEST = 400_000  # bytes: larger ones stay files of their own
VARIABLES = {
    "#1f2430": "ink",
    "#000000": "ink",
    "black": "ink",
    "#6b7280": "faint",
    "#ffffff": "ground",
    "white": "ground",
    "#2b4570": "right",
    "#8c94a2": "wrong",
    "#7a1f5c": "test",
}
COLOUR = re.compile(r"(?<=: )(" + "|".join(VARIABLES) + r")\b", re.IGNORECASE)
TITLE = re.compile(r"<dc:title>(.+?)</dc:title>", re.DOTALL)
PATH = re.compile(r'\bd="[^"]*"')
LONG = re.compile(r"(\d\.\d\d)\d+")  # a hundredth of a point is enough
VALUE = re.compile(r'<g id="value ([^"]*)">')  # as carry_core.plots.outcomes marks bars
IDS = re.compile(r'(\bid="|href="#|url\(#)')


def inlined(svg: str, prefix: str, alt: str) -> str:
    """An SVG file as an element of a page.

    Args:
        svg: the file's text.
        prefix: of its ids.
        alt: what stands for it.
    """
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = PATH.sub(lambda path: LONG.sub(r"\1", " ".join(path[0].split())), re.sub(r">\s+<", "><", svg))
    svg = COLOUR.sub(lambda found: f"var(--figure-{VARIABLES[found[0].lower()]}, {found[0]})", svg)
    svg = VALUE.sub(r"<g><title>\1</title>", svg).replace('<g id="numeral">', '<g class="numeral">')
    svg = IDS.sub(rf"\1{prefix}-", svg)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(alt)}" ', 1)
    return f'<span class="figure-svg" tabindex="0">{svg}</span>'


def inline(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace a page's images that notebooks drew as SVG."""
    if app.builder.format != "html":
        return
    for i, image in enumerate([*doctree.findall(nodes.image)]):
        path = Path(app.srcdir, image["uri"])
        if "jupyter_execute" not in path.parts or path.suffix != ".svg":
            continue
        svg = path.read_text(encoding="utf-8")
        if title := TITLE.search(svg):
            image["alt"] = unescape(title[1])
        if len(svg) <= LARGEST:
            image.replace_self(nodes.raw("", inlined(svg, f"figure{i}", image.get("alt", "")), format="html"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("doctree-resolved", inline)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
