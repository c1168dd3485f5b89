"""Random input, much of it wrong: each call gives the right result, or one line of `BadInput`.

What is right is computed here by other means: with Python's whole numbers, or by a plain pass in
float64. `make fuzz` searches on, for MINUTES=10.
"""

import copy
import io
import json
import math
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from carry_core import carries, interventions, measure, runs, sums
from carry_core.errors import BadInput
from carry_core.interventions import (
    PAIRS,
    PARTS,
    Ablation,
    Combined,
    Intervention,
    MeanAblation,
    Patch,
)
from carry_core.model import POINTS, ModelConfig, Transformer
from carry_core.sums import Layout
from carry_paper import catalogue, cli
from carry_paper.catalogue import load_curves
from carry_paper.pages.page import Page
from carry_paper.pages.parameters import check_addends, check_decoders, chosen_classes
from carry_train import estimates, groups
from tests.conftest import SHAPES, random_model
from tests.helpers.trainings import save_random
from tests.test_damage import CASES, NAME, write_run

pytestmark = pytest.mark.slow

EXAMPLES = os.environ.get("FUZZ_EXAMPLES")  # of each test; `make fuzz` sets it
LONG = EXAMPLES is not None


def fuzzed(strategies: Mapping[str, Any], examples: int = 12) -> Callable[..., Any]:
    """Run a test on random examples: the same ones each time, but for those of `make fuzz`."""
    quiet = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]
    options = settings(
        max_examples=int(EXAMPLES or examples),
        derandomize=not LONG,
        deadline=None,
        database=None,
        suppress_health_check=quiet,
    )
    return lambda test: options(given(**strategies)(test))


@pytest.fixture(autouse=True)
def as_a_user_has_it(monkeypatch: pytest.MonkeyPatch):
    """Shapes in signatures are not checked, as in ordinary use; reference sets are small."""
    monkeypatch.setattr(interventions, "REFERENCE_SUMS", 20)
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def outcome(call: Callable[[], Any]) -> Any:
    """Return a call's result, or the `BadInput` that it raises."""
    try:
        return call()
    except BadInput as refused:
        return refused


def is_refused(result: Any) -> bool:
    return isinstance(result, BadInput)


def mostly(usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 99).flatmap(lambda i: odd if i == 7 else usual)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------- sums

TORCH_TYPES = sorted(sums.INTEGERS, key=str)


