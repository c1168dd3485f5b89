"""The fused step (`native/fused.cpp`) against autograd in float32; its masks, AdamW and build."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.random import SFC64, SeedSequence

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_core.groups import Group
from carry_core.model import ModelConfig
from carry_paper.training import fused
from carry_paper.training.fused import FusedStep, LaneMasks
from carry_paper.training.stacked import THRESHOLD
from carry_paper.training.trainer import MOMENTS, Trainer
from tests.helpers.trainings import QUICK, needs_fused, weights

pytestmark = [pytest.mark.slow, pytest.mark.machine]

SHAPES = {
    "one layer": ModelConfig(layers=1),
    "two layers": ModelConfig(),
    "three layers": ModelConfig(layers=3),
    "more neurons": ModelConfig(d_ff=512),
    "decoder": ModelConfig(causal=True),
    "one-layer decoder": ModelConfig(layers=1, causal=True),
    "19 positions, decoder": ModelConfig(width=6, causal=True),
    "31 positions": ModelConfig(width=10),
}
FAILS, LACKS = (
    ("false", "", "false: exit 1"),
    ("g++", "avx512_bf16", "the processor lacks avx512_bf16"),
)
NO_COMMAND = ('g++ "', "", "CXX is 'g++ \"', which is no command: No closing quotation")
BLANK = (" ", "", "there is no compiler ' '")


@pytest.fixture(params=SHAPES)
def reference(request):
    """A trainer in float32, its parameters away from where they start."""
    trainer = Trainer(Group("x", SHAPES[request.param], fraction=0.002, batch=64), QUICK, [0])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in trainer.parameters.values():
            p.add_(0.05 * torch.randn(p.shape, generator=generator))
    trainer.optimiser.step = lambda: None
    return trainer


def distance(ours, reference):
    """Return the relative distance of all tensors together."""
    apart = sum((ours[name] - reference[name]).square().sum() for name in reference)
    return math.sqrt(apart / sum(x.square().sum() for x in reference.values()))


def compare(trainer, seed, count):
    """Loss, accuracies and gradients of the fused step on `count` sums beside those of autograd."""
    a, b = trainer.train[:, 0, :count], trainer.train[:, 1, :count]
    expected = trainer.step(a, b, 0)
    gradients = {name: p.grad.clone() for name, p in trainer.parameters.items()}
    step = FusedStep(trainer.stack, trainer.parameters, [seed])
    row = step.step(trainer.stack.rows(a, b), trainer.targets(a, b))
    assert row["loss"] == pytest.approx(expected["loss"].item(), rel=2e-3)
    # one near a tie
    assert all((row[x] - expected[x]).abs().max() <= 1.01 / count for x in ("accuracy", "whole"))
    ours = step.gradients
    assert distance(ours, gradients) < 0.015  # PyTorch's own bf16: 0.004 to 0.012 on these sums
    # PyTorch's: up to 0.022
    assert all(distance({name: ours[name]}, {name: gradients[name]}) < 0.04 for name in ours)


@needs_fused
@pytest.mark.parametrize("product", ["g++", "g++ -mno-amx-bf16"])
def test_gradients_are_autograds(reference, product, monkeypatch):
    """The last tile has six sums; then without dropout; with matrix registers and without."""
    monkeypatch.setenv("CXX", product)
    reference.stack.threshold = 0
    reference.stack.scale = 1.0
    reference.masks = lambda shape, dtype: torch.ones(shape, dtype=dtype)
    compare(reference, SeedSequence(1), 70)


def drawn(config, seed):
    """The masks of a tile by `native/tile.h`, in the order and shapes that `Stack` asks for."""
    lanes = [
        SFC64(SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, lane))) for lane in range(8)
    ]

    def bits(count):  # (draw, 32)
        words = np.stack([lane.random_raw(count) for lane in lanes], 1)
        return torch.from_numpy((words.view(np.uint16) >= THRESHOLD).astype(np.float32))

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
            hidden.append(torch.cat([rows(128) for _ in range(config.d_ff // 128)], -1))
            out.append(rows(128))
        yield torch.stack(hidden)[None]
        yield torch.stack(out)[None]


def in_turn(masks):
    """Masks one after the other, as a model's forward pass asks for them."""
    return lambda shape, dtype: next(masks).view(shape).to(dtype)


