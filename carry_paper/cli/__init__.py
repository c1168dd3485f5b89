"""The `carry` command: reads its arguments, calls the packages and prints the results."""

import os
import signal
import sys

import click

from carry_core.errors import BadInput
from carry_paper.cli import data, ledger, llm, train

COMMANDS = (
    data.import_author,
    data.export_playground,
    data.fill,
    train.train,
    train.cell_command,
    train.bench_command,
    ledger.compare_command,
    ledger.claims_command,
    ledger.measure_command,
    ledger.results_command,
    ledger.interchange_command,
    ledger.lines_command,
    llm.llm,
    llm.train_llm,
)
STOPPED_BY_SIGNAL = 130  # the exit code of a program that Ctrl-C stops


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(package_name="carry-core")
def carry() -> None:
    """A reproducible companion to *Carrying over Algorithm in Transformers*."""


for command in COMMANDS:
    carry.add_command(command)


def main() -> None:
    """Run the command line; a user's error is one line on stderr and exit code 2."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        carry(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as no_arguments:
        click.echo(no_arguments.format_message())
    except (click.ClickException, BadInput) as error:
        click.echo(complaint(error), err=True)
        sys.exit(2)
    except OSError as error:  # such as a name that the operating system does not take
        if error.filename is None:
            raise
        click.echo(f"{error.filename}: {error.strerror}. Name another.", err=True)
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        is_training = sys.argv[1:2] in (["train"], ["cell"])
        goes_on = "; what was finished is kept, and the same command goes on from there"
        click.echo(f"Stopped{goes_on if is_training else ''}.", err=True)
        # Do not wait for threads that are in the middle of a pass.
        os._exit(STOPPED_BY_SIGNAL)


def complaint(error: click.ClickException | BadInput) -> str:
    """Return an error's message on one line; a usage error also points to the help."""
    text = error.format_message() if isinstance(error, click.ClickException) else str(error)
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "carry"
        text = f"{text.rstrip().removesuffix('.')}. Try `{command} --help`."
    return " ".join(text.split())