def held(numbers: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor, or raise where torch would wrap a number around: -1 to 65535 in uint16."""
    tensor = torch.tensor(numbers, dtype=dtype)
    if tensor.tolist() != numbers:
        raise OverflowError(f"{dtype} does not hold {numbers}")
    return tensor


NUMPY_TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FORMS: dict[str, Callable[[list[int]], Any]] = {
    "a list": list,
    "a tuple": tuple,
    "several rows": lambda x: [x, x],
    "an int": lambda x: x[0],
    "NumPy's int": lambda x: np.int64(x[0]),
    **{str(dtype): lambda x, dtype=dtype: held(x, dtype) for dtype in TORCH_TYPES},
    **{f"NumPy {dtype}": lambda x, dtype=dtype: np.array(x, dtype) for dtype in NUMPY_TYPES},
}
ONE_NUMBER = ("an int", "NumPy's int")
NO_FORMS: dict[str, Callable[[list[int]], Any]] = {
    "floats": lambda x: torch.tensor(x, dtype=torch.float64),
    "a list of floats": lambda x: [float(i) for i in x],
    "booleans": lambda x: torch.tensor(x) > 3,
    "complex": lambda x: np.array(x, complex),
    "texts": lambda x: list(map(str, x)),
    "a text": str,
    "nested unevenly": lambda x: [x, [x]],
    "None": lambda x: None,
    "a mapping": lambda x: {0: x},
    "objects": lambda x: np.array([None, *x], object),
    "too large": lambda x: [2**70, *x],
}
NUMBERS = st.one_of(st.integers(-2, 1100), st.integers(-(2**63), 2**64 - 1))
SMALL = st.integers(0, 255)
FORM = st.sampled_from([*FORMS, *FORMS, *NO_FORMS])
OPERAND = {
    "pairs": st.lists(st.tuples(SMALL, SMALL), min_size=1, max_size=4)
    | st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=3),
    "forms": st.tuples(FORM, FORM) | st.sampled_from([*FORMS]).map(lambda form: (form, form)),
    "cut": st.booleans(),
    "width": st.integers(1, 4) | st.sampled_from([0, -1, 12, 18, 19, True, 2.0, None]),
    "causal": st.booleans(),
}


def written(number: int, width: int) -> list[int]:
    return [int(digit) for digit in f"{number:0{width}d}"[-width:]]


def pattern(a: int, b: int, width: int) -> str:
    """The carry pattern of a sum, by adding it up from the right."""
    symbols, carry = "", 0
    for x, y in zip(reversed(written(a, width)), reversed(written(b, width)), strict=True):
        symbol = "1" if x + y > 9 else "2" if x + y + carry > 9 else "0"
        symbols, carry = symbol + symbols, int(symbol != "0")
    return symbols


def in_a_class(a: int, b: int, width: int) -> bool:
    side = 10**width
    return min(a, b) >= 0 and a + b < 10**18 and a % side + b % side < side


def formed(pairs: list[tuple[int, int]], forms: tuple[str, str]) -> list[Any]:
    """Return first and second numbers in some forms; a number that a form can't hold is none."""
    operands = []
    for numbers, form in zip(zip(*pairs, strict=True), forms, strict=True):
        try:
            operands.append((FORMS | NO_FORMS)[form](list(numbers)))
        except (OverflowError, RuntimeError, TypeError, ValueError):
            assume(False)
    return operands


@fuzzed(OPERAND, 80)
def test_sums_are_written_and_classified_as_python_adds_them(pairs, forms, cut, width, causal):
    a, b = formed(pairs, forms)
    scalar = {*forms} <= {*ONE_NUMBER}
    same_shape = scalar or forms[0] == forms[1] or not {*forms} & {*ONE_NUMBER, "several rows"}
    if cut and forms[1] not in (*ONE_NUMBER, "None"):
        b = b[:-1] if not isinstance(b, dict) else {}
        same_shape = False
    pairs = pairs[:1] if scalar else pairs
    is_width = type(width) is int and 1 <= width <= 18
    are_sums = same_shape and not {*forms} & {*NO_FORMS}
    fit = is_width and all(x >= 0 and y >= 0 and x + y < 10**width for x, y in pairs)
    encoded = outcome(lambda: sums.encode(a, b, Layout(width, causal)))
    target = outcome(lambda: sums.targets(a, b, Layout(width, causal)))
    classes = outcome(lambda: carries.classify(a, b, width))
    if not (are_sums and is_width):
        assert all(map(is_refused, (encoded, target, classes)))
        return
    rows = 2 if forms[0] == "several rows" else 1
    assert is_refused(encoded) == is_refused(target) == (not fit)
    if fit:
        answers = [written(x + y, width) for x, y in pairs]
        operands = [[*written(x, width), 10, *written(y, width)] for x, y in pairs]
        tails = answers if causal else [[11] * width] * len(pairs)
        expected = [x + tail for x, tail in zip(operands, tails, strict=True)] * rows
        assert encoded.reshape(-1, 3 * width + 1).tolist() == expected
        closed = [x + [11] * causal for x in answers] * rows
        assert target.reshape(len(expected), -1).tolist() == closed
    has_class = all(in_a_class(x, y, width) for x, y in pairs)
    assert is_refused(classes) == (not has_class or width > 12)
    if not is_refused(classes):
        called = [carries.patterns(width)[i] for i in classes.flatten().tolist()]
        assert called == [pattern(x, y, width) for x, y in pairs] * rows


SIZES = st.integers(-1, 5) | st.sampled_from([9, 10, 12, 13, 18, 19, 10**20, True, 2.0, "3", None])
DRAWS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "n_sums": lambda n, x, seed: sums.n_sums(n),
    "unrank": lambda n, x, seed: sums.unrank(torch.tensor([x]), n),
    "digits": lambda n, x, seed: sums.digits(x, n),
    "equal_sums": lambda n, x, seed: sums.equal_sums(x if type(x) is not int else x % 10**6, n),
    "patterns": lambda n, x, seed: carries.patterns(n),
    "long_sums": lambda n, x, seed: sums.long_sums(n, n, generator()),
    "sample": lambda n, x, seed: measure.sample(n, n, seed),
    "sample_class": lambda n, x, seed: carries.sample_class(str(x), n, generator()),
    "n_sums_in_class": lambda n, x, seed: carries.n_sums_in_class(str(x)),
    "layout": lambda n, x, seed: Layout(n, True),
    "config": lambda n, x, seed: ModelConfig(layers=n, width=n, d_ff=n),
}


DRAWN = {"n": SIZES, "x": NUMBERS | st.integers(0, 499_999), "seed": SIZES | st.integers(-2, 2**65)}


