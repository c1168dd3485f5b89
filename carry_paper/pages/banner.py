"""The line with which a page opens that runs with parameters of a reader's own."""

import html
from collections.abc import Mapping
from typing import Any, NamedTuple

from carry_paper.pages import parameters

BANNER = "banner"  # the name of the output


class Banner(NamedTuple):
    """A line that says what the text of such a page is about, and what its figures are about.

    Attributes:
        own: The page's own parameters, with which it is in the book.
        changed: The reader's, where they differ.
    """

    own: Mapping[str, Any]
    changed: Mapping[str, Any]

    def __repr__(self) -> str:
        return (
            f"The text is about the page as it is in the book ({parameters.in_words(self.own)});"
            f" figures and tables are yours ({parameters.in_words(self.changed)})."
        )

    def _repr_html_(self) -> str:
        return f"<p><strong>{html.escape(repr(self), quote=False)}</strong></p>"
