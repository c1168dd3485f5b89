"""The built site loads nothing from elsewhere, its links work, and a page shows results first."""

import os
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pandas as pd
import pytest
import yaml

from carry_core.files import ROOT
from carry_paper.plots.outcomes import by_carry_in
from carry_paper.plots.sides import AUTHORS
from carry_train import groups
from carry_train.files import read_arrays
from tests.helpers.needs import SITE

PAGES = [
    path for path in sorted(SITE.rglob("*.html")) if "_static" not in path.relative_to(SITE).parts
]
REFRESH = 'http-equiv="refresh"'
MOVED = [path for path in PAGES if REFRESH in path.read_text(encoding="utf-8")]
OURS = [path for path in PAGES if path.parent.name in ("book", "notebooks") and path not in MOVED]

pytestmark = [pytest.mark.slow, pytest.mark.needs("the built site")]

LINK_NOT_LOADED = {"author", "canonical", "index", "license", "next", "prev", "search"}


class Page(HTMLParser):
    """One page's addresses that a browser loads by itself, its links, anchors, CSS and scripts."""

    def __init__(self, path: Path):
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.ids: set[str] = set()
        self.twice: set[str] = set()  # ids of more than one element
        self.without_alt: list[str] = []
        self.inside, self.styles, self.scripts = "", "", ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.inside = tag
        if "id" in values:
            (self.twice if values["id"] in self.ids else self.ids).add(values["id"])
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        self.styles += values.get("style", "")
        self.loaded += [
            values[name] for name in ("src", "srcset", "poster", "data") if name in values
        ]
        if tag in ("image", "use") or (
            tag == "link" and not LINK_NOT_LOADED & set(values.get("rel", "").split())
        ):
            self.loaded += [values[name] for name in ("href", "xlink:href") if name in values]
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "meta" and values.get("http-equiv", "").lower() == "refresh":
            self.links.append(values["content"].split("url=")[-1])
        if tag == "img" and not values.get("alt", "").strip():
            self.without_alt.append(values.get("src", ""))

    def handle_data(self, data: str) -> None:
        if self.inside == "style":
            self.styles += data
        if self.inside == "script":
            self.scripts += data

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""


@cache
def parsed(path: Path) -> Page:
    return Page(path)


def external(address: str) -> bool:
    return bool(urlsplit(address.strip()).netloc)


def in_css(css: str) -> list[str]:
    address = r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)"
    return ["".join(groups) for groups in re.findall(address, css)]


def missing(path: Path, address: str) -> bool:
    """Return True if an address leads to no file of the site, or to an anchor that is missing."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return False
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    anchor = unquote(parts.fragment)
    # with = it is for a script
    if not target.is_file() or not anchor or "=" in anchor or target.suffix != ".html":
        return not target.is_file()
    return anchor not in parsed(target).anchors


def test_pages_load_nothing_from_elsewhere_and_their_images_have_texts():
    for path in PAGES:
        page = parsed(path)
        assert not any(map(external, page.loaded + in_css(page.styles))), path.stem
        assert re.findall(r"https?://[^\s\"']+", page.scripts) == [], path.stem
        assert page.without_alt == [], path.stem
    for path in SITE.rglob("*.css"):
        assert not any(map(external, in_css(path.read_text(encoding="utf-8")))), path.name


@pytest.mark.machine
def test_what_pages_load_and_link_to_is_there():
    lost = [
        (p.stem, to) for p in PAGES for to in parsed(p).loaded + parsed(p).links if missing(p, to)
    ]
    assert lost == []
    assert any("tex-mml-chtml.js" in address for path in PAGES for address in parsed(path).loaded)


def test_notebooks_that_readers_download_have_values_for_markers():
    downloads = sorted(SITE.glob("_sources/notebooks/*.ipynb"))
    assert downloads
    assert [path.stem for path in downloads if "{glue" in path.read_text(encoding="utf-8")] == []


NOTEBOOK_PAGES = [path for path in OURS if path.parent.name == "notebooks"]
# What a table begins with.
# Of the ledger's page, the table of all rows; its others count these.
TABLE = re.compile(r'<div class="table-scroll|<table class="claims-table"')
LINK = re.compile(r'<(?:p|span) class="data-links of-(figure|table)"[^>]*><a href="([^"]+)"')


def data_of(path: Path) -> tuple[dict[str, list[pd.DataFrame]], str]:
    """The data that a page links to, by what they are of; and the page's text."""
    text = path.read_text(encoding="utf-8")
    frames: dict[str, list[pd.DataFrame]] = {"figure": [], "table": []}
    for kind, address in LINK.findall(text):
        frames[kind].append(pd.read_csv((path.parent / address).resolve(), dtype=str))
    return frames, text


def test_every_figure_and_table_of_a_page_has_its_data():
    for path in NOTEBOOK_PAGES:
        frames, text = data_of(path)
        body = text.partition("<article")[2].partition("</article")[0]
        n_figures = body.count('class="figure-svg') + len(re.findall(r'<img [^>]*\.svg"', body))
        assert len(frames["figure"]) == n_figures, path.stem
        assert len(frames["table"]) == len(TABLE.findall(body)), path.stem
        assert not any(frame.empty for frame in [*frames["figure"], *frames["table"]])


