"""The fused step (`fused.cpp`) against autograd on the float32 reference, its masks, its checkpoints, its build."""

import math

import numpy as np
import pytest
import torch
from numpy.random import SFC64, SeedSequence
from scipy import stats

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_core.groups import RECIPES, Group
from carry_core.model import ModelConfig
from carry_core.training import campaign, fused
from carry_core.training.checkpoints import Checkpoints
from carry_core.training.dropout import THRESHOLD, StreamMasks
from carry_core.training.fused import FusedStep, LaneMasks, Unavailable
from carry_core.training.trainer import Trainer
from tests.skips import needs_fused
from tests.trainings import LONG, QUICK, Ticks, weights

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
    """Of all tensors together, relative."""
    apart = sum((ours[name] - reference[name]).square().sum() for name in reference)
    return math.sqrt(apart / sum(x.square().sum() for x in reference.values()))


def compare(trainer, masks, count):
    """Loss, accuracies and gradients of the fused step on `count` sums beside those of autograd."""
    a, b = trainer.train[:, 0, :count], trainer.train[:, 1, :count]
    expected = trainer.eager_step(a, b)
    gradients = {name: p.grad.clone() for name, p in trainer.parameters.items()}
    row = FusedStep(trainer.stack, trainer.parameters).step(
        trainer.stack.pairs.rows(a, b), trainer.targets(a, b), masks
    )
    assert row["loss"] == pytest.approx(expected["loss"].item(), rel=2e-3)
    assert (row["accuracy"] - expected["accuracy"]).abs().max() <= 1.01 / count  # at most one sum near a tie
    assert (row["whole"] - expected["whole"]).abs() <= 1.01 / count
    ours = {name: p.grad for name, p in trainer.parameters.items()}
    assert distance(ours, gradients) < 0.015  # PyTorch's own bf16: 0.004 to 0.012 on these sums
    for name in gradients:
        assert distance({name: ours[name]}, {name: gradients[name]}) < 0.04, name  # PyTorch's: up to 0.022


@needs_fused
def test_gradients_are_autograds(reference, monkeypatch):
    """With a last tile of six sums, and without dropout."""
    monkeypatch.setattr(fused, "THRESHOLD", 0)
    monkeypatch.setattr("carry_core.training.stacked.SCALE", 1.0)
    reference.masks = lambda shape, dtype: torch.ones(shape, dtype=dtype)
    compare(reference, LaneMasks([SeedSequence(1)]), 70)


def drawn(config, seed):
    """The masks of one tile as `fused.cpp` draws them, in the order and shapes in which `Stack` asks for them."""
    lanes = [SFC64(SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, lane))) for lane in range(8)]

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


@needs_fused
def test_with_dropout_gradients_are_autograds_under_the_same_masks(reference):
    seed = SeedSequence(5)
    masks = drawn(reference.group.config, seed)

    def draw(shape, dtype):
        mask = next(masks)
        assert tuple(mask.shape) == shape
        return mask.to(dtype)

    reference.masks = draw
    compare(reference, LaneMasks([seed]), 64)
    assert next(masks, None) is None


