"""Blocks under zero ablations, read off the weights, against `model.py` in float32.

`test_interventions` has the same in float64, with interventions of all kinds.
"""

import pytest
import torch

from carry_core import measure
from carry_core.hooks import HookAt, no_hook
from carry_core.interventions import INTACT, Ablation, Patch
from carry_core.model import activations_at
from carry_fast.blocks import PlainBlock, Zeroed
from carry_fast.prefixes import SharedPrefix, changes_of, zeroed_in
from tests.conftest import SHAPES, TRIED, drawn, random_model, tokens_of, zero_ablations
from tests.helpers.tolerances import assert_close, tolerance

pytestmark = pytest.mark.machine


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("shape", TRIED)
def test_under_every_zero_ablation_the_logits_are_those_of_the_model(shape, everywhere):
    config = SHAPES[shape]
    model, tokens = random_model(config, 1, noise=0.3), tokens_of(config, count=40)
    ablations = zero_ablations(config)
    read = None if everywhere else config.layout.answer
    intact = model(tokens, read=read)
    shared = SharedPrefix(model, ablations, read)(tokens)
    for ablation, logits in zip(ablations, shared, strict=True):
        expected = model(tokens, ablation.hook(model, read=read), read)
        assert_close(logits, expected, msg=str(ablation))
        rounding = tolerance(torch.float32, float(expected.abs().max()))
        assert ablation == INTACT or (logits - intact).abs().max() > 10 * rounding, ablation
        # Where the two largest logits are apart, the digits are equal.
        largest = expected.topk(2, -1).values
        is_clear = largest[..., 0] - largest[..., 1] > 2 * rounding
        assert torch.equal(logits.argmax(-1)[is_clear], expected.argmax(-1)[is_clear])


@pytest.mark.parametrize("shape", TRIED)
def test_attention_of_any_stream(shape):
    """The stream that enters a later layer has no tables: every position has its own rotation."""
    config = SHAPES[shape]
    block = random_model(config, 2, noise=0.3).double().blocks[-1]
    generator = torch.Generator().manual_seed(0)
    stream = torch.randn(7, config.layout.length, config.d_model, generator=generator).double()
    for query in ([*range(config.layout.length)], [*config.layout.answer], [2, 0]):
        z = PlainBlock(block, query).z(stream)
        assert_close(z, block.attention(stream, no_hook, query))


@pytest.mark.parametrize("shape", TRIED)
def test_a_watcher_of_some_points_or_all_sees_what_the_model_computes(shape):
    config = SHAPES[shape]
    model, (a, b) = random_model(config, 3, noise=0.3).double(), drawn(config)
    read, tokens = config.layout.answer, tokens_of(config)
    ablations = zero_ablations(config)[1:6]
    unwatched = measure.predict(model, a, b, ablations)
    seen = {}
    from_mid_on = config.hook_names[config.hook_names.index("blocks.0.resid_mid") : -1]
    for name in from_mid_on[::2]:
        watch = HookAt(frozenset({name}), seen.setdefault)
        answers = measure.predict(model, a, b, ablations, watch=watch)
        assert_close(seen[name], activations_at(model, tokens, [name], read)[name], msg=name)
        assert all(map(torch.equal, answers, unwatched)), name
    everything = {}
    measure.predict(model, a, b, ablations, watch=everything.setdefault)
    for name, expected in activations_at(model, tokens, config.hook_names[:-1], read).items():
        assert_close(everything[name], expected, msg=name)


def test_only_zero_ablations_of_whole_parts_need_no_hook():
    config = SHAPES["encoder"]
    z = "blocks.1.attn.z"
    last_layer = [
        (INTACT, Zeroed()),
        (Ablation(heads={(0, 1)}, mlps={0}), Zeroed()),  # changes nothing in the last layer
        (Ablation(heads={(1, 1)}, skips={1}), Zeroed(frozenset({1}), skip=True)),
        (Ablation(names={z}), Zeroed(frozenset({0, 1}))),
        (Ablation(heads={(1, 1)}, positions=(5,)), None),
        (Ablation(neurons={(1, 3)}, heads={(1, 1)}), Zeroed(frozenset({1}), neurons={3})),
        (Ablation(neurons={(1, 3)}, mlps={1}), Zeroed(mlp=True, neurons={3})),
        (Ablation(names={"blocks.1.mlp.post"}), Zeroed(neurons=set(range(config.d_ff)))),
        (Ablation(neurons={(1, 3)}, positions=(5,)), None),
        (Ablation(names={"blocks.1.resid_mid"}), None),
        (Patch(heads={(1, 1)}, source=(2, 6)), None),
        (Ablation(mlps={1}) | Patch(heads={(0, 1)}, source=(2, 6)), None),
    ]
    for intervention, parts in last_layer:
        changes = {}
        for name, change in changes_of(intervention, config).items():
            if name.startswith("blocks.1."):
                changes[name] = change
        assert zeroed_in(1, changes, intervention, config) == parts, intervention
