"""Ablation, mean ablation and patching by brute force; the shared prefix against whole passes."""

import re
import textwrap
from dataclasses import replace

import pytest
import torch

from carry_core import interventions, measure, sums
from carry_core.errors import BadInput
from carry_core.hooks import HookAt
from carry_core.interventions import INTACT, Ablation, Combined, Intervention, MeanAblation, Patch
from carry_core.model import ModelConfig, Transformer, activations_at
from carry_fast.blocks import PlainBlock
from carry_fast.prefixes import SharedPrefix
from carry_paper.findings import heads
from tests.conftest import drawn, tokens_of
from tests.helpers.tolerances import assert_close

pytestmark = pytest.mark.machine


def everything(config: ModelConfig, kind: type, positions: tuple[int, ...] | None = None) -> list:
    """An intervention of one kind on each part, and on some together."""
    last = config.layers - 1
    parts = [
        {"heads": {(0, 1), (last, 1)}},
        {"mlps": {last}},
        {"neurons": {(last, 1), (0, 3)}},
        {"skips": {last}},
        {"patterns": {(last, 1)}},
        {"q": {(last, 1)}},
        {"k": {(last, 0)}, "v": {(last, 1), (0, 0)}},
        {"resid": {last}},
        {"names": {"embed"}},
        {"names": {f"blocks.{last}.resid_mid"}},
        {"names": {f"blocks.{last}.attn.{point}" for point in "qkv"}},
        {"heads": {(last, 0)}, "patterns": {(0, 1)}, "mlps": {0}},
    ]
    return [kind(**part, positions=positions) for part in parts]


def by_hand(model, tokens, intervention, value):
    """Logits of a full pass in which `value(name, x)` overwrites each named part."""

    def hook(name, x):
        layer, _, point = name.removeprefix("blocks.").partition(".")
        positions = slice(None) if intervention.positions is None else list(intervention.positions)
        new, changed = x.clone(), value(name, x)
        parts = {"attn.z": intervention.heads, "mlp.post": intervention.neurons}
        parts |= {f"attn.{kind}": getattr(intervention, kind) for kind in "qkv"}
        for l, i in parts.get(point, ()):
            if int(layer) == l:
                new[:, positions, i] = changed[:, positions, i]
        for l, i in intervention.patterns if point == "attn.pattern" else []:
            if int(layer) == l:
                new[:, i, positions] = changed[:, i, positions]
        for field, part_point in (
            ("mlps", "mlp_out"),
            ("skips", "attn.skip"),
            ("resid", "resid_pre"),
        ):
            if point == part_point and int(layer) in getattr(intervention, field):
                new[:, positions] = changed[:, positions]
        if name in intervention.names:
            new[:, positions] = changed[:, positions]
        return new

    return model(tokens, hook)


@pytest.mark.parametrize("positions", [None, (1, 6)])
def test_each_kind_equals_a_pass_overwritten_by_hand(config, model, positions):
    tokens, source = tokens_of(config), drawn(config, seed=5)
    _, cache = model.run_with_cache(sums.encode(*source, config.layout))
    values = {
        Ablation: lambda name, x: torch.zeros_like(x),
        MeanAblation: lambda name, x: cache[name].mean(0, keepdim=True).expand_as(x),
        Patch: lambda name, x: cache[name],
    }
    for kind, value in values.items():
        for intervention in everything(config, kind, positions):
            expected = by_hand(model, tokens, intervention, value)
            hook = intervention.hook(model, source)
            assert_close(model(tokens, hook), expected, msg=str(intervention))
            assert not torch.equal(expected, model(tokens)), str(intervention)
    with pytest.raises(BadInput, match=rf"shape \[{len(tokens)}, .* expected \[3, .* or one a row"):
        model(tokens[:3], Patch(mlps={0}).hook(model, source))


def test_reading_fewer_positions_gives_the_same_logits(config, model):
    tokens, source, read = (
        tokens_of(config),
        drawn(config, seed=5),
        list(config.layout.loss_positions),
    )
    for kind in (Ablation, MeanAblation, Patch):
        for intervention in (INTACT, *everything(config, kind, tuple(read[:2]))):
            expected = model(tokens, intervention.hook(model, source))[:, read]
            logits = model(tokens, intervention.hook(model, source, read), read)
            assert_close(logits, expected, msg=str(intervention))


