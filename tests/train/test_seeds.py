"""Seeds of a training that are set one by one: what each changes, and what a run with others is."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.random import SFC64, Generator, SeedSequence
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from carry_core.errors import BadInput
from carry_core.runs import run_path
from carry_paper import catalogue
from carry_train import groups, loop, progress
from carry_train.checkpoints import Checkpoints
from carry_train.precisions import FUSED_FP32, TORCH_FP32
from carry_train.seeds import OWN, Seeds
from carry_train.trainer import Trainer, split
from tests.helpers.trainings import QUICK, Ticks, needs_fused, weights

pytestmark = pytest.mark.machine


def original_streams(run: int) -> tuple[torch.Generator, torch.Generator, SeedSequence]:
    """The derivation that made the runs that are shipped, as it was before seeds could be set."""
    *torchs, dropout = SeedSequence(run).spawn(3)
    seeds = [int(seed.generate_state(1, np.uint64)[0] >> np.uint64(1)) for seed in torchs]
    data, weights = (torch.Generator().manual_seed(seed) for seed in seeds)
    return data, weights, dropout


def draws(generator: torch.Generator) -> list[int]:
    return torch.randint(2**62, (5,), generator=generator).tolist()


def words(sequence: SeedSequence) -> list[int]:
    return Generator(SFC64(sequence)).integers(2**64, size=5, dtype=np.uint64).tolist()


@pytest.mark.parametrize("run", [0, 999])
def test_without_seeds_the_streams_are_those_of_the_shipped_runs(run):
    data, initial, dropout = original_streams(run)
    streams = OWN.streams(run)
    assert draws(streams.split) == draws(data)
    assert draws(streams.weights) == draws(initial)
    assert words(streams.dropout) == words(dropout)
    assert streams.order is None
    assert streams.rounding is None


def trained(group, run=0, seeds=OWN, precision=TORCH_FP32):
    """A run after two batches of its first epoch."""
    trainer = Trainer(group, QUICK, [run], precision=precision, seeds=seeds)
    trainer.train_epoch(Ticks(2).pause)
    return trainer


def masks_of(trainer):
    return (trainer.fused or trainer).masks.state(0)


@pytest.mark.parametrize("precision", [TORCH_FP32, pytest.param(FUSED_FP32, marks=needs_fused)])
def test_each_seed_changes_its_own_part_only(small_group, precision):
    group = small_group
    if precision == FUSED_FP32:  # it knows the paper's sizes only
        group = replace(group, config=replace(group.config, d_model=128, d_ff=128))
    by_run, seeded = (
        Trainer(group, QUICK, [0], precision=precision),
        Trainer(group, QUICK, [7], precision=precision),
    )
    start = Trainer(group, QUICK, [0], precision=precision, seeds=Seeds(init=7))
    torch.testing.assert_close(weights(start), weights(seeded), rtol=0, atol=0)
    assert torch.equal(start.train, by_run.train)
    assert masks_of(start) == masks_of(by_run)

    masked = Trainer(group, QUICK, [0], precision=precision, seeds=Seeds(mask=7))
    torch.testing.assert_close(weights(masked), weights(by_run), rtol=0, atol=0)
    assert torch.equal(masked.train, by_run.train)
    assert masks_of(masked) == masks_of(seeded) != masks_of(by_run)

    split_up = Trainer(group, QUICK, [0], precision=precision, seeds=Seeds(split=7))
    torch.testing.assert_close(weights(split_up), weights(by_run), rtol=0, atol=0)
    assert torch.equal(split_up.train, seeded.train)
    assert torch.equal(split_up.test, seeded.test)
    assert masks_of(split_up) == masks_of(by_run)

    # setting what would be taken anyway changes no bit of what is trained
    same, plain = (
        trained(group, seeds=Seeds(init=0, mask=0, split=0), precision=precision),
        trained(group, precision=precision),
    )
    torch.testing.assert_close(weights(same), weights(plain), rtol=0, atol=0)
    assert same.seeds == plain.seeds


def test_one_weight_of_each_matrix_is_rounded_otherwise(small_group):
    plain, other, again, third = (
        Trainer(small_group, QUICK, [0], seeds=seeds)
        for seeds in (OWN, Seeds(rounding=5), Seeds(rounding=5), Seeds(rounding=6))
    )
    assert torch.equal(other.train, plain.train)
    assert masks_of(other) == masks_of(plain)
    for name, p in weights(plain).items():
        moved = weights(other)[name] != p
        assert moved.sum() == (p.ndim > 1)
        assert torch.equal(weights(again)[name], weights(other)[name])
        assert torch.equal(weights(other)[name][moved], p[moved].nextafter(torch.tensor(9.0)))
    assert any(not torch.equal(weights(third)[name], p) for name, p in weights(other).items())
    assert other.seeds[0] == {**plain.seeds[0], "rounding": 5}


@pytest.mark.parametrize("primed", [0, 20])
def test_the_order_is_of_the_same_training_sums(small_group, primed):
    group = replace(small_group, config=replace(small_group.config, width=4), primed=primed)
    parts = {}
    for name, run, seeds in (
        ("own", 0, OWN),
        ("permuted", 0, Seeds(order=3)),
        ("again", 0, Seeds(order=3)),
        ("otherwise", 0, Seeds(order=4)),
    ):
        streams = seeds.streams(run)
        parts[name] = split(group, streams.split, streams.order)
    train, test, long = parts["own"]
    for name in ("permuted", "otherwise"):
        assert torch.equal(parts[name][1], test)
        assert torch.equal(parts[name][2], long)
        assert sorted(parts[name][0].T.tolist()) == sorted(train.T.tolist())
        assert not torch.equal(parts[name][0], train)
    assert torch.equal(parts["again"][0], parts["permuted"][0])
    assert not torch.equal(parts["otherwise"][0], parts["permuted"][0])


def test_runs_in_lockstep_share_the_seed_that_is_set(small_group):
    """As on a GPU: both start from the weights of run 7, each has its own split and masks."""
    together = Trainer(small_group, QUICK, [0, 2], seeds=Seeds(init=7, order=1))
    for i, run in enumerate((0, 2)):
        alone = Trainer(small_group, QUICK, [run], seeds=Seeds(init=7, order=1))
        torch.testing.assert_close(weights(together, i), weights(alone), rtol=0, atol=0)
        assert torch.equal(together.train[i], alone.train[0])
        assert together.masks.state(i) == alone.masks.state(0)
        assert together.seeds[i] == {"split": run, "init": 7, "order": 1, "mask": run}
    torch.testing.assert_close(weights(together, 0), weights(together, 1), rtol=0, atol=0)


@pytest.fixture
def checkpoints(small_group, data, monkeypatch):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    return Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=1))


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("run*") if path.is_file()}


SET = Seeds(init=3, order=1)


@pytest.mark.slow
@pytest.mark.parametrize("finished", [True, False], ids=["finished", "checkpointed"])
def test_a_run_with_other_seeds_is_refused_in_one_line(checkpoints, data, finished):
    clock = loop.Clock() if finished else Ticks(2)
    out = data / "runs"
    assert (
        loop.train_group(checkpoints, [0], out, progress.Conditions(seeds=SET), clock=clock)
        == finished
    )
    before = contents(data)
    with pytest.raises(
        BadInput, match="Run 0 of small has other seeds .*: pass --init-seed 3 --order-seed 1 to go"
    ):
        loop.train_group(checkpoints, [0], out, progress.Conditions(seeds=Seeds(init=3)))
    assert contents(data) == before
    # its own, by its number
    assert loop.train_group(checkpoints, [0], out, progress.Conditions(seeds=replace(SET, mask=0)))
    if not finished:
        straight = Trainer(checkpoints.group, checkpoints.recipe, [0], seeds=SET)
        straight.run_epoch()
        for name, p in weights(straight).items():
            assert torch.equal(checkpoints.load(0)[0][f"parameters/{name}"], p)
    record = catalogue.load("small").record["runs"][0]
    assert record["seeds"] == {"split": 0, "init": 3, "order": 1, "mask": 0}


def test_a_record_without_seeds_is_of_a_run_with_its_own(checkpoints, data):
    """Those that were shipped before seeds could be set have none."""
    out = data / "runs"
    loop.train_group(checkpoints, [2], out)
    path = run_path(out, "small", "quick", 2)
    with safe_open(path, "pt") as file:
        description = json.loads(file.metadata()["carry"])
    assert description["record"].pop("seeds") == {
        "split": 2,
        "init": 2,
        "order": None,
        "mask": 2,
    }
    save_file(load_file(path), path, {"carry": json.dumps(description)})
    for seeds in (OWN, Seeds(init=2), Seeds(mask=2), Seeds(split=2)):
        assert progress.missing(checkpoints, [2], out, progress.Conditions(seeds=seeds)) == {}
    for seeds in (Seeds(order=2), Seeds(split=3), Seeds(rounding=2)):
        with pytest.raises(BadInput, match="has other seeds .*: pass no seeds to go on"):
            progress.missing(checkpoints, [2], out, progress.Conditions(seeds=seeds))


def test_a_record_of_three_seeds_is_of_a_run_with_its_own_split(checkpoints):
    record = {"run": 2, "seeds": {"init": 3, "order": None, "mask": 2}}
    Seeds(init=3).check_run(checkpoints.group, record, checkpoints.path(2))
    with pytest.raises(BadInput, match="pass --init-seed 3 to go on"):
        Seeds(init=3, split=3).check_run(checkpoints.group, record, checkpoints.path(2))


@pytest.mark.slow
def test_a_finetuned_run_has_its_parents_weights_and_says_which_seeds_these_had(
    small_group, data, monkeypatch
):
    config = replace(small_group.config, width=3)
    parent = replace(small_group, name="parent", config=config, snapshots=(1,), epochs=1)
    child = replace(parent, name="child", primed=50, epochs=2, parent=("parent", 1), snapshots=())
    recipe = replace(QUICK, name="paper")
    monkeypatch.setitem(groups.GROUPS, "parent", parent)
    monkeypatch.setitem(groups.GROUPS, "child", child)
    first, then = (Checkpoints(data / "checkpoints", group, recipe) for group in (parent, child))
    assert loop.train_group(first, [0], data / "runs", progress.Conditions(seeds=Seeds(init=3)))
    with pytest.raises(BadInput, match="--init-seed 4: child starts from the weights of parent"):
        loop.train_group(then, [0], data / "runs", progress.Conditions(seeds=Seeds(init=4)))
    of_parent = {"split": 0, "init": 3, "order": None, "mask": 0}
    expected = {"split": 0, "order": 5, "mask": 0, "parent": of_parent}
    assert not loop.train_group(
        then, [0], data / "runs", progress.Conditions(seeds=Seeds(order=5)), clock=Ticks(1)
    )
    assert then.load(0)[1]["seeds"] == expected
    with pytest.raises(
        BadInput, match="Run 0 of child has other seeds .*: pass --order-seed 5 to go on"
    ):
        loop.train_group(then, [0], data / "runs")
    assert loop.train_group(then, [0], data / "runs", progress.Conditions(seeds=Seeds(order=5)))
    assert catalogue.load("child").record["runs"][0]["seeds"] == expected
