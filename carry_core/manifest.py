"""Which manifest lists a folder's files, and keeping it true."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from carry_core.files import data_dir, read_manifest, update_manifest
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
