"""Where data lie, and atomic writes."""

import errno
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from carry_core.errors import BadInput

ROOT = Path(__file__).resolve().parent.parent
RESOURCES = ROOT / "carry_core" / "resources"  # tables and templates that come with the package


def data_dir() -> Path:
    """The folder with weights and results: `data/` of the repository, or what CARRY_DATA names."""
    return Path(os.environ.get("CARRY_DATA") or ROOT / "data")


def author_dir() -> Path:
    """The folder with the author's imported release: `author/` in the data folder, or what CARRY_AUTHOR names."""
    return Path(os.environ.get("CARRY_AUTHOR") or data_dir() / "author")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error.

    `BadInput` if the folder cannot be written or the disk is full; `path` is then as it was.
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
        told = re.search(r"os error (\d+)", str(error))  # safetensors writes the number into its message only
        number = error.errno if isinstance(error, OSError) else int(told[1]) if told else None
        if number is None:
            raise
        remedy = "Free some space" if number in (errno.ENOSPC, errno.EDQUOT) else "Choose another place"
        raise BadInput(f"Cannot write {path}: {os.strerror(number)}. {remedy}; nothing was changed.") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON, one value a line, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n")


def sha256(path: Path) -> str:
    """Hexadecimal sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
