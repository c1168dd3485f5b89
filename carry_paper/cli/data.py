"""Commands on the files in `data/`: import, verify, export."""

import sys
from pathlib import Path

import click

from carry_core.files import author_dir, data_dir
from carry_paper import author
from carry_paper.checksums import SUMS, read_checksums, restoring, write_checksums
from carry_paper.cli.options import FOLDER
from carry_train.files import sha256


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


@click.command()
@click.option(
    "--accept", metavar="NAME", multiple=True, help="First record the present state of this file."
)
def verify(accept: tuple[str, ...]) -> None:
    """Compare every shipped file in data/ with data/SHA256SUMS."""
    folder = data_dir()
    if accept:
        write_checksums(folder / name for name in accept)
    broken = False
    for name, digest in read_checksums().items():
        path = folder / name
        if not path.is_file():
            click.echo(f"{name} is missing: {restoring(path)}.", err=True)
            broken = True
        elif sha256(path) != digest:
            remedy = f"{restoring(path)}, or `carry verify --accept {name}`"
            click.echo(f"{name} is damaged: {remedy}.", err=True)
            broken = True
    if broken:
        sys.exit(2)
    click.echo(f"Every shipped file in {folder} is as {SUMS} says.")


@click.command("export-playground")
@click.option("--out", type=FOLDER, default=Path("_build/playground"), help="Output folder.")
def export_playground(out: Path) -> None:
    """Write a script for each run of the playground, with weights, means, planes and probes."""
    from carry_paper.pages import playground  # matplotlib takes its time

    for path in playground.export(out):
        click.echo(f"{path}: {path.stat().st_size / 1000:.0f} KB")
