"""What is built from what, as digests of contents: neither clocks nor copies can make it look fresh."""

import hashlib
import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
CODE = ("carry_core/**/*.*", "carry_paper/**/*.*", "requirements.lock")
DATA = ("runs/**/*", "llm/**/*", "results/**/*", "claims.yml")
PLAYGROUND = ("n2_s0.3_w0.2", "n1_s0.3_w0.2", "n3_s0.3_w0.2", "decoder_n2_s0.3_w0.2")
PAGES = ("_config.yml", "_toc.yml", "requirements.lock", "book/**/*", "playground/*.*")


def contents(folder: Path, patterns: Iterable[str]) -> str:
    """The digest of files, by their names and contents; without compiled code and what a killed writer left."""
    found = hashlib.sha256()
    for path in sorted(
        {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    ):
        if not path.name.startswith(".") and "__pycache__" not in path.parts:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            found.update(f"{path.relative_to(folder).as_posix()}\n{content}\n".encode())
    return found.hexdigest()


@cache
def shared(root: Path = ROOT) -> str:
    """The digest of what every notebook may read: code and data, the author's release apart."""
    data = Path(os.environ.get("CARRY_DATA") or root / "data")
    return contents(root, CODE) + contents(data, DATA)


def notebook(name: str, root: Path = ROOT) -> str:
    """The digest of what a notebook's outputs are made from: those that are stored are not among that."""
    found = json.loads((root / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    for cell in found["cells"]:
        for key in ("outputs", "execution_count"):
            cell.pop(key, None)
    return hashlib.sha256(json.dumps([found, shared(root)], sort_keys=True).encode()).hexdigest()


def playground(root: Path = ROOT) -> str:
    """The digest of what the playground's runs are exported from."""
    data = Path(os.environ.get("CARRY_DATA") or root / "data")
    runs = [f"runs/{group}/**/*" for group in PLAYGROUND]
    return contents(root, CODE) + contents(data, [*runs, "results/interchange/ours/*"])


def pages(root: Path = ROOT) -> str:
    """The digest of what the site is made from, beside the executed notebooks."""
    return contents(root, PAGES)
