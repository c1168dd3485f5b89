import pytest
import torch

from carry_core.training.dropout import SCALE, THRESHOLD, Masks
from carry_core.training.trainer import Seeds

SHAPE = (2, 1001, 997)


def stream(runs):
    return Masks([Seeds.of(run).dropout for run in runs], torch.device("cpu"))


def test_the_rate_is_the_papers():
    """A tenth (App. A), as nearly as sixteen bits can say it; what is kept makes up for it."""
    assert min(range(65536), key=lambda threshold: abs(threshold / 65536 - 0.1)) == THRESHOLD
    kept = 1 - THRESHOLD / 65536
    assert kept * SCALE == pytest.approx(1, abs=1e-15)


def test_masks_are_independent_coins():
    """Rate, both runs, neighbours, later draws: each within five standard deviations of independence."""
    draw = stream([0, 1])
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


def test_a_runs_masks_do_not_depend_on_its_neighbours():
    together, alone = stream([3, 5]), stream([5])
    for _ in range(3):
        assert torch.equal(together((2, 10, 7), torch.float32)[1:], alone((1, 10, 7), torch.float32))
