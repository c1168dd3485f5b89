"""Dropout masks of the step in Triton, drawn in plain PyTorch: its hash a second time."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.random import SeedSequence

from carry_train.groups import Group
from carry_train.stacked import threshold_of

LOW = 2**32 - 1
FACTORS = (0x21F0AAAD, 0xD35A2D97)
ON_PATTERN, ON_HIDDEN = 0, 2  # of the four places of a layer


def mix(x: int) -> int:
    x ^= x >> 16
    x = x * FACTORS[0] & LOW
    x ^= x >> 15
    x = x * FACTORS[1] & LOW
    return x ^ (x >> 15)


def numbers(index: torch.Tensor, words: Sequence[int], step: int, place: int) -> torch.Tensor:
    """Return the numbers from 0 to 65,535 that decide on the entries with these indices."""
    before, inside = (mix(mix(word ^ step) ^ place) for word in words)
    x = (index + before) & LOW
    x = x ^ (x >> 16)
    x = x * FACTORS[0] & LOW
    x = x ^ inside
    x = x ^ (x >> 15)
    x = x * FACTORS[1] & LOW
    x = x ^ (x >> 15)
    return x & 0xFFFF


class HashedMasks:
    """Masks for `Stack`, in the order and the shapes in which it draws them.

    Attributes:
        step: The number of the step. To set it starts the order anew.
    """

    def __init__(self, seeds: Sequence[SeedSequence], group: Group) -> None:
        self.words = [seed.generate_state(2, np.uint32).tolist() for seed in seeds]
        self.group = group
        self.step = 0
        self.places = 0

    def start(self, step: int) -> None:
        """Begin with the first mask of a step."""
        self.step = step
        self.places = 0

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        place = self.places
        self.places += 1
        masks = [self.mask(words, place, shape) for words in self.words]
        return torch.stack(masks).to(dtype)

    def mask(self, words: Sequence[int], place: int, shape: tuple[int, ...]) -> torch.Tensor:
        config = self.group.config
        layer, kind = divmod(place, 4)
        n_pos = config.layout.length
        last = layer == config.layers - 1
        queries = torch.arange(len(config.layout.loss_positions) if last else n_pos)
        # A batch's last sums may be missing; that does not change the others' indices.
        if kind != ON_PATTERN:
            count = shape[2]
        elif layer == 0:
            count = shape[4]
        else:
            count = shape[2] // config.heads
        token = queries[:, None] * self.group.batch + torch.arange(count)  # (query, sum)
        if kind == ON_PATTERN:
            by_head = token[..., None] * config.heads + torch.arange(config.heads)
            index = by_head[..., None] * n_pos + torch.arange(n_pos)  # (query, sum, head, key)
        else:
            width = config.d_ff if kind == ON_HIDDEN else config.d_model
            index = token[..., None] * width + torch.arange(width)
        keeps = numbers(index, words, self.step, place) >= threshold_of(self.group.dropout)
        if kind != ON_PATTERN:
            return keeps
        if layer == 0:
            return keeps.permute(2, 3, 0, 1)  # (head, key, query, sum)
        return keeps.permute(3, 1, 2, 0).flatten(1, 2)  # (key, sum * head, query)
