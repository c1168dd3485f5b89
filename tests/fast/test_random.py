"""The engine in float32 against `model.py` in float64: random models, interventions, positions.

Each example is a seed, from which everything else is drawn. `make test` tries a few that are always
the same; `make fuzz` draws new ones.
"""

import copy
import os
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from carry_core.interventions import INTACT, PARTS, Ablation, Combined, MeanAblation, Patch
from carry_core.model import ModelConfig, Transformer
from carry_core.sums import encode, long_sums
from carry_fast import engine
from carry_fast.prefixes import SharedPrefix
from tests.helpers.tolerances import assert_close

EXAMPLES = settings(max_examples=int(os.environ.get("FUZZ_EXAMPLES", "8")), deadline=None)

pytestmark = pytest.mark.machine


def random_shape(draw: random.Random) -> ModelConfig:
    """A shape, half of them with the widths that C++ has room for."""
    layers, width, causal = draw.choice([1, 2, 2, 3]), draw.randint(1, 10), draw.random() < 0.3
    if draw.random() < 0.5:
        return ModelConfig(layers, width, causal, d_ff=16 * draw.randint(1, 64))
    heads = draw.choice([1, 2, 4])
    d_model = 2 * heads * draw.randint(1, 8)
    return ModelConfig(layers, width, causal, d_model, heads, d_ff=draw.randint(1, 60))


def model_of(config: ModelConfig, draw: random.Random) -> Transformer:
    """A model in float64 whose attention is sharp or flat, and whose norms are not all alike."""
    torch.manual_seed(draw.randrange(2**31))
    model, noise = Transformer(config).double().requires_grad_(False), draw.choice([0.01, 0.1, 0.3])
    for parameter in model.parameters():
        parameter += noise * torch.randn_like(parameter)
        parameter.copy_(parameter.float())  # float32 holds it exactly
    return model.eval()


def intervention_on(config: ModelConfig, draw: random.Random) -> Ablation:
    """An intervention of a random kind on a few random parts, at all positions or some."""
    parts: dict[str, set] = {}
    for kind in draw.sample(list(PARTS), draw.choice([1, 1, 2])):
        members = set()
        for _ in range(draw.randint(1, 3)):
            layer = draw.randrange(config.layers)
            count = config.d_ff if kind == "neurons" else config.heads
            whole = kind in ("mlps", "skips", "resid")
            members.add(layer if whole else (layer, draw.randrange(count)))
        parts[kind] = members
    positions = None
    if draw.random() < 0.4:
        length = config.layout.length
        positions = draw.sample(range(length), draw.randint(1, min(3, length)))
    kind = draw.choice([Ablation, Ablation, Ablation, MeanAblation, Patch])
    source = {}
    if kind is Patch:
        source = {"source": tuple(draw.randrange(5 * 10 ** (config.width - 1)) for _ in range(2))}
    return kind(**parts, positions=None if positions is None else tuple(positions), **source)


@EXAMPLES
@given(st.integers(0, 2**32 - 1))
def test_logits_and_activations_are_those_of_float64(seed):
    draw = random.Random(seed)
    config, n_sums = random_shape(draw), draw.choice([1, 5, 24, 31, 60])
    exact = model_of(config, draw)
    model = copy.deepcopy(exact).float()
    a, b = long_sums(n_sums, config.width, torch.Generator().manual_seed(seed))
    tokens, length = encode(a, b, config.layout), config.layout.length
    read = draw.choice([None, [*config.layout.answer]])
    if draw.random() < 0.4:
        read = [draw.randrange(length) for _ in range(draw.choice([1, 7, 40, 90]))]
    single = [intervention_on(config, draw) for _ in range(draw.randint(1, 4))]
    # The reference set of a mean that is a part of another intervention has 10,000 sums.
    quick = [INTACT, *(i for i in single if type(i) is not MeanAblation)]
    interventions = [*quick, *single, Combined(tuple(draw.sample(quick, min(2, len(quick)))))]
    sources = [(a, b) if type(i) is MeanAblation else None for i in interventions]
    with torch.no_grad():
        intact = float(exact(tokens).abs().max())
        logits_of = engine.passes(model, interventions, read, sources=sources)
        assert isinstance(logits_of, SharedPrefix)
        for intervention, logits, source in zip(
            interventions, logits_of(tokens), sources, strict=True
        ):
            hook = intervention.hook(exact, source, read)
            expected = exact(tokens, hook, read)
            scale = 4 * max(intact, float(expected.abs().max()))
            assert_close(logits, expected, scale=scale, msg=f"{config}, {read}, {intervention}")
