"""The claims page: what it says is what the ledger and its results have, in HTML that reads without a script."""

import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup, Tag

from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_core.ledger import claims, verdicts, webpage
from carry_core.ledger.claims import Claim
from carry_core.ledger.results import Row
from carry_core.ledger.webpage import Outcomes
from tests.test_claims import ledger  # noqa: F401 (a fixture)

PAPER = "https://arxiv.org/abs/2401.07993"
NUMBER = Claim(
    "tab1/final_mlp/NC/accuracy/pos7", "Tab. 1", 0.9, "fig01_summary", "Table 1, without the final MLP", "why", "drawn"
)
FINDING = Claim(
    "finding/x",
    "Sec. 4",
    None,
    "fig01_summary",
    "In words",
    "why",
    quantifier="all",
    claim="it adds",
    measure="how much",
)


def row(claim: Claim = NUMBER, verdict: str = "reproduced", **more: Any) -> Row:
    given = {"value": 0.9, "std": 0.1, "runs": [0.8, 1.0], "tolerance": 0.05, "detail": ""} | more
    return Row(claim.id, claim.where, claim.paper, verdict=verdict, **given)


def parsed(html: str) -> BeautifulSoup:
    return BeautifulSoup(html, "html.parser")


@pytest.fixture(scope="module")
def committed() -> Outcomes:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CARRY_DATA", raising=False)
        return webpage.read()


@pytest.fixture(scope="module")
def page(committed) -> BeautifulSoup:
    return parsed(webpage.ledger(committed, frozenset({"fig04_pca_journey"})).html)


def body(page: BeautifulSoup) -> list[Tag]:
    return page.find_all("tr", id=True)


# ---------------------------------------------------------------- names


def test_every_row_has_words_of_its_own():
    titles = Counter(claim.words for claim in claims.claims().values())
    assert [title for title, count in titles.items() if count > 1] == []
    assert not any("_" in title.replace("d_ff", "") for title in titles)


def test_a_number_has_the_places_that_the_paper_prints():
    printed = {0.9: "0.90", 1.0: "1.00", 0.0: "0.00"}
    assert {x: webpage.printed(replace(NUMBER, paper=x)) for x in printed} == printed
    assert webpage.printed(replace(NUMBER, paper=1.0, unit=0.001)) == "1.000"
    assert webpage.printed(replace(NUMBER, paper=5e7, unit=1e7)) == "50,000,000"
    assert webpage.printed(replace(NUMBER, paper=[0.1, 0.15])) == "[0.10, 0.15]"
    assert webpage.printed(replace(NUMBER, paper=[[6, 23], [13, 15]])) == "[[6, 23], [13, 15]]"


# ---------------------------------------------------------------- ledger and results, joined


def change(folder: Path, source: str, edit: Any) -> None:
    path = folder / "results" / f"{source}.json"
    found = json.loads(path.read_text())
    edit(found)
    path.write_text(json.dumps(found))


def test_a_row_that_the_results_do_not_know_is_not_run(ledger):  # noqa: F811
    name = "n2/squashing/pos7"
    change(ledger, "ours", lambda found: found.update(rows=[r for r in found["rows"] if r["id"] != name]))
    (entry,) = [e for e in webpage.read().entries if e.claim.id == name]
    assert (entry.verdict("ours"), entry.verdict("author")) == ("not run", "reproduced")
    assert "`carry claims --source ours --save`" in entry.rows["ours"].detail


def test_a_row_whose_number_was_corrected_since_is_not_run(ledger):  # noqa: F811
    path = ledger / "claims.yml"
    path.write_text(path.read_text().replace("  paper: 0.42\n", "  paper: 0.43\n", 1))
    (entry,) = [e for e in webpage.read().entries if e.claim.id == "n2/squashing/pos7"]
    assert (entry.claim.paper, entry.verdict("ours"), entry.rows["ours"].value) == (0.43, "not run", None)


def test_both_sources_or_one(ledger):  # noqa: F811
    assert webpage.read().sources == ("author", "ours")
    assert webpage.read("ours").sources == ("ours",)
    (ledger / "results" / "author.json").unlink()
    assert len(webpage.read("ours").entries) == len(claims.claims())
    with pytest.raises(BadInput, match=r"author\.json does not exist: write it with `carry claims --source author"):
        webpage.read()


