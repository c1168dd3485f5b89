"""Digests of the files that notebooks and site are built from.

Snakemake builds a target again when its digest changes. So contents decide what is stale: neither
clocks nor copies can make a file look fresh.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
CODE = (
    "carry_core/**/*.*",
    "carry_fast/**/*.*",
    "carry_train/**/*.*",
    "carry_paper/**/*.*",
    "requirements.lock",
)
DATA = ("runs/**/*", "unprimed/**/*", "llm/**/*", "results/**/*", "measurements/**/*", "claims.yml")
PLAYGROUND = ("n2_s0.3_w0.2", "n1_s0.3_w0.2", "n3_s0.3_w0.2", "decoder_n2_s0.3_w0.2")
PAGES = (
    "_config.yml",
    "_toc.yml",
    "requirements.lock",
    "book/**/*",
    "playground/*.*",
    "workflow/website.py",
)


def contents(folder: Path, patterns: Iterable[str]) -> str:
    """Return the digest of the files that match, by their names and contents.

    Compiled code is left out, and so are files that a killed writer left behind.
    """
    paths: set[Path] = set()
    for pattern in patterns:
        paths.update(path for path in folder.glob(pattern) if path.is_file())
    digest = hashlib.sha256()
    for path in sorted(paths):
        if path.name.startswith(".") or "__pycache__" in path.parts:
            continue
        name = path.relative_to(folder).as_posix()
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{name}\n{content}\n".encode())
    return digest.hexdigest()


def data_folder(root: Path) -> Path:
    """Return the data folder that notebooks read."""
    return Path(os.environ.get("CARRY_DATA") or root / "data")


@cache
def shared(root: Path = ROOT) -> str:
    """Return the digest of the code and data that every notebook may read.

    The author's release is not among them, since no output may depend on it.
    """
    return contents(root, CODE) + contents(data_folder(root), DATA)


def notebook(name: str, root: Path = ROOT) -> str:
    """Return the digest of a notebook's cells without outputs, and of `shared`."""
    content = json.loads((root / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    for cell in content["cells"]:
        cell.pop("outputs", None)
        cell.pop("execution_count", None)
    text = json.dumps([content, shared(root)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def playground(root: Path = ROOT) -> str:
    """Return the digest of what the playground's runs are exported from."""
    patterns = [f"runs/{group}/**/*" for group in PLAYGROUND]
    patterns.append("results/lines.csv.gz")
    return contents(root, CODE) + contents(data_folder(root), patterns)


def pages(root: Path = ROOT) -> str:
    """Return the digest of what the site is built from, besides the executed notebooks."""
    return contents(root, PAGES)
