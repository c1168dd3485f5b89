"""The precision of a training: what this machine has for a group, and which is the fastest."""

import math
import time
from collections.abc import Collection
from dataclasses import replace
from functools import cache

import torch

from carry_core.errors import BadInput
from carry_core.model import parameter_shapes
from carry_core.sums import n_sums
from carry_train import fused, groups
from carry_train.groups import RECIPES, Group, Recipe
from carry_train.precisions import (
    ALL,
    FUSED,
    TORCH,
    TORCH_BF16,
    TORCH_FP32,
    TORCH_TF32,
    TRITON,
    Precision,
    Request,
)
from carry_train.trainer import Trainer

TIMED_SUMS = 256  # in a step that is timed
TIMED_SECONDS, MOST_ROUNDS = 1.0, 10
# Steps of groups that are more times as large as the main one are not timed.
LARGEST_TIMED = 8


def trainer_class(precision: Precision) -> type[Trainer]:
    """Return the class that trains in this precision; raise `BadInput` if Triton is missing."""
    if precision.implementation != TRITON:
        return Trainer
    try:
        from carry_train.gpu_trainer import GpuTrainer
    except ImportError as error:
        raise BadInput(
            f"--precision {precision} needs the package triton, which comes with PyTorch for CUDA: "
            "install it, or choose another precision, such as auto."
        ) from error
    return GpuTrainer


def check_precision(precision: Precision, group: Group, recipe: Recipe, device: str) -> None:
    """Raise `BadInput` if no run can be trained by the recipe, in the precision, on the device."""
    on_cpu = device.startswith("cpu")
    if on_cpu and (precision.implementation == TRITON or precision == TORCH_TF32):
        raise BadInput(f"--precision {precision} runs on CUDA devices only: choose fp32 or auto.")
    if not on_cpu and precision.implementation == FUSED:
        raise BadInput(f"--precision {precision} runs on a CPU only: choose bf16 or auto.")
    trainer_class(precision).check(group, recipe, precision)
    if precision.implementation == FUSED:
        fused.library(precision.format)  # builds it now, or raises if that is impossible


def available(request: Request, group: Group, recipe: Recipe, device: str) -> list[Precision]:
    """Return the precisions that a request allows and a training can have on the device.

    Those by an implementation of our own come first.

    Raises:
        BadInput: There is none.
    """
    precisions, refusals = [], []
    for precision in filter(request.allows, ALL):
        try:
            check_precision(precision, group, recipe, device)
        except BadInput as error:
            refusals.append(error)
        else:
            precisions.append(precision)
    if not precisions:
        raise refusals[0]
    return precisions


def choose(request: Request, group: Group, recipe: Recipe, device: str) -> Precision:
    """Return the precision in which new runs of a group are trained by a recipe.

    If no format is asked for, it is the fastest one; if no implementation is, it is our own, where
    there is one.

    Raises:
        BadInput: No run of the group can be trained as requested.
    """
    precisions = available(request, group, recipe, device)
    if request.format is None:
        return fastest(precisions, group, device)
    return precisions[0]


def fastest(precisions: Collection[Precision], group: Group, device: str) -> Precision:
    """Return the fastest of some precisions: by timing, if there are several candidates on a CPU.

    PyTorch's steps are candidates only where we have none of our own, which are always faster.
    Nothing is timed on a GPU, where Triton would first compile for half a minute.
    """
    candidates = [precision for precision in precisions if precision.implementation != TORCH]
    if not candidates:
        candidates = [TORCH_FP32, *([TORCH_BF16] if multiplies_bf16(device) else [])]
    if len(candidates) == 1 or not device.startswith("cpu"):
        return candidates[-1]
    milliseconds = timed(tuple(candidates), group, device)
    return min(candidates, key=lambda precision: milliseconds[str(precision)])


def n_parameters(group: Group) -> int:
    """Return the number of parameters of a model of the group."""
    return sum(math.prod(shape) for shape in parameter_shapes(group.config).values())


@cache
def timed(precisions: tuple[Precision, ...], group: Group, device: str) -> dict[str, float]:
    """Return the milliseconds of processor time that a step of `TIMED_SUMS` sums takes in each.

    The precisions take turns, and the shortest step of each counts. In place of a group that is
    too large for that, the main group is timed.
    """
    main = groups.find(groups.MAIN)
    if n_parameters(group) > LARGEST_TIMED * n_parameters(main):
        group = main
    # The shapes are the group's, but the sums are of two digits: there are few of them to list.
    fraction = TIMED_SUMS / n_sums(2)
    small = replace(
        group,
        n_digits=2,
        fraction=fraction,
        batch=TIMED_SUMS,
        primed=0,
        parent=None,
        tracks_final_mlp=False,
    )
    trainers = {}
    for precision in precisions:
        new_trainer = trainer_class(precision)
        trainers[str(precision)] = new_trainer(small, RECIPES["quick"], [0], device, precision)
    shortest = dict.fromkeys(trainers, math.inf)
    end = time.monotonic() + TIMED_SECONDS
    rounds = 0
    while rounds < 2 or (rounds < MOST_ROUNDS and time.monotonic() < end):
        for name, trainer in trainers.items():
            began = time.process_time()
            trainer.train_epoch()  # a single step
            shortest[name] = min(shortest[name], 1e3 * (time.process_time() - began))
        rounds += 1
    return shortest


def multiplies_bf16(device: str) -> bool:
    """Return True if bf16 is known to be faster than fp32 on the device."""
    if device.startswith("cpu"):
        return bool(fused.bf16_instructions())
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))
