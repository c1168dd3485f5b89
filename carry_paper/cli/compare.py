"""The command that asks the paper's questions of your runs."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from carry_core.files import replacing, write_json
from carry_fast.layers import keep_memory
from carry_paper.cli.options import JSON, Target
from carry_paper.ledger import compare
from carry_paper.ledger.compare import Answer


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
    subjects = [compare.subject(name) for name in dict.fromkeys(names)]
    keep_memory()
    answers_of: dict[str, list[Answer]] = {}
    for subject in subjects:
        answers = compare.ask(subject, partial(click.echo, err=True))
        answers_of[subject.name] = answers
        show(subject, answers)
    if json_file is not None:
        write_json(json_file, [asdict(answer) for rows in answers_of.values() for answer in rows])
    if html_file is not None:
        from carry_paper.pages import comparison  # matplotlib takes its time

        page = comparison.html(answers_of, subjects)
        with replacing(html_file) as temporary:
            temporary.write_text(page, encoding="utf-8")


def show(subject: compare.Subject, answers: list[Answer]) -> None:
    """Print the answers of some runs, and the tables by class with the paper's cells."""
    click.echo(f"{subject.name}: {subject.words}.")
    click.echo(compare.summary(answers).to_string(index=False, max_colwidth=60))
    for table in compare.tables(answers):
        click.echo(f"\n{table}: mean accuracy of your runs (of ours; in the paper)")
        click.echo(compare.table_in_words(answers, table).to_string())
    click.echo()
