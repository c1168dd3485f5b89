"""Dropout masks that belong to a run: the same ones whichever runs are trained beside it, and on any device.

On a CPU random numbers are the largest cost outside the matrix products, so each run has a fast stream of its own,
and sixteen of its bits make a draw. Zeros come with probability 6554 / 65536, the multiple of 2**-16 nearest to the
paper's 0.1, and what is kept is multiplied by `SCALE`.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.random import SFC64, Generator, SeedSequence
from torch import Tensor

THRESHOLD = 6554
SCALE = 65536 / (65536 - THRESHOLD)

Draw = Callable[[tuple[int, ...], torch.dtype], Tensor]


class Masks:
    """Masks from one SFC64 stream a run."""

    def __init__(self, seeds: list[SeedSequence], device: torch.device) -> None:
        self.streams = [Generator(SFC64(seed)) for seed in seeds]
        self.device = device

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Zeros and ones of shape `[run, …]`, not yet scaled."""
        count = math.prod(shape[1:])
        words = -(-count // 4)
        kept = np.empty((shape[0], count), dtype=bool)
        for run, stream in enumerate(self.streams):
            bits = stream.integers(2**64, size=words, dtype=np.uint64).view(np.uint16)
            np.greater_equal(bits[:count], THRESHOLD, out=kept[run])
        ones = torch.from_numpy(kept.view(np.uint8)).view(shape)  # from bool the conversion takes seven times as long
        return ones.to(self.device).to(dtype)

    def state(self, run: int) -> dict[str, Any]:
        """Where the run's stream stands, ready for JSON."""
        return {"state": [int(word) for word in self.streams[run].bit_generator.state["state"]["state"]]}

    def set_state(self, run: int, state: dict[str, Any]) -> None:
        """Continue the run's stream from there."""
        generator = self.streams[run].bit_generator
        generator.state = {**generator.state, "state": {"state": np.array(state["state"], dtype=np.uint64)}}
