"""The core's promises to those who use it as a library: correct numbers, or one clear line.

A model is an ordinary `nn.Module`; numbers do not depend on the integer type of a sum, on the
positions that a hook was made for, or on how a model was changed before it was measured.
"""

import copy
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import reload
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize, prune
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from carry_core import carries, measure, sums
from carry_core.errors import BadInput
from carry_core.interventions import (
    INTACT,
    Ablation,
    Combined,
    MeanAblation,
    Patch,
)
from carry_core.model import Block, ModelConfig, Transformer, activations_at
from carry_core.pairs import Contrast, sample_pairs
from carry_core.sums import Layout
from carry_fast import engine, plain
from carry_fast.swaps import PatchedPasses, RowSwaps, swaps_between
from carry_paper.catalogue import load
from carry_paper.findings.survey import Need, survey
from tests.conftest import SHAPES, drawn, random_model, tokens_of
from tests.helpers.tolerances import assert_close, tolerance

SMALL = ModelConfig(width=2, d_model=16, d_ff=12)
LAYOUT = SMALL.layout


@pytest.fixture
def small() -> Transformer:
    return random_model(SMALL, 3, noise=0.3)


# ---------------------------------------------------------------- sums

TAKES_SUMS = {
    "encode": lambda m, a, b: sums.encode(a, b, LAYOUT),
    "classify": lambda m, a, b: carries.classify(a, b, 2),
    "predict": lambda m, a, b: measure.predict(m, a, b)[0],
    "score": lambda m, a, b: measure.score(ANSWER, a, b).accuracy.nan_to_num(),
    "attention": lambda m, a, b: measure.attention(m, a, b),
    "patch": lambda m, a, b: m(tokens_of(SMALL, count=3), Patch(mlps={1}).hook(m, (a, b))),
}
PAIRS = sample_pairs(Contrast("carry_in", 0), 5, torch.Generator().manual_seed(0), LAYOUT)
A, B = torch.tensor([15, 58, 64]), torch.tensor([71, 41, 35])
ANSWER = torch.tensor([[8, 6], [9, 9], [9, 9]])
SAME_SUMS = {
    "uint8": (A.to(torch.uint8), B.to(torch.uint8)),
    "NumPy, uint64": (A.numpy().astype(np.uint64), B.numpy().astype(np.uint64)),
    "NumPy, backwards": (A.flip(0).numpy()[::-1], B.flip(0).numpy()[::-1]),
    "of two types": (A.to(torch.int32), B.tolist()),
}
NO_SUMS = {
    "floats": (A + 0.7, B.float()),
    "booleans": (A > 20, B > 20),
    "negative": (-A, B),
    "unequal lengths": (A, B[:2]),
    "too many digits": (A + 100, B),
    "digits that carry": (A, B + 28),
}


@pytest.mark.parametrize("name", TAKES_SUMS)
def test_whatever_takes_sums_takes_every_integer_type_and_nothing_else(name, small):
    expected = TAKES_SUMS[name](small, A, B)
    for kind, (a, b) in SAME_SUMS.items():
        assert torch.equal(TAKES_SUMS[name](small, a, b), expected), kind
    for kind, (a, b) in NO_SUMS.items():
        if name in ("classify", "score") and kind == "too many digits":
            continue  # these look at the last digits only
        with pytest.raises(BadInput, match="expected"):
            TAKES_SUMS[name](small, a, b)


def test_one_sum_is_a_pair_of_ints(small):
    row = sums.encode(torch.tensor([15]), torch.tensor([71]), LAYOUT)
    assert torch.equal(sums.encode(15, 71, LAYOUT), row[0])
    assert torch.equal(measure.predict(small, 15, 71)[0], small(row)[:, -2:].argmax(-1))
    assert carries.classify(15, 71, 2) == 0


