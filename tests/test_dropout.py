import numpy as np
import pytest
import torch

from carry_core.training.dropout import SCALE, THRESHOLD, CounterMasks, StreamMasks
from carry_core.training.trainer import Seeds

SHAPE = (2, 1001, 997)


def stream(runs):
    return StreamMasks([Seeds.of(run).dropout for run in runs])


def counter(runs, step=0):
    masks = CounterMasks([Seeds.of(run).dropout for run in runs], torch.device("cpu"))
    return masks.at(torch.tensor(step, dtype=torch.int32))


def test_the_rate_is_the_papers():
    """A tenth (App. A), as nearly as sixteen bits can say it; what is kept makes up for it."""
    assert min(range(65536), key=lambda threshold: abs(threshold / 65536 - 0.1)) == THRESHOLD
    kept = 1 - THRESHOLD / 65536
    assert kept * SCALE == pytest.approx(1, abs=1e-15)


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


def test_counters_hash_with_unsigned_arithmetic():
    """Against whole numbers modulo 2**32 at the first places."""
    modulus = 1 << 32

    def mix(x: int) -> int:
        x = (x ^ (x >> 16)) * 0x7FEB352D % modulus
        x = (x ^ (x >> 15)) * 0x846CA68B % modulus
        return x ^ (x >> 16)

    first, second = (int(word) for word in Seeds.of(3).dropout.generate_state(2, np.uint32))
    draw = counter([3], 70_000)
    found = [draw((1, 400), torch.int32)[0].tolist() for _ in range(6)]
    for place, mask in enumerate(found, 1):
        here = mix((mix((70_000 + first) % modulus) + place * 0x9E3779B9) % modulus)
        expected = [mix(mix((index + here) % modulus) ^ second) >> 16 >= THRESHOLD for index in range(400)]
        assert mask == expected, place


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
