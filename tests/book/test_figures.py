"""What figures do on a page: they enlarge, name what one points at, and open the playground."""

import html
import re
import runpy
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest

from carry_core import Ablation
from carry_core.files import ROOT
from carry_paper.findings.corners import STATES
from carry_paper.pages.playground import address
from carry_paper.plots.attention import attention_grid
from carry_paper.plots.corners import in_the_plane
from carry_paper.plots.last_layer import PARTS, draw_parts
from carry_paper.plots.outcomes import carry_bars, cell_bars
from carry_paper.plots.planes import plane_figure
from carry_paper.plots.sides import AUTHORS, OURS, subfigures
from carry_paper.plots.style import svg
from carry_train import groups
from tests.helpers.chromium import wait

LAYOUT = groups.GROUPS[groups.MAIN].config.layout
MAP_LINKS = {("final MLP", "2"): address(groups.MAIN, 2, Ablation(skips={1}))}
STRIP = """<svg class="strip">
<g class="author"><path d="M6 9h0"><title>run 2: 0.1</title></path></g>
<g class="ours"><path d="M6 9h0"><title>run 2 shows it</title></path>
<path data-try="../book/playground.html#run=ours/3" d="M18 9h0"><title>run 3 shows it</title></path>
</g></svg>"""
LINK = address(groups.MAIN, 2, Ablation(mlps={1}))
RUN_LINK = address(groups.MAIN, 5)
EXTENSION = runpy.run_path(str(ROOT / "book" / "_ext" / "inline_svg.py"))
inlined = EXTENSION["inlined"]


def attention_of(run: int) -> dict[str, object]:
    """Attention in which each query attends to the token of its own number alone."""
    pattern = np.broadcast_to(np.eye(LAYOUT.length), (2, 2, 2, LAYOUT.length, LAYOUT.length))
    return {
        "run": np.array(run),
        "attention": pattern,
        "classes": np.array(["NC", "C@1"]),
        "decision_head": np.array(1),
    }


def bars() -> pd.DataFrame:
    rows = [(2, "NC", False, "pos7", 0.5, 0.3), (2, "C@1", True, "pos7", 0.25, 0.75)]
    names = ["run", "carry_class", "carry_in", "position", "accuracy", "corrected"]
    return pd.DataFrame(rows, columns=names).assign(without="the final MLP")


def plane(run: int) -> dict[str, object]:
    """A plane of three sums."""
    place = {"layer": np.array([0]), "after": np.array(["MLP"]), "position": np.array([2])}
    points = {name: np.array([[0.0, 1.0, 2.0]]) for name in ("x", "y")}
    labels = {"share": np.array([[0.5, 0.25]]), "digit": np.array([[3, 4, 5]])}
    return {"run": np.array(run), **place, **points, **labels}


def test_the_page_has_each_colour_that_a_figure_takes_from_it() -> None:
    css = (ROOT / "book" / "_static" / "page.css").read_text(encoding="utf-8")
    assert {*EXTENSION["VARIABLES"].values()} == {*re.findall(r"--figure-([\w-]+):", css)}


@pytest.fixture
def page(tmp_path: Path) -> str:
    """The address of a page with two figures, with the book's own styles and scripts."""
    sides = {AUTHORS: attention_of(4), OURS: attention_of(5)}
    maps = subfigures(sides, lambda part, side: attention_grid(part, side, LAYOUT), height=4.0)
    links = {("the final MLP", "2"): LINK}
    parts = pd.DataFrame({part: [0.0, 0.75] for part in PARTS}, [1, 2])
    cells = subfigures(
        {OURS: parts}, lambda part, frame: draw_parts(part, frame, MAP_LINKS), height=2.0
    )
    planes = plane_figure({AUTHORS: plane(4), OURS: plane(5)}, height=2.0, link=RUN_LINK)
    figures = [maps, carry_bars({OURS: bars()}, "without", links=links), cells, planes]
    in_page = [inlined(svg(figure), f"f{i}", "A figure.") for i, figure in enumerate(figures)]
    static = ROOT / "book" / "_static"
    head = f'<link rel="stylesheet" href="{(static / "page.css").as_uri()}">'
    body = STRIP + "".join(f"<figure>{figure}</figure>" for figure in in_page)
    script = f'<script src="{(static / "figures.js").as_uri()}"></script>'
    article = f'<article style="max-width: 760px">{body}</article>'
    path = tmp_path / "notebooks" / "page.html"
    playground = tmp_path / "book" / "playground.html"
    for file, text in ((path, f"<!doctype html>{head}{article}{script}"), (playground, "<p>Here.")):
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8")
    return path.as_uri()


def point_at(browser, selector: str, across: float, down: float) -> str:
    """Point at a place within an element, in shares of its size, and return what is said."""
    return str(
        browser.run(f"""(() => {{
          const element = document.querySelector('{selector}');
          const box = element.getBoundingClientRect();
          const clientX = box.left + {across} * box.width;
          const clientY = box.top + {down} * box.height;
          const event = new PointerEvent("pointermove", {{ clientX, clientY, bubbles: true }});
          element.dispatchEvent(event);
          const hint = document.querySelector(".figure-hint");
          return hint.hidden ? "" : hint.textContent;
        }})()""")
    )


