"""The data folders, and readers that first check for a regular file.

Whatever goes wrong while a file is read raises one `BadInput`, which names the file, the reason and
the remedy.
"""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from carry_core.errors import BadInput, moved

ROOT = Path(__file__).resolve().parent.parent
# A wheel has the main group's runs here; a checkout has no such folder.
PACKAGED = Path(__file__).resolve().parent / "data"
REASON = 200  # characters of an error's text
MOVED = "json_bytes read_arrays read_bytes read_text replacing replacing_all sha256 write_json"

if not TYPE_CHECKING:

    def __getattr__(name: str) -> None:
        raise moved(__name__, MOVED, name)


def data_dir() -> Path:
    """Return the folder with weights and results: CARRY_DATA if set, else the repository's.

    Where a wheel is installed, it is the one in the package, which has few weights and no results.

    Raises:
        BadInput: CARRY_DATA is a name that cannot be one of a folder, or it may not be read.
    """
    own_folder = PACKAGED if PACKAGED.is_dir() else ROOT / "data"
    return _folder_of("CARRY_DATA") or own_folder


def is_packaged(path: Path) -> bool:
    """Return True if this is a file or folder of an installed wheel, or would be one."""
    return PACKAGED.is_dir() and path.is_relative_to(PACKAGED)


def author_dir() -> Path:
    """Return the folder with the author's imported release.

    It is CARRY_AUTHOR if that is set, else `author/` in the data folder.

    Raises:
        BadInput: As `data_dir`.
    """
    return _folder_of("CARRY_AUTHOR") or data_dir() / "author"


def _folder_of(variable: str) -> Path | None:
    """Return the folder that an environment variable names; None if it is unset or empty.

    Raises:
        BadInput: The folder may not be read, or the operating system takes no such name.
    """
    name = os.environ.get(variable)
    if not name:
        return None
    folder = Path(name)
    try:
        # Such a folder may be missing: `carry train` makes it.
        if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise BadInput(
            f"{variable}={folder}: {error.strerror}. Expected a folder that can be read; "
            "name another, or unset it."
        ) from error
    return folder


# ---- errors about a file that cannot be used


def damaged(path: Path, reason: str, remedy: str) -> BadInput:
    """Return the error that says why a file cannot be read, and how to get it back.

    Git restores the file if it is tracked; the `remedy` is for one that is not.
    """
    if os.path.lexists(path):
        return BadInput(f"{path} is damaged ({reason}): {restoring(path, remedy)}.")
    return BadInput(
        f"{path} does not exist: {restoring(path, remedy.removeprefix('delete it and '))}."
    )


def restoring(path: Path, otherwise: str) -> str:
    """Return the remedy for a file: `git checkout` if it is tracked, else `otherwise`."""
    return f"restore it with `git checkout {path}`" if is_tracked(path) else otherwise


def is_tracked(path: Path) -> bool:
    """Return True if git tracks the file, which need not exist."""
    command = ["git", "-C", str(path.parent), "ls-files", "--error-unmatch", "--", path.name]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:  # git is not installed
        return False


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


# ---- readers


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
