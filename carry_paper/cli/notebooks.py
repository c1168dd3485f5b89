"""The command on notebooks that papermill has run."""

from pathlib import Path

import click


@click.command()
@click.argument(
    "notebooks",
    metavar="NOTEBOOK...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
)
def fill(notebooks: tuple[Path, ...]) -> None:
    """Put the values into the sentences of each NOTEBOOK that papermill has run.

    The data of its figures and tables go into files, in a folder beside it.
    """
    from carry_paper.pages import standalone  # matplotlib takes its time

    for path, files in standalone.fill(notebooks).items():
        beside = f"; {', '.join(file.name for file in files)} in {files[0].parent}" if files else ""
        click.echo(f"{path}: values in its sentences{beside}.")
