"""How long a training takes, before it begins."""

import time
from collections.abc import Mapping
from dataclasses import replace

from carry_core.sums import n_sums
from carry_fast.layers import keep_memory
from carry_train import groups
from carry_train.checkpoints import Checkpoints
from carry_train.choice import LARGEST_TIMED, n_parameters, trainer_class
from carry_train.groups import Group, Recipe
from carry_train.precisions import Precision
from carry_train.progress import Progress

# A test is a forward pass: with the same sums it takes this share of the time of a step.
TEST_OVER_STEP = 0.3


def seconds_left(
    checkpoints: Checkpoints,
    todo: Mapping[int, Progress],
    device: str,
    choices: Mapping[int, Precision],
) -> float:
    """Return the seconds that it should take to finish some runs, each in its precision.

    On a GPU, a step trains all runs of a precision in lockstep.
    """
    recipe, group = checkpoints.recipe, checkpoints.group
    seconds = 0.0
    for precision in {choices[run] for run in todo}:
        runs = [run for run in todo if choices[run] == precision]
        epochs = [epochs_left(recipe, group, todo[run]) for run in runs]
        in_lockstep = device != "cpu"
        step = step_seconds(group, recipe, runs if in_lockstep else [0], device, precision)
        seconds += step * steps_of_an_epoch(recipe, group) * (max if in_lockstep else sum)(epochs)
    return seconds


def epochs_left(recipe: Recipe, group: Group, progress: Progress) -> float:
    """Return how many epochs of a recipe a run has not been trained for yet."""
    done = progress.epochs + progress.batches / recipe.steps_in_epoch(group)
    return max(0, recipe.epochs(group) - done)


def steps_of_an_epoch(recipe: Recipe, group: Group) -> float:
    """Return the steps of an epoch, plus its share of the tests in steps that take as long."""
    n_test = group.fraction * n_sums(group.n_digits) + (groups.N_LONG if group.padded else 0)
    tests = len(recipe.tested(group)) / recipe.epochs(group)
    return recipe.steps_in_epoch(group) + tests * TEST_OVER_STEP * n_test / recipe.batch_size(group)


def step_seconds(
    group: Group, recipe: Recipe, runs: list[int], device: str, precision: Precision
) -> float:
    """Return the seconds of a step: of a large group in proportion to one of the main group."""
    main = groups.find(groups.MAIN)
    times_as_large = size(group, recipe) / size(main, recipe)
    if times_as_large > LARGEST_TIMED:
        return times_as_large * step_seconds(main, recipe, runs, device, precision)
    batch = recipe.batch_size(group)
    one_batch = batch / n_sums(group.n_digits)
    small = replace(group, batch=batch, fraction=one_batch, primed=0, parent=None)
    keep_memory()  # as in training
    in_passes = replace(recipe, segments=None)
    trainer = trainer_class(precision)(small, in_passes, runs, device, precision)
    # An epoch of the small group is a single step. The first one warms up.
    seconds = 0.0
    for _ in range(2):
        began = time.perf_counter()
        for measured in (trainer.train_epoch() or {}).values():
            measured.cpu()  # waits for the GPU
        seconds = time.perf_counter() - began
    return seconds


def size(group: Group, recipe: Recipe) -> int:
    """Return the multiplications of a forward pass of a batch, but for those of attention."""
    return n_parameters(group) * recipe.batch_size(group) * group.config.layout.length
