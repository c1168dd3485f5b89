"""Commands that measure and judge what the paper claims."""

import json
import os
import sys
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path

import click

from carry_core.errors import BadInput
from carry_core.files import data_dir, replacing, write_json
from carry_fast.layers import keep_memory
from carry_paper import catalogue
from carry_paper.cli.options import JSON, SAVE, SOURCE, CsvTarget, Whole
from carry_paper.cli.progress import reporter
from carry_paper.findings import interchange_maps, line_table, typology
from carry_paper.ledger import compute, export, moved, recipes, results, seeds
from carry_paper.ledger.report import show
from carry_train import groups, loop


@click.command("claims")
@SOURCE
@click.option("--only", default="", metavar="PREFIX", help="Only rows whose id starts with this.")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also list the rows that changed since FILE, an earlier output of --json or --save,"
    " with both rules.",
)
@JSON
@SAVE
def claims_command(
    source: str, only: str, against: Path | None, json_file: Path | None, save: bool
) -> None:
    """Compute every number of the paper from weights, and judge it."""
    if save and only:
        raise BadInput("--save writes the whole ledger of a source: drop --only, or use --json.")
    earlier = moved.earlier_rows(against, source, only) if against else None
    if save:
        results.check_weights(source)
    keep_memory()

    ledger, rows = compute_rows(source, only)
    show(rows)
    if save:
        results.save(source, rows)
    if json_file is not None:
        write_json(json_file, [asdict(row) for row in rows])
    if earlier is not None:
        lines = moved.moved(earlier, {row.id: row for row in rows})
        click.echo(f"{len(lines)} of {len(rows)} rows moved since {against}.")
        for line in lines:
            click.echo(line)
    if ledger.failed:
        click.echo(
            f"{len(ledger.failed)} failed unexpectedly: {', '.join(ledger.failed)}", err=True
        )
        sys.exit(1)


def compute_rows(source: str, only: str) -> tuple[compute.Ledger, list[results.Row]]:
    """Compute the ledger's rows, with lines of progress; return them with the ledger."""
    report = reporter()
    steps_done = count(1)

    def report_step(step: str) -> None:
        report(source, step, next(steps_done) / n_steps)

    ledger = compute.Ledger(source, only, report_step)
    n_steps = 1 + ledger.steps()
    return ledger, ledger.rows(compute.journal(source))


@click.command("results", epilog=export.documentation())
@click.option(
    "--csv",
    "csv_file",
    is_flag=False,
    flag_value="-",
    type=CsvTarget(),
    metavar="[FILE]",
    help="Write all rows to this file; without a name, print them.",
)
def results_command(csv_file: Path | str | None) -> None:
    """Print the stored results of both sources, which `carry claims --save` wrote."""
    table = export.stored()
    if table.empty:
        raise BadInput(
            f"No results are stored in {data_dir()}: name the folder that has them in CARRY_DATA, "
            "or make them with `carry claims --source ours --save`."
        )
    if csv_file is None:
        counts = table.groupby(["verdict", "source"], sort=False).size().unstack(fill_value=0)
        click.echo(counts.to_string())
    elif csv_file == "-":
        click.echo(export.csv_text(table), nl=False)
    else:
        with replacing(Path(csv_file)) as temporary:
            temporary.write_text(export.csv_text(table), encoding="utf-8")


@click.command("interchange")
@SOURCE
@click.argument("names", metavar="[GROUP...]", nargs=-1)
@click.option(
    "--pairs",
    type=Whole(5, 10**6),
    show_default=f"{interchange_maps.PAIRS} in {groups.MAIN}, {interchange_maps.PAIRS_OF_OTHERS}"
    " in other groups",
    help="Pairs of sums for swaps at an answer position; elsewhere a fifth of that.",
)
@JSON
@SAVE
def interchange_command(
    source: str, names: tuple[str, ...], pairs: int | None, json_file: Path | None, save: bool
) -> None:
    """Locate the carry in all runs of each GROUP, by swapping activations between two sums.

    Parts of the model are swapped one at a time. Without a GROUP, all groups that have runs are
    mapped.
    """
    counts = pairs_by_group(source, names, pairs)
    if save:
        for name, n_pairs in counts.items():
            interchange_maps.check_replaces(source, name, n_pairs, catalogue.find(name, source))
    rows = []
    for name, n_pairs in counts.items():
        maps = interchange_maps.measure_group(source, name, partial(click.echo, err=True), n_pairs)
        swaps = maps[~maps.control]
        rows += json.loads(swaps[interchange_maps.COLUMNS].to_json(orient="records"))
        click.echo(f"{name} ({source}): swaps that move the carry, by part of the last layer")
        click.echo(typology.who_decides(swaps).to_string(float_format="%.2f"))
        if save:
            interchange_maps.save(source, name, maps)
    if json_file is not None:
        write_json(json_file, rows)


def pairs_by_group(source: str, names: tuple[str, ...], pairs: int | None) -> dict[str, int]:
    """Return the number of pairs of sums that are swapped in each group.

    Args:
        source: `ours` or `author`.
        names: The groups; if there are none, all that have runs.
        pairs: The number for all groups; if None, each group has its default.
    """
    group_names = [groups.find(name).name for name in names]
    if not group_names:
        group_names = [name for name in groups.GROUPS if catalogue.find(name, source)]
    counts = {}
    for name in group_names or [groups.MAIN]:
        counts[name] = pairs or interchange_maps.default_pairs(name)
    return counts


# What `carry seeds` prints of each run; the rest is in its JSON.
SEEDS_SHOWN = ["exact match", "one head", "heads together", "earlier", "final MLP"]


