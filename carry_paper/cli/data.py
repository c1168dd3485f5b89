"""Commands on files: the author's release, the playground's scripts, notebooks that ran."""

import sys
from pathlib import Path

import click

from carry_core.files import author_dir
from carry_paper import author
from carry_paper.cli.options import FOLDER, Place
from carry_paper.pages import playground


@click.command("import-author")
@click.argument("directory", type=Place())
@click.option(
    "--out",
    type=FOLDER,
    default=author_dir,
    show_default="data/author",
    help="Output folder.",
)
def import_author(directory: Path, out: Path) -> None:
    """Convert the author's released weights in DIRECTORY, a clone of his repository."""
    report = author.import_release(directory, out)
    click.echo("\n".join(report.lines()))
    sys.exit(2 if report.damaged else 0)  # a missing file is not an error


@click.command("export-playground")
@click.option("--out", type=FOLDER, default=Path("_build/playground"), help="Output folder.")
def export_playground(out: Path) -> None:
    """Write a script for each run of the playground, with weights, means, planes and probes."""
    for path in playground.export(out):
        click.echo(f"{path}: {path.stat().st_size / 1000:.0f} KB")


@click.command()
@click.argument("notebooks", metavar="NOTEBOOK...", nargs=-1, required=True, type=Place())
def fill(notebooks: tuple[Path, ...]) -> None:
    """Put the values into the sentences of each NOTEBOOK that papermill has run.

    The data of its figures and tables go into files, in a folder beside it.
    """
    from carry_paper.pages import standalone  # matplotlib takes its time

    for path, files in standalone.fill(notebooks).items():
        beside = f"; {', '.join(file.name for file in files)} in {files[0].parent}" if files else ""
        click.echo(f"{path}: values in its sentences{beside}.")
