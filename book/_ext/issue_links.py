"""A link beside each row of the ledger that opens an issue about it.

The form is `.github/ISSUE_TEMPLATE/number.yml`, in which the row is filled in. The repository's
address is the theme's `repository_url`, in `_config.yml`; without one there is no link.
A script makes the links, since hundreds of them would be a tenth of the page.
"""

from typing import Any

from sphinx.application import Sphinx

PAGE = "notebooks/claims"
SCRIPT = """
<script>
for (const id of document.querySelectorAll(".claims-id")) {
  const row = id.textContent;
  const query = new URLSearchParams({ template: "number.yml", title: `${row}: `, row });
  const link = document.createElement("a");
  link.href = `${ADDRESS}/issues/new?${query}`;
  link.textContent = "issue";
  link.title = `Open an issue with ${row}`;
  id.after(" ", link);
}
</script>
"""


def script(address: str) -> str:
    """Return the script that adds the links, for a repository at this address."""
    return SCRIPT.replace("${ADDRESS}", address)


def add_links(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    """Add the links to the claims page, if the repository has an address."""
    address = app.config.html_theme_options.get("repository_url")
    if address and pagename == PAGE:
        context["body"] += script(address)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("html-page-context", add_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
