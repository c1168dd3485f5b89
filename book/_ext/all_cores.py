"""Sphinx reads and writes pages in parallel, on all cores.

`jupyter-book build` has no such option. Sphinx also reads pages one at a time if any extension does
not say that it is safe to read them in parallel. Here only `sphinx_multitoc_numbering`, which
`sphinx_external_toc` loads, does not say so. It is safe: it numbers sections after all pages have
been read.
"""

import os

from sphinx.application import Sphinx

MULTITOC = "sphinx_multitoc_numbering"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.parallel = os.cpu_count() or 1
    app.setup_extension(MULTITOC)
    app.extensions[MULTITOC].parallel_read_safe = True
    return {"parallel_read_safe": True, "parallel_write_safe": True}