@fuzzed(DRAWN)
@pytest.mark.parametrize("draw", DRAWS)
def test_a_draw_is_of_sums_or_is_refused(draw, n, x, seed):
    assume(draw not in ("sample",) or n not in (9, 10, 12))  # as many classes take a while
    assume(draw != "unrank" or x < 2**63)
    sampled = outcome(lambda: DRAWS[draw](n, x, seed))
    whole = type(n) is int
    if is_refused(sampled):
        return
    assert whole or draw == "n_sums_in_class"
    if draw == "n_sums":
        assert n > 3 or sampled == sum(10**n - a for a in range(10**n))
        assert sampled * 2 == 10**n * (10**n + 1)
    elif draw == "digits":
        assert x >= 0
        assert sampled.tolist() == written(x, n)
    elif draw == "unrank":
        a, b = (int(i) for i in sampled)
        assert 0 <= x < sums.n_sums(n)
        assert min(a, b) >= 0
        assert a + b < 10**n
        assert a * 10**n - a * (a - 1) // 2 + b == x
    elif draw in ("equal_sums", "long_sums", "sample", "sample_class"):
        a, b = (i.tolist() for i in sampled)
        limit = 10 ** (n if draw != "sample_class" else len(str(x)))
        assert all(i >= 0 and j >= 0 and i + j < limit for i, j in zip(a, b, strict=True))
        if draw == "sample_class":
            assert {pattern(i, j, len(str(x))) for i, j in zip(a, b, strict=True)} <= {str(x)}


# ---------------------------------------------------------------- the model

Change = Callable[[str, Tensor], Tensor]
SHAPE = st.sampled_from(["encoder", "three layers", "decoder", "one-layer decoder"])
MODELS = {name: random_model(config, noise=0.1) for name, config in SHAPES.items()}
VARIED = {name: random_model(config, noise=0.5) for name, config in SHAPES.items()}  # answers vary
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.bfloat16: 1.0, torch.float16: 0.1}


def plain(model: Transformer, tokens: Tensor, change: Change = lambda name, x: x) -> Tensor:
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
        pattern = change(
            f"{block}.attn.pattern", change(f"{block}.attn.scores", scores).softmax(-1)
        )
        z = change(f"{block}.attn.z", torch.einsum("bhqk,bkhd->bqhd", pattern, v))
        out = change(f"{block}.attn_out", linear(z.flatten(-2), f"{block}.o"))
        mid = change(f"{block}.resid_mid", change(f"{block}.attn.skip", resid) + out)
        pre = change(f"{block}.mlp.pre", linear(norm(mid, f"{block}.norm"), f"{block}.up"))
        post = change(f"{block}.mlp.post", F.relu(pre))
        out = change(f"{block}.mlp_out", linear(post, f"{block}.down"))
        resid = change(f"{block}.resid_post", change(f"{block}.mlp.skip", mid) + out)
    return change("logits", linear(norm(resid, "norm"), "unembed"))


def assert_close(logits: Tensor, expected: Tensor) -> None:
    within = {"rtol": TOLERANCE[logits.dtype], "atol": TOLERANCE[logits.dtype]}
    torch.testing.assert_close(logits.double(), expected, equal_nan=True, **within)


def tokens_of(config: ModelConfig, seed: int, count: int = 3) -> Tensor:
    return sums.encode(*sums.long_sums(count, config.width, generator(seed)), config.layout)


READ = st.none() | st.lists(mostly(st.integers(-7, 6), st.integers(-12, 11)), max_size=4)
READ |= st.permutations(range(7)).map(list)
ODD_READ = st.sampled_from([3, "7", [1.5], [None], [[1]], [99], np.ones((2, 2)), torch.ones(2)])
RETURNS: dict[str, Change] = {
    "nothing": lambda name, x: None,
    "itself": lambda name, x: x,
    "a multiple": lambda name, x: x * 0.5,
    "a multiple in place": lambda name, x: x.mul_(0.5),
    "not contiguous": lambda name, x: (0.5 * x).mT.contiguous().mT,
}
HALVED = ("a multiple", "a multiple in place", "not contiguous")
WRONG_RETURNS: dict[str, Change] = {
    "fewer rows": lambda name, x: x[:1],
    "no rows": lambda name, x: x[:0],
    "fewer positions": lambda name, x: x[:, :1],
    "a narrow one": lambda name, x: x[..., :1],
    "one axis more": lambda name, x: x[None],
    "transposed": lambda name, x: x.transpose(-1, -2),
    "another dtype": lambda name, x: x.half(),
    "whole numbers": lambda name, x: x.long(),
    "an array": lambda name, x: x.numpy(),
    "a number": lambda name, x: 0.0,
    "a mapping": lambda name, x: {name: x},
    "a truth value": lambda name, x: False,
}
HOOKED = {
    "shape": SHAPE,
    "point": st.sampled_from(["embed", "logits", *POINTS]),
    "layer": st.integers(0, 3),
    "returned": st.sampled_from([*RETURNS, *WRONG_RETURNS]),
    "read": READ | ODD_READ,
    "call": st.sampled_from(["model", "functional_call", "run_with_hooks", "run_with_cache"]),
    "seed": st.integers(0, 99),
}


