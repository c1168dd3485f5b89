"""Whether every file under `data/` is as its manifest says (`carry verify`)."""

from contextlib import suppress
from pathlib import Path, PurePosixPath

from safetensors import SafetensorError

from carry_core import groups, runs
from carry_core.errors import BadInput
from carry_core.files import data_dir, read_manifest, sha256


def verify(root: Path | None = None) -> list[str]:
    """Compare every file under `data/` with its manifest; one line for each that differs.

    Checkpoints, and what was imported from the author's release, are not listed there.

    Raises:
        BadInput: the manifest is damaged.
    """
    root = data_dir() if root is None else root
    if not (root / "manifest.json").exists():
        return [f"{root}/manifest.json is missing: restore it with git, or name the data folder in CARRY_DATA."]
    manifest = read_manifest(root)
    problems = []
    for name, expected in manifest.items():
        path = root / name
        if not path.is_file():
            problems.append(f"{name} is missing: {_restore(root, name)}.")
        elif sha256(path) != expected:
            problems.append(f"{name} is damaged: {_restore(root, name)}.")
    unlisted = {"manifest.json"} | set(manifest)
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        private = name.split("/")[0] in ("checkpoints", "author") or path.name.startswith(".")
        if path.is_file() and not private and name not in unlisted:
            again = f"run {command} again, " if (command := _command(root, name)) else ""
            problems.append(f"{name} is not in the manifest: {again}remove it, or `carry verify --accept {name}`.")
    return problems


def _restore(root: Path, name: str) -> str:
    return "restore it with git" + (f", or run {command}" if (command := _command(root, name)) else "")


def _command(root: Path, name: str) -> str:
    """The command that makes a group's file, by the recipe that the group says it has; empty if it is none."""
    path = PurePosixPath(name)
    group = path.name.removesuffix(".safetensors").removesuffix(".history.npz")
    if path.parts[0] != "runs" or group not in groups.GROUPS:
        return ""
    recipe = path.parent.name if path.parent.name in groups.RECIPES else None
    with suppress(BadInput, OSError, SafetensorError, KeyError, ValueError):
        recipe = recipe or runs.describe(root / path.parent / f"{group}.safetensors")["record"]["recipe"]
    return f"`carry train {group}{f' --recipe {recipe}' if recipe else ''}`"
