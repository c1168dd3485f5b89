"""The data folders, and readers that report in one line what is wrong with a file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import safe_open

from carry_core.errors import BadInput

ROOT = Path(__file__).resolve().parent.parent
# A wheel has the main group's runs here; a checkout has no such folder.
PACKAGED = Path(__file__).resolve().parent / "data"
REASON = 200  # characters of an error's text


def data_dir() -> Path:
    """Return the folder with weights and results: CARRY_DATA if set, else the repository's.

    Where a wheel is installed, it is the one in the package, which has few weights and no results.
    """
    own_folder = PACKAGED if PACKAGED.is_dir() else ROOT / "data"
    return _folder_of("CARRY_DATA") or own_folder


def is_packaged(path: Path) -> bool:
    """Return True if this is a file or folder of an installed wheel, or would be one."""
    return PACKAGED.is_dir() and path.is_relative_to(PACKAGED)


def author_dir() -> Path:
    """Return the folder with the author's imported release.

    It is CARRY_AUTHOR if that is set, else `author/` in the data folder.
    """
    return _folder_of("CARRY_AUTHOR") or data_dir() / "author"


def _folder_of(variable: str) -> Path | None:
    """Return the folder that an environment variable names, which need not exist; None if unset."""
    if not os.environ.get(variable):
        return None
    folder = Path(os.environ[variable])
    try:
        if folder.exists():
            os.listdir(folder)  # noqa: PTH208 (`iterdir` looks only when it is asked for more)
    except OSError as error:
        raise BadInput(
            f"{variable}={folder}: {error.strerror}. Expected a folder that can be read; "
            "name another, or unset it."
        ) from error
    return folder


def damaged(path: Path, reason: str, remedy: str) -> BadInput:
    """Return the error that says why a file cannot be read, and how to get it back."""
    if os.path.lexists(path):
        return BadInput(f"{path} is damaged ({reason}): {remedy}.")
    return BadInput(f"{path} does not exist: {remedy.removeprefix('delete it and ')}.")


def reason(error: Exception) -> str:
    """Return an error's text on one short line."""
    if isinstance(error, KeyError):
        text = f"it has no {error}"
    elif isinstance(error, OSError) and error.strerror:
        text = error.strerror
    else:
        text = str(error)
    text = " ".join(text.split()) or type(error).__name__
    return text if len(text) <= REASON else f"{text[:REASON]}…"


@contextmanager
def reading(path: Path, remedy: str) -> Iterator[None]:
    """Check that a file is a regular one, and report what fails in the block that reads it.

    Raises:
        BadInput: There is no regular file, or it is damaged. A damaged file can fail in any
            way, so every exception counts as damage.
    """
    try:
        if not path.is_file():  # opening a FIFO would wait for its writer
            raise ValueError("it is not a regular file")
        yield
    except BadInput:
        raise
    except Exception as error:
        raise damaged(path, reason(error), remedy) from error


@contextmanager
def open_tensors(path: Path, remedy: str) -> Iterator[Any]:
    """Yield an open `.safetensors` file; raise `BadInput` if it or a part read is damaged."""
    with reading(path, remedy), safe_open(path, "pt") as file:
        yield file
