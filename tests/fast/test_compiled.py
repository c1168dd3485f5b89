"""The parts in C++ (`native/forward.cpp`) against the same parts by PyTorch, and `model.py`."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from carry_core.interventions import INTACT
from carry_core.model import ModelConfig
from carry_fast import compiled, prefixes
from carry_fast.blocks import PlainBlock, Zeroed
from carry_fast.compiled import CompiledBlock, CompiledFirstLayer, CompiledUnembedding
from tests.conftest import random_model, tokens_of, zero_ablations
from tests.helpers.tolerances import assert_close

# The smallest and largest models that there is room for, and some in between.
SHAPES = {
    "one layer": ModelConfig(layers=1, width=3, d_ff=16),
    "two layers": ModelConfig(layers=2, width=3),
    "wide": ModelConfig(layers=2, width=1, d_ff=1024),
    "long decoder": ModelConfig(layers=2, width=10, causal=True, d_ff=16),
}
# Fewer sums or rows than pass through together, and more.
COUNTS = (1, 49)
CONDITIONS = [
    Zeroed(),
    Zeroed(skip=True),
    Zeroed(frozenset({0})),
    Zeroed(frozenset({1}), skip=True),
    Zeroed(frozenset({0, 1})),
]


pytestmark = pytest.mark.needs("the forward pass in C++")


def stream(count, positions, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, positions, compiled.D_MODEL, generator=generator)


@pytest.fixture(params=["this processor", "AVX2 alone"])
def vectors(request, processor_with):
    """Vectors as wide as here, and those of AVX2."""
    if request.param == "AVX2 alone":
        processor_with(compiled.INSTRUCTIONS)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_each_part_is_pytorch_s(shape, count, vectors):
    config = SHAPES[shape]
    model, tokens = random_model(config, 1, noise=0.1), tokens_of(config, count=count)
    block = model.blocks[-1]
    embedded = model.embed(tokens) * compiled.D_MODEL**0.5
    for query in ([*range(config.layout.length)], [*config.layout.answer], [2, 0]):
        first = PlainBlock(model.blocks[0], query)
        expected = first.mids(embedded[:, query], first.z(embedded), CONDITIONS)
        actual = CompiledFirstLayer(model).mids(tokens, query, CONDITIONS)
        for zeroed in CONDITIONS:
            assert_close(actual[zeroed], expected[zeroed])

        by_torch, by_compiler = PlainBlock(block, query), CompiledBlock(block, query)
        resid = stream(count, config.layout.length)
        z = by_torch.z(resid)
        assert_close(by_compiler.z(resid), z)
        expected = by_torch.mids(resid[:, query], z, CONDITIONS)
        actual = by_compiler.mids(resid[:, query], z, CONDITIONS)
        for zeroed in CONDITIONS:
            mid = expected[zeroed]
            assert_close(actual[zeroed], mid)
            assert_close(by_compiler.after(mid, zeroed), by_torch.after(mid, zeroed))
        for silent in ({0}, set(range(0, config.d_ff, 2)), set(range(config.d_ff))):
            zeroed = Zeroed(neurons=frozenset(silent))
            assert_close(by_compiler.after(mid, zeroed), by_torch.after(mid, zeroed))
        assert by_compiler.after(mid, Zeroed(mlp=True)) is mid
        assert_close(CompiledUnembedding(model)(mid), model.unembed(model.norm(mid)))


def test_threads_read_out_their_own_positions_of_one_layer():
    config = SHAPES["one layer"]
    first, tokens = (
        CompiledFirstLayer(random_model(config, 1, noise=0.1)),
        tokens_of(config, count=200),
    )
    queries = [[*range(config.layout.length)], [7], [8, 9]]
    expected = [first.mids(tokens, query, CONDITIONS) for query in queries]

    def differences(i):
        actual = first.mids(tokens, queries[i % 3], CONDITIONS)
        return sum(not torch.equal(actual[z], expected[i % 3][z]) for z in CONDITIONS)

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(differences, range(300))) == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_default_type_of_new_tensors_changes_nothing(dtype):
    """C++ writes float32: into a tensor of a smaller type it would write past the end."""
    config = SHAPES["two layers"]
    model, tokens = random_model(config, 1, noise=0.1), tokens_of(config, count=25)
    expected = model(tokens)
    compiled._is_right.cache_clear()
    torch.set_default_dtype(dtype)
    try:
        (logits,) = prefixes.SharedPrefix(model, [INTACT])(tokens)
    finally:
        torch.set_default_dtype(torch.float32)
        compiled._is_right.cache_clear()
    assert_close(logits, expected)


def test_weights_whose_memory_holds_their_negatives_are_read_as_they_are():
    """PyTorch negates such a view when it is read, as the imaginary part of a conjugate."""
    config = SHAPES["two layers"]
    model, tokens = random_model(config, 1, noise=0.1), tokens_of(config)
    expected = model(tokens)
    for parameter in model.parameters():
        parameter.data = torch._neg_view(-parameter.data)
    (logits,) = prefixes.SharedPrefix(model, [INTACT])(tokens)
    assert_close(logits, expected)


@pytest.mark.parametrize("shape", ["two layers", "long decoder"])
def test_under_every_zero_ablation_the_logits_are_those_of_the_model(shape):
    config = SHAPES[shape]
    model, tokens = random_model(config, 1, noise=0.1), tokens_of(config, count=40)
    ablations = zero_ablations(config)[::2]
    for read in (None, config.layout.answer):
        shared = prefixes.SharedPrefix(model, ablations, read)
        assert isinstance(shared.blocks[0], CompiledBlock)
        intact = model(tokens, read=read)
        for ablation, logits in zip(ablations, shared(tokens), strict=True):
            expected = model(tokens, ablation.hook(model, read=read), read)
            scale = float(expected.abs().max())
            assert_close(logits, expected)
            assert ablation == INTACT or (logits - intact).abs().max() > 1e-3 * scale, ablation


@pytest.mark.parametrize("shape", ["one layer", "long decoder"])
def test_the_terms_of_a_softmax_may_be_too_small_for_float64(shape):
    config = SHAPES[shape]
    model, tokens = random_model(config, 1, noise=0.1), tokens_of(config, count=40)
    assert CompiledFirstLayer(model).has_usable_terms
    scores = model.run_with_cache(tokens, "blocks.0.attn.scores")[1]["blocks.0.attn.scores"]
    spread = scores.max() - scores[scores.isfinite()].min()
    model.blocks[0].q.weight *= 4_000 / spread
    model.blocks[0].q.bias *= 4_000 / spread
    assert not CompiledFirstLayer(model).has_usable_terms
    (logits,) = prefixes.SharedPrefix(model, [INTACT])(tokens)
    expected = model(tokens)
    # float32 rounds scores of some thousands to a few times 1e-4
    assert_close(logits, expected, scale=200 * float(expected.abs().max()))


@pytest.mark.parametrize("layer", [0, 1])
def test_scores_too_large_for_float32_give_nan_as_in_the_model(layer, monkeypatch):
    config = SHAPES["two layers"]
    model, tokens = random_model(config, 1, noise=0.1), tokens_of(config, count=40)
    for part in (model.blocks[layer].q, model.blocks[layer].k):
        part.weight *= 1e20
    is_nan = model(tokens).isnan()
    assert is_nan.any()
    for is_compiled in (compiled.is_compiled, lambda model: False):
        monkeypatch.setattr(compiled, "is_compiled", is_compiled)
        (logits,) = prefixes.SharedPrefix(model, [INTACT])(tokens)
        assert torch.equal(logits.isnan(), is_nan)


def test_no_bit_depends_on_the_number_of_threads():
    """The first layer's tables are made once: MKL may round them otherwise with more threads."""
    config = SHAPES["two layers"]
    model, tokens = random_model(config, 1, noise=0.1), tokens_of(config, count=260)
    threads = torch.get_num_threads()
    prefix = prefixes.SharedPrefix(model, [INTACT])
    logits = []
    for n_threads in (1, 2, 5):
        torch.set_num_threads(n_threads)
        try:
            logits.append(prefix(tokens)[0])
        finally:
            torch.set_num_threads(threads)
    assert torch.equal(logits[0], logits[1])
    assert torch.equal(logits[0], logits[2])


