"""The command that makes cells: it trains runs, measures them and throws their weights away."""

import click
import torch

from carry_paper.cli.options import COUNT, MINUTES, check_writable
from carry_paper.cli.progress import reporter
from carry_paper.findings import cells
from carry_train import groups, loop
from carry_train.precisions import AUTO, REQUESTS


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
    " rounding unit in an initial weight of each matrix, or other dropout masks, another order of"
    " the training sums, another split, other initial weights.",
)
@click.option("--steps", type=COUNT, help="Length of the schedule [default: the recipe's].")
@click.option("--epochs", type=COUNT, help="Stop after these epochs [default: all].")
@click.option(
    "--precision",
    type=click.Choice([name for name in REQUESTS if name != AUTO]),
    metavar="FORMAT",
    default="fp32",
    help="Number format of matrix products, as `carry train` takes it; a cell has one.",
)
@MINUTES
def cell_command(
    group: str,
    numbers: str,
    recipe: str,
    new: str,
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
    cell = cells.find_cell(group, recipe, new, steps, epochs)
    check_writable(cells.path_of().parent)
    request = REQUESTS[precision]
    todo = cells.missing(cell, loop.parse_run_numbers(numbers, cell.group), request)
    for run in todo:
        if not cells.make_run(cell, run, request, clock, reporter()):
            click.echo("Time is up; the same command goes on from here.")
            return
    click.echo(f"{len(todo)} runs were made; the cell is complete in {cells.path_of()}.")