def test_the_data_of_two_pages_are_what_they_drew():
    """Author's attention as it is stored, and the outcomes of Table 1 as fractions of one."""
    (maps,) = data_of(SITE / "notebooks" / "fig03_attention_per_task.html")[0]["figure"]
    stored = read_arrays(ROOT / f"data/results/author/fig03.{groups.MAIN}.npz", "")
    of_author = maps[maps.part == AUTHORS].dropna(subset="attention")
    cells = of_author.attention.astype(float)
    np.testing.assert_allclose(cells, stored["attention"].ravel(), rtol=1e-5)

    bars, *_ = data_of(SITE / "notebooks" / "tab01_decision_head_and_final_mlp.html")[0]["figure"]
    stored = read_arrays(ROOT / f"data/results/author/tab01.{groups.MAIN}.npz", "")
    cells = pd.DataFrame({name: array for name, array in stored.items() if name != "sources"})
    of_author = bars[bars.part == AUTHORS].astype({"run": int, "accuracy": float})
    drawn = of_author.set_index(["carry_in", "without", "run"]).accuracy
    means = by_carry_in(cells, "without").set_index(["carry_in", "without", "run"]).accuracy
    for place, accuracy in drawn.items():
        assert accuracy == pytest.approx(means[place], rel=1e-5)
    assert len(drawn) >= 12


def test_no_page_has_an_id_twice():
    twice = {path.stem: parsed(path).twice for path in PAGES}
    assert {page: ids for page, ids in twice.items() if ids} == {}


def test_pages_are_light_and_say_what_they_are_about():
    """KiB of a page and of the images and scripts that it alone loads."""
    weights = {}
    for path in PAGES:
        addresses = [address for address in parsed(path).loaded if not address.startswith("data:")]
        files = {path, *((path.parent / address).resolve() for address in addresses)}
        own = [x for x in files if x.is_file() and not {"_static", "mathjax"} & {*x.parts}]
        weights[path.stem] = sum(file.stat().st_size for file in own) / 1024
    heavy = {name: round(kib) for name, kib in weights.items() if kib > 512}
    assert heavy.pop("claims", 0) < 1000
    assert heavy.pop("the_story", 0) < 700  # with the weights of the model that runs in it
    assert heavy == {}
    files = [x for x in SITE.rglob("*") if x.is_file() and "_sources" not in x.parts]
    assert sum(file.stat().st_size for file in files) < 30 * 2**20
    for path in OURS:
        head, _, body = path.read_text(encoding="utf-8").partition("</head>")
        assert not re.search(r'class="pasted-text">-\d', body), "a hyphen for a minus"
        for tag in (
            'rel="icon"',
            'name="description"',
            'property="og:title"',
            'property="og:description"',
        ):
            assert tag in head, path.stem


MEASURE = """(() => {
  const article = document.querySelector("article");
  const seen = (x) => x.checkVisibility() && x.getBoundingClientRect().height > 40;
  const middle = (x) => {
    if (!x) return x;
    const box = x.getBoundingClientRect();
    return box.top + scrollY + box.height / 2;
  };
  const figures = "figure img, figure svg, .cell_output img, .cell_output svg, table";
  const shown = [...article.querySelectorAll(figures)];
  const words = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  const ticks = [];
  while (words.nextNode()) {
    const node = words.currentNode;
    const isCode = node.parentElement.closest("code, pre, script, style");
    if (node.data.includes("`") && !isCode) ticks.push(node.data);
  }
  const cut = [...article.querySelectorAll("table")].filter((table) => {
    const boxes = ".table-scroll, .pst-scrollable-table-container, div";
    const outer = table.parentElement.closest(boxes);
    const cue = outer.matches(".table-scroll") && outer.tabIndex === 0;
    return seen(table) && table.scrollWidth > outer.clientWidth + 1 && !cue;
  });
  return {
    box: !!article.querySelector(".verdict-box"),
    first: middle(shown.find((x) => seen(x) && !x.closest(".verdict-box"))),
    cut: cut.map((table) => table.textContent.trim().slice(0, 60)),
    ticks,
  };
})()"""


# The share of the first figure, or of the first of its parts, that the screen shows.
SHARE_IN_SIGHT = """(() => {
  const drawn = [...document.querySelectorAll("article figure :is(svg, img)")];
  const { top, bottom, height } = drawn
    .find((x) => x.checkVisibility() && !x.closest(".verdict-box"))
    .getBoundingClientRect();
  return (Math.min(bottom + scrollY, innerHeight) - (top + scrollY)) / height;
})()"""
HIGHEST = 40_000  # px of a page on a phone