@needs_fused
def test_late_in_training_gradients_are_nearer_to_float32_than_pytorchs_bfloat16():
    """At the end of a shipped run, where losses are small: under the same masks, twelve batches of a tile each."""
    loaded, group = (
        runs.load(groups.MAIN, recipe="quick", runs=[0]),
        Group("x", ModelConfig(), fraction=0.002, batch=64),
    )
    exact, rounded = (Trainer(group, QUICK, [0], precision=precision) for precision in ("fp32", "bf16"))
    exact.optimiser.step = rounded.optimiser.step = lambda: None
    step, rounded.fused = rounded.fused.step, None
    with torch.no_grad():
        for trainer in (exact, rounded):
            for name, p in trainer.parameters.items():
                p.copy_(loaded.weights[0][name])
    errors = {"fused": [], "torch": []}
    for number, (a, b) in enumerate(exact.batches(exact.train, 64)[:12]):
        gradients = {}
        for name, trainer in (("exact", exact), ("torch", rounded)):
            masks = drawn(group.config, SeedSequence(number))
            trainer.masks = lambda shape, dtype, masks=masks: next(masks).to(dtype)
            trainer.eager_step(a, b)
            gradients[name] = {name: p.grad for name, p in trainer.parameters.items()}
        step(exact.stack.pairs.rows(a, b), exact.targets(a, b), LaneMasks([SeedSequence(number)]))
        gradients["fused"] = {name: p.grad for name, p in rounded.parameters.items()}
        for name, found in errors.items():
            found.append(distance(gradients[name], gradients["exact"]))
    assert np.median(errors["fused"]) < np.median(errors["torch"]) < 0.1


@needs_fused
def test_logits_are_the_references(reference):
    rows = reference.stack.pairs.rows(*(reference.test[:, i, :70] for i in range(2)))
    ours = FusedStep(reference.stack, reference.parameters).logits(rows)
    with torch.inference_mode():
        streams = reference.stack.streams(reference.parameters, rows)
        for logits, stream in zip(ours, streams, strict=True):
            expected = reference.stack.unembed(reference.parameters, stream)
            assert distance({"": logits}, {"": expected}) < 0.005


SMALL = Group("small", ModelConfig(width=2), n_digits=2, batch=256, epochs=3, n_runs=2)