def is_read(read: Any, length: int) -> bool:
    if not isinstance(read, list):
        return read is None
    return all(type(p) is int and -length <= p < length for p in read)


def position_axis(name: str) -> int:
    """The axis of an activation's positions; of the queries, in a pattern."""
    return 2 if name.endswith(("attn.scores", "attn.pattern")) else 1


@fuzzed(HOOKED, 40)
def test_a_hook_changes_what_it_says_or_is_refused(shape, point, layer, returned, read, call, seed):
    model = MODELS[shape]
    config, tokens = model.config, tokens_of(model.config, seed)
    name = point if point in ("embed", "logits") else f"blocks.{layer}.{point}"
    f = (RETURNS | WRONG_RETURNS)[returned]

    def hook(point_name: str, x: Tensor) -> Any:
        assert x.shape[position_axis(point_name)] == len(point_name.positions)
        return f(point_name, x) if point_name == name else x

    weights = dict(model.named_parameters())
    calls = {
        "model": lambda: model(tokens, hook, read),
        "functional_call": lambda: torch.func.functional_call(model, weights, (tokens, hook, read)),
        "run_with_hooks": lambda: model.run_with_hooks(tokens, {name: lambda x, hook: f(hook, x)}),
        "run_with_cache": lambda: model.run_with_cache(tokens, [name], hook)[1][name],
    }
    if call.startswith("run"):
        read = None
    result = outcome(calls[call])
    exists = name in config.hook_names
    if not is_read(read, config.layout.length) or (call.startswith("run") and not exists):
        assert is_refused(result)
        return
    if is_refused(result):
        assert returned in WRONG_RETURNS
        return
    if exists and returned in WRONG_RETURNS:  # with `read`, an activation may be so small by itself
        assert returned in ("fewer positions", "fewer rows", "transposed", "no rows")
        assert read is not None or "transposed" in returned
    factor = 0.5 if returned in HALVED else 1.0
    cache: dict[str, Tensor] = {}
    keep = keeping(cache)
    changed = plain(
        model,
        tokens,
        lambda point_name, x: keep(point_name, x * factor if point_name == name else x),
    )
    expected = cache[name] if call == "run_with_cache" else changed
    if returned in RETURNS:
        assert_close(result, expected if read is None else expected[:, read])


LAYER = mostly(st.sampled_from([0, 1]), st.just(2))
PAIR = st.tuples(LAYER, mostly(st.sampled_from([0, 1]), st.sampled_from([-1, 2])))
PART = {kind: st.sets(PAIR, max_size=2) for kind in PAIRS}
PART |= {kind: st.sets(LAYER, max_size=1) for kind in PARTS if kind not in PAIRS}
NAMES = st.sets(st.sampled_from(ModelConfig().hook_names), max_size=1)
POSITIONS = st.none() | st.sets(mostly(st.integers(0, 6), st.just(10)), max_size=3).map(tuple)
ONE = st.builds(
    lambda kind, parts, names, positions: kind(**parts, names=names, positions=positions),
    st.sampled_from([Ablation, MeanAblation, Patch]),
    st.fixed_dictionaries({}, optional=PART),
    NAMES,
    POSITIONS,
)
SOURCE = st.tuples(st.integers(0, 49), mostly(st.integers(0, 50), st.just(99)))


@st.composite
def changed(draw: Any) -> Intervention | Combined:
    """One intervention, or several that are combined; patches have a source of their own."""
    parts = [draw(ONE) for _ in range(draw(st.integers(1, 3)))]
    parts = [replace(x, source=draw(SOURCE)) if isinstance(x, Patch) else x for x in parts]
    together = parts[0]
    for part in parts[1:]:
        together = together | part
    return together


def fits(intervention: Intervention | Combined, config: ModelConfig) -> bool:
    """Return True if a model has all parts and positions, and the sum of a patch."""
    if isinstance(intervention, Combined):
        return all(fits(part, config) for part in intervention.parts)
    for kind in PARTS:
        count = config.d_ff if kind == "neurons" else config.heads
        for part in getattr(intervention, kind):
            layer, i = part if kind in PAIRS else (part, 0)
            if layer >= config.layers or not 0 <= i < count:
                return False
    if isinstance(intervention, Patch) and _targets(intervention):
        a, b = intervention.source
        if a + b >= 10**config.width:
            return False
    positions_exist = max(intervention.positions or (0,)) < config.layout.length
    return positions_exist and intervention.names <= {*config.hook_names}


