"""The fused step (`native/fused.cpp`) against autograd in float64; its masks, AdamW and build."""

import math
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from numpy.random import SFC64, SeedSequence

from carry_core.model import ModelConfig
from carry_fast import native
from carry_paper import catalogue
from carry_train import fused, groups
from carry_train.fused import FusedMasks, FusedStep
from carry_train.groups import Group
from carry_train.precisions import FUSED, FUSED_FP32, TORCH, TORCH_FP32, Precision
from carry_train.stacked import THRESHOLD, Stack, threshold_of
from carry_train.trainer import MOMENTS, Trainer
from tests.helpers import needs
from tests.helpers.trainings import QUICK, needs_fused, weights

pytestmark = [pytest.mark.slow, pytest.mark.machine]

SHAPES = {
    "two layers": ModelConfig(),
    "one-layer decoder, 100 neurons": ModelConfig(layers=1, causal=True, d_ff=100),
    "31 positions, more neurons": ModelConfig(width=10, d_ff=512),
    "three layers, 32 heads": ModelConfig(layers=3, heads=32),
    "four layers": ModelConfig(layers=4),
}
SIMULATED_SHAPES = ["two layers"]
# Vectors that the processor need not have, as wide as those of AVX512 and of NEON: the compiler
# makes them from the processor's own. Products of bf16 are then computed in float.
SIMULATED_LANES = {"bf16, AVX512": 16, "fp32, NEON": 4}
CASES = [*product(["fp32", "bf16"], SHAPES), *product(SIMULATED_LANES, SIMULATED_SHAPES)]
# Of gradients together, and of each parameter's, by relative distance.
TOLERANCES = {
    "fp32": (2e-6, 1e-5),
    "bf16": (0.02, 0.06),  # PyTorch's own bf16: 0.002 to 0.013, and up to 0.034
}


def simulated(format, lanes):
    """Return the step for vectors of `lanes` floats, optimised less, since that builds faster."""
    return native.library(fused.SOURCE, [*fused.flags(format, lanes), "-O1"], set())


@pytest.fixture
def build(request, monkeypatch):
    """A build's name, which begins with its format; `fused.library` is it."""
    return install(request.param, monkeypatch)


def install(build, monkeypatch):
    """Have `fused` take a build; skip the test where it cannot be built."""
    needs.require("the fused step in bf16" if build == "bf16" else "the fused step")
    if build in SIMULATED_LANES:
        monkeypatch.setattr(fused, "library", partial(simulated, lanes=SIMULATED_LANES[build]))
    return build


def format_of(build):
    return build[:4]


@pytest.fixture(params=CASES, ids=", ".join)
def case(request, monkeypatch):
    """A build, and a trainer whose parameters are away from where they start."""
    name, shape = request.param
    build = install(name, monkeypatch)
    trainer = Trainer(Group("x", SHAPES[shape], fraction=0.002, batch=64), QUICK, [0])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in trainer.parameters.values():
            p.add_(0.05 * torch.randn(p.shape, generator=generator))
    return build, trainer


def distance(ours, reference):
    """Return the relative distance of all tensors together."""
    apart = sum((ours[name] - reference[name]).square().sum() for name in reference)
    return math.sqrt(apart / sum(x.square().sum() for x in reference.values()))


def autograd(trainer, a, b, masks):
    """Return PyTorch's scores in float64, and its gradients."""
    stack = Stack(trainer.group.config, trainer.device, torch.float64, trainer.stack.threshold)
    p = {name: p.detach().double().requires_grad_() for name, p in trainer.parameters.items()}
    row = trainer.score(stack.logits(p, stack.rows(a, b), masks), trainer.targets(a, b))
    row["loss"].sum().backward()
    return row, {name: x.grad for name, x in p.items()}


