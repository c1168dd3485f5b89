"""Files that are written whole or not at all: those of a run, and others.

What reads a run's file is in `carry_core.runs`.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import save_file

from carry_core.errors import BadInput
from carry_core.files import reading
from carry_core.runs import FORMAT, History, Record, Weights, are_finite
from carry_train.groups import Group

Arrays = dict[str, NDArray[Any]]

# The most bytes of a text, or of unpacked arrays: no file of ours has a tenth of that.
LARGEST = 2**28
# The length in bytes of a zip file's last record, and the place of the number of members in it.
ZIP_END = 22
ZIP_MEMBERS = slice(10, 12)


# ---- readers


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


# ---- a run's files


def save_run(
    path: Path, group: Group, weights: Weights, record: Record, curves: History | None = None
) -> None:
    """Write a run's pair of files, both or neither.

    Args:
        path: The path of the safetensors file; learning curves are written beside it.
        group: The run's group, of which its name and its config are written.
        weights: Parameters by name, snapshots under `epoch_500/…`.
        record: At least `run`, `recipe` and `epochs`.
        curves: Learning curves, `[row, …]` each.

    Raises:
        BadInput: The files cannot be written, or weights are not finite.
    """
    if not are_finite(weights):
        raise BadInput(
            f"Run {record['run']} of {group.name} has weights that are not finite: "
            "it is not written."
        )
    prefixes = {name.split("/")[0] for name in weights if "/" in name}
    snapshots = sorted(int(prefix.removeprefix("epoch_")) for prefix in prefixes)
    if snapshots:
        record = record | {"snapshots": snapshots}
    metadata = {
        "format": FORMAT,
        "group": group.name,
        "config": asdict(group.config),
        "record": record,
    }
    paths = [path.with_suffix(".npz"), path] if curves else [path]
    with replacing_all(*paths) as temporaries:
        if curves:
            with temporaries[0].open("wb") as file:
                # NumPy before 2.2 would store the option `allow_pickle` as one more array.
                np.savez_compressed(file, **cast(dict[str, Any], curves))
        contiguous = {name: p.contiguous() for name, p in weights.items()}
        # All metadata is one entry, since safetensors writes several in random order.
        save_file(contiguous, temporaries[-1], {"carry": json.dumps(metadata)})