def _targets(intervention: Intervention) -> list[tuple[str, int | None, int]]:
    """Return for each part its point, the axis of its heads or neurons, and its index."""
    targets: list[tuple[str, int | None, int]] = [(name, None, 0) for name in intervention.names]
    for kind, (_, point, axis) in PARTS.items():
        for part in getattr(intervention, kind):
            layer, i = part if kind in PAIRS else (part, 0)
            targets.append((f"blocks.{layer}.{point}", axis, i))
    return targets


def by_hand(
    intervention: Intervention | Combined,
    model: Transformer,
    reference: Any = None,
) -> Change:
    """An intervention as a change of the plain pass, one row and one part at a time."""
    if reference is None or isinstance(intervention, Combined):
        reference = sums.long_sums(20, model.config.width, generator())
    steps = []
    for part in intervention.parts if isinstance(intervention, Combined) else (intervention,):
        cache: dict[str, Tensor] = {}
        if isinstance(part, MeanAblation):
            tokens = sums.encode(*reference, model.config.layout)
            plain(model, tokens, keeping(cache, average=True))
        elif isinstance(part, Patch) and _targets(part):
            tokens = sums.encode(*([x] for x in part.source), model.config.layout)
            plain(model, tokens, keeping(cache))
        steps.append((part, cache))

    def change(name: str, x: Tensor) -> Tensor:
        for part, cache in steps:
            value = cache.get(name, torch.zeros_like(x)).expand_as(x)
            for point, axis, i in _targets(part):
                if point != name:
                    continue
                mask = torch.ones_like(x, dtype=torch.bool)
                if axis is not None:
                    mask &= _only(x, axis % x.ndim, [i])
                if part.positions is not None:
                    mask &= _only(x, position_axis(name), part.positions)
                x = torch.where(mask, value, x)
        return x

    return change


def keeping(cache: dict[str, Tensor], average: bool = False) -> Change:
    """Keep what a pass computes, or its mean over the sums."""

    def change(name: str, x: Tensor) -> Tensor:
        cache[name] = x.mean(0, keepdim=True) if average else x
        return x

    return change


def _only(x: Tensor, axis: int, indices: Any) -> Tensor:
    mask = torch.zeros(x.shape[axis], dtype=torch.bool)
    mask[list(indices)] = True
    return mask.view(-1, *[1] * (x.ndim - axis - 1)).expand_as(x)


INTERVENED = {
    "shape": SHAPE | st.just("one layer"),
    "interventions": st.lists(changed(), min_size=1, max_size=3),
    "read": READ,
    "made_for_read": st.booleans(),
    "seed": st.integers(0, 99),
}


@fuzzed(INTERVENED, 60)
def test_an_intervention_is_what_it_is_by_hand_with_and_without_read(
    shape, interventions, read, made_for_read, seed
):
    model = MODELS[shape]
    config, tokens, intervention = model.config, tokens_of(model.config, seed), interventions[0]
    valid = is_read(read, config.layout.length)
    logits = outcome(
        lambda: model(tokens, intervention.hook(model, read=read if made_for_read else None), read)
    )
    assert is_refused(logits) == (not (valid and fits(intervention, config)))
    if not is_refused(logits):
        expected = plain(model, tokens, by_hand(intervention, model))
        assert_close(logits, expected if read is None else expected[:, read])
    again = Intervention.from_json(intervention.to_json())
    assert again == intervention
    assert str(again) == str(intervention)


N_DIGITS = mostly(st.sampled_from([None, 1, 2]), st.integers(-1, 4))


@fuzzed(INTERVENED | {"n_digits": N_DIGITS, "wrapped": st.booleans()}, 80)
def test_predictions_under_many_interventions_are_those_of_plain_passes(
    shape, interventions, read, made_for_read, seed, n_digits, wrapped
):
    """By the shared prefix, and one pass each where a hook of PyTorch's is on the model."""
    model = VARIED[shape]
    config = model.config
    a, b = sums.long_sums(7, config.width, generator(seed))
    measured, model = model, copy.deepcopy(model)
    if wrapped:  # heads write the opposite: by a hook here, by weights in the plain passes
        measured = copy.deepcopy(model)
        measured.blocks[0].o.register_forward_hook(lambda module, inputs, out: -out)
        for weight in model.blocks[0].o.parameters():
            weight.neg_()
    answers = outcome(lambda: measure.predict(measured, a, b, interventions, n_digits))
    tables = outcome(lambda: measure.class_accuracies(measured, a, b, interventions, n_digits))
    valid = n_digits is None or 1 <= n_digits <= config.width
    valid = valid and all(fits(intervention, config) for intervention in interventions)
    assert is_refused(answers) == (not valid)
    if not valid:
        assert is_refused(tables)
        return
    n = n_digits or config.width
    side, read = 10**n, config.layout.answer[-n:]
    classified = bool((a % side + b % side < side).all())
    assert is_refused(tables) == (not classified)
    for i, intervention in enumerate(interventions):
        tokens = sums.encode(a, b, config.layout)
        decided = best(plain(model, tokens, by_hand(intervention, model))[:, read])
        assert bool(((answers[i] == decided) | (decided < 0)).all())
        if classified:
            alone = by_hand(intervention, model, (a, b))
            decided = best(plain(model, tokens, alone)[:, read])
            if (decided >= 0).all():
                right = decided == torch.tensor([written(x, n) for x in (a + b).tolist()])
                assert tables[i].exact_match == pytest.approx(right.all(1).double().mean().item())
                shares = [right[rows].double().mean(0) for rows in _rows(a, b, n)]
                assert_close(tables[i].accuracy, torch.stack(shares))