def test_what_there_is_no_room_for_is_computed_by_pytorch():
    fits = ModelConfig(layers=3, width=10, d_ff=1024)
    assert compiled.is_compiled(random_model(fits))
    assert not compiled.is_compiled(random_model(fits).double())
    for other in (
        ModelConfig(layers=1, width=1, d_model=64),
        ModelConfig(layers=1, width=1, heads=4),
        ModelConfig(layers=1, width=1, d_ff=24),
        ModelConfig(layers=1, width=1, d_ff=1040),
        ModelConfig(layers=1, width=11, d_ff=16),
    ):
        assert not compiled.has_room(other), other


@pytest.mark.parametrize("layers", [1, 2])
def test_a_position_may_be_read_again_and_again(layers):
    read = [9, 9, 8] * 100
    config = ModelConfig(layers=layers, width=3, d_ff=16)
    model, tokens = random_model(config, 1, noise=0.1), tokens_of(config, count=30)
    (logits,) = prefixes.SharedPrefix(model, [INTACT], read)(tokens)
    assert_close(logits, model(tokens)[:, read])


def test_positions_are_counted_from_the_end_as_in_the_model():
    config = SHAPES["two layers"]
    model, tokens = random_model(config, 1, noise=0.1), tokens_of(config, count=30)
    (logits,) = prefixes.SharedPrefix(model, [INTACT], [-1, -3])(tokens)
    assert_close(logits, model(tokens)[:, [-1, -3]])


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("name", ["embed", "v"])
def test_a_finite_weight_that_overflows_gives_nan_as_in_the_model(name, layer):
    config = SHAPES["two layers"]
    model, tokens = random_model(config, 1, noise=0.1), tokens_of(config, count=40)
    part = model.embed if name == "embed" else getattr(model.blocks[layer], name)
    with torch.no_grad():
        part.weight[3] = 1e38
    expected = model(tokens)
    assert not expected.isfinite().all()
    (logits,) = prefixes.SharedPrefix(model, [INTACT])(tokens)
    assert torch.equal(logits.isnan(), expected.isnan())
