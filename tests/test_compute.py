"""Rows of the ledger as they are computed, the last layer part by part, and how attention is summed up."""

import json
import math
import re

import pytest
import torch

from carry_core import measure, sums
from carry_core.findings import heads
from carry_core.findings.base import DECODER, N1, N3, W0, Measurement
from carry_core.groups import GROUPS, MAIN
from carry_core.ledger import claims, compute, quantities
from carry_core.model import Transformer
from carry_core.sums import Layout


def test_whose_rows_they_are_is_what_their_measures_ask_for():
    known = claims.claims()
    for name, groups in {
        "tab5/dissected/NC/accuracy/pos7": {DECODER},
        "n2/decision_head_spread": {MAIN},
        "n2_w0/accuracy": {W0},
        "finding/biases": {N1, MAIN},
        "finding/three_layers_pairs": {N3},
        "finding/no_grokking": set(GROUPS),
        "data/sums3": set(),
    }.items():
        assert set(quantities.groups_of(name)) == groups
    nobodys = {name for name in known if not quantities.groups_of(name)}
    assert {name.split("/")[0] for name in nobodys} == {"data", "tab2", "llm", "finding", "pad6_primed"}
    assert {name for name in nobodys if name.startswith("finding/")} == {"finding/llm_heads"}


def test_masses_read_the_cells_that_they_name():
    layout = Layout()
    pattern = torch.arange(100.0).view(10, 10)  # row q, column k holds 10 q + k
    assert heads.partner_mass(pattern, layout).tolist() == [4, 15, 26, 40, 51, 62]
    assert heads.column_mass(pattern, layout).tolist() == [70 + 74, 81 + 85, 92 + 96]
    assert heads.column_mass(pattern, layout, shift=1)[:2].tolist() == [71 + 75, 82 + 86]
    assert math.isnan(heads.column_mass(pattern, layout, shift=1)[2])
    assert heads.partner_mass(pattern, Layout(causal=True)).tolist() == [40, 51, 62]
    assert heads.column_mass(pattern, Layout(causal=True)).tolist() == [60 + 64, 71 + 75, 82 + 86]


@pytest.mark.parametrize("config", ["encoder", "decoder"], indirect=True)
def test_last_layer_is_the_same_ablations_one_by_one(model: Transformer):
    width, last = model.config.width, model.config.layers - 1
    a, b = measure.sample(20, width, seed=0)
    taken = heads.ablate_last_layer(model, a, b, chosen_on=measure.sample(30, width, seed=1))
    neurons = heads.carry_neurons(model, *measure.sample(30, width, seed=1))
    parts = [*measure.last_heads(model), measure.final_mlp(model), heads.dissection(neurons, last)]
    for together, part in zip([*taken.heads, taken.mlp, taken.dissected], parts, strict=True):
        (alone,) = measure.class_accuracies(model, a, b, [part])
        assert torch.equal(together.accuracy, alone.accuracy)
        assert torch.equal(together.corrected, alone.corrected)
    assert taken.intact.exact_match == measure.class_accuracies(model, a, b)[0].exact_match


def test_the_decision_head_costs_most_whatever_sums_a_page_draws(model: Transformer):
    a, b = sums.long_sums(10_000, model.config.width, torch.Generator().manual_seed(0))
    parts = measure.class_accuracies(model, a, b, measure.last_heads(model))
    exact = [accuracies.exact_match for accuracies in parts]
    decides = measure.decision_head(model)
    assert exact[decides] == min(exact)
    assert heads.without_decision([(4, model)]) == {4: min(exact)}
    assert heads.ablate_last_layer(model, a[:50], b[:50]).decision_head == decides


def test_a_row_knows_its_runs_and_what_else_was_measured(monkeypatch):
    fields = {(N1, 0): {"cost": 0.25}, (MAIN, 3): {"cost": None}}
    found = Measurement(
        dict.fromkeys(fields, 1.0), 1.0, how="The size.", shows=dict.fromkeys(fields, True), fields=fields
    )
    monkeypatch.setattr(quantities, "find", lambda name, evidence: found)
    (row,) = compute.Ledger("ours", "finding/biases").rows()
    assert row.fields["run"] == row.keys == [f"{N1} 0", f"{MAIN} 3"]
    assert (row.fields["shows"], row.fields["cost"], row.shown, row.n) == ([True, True], [0.25, None], (2, 2), 2)
    assert row.detail.startswith("The size. 2 of 2 runs show it.")


def test_a_row_that_fails_takes_no_other_with_it(monkeypatch, tmp_path):
    def fall(evidence):
        raise KeyError("train_whole")

    monkeypatch.setitem(quantities.SPECIAL, "data/sums4", quantities.Entry(fall))
    ledger = compute.Ledger("ours", "data/")
    journal = tmp_path / "ledger" / "ours.jsonl"
    rows = {row.id: row for row in ledger.rows(journal)}
    assert ledger.failed == ["data/sums4"]
    assert rows["data/sums4"].verdict == "not run"
    assert "KeyError: 'train_whole'" in rows["data/sums4"].detail
    assert re.search(r"\(\w+\.py:\d+\)", rows["data/sums4"].detail)
    assert rows["data/sums3"].verdict == "reproduced"
    assert [json.loads(line)["id"] for line in journal.read_text().splitlines()] == list(rows)
