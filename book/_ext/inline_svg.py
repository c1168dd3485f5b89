"""Put figures that are SVG into their pages, so that they take the theme's ink and ground.

Their ids get a prefix, since a page has several, and the house's colours become CSS variables
(`_static/page.css`). Parts of a figure that stand beside each other become SVGs of their own, which
are stacked on a phone. Panels, bars and maps have their names and values as attributes, which
`_static/figures.js` says where one points at them.
The text that stands for a figure is the `dc:title` that `carry_paper.pages.show` gave it, or
else the page's.
"""

import re
from collections import Counter
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
    "#fdfdfd": "open",
    "#17806a": "correct",
    "#d2600a": "too-large",
    "#7d6bb8": "too-small",
    "#8c94a2": "wrong",
    "#fefdfc": "on-dark",
    "#21252f": "on-light",
    "#7a1f5c": "test",
}
COLOUR = re.compile(r"(?<=: )(" + "|".join(VARIABLES) + r")\b", re.IGNORECASE)
TITLE = re.compile(r"<dc:title>(.+?)</dc:title>", re.DOTALL)
PLACE = re.compile(r'\b(?:d|x|y|transform)="[^"]*"')
LONG = re.compile(r"(\d\.\d\d)\d+")  # a hundredth of a point is enough
NO_TURN = re.compile(r' transform="rotate\(-?0 [^"]*\)"')  # matplotlib writes it with each text
EMPTY = re.compile(r"<g\b[^>]*/>")
# Nothing refers to it, and equal pictures share it.
PICTURE_ID = re.compile(r' id="image[0-9a-f]+"')
# As carry_paper.plots.hover names panels, bars, points, bars of colours and maps.
PANEL = re.compile(r'<g id="panel ([^"|]*)(?:\|([^"]*))?">')
VALUE = re.compile(r'<g id="value ([^"]*)">')
DOTS = re.compile(r'<g id="dots ([^"]*)">(.*?)</g>(?=</g>)')
SCALE = re.compile(r'<g id="scale (\w+)">')
FIELDS = r"(\d+);?([^\";]*);?([^\";]*);?([^\";]*);?([^\"]*)"  # columns, names, values and links
MAP = re.compile(r'<(image|g) ([^>]*?)id="map (\w*) ' + FIELDS + '"')
LINK = re.compile(
    r'<a xlink:href="([^"]*)"[^>]*>(.*?)</a>'
)  # as matplotlib writes the url of a bar
SIDE = re.compile(
    r'<g id="[\w-]*side-'
)  # begins a part of a figure, as carry_paper.plots.style names it
GROUP = re.compile(r"<(/?)g\b[^>]*>")
SIZE = re.compile(r' width="[^"]*" height="[^"]*" viewBox="0 0 ([\d.]+) ([\d.]+)"')
IDS = re.compile(r'(\bid="|href="#|url\(#)')
ID = re.compile(r'(?<=\bid=")[^"]*|(?<=href="#)[^"]*|(?<=url\(#)[^)]*')
REFERENCE = re.compile(r'(?:href="#|url\(#)([^")]*)')
GROUP_OR_END = re.compile(r"(<g\b[^>]*>|</g>)")
# Of texts: `_static/page.css` has it for all of them.
FONT = re.compile(r" ?font-family: 'DejaVu Sans', 'Verdana', sans-serif;?")
STYLE = re.compile(r'(?<=\bstyle=")[^"]*')
PATH = re.compile(r'(?<=\bd=")[^"]*')
STYLED = re.compile(r'(<(?:path|use|text)\b[^>]*?) style="([^"]*)"')
NUMBER = re.compile(r'\b(?:d|x|y|width|height|transform)="[^"]*"')


def with_attributes(found: re.Match[str]) -> str:
    """Return the begin of a heat map that has its names and values as attributes."""
    tag, before, colours, columns, rows, names, values, links = found.groups()
    attributes = f'class="map {colours}" data-columns="{columns}"'
    if values:  # else there are too many to say
        attributes += f' data-rows="{rows}" data-names="{names}" data-values="{values}"'
    if links:
        attributes += f' data-links="{links}"'
    return f"<{tag} {before}{attributes}"


def with_link(found: re.Match[str]) -> str:
    """Return the begin of a panel that has its name, and its link if any, as attributes."""
    name, link = found.groups()
    attribute = f' data-try="{link}"' if link else ""
    return f'<g data-panel="{name}"{attribute}>'


def with_names(found: re.Match[str]) -> str:
    """Return points that have their names as attributes."""
    names, points = found.groups()
    left = iter(names.split("|"))
    named = re.sub("<use ", lambda _: f'<use data-value="{next(left, "")}" ', points)
    return f"<g>{named}</g>"


def group_at(svg: str, start: int) -> str:
    """Return the group that begins at a place of an SVG."""
    depth = 0
    for tag in GROUP.finditer(svg, start):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return svg[start : tag.end()]
    raise ValueError("The SVG ends within a group.")


