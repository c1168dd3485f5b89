import pytest
import torch

from carry_core.dropout import THRESHOLD, CounterMasks, StreamMasks
from carry_core.groups import Seeds

SHAPE = (2, 1001, 997)


def stream(runs):
    return StreamMasks([Seeds.of(run).dropout for run in runs])


def counter(runs, step=0):
    masks = CounterMasks([Seeds.of(run).dropout for run in runs], torch.device("cpu"))
    return masks.at(torch.tensor(step, dtype=torch.int32))


@pytest.mark.parametrize("source", [stream, counter])
def test_masks_are_independent_coins(source):
    """Rate, both runs, neighbours, later draws: each within five standard deviations of independence."""
    draw = source([0, 1])
    first, second = draw(SHAPE, torch.float64), draw(SHAPE, torch.float64)
    assert set(first.unique().tolist()) == {0.0, 1.0}
    p, count = THRESHOLD / 65536, 1001 * 997
    dropped = 1 - torch.stack([*first, *second]).flatten(1)
    assert ((dropped.mean(1) - p).abs() < 5 * (p * (1 - p) / count) ** 0.5).all()
    centred = (dropped - p) / (p * (1 - p)) ** 0.5
    correlation = centred @ centred.T / count
    off_diagonal = correlation - correlation.diag().diag()
    assert off_diagonal.abs().max() < 5 / count**0.5
    for lag in (1, 2, 3, 4, 32, 128, 997):
        assert abs((centred[0, lag:] * centred[0, :-lag]).mean()) < 5 / count**0.5


def test_streams_resume():
    masks = stream([0, 1])
    masks(SHAPE, torch.float32)
    states = [masks.state(run) for run in range(2)]
    following = masks(SHAPE, torch.float32)
    other = stream([7, 8])
    for run in range(2):
        other.set_state(run, states[run])
    assert torch.equal(other(SHAPE, torch.float32), following)


@pytest.mark.parametrize("source", [stream, counter])
def test_a_runs_masks_do_not_depend_on_its_neighbours(source):
    together, alone = source([3, 5]), source([5])
    for _ in range(3):
        assert torch.equal(together((2, 10, 7), torch.float32)[1:], alone((1, 10, 7), torch.float32))


def test_counters_change_with_the_step_and_only_with_it():
    first, again, next_step = counter([0], 4), counter([0], 4), counter([0], 5)
    shape = (1, 400, 100)
    assert torch.equal(first(shape, torch.float32), again(shape, torch.float32))
    agreement = (counter([0], 4)(shape, torch.float32) == next_step(shape, torch.float32)).double().mean()
    assert abs(agreement - 0.82) < 0.01