# Lines and areas of figures with a contrast below 3:1, as WCAG counts it; cells of maps have a
# scale or numbers.
FAINT = """(() => {
  const parts = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
  const ground = parts(getComputedStyle(document.body).backgroundColor);
  const linear = (x) => (x <= 0.04045 * 255 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) =>
    0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) + 0.05;
  const contrast = (colour, opacity) => {
    const [r, g, b, alpha = 1] = parts(colour);
    const seen = [r, g, b].map((x, i) => ground[i] + alpha * opacity * (x - ground[i]));
    return Math.max(luminance(seen) / luminance(ground), luminance(ground) / luminance(seen));
  };
  const faint = (shape) => {
    const { stroke, strokeOpacity, fill, fillOpacity, opacity } = getComputedStyle(shape);
    const paints = [[stroke, strokeOpacity], [fill, fillOpacity]];
    const looks = paints.filter(([colour]) => colour.startsWith("rgb"));
    const best = Math.max(...looks.map(([colour, own]) => contrast(colour, own * opacity)));
    return 1 < best && best < 3 && `${shape.closest("g[id]")?.id} ${looks}: ${best.toFixed(2)}`;
  };
  const shapes = [...document.querySelectorAll(".figure-svg svg :is(path, use)")];
  const own = shapes.filter((x) => !x.closest("defs, clipPath, .map, .scale"));
  return own.map(faint).filter((x) => x).slice(0, 3);
})()"""

# Words of a figure that lie on others, or are cut off at its edge. Digits in the picture, rotated
# words, whose boxes are larger than they, and the tokens of an axis, one sign each, may touch.
ON_EACH_OTHER = """(() => {
  const found = [];
  for (const figure of document.querySelectorAll(".figure-svg > svg")) {
    const edge = figure.getBoundingClientRect();
    const words = [...figure.querySelectorAll("text")].filter((text) => {
      const { b } = text.getScreenCTM();
      return text.textContent.trim().length > 1 && Math.abs(b) < 1e-3 && !text.closest(".numeral");
    });
    const boxes = words.map((text) => [text.textContent.trim(), text.getBoundingClientRect()]);
    boxes.forEach(([text, box], i) => {
      if (box.left < edge.left - 0.5 || box.right > edge.right + 0.5) found.push(`${text} is cut`);
      for (const [other, its] of boxes.slice(i + 1)) {
        const width = Math.min(box.right, its.right) - Math.max(box.left, its.left);
        const height = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
        if (width > 2 && height > 4) found.push(`${text} lies on ${other}`);
      }
    });
  }
  return found;
})()"""


WIDTHS = (1400, 1100, 1000, 820, 700, 400)

# Each page takes a second or two, so this takes one of each kind; `make axe` takes all of them.
KINDS = ("index", "playground", "fig03_attention_per_task", "tab01_decision_head_and_final_mlp")
LOOKED_AT = [path for path in OURS if path.stem in KINDS or "CARRY_AXE" in os.environ]


@pytest.mark.parametrize("path", LOOKED_AT, ids=lambda path: path.stem)
def test_a_page_shows_its_result_first_and_cuts_nothing(path, browser):
    """The first figure is in sight; no page scrolls sideways."""
    browser.open(path.as_uri())
    browser.wait("document.readyState === 'complete'")
    measured = browser.run(MEASURE)
    assert browser.run(ON_EACH_OTHER) == []
    if path.stem == "playground":
        browser.wait("document.getElementById('pg-foot').textContent", 30)
    for width in WIDTHS:
        browser.resize(width, 800)
        assert browser.run("document.documentElement.scrollWidth") <= width, width
    browser.wait(f"document.documentElement.scrollHeight <= {HIGHEST}", 10)
    for theme in ("light", "dark"):
        browser.run(f"document.documentElement.dataset.theme = '{theme}'")
        assert browser.run(FAINT) == [], theme
    assert not measured["ticks"], "literal backticks"
    assert not measured["cut"], "tables that are wider than their box, with no cue"
    if re.match(r"(fig|tab)\d\d_", path.stem):
        assert measured["box"]
        assert measured["first"] <= 940
        assert browser.run(SHARE_IN_SIGHT) > 0.5, "of a phone's first screen"


def test_each_page_is_in_the_sidebar_once():
    page = (SITE / "book" / "index.html").read_text(encoding="utf-8")
    sidebar = page.partition('class="bd-links')[2].partition("</nav>")[0]
    linked = [Path(address).stem for address in re.findall(r'href="([^"#]+)"', sidebar)]
    assert sorted(linked) == sorted(path.stem for path in OURS if path.stem != "index")


def test_old_addresses_lead_to_pages_that_are_there():
    redirects = yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]["config"]["redirects"]
    assert {*redirects} <= {path.relative_to(SITE).with_suffix("").as_posix() for path in MOVED}
    for old, new in redirects.items():
        path = SITE / f"{old}.html"
        (link,) = {link for link in parsed(path).links if not missing(path, link)}
        target, _, section = new.partition("#")
        assert (path.parent / link.partition("#")[0]).resolve() == SITE / f"{target}.html"
        assert link.partition("#")[2] == section
