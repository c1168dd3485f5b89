"""The time of a training is estimated before it begins, for a large group from its size."""

import pytest

from carry_train import choice, estimates, groups
from carry_train.checkpoints import Checkpoints
from carry_train.groups import MAIN
from carry_train.precisions import TORCH_FP32
from carry_train.progress import Progress
from carry_train.trainer import Trainer

SMALL = "digits2_n1_s0.4_w1.0"
SECONDS = 0.25  # of a step
NOT_BEGUN = Progress(0, 0, TORCH_FP32)


@pytest.fixture
def timed(monkeypatch) -> list[str]:
    """The groups whose steps are timed; each step takes as long as the last."""
    names: list[str] = []
    choice.step_seconds.cache_clear()

    def step(trainer):
        assert trainer.steps_in_epoch == 1
        names.append(trainer.group.name)
        return {}

    clock = iter(SECONDS * i for i in range(1000))
    monkeypatch.setattr(choice.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(Trainer, "train_epoch", step)
    return names


def seconds_left(name, tmp_path, runs, epochs=None):
    group = groups.find(name)
    recipe = groups.find_recipe("paper", group, epochs)
    checkpoints = Checkpoints(tmp_path, group, recipe)
    return estimates.seconds_left(checkpoints, runs, "cpu")


def test_runs_take_their_epochs_in_turns_less_those_that_are_done(timed, tmp_path):
    group = groups.find(SMALL)
    one = seconds_left(SMALL, tmp_path, {0: NOT_BEGUN}, epochs=10)
    test_sums = 0.4 * 5050
    in_a_pass = groups.RECIPES["paper"].steps_in_epoch(group)
    steps = 10 * (in_a_pass + estimates.TEST_OVER_STEP * test_sums / group.batch)
    assert one == pytest.approx(SECONDS * steps)
    six = seconds_left(SMALL, tmp_path, dict.fromkeys(range(6), NOT_BEGUN), epochs=10)
    assert six == pytest.approx(6 * one)
    half = seconds_left(SMALL, tmp_path, {3: Progress(5, 0, TORCH_FP32)}, epochs=10)
    assert half == pytest.approx(one / 2)
    assert {*timed} == {SMALL}


@pytest.mark.parametrize(
    "name", ["n2_s0.3_w0.2_dff99999", "n40_s0.3_w0.2_d1024", "digits4_n2_s0.3_w0.2"]
)
def test_a_large_group_takes_no_step(timed, tmp_path, name):
    """A step of the main group is timed in its place."""
    group, main = groups.find(name), groups.find(MAIN)
    seconds = choice.step_seconds(group, group.batch, 1, "cpu", TORCH_FP32)
    ratio = choice.size(group, group.batch) / choice.size(main, main.batch)
    assert seconds == pytest.approx(SECONDS * ratio)
    assert ratio > choice.LARGEST_TIMED
    assert {*timed} == {MAIN}
