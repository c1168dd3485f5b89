"""The hash that draws the masks of the step in Triton; `test_gpu` compares kernels with it."""

import torch

from tests.helpers.gpu_masks import numbers

COUNT = 2**20
DROPPED_BELOW = 6554


def test_masks_are_independent_coins():
    """Rate, runs, steps, places and neighbours are independent within five standard deviations."""
    index = torch.arange(COUNT)
    keys = [((1, 2), 0, 0), ((3, 4), 0, 0), ((1, 2), 1, 0), ((1, 2), 0, 1), ((1, 4), 0, 0)]
    dropped = torch.stack([numbers(index, *key) < DROPPED_BELOW for key in keys]).double()
    p = DROPPED_BELOW / 2**16
    assert ((dropped.mean(1) - p).abs() < 5 * (p * (1 - p) / COUNT) ** 0.5).all()
    centred = (dropped - p) / (p * (1 - p)) ** 0.5
    correlation = centred @ centred.T / COUNT
    off_diagonal = correlation - correlation.diag().diag()
    assert off_diagonal.abs().max() < 5 / COUNT**0.5
    for lag in (1, 2, 3, 4, 32, 128, 1024):
        assert (centred[:, lag:] * centred[:, :-lag]).mean(1).abs().max() < 5 / COUNT**0.5
