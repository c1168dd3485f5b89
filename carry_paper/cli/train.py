"""Commands that train groups of runs, or the runs of a cell, and that measure speed."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import click
import pandas as pd
import torch

from carry_core.errors import BadInput
from carry_core.files import data_dir
from carry_core.runs import run_path
from carry_paper import bench, catalogue
from carry_paper.cli.options import COUNT, DEVICE, MINUTES, SAVE, SEED, Place, check_writable
from carry_paper.cli.progress import counted, reporter
from carry_paper.findings import cells
from carry_train import estimates, fused, groups, loop, precisions, progress
from carry_train.checkpoints import Checkpoints
from carry_train.precisions import EXCEPT_AUTO, REQUESTS
from carry_train.progress import Conditions, Progress
from carry_train.seeds import Seeds

# For each group its checkpoints, and how far each run is that is not yet trained to its end.
Plan = list[tuple[Checkpoints, dict[int, Progress]]]


@click.command(
    epilog=f"The paper's groups, the most needed ones first: {', '.join(groups.GROUPS)}."
    f" Any other group is named by {groups.FORM}, such as n2_s0.4_w0.5_dff256_h4."
)
@click.argument("names", metavar="GROUP...", nargs=-1)
@click.option(
    "--all", "all_groups", is_flag=True, help="Train every group, the most needed ones first."
)
@click.option("--runs", "numbers", help="Runs such as 0-5 or 0,2 [default: the group's own].")
@click.option("--epochs", type=COUNT, help="Stop after this many epochs [default: the recipe's].")
@click.option(
    "--recipe",
    type=click.Choice(list(groups.RECIPES)),
    default="paper",
    help="The paper's protocol, hours to days per run on a CPU core; a quick stand-in, 5 to 30"
    " minutes per run; or a model that adds in about a minute.",
)
@DEVICE
@click.option(
    "--precision",
    type=click.Choice(list(REQUESTS)),
    metavar="FORMAT",
    default="fp32",
    help="Number format of matrix products: fp32, bf16, tf32 (on a GPU), or auto, the fastest one"
    " here. A step is computed in C++ (fused) or Triton where possible, else by PyTorch; a name"
    " such as torch-fp32 asks for one of these [default: fp32].",
)
@click.option(
    "--out",
    type=Place(file_okay=False),  # a dry run writes nothing there
    default=lambda: data_dir() / "runs",
    show_default="data/runs",
    help="Output folder.",
)
@click.option("--split-seed", type=SEED, help="Use the split of this run [default: its own].")
@click.option("--init-seed", type=SEED, help="Use initial weights of this run [default: its own].")
@click.option("--order-seed", type=SEED, help="Permute the training sums [default: unpermuted].")
@click.option("--mask-seed", type=SEED, help="Use dropout masks of this run [default: its own].")
@click.option(
    "--rounding-seed",
    type=SEED,
    help="Move one initial weight of each matrix to the next number [default: none].",
)
@MINUTES
@click.option(
    "--dry-run", is_flag=True, help="Only say what would be trained, and about how long it takes."
)
def train(
    names: tuple[str, ...],
    all_groups: bool,
    numbers: str | None,
    epochs: int | None,
    recipe: str,
    device: str,
    precision: str,
    out: Path,
    split_seed: int | None,
    init_seed: int | None,
    order_seed: int | None,
    mask_seed: int | None,
    rounding_seed: int | None,
    minutes: float | None,
    dry_run: bool,
) -> None:
    """Train the missing runs of each GROUP, resuming where an earlier call stopped."""
    clock = loop.Clock(minutes)
    seeds = Seeds(init_seed, order_seed, mask_seed, split_seed, rounding_seed)
    if all_groups == bool(names):
        raise BadInput("What to train? Expected either one or more groups, or --all.")
    torch.set_num_threads(1)  # the last bits depend on it
    conditions = Conditions(device, REQUESTS[precision], seeds)

    plan: Plan = []
    for name in groups.GROUPS if all_groups else names:
        group = groups.find(name)
        found_recipe = groups.find_recipe(recipe, group, epochs)
        checkpoints = Checkpoints(data_dir() / "checkpoints", group, found_recipe)
        if not dry_run:
            check_writable(checkpoints.path(0).parent)
            check_writable(run_path(out, group.name, recipe, 0).parent)
        run_numbers = loop.parse_run_numbers(numbers, checkpoints.group)
        plan.append((checkpoints, progress.missing(checkpoints, run_numbers, out, conditions)))
    loop.check_parents(plan)
    if precision in precisions.RENAMED:
        new_name = precisions.RENAMED[precision]
        click.echo(f"--precision {precision} is now called {new_name}.", err=True)

    # A GPU would first compile the kernels of every group, and takes minutes for all runs of one.
    print_plan(plan, out, device, is_timed=dry_run or device == "cpu")
    if dry_run:
        return
    for checkpoints, missing in plan:
        if not missing:
            continue
        in_time = loop.train_group(checkpoints, missing, out, conditions, clock, reporter())
        catalogue.write_leading(out, checkpoints.group.name)
        if not in_time:
            click.echo("Time is up; the same command goes on from here.")
            return


def precisions_in_words(todo: Mapping[int, Progress]) -> str:
    """Return the precisions of some runs: `fused-fp32`; `run 0 torch-fp32, run 1 fused-fp32`."""
    names = {str(run.precision) for run in todo.values()}
    if len(names) == 1:
        return names.pop()
    return ", ".join(f"run {number} {run.precision}" for number, run in todo.items())


def print_plan(plan: Plan, out: Path, device: str, is_timed: bool) -> None:
    """Print the missing runs and about how long they take, for each group and in all."""
    total = timedelta()
    for checkpoints, missing in plan:
        group = checkpoints.group
        if not missing:
            click.echo(f"{group.name}: complete in {out}.")
            continue
        about = ""
        if is_timed:
            seconds = estimates.seconds_left(checkpoints, missing, device)
            duration = timedelta(seconds=round(seconds))
            total += duration
            about = f"about {duration} "
        recipe = checkpoints.recipe
        epochs = counted(recipe.epochs(group), recipe.unit(group))
        click.echo(
            f"{group.name}: {group}; {loop.runs_in_words(missing)}, {epochs} a run,"
            f" {about}in {precisions_in_words(missing)}."
        )
    if is_timed and any(missing for _, missing in plan):
        click.echo(f"In all about {total} on {device}, estimated from a step of each group.")


@click.command("cell")
@click.argument("group", metavar="GROUP")
@click.option("--runs", "numbers", default=cells.RUNS, help="Runs such as 200-231 or 200,202.")
@click.option(
    "--recipe",
    type=click.Choice(list(groups.RECIPES)),
    default="minute",
    help="Recipe of the runs.",
)
@click.option(
    "--new",
    type=click.Choice(cells.NEW),
    default=cells.NOTHING,
    help="What each run has that the run with its number has not, by a seed of its own: one"
    " rounding unit in a weight of each matrix, or other dropout masks, another order of"
    " the training sums, both of these, another split, other initial weights.",
)
@click.option(
    "--since", type=COUNT, help="With mask+order or rounding: a fork, its base up to this epoch."
)
@click.option("--steps", type=COUNT, help="Length of the schedule [default: the recipe's].")
@click.option("--epochs", type=COUNT, help="Stop after these epochs [default: all].")
@click.option(
    "--precision",
    type=click.Choice(list(EXCEPT_AUTO)),
    metavar="FORMAT",
    default="fp32",
    help="Number format of matrix products, as `carry train` takes it.",
)
@MINUTES
def cell_command(
    group: str,
    numbers: str,
    recipe: str,
    new: str,
    since: int | None,
    steps: int | None,
    epochs: int | None,
    precision: str,
    minutes: float | None,
) -> None:
    """Train the runs of GROUP that the table of cells lacks, measure them and store the values.

    Their weights are removed once they are measured. It resumes where an earlier call stopped.
    """
    clock = loop.Clock(minutes)
    torch.set_num_threads(1)  # the last bits depend on it
    cell = cells.find_cell(group, recipe, new, steps, epochs, since)
    check_writable(cells.path_of().parent)
    request = REQUESTS[precision]
    todo = cells.missing(cell, loop.parse_run_numbers(numbers, cell.group), request)
    for run in todo:
        if not cells.make_run(cell, run, request, clock, reporter()):
            click.echo("Time is up; the same command goes on from here.")
            return
    click.echo(f"{counted(len(todo), 'run')} made; the cell is complete in {cells.path_of()}.")


@click.command("bench")
@click.argument("what", type=click.Choice(["train"]))
@SAVE
def bench_command(what: str, save: bool) -> None:
    """Compare the speed of our training step with that of plain PyTorch."""
    rows = bench.train()
    if torch.cuda.is_available():
        rows += bench.train("cuda", [groups.find(groups.MAIN)], 6)
    click.echo(pd.DataFrame(rows).to_string(index=False, na_rep=""))
    for reason in filter(None, map(fused.why_not, fused.VERSIONS)):
        click.echo(reason)
    if save:
        bench.save(what, rows)