def test_eight_bit_operands_do_not_wrap_around():
    a, b = torch.tensor([200], dtype=torch.uint8), torch.tensor([100], dtype=torch.uint8)
    assert sums.encode(a, b, Layout(causal=True)).tolist() == [[2, 0, 0, 10, 1, 0, 0, 3, 0, 0]]
    assert sums.targets(a, b, Layout()).tolist() == [[3, 0, 0]]
    assert measure.correct_digits(load("n2_s0.3_w0.2").model(0), a, b).all()


# ---------------------------------------------------------------- sizes, classes, names


GENERATOR = torch.Generator()
# What would give a wrong number, were it not refused.
REFUSED = {
    "no such class": lambda m: carries.sample_class("020", 3, GENERATOR),
    "a carry out": lambda m: carries.n_sums_in_class("10"),
    "attention to a longer sum": lambda m: measure.class_attention(m, ["0111"], 3, 0),
    "digits of a negative number": lambda m: sums.digits(torch.tensor([7, -1]), 3),
    "an index beyond all sums": lambda m: sums.unrank(torch.tensor([5050]), 2),
    "digits whose carry is cut off": lambda m: measure.accuracy(m, A + 5, B, n_digits=1),
    "one position less": lambda m: m(tokens_of(SMALL)[:, :-1]),
    "a cache of another shape": lambda m: Patch(mlps={1}).hook(
        m, {"blocks.1.mlp_out": torch.ones(6, 16)}
    ),
    "as many predictions": lambda m: measure.score(torch.zeros(2, 2, dtype=torch.int64), A, B),
    "no intervention": lambda m: measure.accuracy(m, A, B, []),
    "attention to no class": lambda m: measure.class_attention(m, [], 3, 0),
    "sums of no class": lambda m: carries.sample_classes([], 3, GENERATOR),
    "a seed beyond 64 bits with a sign": lambda m: measure.sample(1, 2, seed=2**63),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_counted_wrong_is_refused(name, small):
    with pytest.raises(BadInput, match="expected"):
        REFUSED[name](small)


def test_sums_of_one_digit_have_one_class():
    a, b = measure.sample(20, 1, 0)
    assert carries.patterns(1) == ("0",)
    assert (a + b < 10).all()
    model = random_model(ModelConfig(width=1, d_model=16, d_ff=8), noise=0.3)
    assert list(measure.accuracy(model, a, b).carry_class) == ["0"]


def test_rows_of_interventions_that_read_alike_can_be_told_apart(small):
    first, second = (
        Ablation(neurons={(1, i) for i in range(start, start + 9)}) for start in (0, 1)
    )
    assert str(first) == str(second)
    frame = measure.accuracy(small, *drawn(SMALL), [first, second, first])
    assert list(frame.ablation.unique()) == [str(first), f"{first} (2)", f"{first} (3)"]


# ---------------------------------------------------------------- what a hook returns


WRONG = {
    "fewer rows": lambda x: x[:1],
    "a last axis of one": lambda x: x[..., :1],
    "another dtype": lambda x: x.double(),
}


def test_at_every_point_a_hook_returns_what_fits_or_is_refused(small):
    tokens = tokens_of(SMALL)
    plain = small(tokens)
    for name in SMALL.hook_names:
        for f in WRONG.values():
            with pytest.raises(BadInput, match=f"A hook at {name} returned .*expected"):
                small.run_with_hooks(tokens, {name: f})
        with pytest.raises(BadInput, match=f"A hook at {name} returned"):
            small.run_with_cache(tokens, hook=lambda n, x, name=name: x[:1] if n == name else x)
    assert torch.equal(small(tokens, lambda name, x: None), plain)
    assert torch.equal(
        small.run_with_hooks(tokens, dict.fromkeys(SMALL.hook_names, lambda x: None)), plain
    )
    assert torch.equal(small.run_with_cache(tokens, hook=lambda name, x: None)[0], plain)


def test_a_hook_that_works_in_place_changes_its_own_point_only():
    """Logits and cache are those of a hook that returns a new tensor, at every point."""
    config = SHAPES["encoder"]
    model, tokens = random_model(config, noise=0.2), tokens_of(config)
    for point in config.hook_names:

        def new(name, x, point=point):
            return x * 0.5 if name == point else x

        def in_place(name, x, point=point):
            return x.mul_(0.5) if name == point else x

        expected, cache = model.run_with_cache(tokens, hook=new)
        logits, changed_cache = model.run_with_cache(tokens, hook=in_place)
        assert torch.equal(logits, expected), point
        assert all(torch.equal(changed_cache[name], cache[name]) for name in cache), point


def test_a_hook_is_told_the_positions_of_what_it_is_given(small):
    """They outlast copies."""
    points = {}
    small(tokens_of(SMALL), lambda name, x: points.update({name: x.shape}), [6, 4])
    for name in pickle.loads(pickle.dumps([*copy.deepcopy(points)])):
        rows = points[name][-3 if name.endswith(("attn.q", "attn.k", "attn.v", "attn.z")) else -2]
        last = name == "logits" or name.startswith("blocks.1")
        few = last and not name.endswith(("resid_pre", "attn.k", "attn.v"))
        assert name.positions == ((6, 4) if few else tuple(range(7)))
        assert rows == len(name.positions)


def test_a_watcher_changes_nothing(small):
    a, b = drawn(SMALL)
    everything = [INTACT, Ablation(mlps={1}), Ablation(heads={(0, 1)})]
    expected = measure.predict(small, a, b, everything)
    for watch in (lambda name, x: x.zero_(), lambda name, x: x * 0, lambda name, x: None):
        answers = measure.predict(small, a, b, everything, watch=watch)
        assert all(map(torch.equal, answers, expected))


# ---------------------------------------------------------------- the positions a model is asked
# for


def made_for(model, read, kind, positions):
    part = {"heads": {(0, 1), (1, 0)}, "names": {"logits"}, "mlps": {1}, "patterns": {(1, 1)}}
    return kind(**part, positions=positions).hook(model, drawn(SMALL, 7), read)


@pytest.mark.parametrize("kind", [Ablation, MeanAblation, Patch])
@pytest.mark.parametrize("positions", [None, (5,), (2, 6)])
def test_a_hook_works_whatever_positions_it_was_made_for(small, kind, positions):
    """A hook made for other positions gives the rows of a full pass, or an error."""
    tokens = tokens_of(SMALL)
    reads = [None, [5], [-1], [6, 5], [6, 5, 4, 3, 2, 1, 0]]
    full = small(tokens, made_for(small, None, kind, positions))
    length = LAYOUT.length
    for hook_read, model_read in product(reads, repeat=2):
        hook = made_for(small, hook_read, kind, positions)
        has = set(range(length)) if hook_read is None else {p % length for p in hook_read}
        rows = list(range(length)) if model_read is None else [p % length for p in model_read]

        def wrapped(name, x, hook=hook):
            return hook(name, x)

        if kind is Ablation or {*rows} <= has:
            logits = small(tokens, wrapped, model_read)
            assert_close(logits, full[:, rows])
        else:
            with pytest.raises(BadInput, match="make its hook with the same `read`"):
                small(tokens, wrapped, model_read)


def test_cached_activations_are_taken_at_their_own_positions(small):
    tokens, source_tokens = tokens_of(SMALL), tokens_of(SMALL, seed=9)
    _, cache = small.run_with_cache(source_tokens)
    patch, reversed_cache = (
        Patch(mlps={1}, positions=(5,)),
        {"blocks.1.hook_mlp_out": cache["blocks.1.mlp_out"]},
    )
    expected = small(tokens, patch.hook(small, drawn(SMALL, 9)))
    for source in (cache, reversed_cache, {name: x.double() for name, x in cache.items()}):
        assert torch.equal(small(tokens, patch.hook(small, source)), expected)
        for read in ([6, 5], [6, 5, 4, 3, 2, 1, 0]):
            logits = small(tokens, patch.hook(small, source, read), read)
            assert_close(logits, expected[:, read])


@pytest.mark.parametrize("cached", [[5, 6], [6, 5], [4], [6, 5, 4, 3, 2, 1, 0]])
@pytest.mark.parametrize("read", [None, [5], [6, 5], [5, 4]])
def test_a_cache_of_some_positions_is_taken_at_these_or_refused(small, cached, read):
    """Its names know them: those read out, or of a new dict with other values."""
    tokens, name, numbers = tokens_of(SMALL), "blocks.1.hook_mlp_out", drawn(SMALL, 9)
    patch, mean = Patch(mlps={1}), MeanAblation(mlps={1})
    read_out = measure.activations(small, *numbers, name, read=cached)
    averaged = {point: x.mean(0) for point, x in read_out.items()}
    sources = [(patch, read_out), (mean, averaged)]
    for intervention, source in sources:
        expected = small(tokens, intervention.hook(small, numbers, read), read)
        if {*(read or range(LAYOUT.length))} <= {*cached}:
            assert_close(small(tokens, intervention.hook(small, source, read), read), expected)
        else:
            with pytest.raises(BadInput, match=re.escape(f"values for the positions {cached}")):
                small(tokens, intervention.hook(small, source, read), read)


def test_a_plain_name_in_a_cache_has_all_positions(small):
    cache = measure.activations(small, *drawn(SMALL), "blocks.1.mlp_out", read=[5])
    source = {str(name): x for name, x in cache.items()}
    with pytest.raises(BadInput, match=r"expected the positions \[0, 1, 2, 3, 4, 5, 6\]"):
        Patch(mlps={1}).hook(small, source, [5])
    everything = measure.activations(small, *drawn(SMALL), None)
    _, from_pass = small.run_with_cache(tokens_of(SMALL), [*cache])
    assert {type(name) for name in (*everything, *from_pass)} == {str}


# ---------------------------------------------------------------- a model that was changed


class Doubled(Transformer):
    def forward(self, *args, **options):
        return -super().forward(*args, **options)


class LowRank(nn.Module):
    """A wrapper that has the weights of what it wraps, and adds to its output."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias) - 3 * x


def hook_on(name):
    def change(model):
        model.get_submodule(name).register_forward_hook(lambda module, inputs, out: -out)

    return change


def replace_forward(model):
    forward = model.forward
    model.forward = lambda *args, **options: -forward(*args, **options)


def replace_method(model):
    mlp = model.blocks[1].mlp
    model.blocks[1].mlp = lambda mid, hook: -mlp(mid, hook)


class Negative(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return -weight


CHANGES = {
    "hook on the model": hook_on(""),
    "hook on a projection": hook_on("blocks.0.o"),
    "hook before a projection": lambda m: m.blocks[0].o.register_forward_pre_hook(
        lambda _, x: (-x[0],)
    ),
    "wrapper": lambda m: setattr(m.blocks[0], "o", LowRank(m.blocks[0].o)),
    "another part": lambda m: setattr(m.blocks[0], "norm", nn.Identity()),
    "another embedding": lambda m: setattr(m.embed, "max_norm", 0.5),
    "no bias": lambda m: m.blocks[0].o.register_parameter("bias", None),
    "subclass": lambda m: setattr(m, "__class__", Doubled),
    "another forward": replace_forward,
    "another method": replace_method,
    "parametrization": lambda m: parametrize.register_parametrization(
        m.blocks[0].o, "weight", Negative()
    ),
    "pruning": lambda m: prune.l1_unstructured(m.blocks[0].o, "weight", 0.5),
}


# Two of them, for tests of what asks `is_plain` as well.
TWO_CHANGES = ("hook on a projection", "subclass")


@pytest.mark.machine
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_measured_is_what_the_model_gives(change):
    model, (a, b) = random_model(SMALL, 3, noise=0.3), drawn(SMALL, count=50)
    tokens, read = sums.encode(a, b, LAYOUT), LAYOUT.answer
    before = model(tokens)
    CHANGES[change](model)
    interventions = [
        INTACT,
        Ablation(heads={(0, 1)}),
        Patch(mlps={0}, source=(2, 6)) | Ablation(skips={0}),
    ]
    expected = [model(tokens, intervention.hook(model))[:, read] for intervention in interventions]
    for logits, exact in zip(
        engine.passes(model, interventions, read)(tokens), expected, strict=True
    ):
        assert_close(logits, exact)
    for answer, exact in zip(measure.predict(model, a, b, interventions), expected, strict=True):
        assert torch.equal(answer, exact.argmax(-1).to(torch.int8))
    assert not plain.is_plain(model)
    assert not torch.allclose(expected[0], before[:, read], rtol=0, atol=1e-3)


def without_skip(block, mid, hook):
    return block.down(block.up(block.norm(mid)).relu())


def sees_no_future(model):
    model.blocks[1].config = replace(model.config, causal=True)


def shorter(model):
    config = replace(model.config, width=model.config.width - 1)
    for part in (model, *model.blocks):
        part.config = config


@pytest.mark.parametrize(
    "change",
    [sees_no_future, shorter, "method", "function", "norm", "softmax", "flatten", "modes unknown"],
)
def test_a_model_that_was_changed_after_loading_is_measured_as_it_is(change, monkeypatch):
    model = random_model(SMALL, 3, noise=0.3)
    if change == "method":
        monkeypatch.setattr(Block, "mlp", without_skip)
    elif change == "function":
        monkeypatch.setattr("carry_core.model.rotate", lambda x, rotation: x)
    elif change == "norm":
        monkeypatch.setattr(nn.LayerNorm, "forward", lambda norm, x: x * norm.weight)
    elif change == "softmax":
        monkeypatch.setattr(Tensor, "softmax", lambda scores, axis: scores.sigmoid())
    elif change == "flatten":
        flatten = Tensor.flatten
        monkeypatch.setattr(Tensor, "flatten", lambda x, *axes: -flatten(x, *axes))
    elif change == "modes unknown":
        monkeypatch.delattr("torch.overrides._get_current_function_mode_stack")
    else:
        change(model)
    a, b = drawn(model.config, count=150)
    # An engine that is imported only now does not take what was replaced for the original.
    assert not reload(plain).is_plain(model)
    expected = model(sums.encode(a, b, model.config.layout))[:, model.config.layout.answer]
    (answer,) = measure.predict(model, a, b)
    assert torch.equal(answer, expected.argmax(-1).to(torch.int8))


@pytest.mark.parametrize("order", [[0], [0, 0], [1, 0]], ids=["too few", "shared", "swapped"])
def test_blocks_that_are_not_those_of_the_config_are_refused(order):
    """Their hook points have names that say other layers, and answers would be of another model."""
    model = random_model(SMALL, 3)
    model.blocks = nn.ModuleList(model.blocks[layer] for layer in order)
    for ablation in (Ablation(), Ablation(heads={(0, 0)})):
        with pytest.raises(BadInput, match="not the 2 of its config"):
            measure.accuracy(model, *measure.sample(2, 2, seed=0), ablation)


@pytest.mark.parametrize("part", ["norm", "unembed"])
def test_a_part_of_another_type_is_computed_by_the_model_itself(part):
    model = random_model(SMALL, 3)
    getattr(model, part).double()
    assert not plain.is_plain(model)


def test_what_other_libraries_do_to_every_module_changes_no_engine(monkeypatch):
    """`torch.compile` replaces `Module.__init__`, and adds functions to a module, for good."""
    model = random_model(SMALL, 3, noise=0.3)
    monkeypatch.setattr(nn.Module, "__setstate__", lambda module, state: None)
    monkeypatch.setattr(nn.Module, "smart_apply", lambda module, apply: None, raising=False)
    monkeypatch.setattr("carry_core.model.__compiled_fn_1", lambda tokens: tokens, raising=False)
    assert plain.is_plain(model)


class Scaled(Ablation):
    """An intervention with a value of its own, which equality and hook points do not show."""

    factor = 0.0

    def values(self, model, names, source, read):
        return dict.fromkeys(names, self.factor)


class Quieter(Ablation):
    """An intervention that names no part and changes one nonetheless."""

    def hook(self, model, source=None, read=None):
        return lambda name, x: -x if name == "blocks.1.mlp_out" else x


def scaled(factor):
    intervention = Scaled(heads={(0, 1)})
    object.__setattr__(intervention, "factor", factor)
    return intervention


def test_a_subclass_of_an_intervention_does_what_its_hook_does(small):
    (a, b), read = drawn(SMALL, count=50), LAYOUT.answer
    interventions = [INTACT, scaled(0.0), scaled(9.0), Quieter(), Combined((INTACT, Quieter()))]
    tokens = sums.encode(a, b, LAYOUT)
    logits = engine.passes(small, interventions, read)(tokens)
    for actual, intervention in zip(logits, interventions, strict=True):
        expected = small(tokens, intervention.hook(small, read=read), read)
        assert torch.equal(actual, expected)
    assert not torch.equal(logits[1], logits[2])
    assert not torch.equal(logits[0], logits[3])


class Shifted(MeanAblation):
    """A mean ablation with values of its own."""

    def values(self, model, names, source, read):
        means = super().values(model, names, source, read)
        return {name: mean + torch.linspace(-3, 3, mean.shape[-1]) for name, mean in means.items()}


def test_a_subclass_of_mean_ablation_has_its_own_values_over_the_given_sums():
    small, (a, b) = random_model(SMALL, 3, noise=0.5), drawn(SMALL, count=50)
    tokens, read = sums.encode(a, b, LAYOUT), LAYOUT.answer
    heads = {(0, 1), (1, 0)}
    interventions = [MeanAblation(heads=heads), Shifted(heads=heads), Shifted(mlps={1})]
    tables = measure.class_accuracies(small, a, b, interventions)
    answers_by_intervention = []
    for table, intervention in zip(tables, interventions, strict=True):
        answers = small(tokens, intervention.hook(small, (a, b), read), read).argmax(-1)
        expected = measure.score(answers, a, b)
        assert torch.equal(table.accuracy.nan_to_num(), expected.accuracy.nan_to_num())
        answers_by_intervention.append(answers)
    assert not torch.equal(answers_by_intervention[0], answers_by_intervention[1])


def test_autocast_takes_the_plain_pass(small):
    read, tokens = LAYOUT.answer, tokens_of(SMALL)
    interventions = [INTACT, Ablation(mlps={1}), Patch(heads={(0, 1)}, source=(2, 6))]
    precise = small(tokens)[:, read]
    with torch.autocast("cpu", torch.bfloat16):
        assert not plain.is_precise(small)
        logits = engine.passes(small, interventions, read)(tokens)
        for actual, intervention in zip(logits, interventions, strict=True):
            assert torch.equal(actual, small(tokens, intervention.hook(small, read=read), read))
        with pytest.raises(BadInput, match="in float32 or float64"):
            survey(small, *sums.all_sums(2), Need(dissect=True))
    assert plain.is_precise(small)
    assert not torch.equal(logits[0].float(), precise)


@pytest.mark.machine
def test_swaps_and_surveys_of_a_model_in_half_precision_read_no_weights(small):
    assert isinstance(swaps_between(small, PAIRS), RowSwaps)
    model = small.bfloat16()
    swaps = swaps_between(model, PAIRS)
    assert isinstance(swaps, PatchedPasses)
    answer = model(sums.encode(*PAIRS[0], LAYOUT))[:, LAYOUT.answer].argmax(-1)
    assert torch.equal(swaps.answers[0], answer)
    with pytest.raises(BadInput, match="in float32 or float64"):
        survey(model, *sums.all_sums(2), Need(dissect=True))


@pytest.mark.machine
def test_a_model_in_half_precision_gives_its_own_logits(small):
    """Its last bits decide digits: another order of sums, as of a shared prefix, gives others."""
    model, read = small.bfloat16(), LAYOUT.answer
    tokens = tokens_of(SMALL)
    interventions = [INTACT, Ablation(mlps={1}), Ablation(skips={1})]
    for logits, intervention in zip(
        engine.passes(model, interventions, read)(tokens), interventions, strict=True
    ):
        assert torch.equal(logits, model(tokens, intervention.hook(model, read=read), read))


class Doubling(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        return 2 * out if function is F.linear else out


class DoublingBelow(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        return 2 * out if function is torch.ops.aten.relu.default else out


@pytest.mark.parametrize("mode", [Doubling, DoublingBelow])
def test_a_mode_that_changes_pytorch_s_functions_changes_what_is_measured(mode):
    model, tokens = random_model(SMALL, 3, noise=0.3), tokens_of(SMALL)
    before = model(tokens)
    with mode():
        expected = model(tokens)
        (logits,) = engine.passes(model, [INTACT])(tokens)
    assert torch.equal(logits, expected)
    assert not torch.allclose(logits, before, rtol=0, atol=1e-3)
    with torch.device("cpu"):  # a mode that changes no number
        assert plain.is_plain(model)


def test_a_hook_for_all_modules_is_noticed(small):
    assert plain.is_plain(small)
    handle = nn.modules.module.register_module_forward_hook(lambda module, inputs, out: None)
    try:
        assert not plain.is_plain(small)
    finally:
        handle.remove()
    assert plain.is_plain(small)
    small.blocks[0].o.weight.requires_grad_().register_hook(lambda gradient: 0 * gradient)
    assert plain.is_plain(small)  # changes gradients only


# ---------------------------------------------------------------- an ordinary module


MOVED = {
    "to a tensor's": lambda m: m.to(torch.zeros(1, dtype=torch.float16)),
    "bfloat16": lambda m: m.bfloat16(),
    "half and to double": lambda m: m.half().double(),
    "pickled": lambda m: pickle.loads(pickle.dumps(m)),
    "without memory and back": lambda m: onto_meta(m).to_empty(device="cpu"),
    "without memory": lambda m: onto_meta(m),
}


def onto_meta(model: Transformer) -> Transformer:
    with torch.device("meta"):
        return Transformer(model.config)


@pytest.mark.parametrize("move_name", MOVED)
def test_a_model_that_is_moved_computes_the_same(move_name):
    """Against the float64 model, whose weights every one of these types holds exactly."""
    config = SHAPES["decoder"]
    model = random_model(config, noise=0.2).bfloat16().half().float()
    expected = copy.deepcopy(model).double()(tokens_of(config))
    moved = MOVED[move_name](model)
    if "without memory" in move_name:
        moved.load_state_dict(model.state_dict(), assign=True)
    assert not any(x.is_complex() for x in (*moved.parameters(), *moved.buffers()))
    logits = moved(tokens_of(config))
    assert_close(logits, expected)
    _, cache = moved.run_with_cache(tokens_of(config))
    assert {x.dtype for x in cache.values()} == {logits.dtype}
    a, b = drawn(config)
    answer = measure.predict(moved, a, b)[0]
    gap = expected[:, list(config.layout.answer)].sort(-1).values[..., -2:].diff(dim=-1)[..., 0]
    sure = gap > 2 * tolerance(logits.dtype, float(expected.abs().max()))
    digits = expected[:, list(config.layout.answer)].argmax(-1)
    assert torch.equal(answer[sure].long(), digits[sure])
    assert sure.any()


@pytest.mark.slow
def test_a_model_can_be_transformed_by_pytorch():
    config = SHAPES["encoder"]
    model, tokens = random_model(config, noise=0.2), tokens_of(config)
    expected = model(tokens)
    weights = dict(model.named_parameters())
    assert_close(torch.func.vmap(lambda row: model(row[None])[0])(tokens), expected)

    def loss_of(weights):
        return torch.func.functional_call(model, weights, (tokens,)).square().sum()

    gradients = torch.func.grad(loss_of)(weights)
    model.requires_grad_()
    model(tokens).square().sum().backward()
    for name, p in model.named_parameters():
        assert_close(gradients[name], p.grad, msg=name)


COMPILED = """
import sys

import torch
from carry_core import ModelConfig, Patch, Transformer, encode, measure, runs
from tests.helpers.tolerances import assert_close

_, model = next(runs.load("n2_s0.3_w0.2", "ours").models())
measure.class_accuracies(model, [15], [71])
assert "torch._dynamo" not in sys.modules, "a measurement imports the compiler, in a second"

torch.manual_seed(0)
model = Transformer(ModelConfig(layers=1, width=2, d_model=16, d_ff=12))
tokens = encode([15, 58], [71, 41], model.config.layout)
compiled = torch.compile(model, backend="eager", fullgraph=True)
patch = Patch(mlps={0}, heads={(0, 1)}, positions=(5,), source=(2, 6))
expected = model(tokens, patch.hook(model))
# Compiled, a model with a hook always computes all positions, so the hook is made for all.
assert_close(compiled(tokens, patch.hook(model)), expected)
"""


@pytest.mark.slow
def test_a_model_can_be_compiled_with_its_hooks():
    """In a process of its own: a compiler cannot look into the checks of types that tests make."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.machine
@pytest.mark.slow
def test_a_model_is_used_by_many_threads(small):
    tokens, a = tokens_of(SMALL), drawn(SMALL)
    hooks = [Ablation(heads={(1, i)}, positions=(5 + i,)).hook(small) for i in range(2)]
    expected = [small(tokens, hook) for hook in hooks]
    answers = measure.predict(small, *a)[0]

    def use(i):
        assert torch.equal(measure.predict(small, *a)[0], answers)
        return torch.equal(small(tokens, hooks[i % 2]), expected[i % 2])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(64)))


