"""The core against a forward pass of its own in float64, and against sums that Python adds.

Models, interventions and sums are random; `make fuzz` searches on, for MINUTES=10.
"""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from carry_core import carries, interventions, measure, sums
from carry_core.interventions import PAIRS, PARTS, Ablation, Combined, MeanAblation, Patch
from carry_core.model import ModelConfig, Transformer
from carry_core.sums import Layout
from tests.conftest import SHAPES, random_model

pytestmark = pytest.mark.slow

EXAMPLES = os.environ.get("FUZZ_EXAMPLES")  # of each test; `make fuzz` sets it
Change = Callable[[str, Tensor], Tensor]
MODELS = {name: random_model(SHAPES[name], noise=0.5) for name in ("encoder", "decoder")}
REFERENCE = 20  # sums of a mean ablation


def random_examples(strategies: Mapping[str, Any], examples: int) -> Callable[..., Any]:
    """Run a test on random examples: the same ones each time, but for those of `make fuzz`."""
    options = settings(
        max_examples=int(EXAMPLES or examples),
        derandomize=EXAMPLES is None,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    return lambda test: options(given(**strategies)(test))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------- sums


def written(number: int, width: int) -> list[int]:
    return [int(digit) for digit in f"{number:0{width}d}"[-width:]]


def pattern(a: int, b: int, width: int) -> str:
    """The carry pattern of a sum, by adding it up from the right."""
    symbols, carry = "", 0
    for x, y in zip(reversed(written(a, width)), reversed(written(b, width)), strict=True):
        symbol = "1" if x + y > 9 else "2" if x + y + carry > 9 else "0"
        symbols, carry = symbol + symbols, int(symbol != "0")
    return symbols


@random_examples({"width": st.integers(1, 7), "seed": st.integers(0, 2**32)}, 30)
def test_sums_are_written_and_classified_as_python_adds_them(width, seed):
    a, b = sums.long_sums(4, width, generator(seed))
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    for causal in (False, True):
        layout = Layout(width, causal)
        answers = [written(x + y, width) for x, y in pairs]
        operands = [[*written(x, width), 10, *written(y, width)] for x, y in pairs]
        tails = answers if causal else [[11] * width] * len(pairs)
        expected = [x + tail for x, tail in zip(operands, tails, strict=True)]
        assert sums.encode(a, b, layout).tolist() == expected
        assert sums.targets(a, b, layout).tolist() == [x + [11] * causal for x in answers]
    names = [carries.patterns(width)[i] for i in carries.classify(a, b, width).tolist()]
    assert names == [pattern(x, y, width) for x, y in pairs]


# ---------------------------------------------------------------- the model


def plain(model: Transformer, tokens: Tensor, change: Change) -> Tensor:
    """The logits at all positions in float64, and at each point what `change` makes of it."""
    config, length = model.config, tokens.shape[1]
    p = {name: weight.detach().double() for name, weight in model.state_dict().items()}

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * p[f"{name}.weight"] + p[f"{name}.bias"]

    half = torch.arange(config.d_head // 2, dtype=torch.float64)
    angle = torch.arange(length).double()[:, None] / 10_000 ** (2 * half / config.d_head)

    def turn(x: Tensor) -> Tensor:
        cosine, sine = angle.cos()[:, None], angle.sin()[:, None]
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).flatten(-2)

    resid = change("embed", p["embed.weight"][tokens] * math.sqrt(config.d_model))
    for l in range(config.layers):
        block = f"blocks.{l}"
        resid = change(f"{block}.resid_pre", resid)
        x = norm(resid, f"{block}.norm")
        heads = {n: linear(x, f"{block}.{n}").unflatten(-1, (config.heads, -1)) for n in "qkv"}
        q, k, v = (turn(change(f"{block}.attn.{n}", y)) for n, y in heads.items())
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(config.d_head)
        if config.causal:
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
        attention = change(f"{block}.attn.scores", scores).softmax(-1)
        attention = change(f"{block}.attn.pattern", attention)
        z = change(f"{block}.attn.z", torch.einsum("bhqk,bkhd->bqhd", attention, v))
        out = change(f"{block}.attn_out", linear(z.flatten(-2), f"{block}.o"))
        mid = change(f"{block}.resid_mid", change(f"{block}.attn.skip", resid) + out)
        pre = change(f"{block}.mlp.pre", linear(norm(mid, f"{block}.norm"), f"{block}.up"))
        post = change(f"{block}.mlp.post", F.relu(pre))
        out = change(f"{block}.mlp_out", linear(post, f"{block}.down"))
        resid = change(f"{block}.resid_post", change(f"{block}.mlp.skip", mid) + out)
    return change("logits", linear(norm(resid, "norm"), "unembed"))


# ---------------------------------------------------------------- interventions

LAYER, INDEX = st.sampled_from([0, 1]), st.sampled_from([0, 1])
PART = {kind: st.sets(st.tuples(LAYER, INDEX), max_size=2) for kind in PAIRS}
PART |= {kind: st.sets(LAYER, max_size=1) for kind in PARTS if kind not in PAIRS}
ONE = st.builds(
    lambda kind, parts, names, positions: kind(**parts, names=names, positions=positions),
    st.sampled_from([Ablation, MeanAblation, Patch]),
    st.fixed_dictionaries({}, optional=PART),
    st.sets(st.sampled_from(SHAPES["encoder"].hook_names), max_size=1),
    st.none() | st.sets(st.integers(0, 6), max_size=3).map(tuple),
)


@st.composite
def one_or_combined(draw: Any) -> Any:
    """One intervention, or several that are combined; patches have a source of their own."""
    parts = [draw(ONE) for _ in range(draw(st.integers(1, 3)))]
    source = st.tuples(st.integers(0, 49), st.integers(0, 50))
    parts = [replace(x, source=draw(source)) if isinstance(x, Patch) else x for x in parts]
    together = parts[0]
    for part in parts[1:]:
        together = together | part
    return together


def targets(intervention: Any) -> list[tuple[str, int | None, int]]:
    """Return for each part its point, the axis of its heads or neurons, and its index."""
    points: list[tuple[str, int | None, int]] = [(name, None, 0) for name in intervention.names]
    for kind, (_, point, axis) in PARTS.items():
        for part in getattr(intervention, kind):
            layer, i = part if kind in PAIRS else (part, 0)
            points.append((f"blocks.{layer}.{point}", axis, i))
    return points


def keeping(cache: dict[str, Tensor], average: bool) -> Change:
    """Keep what a pass computes, or its mean over the sums."""

    def change(name: str, x: Tensor) -> Tensor:
        cache[name] = x.mean(0, keepdim=True) if average else x
        return x

    return change


def by_hand(intervention: Any, model: Transformer, reference: Any) -> Change:
    """An intervention as a change of the plain pass, one part at a time."""
    parts = intervention.parts if isinstance(intervention, Combined) else (intervention,)
    if reference is None or isinstance(intervention, Combined):
        reference = sums.long_sums(REFERENCE, model.config.width, generator())
    steps = []
    for part in parts:
        cache: dict[str, Tensor] = {}
        if not isinstance(part, Ablation):
            is_mean = isinstance(part, MeanAblation)
            pair = reference if is_mean else [[x] for x in part.source]
            plain(model, sums.encode(*pair, model.config.layout), keeping(cache, is_mean))
        steps.append((part, cache))

    def change(name: str, x: Tensor) -> Tensor:
        position_axis = 2 if name.endswith(("attn.scores", "attn.pattern")) else 1
        for part, cache in steps:
            value = cache.get(name, torch.zeros_like(x)).expand_as(x)
            for point, axis, i in targets(part):
                if point == name:
                    mask = torch.ones_like(x, dtype=torch.bool)
                    if axis is not None:
                        mask &= only(x, axis % x.ndim, [i])
                    if part.positions is not None:
                        mask &= only(x, position_axis, part.positions)
                    x = torch.where(mask, value, x)
        return x

    return change


def only(x: Tensor, axis: int, indices: Any) -> Tensor:
    mask = torch.zeros(x.shape[axis], dtype=torch.bool)
    mask[list(indices)] = True
    return mask.view(-1, *[1] * (x.ndim - axis - 1)).expand_as(x)


def largest(logits: Tensor) -> Tensor:
    """The token with the largest logit; -1 where float32 may decide otherwise."""
    top = logits.topk(2, -1)
    return torch.where(top.values[..., 0] - top.values[..., 1] > 1e-3, top.indices[..., 0], -1)


INTERVENED = {
    "shape": st.sampled_from(sorted(MODELS)),
    "made": st.lists(one_or_combined(), min_size=1, max_size=3),
    "seed": st.integers(0, 99),
}


@pytest.mark.usefixtures("as_a_user_has_it")
@random_examples(INTERVENED, 15)
def test_answers_and_accuracies_under_many_interventions_are_those_of_plain_passes(
    shape, made, seed
):
    model = MODELS[shape]
    config: ModelConfig = model.config
    a, b = sums.long_sums(7, config.width, generator(seed))
    tokens, read = sums.encode(a, b, config.layout), list(config.layout.answer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interventions, "REFERENCE_SUMS", REFERENCE)
        answers = measure.predict(model, a, b, made)
        tables = measure.class_accuracies(model, a, b, made)
        logits = [model(tokens, i.hook(model, read=read), read) for i in made]
    called = [pattern(x, y, config.width) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    digits = torch.tensor([written(x, config.width) for x in (a + b).tolist()])
    for i, intervention in enumerate(made):
        expected = plain(model, tokens, by_hand(intervention, model, None))[:, read]
        close = {"rtol": 1e-3, "atol": 1e-3, "equal_nan": True}
        torch.testing.assert_close(logits[i].double(), expected, **close)
        decided = largest(expected)
        assert bool(((answers[i] == decided) | (decided < 0)).all())
        # Accuracies of a mean ablation are of the mean over these sums.
        decided = largest(plain(model, tokens, by_hand(intervention, model, (a, b)))[:, read])
        if (decided >= 0).all():
            right = decided == digits
            assert tables[i].exact_match == pytest.approx(right.all(1).double().mean().item())
            for carry_class, name in enumerate(carries.patterns(config.width)):
                share = right[[c == name for c in called]].double().mean(0)
                torch.testing.assert_close(tables[i].accuracy[carry_class].double(), share, **close)
