"""The seam between core and engines: which one measures, and that the numbers are the same."""

import re

import pandas as pd
import pytest
import torch

import carry_fast.engine
from carry_core import engine, measure
from carry_core.errors import BadInput
from carry_core.interventions import Ablation, MeanAblation, Patch
from carry_core.model import ModelConfig
from tests.conftest import SHAPES, drawn, random_model, tokens_of
from tests.helpers.tolerances import assert_close

pytestmark = pytest.mark.machine


def test_the_installed_engine_is_found_and_may_be_switched_off(monkeypatch):
    monkeypatch.delenv("CARRY_ENGINE", raising=False)
    assert engine.engine() is carry_fast.engine
    monkeypatch.setenv("CARRY_ENGINE", "fast")
    assert engine.engine() is carry_fast.engine
    monkeypatch.setenv("CARRY_ENGINE", "plain")
    assert engine.engine() is engine
    monkeypatch.setenv("CARRY_ENGINE", "warp")
    with pytest.raises(BadInput, match="^CARRY_ENGINE=warp: expected one of fast, plain.$"):
        measure.predict(random_model(SHAPES["encoder"]), [1], [2])


def test_the_core_alone_measures_by_plain_passes(monkeypatch):
    monkeypatch.setattr(engine, "_installed", dict)
    monkeypatch.delenv("CARRY_ENGINE", raising=False)
    assert engine.engine() is engine


@pytest.mark.parametrize("shape", ["encoder", "decoder"])
def test_each_engine_measures_what_the_plain_pass_does(shape, monkeypatch):
    config = SHAPES[shape]
    model, (a, b) = random_model(config, 1, noise=0.2).double(), drawn(config)
    conditions = [
        Ablation(),
        Ablation(heads={(0, 1)}),
        MeanAblation(heads={(0, 1)}),
        Patch(mlps={0}, source=(2, 6)),
    ]
    measured = []
    for name in ("plain", "fast"):
        monkeypatch.setenv("CARRY_ENGINE", name)
        measured.append(
            {
                "table": measure.accuracy(model, a, b, conditions),
                "decision head": measure.carries_moved_by_heads(model),
                "exact": measure.exact_match_without_heads(model),
                "activations": measure.activations(model, a, b, lambda point: "mlp" in point),
            }
        )
    plain, fast = measured
    pd.testing.assert_frame_equal(plain["table"], fast["table"])
    assert plain["decision head"] == fast["decision head"]
    assert plain["exact"] == fast["exact"]
    for point, x in plain["activations"].items():
        assert_close(fast["activations"][point], x, msg=point)


@pytest.mark.parametrize(
    "change",
    [
        lambda tokens: tokens[:, :1],
        lambda tokens: tokens.t().contiguous().t(),
        lambda tokens: tokens.to(torch.uint8),
        lambda tokens: tokens.float(),
        lambda tokens: tokens.to(torch.complex64),
        lambda tokens: tokens + 12,
        lambda tokens: tokens[0],
    ],
    ids=["first", "transposed", "uint8", "floats", "complex", "no tokens", "one sum"],
)
@pytest.mark.parametrize("layers", [1, 2])
def test_tokens_of_any_kind_give_what_the_model_makes_of_them(layers, change):
    model = random_model(ModelConfig(layers, width=3, causal=True), 1, noise=0.2)
    tokens, logits_of = tokens_of(model.config), carry_fast.engine.passes(model, [Ablation()])
    changed = change(tokens)
    try:
        expected = model(changed)
    except (BadInput, IndexError) as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            logits_of(changed)
    else:
        assert_close(logits_of(changed)[0], expected)


def test_an_intervention_is_prepared_once(monkeypatch):
    """A mean is over thousands of sums, and takes longer than most of what it is used for."""
    prepared, hook = [], MeanAblation.hook

    def counted(ablation, *arguments):
        prepared.append(ablation)
        return hook(ablation, *arguments)

    monkeypatch.setattr(MeanAblation, "hook", counted)
    model = random_model(ModelConfig(width=2), 1)
    carry_fast.engine.passes(model, [MeanAblation(mlps={0})])(tokens_of(model.config))
    assert len(prepared) == 1


def test_a_patch_from_another_source_is_another_change():
    """Two patches of one part share no activation if their sources differ."""
    config = SHAPES["encoder"]
    model, tokens = random_model(config, 1, noise=0.5), torch.zeros(1, config.layout.length).long()
    patch = Patch(mlps={0})
    sources = [(torch.tensor([number]), torch.tensor([number])) for number in (1, 3)]
    first, second = carry_fast.engine.passes(model, [patch] * 2, sources=sources)(tokens)
    assert not torch.equal(first, second)
    for logits, source in zip((first, second), sources, strict=True):
        assert_close(logits, model(tokens, patch.hook(model, source)))
