"""A new id for the search page's own field, since the theme writes its search field twice."""

from pathlib import Path

from sphinx.application import Sphinx

ID = 'id="search-input"'


def rename_second(app: Sphinx, error: Exception | None) -> None:
    """Rename the second `search-input` of search.html, which nothing refers to by its id."""
    page = Path(app.outdir) / "search.html"
    if error or not page.exists():
        return
    before, found, after = page.read_text(encoding="utf-8").partition(ID)
    renamed = after.replace(ID, 'id="search-input-of-page"')
    page.write_text(before + found + renamed, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("build-finished", rename_second)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