def _rows(a: Tensor, b: Tensor, n: int) -> list[list[int]]:
    """The rows of the sums of each class."""
    called = [pattern(x, y, n) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    return [[i for i, p in enumerate(called) if p == task] for task in carries.patterns(n)]


def best(logits: Tensor) -> Tensor:
    """The token with the largest logit; -1 where float32 may decide otherwise."""
    top = logits.topk(2, -1)
    return torch.where(top.values[..., 0] - top.values[..., 1] > 1e-3, top.indices[..., 0], -1)


MOVES: dict[str, Callable[[Transformer], Transformer]] = {
    **{str(dtype): lambda m, dtype=dtype: m.to(dtype) for dtype in TOLERANCE},
    "cpu, float32": lambda m: m.to("cpu", torch.float32),
    "double": lambda m: m.double(),
    "half": lambda m: m.half(),
    "bfloat16": lambda m: m.bfloat16(),
    "float": lambda m: m.float(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "state": lambda m: loaded_into(Transformer(m.config).to(m.embed.weight.dtype), m),
    "train and eval": lambda m: m.train().eval(),
    "requires_grad": lambda m: m.requires_grad_(),
    "shared memory": lambda m: m.share_memory(),
}


def loaded_into(model: Transformer, source: Transformer) -> Transformer:
    model.load_state_dict(source.state_dict())
    return model


MOVED = {
    "shape": SHAPE,
    "moves": st.lists(st.sampled_from(sorted(MOVES)), max_size=4),
    "seed": st.integers(0, 99),
}


@fuzzed(MOVED, 20)
def test_a_model_that_was_moved_or_copied_computes_what_its_weights_say(shape, moves, seed):
    model = copy.deepcopy(MODELS[shape])
    for move in moves:
        model = MOVES[move](model)
    tokens = tokens_of(model.config, seed)
    expected = plain(model, tokens)
    assert_close(model(tokens), expected)
    assert_close(torch.func.functional_call(model, model.state_dict(), (tokens,)), expected)
    answers = measure.predict(model, *sums.long_sums(3, model.config.width, generator(seed)))
    decided = best(expected[:, model.config.layout.answer])
    if model.embed.weight.dtype in (torch.float32, torch.float64):
        assert bool(((answers[0] == decided) | (decided < 0)).all())


TOKENS = {
    "shape": SHAPE,
    "rows": st.lists(st.lists(st.integers(0, 11), min_size=6, max_size=8), max_size=3),
    "dtype": st.sampled_from([*TORCH_TYPES, torch.float32, torch.bool]),
}


@fuzzed(TOKENS, 40)
def test_a_model_takes_tokens_only(shape, rows, dtype):
    model = MODELS[shape]
    length = model.config.layout.length
    assume(len({*map(len, rows)}) < 2)
    tokens = (torch.tensor(rows) if rows else torch.zeros(0, 7)).to(dtype)
    logits = outcome(lambda: model(tokens))
    lengths = range(1 if model.config.causal else length, length + 1)
    valid = dtype in sums.INTEGERS and tokens.shape[1] in lengths
    assert is_refused(logits) == (not valid)
    if valid:
        assert_close(logits, plain(model, tokens.long()))


# ---------------------------------------------------------------- files

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=2) | st.dictionaries(st.text(max_size=3), x, max_size=2),
    max_leaves=4,
)
PLACE = st.integers(0, 2**20)
DAMAGE = {
    "flips": st.lists(st.tuples(PLACE, st.integers(0, 255)), max_size=4),
    "end": st.none() | PLACE,
    "more": st.binary(max_size=3),
}
CHECKED = ("curves", "map", "measurements", "author's side")  # their formats have checksums


def same(left: Any, right: Any) -> bool:
    """Return True if two results of a reader are equal, NaN included."""
    return pickle.dumps(plain_data(left)) == pickle.dumps(plain_data(right))


