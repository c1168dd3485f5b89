"""C++ that is compiled where it is used first, and kept for later.

A library's name has a hash of all that decides what is in it: the sources, the compiler, its
options and the kind of processor. The file ends with the sha256 of what stands before: a library
that was cut or changed is built again.
"""

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path

from carry_fast import processor
from carry_fast.processor import Processor

FOLDER = Path(__file__).with_name("native")  # headers for all of it, and `forward.cpp`
FLAGS = ["-std=c++17", "-O3", "-fno-strict-aliasing", "-shared", "-fPIC", "-pthread"]
# These variables decide which compiler is taken, and where libraries are kept.
ENVIRONMENT = ("CXX", "PATH", "XDG_CACHE_HOME", "HOME")


class CannotBuild(Exception):
    """The reason why there is no library here, as a part of a sentence."""


class Lacking(CannotBuild):
    """What this machine lacks: there it is usual that nothing is compiled."""


def library(source: Path, flags: Sequence[str], needed: AbstractSet[str]) -> ctypes.CDLL:
    """Return the library that a C++ source makes, from the cache if it was built before.

    Args:
        source: The file; all headers beside it and in `FOLDER` are its own, too.
        flags: The compiler's options besides `FLAGS`.
        needed: The processor's instructions that it uses, by Linux's names.

    Raises:
        CannotBuild: It cannot be built or loaded here.
    """
    this = processor.this()
    if not this.instructions:
        raise Lacking("this system has no list of the processor's instructions")
    if missing := needed - this.instructions:
        raise Lacking(f"the processor lacks {', '.join(sorted(missing))}")
    environment = tuple(map(os.environ.get, ENVIRONMENT))
    built = _built(source, tuple(flags), this, environment)
    if isinstance(built, CannotBuild):
        raise built
    return built


@cache
def _built(
    source: Path, flags: tuple[str, ...], this: Processor, environment: tuple[str | None, ...]
) -> ctypes.CDLL | CannotBuild:
    """Return the loaded library; or the reason why there is none, so that failures are cached too.

    `environment`, the values of `ENVIRONMENT`, belongs to the cache's key: they are read below.
    """
    try:
        return _build(source, flags, this)
    except CannotBuild as error:
        return error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").splitlines()
        messages = [line for line in lines if "error" in line]
        return CannotBuild(f"{error.cmd[0]}: {[*messages, f'exit {error.returncode}'][0]}")
    except (OSError, RuntimeError) as error:  # a folder, a file, or no home
        return CannotBuild(f"{str(error).rstrip('.')}; XDG_CACHE_HOME can name another folder")


def _build(source: Path, flags: tuple[str, ...], this: Processor) -> ctypes.CDLL:
    compiler = _compiler()
    texts = [path.read_text() for path in (source, *_headers(source))]
    key = "\n".join([*texts, *compiler, *FLAGS, *flags, *sorted(this.instructions)])
    name = f"{source.stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    path = _cache_folder() / name
    if not _is_whole(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another process may build the same library, so each has a folder of its own.
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            built = Path(folder) / name
            output = ["-o", str(built), str(source)]
            command = [*compiler, *FLAGS, *flags, f"-I{FOLDER}", *output]
            subprocess.run(command, check=True, capture_output=True)
            built.write_bytes(_with_digest(built.read_bytes()))
            ctypes.CDLL(str(built))  # raises an error if the compiler has made no library
            built.replace(path)
    return ctypes.CDLL(str(path))


def _is_whole(path: Path) -> bool:
    """Return True if this file is a library as it was built; loading any other could crash."""
    if not path.is_file():  # opening a FIFO would wait for its writer
        return False
    content = path.read_bytes()
    return content == _with_digest(content[: -hashlib.sha256().digest_size])


def _with_digest(content: bytes) -> bytes:
    return content + hashlib.sha256(content).digest()


def _headers(source: Path) -> list[Path]:
    return sorted({*source.parent.glob("*.h"), *FOLDER.glob("*.h")})


def _cache_folder() -> Path:
    """Return the user's folder for what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "carry_core"


def _compiler() -> list[str]:
    """Return the command of the C++ compiler, from CXX; raise `CannotBuild` if there is none."""
    command = os.environ.get("CXX") or "g++"
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise CannotBuild(f"CXX is {command!r}, which is no command: {error}") from error
    if not words or shutil.which(words[0]) is None:
        raise Lacking(f"there is no compiler {words[0] if words else command!r}")
    return words