def test_a_loaded_run_is_a_plain_model_whose_parts_can_be_trained():
    model = load("n1_s0.3_w0.2", runs=[0]).model(0)
    assert {type(part) for part in model.modules()} == set(plain.engine.MODULES)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    biases = [part.bias for part in model.modules() if isinstance(part, nn.Linear | nn.LayerNorm)]
    for bias in biases:
        bias.requires_grad_()
    model(tokens_of(model.config))[:, 7:].square().sum().backward()
    assert all(bias.grad is not None and bias.grad.abs().max() > 0 for bias in biases)


def test_a_probe_can_be_trained_on_what_is_measured(small):
    a, b = drawn(SMALL)
    small.requires_grad_()
    stream = measure.activations(small, a, b, ["blocks.1.resid_mid"])["blocks.1.resid_mid"]
    answer = measure.predict(small, a, b)[0]
    probe = nn.Linear(16, 12)
    nn.functional.cross_entropy(probe(stream[:, 5]), answer[:, 0].long()).backward()
    assert probe.weight.grad.abs().max() > 0
    tensors = [
        stream,
        answer,
        measure.attention(small, a, b),
        measure.class_accuracies(small, a, b)[0].accuracy,
    ]
    assert not any(x.is_inference() or x.requires_grad for x in tensors)