@pytest.mark.parametrize("kind", [Ablation, MeanAblation])
def test_a_combination_does_the_one_then_the_other_and_gives_its_source_to_patches_alone(
    config, model, kind, monkeypatch
):
    monkeypatch.setattr("carry_core.interventions.REFERENCE_SUMS", 200)
    tokens, last, source = tokens_of(config), config.layers - 1, drawn(config, seed=5)
    patch, second = Patch(heads={(last, 0), (last, 1)}), kind(heads={(last, 1)})
    first, then = patch.hook(model, source), second.hook(model)  # a mean is over its default set
    expected = model(tokens, lambda name, x: then(name, first(name, x)))
    assert torch.equal(model(tokens, (patch | second).hook(model, source)), expected)


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_shared_prefix_gives_what_separate_passes_give(config, model, everywhere):
    tokens, read = tokens_of(config), None if everywhere else list(config.layout.loss_positions)
    source, cache = drawn(config, seed=5), {}
    interventions = [
        INTACT,
        Ablation(mlps={0}),
        Ablation(skips={0}),
        Patch(heads={(0, 0)}, source=(2, 6)) | Ablation(mlps={0}),
    ]
    interventions += [i for kind in (Ablation, MeanAblation) for i in everything(config, kind)]
    interventions += [replace(patch, source=(7, 5)) for patch in everything(config, Patch)]
    name = f"blocks.{config.layers - 1}.resid_mid"
    # patches have their own
    sources = [source if isinstance(i, MeanAblation) else None for i in interventions]
    watch = HookAt(frozenset({name}), cache.setdefault)
    shared = SharedPrefix(model, interventions, read, watch, sources)
    for intervention, reference, logits in zip(interventions, sources, shared(tokens), strict=True):
        alone = model(tokens, intervention.hook(model, reference, read), read)
        assert_close(logits, alone, msg=str(intervention))
    assert_close(cache[name], activations_at(model, tokens, [name], read)[name])


def test_what_interventions_have_in_common_is_computed_once(monkeypatch):
    layers, after = [], PlainBlock.after
    monkeypatch.setattr(
        PlainBlock,
        "after",
        lambda self, *args: layers.append(int(self.block.prefix[-1])) or after(self, *args),
    )
    model = Transformer(ModelConfig(layers=3, width=2, d_model=16, d_ff=8))
    SharedPrefix(model, [INTACT, *heads.LAYER_1_AND_A_LAST_HEAD])(tokens_of(model.config))
    assert sorted(layers) == [0, 1, 1, 2, 2, 2]


def test_as_data():
    ablation = Ablation(heads={(1, 0)}, mlps={1}, neurons={(1, 17)})
    assert len({ablation, Ablation(heads={(1, 0)}, mlps={1}, neurons={(1, 17)})}) == 1
    assert (
        ablation.to_json()
        == '{"kind": "Ablation", "heads": [[1, 0]], "mlps": [1], "neurons": [[1, 17]]}'
    )
    assert ablation | Ablation(skips={0}) == Ablation({(1, 0)}, {1}, {(1, 17)}, {0})
    patch = Patch(
        heads={(1, 0)}, names={"blocks.0.hook_resid_mid"}, positions=(8, 7), source=(152, 261)
    )
    both = patch | MeanAblation(patterns={(1, 1)})
    assert isinstance(both, Combined)
    by_head = Ablation(q={(1, 0)}) | MeanAblation(k={(0, 1)}, v={(0, 1)})
    assert str(by_head) == "without q 1:0; mean of k 0:1, v 0:1"
    assert str(Ablation(mlps={*range(8)})).endswith("MLP 6, MLP 7")
    assert str(Ablation(mlps={*range(9)})) == "without 9 mlps"
    for intervention in (INTACT, ablation, patch, both, by_head):
        assert Ablation.from_json(intervention.to_json()) == intervention
    assert ablation != MeanAblation(heads={(1, 0)}, mlps={1}, neurons={(1, 17)})
    assert [str(i) for i in (INTACT, ablation, both)] == [
        "intact",
        "without head 1:0, MLP 1, neuron 1:17",
        "patched head 1:0, blocks.0.resid_mid at 7, 8 from 152+261; mean of pattern 1:1",
    ]


