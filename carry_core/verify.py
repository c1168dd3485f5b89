"""Whether every file under `data/` is as its manifest says (`carry verify`)."""

from contextlib import suppress
from pathlib import Path, PurePosixPath

from safetensors import SafetensorError

from carry_core import groups, manifest, runs
from carry_core.errors import BadInput
from carry_core.files import author_dir, data_dir, read_manifest, sha256


def verify(root: Path | None = None) -> list[str]:
    """Compare every file under `data/` with its manifest; one line for each that differs.

    Checkpoints, and what was imported from the author's release, are not listed there. A publication that a kill
    interrupted is finished first.

    Raises:
        BadInput: the manifest is damaged, or what was interrupted cannot be finished.
    """
    if root is None:
        root = data_dir()
        with manifest.settled(author_dir()):  # has a manifest of its own, which loading it compares with
            pass
    with manifest.settled(root):
        return _compare(root)


def _compare(root: Path) -> list[str]:
    if not (root / "manifest.json").exists():
        return [
            f"{root}/manifest.json is missing: restore it with git, name the data folder in CARRY_DATA, or publish a"
            " group with `carry train`."
        ]
    listed = read_manifest(root)
    problems = []
    for name, expected in listed.items():
        path = root / name
        if not path.is_file():
            problems.append(
                f"{name} is missing: {_restore(root, name)}, or `carry verify --accept {name}` to forget it."
            )
        elif sha256(path) != expected:
            problems.append(f"{name} is damaged: {_restore(root, name)}.")
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and _is_listed(name) and name not in listed:
            problems.append(f"{name} is not in the manifest: remove it, or `carry verify --accept {name}`.")
    return problems


def _is_listed(name: str) -> bool:
    """Whether a manifest is to have a file of that name."""
    first, *_ = parts = PurePosixPath(name).parts
    return first not in ("checkpoints", "author", "manifest.json") and not parts[-1].startswith(".")


def check_listed(name: str) -> None:
    """Find out whether a file can be recorded in the manifest of `data/` under its name.

    Raises:
        BadInput: there is no such file below that folder, or it is none that is listed.
    """
    root = data_dir()
    path = PurePosixPath(name)
    inside = not path.is_absolute() and ".." not in path.parts and path.parts and name == path.as_posix()
    if not inside or not _is_listed(name) or not ((root / name).is_file() or name in read_manifest(root)):
        raise BadInput(f"{name}: expected the name of a file relative to {root}, and none of its checkpoints.")


def _restore(root: Path, name: str) -> str:
    """What to do about a listed file; a group's can be published again, by the recipe that the group says it has."""
    path = PurePosixPath(name)
    group = path.name.removesuffix(".safetensors").removesuffix(".history.npz")
    if path.parts[0] != "runs" or group not in groups.GROUPS:
        return "restore it with git"
    recipe = path.parent.name if path.parent.name in groups.RECIPES else None
    with suppress(BadInput, OSError, SafetensorError, KeyError, ValueError):
        recipe = recipe or runs.describe(root / path.parent / f"{group}.safetensors")["record"]["recipe"]
    command = f"`carry train {group}{f' --recipe {recipe}' if recipe else ''}`"
    return f"restore it with git, or move the group's files away and run {command}"
