"""Why a row is not reproduced: causes that are shown, and sentences whose numbers are computed."""

import re
from dataclasses import replace

from carry_paper.findings import causes
from carry_paper.ledger import claims, kinds_of_run, ledger

IN_BRACES = re.compile(r"\{[^}]*\}")
# A digit may name a thing: a run, a position, an epoch, a layer, a figure; a part or a class.
NAMED = re.compile(
    r"\b(?:runs?|positions?|epochs?|layers?|figures?|tables?|fig\.|tab\.|sec\.|app\. [a-i]\.?)"
    r" \d+(?:(?:, | and | to |, and )\d+)*|C@\d|head \d:\d|d_ff \d+",
    re.IGNORECASE,
)
WHYS = [(claim, source) for claim in claims.claims().values() for source in claim.why]


def test_no_number_stands_in_a_why_but_the_name_of_a_thing():
    for claim, source in WHYS:
        text = NAMED.sub("", IN_BRACES.sub("", claim.why[source].text))
        assert not re.search(r"\d", text), text


def test_a_cause_names_the_experiment_that_shows_it():
    for claim, source in WHYS:
        why = claim.why[source]
        assert bool(why.experiment) == (why.cause == "seeds")
        if why.experiment:
            assert callable(getattr(causes, why.experiment, None)), why.experiment


def test_numbers_come_from_the_results():
    row = ledger.by_id("ours")["finding/own_sum"]
    claim = claims.claims()[row.id]
    assert f"turns {row.fields['moved'][5]:.0%} of these digits" in row.why.text
    moved = replace(row, fields={**row.fields, "moved": [0.5] * 6})
    assert "turns 50% of these digits" in ledger.why(moved, claim, "ours").text
    # Other runs than those that the sentence is about
    of_one = replace(row, fields={**row.fields, "moved": [0.5]})
    assert ledger.why(of_one, claim, "ours") is None
    assert ledger.why(replace(row, verdict="reproduced"), claim, "ours") is None


def test_some_runs_by_quick_have_a_pentagon_as_its_why_says():
    assert (
        "some of our runs by the recipe “quick” do"
        in ledger.by_id("ours")["finding/pentagon"].why.text
    )
    table = kinds_of_run.table()
    by_quick = table[(table.source == "ours") & (table.recipe == "quick")]
    assert by_quick["pentagon shows"].sum() > 1
