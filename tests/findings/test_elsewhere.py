"""The abstract's claim, on planted groups."""

import pandas as pd
import pytest

from carry_core.errors import BadInput
from carry_core.model import ModelConfig
from carry_paper.findings import elsewhere, heads, interchange_maps, typology
from carry_paper.findings.base import MAIN, N3
from carry_paper.findings.elsewhere import FinalMlp
from carry_paper.findings.evidence import Evidence
from tests.conftest import random_model
from tests.helpers.measured import measured


@pytest.fixture
def planted(monkeypatch):
    """Evidence of groups, given the attention and the final MLP of each of their runs."""

    def plant(runs: dict[str, list[tuple[float, FinalMlp]]]) -> Evidence:
        def parts(group: str) -> pd.DataFrame:
            return pd.DataFrame({"heads together": [attention for attention, _ in runs[group]]})

        monkeypatch.setattr(elsewhere, "HYPERPARAMETERS", tuple(runs))
        monkeypatch.setattr(interchange_maps, "load", lambda source, group: group)
        monkeypatch.setattr(typology, "who_decides", parts)
        monkeypatch.setattr(
            Evidence,
            "each",
            lambda self, group, function: {run: mlp for run, (_, mlp) in enumerate(runs[group])},
        )
        return Evidence("ours")

    return plant


def test_a_group_shows_it_if_two_thirds_of_its_runs_do(planted):
    dissected, whole, neither = FinalMlp(0.5, 0.95), FinalMlp(0.95, 0.5), FinalMlp(0.5, 0.5)
    runs = {
        MAIN: [(0.9, dissected), (0.85, whole), (0.7, whole)],
        N3: [(0.9, whole), (0.9, neither), (0.7, dissected)],
    }
    measurement = measured("beyond/elsewhere", planted(runs))
    assert measurement.runs == pytest.approx({MAIN: 2 / 3, N3: 1 / 3})
    assert measurement.shows == {MAIN: True, N3: False}
    assert measurement.fields[MAIN]["runs"] == 3


def test_runs_without_a_stored_map_do_not_count(planted, monkeypatch):
    evidence = planted({MAIN: [(0.9, FinalMlp(1.0, 1.0))] * 2})
    maps = pd.DataFrame({"heads together": [0.9]})
    monkeypatch.setattr(typology, "who_decides", lambda stored: maps)
    assert elsewhere.elsewhere(evidence).runs.tolist() == [1]
    maps.index = [7]
    with pytest.raises(BadInput, match="no stored map of its runs: run `carry interchange"):
        elsewhere.elsewhere(evidence)


def test_the_final_mlp_is_ablated_whole_and_in_part(monkeypatch):
    monkeypatch.setattr(elsewhere, "SUMS", 200)
    model = random_model(ModelConfig(d_model=16, d_ff=12), 2, noise=0.5)
    without = elsewhere.final_mlp(model)
    model.blocks[1].down.weight.zero_()
    model.blocks[1].down.bias.zero_()
    assert without.without_it < heads.CANNOT_CARRY_CORRELATION
    assert elsewhere.final_mlp(model).without_it == pytest.approx(without.without_it)
