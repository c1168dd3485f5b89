"""How long a training takes, and whether it fits into memory, before it begins."""

import math
import os
import time
from collections.abc import Mapping
from dataclasses import replace

import torch

from carry_core import groups
from carry_core.errors import BadInput
from carry_core.fast.layers import keep_memory
from carry_core.groups import Group, Recipe
from carry_core.model import parameter_shapes
from carry_core.sums import n_sums
from carry_paper.training.checkpoints import Checkpoints
from carry_paper.training.loop import Progress, trainer_class

# A test is a forward pass: it takes this share of the time of a step with the same sums.
TESTING = 0.3
# Steps of groups that are more times as large as the main one are not timed.
LARGEST_TIMED = 8
FLOAT = 4  # bytes
# The numbers that training keeps for each parameter: itself, its gradient, and Adam's two moments.
KEPT_PER_PARAMETER = 4


def seconds_left(
    checkpoints: Checkpoints, todo: Mapping[int, Progress], device: str, precision: str
) -> float:
    """Return the seconds that it should take to finish the runs.

    On a GPU, a step trains all runs in lockstep.
    """
    group, recipe = checkpoints.group, checkpoints.recipe
    epochs_left = []
    for progress in todo.values():
        done = progress.epochs + progress.batches / recipe.steps_in_epoch(group)
        epochs_left.append(max(0, recipe.epochs(group) - done))

    in_lockstep = device != "cpu"
    runs = list(todo) if in_lockstep else [0]
    n_test = group.fraction * n_sums(group.n_digits) + (groups.N_LONG if group.padded else 0)
    tested = len(recipe.tested(group)) / recipe.epochs(group)  # the share of epochs with a test
    test = TESTING * n_test / recipe.batch_size(group)  # it is worth so many steps
    steps = recipe.steps_in_epoch(group) + tested * test  # and so is an epoch
    epoch = steps * step_seconds(group, recipe, runs, device, precision)
    return epoch * (max(epochs_left) if in_lockstep else sum(epochs_left))


def step_seconds(
    group: Group, recipe: Recipe, runs: list[int], device: str, precision: str
) -> float:
    """Return the seconds of a step: of a large group in proportion to one of the main group."""
    main = groups.find(groups.MAIN)
    main = replace(main, batch=recipe.batch_size(main))
    group = replace(group, batch=recipe.batch_size(group))
    times_as_large = size(group) / size(main)
    if times_as_large > LARGEST_TIMED:
        return times_as_large * step_seconds(main, recipe, runs, device, precision)
    one_batch = group.batch / n_sums(group.n_digits)
    small = replace(group, fraction=one_batch, primed=0, parent=None)
    keep_memory()  # as in training
    in_passes = replace(recipe, parts=None)
    trainer = trainer_class(precision)(small, in_passes, runs, device, precision)
    # An epoch of the small group is a single step. The first one warms up.
    seconds = 0.0
    for _ in range(2):
        began = time.perf_counter()
        for measured in (trainer.train_epoch() or {}).values():
            measured.cpu()  # waits for the GPU
        seconds = time.perf_counter() - began
    return seconds


def n_parameters(group: Group) -> int:
    """Return the number of parameters of a model of the group."""
    return sum(math.prod(shape) for shape in parameter_shapes(group.config).values())


def size(group: Group) -> int:
    """Return the multiplications of a forward pass of a batch, but for those of attention."""
    return n_parameters(group) * group.batch * group.config.layout.length


def check_memory(group: Group, device: str) -> None:
    """Raise `BadInput` if not even a single run of the group can be trained in this memory."""
    needed, available = memory_needed(group), memory_of(device)
    if needed > available:
        raise BadInput(
            f"{group.name} has {n_parameters(group):,} parameters: to train one run takes at least "
            f"{needed / 2**30:,.0f} GiB of memory, and there are {available / 2**30:,.0f} here; "
            "expected a smaller model."
        )


def memory_needed(group: Group) -> int:
    """Return bytes that training a run takes at the least.

    Besides the parameters, these are the hidden layers of the MLPs before and after the
    nonlinearity. The last block has them at the positions of the answer only.
    """
    config = group.config
    positions = (config.layers - 1) * config.layout.length + len(config.layout.answer)
    hidden = 2 * group.batch * positions * config.d_ff
    return FLOAT * (KEPT_PER_PARAMETER * n_parameters(group) + hidden)


def memory_of(device: str) -> int:
    """Return the bytes of memory that a device has in all."""
    if device == "cpu":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    _, total = torch.cuda.mem_get_info(device)
    return total
