"""Commands that measure and judge what the paper claims, or compare your runs with it."""

import json
import os
from collections.abc import Collection
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import click

from carry_core import measure, runs
from carry_core.errors import BadInput
from carry_core.files import data_dir
from carry_core.sums import Numbers
from carry_fast.layers import keep_memory
from carry_paper import catalogue, measurements
from carry_paper.cli.options import JSON, SAVE, SOURCE, Target, check_writable
from carry_paper.cli.progress import counted
from carry_paper.findings import interchange_maps, line_table, typology
from carry_paper.findings.evidence import Evidence
from carry_paper.ledger import claims, compare, export, ledger, moved, registry
from carry_paper.ledger.compare import ComparedRow
from carry_paper.ledger.entries import name_of
from carry_paper.ledger.measuring import Measuring, Quantity, as_table, quantities
from carry_paper.ledger.report import show
from carry_train import groups, loop
from carry_train.files import replacing, write_json

ONLY = click.option(
    "--only", default="", metavar="PREFIX", help="Only rows whose id starts with this."
)
RECIPE = click.option(
    "--recipe",
    type=click.Choice(list(groups.RECIPES)),
    help="Recipe of our runs [default: the one that leads].",
)
RUNS = click.option("--runs", "numbers", help="Runs such as 0-31 [default: 0-5].")


@click.command("claims")
@click.option(
    "--source",
    type=click.Choice(runs.SOURCES),
    default="ours",
    show_default=True,
    help="Our weights or the author's.",
)
@ONLY
@click.option(
    "--against",
    metavar="FILE|COMMIT",
    help="Also list the rows that changed since then: an earlier output of --json, or a commit.",
)
@JSON
def claims_command(source: str, only: str, against: str | None, json_file: Path | None) -> None:
    """Judge every number and statement of the paper, from what was measured (`carry measure`)."""
    earlier = moved.earlier_rows(against, source, only) if against is not None else None
    judged = ledger.by_id(source)
    rows = {claim.id: judged[claim.id] for claim in claims.chosen(only)}
    show(list(rows.values()))
    if json_file is not None:
        write_json(json_file, [asdict(row) for row in rows.values()])
    if earlier is not None:
        lines = moved.moved(earlier, rows)
        click.echo(f"{len(lines)} of {len(rows)} rows moved since {against}.")
        for line in lines:
            click.echo(line)


@click.command("measure")
@SOURCE
@click.argument("names", metavar="[GROUP...]", nargs=-1)
@ONLY
@RECIPE
@RUNS
@click.option(
    "--sums",
    "n_sums",
    type=click.IntRange(1, measure.MAX_SUMS_PER_CLASS),
    help="Sums of each carry class on which runs are surveyed [default: all sums of up to three "
    "digits].",
)
@click.option("--dry-run", is_flag=True, help="Only list what would be measured.")
def measure_command(
    source: str,
    names: tuple[str, ...],
    only: str,
    recipe: str | None,
    numbers: str | None,
    n_sums: int | None,
    dry_run: bool,
) -> None:
    """Measure what the rows of the ledger read, and store it in data/measurements.

    Only what is missing is measured, or was measured on other weights or by other code; rows of
    other runs stay.
    Without a GROUP, all groups of the rows are measured.
    """
    asked = asked_quantities(only, [groups.find(name).name for name in names])
    table = measurements.read(source)  # refuses a damaged table now, and not after an hour
    selection = {name: selected(name, recipe, numbers) for name in groups.GROUPS}
    for name in names if recipe or numbers else ():
        catalogue.load(name, source, **selection[name])  # refuses runs that there are not
    surveyed = partial(balanced_sums, n_sums) if n_sums is not None else None

    def evidence() -> Evidence:
        return Evidence(source, {}, partial(click.echo, err=True), selection, surveyed)

    whys = Measuring(evidence(), asked).missing(table)
    measuring = Measuring(evidence(), whys)
    if whys and not dry_run:
        check_writable(measurements.path_of(source).parent)
    for quantity, why in whys.items():
        click.echo(f"{name_of(quantity.function)}: {', '.join(quantity.places)} ({why})")
    if dry_run:
        return
    keep_memory()
    n_measured = 0
    for quantity in measuring.asked:
        rows = as_table(measuring.of_quantity(quantity))
        measurements.save(rows)
        reasons = [x[measurements.REASON] for x in rows.fields if measurements.is_reason(x)]
        n_measured += len(reasons) < len(rows)
        results = [counted(len(rows) - len(reasons), "row"), *reasons]
        click.echo(f"{name_of(quantity.function)}: {'; '.join(results)}")
    click.echo(f"Quantities measured: {n_measured}.")
    if measuring.failed:
        raise click.ClickException(f"Failed unexpectedly: {', '.join(measuring.failed)}")


@cache
def balanced_sums(n_sums: int, group: str) -> tuple[Numbers, Numbers]:
    """Return this many sums of each carry class of a group's sums."""
    return measure.sample(n_sums, groups.find(group).n_digits, seed=0)