def compare(trainer, build, seed, masks, count):
    """Loss, accuracies and gradients of the fused step on `count` sums beside those of autograd."""
    a, b = trainer.train[:, 0, :count], trainer.train[:, 1, :count]
    expected, gradients = autograd(trainer, a, b, masks)
    step = FusedStep(trainer.stack, trainer.parameters, [seed], format_of(build))
    row = step.step(trainer.stack.rows(a, b), trainer.targets(a, b))
    tolerance, of_worst = TOLERANCES[format_of(build)]
    assert row["loss"] == pytest.approx(expected["loss"].item(), rel=tolerance)
    # one near a tie
    assert all((row[x] - expected[x]).abs().max() <= 1.01 / count for x in ("accuracy", "whole"))
    ours = step.gradients
    in_use = sum(gradient.count_nonzero() for gradient in ours.values())
    assert step.flat.gradients.count_nonzero() == in_use  # none of neurons that are padding
    assert distance(ours, gradients) < tolerance
    assert all(distance({name: ours[name]}, {name: gradients[name]}) < of_worst for name in ours)


def test_gradients_are_autograds(case):
    """The last tile has six sums; without dropout."""
    build, reference = case
    reference.stack.threshold, reference.stack.scale = 0, 1.0
    compare(reference, build, SeedSequence(1), None, 70)


