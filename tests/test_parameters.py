"""What stops a page: each kind of wrong parameter once."""

import re

import pytest

from carry_core.errors import BadInput
from carry_core.findings import heads, lengths
from carry_core.plots import parameters
from carry_core.plots.parameters import check

MAIN, PAD6, ONE_LAYER = "n2_s0.3_w0.2", "pad6_n2_s0.3_w0.2", "n1_s0.3_w0.2"
PAD10, DECODER = "pad10_primed500_n2_s0.3_w0.2", "decoder_pad6_primed500_n2_s0.3_w0.2"


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"source": "authr"}, "Unknown source 'authr': expected 'ours' or 'author'."),
        ({"group": "n9"}, "Unknown group 'n9': expected one of"),
        ({"run": 99}, "No run 99 of n2_s0.3_w0.2 from ours: expected one of 0, 1"),
        *(({"n_examples": x}, f"n_examples={x}: expected a whole number") for x in (-1, 1.5, None)),
        *(({"seed": x}, f"seed={x!r}: expected a whole number") for x in (-1, 2**63, None, "one")),
    ],
)
def test_a_wrong_parameter_stops_a_page_with_one_line(wrong, complaint):
    with pytest.raises(BadInput, match=re.escape(complaint)) as error:
        check(**{"source": "ours", "group": MAIN} | wrong)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: parameters.chosen_classes(4, 5), "classes=5 for sums of 4 digits: expected"),
        (lambda: lengths.long_positions(MAIN), f"{MAIN} has no longer sums: expected a padded group"),
        (lambda: lengths.long_positions(PAD6, PAD10), "expected groups with as many long positions"),
        (lambda: parameters.decoder_group(MAIN), f"{MAIN} has no decoders: expected"),
        (lambda: parameters.listed_groups(7), "7: expected a group"),
        (lambda: lengths.parent(MAIN), f"{MAIN} is not finetuned: expected"),
        (lambda: heads.outcomes(10**6), "step=1000000: expected a whole number"),
        (
            lambda: check(source="ours", group=MAIN, n_examples=50, at_least=1_000),
            "n_examples=50: expected a whole number of sums from 1,000",
        ),
    ],
)
def test_a_parameter_of_which_nothing_can_be_shown_is_refused(call, complaint):
    with pytest.raises(BadInput, match=re.escape(complaint)):
        call()
