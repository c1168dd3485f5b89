"""What `book/training.md` has in figures is what the trainer does: the page types them, this file computes them."""

import re
from fractions import Fraction

import pytest

from carry_core.files import ROOT
from carry_core.groups import GROUPS, MAIN
from carry_core.sums import Layout, n_sums
from carry_core.training import campaign, dropout, recipes

PAPER, QUICK = recipes.BY_NAME["paper"], recipes.BY_NAME["quick"]
FINETUNED, FOUR, LONG = (GROUPS[f"{name}_n2_s0.3_w0.2"] for name in ("pad6_finetuned500", "digits4", "pad6"))


@pytest.fixture(scope="module")
def page() -> str:
    return " ".join((ROOT / "book" / "training.md").read_text().split())


def decimal(latex: str) -> float:
    """A power of ten as the page writes it, with or without a factor."""
    factor, power = re.fullmatch(r"(?:([\d.]+) \\cdot )?10\^\{(-\d+)\}", latex).groups()
    return float(f"{factor or 1}e{power}")


def test_the_recipes(page):
    rates = re.search(r"\| learning rate \| \$(.+?)\$ \| \$(.+?)\$ \|", page).groups()
    assert [decimal(rate) for rate in rates] == [PAPER.rate, QUICK.rate]
    assert PAPER.warmup == 0
    assert f"| warm-up | none | {QUICK.warmup} steps, linear |" in page
    main = GROUPS[MAIN]
    assert (
        f"| length | {PAPER.epochs(main)} epochs | {QUICK.steps:,} steps, rounded to whole epochs:"
        f" {QUICK.epochs(main)} at $s = {main.fraction}$ |"
    ) in page


def test_the_groups_that_are_trained_longer(page):
    assert f"the unprimed group of six digits has {LONG.epochs:,} epochs, the finetuned one {FINETUNED.epochs}." in page
    assert FINETUNED.steps == 1
    assert Fraction(FINETUNED.epochs, QUICK.warmup) == Fraction(1, 6), "the page says: a sixth of its learning rate"
    assert "ends at a sixth of its learning rate" in page


def test_the_data_and_the_model(page):
    main, config = GROUPS[MAIN], GROUPS[MAIN].config
    assert f"All {n_sums(main.n_digits):,} sums" in page
    assert f"Batches of {main.batch}," in page
    assert f"has all {n_sums(FOUR.n_digits):,} sums and, as in the paper, batches of {FOUR.batch}." in page
    assert f"width {config.d_model}, one hidden layer of {config.d_ff} ReLU neurons" in page
    assert config.heads == 2
    assert "rotary position embedding {cite}`su2024roformer`, two heads" in page


def test_the_shortcuts(page):
    layout = Layout(GROUPS[MAIN].config.width)
    digits = 2 * layout.width  # ten tokens at each, and the rest of the positions have one
    assert f"There are {10 * digits + layout.length - digits} such pairs for three digits" in page
    assert f"Its rate is therefore {dropout.THRESHOLD}/65536" in page
    assert round(0.1 * 65536) == dropout.THRESHOLD


def test_when_it_saves(page):
    assert campaign.SAVE_EVERY == 60 / 4
    assert "saved every quarter of a minute" in page
