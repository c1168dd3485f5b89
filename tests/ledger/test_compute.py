"""The ledger judges a measurement on runs by the paper's protocol, and beside its whole table."""

from dataclasses import replace

import numpy as np
import pytest

from carry_core.errors import BadInput
from carry_paper.findings.base import FINETUNED, MAIN, PAD6
from carry_paper.ledger import claims, compute, registry
from carry_paper.ledger.entries import Entry, Measurement
from carry_paper.ledger.results import Row

QUICK = "quick, 60 epochs"


@pytest.fixture
def ledger(monkeypatch):
    """A ledger of ours whose groups were trained as a test says."""
    ledger = compute.Ledger("ours", "data/")
    monkeypatch.setattr(ledger.evidence, "training", lambda group: ledger.trainings.get(group, ""))
    ledger.trainings = {}
    return ledger


def test_a_row_that_depends_on_the_recipe_waits_for_the_papers(ledger):
    claim = claims.claims()["finding/finetune_small_change"]
    measurement = Measurement({0: 1.0, 1: 3.0}, 2.0, shows={0: True, 1: False})
    assert claim.recipe_sensitive
    assert ledger._by_the_papers_protocol(claim, measurement) == measurement
    ledger.trainings = {FINETUNED: QUICK}
    with pytest.raises(BadInput, match=f"depends on the recipe.*{QUICK}"):
        ledger._by_the_papers_protocol(claim, measurement)
    insensitive = replace(claim, recipe_sensitive=False)
    assert ledger._by_the_papers_protocol(insensitive, measurement) == measurement


def test_of_several_groups_those_by_the_papers_protocol_are_judged(ledger):
    claim = claims.claims()["finding/no_grokking"]
    keys = [(MAIN, 0), (MAIN, 1), (PAD6, 0)]
    measurement = Measurement(
        runs=dict(zip(keys, [1.0, 3.0, 50.0], strict=True)),
        value=18.0,
        shows=dict(zip(keys, [True, False, True], strict=True)),
        shows_at={"bar=1": dict(zip(keys, [True, True, True], strict=True))},
        fields={key: {"epoch": 5} for key in keys},
    )
    ledger.trainings = {PAD6: QUICK}
    judged = ledger._by_the_papers_protocol(claim, measurement)
    assert list(judged.runs) == list(judged.shows) == list(judged.fields) == keys[:2]
    assert judged.shows_at == {"bar=1": {keys[0]: True, keys[1]: True}}
    assert judged.value == 2.0


def test_a_table_is_compared_over_all_its_cells(ledger, monkeypatch):
    """A shift in one of two cells is seen in both, since the runs of both cells are compared."""
    cells = [claim for claim in claims.claims().values() if claim.table == "tab1/final_mlp"][:2]
    monkeypatch.setattr(compute.claims, "claims", lambda: {claim.id: claim for claim in cells})
    generator = np.random.default_rng(0)
    author_runs = generator.normal(0.5, 0.01, (2, 6))
    ours = author_runs + np.array([[0.0], [0.4]])
    for claim, of_ours, of_theirs in zip(cells, ours, author_runs, strict=True):
        runs = dict(enumerate(of_ours.tolist()))
        entry = Entry(lambda evidence, runs=runs: Measurement(runs, 0.5), None)
        monkeypatch.setitem(registry.ROWS, claim.id, entry)
        row = Row(claim.id, claim.where, claim.paper, runs=of_theirs.tolist())
        ledger.author_rows[claim.id] = row
    test = ledger.table_test("tab1/final_mlp")
    assert (test.n_ours, test.n_theirs, test.cells) == (6, 6, 2)
    assert test.told_apart


@pytest.mark.parametrize("quantifier", ["all", "most"])
def test_the_verdict_at_other_bars_is_kept_where_it_moves(quantifier):
    claim = replace(claims.claims()["finding/staircase"], quantifier=quantifier)
    shows = dict.fromkeys(range(6), True)
    at_other_bars = {
        "attention=0.75": dict.fromkeys(range(6), False),
        "attention=0.25": dict.fromkeys(range(6), True),
    }
    measurement = Measurement(
        dict.fromkeys(range(6), 0.8), 0.8, shows=shows, shows_at=at_other_bars
    )
    moved = compute.sensitivity(claim, "ours", measurement, "reproduced")
    assert moved == {"attention=0.75": "differs"}


def test_runs_that_cannot_say_do_not_count():
    claim = claims.claims()["finding/kink"]
    shows = {0: True, 1: None, 2: True, 3: True, 4: None}
    judged = compute.judge_shown(claim, "ours", shows)
    assert (judged.verdict, judged.detail) == ("reproduced", "3 of 3 runs show it.")
    nobody = compute.judge_shown(claim, "ours", dict.fromkeys(range(6)))
    assert nobody.verdict == "can't tell"
