"""Commands on the files in `data/`: import and export."""

import sys
from pathlib import Path

import click

from carry_core.files import author_dir
from carry_paper import author
from carry_paper.cli.options import FOLDER


@click.command("import-author")
@click.argument("directory", type=click.Path(path_type=Path))
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
    from carry_paper.pages import playground  # matplotlib takes its time

    for path in playground.export(out):
        click.echo(f"{path}: {path.stat().st_size / 1000:.0f} KB")
