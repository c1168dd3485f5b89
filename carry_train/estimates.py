"""How long a training takes, before it begins."""

from collections.abc import Mapping

from carry_core.sums import n_sums
from carry_train import groups
from carry_train.checkpoints import Checkpoints
from carry_train.choice import step_seconds
from carry_train.groups import Group, Recipe
from carry_train.progress import Progress

# A test is a forward pass: with the same sums it takes this share of the time of a step.
TEST_OVER_STEP = 0.3


def seconds_left(checkpoints: Checkpoints, todo: Mapping[int, Progress], device: str) -> float:
    """Return the seconds that it should take to finish some runs.

    On a GPU, a step trains all runs of a precision in lockstep.
    """
    recipe, group = checkpoints.recipe, checkpoints.group
    seconds = 0.0
    in_lockstep = device != "cpu"
    for precision in {run.precision for run in todo.values()}:
        together = [run for run in todo.values() if run.precision == precision]
        epochs = [epochs_left(recipe, group, run) for run in together]
        n_runs = len(together) if in_lockstep else 1
        step = step_seconds(group, recipe.batch_size(group), n_runs, device, precision)
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
