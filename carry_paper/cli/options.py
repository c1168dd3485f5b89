"""Types of options, and the options that several commands share.

Wrong input is refused here, before anything long starts.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import click
import torch

from carry_core import runs
from carry_core.errors import BadInput
from carry_core.files import data_dir, is_packaged
from carry_paper.cli.progress import counted
from carry_train.seeds import MOST_SEED

SHIPPED = ("claims.yml", "llm", "measurements", "results", "runs")  # in the data folder


class Place(click.Path):
    """A file or folder, which need not exist; an empty path is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if value == "":  # `Path` takes it for the current folder
            self.fail("an empty path, expected one that names something.", param, ctx)
        return Path(os.fsdecode(super().convert(value, param, ctx)))


class Target(Place):
    """A file or folder to write, refused if it cannot be written."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = super().convert(value, param, ctx)
        if self.dir_okay:
            check_writable(path)
            return path
        check_writable(path.parent)
        if path.exists() and not path.is_file():  # a device would be replaced
            self.fail(f"{path} is no regular file, expected one, or a new name.", param, ctx)
        if path.exists() and is_shipped(path):
            self.fail(f"{path} is shipped with the book, expected another file.", param, ctx)
        return path


def is_shipped(path: Path) -> bool:
    """Return True if a file is where the book's own are: data that commands read."""
    file, data = path.resolve(), data_dir().resolve()
    return file.is_relative_to(data) and file.relative_to(data).parts[0] in SHIPPED


def check_writable(folder: Path) -> None:
    """Raise `BadInput` unless a file can be created in a folder, which need not exist yet."""
    path = folder.absolute()
    if is_packaged(path):
        raise BadInput(
            f"Cannot write to {folder}: it is part of the installed package. "
            "Name a folder of your own in CARRY_DATA."
        )
    # The folder, or the closest one above it that exists.
    place = next(part for part in (path, *path.parents) if os.path.lexists(part))
    try:
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise BadInput(
            f"Cannot write to {folder}: {error.strerror} ({place}). Choose another place."
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
        check_writable(data_dir() / "results")
    return value


FOLDER = Target(file_okay=False)
SEED = click.IntRange(0, MOST_SEED)
COUNT = click.IntRange(min=1)

DEVICE = click.option(
    "--device", default="auto", callback=pick_device, help="auto, cpu, cuda, cuda:1, …"
)
JSON = click.option(
    "--json",
    "json_file",
    type=Target(dir_okay=False, writable=True),
    help="Also write the rows to this file, as a list.",
)
MINUTES = click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    help="Stop, resumable, after this time.",
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
