"""How costs grow with layers, widths, digits, runs and sums (`carry bench growth`).

Two costs are measured for models of growing size: measuring Table 1's conditions on random sums,
and a training step. They are measured in processor time on one thread, in turns.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from carry_core import measure, sums
from carry_core.model import Transformer
from carry_fast.layers import keep_memory
from carry_paper.bench import Row, in_turns, table_1
from carry_train import groups
from carry_train.groups import RECIPES
from carry_train.precisions import TORCH_FP32
from carry_train.trainer import Trainer

N_SUMS = 1024
MEASURING, TRAINING = "measuring", "a training step"
# Every processor can train in it, so that tables of different machines can be compared.
PRECISION = TORCH_FP32


class Point(NamedTuple):
    """A size at which a cost is measured.

    Attributes:
        what: The size that grows, in words.
        size: How large it is here.
        group: The group whose model it is, by name.
        runs: The number of runs: measured one after the other, trained in lockstep.
        n_sums: The number of sums to measure; a training step has its batch of 1,024.
    """

    what: str
    size: int
    group: str
    runs: int = 1
    n_sums: int = N_SUMS


def points() -> list[Point]:
    """Return the sizes that `carry bench growth` measures, with the smallest of each first."""
    name = groups.MAIN
    sizes = [Point("sums", n_sums, name, n_sums=n_sums) for n_sums in (1024, 4096, 16384)]
    sizes += [Point("runs", runs, name, runs=runs) for runs in (1, 2, 4)]
    sizes += [Point("layers", layers, f"n{layers}_s0.3_w0.2") for layers in (1, 2, 3)]
    # The three-digit model has no prefix: its sums have three digits.
    sizes += [Point("digits", n, name if n == 3 else f"pad{n}_{name}") for n in (3, 6, 10)]
    sizes += [Point("width of the MLP", d_ff, named("dff", d_ff)) for d_ff in (128, 512, 1024)]
    sizes += [Point("width of the model", d, named("d", d)) for d in (128, 256, 512)]
    return sizes


def named(option: str, width: int) -> str:
    """Return the name of the main group with another width; a default is left out of names."""
    return groups.MAIN if width == 128 else f"{groups.MAIN}_{option}{width}"


def growth(points: Iterable[Point], rounds: int = 3) -> list[Row]:
    """Return a row for each size and each of the two costs, in milliseconds.

    A training step is not measured for numbers of sums: an epoch has more steps, no other ones.
    """
    keep_memory()
    chosen = [*points]
    tasks: dict[str, Callable[[], Any]] = {}
    rows: dict[str, Row] = {}
    for point in chosen:
        costs = {MEASURING: measuring(point)}
        if point.what != "sums":
            costs[TRAINING] = training(point)
        for cost, task in costs.items():
            key = f"{cost} {point.what} {point.size}"
            tasks[key] = task
            rows[key] = {"cost": cost, "what": point.what, "size": point.size}
    seconds = in_turns(tasks, rounds, 1, timer=time.process_time)
    for key, median in seconds.median().items():
        rows[str(key)]["ms"] = round(1e3 * median, 1)
    return [*rows.values()]


def measuring(point: Point) -> Callable[[], Any]:
    """Return a function that measures Table 1's conditions on untrained models of a size."""
    config = groups.find(point.group).config
    models = [Transformer(config).eval() for _ in range(point.runs)]
    a, b = sums.long_sums(point.n_sums, config.width, torch.Generator().manual_seed(0))

    def measure_all() -> None:
        for model in models:
            measure.predict(model, a, b, table_1(model))

    return measure_all


def training(point: Point) -> Callable[[], Any]:
    """Return a function that takes a training step of models of a size."""
    group = groups.find(point.group)
    trainer = Trainer(group, RECIPES["quick"], [*range(point.runs)], "cpu", PRECISION)
    a, b = trainer.batches(trainer.train, group.batch)[0]
    return partial(trainer.step, a, b, 1)


def exponents(rows: list[Row]) -> pd.DataFrame:
    """Return each cost at each size, and the power of the size with which it grows.

    Args:
        rows: The rows of `growth`.

    Returns:
        A row for each cost and what grows, in their order: `cost`, `what`, `sizes` and `ms`
        (lists), and `exponent`, the slope of a line through their logarithms.
    """
    fits = []
    for (cost, what), measured in pd.DataFrame(rows).groupby(["cost", "what"], sort=False):
        slope, _ = np.polyfit(np.log(measured["size"]), np.log(measured["ms"]), 1)
        sizes, milliseconds = measured["size"].tolist(), measured["ms"].tolist()
        fits.append((cost, what, sizes, milliseconds, float(slope)))
    return pd.DataFrame(fits, columns=["cost", "what", "sizes", "ms", "exponent"])