def test_hooks_made_in_inference_mode_can_be_trained_through(small):
    with torch.inference_mode():
        measure.predict(small, *drawn(SMALL))
    hook = Ablation(mlps={1}, positions=(5,)).hook(small)
    with torch.inference_mode():
        small(tokens_of(SMALL), hook, [5])
    small.requires_grad_()
    small(tokens_of(SMALL), hook).sum().backward()
    assert small.embed.weight.grad is not None


# ---------------------------------------------------------------- speed


@pytest.mark.parametrize("name", ["embed", "blocks.0.attn.pattern", "blocks.1.resid_pre"])
def test_a_pass_ends_with_the_last_activation_that_is_read(name):
    config = SHAPES["encoder"]
    model, tokens = random_model(config, 1, noise=0.3), tokens_of(config)
    seen = []

    def hook(point, x):
        seen.append(point)
        return 2 * x if point == "embed" else x

    names = [name, "embed"]
    ended = activations_at(model, tokens, names, hook=hook)
    _, whole = model.run_with_cache(tokens, names, hook)
    assert seen[-1] == "logits"
    assert seen[: len(seen) - len(config.hook_names)][-1] == name
    assert ended.keys() == whole.keys()
    for point in names:
        assert torch.equal(ended[point], whole[point])
    assert activations_at(model, tokens, []) == {}
