"""The list of shipped files, `data/SHA256SUMS` in the format of `sha256sum -c`.

A file that is on the list is written together with its line.
"""

import gzip
import hashlib
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import filelock
import pandas as pd

from carry_core.errors import BadInput
from carry_core.files import damaged, data_dir
from carry_train.files import read_text, replacing, replacing_all, sha256

SUMS = "SHA256SUMS"
REMEDY = (
    "name the data folder in CARRY_DATA, or delete the list and begin it anew with "
    "`carry verify --accept NAME`"
)
NOT_SHIPPED = re.compile(rf"{SUMS}|runs/leading\.json|checkpoints/|author/|(.*/)?\.")
LINE = re.compile("([0-9a-f]{64})  (.+)")


def path_of() -> Path:
    """Return the path of the list."""
    return data_dir() / SUMS


def read_checksums() -> dict[str, str]:
    """Return the sha256 of every shipped file, by its name in the data folder.

    Raises:
        BadInput: The list is missing or damaged.
    """
    sums: dict[str, str] = {}
    for number, line in enumerate(read_text(path_of(), REMEDY).splitlines(), 1):
        match = LINE.fullmatch(line)
        if match is None:
            raise damaged(path_of(), f"line {number} is not a sha256 and a name", REMEDY)
        digest, name = match.groups()
        if not _is_inside(name) or name in sums:
            reason = f"line {number} names {name!r}, no file of the data folder or one twice"
            raise damaged(path_of(), reason, REMEDY)
        sums[name] = digest
    if not sums:
        raise damaged(path_of(), "it names no file", REMEDY)
    return sums


def is_listed(path: Path) -> bool:
    """Return True if this is a shipped file, or their list."""
    if not path_of().exists():
        return False
    name = Path(os.path.relpath(os.path.realpath(path), os.path.realpath(data_dir()))).as_posix()
    return name == SUMS or name in read_checksums()


def _is_inside(name: str) -> bool:
    place = PurePosixPath(name)
    return not place.is_absolute() and ".." not in place.parts and str(place) == name


def shipped_name(path: Path) -> str:
    """Return a file's name on the list; raise `BadInput` if it is not one that is shipped."""
    name = Path(os.path.relpath(path, data_dir())).as_posix()
    if not _is_inside(name) or NOT_SHIPPED.match(name) or not name.isprintable():
        raise BadInput(
            f"{name!r}: expected the name of a file relative to {data_dir()}, "
            "and none of its checkpoints."
        )
    return name


def write_checksums(files: Iterable[Path] | None = None) -> None:
    """Update the list for some files, or rewrite it for all that are shipped.

    Raises:
        BadInput: A file is not one of those that are shipped.
    """
    with _locked():
        sums: dict[str, str] = {}
        if files is None:
            files = _shipped_files()
        elif path_of().exists():
            sums = read_checksums()
        for path in files:
            sums[shipped_name(path)] = sha256(path)
        with replacing(path_of()) as temporary:
            temporary.write_text(_text(sums), encoding="utf-8")


def save_listed(path: Path, content: bytes) -> Path:
    """Write a shipped file together with its line on the list.

    Raises:
        BadInput: They cannot be written; both are as before.
    """
    name = shipped_name(path)
    with _locked():
        sums = read_checksums() if path_of().exists() else {}
        sums[name] = hashlib.sha256(content).hexdigest()
        with replacing_all(path, path_of()) as (file, listed):
            file.write_bytes(content)
            listed.write_text(_text(sums), encoding="utf-8")
    return path


def save_table(path: Path, table: pd.DataFrame) -> Path:
    """Write a table to a shipped `.csv.gz` file; equal tables give equal bytes.

    Raises:
        BadInput: As `save_listed`.
    """
    return save_listed(path, gzip.compress(table.to_csv(index=False).encode(), mtime=0))


def _shipped_files() -> list[Path]:
    root = data_dir()
    paths = [path for path in root.rglob("*") if path.is_file()]
    return [path for path in paths if not NOT_SHIPPED.match(path.relative_to(root).as_posix())]


def _text(sums: Mapping[str, str]) -> str:
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))


@contextmanager
def _locked() -> Iterator[None]:
    """Hold the list while it is read and written again, since two commands may save at once."""
    lock = filelock.FileLock(data_dir() / f".{SUMS}.lock")
    try:
        lock.acquire()
    except OSError as error:
        raise BadInput(
            f"Cannot write {path_of()}: {error.strerror}. "
            "Choose another place; nothing was changed."
        ) from error
    try:
        yield
    finally:
        lock.release()


def restoring(path: Path) -> str:
    """Return how to get a shipped file back: `git checkout` if git tracks it."""
    command = ["git", "-C", str(path.parent), "ls-files", "--error-unmatch", "--", path.name]
    try:
        is_tracked = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:  # git is not installed
        is_tracked = False
    return f"restore it with `git checkout {path}`" if is_tracked else "get it again"