@needs_fused
def test_with_dropout_gradients_are_autograds_under_the_same_masks(reference):
    seed = SeedSequence(5)
    masks = drawn(reference.group.config, seed)
    reference.masks = in_turn(masks)
    compare(reference, seed, 64)
    assert next(masks, None) is None


@needs_fused
@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_twelve_steps_are_adamws(decay):
    """Two runs over the end of the warm-up: PyTorch's AdamW on their gradients does the same."""
    recipe = replace(QUICK, warmup=9)
    group = Group("x", ModelConfig(width=2), n_digits=2, batch=256, decay=decay)
    trainer = Trainer(group, recipe, [0, 2], precision="fused")
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
    together, apart = (Trainer(group, QUICK, runs, precision="fused") for runs in ([2, 5], [5]))
    for trainer in (together, apart):
        trainer.run_epoch()
    for name, p in apart.parameters.items():
        assert torch.equal(together.parameters[name][1], p[0]), name


@needs_fused
def test_late_in_training_gradients_are_nearer_to_float32_than_pytorchs_bfloat16():
    """Losses are small at the end of a shipped run: the same masks, twelve batches of a tile."""
    loaded = runs.load(groups.MAIN, recipe="quick", runs=[0])
    group = Group("x", ModelConfig(), fraction=0.002, batch=64)
    trainers = {
        precision: Trainer(group, QUICK, [0], precision=precision)
        for precision in ("fp32", "bf16", "fused")
    }
    for trainer in trainers.values():
        trainer.optimiser.step = lambda: None
        with torch.no_grad():
            for name, p in trainer.parameters.items():
                p.copy_(loaded.weights[0][name])
    errors = []
    for number, (a, b) in enumerate(trainers["fp32"].batches(trainers["fp32"].train, 64)[:12]):
        gradients = {}
        for precision, trainer in trainers.items():
            seed = SeedSequence(number)
            trainer.masks = in_turn(drawn(group.config, seed))
            if trainer.fused:
                trainer.fused.masks = LaneMasks([seed])
            trainer.step(a, b, 0)
            gradients[precision] = {name: p.grad for name, p in trainer.parameters.items()}
            if trainer.fused:
                gradients[precision] = trainer.fused.gradients
        errors.append([distance(gradients[name], gradients["fp32"]) for name in ("fused", "bf16")])
    ours, pytorchs = np.median(errors, axis=0)
    assert ours < pytorchs < 0.1


@needs_fused
def test_logits_are_the_references(reference):
    rows = reference.stack.rows(*(reference.test[:, i, :70] for i in range(2)))
    ours = FusedStep(reference.stack, reference.parameters, [SeedSequence(0)]).logits(rows)
    with torch.inference_mode():
        streams = reference.stack.streams(reference.parameters, rows)
        for logits, stream in zip(ours, streams, strict=True):
            expected = reference.stack.unembed(reference.parameters, stream)
            assert distance({"": logits}, {"": expected}) < 0.005


@pytest.mark.parametrize(("compiler", "lacks", "message"), [FAILS, LACKS, NO_COMMAND, BLANK])
def test_where_it_cannot_be_built_one_line_says_why(
    compiler, lacks, message, tmp_path, monkeypatch, processor_with
):
    processor_with(fused.INSTRUCTIONS - {lacks})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", compiler)
    with pytest.raises(BadInput, match=f"{re.escape(message)}.*such as auto"):
        Trainer(Group("x", ModelConfig(), fraction=0.002), QUICK, [0], precision="fused")
    assert message in fused.why_not()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "config",
    [
        ModelConfig(d_model=64),
        ModelConfig(heads=4),
        ModelConfig(layers=4),
        ModelConfig(width=11),
        ModelConfig(d_ff=2048),
        ModelConfig(d_ff=192),
    ],
)
def test_models_of_other_sizes_are_refused(config):
    with pytest.raises(BadInput, match=r"supports up to 3 layers.*: choose .* such as auto\.$"):
        Trainer(Group("x", config, fraction=0.002), QUICK, [0], precision="fused")