def asked_quantities(only: str, names: Collection[str]) -> list[Quantity]:
    """Return the quantities of the rows whose id starts with `only`, on some groups or on all.

    Those that no claim is about are named by themselves.

    Raises:
        BadInput: No id starts so, or no such row is about one of the groups.
    """
    entries = [entry for name, entry in registry.UNCLAIMED.items() if name.startswith(only)]
    if not entries or not only:
        entries += [registry.entry(claim.id) for claim in claims.chosen(only)]
    asked = quantities(entries)
    for name in names:
        if not any(name in quantity.places for quantity in asked):
            raise BadInput(
                f"None of the rows that are asked for is about {name}: expected another group; "
                f"`carry compare {name}` asks the paper's questions of any."
            )
    if not names:
        return asked
    for quantity in asked:
        quantity.places = {name: None for name in quantity.places if name in names}
    return [quantity for quantity in asked if quantity.places]


def selected(name: str, recipe: str | None, numbers: str | None) -> dict[str, Any]:
    """Return the keyword arguments of `catalogue.load` that choose a group's runs."""
    chosen: dict[str, Any] = {} if recipe is None else {"recipe": recipe}
    if numbers is not None:
        chosen["runs"] = loop.parse_run_numbers(numbers, groups.find(name))
    return chosen


@click.command("results")
@click.option(
    "--csv",
    "csv_file",
    type=Target(dir_okay=False, writable=True),
    help="Write all rows to this file.",
)
def results_command(csv_file: Path | None) -> None:
    """Print the results of both sources, judged from what was measured (`carry measure`)."""
    table = export.stored()
    if table.empty:
        raise BadInput(
            f"Nothing is measured in {data_dir()}: name the folder that has measurements in "
            "CARRY_DATA, or make them with `carry measure --source ours`."
        )
    if csv_file is None:
        counts = table.groupby(["verdict", "source"], sort=False).size().unstack(fill_value=0)
        click.echo(counts.to_string())
        return
    with replacing(csv_file) as temporary:
        temporary.write_text(export.csv_text(table), encoding="utf-8")


@click.command("interchange")
@SOURCE
@click.argument("names", metavar="[GROUP...]", nargs=-1)
@JSON
@SAVE
def interchange_command(
    source: str, names: tuple[str, ...], json_file: Path | None, save: bool
) -> None:
    """Locate the carry in all runs of each GROUP, by swapping activations between two sums.

    Parts of the model are swapped one at a time. Without a GROUP, all groups that have runs are
    mapped.
    """
    group_names = [groups.find(name).name for name in names]
    if not group_names:
        group_names = [name for name in groups.GROUPS if catalogue.find(name, source)]
    counts = {name: interchange_maps.default_pairs(name) for name in group_names or [groups.MAIN]}
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


@click.command("lines")
@SOURCE
@click.argument("names", metavar="[GROUP...]", nargs=-1)
@RECIPE
@RUNS
@SAVE
def lines_command(
    source: str,
    names: tuple[str, ...],
    recipe: str | None,
    numbers: str | None,
    save: bool,
) -> None:
    """Swap the carry, and the nine, between sums in each run of each GROUP, and say who wrote it.

    Without a GROUP, all groups of two layers or more that have runs are measured. Saved rows of
    other runs stay.
    """
    selections = lines_by_group(source, names, recipe, numbers)
    if save and os.path.lexists(line_table.path_of()):
        line_table.saved()  # refuses a damaged table now, and not after half an hour
    for name, selection in selections.items():
        rows = line_table.measure_group(source, name, partial(click.echo, err=True), selection)
        summary = line_table.by_run(rows)
        click.echo(summary.drop(columns=["source", "group"]).to_string(index=False))
        if save:
            line_table.save(rows)


def lines_by_group(
    source: str, names: tuple[str, ...], recipe: str | None, numbers: str | None
) -> dict[str, line_table.Selection]:
    """Return the runs whose lines are measured, by group, as `lines_command` takes them.

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


@click.command("compare")
@click.argument("names", metavar="GROUP|DIR|FILE...", nargs=-1, required=True)
@JSON
@click.option(
    "--html",
    "html_file",
    type=Target(dir_okay=False, writable=True),
    help="Also write a page with figures to this file, which needs no other file.",
)
def compare_command(names: tuple[str, ...], json_file: Path | None, html_file: Path | None) -> None:
    """Ask the paper's questions of your runs, beside the paper and the spread of our seeds.

    Runs are named by their group (listed or not), by the folder that has them, or by their file.
    """
    subjects = [compare.Subject.of(name) for name in dict.fromkeys(names)]
    keep_memory()
    answers_of: dict[str, list[ComparedRow]] = {}
    for subject in subjects:
        answers = compare.ask(subject, partial(click.echo, err=True))
        answers_of[subject.name] = answers
        show_comparison(subject, answers)
    if json_file is not None:
        write_json(json_file, [asdict(answer) for rows in answers_of.values() for answer in rows])
    if html_file is not None:
        from carry_paper.pages import comparison  # matplotlib takes its time

        page = comparison.html(answers_of, subjects)
        with replacing(html_file) as temporary:
            temporary.write_text(page, encoding="utf-8")


def show_comparison(subject: compare.Subject, answers: list[ComparedRow]) -> None:
    """Print the answers of some runs, and the tables by class with the paper's cells."""
    click.echo(f"{subject.name}: {subject.words}.")
    click.echo(compare.summary(answers).to_string(index=False, max_colwidth=60))
    for table in compare.tables(answers):
        click.echo(f"\n{table}: mean accuracy of your runs (of ours; in the paper)")
        click.echo(compare.table_in_words(answers, table).to_string())
    click.echo()
