"""Put figures that are SVG into their pages, so that they take the theme's ink and ground.

Their ids get a prefix, since a page has several, and the house's colours become CSS variables
(`_static/page.css`). Bars and the cells of heat maps say their values where one points at them.
The text that stands for a figure is the `dc:title` that `carry_paper.pages.show` gave it, or
else the page's.
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
PLACE = re.compile(r'\b(?:d|x|y|transform)="[^"]*"')
LONG = re.compile(r"(\d\.\d\d)\d+")  # a hundredth of a point is enough
NO_TURN = re.compile(r' transform="rotate\(-?0 [^"]*\)"')  # matplotlib writes it with each text
VALUE = re.compile(r'<g id="value ([^"]*)">')  # as carry_paper.plots.outcomes marks bars
MAP = re.compile(
    r'<image ([^>]*?)id="(map|written) (\d+) ([^"]*)"([^>]*)/>'
)  # as carry_paper.plots.style.svg marks maps
# and those with a path for each cell
MESH = re.compile(r'<g id="(map|written) \d+ ([^"]*)">(.*?)</g>')
IDS = re.compile(r'(\bid="|href="#|url\(#)')


def with_values(found: re.Match[str]) -> str:
    """Return a heat map with titles: the values of cells with a tenth of the largest or more."""
    before, kind, columns, values, after = found.groups()
    image = f'<image class="{kind}" {before}{after}/>'
    if not values:  # too many to say
        return image
    sizes = dict(re.findall(r'\b(x|y|width|height)="([-\d.]+)"', before + after))
    x, y, width, height = (float(sizes[name]) for name in ("x", "y", "width", "height"))
    n, cells = int(columns), [float(value) for value in values.split()]
    least = max(value for value in cells if value == value) / 10  # some may be NaN
    # of the cells with a value: each is as wide and high as a stroke is long and wide
    places: dict[str, str] = {}
    for i, value in enumerate(cells):
        if value >= least:
            places[f"{value:.2g}"] = places.get(f"{value:.2g}", "") + f"M{i % n} {i // n}h1"
    strokes = [f'<path d="{path}"><title>{value}</title></path>' for value, path in places.items()]
    w, h = width / n, height * n / len(cells)
    # the image is turned upside down
    scale = f"translate({x:.2f} {h / 2 - y:.2f}) scale({w:.3f} {h:.3f})"
    cell_values = f'<g class="cells" transform="{scale}">{"".join(strokes)}</g>'
    return f"<g><title>less than {least:.2g}</title>{image}{cell_values}</g>"


def with_titles(found: re.Match[str]) -> str:
    """A mesh of cells, each of which has its value as its title."""
    kind, values, paths = found.groups()
    titles = iter(values.split())
    titled = (
        re.sub("/>", lambda _: f"><title>{next(titles)}</title></path>", paths) if values else paths
    )
    return f'<g class="{kind}">{titled}</g>'


def inlined(svg: str, prefix: str, alt: str) -> str:
    """An SVG file as an element of a page.

    Args:
        svg: the file's text.
        prefix: of its ids.
        alt: what stands for it.
    """
    svg = re.sub(
        r"<metadata>.*?</metadata>|<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.DOTALL
    )
    svg = NO_TURN.sub("", re.sub(r">\s+<", "><", svg))
    svg = PLACE.sub(lambda place: LONG.sub(r"\1", " ".join(place[0].split())), svg)
    svg = COLOUR.sub(lambda found: f"var(--figure-{VARIABLES[found[0].lower()]}, {found[0]})", svg)
    svg = MESH.sub(with_titles, MAP.sub(with_values, svg))
    svg = VALUE.sub(r"<g><title>\1</title>", svg)
    svg = svg.replace('<g id="numeral">', '<g class="numeral">')
    svg = IDS.sub(rf"\1{prefix}-", svg)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(alt)}" ', 1)
    return f'<span class="figure-svg" tabindex="0">{svg}</span>'


def inline(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace a page's images that are SVG."""
    if app.builder.format != "html":
        return
    for i, image in enumerate([*doctree.findall(nodes.image)]):
        path = Path(app.srcdir, image["uri"])
        if path.suffix != ".svg":
            continue
        svg = path.read_text(encoding="utf-8")
        if title := TITLE.search(svg):
            image["alt"] = unescape(title[1])
        if len(svg) <= LARGEST:
            image.replace_self(
                nodes.raw("", inlined(svg, f"figure{i}", image.get("alt", "")), format="html")
            )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("doctree-resolved", inline)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
