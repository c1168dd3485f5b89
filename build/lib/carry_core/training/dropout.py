"""Dropout masks that belong to a run: on one kind of device the same ones whichever runs are trained beside it.

On a CPU random numbers are the largest cost outside the matrix products, and a fast stream of each run's own
pays. On a GPU a stream's state would be in the way of capturing a step, so there a mask is a function of the
run's key, the step and the place. Zeros come with probability 6554 / 65536, the multiple of 2**-16 nearest
to the paper's 0.1, and what is kept is multiplied by `SCALE`.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.random import SFC64, Generator, SeedSequence
from torch import Tensor

THRESHOLD = 6554
SCALE = 65536 / (65536 - THRESHOLD)

Draw = Callable[[tuple[int, ...], torch.dtype], Tensor]


class StreamMasks:
    """Masks from one SFC64 stream a run, sixteen bits a draw (for CPUs)."""

    def __init__(self, seeds: list[SeedSequence]) -> None:
        self.streams = [Generator(SFC64(seed)) for seed in seeds]

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Zeros and ones of shape `[run, …]`, not yet scaled."""
        count = math.prod(shape[1:])
        words = -(-count // 4)
        kept = np.empty((shape[0], count), dtype=bool)
        for run, stream in enumerate(self.streams):
            bits = stream.integers(2**64, size=words, dtype=np.uint64).view(np.uint16)
            np.greater_equal(bits[:count], THRESHOLD, out=kept[run])
        return torch.from_numpy(kept.view(np.uint8)).view(shape).to(dtype)  # from bool it takes seven times as long

    def state(self, run: int) -> dict[str, Any]:
        """Where the run's stream stands, ready for JSON."""
        return {"state": [int(word) for word in self.streams[run].bit_generator.state["state"]["state"]]}

    def set_state(self, run: int, state: dict[str, Any]) -> None:
        """Continue the run's stream from there; a run that comes from a GPU starts its stream here."""
        if "state" in state:
            generator = self.streams[run].bit_generator
            generator.state = {**generator.state, "state": {"state": np.array(state["state"], dtype=np.uint64)}}


class CounterMasks:
    """Masks by hashing (run's key, step, place, index) with 32-bit integers (for GPUs); it keeps no state."""

    def __init__(self, seeds: list[SeedSequence], device: torch.device) -> None:
        words = np.stack([seed.generate_state(2, np.uint32) for seed in seeds]).view(np.int32)
        self.keys = torch.from_numpy(words).to(device)  # (run, 2)

    def at(self, step: Tensor) -> Draw:
        """The masks of one step; the places are numbered in the order in which they are drawn.

        Args:
            step: the step's number, int32, on the device.
        """
        return partial(self.draw, step, iter(range(1, 1 << 16)))

    def draw(self, step: Tensor, places: Iterator[int], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Zeros and ones of shape `[run, …]` for the next place; all arithmetic is modulo 2**32."""
        place = _signed(next(places) * 0x9E3779B9 & 0xFFFFFFFF)
        here = _mix(_mix(step + self.keys[:, 0]) + place).unsqueeze(1)
        index = torch.arange(math.prod(shape[1:]), dtype=torch.int32, device=self.keys.device)
        bits = _mix(_mix(index + here) ^ self.keys[:, 1:])
        return (((bits >> 16) & 0xFFFF) >= THRESHOLD).view(shape).to(dtype)

    def state(self, run: int) -> dict[str, Any]:
        return {}

    def set_state(self, run: int, state: dict[str, Any]) -> None:
        """Nothing to set: the step says all."""


def _signed(value: int) -> int:
    """An unsigned 32-bit constant as the signed one with the same bits."""
    return value - (1 << 32) if value >= 1 << 31 else value


def _mix(x: Tensor) -> Tensor:
    """A permutation of the 32-bit integers in which every input bit moves every output bit (shift and multiply)."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x7FEB352D
    x = (x ^ ((x >> 15) & 0x1FFFF)) * _signed(0x846CA68B)
    return x ^ ((x >> 16) & 0xFFFF)
