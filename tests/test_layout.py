"""The built pages in a browser: where the first figure stands, what a table hides, how heavy a page is."""

import re
from pathlib import Path

import pytest

from tests.chromium import PROGRAM, Chromium
from tests.test_site import PAGES, SITE, parsed

pytestmark = [
    pytest.mark.skipif(not PAGES, reason="the site has not been built: run make book"),
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here"),
]
FOLD = 900  # px, of a page that is 1400 px wide
HEAVIEST, HEAVY = 900, 500  # KiB
HEAVY_PAGES = {"claims"}  # and at most two others
NAMES = [path.relative_to(SITE).as_posix() for path in PAGES if path.parent.name in ("book", "notebooks")]
MEASURE = """(() => {
  const article = document.querySelector("article");
  const seen = (x) => x.checkVisibility() && x.getBoundingClientRect().height > 40;
  const top = (x) => x && {top: x.getBoundingClientRect().top + scrollY, height: x.getBoundingClientRect().height};
  const shown = [...article.querySelectorAll("figure img, figure svg, .cell_output img, .cell_output svg, table")];
  const words = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  const ticks = [];
  while (words.nextNode()) {
    const node = words.currentNode;
    if (node.data.includes("`") && !node.parentElement.closest("code, pre, script, style")) ticks.push(node.data);
  }
  const cut = [...article.querySelectorAll("table")].filter((table) => {
    const outer = table.parentElement.closest(".table-scroll, .pst-scrollable-table-container, div");
    const cue = outer.matches(".table-scroll") && outer.tabIndex === 0;
    return seen(table) && table.scrollWidth > outer.clientWidth + 1 && !cue;
  });
  return {
    box: !!article.querySelector(".verdict-box"),
    first: top(shown.find((x) => seen(x) && !x.closest(".verdict-box"))),
    cut: cut.map((table) => table.textContent.trim().slice(0, 60)),
    sideways: document.documentElement.scrollWidth > innerWidth,
    ticks,
  };
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Chromium(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_its_result_first_and_cuts_nothing(name, browser):
    """At 1400 px, and on a phone of 400 px that need not scroll sideways."""
    browser.open((SITE / name).as_uri())
    browser.wait("document.readyState === 'complete'")
    found = browser.run(MEASURE)
    browser.resize(400, 800)
    assert browser.run("document.documentElement.scrollWidth") <= 400
    assert not found["ticks"], "literal backticks"
    assert not found["cut"], "tables that are wider than their box, with no cue"
    assert not found["sideways"]
    if re.match(r"notebooks/(fig|tab)\d\d_", name):
        assert found["box"]
        first = found["first"]
        assert first["top"] + first["height"] / 2 <= FOLD, f"half of the first figure lies above: {first}"


def weight(path: Path) -> float:
    """KiB of a page and the images and scripts that it alone loads."""
    own = {(path.parent / address).resolve() for address in parsed(path).loaded if not address.startswith("data:")}
    return sum(file.stat().st_size for file in {path, *own} if file.is_file() and "_static" not in file.parts) / 1024


def test_pages_are_light():
    weights = {path.stem: weight(path) for path in PAGES if "mathjax" not in path.parts}
    heavy = {name: round(kib) for name, kib in weights.items() if kib > HEAVY}
    assert max(weights.values()) < HEAVIEST, heavy
    assert len(heavy.keys() - HEAVY_PAGES) <= 2, heavy
    total = sum(file.stat().st_size for file in SITE.rglob("*") if file.is_file() and "_sources" not in file.parts)
    assert total < 30 * 2**20


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_an_icon_and_says_what_it_is_about(name):
    head = (SITE / name).read_text(encoding="utf-8").partition("</head>")[0]
    for wanted in ('rel="icon"', 'name="description"', 'property="og:title"', 'property="og:description"'):
        assert wanted in head
