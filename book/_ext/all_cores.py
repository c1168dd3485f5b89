"""Sphinx reads and writes pages on all cores, as with its option `-j auto`.

Jupyter Book does not pass that option on. And Sphinx reads one page after another as long as one
extension does not declare that others can be read beside it. The only one is
`sphinx_multitoc_numbering`, which `sphinx_external_toc` brings along; it numbers sections once all
pages have been read.
"""

import os

from sphinx.application import Sphinx
from sphinx.config import Config

UNDECLARED = "sphinx_multitoc_numbering"


def declare(app: Sphinx, config: Config) -> None:
    """Declare that pages can be read side by side with this extension."""
    app.extensions[UNDECLARED].parallel_read_safe = True


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.parallel = os.cpu_count() or 1
    app.connect("config-inited", declare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
