"""The built site: it loads nothing from elsewhere, and each of its links leads somewhere."""

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

SITE = Path(__file__).parent.parent / "_build" / "html"
PAGES = [path for path in sorted(SITE.rglob("*.html")) if "_static" not in path.relative_to(SITE).parts]

pytestmark = pytest.mark.skipif(not PAGES, reason="the site has not been built: run make book")

LOADED = {  # elements that make a browser fetch something before a reader clicks
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "image": ("href", "xlink:href"),
    "img": ("src", "srcset"),
    "input": ("src",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
LINK_NOT_LOADED = {"author", "canonical", "index", "license", "next", "prev", "search"}


class Page(HTMLParser):
    """One page's loaded addresses, links, anchors and images."""

    def __init__(self, path: Path):
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.without_alt: list[str] = []
        self.styles: list[str] = []
        self.scripts: list[str] = []
        self.inside = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.inside = tag
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        self.styles.append(values.get("style", ""))
        self.loaded += [values[name] for name in LOADED.get(tag, ()) if name in values]
        if tag == "link" and not LINK_NOT_LOADED & set(values.get("rel", "").split()):
            self.loaded.append(values["href"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "meta" and values.get("http-equiv", "").lower() == "refresh":
            self.links.append(values["content"].split("url=")[-1])
        if tag == "img" and not values.get("alt", "").strip():
            self.without_alt.append(values.get("src", ""))

    def handle_data(self, data: str) -> None:
        if self.inside == "style":
            self.styles.append(data)
        if self.inside == "script":
            self.scripts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""


@cache
def parsed(path: Path) -> Page:
    return Page(path)


def external(address: str) -> bool:
    return bool(urlsplit(address.strip()).netloc)


def in_css(css: str) -> list[str]:
    return re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", css)


@pytest.fixture(params=PAGES, ids=lambda path: str(path.relative_to(SITE)))
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_a_page_loads_nothing_from_elsewhere(path: Path):
    page = parsed(path)
    addresses = page.loaded + ["".join(found) for css in page.styles for found in in_css(css)]
    assert [address for address in addresses if external(address)] == []


def test_a_page_names_no_other_host_in_its_scripts(path: Path):
    assert [found for script in parsed(path).scripts for found in re.findall(r"https?://[^\s\"']+", script)] == []


def test_what_a_page_loads_and_links_to_is_there(path: Path):
    page, missing = parsed(path), []
    for address in page.loaded + page.links:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if target.is_dir():
            target /= "index.html"
        anchor = unquote(parts.fragment)
        state = "=" in anchor  # for a script of the page
        inside = target.suffix == ".html" and target.is_file()
        lost_anchor = anchor and not state and inside and anchor not in parsed(target).anchors
        if not target.is_file() or lost_anchor:
            missing.append(address)
    assert missing == []


def test_every_image_has_a_text(path: Path):
    assert parsed(path).without_alt == []


def test_no_style_sheet_loads_from_elsewhere():
    sheets = sorted(SITE.rglob("*.css"))
    assert [
        (sheet.name, address)
        for sheet in sheets
        for found in in_css(sheet.read_text(encoding="utf-8"))
        if external(address := "".join(found))
    ] == []


def test_formulas_are_set_by_the_mathjax_of_the_site():
    scripts = [address for path in PAGES for address in parsed(path).loaded if "tex-mml-chtml.js" in address]
    assert scripts
    assert (SITE / "mathjax" / "tex-mml-chtml.js").is_file()
