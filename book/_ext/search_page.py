"""The search: an order of what is found, and a new id for the page's own field.

The theme writes its search field twice.
"""

from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config

ID = 'id="search-input"'


def rename_second(app: Sphinx, error: Exception | None) -> None:
    """Rename the second `search-input` of search.html, which nothing refers to by its id."""
    page = Path(app.outdir) / "search.html"
    if error or not page.exists():
        return
    before, found, after = page.read_text(encoding="utf-8").partition(ID)
    renamed = after.replace(ID, 'id="search-input-of-page"')
    page.write_text(before + found + renamed, encoding="utf-8")


def set_order(app: Sphinx, config: Config) -> None:
    """Let the search order pages as `scorer.js` says."""
    config.html_search_scorer = str(Path(__file__).with_name("scorer.js"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("config-inited", set_order)
    app.connect("build-finished", rename_second)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
