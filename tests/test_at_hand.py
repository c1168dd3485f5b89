"""Which runs a page shows, and what stops it: each kind of wrong parameter once."""

import re

import pytest
import torch

from carry_core import carries, groups, runs
from carry_core.errors import BadInput
from carry_core.findings import heads, lengths
from carry_core.pages import at_hand, by_class

MAIN, PAD6, ONE_LAYER = "n2_s0.3_w0.2", "pad6_n2_s0.3_w0.2", "n1_s0.3_w0.2"
PAD10, DECODER = "pad10_primed500_n2_s0.3_w0.2", "decoder_pad6_primed500_n2_s0.3_w0.2"


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"source": "authr"}, "Unknown source 'authr': expected 'ours' or 'author'."),
        ({"group": "n9"}, "Unknown group 'n9': expected one of"),
        ({"run": 99}, "No run 99 of n2_s0.3_w0.2 from ours: expected one of 0, 1"),
        ({"epoch": 7}, "No weights of n2_s0.3_w0.2 at epoch 7: expected one of"),
        *(({"n_examples": x}, f"n_examples={x}: expected a whole number") for x in (-1, 1.5, None)),
        *(({"seed": x}, f"seed={x!r}: expected a whole number") for x in (-1, 2**63, None, "one")),
    ],
)
def test_a_wrong_parameter_stops_a_page_with_one_line(wrong, complaint):
    with pytest.raises(BadInput, match=re.escape(complaint)) as error:
        at_hand.check(**{"source": "ours", "group": MAIN} | wrong)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: by_class.choose(at_hand.check(source="ours", group=ONE_LAYER), None, 12, 0), "2 layers or more"),
        (
            lambda: by_class.choose(at_hand.check(source="ours", group=PAD6), "all", 50, 0, in_all=True),
            "n_examples=50: expected 89 or more",
        ),
        (lambda: carries.choose(4, 5), "classes=5 for sums of 4 digits: expected"),
        (lambda: lengths.long_positions(MAIN), f"{MAIN} has no longer sums: expected a padded group"),
        (lambda: lengths.long_positions(PAD6, PAD10), "expected groups with as many long positions"),
        (lambda: groups.decoder(MAIN), f"{MAIN} has no decoders: expected"),
        (lambda: groups.listed(7), "7: expected a group"),
        (lambda: lengths.parent(MAIN), f"{MAIN} is not finetuned: expected"),
        (lambda: heads.outcomes(10**6), "step=1000000: expected a whole number"),
        (
            lambda: runs.check(source="ours", group=MAIN, n_examples=50, at_least=1_000),
            "n_examples=50: expected a whole number of sums from 1,000",
        ),
    ],
)
def test_a_parameter_of_which_nothing_can_be_shown_is_refused(call, complaint):
    with pytest.raises(BadInput, match=re.escape(complaint)):
        call()


def test_a_page_shows_what_was_asked_for_whatever_was_imported(monkeypatch, tmp_path):
    monkeypatch.setenv("CARRY_AUTHOR", str(tmp_path))
    shown = at_hand.check(source="ours", group=PAD6, epoch=500)
    assert [loaded.source for loaded in shown] == ["ours"]
    assert "Epoch 500 of that recipe is epoch 12 here, the same share of the whole." in shown.told
    with pytest.raises(BadInput, match="carry import-author DIR"):
        at_hand.check(source="author", group=PAD6)


def test_of_the_author_a_page_leaves_out_groups_that_his_release_does_not_have(monkeypatch):
    monkeypatch.setattr(at_hand, "check", lambda **given: at_hand.AtHand(runs.load(given["group"])))
    assert list(at_hand.check_each({"a": PAD6, "b": PAD10}, source="author")) == ["a"]
    assert list(at_hand.check_each({"a": PAD6, "b": PAD10}, source="ours")) == ["a", "b"]
    with pytest.raises(BadInput, match=f"has no weights of {PAD10}, {DECODER}"):
        at_hand.check_each({"b": PAD10, "c": DECODER}, source="author")


def test_a_page_draws_the_run_and_the_classes_that_it_names():
    drawn = by_class.choose(at_hand.check(source="ours", group=MAIN, run=2), "000,011", 12, 3)
    assert drawn.introduced.endswith("Shown is **our run 2**.")
    assert drawn.names == ["NC", "C all"]
    every = drawn.every(5)
    assert (list(every.wanted), every.n_examples) == (list(carries.patterns(3)), 5)
    planes = drawn.journey()
    assert torch.bincount(planes[0].task).tolist() == [6, 0, 0, 6]  # half of the sums are from each class
    assert torch.bincount(carries.classify(*drawn.balanced(50))).tolist() == [10] * 5
