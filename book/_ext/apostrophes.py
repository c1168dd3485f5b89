"""Typographic apostrophes in what pages glue in and show as HTML, as in the rest of the text.

Sphinx sets them in the text of a page, but not in the words that notebooks compute. So the pages
are changed after they have been written; code stays as it is.
"""

import re

from accessible import rewriter
from sphinx.application import Sphinx

ARTICLE = re.compile(r"<article.*</article>", re.DOTALL)
# A tag, or an element whose text is no prose.
NO_PROSE = re.compile(
    r"(<(script|style|pre|code|textarea)\b.*?</\2>|<dt class=\"sig.*?</dt>|<[^>]*>)", re.DOTALL
)
STRAIGHT = "(?:'|&#39;|&#x27;)"
OPENS = re.compile(rf"(?<![\w’.,)]){STRAIGHT}(?=\w)")
APOSTROPHE = re.compile(rf"(?:(?<=[\w.,)])|^(?={STRAIGHT}s\b)){STRAIGHT}")


def curled(page: str) -> str:
    """Return a page of HTML with typographic apostrophes and single quotes in its article."""
    return ARTICLE.sub(lambda article: _in_prose(article[0]), page)


def _in_prose(html: str) -> str:
    """Return HTML with typographic apostrophes in its text."""
    parts, end = [], 0
    for markup in NO_PROSE.finditer(html):
        parts += [_curled_text(html[end : markup.start()]), markup[0]]
        end = markup.end()
    return "".join([*parts, _curled_text(html[end:])])


def _curled_text(text: str) -> str:
    """Return text between two tags with typographic apostrophes."""
    return OPENS.sub("‘", APOSTROPHE.sub("’", text))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("build-finished", rewriter(curled))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
