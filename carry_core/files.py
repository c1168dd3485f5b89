"""The data folders, readers that first check for a regular file, and atomic writes.

Whatever goes wrong while a file is read raises one `BadInput`, which names the file, the reason and
the remedy.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from carry_core.errors import BadInput

Arrays = dict[str, NDArray[Any]]

ROOT = Path(__file__).resolve().parent.parent
# A wheel has the main group's runs here; a checkout has no such folder.
PACKAGED = Path(__file__).resolve().parent / "data"
# The most bytes of a text, or of unpacked arrays: no file of ours has a tenth of that.
LARGEST = 2**28
REASON = 200  # characters of an error's text
# The length in bytes of a zip file's last record, and the place of the number of members in it.
ZIP_END = 22
ZIP_MEMBERS = slice(10, 12)


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


def limited(content: bytes) -> bytes:
    """Return a file's content; raise `ValueError` if it is larger than any file of ours."""
    if len(content) > LARGEST:
        raise ValueError(f"it has more than {LARGEST:,} bytes")
    return content


def read_bytes(path: Path, remedy: str) -> bytes:
    """Return the content of a regular file; raise `BadInput` if it is missing or too large."""
    with reading(path, remedy), path.open("rb") as file:
        return limited(file.read(LARGEST + 1))


def read_text(path: Path, remedy: str) -> str:
    """Return the text of a file in UTF-8; raise `BadInput` if it has none."""
    content = read_bytes(path, remedy)
    with reading(path, remedy):
        return content.decode()


def read_arrays(path: Path, remedy: str) -> Arrays:
    """Return the arrays of an `.npz` file by name; raise `BadInput` if it is damaged."""
    # The file is opened here, since `np.load` leaves a damaged file open.
    with reading(path, remedy), path.open("rb") as opened:
        members = zipfile.ZipFile(opened).infolist()
        if sum(member.file_size for member in members) > LARGEST:
            raise ValueError(f"its arrays have more than {LARGEST:,} bytes")
        opened.seek(-ZIP_END, os.SEEK_END)
        if int.from_bytes(opened.read(ZIP_END)[ZIP_MEMBERS], "little") != len(members):
            raise ValueError("its end names another number of arrays than its directory")
        opened.seek(0)
        with np.load(opened, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}


@contextmanager
def open_tensors(path: Path, remedy: str) -> Iterator[Any]:
    """Yield an open `.safetensors` file; raise `BadInput` if it or a part read is damaged."""
    with reading(path, remedy), safe_open(path, "pt") as file:
        yield file


# ---- writers


@contextmanager
def replacing_all(*paths: Path) -> Iterator[list[Path]]:
    """Yield temporary paths that replace `paths`, in order, if the block ends without an error.

    They do so only once all of them are complete on disk. New files get the permissions that
    the umask allows.

    Raises:
        BadInput: A folder cannot be written to, or the disk is full. The message says which of
            `paths` have changed.
    """
    temporaries: list[Path] = []
    replaced: list[str] = []
    try:
        modes = []
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}")
            with temporary.open("xb") as file:
                temporaries.append(temporary)
                modes.append(os.fstat(file.fileno()).st_mode & 0o777)
        yield temporaries
        for temporary, mode in zip(temporaries, modes, strict=True):
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.chmod(mode)  # since only the owner may read what safetensors writes
        for path, temporary in zip(paths, temporaries, strict=True):
            temporary.replace(path)
            replaced.append(path.name)
    except (OSError, SafetensorError) as error:
        number = _error_number(error)
        if number is None:
            raise
        listed_paths = " and ".join(map(str, paths))
        disk_is_full = number in (errno.ENOSPC, errno.EDQUOT)
        remedy = "Free some space" if disk_is_full else "Choose another place"
        state = f"{', '.join(replaced)} is new" if replaced else "nothing was changed there"
        raise BadInput(
            f"Cannot write {listed_paths}: {os.strerror(number)}. {remedy}; {state}."
        ) from error
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)


def _error_number(error: OSError | SafetensorError) -> int | None:
    """Return the operating system's number of an error, which safetensors has only in its text."""
    if isinstance(error, OSError):
        return error.errno
    match = re.search(r"os error (\d+)", str(error))
    return int(match[1]) if match else None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` if the block ends without an error.

    Raises:
        BadInput: The folder cannot be written to, or the disk is full; `path` is unchanged then.
    """
    with replacing_all(path) as (temporary,):
        yield temporary


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON with one entry per line."""
    return (json.dumps(value, indent=1) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON with one entry per line, atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(json_bytes(value))


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file; raise `BadInput` if it cannot be read."""
    with reading(path, "name a regular file that can be read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
