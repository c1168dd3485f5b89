"""Where things lie, writing them so that a killed process leaves the old file or the new one, and keeping memory."""

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from carry_core.errors import BadInput, NotNow

ROOT = Path(__file__).resolve().parent.parent
_held: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())  # this thread's locks


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise BadInput(f"Cannot write {path}: {error.strerror}. Choose a folder that can be written to.") from error
    temporary = Path(name)
    try:
        with writing(path):
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What goes wrong in the block, on the way to what is to be at `path`, is said in one line.

    Raises:
        BadInput: the folder cannot be written or the disk is full.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = _errno(error)
        if number is None:
            raise
        remedy = "Free some space" if number in (errno.ENOSPC, errno.EDQUOT) else "Choose another place"
        why = os.strerror(number)
        raise BadInput(f"Cannot write {path}: {why}. {remedy}; what was there is untouched.") from error


def _errno(error: OSError | SafetensorError) -> int | None:
    """The system's error number, which safetensors only writes into its message; None if there is none."""
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"os error (\d+)", str(error))
    return int(found[1]) if found else None


def check_writable(folder: Path, meant: Path | None = None, *, dry: bool = False) -> None:
    """Make the folder, and find out before anything long starts whether files can be written there.

    Args:
        folder: which one.
        meant: the file that is to be written there, for the message.
        dry: make and write nothing, and find out what can be known without.

    Raises:
        BadInput: they cannot.
    """
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = os.strerror(errno.EACCES if there.is_dir() else errno.ENOTDIR)
        raise BadInput(f"Cannot write {meant or folder}: {why}. Choose a folder that can be written to.")
    if dry:
        return
    probe = folder / ".probe"
    try:
        with replacing(probe):
            pass
    except BadInput as error:
        raise BadInput(str(error).replace(str(probe), str(meant or folder))) from error
    probe.unlink(missing_ok=True)  # another process that asks the same has removed it


def write_json(path: Path, value: Any) -> None:
    """Write JSON with one line per entry, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, sort_keys=False) + "\n")


def sha256(path: Path) -> str:
    """Hexadecimal sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(folder: Path, name: str = ".lock", busy: str | None = None) -> Iterator[None]:
    """Hold a lock of the folder; who holds it may take it again, and the system frees it when the process dies.

    Args:
        folder: which one.
        name: of the lock's file, which stays.
        busy: what to say where somebody else holds it; None to wait for it.

    Raises:
        NotNow: somebody else holds it.
        BadInput: the folder cannot be written.
    """
    path = folder.resolve() / name
    if path in _held.get():
        yield
        return
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = held.enter_context(path.open("w"))
            fcntl.flock(file, fcntl.LOCK_EX if busy is None else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NotNow(busy) from error
        except OSError as error:
            raise BadInput(
                f"Cannot write to {folder}: {error.strerror}. Choose a folder that can be written to."
            ) from error
        held.callback(_held.reset, _held.set(_held.get() | {path}))
        yield


@contextmanager
def steady(folder: Path) -> Iterator[None]:
    """Wait until nobody changes the folder, and keep it so; for readers, who write nothing there, not even a lock."""
    path = folder.resolve() / ".lock"
    with ExitStack() as held:
        if path not in _held.get():
            with suppress(OSError):
                file = held.enter_context(path.open())
                fcntl.flock(file, fcntl.LOCK_SH)
        yield


def read_manifest(folder: Path) -> dict[str, str]:
    """sha256 by path relative to `folder`; empty where there is no manifest yet.

    Raises:
        BadInput: the manifest is damaged, or somebody else's.
    """
    path = folder / "manifest.json"
    if not path.exists():
        return {}
    try:
        manifest = json.loads(path.read_text())
        if not isinstance(manifest, dict):
            raise ValueError("no names of files")
        for name, entry in manifest.items():
            if not isinstance(entry, str) or not re.fullmatch("[0-9a-f]{64}", entry):
                raise ValueError(f"{name} has no sha256")
    except (OSError, ValueError) as error:
        if folder.resolve() == data_dir().resolve():
            raise BadInput(f"{path} is damaged ({error}): restore it with `git checkout {path}`.") from error
        raise BadInput(
            f"{path} is not of this program, or damaged ({error}): expected the sha256 of each file by its name."
            " Choose another folder, or move that file away."
        ) from error
    return dict(manifest)


def update_manifest(folder: Path, names: Sequence[str]) -> None:
    """Record the sha256 of the files `names`, relative to `folder`; what is not there any more is forgotten too."""
    with locked(folder):
        write_manifest(folder, {name: sha256(folder / name) if (folder / name).exists() else None for name in names})


def write_manifest(folder: Path, changes: Mapping[str, str | None]) -> None:
    """Record these sha256 by name, None for what is to be forgotten; the folder's lock has to be held."""
    manifest = {name: known for name, known in read_manifest(folder).items() if name not in changes}
    manifest |= {name: known for name, known in changes.items() if known is not None}
    write_json(folder / "manifest.json", dict(sorted(manifest.items())))


def keep_memory() -> None:
    """Have the C library keep freed blocks: to return them and fault them in again slows every step."""
    m_trim_threshold, m_mmap_max = -1, -4
    with suppress(OSError, AttributeError):  # another C library: slower, no less right
        libc = ctypes.CDLL(None)
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 2**31 - 1)
