"""Pages at old addresses, each of which leads to the page that has its contents now.

`redirects` in `_config.yml` has both, without the ending; the new one may name a section.
"""

import posixpath
from html import escape
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>This page has moved</title>
<link rel="canonical" href="{page}">
<meta http-equiv="refresh" content="0; url={address}">
</head>
<body><main>
<h1>This page has moved</h1>
<p><a href="{address}">Its contents are here now.</a></p>
</main></body>
</html>
"""


def moved(old: str, new: str) -> str:
    """Return the page at an old address, which leads to a new one at once."""
    target, _, section = new.partition("#")
    page = posixpath.relpath(target, posixpath.dirname(old)) + ".html"
    address = f"{page}#{section}" if section else page
    return PAGE.format(page=escape(page), address=escape(address))


def write(app: Sphinx, error: Exception | None) -> None:
    """Write a page at each old address."""
    if error or app.builder.format != "html":
        return
    for old, new in app.config.redirects.items():
        if old in app.env.found_docs or new.partition("#")[0] not in app.env.found_docs:
            LOGGER.warning(
                "redirects: expected a page that is gone and one that is there: %s, %s", old, new
            )
            continue
        path = Path(app.outdir) / f"{old}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(moved(old, new), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_config_value("redirects", {}, "html", dict)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