@needs_fused
def test_curves_lie_within_the_spread_of_the_references(monkeypatch):
    """The two kernels' losses, from the same sums and weights, differ no more than dropout's chance makes them.

    Criterion, written down before any curve was looked at. Both kernels train run 0 in bf16 under several streams of
    masks. Of each stream: the logarithm of the mean training loss in four windows, each the last half of a quarter of
    the steps. The fused step holds if

    - its means are the reference's: in no window does Welch's test reject that, two-sided, at `level` / 4; and
    - its streams lie within the reference's spread: none of its losses, in any window, is outside of the reference's
      mean -+ t s sqrt(1 + 1/n), the prediction interval at `level` shared among all of them.

    CARRY_LONG=1 asks this of the main group's recipe `quick`: six streams a kernel, 400 steps, level 0.05; CARRY_LONG=2
    of other streams, and so on; else a small group stands in, whose level is so low that chance will not fail it.

    Outcome: streams 1 missed it in the first window (the fused step 0.04 % lower, p 0.0115, at 0.0125), streams 2 held.
    """
    group, recipe, n, steps, level = (
        (groups.find(groups.MAIN), RECIPES["quick"], 6, 400, 0.05) if LONG else (SMALL, QUICK, 4, 48, 0.001)
    )
    found = {}
    for kernel, masks in (("torch", StreamMasks), ("fused", LaneMasks)):
        monkeypatch.setenv("CARRY_KERNEL", kernel)
        for stream in range(n):
            trainer = Trainer(group, recipe, [0], precision="bf16")
            assert trainer.kernel == kernel
            trainer.masks = masks([SeedSequence([6 + LONG, stream])])
            batches = trainer.batches(trainer.train, group.batch)
            losses = [trainer.step(*batches[i % len(batches)], i)["loss"].item() for i in range(steps)]
            quarters = np.array(losses).reshape(4, -1)
            found.setdefault(kernel, []).append(np.log(quarters[:, steps // 8 :].mean(1)))
            print(kernel, stream, *np.exp(found[kernel][-1]).round(4), flush=True)
    fused, reference = (np.array(found[kernel]) for kernel in ("fused", "torch"))
    assert (reference[:, -1] < reference[:, 0] - 0.1).all()  # it learns
    test = stats.ttest_ind(fused, reference, equal_var=False)
    print("p", test.pvalue, "difference of log losses", *test.confidence_interval(1 - level / 4))
    assert (test.pvalue > level / 4).all()
    half = stats.t.ppf(1 - level / 2 / fused.size, n - 1) * reference.std(0, ddof=1) * math.sqrt(1 + 1 / n)
    assert (abs(fused - reference.mean(0)) < half).all()


@needs_fused
def test_it_goes_on_to_the_same_bits(data):
    checkpoints = Checkpoints(data / "checkpoints", SMALL, QUICK)
    whole = Trainer(SMALL, QUICK, [0], precision="bf16")
    while not whole.finished:
        whole.run_epoch()
    for _ in range(20):
        trainer = Trainer(SMALL, QUICK, [0], precision="bf16")
        campaign.prepare(trainer, checkpoints)
        if campaign.train_runs(trainer, checkpoints, Ticks(3), lambda trainer, row: None):
            break
    assert trainer.kernel == "fused"
    assert all(torch.equal(p, weights(trainer)[name]) for name, p in weights(whole).items())
    assert all(np.array_equal(whole.history[key], trainer.history[key]) for key in whole.history)


@needs_fused
def test_a_run_does_not_depend_on_its_neighbours():
    alone, beside = (Trainer(SMALL, QUICK, runs, precision="bf16") for runs in ([1], [0, 1]))
    ours, theirs = alone.run_epoch(), beside.run_epoch()
    np.testing.assert_allclose(ours["train_loss"][0], theirs["train_loss"][1], rtol=1e-3)  # others' masks: 1e-2
    assert abs(theirs["train_loss"][0] / theirs["train_loss"][1] - 1) > 5e-3


@needs_fused
def test_a_checkpoint_goes_on_with_its_own_kernel(data, monkeypatch):
    checkpoints = Checkpoints(data / "checkpoints", SMALL, QUICK)

    def again(kernel):
        monkeypatch.setenv("CARRY_KERNEL", kernel)
        trainer = Trainer(SMALL, QUICK, [0], precision="bf16")
        campaign.prepare(trainer, checkpoints)
        return trainer

    states = again("torch").freeze()()
    del states[0][1]["kernel"]  # as older ones are
    checkpoints.save(states)
    assert again("auto").kernel == "torch"
    with pytest.raises(BadInput, match="trained by kernel torch, CARRY_KERNEL is fused"):
        again("fused")
    monkeypatch.setenv("CARRY_KERNEL", "auto")
    checkpoints.save(Trainer(SMALL, QUICK, [0], precision="bf16").freeze()())
    assert again("auto").kernel == "fused"
    with pytest.raises(BadInput, match="trained by kernel fused, CARRY_KERNEL is torch"):
        again("torch")
    monkeypatch.setattr(fused, "_load", lambda: Unavailable("no compiler"))
    with pytest.raises(BadInput, match=r"asks for the fused step.*no compiler"):
        again("auto")
    with pytest.raises(BadInput, match="CARRY_KERNEL=fast: expected auto, torch or fused"):
        again("fast")


@pytest.mark.parametrize(("compiler", "told"), [("false", "false: exit 1"), ("no-such-compiler", "")])
def test_without_a_compiler_pytorch_does_it(compiler, told, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fused, "cpu_flags", lambda: frozenset(fused.INSTRUCTIONS))
    monkeypatch.setattr(fused, "_load", fused._load.__wrapped__)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", compiler)
    assert fused.choose_kernel(ModelConfig(), torch.device("cpu"), "bf16") == "torch"
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == bool(told)
    assert told in "".join(lines)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_other_trainings_are_pytorchs():
    cpu = torch.device("cpu")
    assert fused.choose_kernel(ModelConfig(), cpu, "fp32") == "torch"
    assert fused.choose_kernel(ModelConfig(d_model=64), cpu, "bf16") == "torch"
    assert fused.choose_kernel(ModelConfig(width=11), cpu, "bf16") == "torch"
    assert fused.choose_kernel(ModelConfig(), torch.device("cuda"), "bf16") == "torch"
