"""The verdict box, the author's stored side of a figure, and figures within a page."""

import json
import re
import runpy
from collections import Counter
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch

from carry_core import Ablation, Patch, encode
from carry_core.errors import BadInput
from carry_paper import catalogue
from carry_paper.ledger import ledger, report, tally
from carry_paper.ledger.claims import claims
from carry_paper.pages import author_side, box
from carry_paper.pages.html import slug
from carry_paper.pages.links import playground_links, swap_links
from carry_paper.pages.page import Page
from carry_paper.plots import style
from carry_paper.plots.sides import AUTHORS, OURS

MAIN, OTHER = "n2_s0.3_w0.2", "n2_s0.3_w0.0"
ROOT = Path(__file__).parents[2]
PILL = re.compile(
    r'<button type="button" class="verdict ([\w-]+)" popovertarget="([\w-]+)">.*?</button>'
    r'<div class="verdict-meaning" id="([\w-]+)" popover>'
    r'.*?<a href="\.\./notebooks/claims\.html#([^"]+)">'
)


def test_a_box_counts_the_cells_of_a_table_and_links_to_rows_that_have_the_verdict():
    html = box.verdict_box(["tab1/final_mlp/"], MAIN).html
    rows = ledger.by_id("ours")
    weightless = tally.uninformative({source: ledger.by_id(source) for source in box.SOURCES})
    cells = [
        name for name in claims() if name.startswith("tab1/final_mlp/") and name not in weightless
    ]
    counts = Counter(rows[name].verdict for name in cells)
    assert f"{len(cells)} cells" in html
    plain = unescape(html)
    assert all(
        report.counted(n, verdict) in plain for verdict, n in counts.items() if len(counts) > 1
    )
    linked = PILL.findall(html)
    assert linked
    assert all(
        verdict in (slug(rows[name].verdict), slug(ledger.by_id("author")[name].verdict))
        for verdict, _, _, name in linked
    )
    assert all(opens == explanation for _, opens, explanation, _ in linked)


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder into which a run of each of two groups was imported."""
    monkeypatch.setenv("CARRY_DATA", str(tmp_path))
    monkeypatch.setenv("CARRY_AUTHOR", str(tmp_path))
    sources = {f"{MAIN}/run0": {"files": {"a": "1"}}, f"{OTHER}/run0": {"files": {"b": "2"}}}
    (tmp_path / "sources.json").write_text(json.dumps(sources))
    return tmp_path


@pytest.mark.parametrize(
    "data",
    [
        {"x": np.linspace(0, 1, 7), "run": np.array(3)},
        pd.DataFrame({"x": [0.1, 0.2], "name": ["a", "b"]}),
    ],
)
def test_what_the_author_s_side_draws_is_stored_and_shown_beside_ours(data, imported, monkeypatch):
    assert author_side.beside("figure", data, "author", MAIN) == {AUTHORS: data}
    # nothing is stored unless it is asked for
    assert [*author_side.beside("figure", data, "ours", MAIN)] == [OURS]
    monkeypatch.setenv("CARRY_AUTHOR_FIGURES", "store")
    author_side.beside("figure", data, "author", MAIN)
    sides = author_side.beside("figure", data, "ours", MAIN)
    assert [*sides] == [AUTHORS, OURS]
    stored = sides[AUTHORS]
    assert type(stored) is type(data)
    np.testing.assert_allclose(stored["x"], data["x"], rtol=1e-3)
    assert [*author_side.beside("figure", data, "ours", OTHER)] == [OURS]
    with np.load(imported / "results" / "author" / f"figure.{MAIN}.npz") as file:
        assert json.loads(str(file["sources"])) == {"a": "1"}


@pytest.mark.usefixtures("imported")
def test_what_is_stored_of_the_author_s_side_is_compared_with_what_a_page_computes(monkeypatch):
    x = np.linspace(0, 1, 200)
    stored = {"x": x, "head": np.array(["1:0"]), "gap": np.array([1.0, np.nan])}

    def run(task, arrays):
        monkeypatch.setenv("CARRY_AUTHOR_FIGURES", task)
        author_side.beside("figure", arrays, "author", MAIN)

    run("store", stored)
    one_moved = np.where(x == 0, 5, x)  # what sat on an edge
    for same in (stored, stored | {"x": x + 1e-4}, stored | {"x": one_moved}):
        run("check", same)
    for other in (
        stored | {"x": x + 3e-3},
        stored | {"x": x[1:]},
        stored | {"head": np.array(["1:1"])},
        stored | {"gap": np.array([np.nan, 1.0])},
        stored | {"more": x},
        {"x": x, "gap": stored["gap"]},
    ):
        with pytest.raises(BadInput, match="is stale: .*author-figures"):
            run("check", other)


def test_all_that_is_stored_of_the_author_s_side_is_small_and_says_its_source():
    files = [*(ROOT / "data" / "results" / "author").glob("*.npz")]
    assert files
    assert sum(path.stat().st_size for path in files) <= 4 * 2**20
    for path in files:
        with np.load(path, allow_pickle=False) as stored:
            digests = json.loads(str(stored["sources"])).values()
            assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in digests)


def test_a_figure_within_a_page_is_the_same_in_fewer_letters():
    """The same shapes at the same places in the same looks, and no tags or ids to no purpose."""
    inlined = runpy.run_path(str(ROOT / "book" / "_ext" / "inline_svg.py"))["inlined"]
    figure = plt.figure()
    ax = figure.subplots()
    for bar in ax.bar(range(20), np.arange(20) / 20, color=style.CORRECT):
        bar.set(gid="value a bar")
    original = style.svg(figure, "Bars.")
    html = inlined(original, "f", "Bars.")
    assert len(html) < 0.6 * len(original)
    assert "<g>" not in html
    assert html.count("<g ") == html.count("</g>")
    looks = dict(re.findall(r"\.(f-\d+)\{([^}]*)\}", html))

    def shapes(svg):
        decimals = []
        for shape in re.findall(r"<(?:path|use)\b[^>]*>", svg):
            d = re.search(r'\bd="([^"]*)"', shape)
            look = re.search(r'style="([^"]*)"', shape)
            name = re.search(r'class="([^"]*)"', shape)
            text = look[1] if look else looks[name[1]] if name else ""
            text = re.sub(r"var\(--[\w-]+,\s*(.*?)\)", r"\1", text)
            places = [float(x) for x in re.findall(r"-?[\d.]+", d[1] if d else "")]
            decimals.append((places, re.sub(r"\s", "", text)))
        return decimals

    own_shapes, original_shapes = shapes(html), shapes(original)
    assert len(own_shapes) > 20
    assert [look for _, look in own_shapes] == [look for _, look in original_shapes]
    for (places, _), (originals, _) in zip(own_shapes, original_shapes, strict=True):
        assert places == pytest.approx(originals, abs=0.01)


def page_with(**attributes: Any) -> Page:
    """Return a page with these attributes, which loads no runs."""
    page = Page.__new__(Page)
    vars(page).update(attributes)
    return page


def test_only_shipped_runs_that_the_playground_has_are_linked():
    parts = {"without the MLP": {2: Ablation(mlps={1}), 7: Ablation(mlps={1})}}
    of_page = {"source": "ours", "path": None, "group": MAIN}
    links = playground_links(page_with(**of_page), parts)
    assert list(links) == [("without the MLP", "2")]
    assert f"run={MAIN}/2&" in links["without the MLP", "2"]
    for other in ({"source": "author"}, {"path": Path("mine")}, {"group": OTHER}):
        assert playground_links(page_with(**of_page | other), parts) == {}


def test_a_swap_that_is_linked_takes_the_carry_from_the_hundreds():
    """In run 0 head 1:0 decides: with it, or with the final MLP, 352 + 271 is 523."""
    loaded = catalogue.load(MAIN)
    page = page_with(source="ours", path=None, group=MAIN, runs=loaded)
    links = swap_links(page, {0: 0})
    assert [*links] == [("one head", "0"), ("final MLP", "0")]
    model, layout = loaded.model(0), loaded.config.layout
    tokens = encode(torch.tensor([352]), torch.tensor([271]), layout)
    for link in links.values():
        patch = Patch.from_json(unquote(link.partition("&do=")[2]))
        logits = model(tokens, patch.hook(model))[0, list(layout.answer)]
        assert logits.argmax(-1).tolist() == [5, 2, 3]
