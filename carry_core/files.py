"""Where data lie, atomic writes, and the checksums of what is shipped."""

import ctypes
import errno
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from safetensors import SafetensorError

from carry_core.errors import BadInput

ROOT = Path(__file__).resolve().parent.parent
SUMS = "SHA256SUMS"


def data_dir() -> Path:
    """The folder with weights and results: `data/` of the repository, or what CARRY_DATA names."""
    return Path(os.environ.get("CARRY_DATA") or ROOT / "data")


def author_dir() -> Path:
    """The folder with the author's imported release: `author/` in the data folder, or what CARRY_AUTHOR names."""
    return Path(os.environ.get("CARRY_AUTHOR") or data_dir() / "author")


def commit() -> str:
    """The commit of this checkout, with `+` where `carry_core` was changed since; `unknown` outside of one."""
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        diff = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "carry_core"], capture_output=True, check=False)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if diff.returncode else "")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error.

    Raises:
        BadInput: the folder cannot be written or the disk is full; `path` is as it was.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # safetensors lets nobody else read
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        number = _errno(error)
        if number is None:
            raise
        remedy = "Free some space" if number in (errno.ENOSPC, errno.EDQUOT) else "Choose another place"
        raise BadInput(f"Cannot write {path}: {os.strerror(number)}. {remedy}; nothing was changed.") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _errno(error: OSError | SafetensorError) -> int | None:
    """The system's error number, which safetensors only writes into its message; None if there is none."""
    if isinstance(error, OSError):
        return error.errno
    match = re.search(r"os error (\d+)", str(error))
    return int(match[1]) if match else None


def check_writable(folder: Path, meant: Path | None = None) -> None:
    """Find out before anything long starts whether files can be written to a folder; changes nothing.

    Args:
        folder: which one; it need not exist.
        meant: the file that is to be written there, for the message.

    Raises:
        BadInput: they cannot.
    """
    place = folder.absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        why = os.strerror(errno.EACCES if place.is_dir() else errno.ENOTDIR)
        raise BadInput(f"Cannot write {meant or folder}: {why}. Choose a folder that can be written to.")


def write_json(path: Path, value: Any) -> None:
    """Write JSON with one line per entry, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, sort_keys=False) + "\n")


def sha256(path: Path) -> str:
    """Hexadecimal sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_checksums() -> dict[str, str]:
    """The sha256 of every shipped file by its name in the data folder, as `data/SHA256SUMS` has it.

    Raises:
        BadInput: the list is missing or damaged, or names a file outside of that folder.
    """
    path = data_dir() / SUMS
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: restore it with git, or name the data folder in CARRY_DATA.") from error
    sums = {}
    for number, line in enumerate(lines, 1):
        match = re.fullmatch(r"([0-9a-f]{64})  (.{1,255})", line)
        if not match or not _is_inside(match[2]):
            raise BadInput(f"{path}, line {number}: expected a sha256 and the name of a file in {data_dir()}.")
        sums[match[2]] = match[1]
    return sums


def _is_inside(name: str) -> bool:
    return not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts


def write_checksums(names: Iterable[str] | None = None) -> None:
    """Write `data/SHA256SUMS`, in the format of `sha256sum -c`.

    Args:
        names: files whose lines are written anew; None for all of the data folder but checkpoints, the author's
            release and hidden files.

    Raises:
        BadInput: a name is not that of such a file, or the list cannot be written.
    """
    root = data_dir()
    shipped = {
        path.relative_to(root).as_posix(): path
        for path in root.rglob("*")
        if path.is_file() and path.name != SUMS and not any(part[0] == "." for part in path.relative_to(root).parts)
    }
    shipped = {name: path for name, path in shipped.items() if name.split("/")[0] not in ("checkpoints", "author")}
    sums = {} if names is None or not (root / SUMS).exists() else read_checksums()
    for name in shipped if names is None else names:
        if name not in shipped:
            raise BadInput(f"{name}: expected the name of a file relative to {root}, and none of its checkpoints.")
        sums[name] = sha256(shipped[name])
    with replacing(root / SUMS) as temporary:
        temporary.write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())), encoding="utf-8")


def verify() -> list[str]:
    """Compare every shipped file with its checksum: a line for each that is missing or damaged.

    Raises:
        BadInput: as `read_checksums`.
    """
    problems = []
    for name, expected in read_checksums().items():
        path = data_dir() / name
        if not path.is_file():
            problems.append(f"{name} is missing: restore it with git.")
        elif sha256(path) != expected:
            problems.append(f"{name} is damaged: restore it with git, or `carry verify --accept {name}`.")
    return problems


def keep_memory() -> None:
    """Have the C library keep freed blocks: to return them and fault them in again slows every step."""
    m_trim_threshold, m_mmap_max = -1, -4
    with suppress(OSError, AttributeError):  # another C library: slower, no less right
        libc = ctypes.CDLL(None)
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 2**31 - 1)
