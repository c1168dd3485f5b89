"""Put a line with a link to its data below each figure and table: `↓ CSV`.

The executed notebooks have the data as CSV beside the pictures and the HTML that they show, so an
output is recognised by these, on whatever page it is shown. `_static/figures.js` adds `↓ SVG`.
"""

from pathlib import Path
from posixpath import dirname, relpath
from typing import Any, NamedTuple

import nbformat
from docutils import nodes
from sphinx.application import Sphinx

from carry_paper.pages.data_files import CSV, data_files
from carry_paper.pages.standalone import standalone

FOLDER = "data"
BEFORE_INLINE_SVG = 400  # the default priority is 500


class Place(NamedTuple):
    """A file of data on the site, and the name under which its figure is saved."""

    address: str
    name: str


def as_key(text: str) -> str:
    """A picture's or a table's text, whatever ends its lines."""
    return "\n".join(text.splitlines()).strip()


def write_files(app: Sphinx) -> None:
    """Write the data of all executed notebooks, and remember what shows them."""
    places: dict[str, Place] = {}
    if app.builder.format == "html":
        for path in sorted(Path(app.srcdir).glob("notebooks/*.ipynb")):
            for name, content, output, _ in data_files(nbformat.read(path, 4)):
                file = Path(app.outdir, FOLDER, path.stem, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
                place = Place(f"{FOLDER}/{path.stem}/{name}", f"{path.stem}-{name.split('.')[0]}")
                for kind in ("image/svg+xml", "text/html"):
                    if kind in output.data:
                        places[as_key(output.data[kind])] = place
    app.data_places = places  # type: ignore[attr-defined]


def add_links(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Add the lines to a page."""
    places: dict[str, Place] = app.data_places  # type: ignore[attr-defined]
    for image in [*doctree.findall(nodes.image)]:
        path = Path(app.srcdir, image["uri"])
        if path.suffix != ".svg" or not path.is_file():
            continue
        place = places.get(as_key(path.read_text(encoding="utf-8")))
        if place is None:
            continue
        caption = next(iter(image.parent.findall(nodes.caption)), None)
        if caption is not None and isinstance(image.parent, nodes.figure):
            caption += line(place, docname, "span", "of-figure")
        else:
            below(image, line(place, docname, "p", "of-figure"))
    for table in [*doctree.findall(nodes.raw)]:
        place = places.get(as_key(table.astext()))
        if place is not None:
            below(table, line(place, docname, "p", "of-table"))


def line(place: Place, docname: str, tag: str, kind: str) -> nodes.raw:
    """The line with the link."""
    address = relpath(place.address, dirname(docname) or ".")
    suffix = "".join(Path(place.address).suffixes)
    html = (
        f'<{tag} class="data-links {kind}" data-name="{place.name}">'
        f'<a href="{address}" download="{place.name}{suffix}"'
        f' title="Download the data as CSV">↓ CSV</a></{tag}>'
    )
    return nodes.raw("", html, format="html")


def below(node: nodes.Node, added: nodes.raw) -> None:
    """Put a node below another."""
    node.parent.insert(node.parent.index(node) + 1, added)


def finish_sources(app: Sphinx, exception: Exception | None) -> None:
    """Leave the data out of the notebooks that readers download, and put values for the markers.

    The data are files of their own.
    """
    executed = Path(app.srcdir, "notebooks")
    for path in sorted(Path(app.outdir, "_sources", "notebooks").glob("*.ipynb")):
        notebook = standalone(nbformat.read(path, 4), executed)
        for cell in notebook.cells:
            for output in cell.get("outputs", []):
                output.get("data", {}).pop(CSV, None)
        nbformat.write(notebook, path)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", write_files)
    app.connect("build-finished", finish_sources)
    app.connect("doctree-resolved", add_links, priority=BEFORE_INLINE_SVG)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
