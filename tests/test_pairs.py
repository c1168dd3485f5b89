"""Pairs of ablations at three layers, and a carry known a layer early: by hand, and on planted runs (App. C)."""

import copy

import pytest
import torch

from carry_core import carries, measure, sums
from carry_core.errors import BadInput
from carry_core.findings import geometry, heads, survey
from carry_core.findings.base import N3, S01
from carry_core.findings.survey import Evidence, Survey
from carry_core.interventions import INTACT, Ablation
from carry_core.measure import ClassAccuracies
from carry_core.model import ModelConfig, Transformer

ARRIVES = carries.carry_in(3)


def cells(carry: float, right: float, off: float, whole: float) -> ClassAccuracies:
    """So many digits right where a one arrives; elsewhere so many right and so many one too large."""
    accuracy = torch.where(ARRIVES, torch.tensor(carry), torch.tensor(right))
    corrected = torch.where(ARRIVES, torch.tensor(1 - carry), torch.tensor(off))
    return ClassAccuracies(accuracy, corrected, whole)


def test_the_pairs_are_a_layers_attention_with_each_head_of_the_next(model: Transformer):
    config = model.config
    if config.layers < 2:
        return
    last, d_head = config.layers - 1, config.d_head
    found = heads.head_pairs(config)
    assert len(found) == config.heads
    a, b = sums.long_sums(40, config.width, torch.Generator().manual_seed(0))
    tokens = sums.encode(a, b, config.layout)
    for head, pair in enumerate(found):
        edited = copy.deepcopy(model)
        with torch.no_grad():
            edited.blocks[last - 1].o.weight.zero_()
            edited.blocks[last].o.weight[:, head * d_head : (head + 1) * d_head] = 0
        torch.testing.assert_close(model(tokens, pair.hook(model)), edited(tokens), rtol=0, atol=1e-12)


def test_the_heads_of_several_last_layers():
    model = Transformer(ModelConfig(layers=3, d_model=16, d_ff=8))
    found = measure.last_heads(model, 2)
    assert [str(head) for head in found] == [f"without head {name}" for name in ("1:0", "1:1", "2:0", "2:1")]
    assert measure.last_heads(model) == found[2:]
    assert measure.last_heads(model.config, 2) == found
    assert measure.final_mlp(model) == measure.final_mlp(model.config) == Ablation(mlps={2})
    with pytest.raises(BadInput, match="at least 4 layers"):
        measure.last_heads(model, 4)


@pytest.fixture
def surveyed(monkeypatch):
    def plant(*runs: tuple[ClassAccuracies, ClassAccuracies]) -> Evidence:
        intact = cells(1.0, 1.0, 0.0, 1.0)
        found = {
            run: Survey({INTACT: intact, **dict(zip(heads.PAIRS, both, strict=True))}) for run, both in enumerate(runs)
        }
        monkeypatch.setattr(Evidence, "surveys", lambda self, group: {N3: found}[group])
        return Evidence("ours")

    return plant


def test_three_layer_runs_that_show_the_pattern(surveyed):
    idle, shows = cells(1.0, 0.99, 0.01, 0.97), cells(1.0, 0.4, 0.6, 0.3)
    wrong_carry, otherwise_wrong = cells(0.9, 0.4, 0.6, 0.3), cells(1.0, 0.4, 0.5, 0.3)
    found = heads.three_layers_pairs(
        surveyed((idle, shows), (shows, idle), (idle, idle), (wrong_carry, idle), (idle, otherwise_wrong))
    )
    assert found.shows.tolist() == [True, True, False, False, False]
    assert found.value.tolist() == pytest.approx([0.7, 0.7, 0.03, 0.7, 0.7])


@pytest.fixture
def streams(monkeypatch):
    """Runs whose stream after layer 0 knows at the given positions whether a one arrives, beside noise."""

    def plant(*known: set[int]) -> Evidence:
        models = {run: Transformer(ModelConfig(d_model=16, d_ff=8)).eval() for run in range(len(known))}
        monkeypatch.setattr(survey, "SAMPLE", 2_000)
        monkeypatch.setattr(Evidence, "models", lambda self, group: {S01: models}[group])
        names = {id(model): positions for model, positions in zip(models.values(), known, strict=True)}

        def stream(model, a, b, sites, ablation=INTACT):
            assert (list(sites), ablation) == (["blocks.0.resid_post"], INTACT)
            generator = torch.Generator().manual_seed(0)
            x = torch.randn(len(a), 10, 16, generator=generator)
            arrives = ARRIVES[carries.classify(a, b)]
            for position in names[id(model)]:
                x[:, position, 3] += 12.0 * arrives[:, position % 7]
            return {sites[0]: x}

        monkeypatch.setattr(heads.measure, "activations", stream)
        pattern = torch.zeros(2, 2, 10, 10)
        pattern[0, 1, 7, [1, 5]] = 0.3
        monkeypatch.setattr(geometry, "mean_attention", lambda run, model: pattern)
        return Evidence("ours")

    return plant


def test_a_carry_that_layer_0_knows(streams):
    found = geometry.carry_in_layer0(streams({7, 8}, {7}, {0, 1}))
    assert found.shows.tolist() == [True, False, False]
    assert found.value[0] > 0.99
    assert all(0.5 <= found.value[run] < 0.7 for run in (1, 2))
