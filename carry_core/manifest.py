"""Which manifest lists a folder's files, keeping it true, and replacing files that belong together."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath

from carry_core.files import data_dir, locked, read_manifest, replacing, sha256, update_manifest
from carry_core.groups import RECIPES


def home(where: Path) -> tuple[Path, PurePosixPath]:
    """The folder whose manifest lists the group files of `where`, and what `where` is called in there.

    `data/` for our runs; any other folder has a manifest of its own, also for a recipe's folder in it.

    Raises:
        BadInput: what lies beside a recipe's folder is no manifest.
    """
    ours = (data_dir() / "runs").resolve()
    if where.name in RECIPES and (where.resolve().parent == ours or read_manifest(where.parent)):
        root, name = home(where.parent)
        return root, name / where.name
    return (data_dir(), PurePosixPath("runs")) if where.resolve() == ours else (where, PurePosixPath())


def expected(where: Path, name: str) -> str | None:
    """The sha256 that a file of `where` should have, None if it is not listed.

    Raises:
        BadInput: the manifest is damaged.
    """
    root, folder = home(where)
    return read_manifest(root).get((folder / name).as_posix())


def update(where: Path, names: Sequence[str]) -> None:
    """Record files of `where` as they are, and forget those that are gone; its home's lock has to be held."""
    root, folder = home(where)
    update_manifest(root, [(folder / name).as_posix() for name in names])


def remove(where: Path, names: Sequence[str]) -> None:
    """Forget files of `where`, whether they are there or not; its home's lock has to be held."""
    root, folder = home(where)
    update_manifest(root, [], [(folder / name).as_posix() for name in names])


@contextmanager
def replacing_all(where: Path, names: Sequence[str]) -> Iterator[list[Path]]:
    """Temporary paths for files of `where`, which take their places together when the block ends without an error.

    All are written before the first takes its place, and what they replace is kept until the manifest knows them. So a
    full disk changes nothing, and after a kill the next `put_back` restores what was there.

    Raises:
        BadInput: the folder cannot be written or the disk is full; the files are as they were.
    """
    with locked(home(where)[0]):
        put_back(where, names)
        try:
            with ExitStack() as written:
                temporaries = [written.enter_context(replacing(where / name)) for name in names]
                yield temporaries
                for temporary in temporaries:
                    with temporary.open("rb") as file:
                        os.fsync(file.fileno())
                for name in names:
                    _keep(where / name)
            update(where, names)
        finally:
            put_back(where, names)


def put_back(where: Path, names: Sequence[str]) -> None:
    """Restore files that a killed `replacing_all` had begun to replace, and sweep away what else it left."""
    if not any(left for name in names for left in where.glob(f"*.{name}.*")):
        return
    with locked(home(where)[0]):
        for name in names:
            path, before = where / name, _before(where / name)
            if before.exists():
                listed = expected(where, name)
                committed = path.exists() and listed == sha256(path)
                if not committed and listed in (None, sha256(before)):
                    before.replace(path)
            for left in where.glob(f"*.{name}.*"):  # what was kept, too, where it is not what the manifest lists
                left.unlink(missing_ok=True)


def _before(path: Path) -> Path:
    return path.with_name(f".{path.name}.before")


def _keep(path: Path) -> None:
    """Keep a file under another name: linked, or copied where the disk has no links."""
    if path.exists():
        try:
            os.link(path, _before(path))
        except OSError:
            with replacing(_before(path)) as temporary:
                shutil.copyfile(path, temporary)
