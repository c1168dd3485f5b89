"""Names that a screen reader can say, for what the theme leaves without one, or gives a wrong one.

The theme has no option for any of these, so the pages are changed after they have been written.
"""

import re
from collections.abc import Callable
from pathlib import Path

from sphinx.application import Sphinx

# A part of the sidebar: the link to its lead page, then the arrow that unfolds it.
PART = re.compile(r'(<a class="[^"]*" href="[^"]*">([^<]+)</a><details[^>]*><summary)>')
# The button says `Search Ctrl+K`, the name `Search`; a name has to contain what one sees.
SEARCH = re.compile(r'(<button class="btn search-button-field[^>]*) aria-label="Search"')
# A list's entries have a role that is deprecated, and is no list item's.
ENTRY = 'role="doc-biblioentry"'
# The text in it says what it does: `Show code cell source`.
CODE = re.compile(r'<summary aria-label="Toggle hidden content">')


def with_names(page: str) -> str:
    """Return a page of HTML in which each control has a name that contains what it shows."""
    page = PART.sub(r'\1 aria-label="Pages of \2">', page)
    page = SEARCH.sub(r"\1", page)
    page = page.replace(ENTRY, 'role="listitem"')
    return CODE.sub("<summary>", page)


def rewriter(change: Callable[[str], str]) -> Callable[[Sphinx, Exception | None], None]:
    """Return a handler that changes each page of HTML, once all are written."""

    def rewrite(app: Sphinx, error: Exception | None) -> None:
        if error:
            return
        for path in Path(app.outdir).rglob("*.html"):
            page = path.read_text(encoding="utf-8")
            changed = change(page)
            if changed != page:
                path.write_text(changed, encoding="utf-8")

    return rewrite


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("build-finished", rewriter(with_names))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
