"""The gallery says what each page found first, and shows its main figure small."""

import io

import gallery as extension
import nbformat
import pytest
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


def test_each_figure_and_table_has_an_outcome_and_a_verdict(committed):
    for name in claims_page.FLOATS:
        outcome = gallery.outcome(committed, gallery.notebook_of(name))
        assert outcome.verdict in SIGNS, name
        assert ": " in outcome.words


def test_the_outcome_is_that_of_the_first_row_of_the_box(committed):
    notebook = gallery.notebook_of("fig03")
    assert gallery.in_box(notebook)[0] == "finding/staircase"
    (entry,) = [e for e in committed.entries if e.claim.id == "finding/staircase"]
    n_showing, n = (sum(x) for x in zip(*(row.shown for row in entry.rows.values()), strict=True))
    outcome = gallery.outcome(committed, notebook)
    assert outcome.words == f"{entry.claim.short}: {n_showing} of {n} models"
    weaker = gallery.outcome(committed, gallery.notebook_of("tab04")).verdict
    assert weaker != "reproduced"


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