def test_results_of_other_weights_are_called_stale(committed, monkeypatch):
    monkeypatch.delenv("CARRY_DATA", raising=False)
    monkeypatch.setattr(webpage.results, "weights", lambda source: committed.weights[source])
    assert "n2_s0.3_w0.2 (recipe “" in committed.origin("ours")
    record = webpage.runs.load("digits4_n2_s0.3_w0.2").record
    reached = webpage.recipes.reached("digits4_n2_s0.3_w0.2", record["recipe"], record["epochs"])
    expected = f"digits4_n2_s0.3_w0.2 (recipe “{record['recipe']}”, 1 run, epochs: {reached})"
    assert expected in committed.origin("ours")
    assert f"{len(committed.weights['author'])} of the 123 files" in committed.origin("author")
    monkeypatch.setattr(webpage.results, "weights", lambda source: {"runs/x.safetensors": "0" * 64})
    assert "stale" in committed.origin("ours")


def test_the_counts_add_up(committed):
    for source in committed.sources:
        brute = Counter(e.rows[source].verdict for e in committed.entries)
        assert {v: committed.count(source, v) for v in verdicts.VERDICTS} == {v: brute[v] for v in verdicts.VERDICTS}
        parts = sum(committed.count(source, v, section=s) for v in verdicts.VERDICTS for s in committed.sections())
        assert parts == len(committed.entries) == len(claims.claims())
        order = sorted(committed.entries, key=lambda e: e.order[source])
        worst = [verdicts.VERDICTS.index(e.verdict(source)) for e in order]
        assert worst == sorted(worst)


# ---------------------------------------------------------------- the parts


def planted() -> Outcomes:
    def entry(claim: Claim, author: Row, ours: Row, order: int) -> webpage.Entry:
        return webpage.Entry(claim, {"author": author, "ours": ours}, {"author": order, "ours": order})

    second = replace(NUMBER, id="n2/accuracy", title="Two layers", paper=1.0, where="Sec. 4")
    waiting = {"value": None, "std": None, "runs": [], "tolerance": None, "detail": "needs: `carry llm` <soon>."}
    told = {"tolerance": None, "detail": "The lag.", "fields": {"shows": [True, False, False]}}
    return Outcomes(
        ("author", "ours"),
        (
            entry(NUMBER, row(), row(verdict="differs", value=0.5, runs=[0.5], detail="Because <b>."), 1),
            entry(second, row(second, "compatible", tolerance=0.4), row(second, "not run", **waiting), 2),
            entry(FINDING, row(FINDING, tolerance=None), row(FINDING, "differs", **told), 0),
        ),
        {"author": {}, "ours": {}},
    )


def test_the_overview_counts_every_row_and_links_to_it(committed):
    found = parsed(webpage.overview(committed).html)
    *parts, total = found.find_all("tbody")[0].find_all("tr")
    sections = {webpage.slug(section): section for section in committed.sections()}
    assert len(parts) == len(sections)
    for a in found.find_all("a"):
        asked = dict(pair.split("=") for pair in a["data-filter"].split("&"))
        mark, number, verdict = a.text.split(maxsplit=2)
        assert verdict == asked["verdict"].replace("+", " ")
        assert mark == webpage.SIGNS[verdict]
        section = sections[asked["section"]] if "section" in asked else ""
        assert int(number) == committed.count(asked["source"], verdict, section=section)
    assert sum(int(a.text.split()[1]) for a in total.find_all("a")) == 2 * len(claims.claims())


# ---------------------------------------------------------------- the table


def test_every_row_of_the_ledger_is_in_the_table_with_its_anchor_and_verdicts(page, committed):
    by_id = {e.claim.id: e for e in committed.entries}
    rows = body(page)
    assert Counter(tr["id"] for tr in rows) == Counter(by_id.keys())
    head = [th.text for th in page.find_all("thead")[0].find_all("th")]
    assert len(set(webpage.SIGNS.values())) == len(webpage.SIGNS) == len(verdicts.VERDICTS)
    for tr in rows:
        entry, cells = by_id[tr["id"]], tr.find_all(["th", "td"], recursive=False)
        assert [x["role"] for x in cells] == ["rowheader"] + ["cell"] * 6  # the style sheet makes it a grid
        assert [x["data-label"] for x in cells[1:]] == head[1:]
        for source in committed.sources:
            (cell,) = tr.find_all("td", attrs={"data-label": webpage.HEADINGS[source]})
            verdict = entry.verdict(source)
            assert cell.text.startswith(f"{webpage.SIGNS[verdict]} {verdict}"), cell.text  # none relies on its colour
            assert tr[f"data-{source}"] == verdict
            assert int(tr[f"data-rank-{source}"]) == entry.order[source]
            assert entry.rows[source].detail.replace("`", "") in tr.find_all("details")[0].text
    assert all(svg["aria-label"] and svg["role"] == "img" for svg in page.find_all("svg"))