def sides_of(svg: str) -> list[str]:
    """Return an SVG for each part of a figure that stands beside another; or the one SVG.

    The first one has what they share.
    """
    groups = [group_at(svg, place.start()) for place in SIDE.finditer(svg)]
    size = SIZE.search(svg)
    if len(groups) < 2 or size is None:
        return [svg]
    width, height = float(size[1]) / len(groups), float(size[2])
    sides = []
    for i, group in enumerate(groups):
        box = f"{i * width:g} 0 {width:g} {height:g}"
        own_size = f' width="{width:g}pt" height="{height:g}pt" viewBox="{box}"'
        if i:
            begin = svg[: svg.index(">") + 1]
            sides.append(f"{begin.replace(size[0], own_size)}{group}</svg>")
        else:
            shared = svg.replace(size[0], own_size)
            for other in groups[1:]:
                shared = shared.replace(other, "")
            sides.append(shared)
    return sides


def compact(svg: str, prefix: str) -> str:
    """Return SVGs that look the same, in fewer letters.

    Ids that nothing refers to go, and so do groups without attributes. Other ids become short.
    Looks that several elements have become classes.
    """
    names = {name: f"{prefix}-{i}" for i, name in enumerate(dict.fromkeys(REFERENCE.findall(svg)))}
    svg = ID.sub(lambda name: names.get(name[0], ""), svg).replace(' id=""', "")
    svg = without_bare_groups(svg)
    svg = STYLE.sub(lambda look: FONT.sub("", look[0]).replace("; ", ";").replace(": ", ":"), svg)
    svg = with_classes(svg, prefix)
    svg = PATH.sub(lambda path: re.sub(r" ?([A-Za-z]) ?", r"\1", path[0]), svg)
    return NUMBER.sub(lambda numbers: re.sub(r"(\.\d*?)0+(?!\d)", shorter, numbers[0]), svg)


def with_classes(svg: str, prefix: str) -> str:
    """Return SVGs in which shapes and texts that look alike have a class in place of their style.

    The rules outweigh those for texts in `_static/page.css`, as a style does.
    """
    counts = Counter(look for _, look in STYLED.findall(svg))
    looks = [look for look, count in counts.items() if look and count > 1]
    short = prefix.replace("figure", "f")
    classes = {look: f"{short}-{i}" for i, look in enumerate(looks)}
    rules = "".join(f".figure-svg .{name}{{{look}}}" for look, name in classes.items())

    def with_class(element: re.Match[str]) -> str:
        name = classes.get(element[2])
        return f'{element[1]} class="{name}"' if name else element[0]

    svg = STYLED.sub(with_class, svg)
    first = svg.index(">") + 1
    return f"{svg[:first]}<style>{rules}</style>{svg[first:]}" if rules else svg


def shorter(decimals: re.Match[str]) -> str:
    """Return the decimals of a number without zeros at their end."""
    return "" if decimals[1] == "." else decimals[1]


def without_bare_groups(svg: str) -> str:
    """Return an SVG without the tags of groups that have no attributes."""
    parts = []
    bare = []  # of the groups that are open
    for part in GROUP_OR_END.split(svg):
        if part == "</g>":
            if bare.pop():
                continue
        elif part.startswith("<g"):
            bare.append(part == "<g>")
            if bare[-1]:
                continue
        parts.append(part)
    return "".join(parts)


def inlined(svg: str, prefix: str, alt: str) -> str:
    """An SVG file as an element of a page.

    Args:
        svg: the file's text.
        prefix: of its ids.
        alt: what stands for it.
    """
    svg = re.sub(
        r"<metadata>.*?</metadata>|<title>.*?</title>|<!--.*?-->",
        "",
        svg[svg.index("<svg") :],
        flags=re.DOTALL,
    )
    svg = EMPTY.sub("", NO_TURN.sub("", re.sub(r">\s+<", "><", svg)))
    svg = PICTURE_ID.sub("", svg)
    svg = PLACE.sub(lambda place: LONG.sub(r"\1", " ".join(place[0].split())), svg)
    svg = COLOUR.sub(lambda found: f"var(--figure-{VARIABLES[found[0].lower()]}, {found[0]})", svg)
    svg = MAP.sub(with_attributes, svg)
    svg = DOTS.sub(with_names, svg)
    svg = PANEL.sub(with_link, VALUE.sub(r'<g data-value="\1">', svg))
    svg = SCALE.sub(r'<g class="scale \1">', svg)
    svg = LINK.sub(r'<g data-try="\1">\2</g>', svg)
    svg = svg.replace('<g id="numeral">', '<g class="numeral">')
    svg = IDS.sub(rf"\1{prefix}-", svg)
    role = f'role="img" aria-label="{escape(alt)}"'
    sides = sides_of(svg)
    if len(sides) == 1:
        svg = compact(svg.replace("<svg ", f"<svg {role} ", 1), prefix)
        return f'<span class="figure-svg" tabindex="0">{svg}</span>'
    look = f'class="figure-svg sides" style="--sides: {len(sides)}"'
    return f'<span {look} tabindex="0" {role}>{compact("".join(sides), prefix)}</span>'


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
