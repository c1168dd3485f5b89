"""Apostrophes are typographic in prose, and straight in code."""

import apostrophes
import pytest

from tests.book.test_site import OURS


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        ("? 1 can't tell", "? 1 can’t tell"),
        ("the author&#39;s 6 runs&#39; mean", "the author’s 6 runs’ mean"),
        ("<dd>'not affected at all'</dd>", "<dd>‘not affected at all’</dd>"),
        ("<code>load('x')</code>'s rows", "<code>load('x')</code>’s rows"),
        ("<code><span>source='ours'</span></code>", "<code><span>source='ours'</span></code>"),
        ("<option value=\"can't tell\">can't tell", '<option value="can\'t tell">can’t tell'),
        ("<script>const a = 'x';</script>", "<script>const a = 'x';</script>"),
        ("<dt class=\"sig x\">load(<em>'ours'</em>)</dt>", None),
        ("two 'words' here", "two ‘words’ here"),
    ],
)
def test_apostrophes_are_curled_in_the_text_of_an_article_only(plain, expected):
    """Tags, scripts, code and signatures keep theirs, and so does what is around the article."""
    page = "<p>it's</p><article>{}</article><p>it's</p>"
    assert apostrophes.curled(page.format(plain)) == page.format(expected or plain)


@pytest.mark.needs("the built site")
def test_no_page_has_a_straight_apostrophe_left():
    for path in OURS:
        page = path.read_text(encoding="utf-8")
        assert apostrophes.curled(page) == page, path.name