def test_only_pages_that_exist_are_linked(page):
    links = {tr["id"]: [a["href"] for a in tr.find_all("a")] for tr in body(page)}
    expected = {name for name, claim in claims.claims().items() if claim.notebook == "fig04_pca_journey"}
    assert {name for name, some in links.items() if "fig04_pca_journey.html" in some} == expected
    assert {link for some in links.values() for link in some if link.endswith(".html")} == {"fig04_pca_journey.html"}
    assert all(some[0] == PAPER for some in links.values())


def test_nothing_is_loaded_and_nothing_is_taken_for_html():
    found = planted()
    html = webpage.ledger(found, frozenset()).html
    assert re.findall(r"<(?:script|img|link|iframe|style)|url\(|src=|on\w+=", html) == []
    assert "Because &lt;b&gt;." in html
    assert "<b>." not in html
    assert [a["href"] for a in parsed(html).find_all("a") if "//" in a["href"]] == [PAPER] * 3


# ---------------------------------------------------------------- strips


def paths(strip: webpage.Strip, kind: str) -> list[str]:
    return [path for name, path in strip.paths if name == kind]


def test_a_strip_has_a_dot_for_each_run_the_paper_and_what_is_allowed():
    found = webpage.strip(
        NUMBER, {"author": row(runs=[0.0, 1.0, 0.5]), "ours": row(value=0.25, tolerance=0.2, runs=[0.25])}
    )

    def x(value: float) -> str:
        return f"{round(webpage.EDGE + (webpage.WIDTH - 2 * webpage.EDGE) * value, 1):g}"

    assert paths(found, "author") == [f"M{x(0)} 7h0M{x(1)} 7h0M{x(0.5)} 7h0"]
    assert paths(found, "ours") == [f"M{x(0.25)} 21h0"]
    assert paths(found, "judged") == [f"M{x(0.9)} 2v10", f"M{x(0.25)} 16v10"]
    assert paths(found, "paper") == [f"M{x(0.9)} 0V28"]
    assert paths(found, "band") == [f"M{x(0.85)} 7H{x(0.95)}", f"M{x(0.7)} 21H{x(1)}"]  # cut off where shares end
    assert found.ends is None
    assert found.label.startswith("3 runs of the author's weights: 0 to 1; 1 run of our weights: 0.250")


def test_a_strip_of_lists_of_other_numbers_and_of_nothing():
    neurons = replace(NUMBER, paper=86, range=128)
    assert webpage.strip(neurons, {"ours": row(neurons, runs=[70.0, 100.0], value=85.0, tolerance=30.0)}).ends == (
        56,
        116,
    )
    listed = replace(NUMBER, paper=[0.1, 0.15])
    found = webpage.strip(listed, {"ours": row(listed, value=[0.2, 0.3], runs=[[0.2, 0.3], [0.1, 0.4]])})
    assert len(paths(found, "paper")) == len(paths(found, "band")) == len(paths(found, "judged")) == 2
    finding = webpage.strip(FINDING, {"ours": row(FINDING, tolerance=None, value=-2.0, runs=[-1.0, None, -3.0])})
    assert (paths(finding, "paper"), paths(finding, "band")) == ([], [])
    assert paths(finding, "ours")[0].count("h0") == 2
    nothing = row(verdict="not run", value=None, runs=[], tolerance=None)
    assert webpage.strip(NUMBER, {"author": nothing, "ours": nothing}) is None


# ---------------------------------------------------------------- script and style sheet


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not here to run the script's tests")
def test_the_functions_of_the_script():
    command = ["node", "--test", str(ROOT / "tests" / "claims.test.js")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert re.search(r"# pass [1-9]", result.stdout)