@click.command("seeds")
@SOURCE
@click.option(
    "--recipe",
    type=click.Choice(list(groups.RECIPES)),
    default="quick",
    help="Recipe of our runs; the author's have none.",
)
@click.option("--runs", "numbers", help="Runs such as 0-31 [default: all that exist].")
@JSON
@SAVE
def seeds_command(
    source: str, recipe: str, numbers: str | None, json_file: Path | None, save: bool
) -> None:
    """Measure runs of the main group: what moves their carry, and which findings they show.

    Some findings compare them with runs of other groups, which also have to exist. Saved rows of
    other runs stay.
    """
    recipe_of_source = recipe if source == "ours" else None
    available = catalogue.find(groups.MAIN, source, recipe=recipe_of_source, runs=range(1000))
    run_numbers = sorted(available)
    if numbers is not None:
        run_numbers = loop.parse_run_numbers(numbers, groups.find(groups.MAIN))
    if save and os.path.lexists(seeds.path_of()):
        seeds.saved()  # refuses a damaged table now, and not after an hour
    rows = seeds.measured(source, recipe_of_source, run_numbers, partial(click.echo, err=True))
    at_the_end = rows[rows.epoch.isna()].set_index("run")
    click.echo(at_the_end[SEEDS_SHOWN].to_string(float_format="%.3f"))
    records = json.loads(rows.to_json(orient="records", double_precision=5))
    if save:
        seeds.save(rows)
    if json_file is not None:
        write_json(json_file, records)


@click.command("lines")
@SOURCE
@click.argument("names", metavar="[GROUP...]", nargs=-1)
@click.option(
    "--recipe",
    type=click.Choice(list(groups.RECIPES)),
    help="Recipe of our runs [default: the one that leads].",
)
@click.option("--runs", "numbers", help="Runs such as 0-31 [default: 0-5].")
@JSON
@SAVE
def lines_command(
    source: str,
    names: tuple[str, ...],
    recipe: str | None,
    numbers: str | None,
    json_file: Path | None,
    save: bool,
) -> None:
    """Fit the line on which each run of each GROUP has its carry, and swap it between two sums.

    Without a GROUP, all groups of two layers or more that have runs are measured. Saved rows of
    other runs stay.
    """
    selections = lines_by_group(source, names, recipe, numbers)
    if save and os.path.lexists(line_table.path_of()):
        line_table.saved()  # refuses a damaged table now, and not after half an hour
    records = []
    for name, selection in selections.items():
        rows = line_table.measure_group(source, name, partial(click.echo, err=True), selection)
        summary = line_table.by_run(line_table.decided(rows))
        click.echo(summary.drop(columns=["source", "group"]).to_string(index=False))
        records += json.loads(rows.to_json(orient="records", double_precision=5))
        if save:
            line_table.save(rows)
    if json_file is not None:
        write_json(json_file, records)


def lines_by_group(
    source: str, names: tuple[str, ...], recipe: str | None, numbers: str | None
) -> dict[str, line_table.Selection]:
    """Return the runs whose lines are measured, by group.

    Args:
        source: `ours` or `author`.
        names: The groups; if there are none, all of two layers or more that have runs.
        recipe: Our recipe; None for the one that leads in each group.
        numbers: The runs, such as `0-31`; None for the first six.

    Raises:
        BadInput: A group cannot be measured, or has no such runs.
    """
    chosen = [line_table.check_group(groups.find(name)) for name in names]
    if not names:
        deep = [group for group in groups.GROUPS.values() if group.config.layers > 1]
        chosen = [group for group in deep if catalogue.find(group.name, source, recipe=recipe)]
    selections = {}
    for group in chosen or [groups.find(groups.MAIN)]:
        run_numbers = loop.parse_run_numbers(numbers, group) if numbers is not None else None
        if not catalogue.find(group.name, source, recipe=recipe, runs=run_numbers):
            raise catalogue.missing("weights", group.name, source, recipe, run_numbers or ())
        selections[group.name] = line_table.Selection(recipe, run_numbers)
    return selections


@click.command("recipes")
@click.argument("names", metavar="[GROUP...]", nargs=-1)
@JSON
@SAVE
def recipes_command(names: tuple[str, ...], json_file: Path | None, save: bool) -> None:
    """Measure the ledger's rows on our runs of each GROUP by both recipes, run by run.

    Without a GROUP, all groups that have runs by both are measured, and each is saved when it is
    done. Saved rows of other runs stay, those of runs that no longer exist among them.
    """
    chosen = [recipes.check_group(name) for name in names] or recipes.groups_with_both()
    if not chosen:
        raise BadInput(
            f"No group in {data_dir()} has runs by both recipes: name the folder that has them in "
            "CARRY_DATA, or train some with `carry train GROUP --recipe quick`."
        )
    if save and os.path.lexists(recipes.path_of()):
        recipes.saved()  # refuses a damaged table now, and not after an hour
    keep_memory()
    measuring = recipes.Measuring(partial(click.echo, err=True))
    records = []
    for name in chosen:
        rows = measuring.group(name)
        numbers = rows.groupby("recipe").run.nunique()
        runs_in_words = ", ".join(f"{n} by {recipe}" for recipe, n in numbers.items())
        click.echo(f"{name}: {rows.id.nunique()} rows of the ledger, runs: {runs_in_words}")
        records += json.loads(rows.to_json(orient="records", double_precision=5))
        if save:
            recipes.save(rows)
    if json_file is not None:
        write_json(json_file, records)