def drawn(config, seed, threshold=THRESHOLD):
    """The masks of a tile by `native/tile.h`, in the order and shapes that `Stack` asks for."""
    streams = [
        SFC64(SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, child))) for child in range(8)
    ]

    def bits(count):  # (draw, 32)
        words = np.stack([stream.random_raw(count) for stream in streams], 1)
        return torch.from_numpy((words.view(np.uint16) >= threshold).astype(np.float32))

    def rows(width):  # (sum, width): 64 columns of all sums, then the next 64
        return bits(width // 64 * 64 * 2).view(width // 64, 64, 64).transpose(0, 1).flatten(1)

    layout, heads = config.layout, config.heads
    for l in range(config.layers):
        queries = range(layout.loss_positions[0] if l == config.layers - 1 else 0, layout.length)
        pattern = torch.ones(heads, layout.length, len(queries), 64)
        for i, query in enumerate(queries):
            for h in range(heads):
                keys = query + 1 if config.causal else layout.length
                pattern[h, :keys, i] = bits(2 * keys).view(2, keys, 32).transpose(0, 1).flatten(1)
        yield pattern[None] if l == 0 else pattern.permute(1, 3, 0, 2).flatten(1, 2)[None]
        if l == 0:
            yield bits(len(queries) * 64 * 4).view(1, len(queries), 64, 128)
        else:
            yield torch.stack([rows(128) for _ in queries])[None]
        hidden, out = [], []
        for _ in queries:
            padded = torch.cat([rows(128) for _ in range(math.ceil(config.d_ff / 128))], -1)
            hidden.append(padded[:, : config.d_ff])
            out.append(rows(128))
        yield torch.stack(hidden)[None]
        yield torch.stack(out)[None]


def in_turn(masks):
    """Masks one after the other, as a model's forward pass asks for them."""
    return lambda shape, dtype: next(masks).view(shape).to(dtype)


def test_with_dropout_gradients_are_autograds_under_the_same_masks(case):
    """They are the same masks in each format and with vectors of each width."""
    build, reference = case
    masks = drawn(reference.group.config, SeedSequence(5))
    compare(reference, build, SeedSequence(5), in_turn(masks), 64)
    assert next(masks, None) is None


@pytest.mark.parametrize(("build", "rate"), [("fp32", 0.0), ("fp32", 0.5)], indirect=["build"])
def test_at_other_rates_of_dropout_gradients_are_autograds(build, rate):
    group = Group("x", ModelConfig(), fraction=0.002, batch=64, dropout=rate)
    trainer = Trainer(group, QUICK, [0])
    masks = drawn(group.config, SeedSequence(5), threshold_of(rate))
    compare(trainer, build, SeedSequence(5), in_turn(masks), 64)


@needs_fused
def test_twelve_steps_are_adamws():
    """Two runs over the end of the warm-up: PyTorch's AdamW on their gradients does the same."""
    recipe, decay = replace(QUICK, warmup=9), 0.2
    group = Group("x", ModelConfig(width=2), n_digits=2, batch=256, decay=decay)
    trainer = Trainer(group, recipe, [0, 2], precision=FUSED_FP32)
    plain = {name: torch.nn.Parameter(p.clone()) for name, p in trainer.parameters.items()}
    optimiser = torch.optim.AdamW(plain.values(), betas=(0.9, 0.98), eps=1e-8, weight_decay=decay)
    before = weights(trainer)
    for number, (a, b) in enumerate(2 * trainer.batches(trainer.train, group.batch)[:6]):
        trainer.step(a, b, number)
        optimiser.param_groups[0]["lr"] = float(
            np.float32(recipe.rate * min(1.0, (number + 1) / 9))
        )
        for name, p in plain.items():
            p.grad = trainer.fused.gradients[name]
        optimiser.step()
    for name, p in plain.items():
        torch.testing.assert_close(
            trainer.parameters[name], p.detach(), rtol=1e-5, atol=1e-7, msg=name
        )
        assert (p[0] - before[name]).abs().max() > 1e-3
        for key in MOMENTS:
            moments = trainer.moments()[key][name]
            torch.testing.assert_close(
                moments, optimiser.state[p][key], rtol=1e-5, atol=1e-12, msg=f"{key} {name}"
            )


@needs_fused
def test_a_run_takes_the_same_steps_beside_another():
    group = Group("x", ModelConfig(width=2, causal=True), n_digits=2, batch=256)
    together, apart = (Trainer(group, QUICK, runs, precision=FUSED_FP32) for runs in ([2, 5], [5]))
    for trainer in (together, apart):
        trainer.run_epoch()
    for name, p in apart.parameters.items():
        assert torch.equal(together.parameters[name][1], p[0]), name


@pytest.mark.parametrize("build", ["fp32"], indirect=True)
def test_late_in_training_gradients_are_as_near_to_float64_as_pytorchs(build):
    """Losses are small at the end of a shipped run: the same masks, twelve batches of a tile.

    In bf16 they are nearer than PyTorch's.
    """
    loaded = catalogue.load(groups.MAIN, recipe="quick", runs=[0])
    group = Group("x", ModelConfig(), fraction=0.002, batch=64)
    format = format_of(build)
    ours, pytorchs = (
        Trainer(group, QUICK, [0], precision=Precision(implementation, format))
        for implementation in (FUSED, TORCH)
    )
    for trainer in (ours, pytorchs):
        trainer.optimiser.step = lambda: None
        with torch.no_grad():
            for name, p in trainer.parameters.items():
                p.copy_(loaded.weights[0][name])
    errors = []
    for number, (a, b) in enumerate(ours.batches(ours.train, 64)[:12]):
        masks = [*drawn(group.config, SeedSequence(number))]
        _, expected = autograd(ours, a, b, in_turn(iter(masks)))
        ours.fused.masks = FusedMasks([SeedSequence(number)])
        ours.step(a, b, 0)
        pytorchs.masks = in_turn(iter(masks))
        pytorchs.step(a, b, 0)
        gradients = {name: p.grad for name, p in pytorchs.parameters.items()}
        errors.append([distance(x, expected) for x in (ours.fused.gradients, gradients)])
    of_ours, of_pytorch = np.median(errors, axis=0)
    assert of_ours < of_pytorch * (1 if format == "bf16" else 2)
    assert of_pytorch < 0.1


def test_logits_are_the_references(case):
    build, reference = case
    rows = reference.stack.rows(*(reference.test[:, i, :70] for i in range(2)))
    seeds, format = [SeedSequence(0)], format_of(build)
    ours = FusedStep(reference.stack, reference.parameters, seeds, format).logits(rows)
    tolerance, _ = TOLERANCES[format]
    with torch.inference_mode():
        streams = reference.stack.streams(reference.parameters, rows)
        for logits, stream in zip(ours, streams, strict=True):
            expected = reference.stack.unembed(reference.parameters, stream)
            assert distance({"": logits}, {"": expected}) < tolerance


@needs_fused
@pytest.mark.parametrize("precision", [FUSED_FP32, TORCH_FP32], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_default_type_of_new_tensors_changes_no_run(dtype, precision):
    """C++ writes float32: into a tensor of a smaller type it would write past the end."""
    config = ModelConfig(layers=1, width=1)
    group = Group("small", config, n_digits=1, batch=8, epochs=1, n_runs=1)
    trained = []
    for default in (torch.float32, dtype):
        torch.set_default_dtype(default)
        try:
            trainer = Trainer(group, QUICK, [0], precision=precision)
            trainer.train_epoch()
        finally:
            torch.set_default_dtype(torch.float32)
        trained.append(weights(trainer))
    for name, p in trained[0].items():
        assert torch.equal(trained[1][name], p), name
