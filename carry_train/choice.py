"""The precision of a training: what this machine has for a group, and which is the fastest."""

import time
from collections.abc import Collection
from dataclasses import replace
from functools import cache

import torch

from carry_core.errors import BadInput
from carry_core.model import parameter_shapes
from carry_core.sums import n_sums
from carry_fast.layers import keep_memory
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

STEPS = 3  # that are timed, after a first one
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
    """Return the requested precisions that a training can have on the device, in their order.

    Raises:
        BadInput: There is none.
    """
    precisions, refusals = [], []
    for precision in request:
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

    If all are asked for, it is the fastest one, else the first one.

    Raises:
        BadInput: No run of the group can be trained as requested.
    """
    precisions = available(request, group, recipe, device)
    if request == ALL:
        return fastest(precisions, group, recipe.batch_size(group), device)
    return precisions[0]


def fastest(precisions: Collection[Precision], group: Group, batch: int, device: str) -> Precision:
    """Return the fastest of some precisions: by timing, if there are several candidates on a CPU.

    PyTorch's steps are candidates only where we have none of our own, which are always faster.
    Nothing is timed on a GPU, where Triton would first compile for half a minute.
    """
    candidates = [precision for precision in precisions if precision.implementation != TORCH]
    if not candidates:
        candidates = [TORCH_FP32, *([TORCH_BF16] if multiplies_bf16(device) else [])]
    if len(candidates) == 1 or not device.startswith("cpu"):
        return candidates[-1]
    return min(candidates, key=lambda choice: step_seconds(group, batch, 1, device, choice))


def size(group: Group, batch: int) -> int:
    """Return the multiplications of a forward pass of a batch, but for those of attention."""
    n_parameters = sum(shape.numel() for shape in parameter_shapes(group.config).values())
    return n_parameters * batch * group.config.layout.length


@cache
def step_seconds(group: Group, batch: int, n_runs: int, device: str, precision: Precision) -> float:
    """Return the seconds of a step: of a large group in proportion to one of the main group."""
    main = groups.find(groups.MAIN)
    times_as_large = size(group, batch) / size(main, main.batch)
    if times_as_large > LARGEST_TIMED:
        return times_as_large * step_seconds(main, main.batch, n_runs, device, precision)
    one_batch = batch / n_sums(group.n_digits)
    small = replace(group, batch=batch, fraction=one_batch, primed=0, parent=None)
    keep_memory()  # as in training
    trainer = trainer_class(precision)(
        small, RECIPES["quick"], list(range(n_runs)), device, precision
    )
    # An epoch of the small group is a single step. The first one warms up.
    seconds = []
    for _ in range(1 + STEPS):
        began = time.perf_counter()
        for measured in (trainer.train_epoch() or {}).values():
            measured.cpu()  # waits for the GPU
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def multiplies_bf16(device: str) -> bool:
    """Return True if bf16 is known to be faster than fp32 on the device."""
    if device.startswith("cpu"):
        return fused.has_bf16()
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))
