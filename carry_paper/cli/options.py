"""Types of options, and the options that several commands share.

Wrong input is refused here, before anything long starts.
"""

import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import torch

from carry_core import runs
from carry_core.errors import BadInput
from carry_core.files import data_dir, is_packaged
from carry_paper.cli.progress import counted
from carry_train.seeds import MOST_SEED


def check_digits(value: Any) -> None:
    """Refuse text that Python reads as a number despite other characters: `nan`, `١`, `1_0`."""
    if isinstance(value, str) and not re.fullmatch("[-+.e0-9]+", value):
        raise click.BadParameter(f"{value!r}, expected a number in the digits 0 to 9.")


class Whole(click.IntRange):
    """A whole number within bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        check_digits(value)
        return super().convert(value, param, ctx)


class Number(click.FloatRange):
    """A number within bounds, never NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        check_digits(value)
        return super().convert(value, param, ctx)


class Target(click.Path):
    """A file or folder to write, refused if it cannot be written."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value == "":  # `Path` takes it for the current folder
            self.fail("an empty path, expected one that names something.", param, ctx)
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if self.dir_okay:
            check_writable(path)
            return path
        check_writable(path.parent, path.name)
        if path.exists() and not path.is_file():  # a device would be replaced
            self.fail(f"{path} is no regular file, expected one, or a new name.", param, ctx)
        return path


class CsvTarget(Target):
    """A file to write, or `-` for the terminal."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "-" else super().convert(value, param, ctx)


def check_writable(folder: Path, file: str = "") -> None:
    """Check that a file can be created in a folder, which need not exist yet.

    `file` is the file's name, which has to leave room for that of a temporary file.

    Raises:
        BadInput: Nothing can be written there, or a name is too long.
    """
    path = folder.absolute()
    if is_packaged(path):
        raise BadInput(
            f"Cannot write to {folder / file}: it is part of the installed package. "
            "Name a folder of your own in CARRY_DATA."
        )
    # The folder, or the closest one above it that exists.
    place = next(part for part in (path, *path.parents) if os.path.lexists(part))
    temporary_name = f".{file}.12345678"
    try:
        tempfile.TemporaryFile(dir=place).close()
        for name in (*path.relative_to(place).parts, temporary_name, str(path / file)):
            # This raises another OSError where a name, or the whole path, is too long.
            with suppress(FileNotFoundError):
                os.lstat(place / name)
    except OSError as error:
        raise BadInput(
            f"Cannot write to {folder / file}: {error.strerror} ({place}). Choose another place."
        ) from error


def pick_device(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Return a device that PyTorch supports here; `auto` is the GPU if there is one."""
    n_devices = torch.cuda.device_count()
    device = value
    if value == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?", device):
        raise BadInput(f"Unknown device {device!r}: expected cpu, cuda or cuda:1.")
    if device != "cpu" and (torch.device(device).index or 0) >= n_devices:
        available = counted(n_devices, "CUDA device")
        raise BadInput(f"Device {device}: PyTorch finds {available} here; expected cpu.")
    return device


def check_results_writable(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Return `value`; if it is True, first check that results can be saved in the data folder."""
    if value:
        results_dir = data_dir() / "results"
        check_writable(data_dir())
        check_writable(results_dir)
        for folder in results_dir.rglob("*"):
            if folder.is_dir():
                check_writable(folder)
    return value


FOLDER = Target(file_okay=False)
SEED = Whole(0, MOST_SEED)

DEVICE = click.option(
    "--device", default="auto", callback=pick_device, help="auto, cpu, cuda, cuda:1, …"
)
JSON = click.option(
    "--json",
    "json_file",
    type=Target(dir_okay=False, writable=True),
    help="Also write the rows to this file, as a list.",
)
SAVE = click.option(
    "--save",
    is_flag=True,
    callback=check_results_writable,
    help="Also write the results to data/results, for the book.",
)
SOURCE = click.option(
    "--source", type=click.Choice(runs.SOURCES), required=True, help="Our weights or the author's."
)
THREADS = click.option(
    "--threads", type=Whole(1, 1024), default=1, help="CPU threads; the last bits depend on them."
)
