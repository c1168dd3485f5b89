"""The gallery says what each page found first, and shows its main figure small."""

import io
from dataclasses import replace

import gallery as extension
import nbformat
import pytest
from docutils import nodes
from PIL import Image

from carry_paper.ledger.claims import claims
from carry_paper.pages import claims_page, gallery
from carry_paper.pages.claims_page import Outcomes
from carry_paper.pages.html import SIGNS


@pytest.fixture(scope="module")
def committed() -> Outcomes:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CARRY_DATA", raising=False)
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


def test_what_was_not_run_is_said(committed):
    not_run = with_rows(committed, "finding/staircase", ours="not run")
    assert gallery.outcome(not_run, gallery.notebook_of("fig03")).endswith(", ours not run")
    # A table: none of our cells was run, which is not the same as that none is reproduced.
    assert gallery.outcome(committed, gallery.notebook_of("tab02")).endswith(", ours not run")


def test_one_model_is_no_plural(committed):
    (entry,) = [e for e in committed.entries if e.claim.id == "finding/primed_head"]
    assert entry.rows["author"].shown == (1, 1)
    assert "the author’s 1 of 1 model," in gallery.outcome(committed, gallery.notebook_of("fig24"))


def test_a_card_has_a_pill_for_each_verdict():
    html = extension.pills("✓ 2 reproduced, ≈ 1 mostly reproduced, ? 3 can't tell")
    for verdict in ("reproduced", "mostly", "cant-tell"):
        assert f'class="verdict {verdict}"' in html
    assert html.count("<span") == 3
    assert extension.pills(gallery.NOTHING) == gallery.NOTHING


def test_counts_that_a_page_glues_become_pills_and_other_words_stay():
    glued = nodes.inline("", "✓ 2 reproduced, ≠ 1 differs", classes=["pasted-text"])
    others = [
        nodes.inline("", "in 2 of 6 runs, ≠ 1", classes=["pasted-text"]),
        nodes.inline("", "✓ 1 reproduced"),
    ]
    page = nodes.paragraph("", "", glued, *others)
    extension.counts_as_pills(page)
    assert page.children[1:] == others
    assert page.children[0].astext().count('class="verdict ') == 2


def test_rows_of_other_pages_in_a_box_count(committed):
    """Figure 1's page has a box, and no rows of its own."""
    notebook = gallery.notebook_of("fig01")
    assert not any(claim.notebook == notebook.stem for claim in claims().values())
    assert gallery.counts(committed, "ours", notebook).total() == len(gallery.in_box(notebook))


@pytest.mark.parametrize("shape", [(768, 288), (400, 900)])
def test_a_thumbnail_is_small_and_has_one_size(shape):
    noise = Image.effect_noise(shape, 90).convert("RGB")
    png = io.BytesIO()
    noise.save(png, "PNG")
    small = extension.thumbnail(png.getvalue())
    assert len(small) <= extension.LARGEST
    assert Image.open(io.BytesIO(small)).size == extension.SIZE


def test_the_main_figure_is_the_one_with_that_name():
    notebook = nbformat.read(gallery.notebook_of("tab01"), 4)
    figure = extension.first_figure(notebook)
    assert figure is not None
    assert figure.startswith(b"\x89PNG")
    assert extension.first_figure(nbformat.v4.new_notebook()) is None
