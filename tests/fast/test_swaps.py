"""Swaps between two sums against the core's `Patch`, for plain models and for changed ones."""

import pytest
import torch

from carry_core import measure, sums
from carry_core.errors import BadInput
from carry_core.interventions import Patch
from carry_core.pairs import Contrast, sample_pairs
from carry_core.sums import Layout
from carry_fast.swaps import (
    PatchedPasses,
    RowSwaps,
    components,
    swaps_between,
)
from tests.conftest import random_model
from tests.core.test_promises import CHANGES, SMALL, TWO_CHANGES

pytestmark = pytest.mark.machine


def pairs_for(config, variable, column, count=12):
    """Return pairs in which a digit of the model's answer may differ; four columns are padded."""
    n_digits = min(config.width, 3)
    generator = torch.Generator().manual_seed(0)
    contrast = Contrast(variable, column - config.width + n_digits)
    return sample_pairs(contrast, count, generator, Layout(n_digits, config.causal))


def patch_of(component, position):
    """Return a swap as the core's `Patch`."""
    name, _, head = component.partition(":")
    if not head:
        return Patch(names={name}, positions=(position,))
    return Patch(heads={(int(name.split(".")[1]), int(head))}, positions=(position,))


def patched_answer(model, patch, base, source):
    """Return the answer to the sums `base` with a part as for the sums `source`."""
    layout = model.config.layout
    logits = model(sums.encode(*base, layout), patch.hook(model, tuple(source)))
    return logits[:, list(layout.answer)].argmax(-1)


@pytest.mark.slow
@pytest.mark.parametrize("config", ["decoder"], indirect=True)
def test_a_swap_is_the_core_s_patch_of_one_part_at_one_position(model):
    """Up, the carry into a sum's leftmost column; down, the digit sum of its last one."""
    config = model.config
    leftmost = config.width - min(config.width, 3)
    for base, variable, column in ((0, "carry_in", leftmost), (1, "digit_sum", config.width - 1)):
        pairs = pairs_for(config, variable, column)
        swaps, by_hooks = swaps_between(model, pairs), PatchedPasses(model, pairs)
        assert type(swaps) is RowSwaps
        assert torch.equal(swaps.answers[base], by_hooks.answers[base])
        for component in components(config):
            for position in {column, config.width + 1, config.layout.answer[column]}:
                patch = patch_of(component, position)
                expected = patched_answer(model, patch, pairs[base], pairs[1 - base])
                for engine in (swaps, by_hooks):
                    answer = engine.swapped(component, position, base)
                    assert torch.equal(answer, expected), (type(engine), component, position)


def test_a_swap_of_neurons_is_the_core_s_patch_of_them(model):
    config = model.config
    pairs = pairs_for(config, "digit_sum", config.width - 1)
    last, position = config.layers - 1, config.layout.answer[-1]
    for step in (1, 2, 5):
        neurons = torch.arange(config.d_ff) % step == 0
        patch = Patch(neurons={(last, int(i)) for i in neurons.nonzero()}, positions=(position,))
        for engine in (RowSwaps(model, pairs), PatchedPasses(model, pairs)):
            expected = patched_answer(model, patch, pairs[1], pairs[0])
            assert torch.equal(engine.swapped_neurons(neurons, position, 1), expected)


@pytest.mark.parametrize("change", TWO_CHANGES)
def test_swaps_in_a_changed_model_are_those_of_the_changed_model(change):
    """Hooks of PyTorch, replaced methods, wrappers, subclasses: all that `is_plain` notices."""
    model = random_model(SMALL, 3, noise=0.5)
    pairs = pairs_for(SMALL, "carry_in", 0, 100)
    before = swaps_between(model, pairs)
    CHANGES[change](model)
    swaps = swaps_between(model, pairs)
    assert type(swaps) is PatchedPasses
    position, neurons = SMALL.layout.answer[0], torch.arange(SMALL.d_ff) < 6
    for component in ("blocks.0.resid_post", "blocks.1.attn.z:0", "blocks.1.mlp_out"):
        expected = patched_answer(model, patch_of(component, position), pairs[0], pairs[1])
        assert torch.equal(swaps.swapped(component, position, 0), expected)
    patch = Patch(neurons={(1, i) for i in range(6)}, positions=(position,))
    expected = patched_answer(model, patch, pairs[0], pairs[1])
    assert torch.equal(swaps.swapped_neurons(neurons, position, 0), expected)
    assert not torch.equal(swaps.answers[0], before.answers[0])


@pytest.mark.parametrize("engine", ["fast", "plain"])
@pytest.mark.parametrize("change", [None, "subclass"])
def test_digits_with_swapped_heads_are_those_of_patches(change, engine, monkeypatch):
    """From shared passes if the model is plain, and else from whole ones."""
    monkeypatch.setenv("CARRY_ENGINE", engine)
    model = random_model(SMALL, 3, noise=0.5)
    if change is not None:
        CHANGES[change](model)
    n_changed = 0
    for column in range(SMALL.width - 1):
        pairs, position = pairs_for(SMALL, "carry_in", column, 60), SMALL.layout.answer[column]
        digits = measure._digits_with_swapped_heads(model, pairs, position)
        assert digits.shape == (2, SMALL.heads, 60)
        intact = PatchedPasses(model, pairs).answers
        for base in (0, 1):
            for head in range(SMALL.heads):
                patch = patch_of(f"blocks.{SMALL.layers - 1}.attn.z:{head}", position)
                expected = patched_answer(model, patch, pairs[base], pairs[1 - base])
                assert torch.equal(digits[base, head], expected[:, column])
                n_changed += int((digits[base, head] != intact[base][:, column]).sum())
    assert n_changed


@pytest.mark.parametrize("way", [RowSwaps, PatchedPasses])
@pytest.mark.parametrize(
    ("component", "position", "base"),
    [
        ("blocks.2.attn_out", 4, 0),
        ("blocks.1.attn.z:2", 4, 0),
        ("blocks.1.attn_out", 7, 0),
    ],
)
def test_a_swap_that_does_not_exist_is_refused(way, component, position, base):
    """A head beyond the last would else be swapped nowhere, and no answer would change."""
    swaps = way(random_model(SMALL, 3), pairs_for(SMALL, "digit_sum", 1))
    with pytest.raises(BadInput, match="expected"):
        swaps.swapped(component, position, base)
