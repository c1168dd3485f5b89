"""The gallery says what each page found first, and shows its main figure small."""

import runpy
from dataclasses import replace

import pytest

from carry_core.files import ROOT
from carry_paper.ledger.claims import claims
from carry_paper.pages import claims_page, gallery
from carry_paper.pages.claims_page import Outcomes
from carry_paper.pages.html import SIGNS


@pytest.fixture(scope="module")
def committed() -> Outcomes:
    return claims_page.read()


def test_each_figure_and_table_has_an_outcome_and_counts(committed):
    for name in claims_page.FLOATS:
        words = gallery.words(committed, name)
        assert ": " in words[f"{name}_outcome"]
        for source in committed.sources:
            assert words[f"{name}_{source}"][0] in SIGNS.values(), name


def test_the_outcome_is_that_of_the_first_row_of_the_box(committed):
    notebook = gallery.notebook_of("fig03")
    assert gallery.in_box(notebook)[0] == "finding/staircase"
    (entry,) = [e for e in committed.entries if e.claim.id == "finding/staircase"]
    models = {source: "{} of {} models".format(*row.shown) for source, row in entry.rows.items()}
    expected = f"{entry.claim.short}: the author’s {models['author']}, ours {models['ours']}"
    assert gallery.outcome(committed, notebook) == expected


def with_rows(outcomes: Outcomes, name: str, **verdicts: str) -> Outcomes:
    """The same outcomes with other verdicts on a row, by source."""
    entries = []
    for entry in outcomes.entries:
        if entry.claim.id == name:
            rows = dict(entry.rows)
            for source, verdict in verdicts.items():
                rows[source] = replace(rows[source], verdict=verdict)
            entry = replace(entry, rows=rows)
        entries.append(entry)
    return replace(outcomes, entries=tuple(entries))


def test_a_row_that_differs_is_counted_wherever_it_is_on_the_page(committed):
    """Its last row too: a card does not look reproduced because the page's first row is."""
    box = gallery.in_box(gallery.notebook_of("fig03"))
    before = gallery.words(committed, "fig03")
    assert "differ" not in before["fig03_author"]
    after = gallery.words(with_rows(committed, box[-1], author="differs"), "fig03")
    assert after["fig03_author"].endswith("≠ 1 differs")
    assert after["fig03_outcome"] == before["fig03_outcome"]


def test_rows_of_other_pages_in_a_box_count(committed):
    """Figure 1's page has a box, and no rows of its own."""
    notebook = gallery.notebook_of("fig01")
    assert not any(claim.notebook == notebook.stem for claim in claims().values())
    assert gallery.counts(committed, "ours", notebook).total() == len(gallery.in_box(notebook))


def test_each_count_becomes_one_pill():
    """“Shown, not judged” has a comma of its own."""
    extension = runpy.run_path(str(ROOT / "book" / "_ext" / "gallery.py"))
    counts = claims_page.in_words(dict.fromkeys(SIGNS, 2), signs=True)
    assert extension["COUNTS"].fullmatch(counts)
    pills = extension["pills"](counts)
    assert pills.count("<span") == len(SIGNS)
    assert "· 2 shown, not judged<" in pills