def plain_data(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): plain_data(x) for key, x in sorted(value.items(), key=str)}
    if isinstance(value, Tensor):
        return value.numpy().tobytes()
    if hasattr(value, "to_csv"):
        return value.to_csv()
    return value.tobytes() if hasattr(value, "tobytes") else value


@pytest.mark.parametrize("case", CASES)
def test_a_file_with_other_bytes_is_read_rightly_or_refused(data, case):
    name, write, read = CASES[case]
    write(data)
    path = data / name
    whole, intact = path.read_bytes(), read(data)
    head = len(whole)
    if path.suffix == ".safetensors":  # other numbers behind its header are no damage to see
        head = 8 + int.from_bytes(whole[:8], "little")

    @fuzzed(DAMAGE, 15)
    def check(flips, end, more):
        content = bytearray(whole)
        for place, byte in flips:
            content[place % head] = byte
        content = bytes(content[: end % len(whole) if end else None]) + more
        path.write_bytes(content)
        result = outcome(lambda: read(data))
        assert path.read_bytes() == content
        if case in CHECKED and not is_refused(result):
            assert same(result, intact)
        if case == "weights" and not is_refused(result):
            assert same(result.weights[0], intact.weights[0])

    check()


OUTSIDE = ["group", "config", "format"]  # of the record
RECORDED = {
    "key": st.sampled_from(["recipe", "run", "epochs", "snapshots", "device", "seed", *OUTSIDE]),
    "value": JSON
    | st.integers(-1, 1000)
    | st.sampled_from([1001, "paper", "quick", "2", NAME, [], [9]]),
}


def test_a_record_with_another_entry_is_taken_or_refused(data):
    write_run(data)
    path = data / CASES["weights"][0]
    tensors, description = load_file(path), runs.describe(path)

    @fuzzed(RECORDED, 40)
    def check(key, value):
        entry = {key: value}
        changed = description | (
            entry if key in OUTSIDE else {"record": description["record"] | entry}
        )
        save_file(tensors, path, {"carry": json.dumps(changed)})
        before = path.read_bytes()
        valid = {
            "recipe": value == "paper",
            "run": type(value) is int and value == 0,
            "epochs": type(value) is int and 1 <= value <= 1000,
            "snapshots": type(value) in (str, list, dict)
            and all(type(epoch) is int and epoch >= 1 for epoch in value),
            "group": value == NAME,
            "config": value == description["config"],
            "format": value == "2",
        }
        loaded = outcome(lambda: catalogue.load(NAME))
        assert is_refused(loaded) == (not valid.get(key, True))
        assert path.read_bytes() == before
        if not is_refused(loaded):
            assert same(loaded.weights[0], tensors)

    check()


PER_EPOCH = {
    "test_loss": (),
    "train_loss": (),
    "weight_norm": (),
    "pattern": (2, 10, 10),
    "test_accuracy": (3,),
}
ARRAYS = {
    "name": st.sampled_from(["epochs", "other", *PER_EPOCH]),
    "dtype": st.sampled_from(["f2", "f4", "f8", "i8", "u1", "u8", "b1", "c8", "U3", "M8[s]"]),
    "values": st.lists(st.integers(0, 10), min_size=0, max_size=10),
    "shape": st.sampled_from([(-1,), (1, -1), (-1, 1), (), (-1, 2, 10, 10), (-1, 3)]),
}


def test_curves_with_another_array_are_taken_or_refused(data):

    write_run(data)
    path = data / CASES["curves"][0]
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}

    @fuzzed(ARRAYS, 40)
    def check(name, dtype, values, shape):
        array = np.array(values).astype(dtype)
        if len(shape) == 4:
            array = np.zeros((len(values), 2, 10, 10), dtype)
        elif shape == ():
            assume(values)
            array = array[0]
        else:
            assume(shape != (-1, 3) or len(values) % 3 == 0)
            array = array.reshape(shape)
        np.savez(path, **arrays | {name: array})
        before = path.read_bytes()
        result = outcome(lambda: load_curves(NAME))
        assert path.read_bytes() == before
        if name in PER_EPOCH:
            valid = array.dtype.kind == "f" and np.shape(array) == (9, *PER_EPOCH[name])
            assert is_refused(result) == (not valid)
        elif name == "epochs":
            valid = values == [*range(1, 10)] and array.dtype.kind in "iu" and array.ndim == 1
            assert is_refused(result) == (not valid)
        else:
            assert is_refused(result)
        if not is_refused(result) and name in PER_EPOCH:
            assert np.array_equal(result[name][0], array.astype(np.float32), equal_nan=True)

    check()


# ---------------------------------------------------------------- parameters and options