def test_pointing_at_a_cell_or_a_bar_names_its_run_part_and_value(browser, page):
    browser.open(page)
    browser.wait("!!document.querySelector('.figure-enlarge')")
    cell = point_at(browser, ".sides svg:last-child .map", 0.25, 0.25)
    assert cell == "our weights, run 5, NC, 0:0, units of a to units of a: 1"
    assert point_at(browser, ".sides svg .map", 0.25, 0.95).endswith(" to units of a: 0")
    named = point_at(browser, "[data-try] path", 0.5, 0.5)
    assert named == "the final MLP, carry-in, our run 2: correct 0.25 (click: try it)"
    assert point_at(browser, "article", 0.99, 0.99) == ""
    linked = point_at(browser, "[data-links] path:nth-of-type(9)", 0.5, 0.5)
    assert linked == "our weights, run 2, final MLP: 0.75 (click: try it)"
    other = point_at(browser, "[data-links] path:nth-of-type(8)", 0.5, 0.5)
    assert other == "our weights, run 2, stream that enters: 0.75"
    dots = point_at(browser, "[data-panel][data-try] image", 0.5, 0.5)
    assert dots == "our weights, run 5, layer 0, pos. 2, after MLP (click: try it)"


def test_a_run_that_one_points_at_is_lit_in_bars_and_strips(browser, page):
    browser.open(page)
    browser.wait("!!document.querySelector('.figure-enlarge')")
    lit = "[...document.querySelectorAll('.lit')].map((x) => x.dataset.value || x.textContent)"
    named = point_at(browser, "[data-try] path", 0.5, 0.5)
    assert "our run 2" in named
    names = browser.run(lit)
    assert "run 2 shows it" in names
    assert {name.removeprefix("our ")[:5] for name in names} == {"run 2"}
    assert "run 2: 0.1" not in names  # the author's
    point_at(browser, "article", 0.99, 0.99)
    assert browser.run(lit) == []


def test_bars_of_cells_have_the_links_of_their_part_and_run():
    links = {("the final MLP", "2"): LINK, ("the decision head", "2"): "elsewhere"}
    figure = cell_bars({OURS: bars()}, "without", {"the final MLP": "final MLP"}, links)
    addresses = [bar.get_url() for ax in figure.axes for bar in ax.patches]
    assert set(addresses) == {LINK}


def test_planes_of_our_run_have_its_link_and_the_author_s_have_none():
    figure = plane_figure({AUTHORS: plane(4), OURS: plane(5)}, height=2.0, link=RUN_LINK)
    panels = re.findall(r'data-panel="([^"]*)"( data-try="[^"]*")?', inlined(svg(figure), "f", ""))
    place = "layer 0, pos. 2, after MLP"
    assert panels == [
        (f"{AUTHORS}, run 4, {place}", ""),
        (f"{OURS}, run 5, {place}", f' data-try="{html.escape(RUN_LINK)}"'),
    ]


@pytest.mark.parametrize(("n_runs", "n_parts"), [(6, 3), (5, 3), (1, 1), (0, 1)])
def test_runs_in_the_plane_of_carry_and_nine_stand_in_twos_on_a_phone(n_runs, n_parts):
    sums = pd.DataFrame(
        {"state": STATES, "carry": [0.0, 0.5, 1.0, 1.0], "nine": [0.0, 1.0, 0.0, 0.0]}
    )
    names = [f"run {run}" for run in range(n_runs)]
    parts = inlined(svg(in_the_plane(dict.fromkeys(names, sums))), "f", "").split("<svg")[1:]
    assert [re.findall(r">(run \d)<", part) for part in parts] == [
        names[2 * i : 2 * i + 2] for i in range(n_parts)
    ]
    assert all(part.count("ten or more") == part.count("less than nine") == 1 for part in parts)


@pytest.mark.parametrize(
    ("selector", "link"),
    [
        ("[data-try] path", LINK),
        ("[data-links] path:nth-of-type(9)", *MAP_LINKS.values()),
        ("[data-panel][data-try] image", RUN_LINK),
        (".strip [data-try]", "#run=ours/3"),
    ],
)
def test_a_click_on_a_bar_or_a_cell_opens_the_playground(browser, page, selector, link):
    browser.open(page)
    browser.wait("!!document.querySelector('.figure-enlarge')")
    click = "new MouseEvent('click', { bubbles: true })"
    browser.run(f'document.querySelector("{selector}").dispatchEvent({click})')

    def opened() -> str:
        """The address of the page, once the click has led there."""
        info = browser.call("Target.getTargetInfo", targetId=browser.target)["targetInfo"]
        return info["url"] if "playground" in info["url"] else ""

    address_of_page = wait(opened, "the playground is open", 20)
    assert urlsplit(address_of_page).fragment == urlsplit(link).fragment
