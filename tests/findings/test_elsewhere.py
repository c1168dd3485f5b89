"""The abstract's claim in its two parts, run by run and group by group."""

import pandas as pd
import pytest

from carry_core.model import ModelConfig
from carry_paper.findings import elsewhere, heads, interchange_maps, typology
from carry_paper.findings.base import MAIN, N3
from carry_paper.findings.evidence import Evidence
from carry_paper.ledger import ledger, verdicts
from tests.conftest import random_model
from tests.helpers.measured import measured


def test_the_attention_is_asked_of_each_run_of_each_group(monkeypatch):
    accuracies = {MAIN: [0.9, 0.85, 0.7], N3: [0.9, 0.5]}
    monkeypatch.setattr(interchange_maps, "load", lambda source, group: group)
    monkeypatch.setattr(
        typology,
        "who_decides",
        lambda group: pd.DataFrame({"heads together": accuracies.get(group, [1.0])}),
    )
    shows = measured("finding/elsewhere_attention", Evidence("ours")).shows
    assert [shows[MAIN, run] for run in range(3)] == [True, True, False]
    assert [shows[N3, run] for run in range(2)] == [True, False]


def test_the_final_mlp_is_ablated_whole_and_in_part(monkeypatch):
    monkeypatch.setattr(elsewhere, "SUMS", 200)
    model = random_model(ModelConfig(d_model=16, d_ff=12), 2, noise=0.5)
    fields = elsewhere.final_mlp(model)
    assert fields["value"] == max(
        fields["without_the_final_MLP"], fields["without_its_carry_neurons"]
    )
    assert fields["without_the_final_MLP"] < heads.CANNOT_CARRY_CORRELATION
    model.blocks[1].down.weight.zero_()
    model.blocks[1].down.bias.zero_()
    without = elsewhere.final_mlp(model)["without_the_final_MLP"]
    assert without == pytest.approx(fields["without_the_final_MLP"])


@pytest.mark.parametrize("source", ["ours", "author"])
def test_parts_of_a_sentence_about_groups_are_shown_and_their_runs_counted(source):
    for name in ("finding/elsewhere_attention", "finding/elsewhere_mlp"):
        row = ledger.by_id(source)[name]
        assert row.verdict == verdicts.NO_VERDICT
        assert row.sensitivity == {}  # no bar hangs on another
        counts = row.detail.rpartition("By group: ")[2]
        assert "of 6 of n2_s0.3_w0.2, " in counts
        n_in_groups = [int(part.split()[2]) for part in counts.split(", ")]
        assert sum(n_in_groups) == row.shown[1] == len(row.runs)
