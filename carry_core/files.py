"""Where data lie, readers that check first that there is a regular file, and atomic writes.

Whatever goes wrong while a file is read is one `BadInput`, which names the file, the reason and the
remedy.
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
# bytes of a text or of arrays once they are unpacked: no file of ours has a tenth of that
LARGEST = 2**28
REASON = 200  # characters
ZIP_END = 22  # bytes of the last record of a zip file, which has the number of its members


def data_dir() -> Path:
    """The folder with weights and results: `data/` of the repository, or what CARRY_DATA names."""
    return Path(os.environ.get("CARRY_DATA") or ROOT / "data")


def author_dir() -> Path:
    """The folder with the author's imported release: `author/` in the data folder, or what CARRY_AUTHOR names."""
    return Path(os.environ.get("CARRY_AUTHOR") or data_dir() / "author")


# What is said of a file that cannot be used


def damaged(path: Path, why: str, remedy: str) -> BadInput:
    """The error that says why a file cannot be read, and how to get it again: from git, else by `remedy`."""
    if os.path.lexists(path):
        return BadInput(f"{path} is damaged ({why}): {restoring(path, remedy)}.")
    return BadInput(
        f"{path} does not exist: {restoring(path, remedy.removeprefix('delete it and '))}."
    )


def restoring(path: Path, otherwise: str) -> str:
    """The remedy for a file: `git checkout` if it is tracked, else another."""
    return f"restore it with `git checkout {path}`" if is_tracked(path) else otherwise


def is_tracked(path: Path) -> bool:
    """Return whether a git checkout has the file, which need not exist."""
    try:
        listed = ["git", "-C", str(path.parent), "ls-files", "--error-unmatch", "--", path.name]
        return subprocess.run(listed, capture_output=True, check=False).returncode == 0
    except OSError:  # there is no git
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


# Readers


@contextmanager
def reading(path: Path, remedy: str) -> Iterator[None]:
    """Open and decode a regular file in this block: `BadInput` with the remedy where there is none, or it is damaged.

    A damaged file can fail in any way, so that every exception but `BadInput` counts as damage.
    """
    try:
        if not path.is_file():  # a FIFO would be waited for
            raise ValueError("it is not a regular file")
        yield
    except BadInput:
        raise
    except Exception as error:
        raise damaged(path, reason(error), remedy) from error


def limited(content: bytes) -> bytes:
    """Return what was read of a file; `ValueError` if that is more than any of ours has."""
    if len(content) > LARGEST:
        raise ValueError(f"it has more than {LARGEST:,} bytes")
    return content


def read_bytes(path: Path, remedy: str) -> bytes:
    """The content of a regular file; `BadInput` if there is none, or it is larger than any of ours."""
    with reading(path, remedy), path.open("rb") as file:
        return limited(file.read(LARGEST + 1))


def read_text(path: Path, remedy: str) -> str:
    """The text of a file in UTF-8, else `BadInput`."""
    content = read_bytes(path, remedy)
    with reading(path, remedy):
        return content.decode()


def read_arrays(path: Path, remedy: str) -> Arrays:
    """The arrays of an `.npz` file by name, else `BadInput`."""
    with reading(path, remedy), path.open("rb") as opened:  # else a damaged one stays open
        parts = zipfile.ZipFile(opened).infolist()
        if sum(part.file_size for part in parts) > LARGEST:
            raise ValueError(f"its arrays have more than {LARGEST:,} bytes")
        opened.seek(-ZIP_END, os.SEEK_END)
        if int.from_bytes(opened.read(ZIP_END)[10:12], "little") != len(parts):
            raise ValueError("its end names another number of arrays than its directory")
        opened.seek(0)
        with np.load(opened, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}


@contextmanager
def open_tensors(path: Path, remedy: str) -> Iterator[Any]:
    """An open `.safetensors` file; `BadInput` if it is damaged, or what the block reads of it is not as expected."""
    with reading(path, remedy), safe_open(path, "pt") as file:
        yield file


# Writers


@contextmanager
def replacing_all(*paths: Path) -> Iterator[list[Path]]:
    """Temporary paths beside `paths` that take their places, in this order, when the block ends without an error.

    They do so only when all of them are whole on the disk: `BadInput` if a folder cannot be written
    or the disk is full, and says which of `paths` are not as they were. New files are as readable
    as the umask lets them be.
    """
    temporaries: list[Path] = []
    done: list[str] = []
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
            temporary.chmod(mode)  # safetensors lets nobody else read
        for path, temporary in zip(paths, temporaries, strict=True):
            temporary.replace(path)
            done.append(path.name)
    except (OSError, SafetensorError) as error:
        # safetensors writes the number into its message only
        match = re.search(r"os error (\d+)", str(error))
        number = error.errno if isinstance(error, OSError) else int(match[1]) if match else None
        if number is None:
            raise
        what, left = (
            " and ".join(map(str, paths)),
            f"{', '.join(done)} is new" if done else "nothing was changed there",
        )
        remedy = (
            "Free some space" if number in (errno.ENOSPC, errno.EDQUOT) else "Choose another place"
        )
        raise BadInput(f"Cannot write {what}: {os.strerror(number)}. {remedy}; {left}.") from error
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error.

    `BadInput` if the folder cannot be written or the disk is full; `path` is then as it was.
    """
    with replacing_all(path) as (temporary,):
        yield temporary


def json_bytes(value: Any) -> bytes:
    """JSON, one value a line."""
    return (json.dumps(value, indent=1) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """Write JSON, one value a line, atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(json_bytes(value))


def sha256(path: Path) -> str:
    """Hexadecimal sha256 of a file; `BadInput` if it cannot be read."""
    with reading(path, "make it readable"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
