"""Time and memory of a training are estimated before it begins, for a large group from its size."""

from dataclasses import replace

import pytest

from carry_core import groups
from carry_core.groups import MAIN
from carry_core.model import ModelConfig, Transformer
from carry_paper.training import estimates, loop
from carry_paper.training.checkpoints import Checkpoints
from carry_paper.training.loop import NOT_BEGUN, Progress
from carry_paper.training.trainer import Trainer

SMALL = "digits2_n1_s0.4_w1.0"
SECONDS = 0.25  # of a step


@pytest.fixture
def timed(monkeypatch) -> list[str]:
    """The groups whose steps are timed; each step takes as long as the last."""
    names: list[str] = []

    def step(trainer):
        names.append(trainer.group.name)
        return {}

    clock = iter(SECONDS * i for i in range(1000))
    monkeypatch.setattr(estimates.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(Trainer, "train_epoch", step)
    return names


def seconds_left(name, tmp_path, runs, epochs=None):
    group = groups.find(name)
    recipe = groups.find_recipe("paper", group, epochs)
    checkpoints = Checkpoints(tmp_path, group, recipe)
    return estimates.seconds_left(checkpoints, runs, "cpu", "fp32")


def test_runs_take_their_epochs_in_turns_less_those_that_are_done(timed, tmp_path):
    group = groups.find(SMALL)
    one = seconds_left(SMALL, tmp_path, {0: NOT_BEGUN}, epochs=10)
    test_sums = 0.4 * 5050
    steps = 10 * (group.steps + estimates.TESTING * test_sums / group.batch)
    assert one == pytest.approx(SECONDS * steps)
    six = seconds_left(SMALL, tmp_path, dict.fromkeys(range(6), NOT_BEGUN), epochs=10)
    assert six == pytest.approx(6 * one)
    half = seconds_left(SMALL, tmp_path, {3: Progress(5, 0)}, epochs=10)
    assert half == pytest.approx(one / 2)
    assert {*timed} == {SMALL}


@pytest.mark.parametrize(
    "name", ["n2_s0.3_w0.2_dff99999", "n40_s0.3_w0.2_d1024", "digits4_n2_s0.3_w0.2"]
)
def test_a_large_group_takes_no_step(timed, tmp_path, name):
    """A step of the main group is timed in its place."""
    seconds = estimates.step_seconds(groups.find(name), groups.RECIPES["paper"], [0], "cpu", "fp32")
    ratio = estimates.size(groups.find(name)) / estimates.size(groups.find(MAIN))
    assert seconds == pytest.approx(SECONDS * ratio)
    assert ratio > estimates.LARGEST_TIMED
    assert {*timed} == {MAIN}


def test_the_parameters_are_those_of_a_model():
    config = ModelConfig(layers=1, width=2, d_model=16, d_ff=24)
    model = Transformer(config)
    group = replace(groups.find(SMALL), config=config)
    assert estimates.n_parameters(group) == sum(p.numel() for p in model.parameters())


def test_a_group_that_no_memory_holds_is_refused_before_anything_is_made(
    refused, data, monkeypatch
):
    monkeypatch.setattr(estimates, "memory_of", lambda device: 24 * 2**30)
    monkeypatch.setattr(loop, "train_group", lambda *_: pytest.fail("it was trained"))
    for options in ((), ("--dry-run",)):
        message = refused("train", "n99_s0.3_w0.2_dff99999", "--device", "cpu", *options)
        assert message.startswith("n99_s0.3_w0.2_dff99999 has 2,")
        assert "of memory, and there are 24 here; expected a smaller model.\n" in message
    assert list(data.iterdir()) == []


def test_every_group_of_the_paper_fits_into_eight_gigabytes(monkeypatch):
    monkeypatch.setattr(estimates, "memory_of", lambda device: 8e9)
    for group in groups.GROUPS.values():
        estimates.check_memory(group, "cpu")
    assert estimates.memory_needed(groups.find(MAIN)) < 1e8


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (
            (),
            " Shorter: --runs 0 (one run), --recipe quick (fewer epochs), "
            "--precision auto (the fastest one here).",
        ),
        (("--runs", "2", "--precision", "fp32"), " Shorter: --recipe quick (fewer epochs)."),
        (("--runs", "0-1", "--recipe", "paper", "--precision", "fp32"), ""),
    ],
)
def test_what_a_training_takes_is_said_before_it_begins(carry, data, monkeypatch, options, advice):
    """With the options that would shorten it, unless they were used."""
    began = []
    monkeypatch.setattr(estimates, "seconds_left", lambda *_: 7200.0)
    monkeypatch.setattr(loop, "train_group", lambda *_: began.append(True) or True)
    code, out, err = carry("train", "n2_s0.4_w0.5", "--device", "cpu", *options)
    assert (code, err, began) == (0, "", [True])
    group, total = out.splitlines()
    assert group.startswith("n2_s0.4_w0.5: 2 layers, 40% of the sums, weight decay 0.5; run")
    assert group.endswith(", 1000 epochs a run, about 2:00:00 in fp32.")
    assert total == f"In all about 2:00:00 on cpu, estimated from two steps.{advice}"


def test_a_precision_s_name_is_explained(carry, data, monkeypatch):
    monkeypatch.setattr(estimates, "seconds_left", lambda *_: 60.0)
    monkeypatch.setattr(loop, "fastest_precision", lambda group, device: "fused")
    code, out, _ = carry("train", MAIN, "--device", "cpu", "--precision", "auto", "--dry-run")
    assert code == 0
    assert " about 0:01:00 in fused (bf16 in C++).\n" in out
