"""A link beside each row of the ledger that opens an issue about it.

The form is `.github/ISSUE_TEMPLATE/number.yml`, in which the row is filled in. The repository's
address is the theme's `repository_url`, which `make address` writes; without one there is no link.
"""

import re
from typing import Any
from urllib.parse import urlencode

from sphinx.application import Sphinx

PAGE = "notebooks/claims"
ROW = re.compile(r'<a href="#(?P<id>[^"]+)" class="claims-id".*?</a>')


def with_links(body: str, address: str) -> str:
    """Return the claims page's HTML with a link after the id of each row."""

    def linked(row: re.Match[str]) -> str:
        fields = {"template": "number.yml", "title": f"{row['id']}: ", "row": row["id"]}
        query = urlencode(fields).replace("&", "&amp;")
        issue = (
            f'<a href="{address}/issues/new?{query}" title="Open an issue with this row">issue</a>'
        )
        return f"{row[0]} <small>{issue}</small>"

    return ROW.sub(linked, body)


def add_links(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    """Add the links to the claims page, if the repository has an address."""
    address = app.config.html_theme_options.get("repository_url")
    if address and pagename == PAGE:
        context["body"] = with_links(context["body"], address)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("html-page-context", add_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
