"""Which manifest lists a folder's files, and changing files that belong together in one step."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path, PurePosixPath

from carry_core import files
from carry_core.errors import BadInput
from carry_core.files import author_dir, data_dir, locked, read_manifest, sha256, steady
from carry_core.groups import RECIPES

JOURNAL = ".publication.json"  # what a publication is about to change: sha256 by name, before and after
_SPELLINGS: tuple[Callable[[Path], str], ...] = (os.path.abspath, os.path.realpath)


def home(where: Path) -> tuple[Path, PurePosixPath]:
    """The folder whose manifest lists the files of `where`, and what `where` is called in there.

    That is `data/` for what lies in it, but for checkpoints and the author's release; of other folders the one above
    whose manifest lists files there or that has `where` as its recipe's folder, else itself.

    Raises:
        BadInput: what lies beside a recipe's folder is no manifest.
    """
    spellings = [Path(real(where)) for real in _SPELLINGS]
    for path in spellings[".." in where.parts :]:  # which may lead elsewhere than the name says
        private = [Path(real(x)) for x in (data_dir() / "checkpoints", author_dir()) for real in _SPELLINGS]
        for inside, real in product(("runs", "."), _SPELLINGS):  # `data/runs` may be linked to another disk
            base = Path(real(data_dir() / inside))
            if path.is_relative_to(base) and not any(path.is_relative_to(other) for other in private):
                return data_dir(), PurePosixPath(inside) / path.relative_to(base)
    for path in spellings[".." in where.parts :]:
        if path.name in RECIPES and read_manifest(path.parent):
            return path.parent, PurePosixPath(path.name)
        for folder in path.parents:
            inside_it = path.relative_to(folder)
            with suppress(BadInput):
                if any(PurePosixPath(name).is_relative_to(inside_it) for name in read_manifest(folder)):
                    return folder, PurePosixPath(inside_it)
    return where, PurePosixPath()


def expected(where: Path, name: str) -> str | None:
    """The sha256 that a file of `where` should have, None if it is not listed.

    Raises:
        BadInput: the manifest is damaged.
    """
    root, folder = home(where)
    return read_manifest(root).get((folder / name).as_posix())


class Publication:
    """Files that are written, copied and removed in one step: see `publication`. Names are relative to its folder."""

    def __init__(self, root: Path, folder: PurePosixPath) -> None:
        self.root, self.folder = root, folder
        self.changed: dict[str, Path | None] = {}

    def new(self, name: str) -> Path:
        """Where to write what is to become the file of that name."""
        listed = (self.folder / name).as_posix()
        self.changed[listed] = temporary = _temporary(self.root / listed)
        temporary.parent.mkdir(parents=True, exist_ok=True)
        return temporary

    def copy(self, source: Path, name: str) -> None:
        """Have under that name what is at `source` now."""
        shutil.copyfile(source, self.new(name))

    def remove(self, name: str) -> None:
        """Have nothing under that name."""
        self.changed[(self.folder / name).as_posix()] = None

    def sums(self) -> dict[str, tuple[str | None, str | None]]:
        """What it changes: the sha256 of each file before and after, None for none; what is written is on the disk."""
        for temporary in filter(None, self.changed.values()):
            temporary.chmod(0o644)  # safetensors lets nobody else read
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        return {
            name: (_sum(self.root / name), None if path is None else _sum(path)) for name, path in self.changed.items()
        }

    def discard(self) -> None:
        """Remove what was written."""
        for temporary in filter(None, self.changed.values()):
            temporary.unlink(missing_ok=True)


@contextmanager
def publication(where: Path) -> Iterator[Publication]:
    """Change files of `where`, or of folders in it, and their manifest in one step when the block ends.

    All is written before any of it takes its place, and then a journal says what is about to change. A process that
    dies before that leaves the old files, and after it the new ones, for `finish` has only renaming left to do.

    Raises:
        BadInput: the folder cannot be written or the disk is full; the files are as they were.
    """
    root, folder = home(where)
    with locked(root):
        finish(root)
        for left in (left for name in (JOURNAL, "manifest.json") for left in root.glob(f".{name}.*")):
            left.unlink(missing_ok=True)  # by who was killed, since whoever writes these has the lock
        found = Publication(root, folder)
        try:
            with files.writing(where):
                yield found
                sums = found.sums()
            if sums:
                files.write_json(root / JOURNAL, sums)
        except BaseException:
            if not (root / JOURNAL).exists():
                found.discard()
            raise
        finish(root)


def finish(root: Path) -> None:
    """Finish a publication that was killed when its journal was written.

    Where its files are not any more what the journal says, since somebody has restored or moved some, it is forgotten.

    Raises:
        BadInput: the folder cannot be written, the disk is full, or the journal is damaged.
    """
    journal = root / JOURNAL
    if not os.path.exists(journal):  # noqa: PTH110 (a name that is too long is none)
        return
    with locked(root):
        if not journal.exists():  # another process was faster
            return
        try:
            sums = {name: (before, after) for name, (before, after) in json.loads(journal.read_text()).items()}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise BadInput(f"{journal} is damaged ({error}): remove it, then `carry verify`.") from error
        try:
            if all(_ready(root / name, *pair) for name, pair in sums.items()):
                for name, (_, after) in sums.items():
                    if after is None:
                        (root / name).unlink(missing_ok=True)
                    elif _temporary(root / name).exists():
                        _temporary(root / name).replace(root / name)
                files.write_manifest(root, {name: after for name, (_, after) in sums.items()})
            else:
                for name in sums:
                    _temporary(root / name).unlink(missing_ok=True)
            journal.unlink()
        except (OSError, BadInput) as error:
            raise BadInput(f"Cannot finish the publication that {journal} describes, which waits: {error}") from error


@contextmanager
def settled(where: Path) -> Iterator[None]:
    """Nobody changes files of `where` meanwhile, and nothing is half published; for readers.

    Raises:
        BadInput: as `finish`, where the folder can be written.
    """
    root, _ = home(where)
    while True:
        if writable := os.access(root, os.W_OK):
            finish(root)
        with steady(root):
            if not (writable and os.path.exists(root / JOURNAL)):  # noqa: PTH110 (as above)
                yield
                return


def _ready(path: Path, before: str | None, after: str | None) -> bool:
    """Whether a file is as after a publication, or as before it and what is to take its place is there."""
    now = _sum(path)
    return now == after or (now == before and (after is None or _sum(_temporary(path)) == after))


def _sum(path: Path) -> str | None:
    return sha256(path) if path.exists() else None


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")