@pytest.mark.parametrize("text", ["1", '{"kind": "x"}', '{"zz": [1]}', "[1", "[" * 99_999], ids=len)
def test_text_that_is_no_intervention_is_refused_in_one_line(text):
    with pytest.raises(BadInput, match="is not an intervention"):
        Ablation.from_json(text)


NONE_SUCH = [
    Ablation(heads={(1, 2)}),
    Patch(mlps={2}, source=(1, 2)),
    Ablation(neurons={(0, 128)}),
    Ablation(names={"blocks.1.attn.hook_zz"}),
    Ablation(mlps={1}, positions=(10,)),
    Patch(mlps={1}),  # from no sum
]


@pytest.mark.parametrize("intervention", NONE_SUCH, ids=str)
def test_parts_that_do_not_exist_are_named(intervention):
    with pytest.raises(BadInput, match="expected"):
        intervention.hook(Transformer(ModelConfig(d_model=16)))


def test_combined_interventions_that_share_a_part_are_not_taken_for_one(model, config):
    """Both end with the same change of one hook point; before it, one of them has another."""
    tokens, last = tokens_of(config), config.layers - 1
    later = Ablation(heads={(last, 1)})
    earlier = Ablation(heads={(last, 0)}, positions=config.layout.answer)
    both = [later, earlier | later, later | earlier]
    shared = SharedPrefix(model, both, config.layout.answer)(tokens)
    expected = [model(tokens, i.hook(model))[:, config.layout.answer] for i in both]
    for actual, logits in zip(shared, expected, strict=True):
        assert_close(actual, logits)
    assert not torch.equal(expected[0], expected[1])


def test_a_patch_in_a_combined_one_keeps_its_own_source(model, config):
    tokens, last = tokens_of(config), config.layers - 1
    own, others = Patch(mlps={last}, source=(1, 2)), Patch(heads={(0, 0)})
    cache = (torch.tensor([3]), torch.tensor([4]))
    actual = model(tokens, Combined((own, others)).hook(model, cache))
    given = Patch(heads={(0, 0)}, source=(3, 4))
    assert_close(actual, model(tokens, Combined((own, given)).hook(model)))
    swapped = Patch(mlps={last}, source=(3, 4))
    others_source = model(tokens, Combined((swapped, given)).hook(model))
    assert (actual - others_source).abs().max() > 0.01


def test_a_kind_of_one_s_own_is_written_as_the_module_says(model, config):
    (example,) = re.findall(r"\n    class .*?(?=\n\S)", interventions.__doc__, re.DOTALL)
    assert len([line for line in example.splitlines() if line.strip()]) <= 6
    names = {"Intervention": Intervention, "HookAt": HookAt}
    exec(textwrap.dedent(example), names)
    doubled = names["Doubled"](mlps={0})
    tokens, numbers = tokens_of(config), drawn(config)
    expected = model.run_with_hooks(tokens, {"blocks.0.mlp_out": lambda x: 2 * x})
    assert torch.equal(model(tokens, doubled.hook(model)), expected)
    (answers,) = measure.predict(model, *numbers, [doubled])
    assert torch.equal(answers, expected[:, config.layout.answer].argmax(-1).to(torch.int8))
    assert list(measure.accuracy(model, *numbers, doubled).ablation.unique()) == ["doubled MLP 0"]
    combined = (doubled | Ablation(mlps={config.layers - 1})).hook(model)
    assert not torch.equal(model(tokens, combined), expected)


def test_a_patch_has_a_value_for_one_sum_or_for_each(model, config):
    tokens, (a, b) = tokens_of(config, count=5), drawn(config, count=3)
    with pytest.raises(BadInput, match=r"has shape \[3, .* expected \[5, .* one sum or one a row"):
        model(tokens, Patch(heads={(0, 0)}).hook(model, (a, b)))
