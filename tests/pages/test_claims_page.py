"""The claims page agrees with the ledger and its results, in HTML that needs no script."""

import re
import subprocess
from collections import Counter
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest
from bs4 import BeautifulSoup

from carry_core.files import ROOT
from carry_paper import measurements
from carry_paper.ledger import claims, report, verdicts
from carry_paper.pages import claims_page
from carry_paper.pages.claims_page import Outcomes
from carry_paper.pages.html import SIGNS
from tests.ledger.test_claims import ledger  # noqa: F401 (a fixture)

PAPER = "https://arxiv.org/html/2401.07993v2"


def parsed(html: str) -> BeautifulSoup:
    return BeautifulSoup(html, "html.parser")


@pytest.fixture(scope="module")
def committed() -> Outcomes:
    return claims_page.read()


@pytest.fixture(scope="module")
def page(committed) -> BeautifulSoup:
    return parsed(claims_page.part("ledger", committed).html)


def test_a_row_that_was_not_measured_is_not_run_and_a_corrected_one_is_judged(ledger):  # noqa: F811
    table = measurements.read("ours")
    measurements.write("ours", table[table.quantity != "heads.squashing"])
    claims_file = ledger / "claims.yml"
    claims_file.write_text(claims_file.read_text().replace("  paper: 0.42\n", "  paper: 0.43\n", 1))
    entries = {e.claim.id: e for e in claims_page.read().entries}
    assert entries["n2/squashing/pos7"].claim.paper == 0.43
    assert entries["n2/squashing/pos7"].rows["author"].paper == 0.43
    for name in ("n2/squashing/pos7", "n2/squashing/pos8"):
        assert entries[name].verdict("ours") == "not run"
        assert "`carry measure --source ours`" in entries[name].rows["ours"].detail


def test_results_of_other_weights_are_called_stale(committed, monkeypatch):
    assert "stale" not in committed.origin("ours")
    assert "runs of 13 groups of his release" in committed.origin("author")
    monkeypatch.setattr(claims_page.ledger, "are_other_weights", lambda loaded: True)
    assert "stale" in committed.origin("ours")


def test_the_overview_counts_every_row_and_links_to_it(committed):
    overview = parsed(claims_page.part("overview", committed).html)
    parts = overview.find_all("tbody")[0].find_all("tr")
    sections = {
        e.claim.section.lower().replace(" ", "-"): e.claim.section for e in committed.entries
    }
    assert len(parts) == len(sections)
    for a in overview.find_all("a"):
        filters = dict(parse_qsl(a["data-filter"]))
        mark, number, verdict = a.text.split(maxsplit=2)
        of_verdict = filters["verdict"]
        beyond = filters.get("section") == "beyond-the-paper"
        assert verdict == report.in_words(of_verdict, beyond=beyond)
        verdict = of_verdict
        assert mark == SIGNS[verdict]
        entries = [e for e in committed.entries if e.claim.section == sections[filters["section"]]]
        assert int(number) == sum(e.verdict(filters["source"]) == verdict for e in entries)
    counts = [int(a.text.split()[1]) for a in overview.find_all("a")]
    assert sum(counts) == 2 * len(claims.claims())


def test_the_tally_is_to_scale_and_its_words_add_up(committed):
    table = parsed(claims_page.part("tally", committed).html)
    cells = table.find_all("td")
    assert len(cells) == 3 * len(committed.sources)
    for cell in cells:
        in_all, n_judged = map(int, re.match(r"Of (\d+), (\d+) w", cell.text).groups())
        judged, _, others = cell.text.partition(";")
        assert (
            sum(map(int, re.findall(r"(?<=[:,] )\d+", judged.partition("judged")[2]))) == n_judged
        )
        assert n_judged + sum(map(int, re.findall(r"\d+", others))) == in_all
        parts = [int(span["style"].removeprefix("flex-grow: ")) for span in cell.find_all("span")]
        assert sum(parts) == in_all


def shown(text: str) -> str:
    """A text as the page shows it: minus signs, and no backticks."""
    return re.sub(r"(?<!\w)-(?=\d)|(?<=\de)-", "−", text.replace("`", ""))


def test_every_row_of_the_ledger_is_in_the_table_with_its_anchor_and_verdicts(page, committed):
    by_id = {e.claim.id: e for e in committed.entries}
    rows = page.find_all("tr", id=True)
    assert Counter(tr["id"] for tr in rows) == Counter(by_id.keys())
    head = [th.text for th in page.find_all("thead")[0].find_all("th")]
    assert len(set(SIGNS.values())) == len(SIGNS) == len(verdicts.VERDICTS)
    for tr in rows:
        entry, cells = by_id[tr["id"]], tr.find_all(["th", "td"], recursive=False)
        # the style sheet makes it a grid
        assert [x["role"] for x in cells] == ["rowheader"] + ["cell"] * 6
        assert [x["data-label"] for x in cells[1:]] == head[1:]
        for source in committed.sources:
            (cell,) = tr.find_all("td", attrs={"data-label": claims_page.HEADINGS[source]})
            verdict = entry.verdict(source)
            # none relies on its colour
            words = report.in_words(verdict, beyond=entry.claim.beyond)
            assert cell.text.startswith(f"{SIGNS[verdict]} {words}"), cell.text
            assert tr[f"data-{source}"] == verdict
            assert int(tr[f"data-rank-{source}"]) == entry.order[source]
            row = entry.rows[source]
            details = tr.find_all("details")[0].text
            assert shown(" ".join(row.detail.split())) in details
            assert shown(claims_page.by_run(row)) in details
    places = {
        tr["id"]: tr.find("a", href=re.compile("arxiv"))["href"].removeprefix(PAPER) for tr in rows
    }
    # App. C.2 and Sec. 5
    assert (places["finding/wide_mlp"], places["finding/kink"]) == ("#A3", "#S5")
    assert all(svg["aria-label"] and svg["role"] == "img" for svg in page.find_all("svg"))


def test_nothing_is_loaded_and_nothing_is_taken_for_html(committed):
    entry = committed.entries[0]
    rows = {source: replace(row, detail="Because <b>.") for source, row in entry.rows.items()}
    html = claims_page.part("ledger", replace(committed, entries=(replace(entry, rows=rows),))).html
    assert re.findall(r"<(?:script|img|link|iframe|style)|url\(|src=|on\w+=", html) == []
    assert "Because &lt;b&gt;." in html
    assert "<b>." not in html
    assert {a["href"] for a in parsed(html).find_all("a") if "//" in a["href"]} == {
        f"{PAPER}#S4.T1"
    }


@pytest.mark.needs("Node")
def test_the_functions_of_the_script():
    command = ["node", "--test", str(ROOT / "tests" / "pages" / "claims.test.js")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert re.search(r"# pass [1-9]", result.stdout)