ANYTHING = JSON | st.integers(-2, 1000)
ANYTHING |= st.sampled_from(["ours", "author", NAME, "0", "1e3", 0, 1, [0], {0: 1}])
PARAMETERS = {
    "source": st.sampled_from(["ours"] * 4) | ANYTHING,
    "group": st.sampled_from([NAME, NAME, "decoder_n2_s0.3_w0.2", *groups.GROUPS]) | ANYTHING,
    "run": st.none() | st.just(0) | ANYTHING,
    "n_examples": st.integers(0, 300) | ANYTHING,
    "seed": st.integers(0, 3) | ANYTHING,
    "addends": st.tuples(st.integers(0, 600) | ANYTHING, st.integers(0, 600)),
    "causal": st.booleans(),
    "classes": st.sampled_from([None, "all", "011", "C all, NC", 11, ["NC"], [], ""]) | ANYTHING,
}


def test_parameters_of_a_page_are_taken_or_refused(data):
    decoder = "decoder_n2_s0.3_w0.2"
    for name in (NAME, decoder):
        save_random(groups.find(name), (0,))

    @fuzzed(PARAMETERS, 50)
    def check(source, group, run, n_examples, seed, addends, causal, classes):
        def page() -> None:
            parameters = {"run": run, "n_examples": n_examples, "seed": seed}
            new_page = Page("fig", source=source, group=group, **parameters)
            check_addends(new_page.runs.config, *addends)
            if causal:
                check_decoders(group)

        whole = all(type(x) is int for x in (n_examples, seed, *addends))
        valid = whole and (run is None or (type(run) is int and run == 0))
        valid = valid and source == "ours" and group in ([decoder] if causal else [NAME, decoder])
        valid = valid and 10 <= n_examples <= 200_000 and 0 <= seed < 2**63
        valid = valid and min(addends) >= 0 and sum(addends) < 1000
        assert is_refused(outcome(page)) == (not valid)
        classes_chosen = outcome(lambda: chosen_classes(3, classes))
        assert is_refused(classes_chosen) or {*classes_chosen} <= {*carries.patterns(3)}

    check()
    assert not list(data.glob("**/.*"))


WORDS = st.sampled_from([NAME, "n9", "0-5", "0,2", "7-3", "0", "1", "-1", "nan", "1e400", "cpu"])
WORDS |= st.sampled_from(["cuda:9", "paper", "ours", "author", "fp32", "tf32", "data/", "."])
WORDS |= st.sampled_from(["x/y", "../x", "x" * 300, "", "/dev/null"])
WORDS |= st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
WORDS |= st.binary(max_size=4).filter(lambda x: 0 not in x).map(os.fsdecode)
OPTIONS = {
    "train": [
        "--runs",
        "--epochs",
        "--recipe",
        "--device",
        "--precision",
        "--threads",
        "--minutes",
    ],
    "verify": ["--accept"],
    "interchange": ["--source", "--pairs", "--json"],
    "lines": ["--source", "--recipe", "--runs", "--json"],
    "claims": ["--source", "--against", "--json"],
    "import-author": ["--out"],
}
OPTIONS["train"] += ["--out", "--split-seed", "--init-seed", "--order-seed", "--mask-seed"]


@st.composite
def command_line(draw: Any) -> list[str]:
    """A command with some of its options, or others, and what they are given."""
    command = draw(st.sampled_from([*OPTIONS, "train", "train"]))
    line = [command]
    if command == "train":
        line += ["--dry-run"]
    if command == "claims":
        line += ["--only", f"no such row {draw(WORDS)}"]
    for option in draw(st.lists(st.sampled_from(OPTIONS[command]), max_size=3)):
        line += [option, draw(WORDS)]
    if command in ("interchange", "lines", "claims"):
        line += ["--source", draw(st.sampled_from(["ours", "author"]))]
    return line + draw(st.lists(st.just(NAME) | WORDS, max_size=2))


def test_a_command_line_ends_well_or_in_one_line(data, monkeypatch, tmp_path):
    monkeypatch.setattr(estimates, "seconds_left", lambda *_: 1.0)
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()

    @fuzzed({"line": command_line()}, 60)
    def check(line):
        out, err = (
            io.TextIOWrapper(io.BytesIO(), "utf-8", errors, write_through=True)
            for errors in ("strict", "backslashreplace")
        )  # as a terminal has them
        monkeypatch.setattr(sys, "argv", ["carry", *line])
        code = 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                cli.main()
            except SystemExit as end:
                code = end.code or 0
        message = err.buffer.getvalue().decode()
        assert code in (0, 2)
        assert code == 0 or message.count("\n") == 1 or line[0] in ("import-author", "verify")

    try:
        check()
    finally:
        torch.set_num_threads(threads)
