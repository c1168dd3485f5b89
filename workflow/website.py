"""Build the site from book/notebooks and playground/, in the working folder, into html/ there.

Where there is no playground/, its runs are exported (book/_ext/beside_pages.py). Everything else is
the repository's. Words on the command line are options of `jupyter-book build`.

Sphinx warns about a page only when it reads that page, and a warning must not get lost. So Sphinx
reads all pages, unless the last build had no warning and nothing but executed notebooks has changed
since. Then it reads these, and pages that call `note_reread` (the gallery); it has kept the others.
It writes all pages each time, since a page may show values of another.
"""

import hashlib
import importlib.metadata
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import inputs

BOOK = Path("book")
NOTEBOOKS = BOOK / "notebooks"
RUNS = Path("playground")  # what `carry export-playground` wrote
CACHE = BOOK / "_build"  # Sphinx's: the pages that it has read, and those that it writes
RECORD = CACHE / "record.json"  # is there if the last build had no warning
HTML = Path("html")


class Sources(NamedTuple):
    """Digests of what a site is built from."""

    notebooks: dict[str, str]  # executed ones, by name
    others: str


def installed() -> list[str]:
    """Return all installed packages with their versions, and Python's."""
    packages = importlib.metadata.distributions()
    return [sys.version, *sorted(f"{package.name}=={package.version}" for package in packages)]


def sources(options: Sequence[str], root: Path) -> Sources:
    """Return the digests of what a build with these options starts from."""
    notebooks = {}
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebooks[path.stem] = hashlib.sha256(path.read_bytes()).hexdigest()
    playground = inputs.contents(RUNS, ["**/*"])
    others = [inputs.pages(root), inputs.shared(root), playground, installed(), list(options)]
    return Sources(notebooks, hashlib.sha256(json.dumps(others).encode()).hexdigest())


def changed_notebooks(now: Sources) -> list[str] | None:
    """Return the notebooks that have changed since the last build, or None to read all pages."""
    try:
        last = Sources(**json.loads(RECORD.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    if last.others != now.others or last.notebooks.keys() != now.notebooks.keys():
        return None
    return [name for name, digest in now.notebooks.items() if last.notebooks[name] != digest]


def forget(names: Sequence[str]) -> None:
    """Remove what Sphinx has kept of notebooks, so that it reads them whatever the clocks say."""
    for name in names:
        (CACHE / ".doctrees" / "notebooks" / f"{name}.doctree").unlink(missing_ok=True)
        (CACHE / "jupyter_execute" / "notebooks" / f"{name}.glue.json").unlink(missing_ok=True)


def copy_repository(root: Path) -> None:
    """Copy the other sources. They keep their times, since Sphinx reads newer files again."""
    for name in ("book", "playground"):
        shutil.rmtree(BOOK / name, ignore_errors=True)
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy2(root / name, BOOK)
    compiled = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "book", BOOK / "book", ignore=compiled)
    (BOOK / "playground").mkdir()
    for pattern in ("*.js", "*.css"):
        for path in (root / "playground").glob(pattern):
            shutil.copy2(path, BOOK / "playground")
    if RUNS.exists():
        shutil.copytree(RUNS, BOOK / "playground" / "runs")


def run_sphinx(options: Sequence[str]) -> int:
    """Build the pages in the cache, and return the exit status."""
    program = Path(sys.executable).with_name("jupyter-book")
    command = [str(program), "build", str(BOOK), "--quiet", *options]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode


def build(options: Sequence[str], root: Path = inputs.ROOT) -> int:
    """Build the site, and return the exit status; html/ is replaced at the end."""
    now = sources(options, root)
    changed = changed_notebooks(now)
    # From here on, a build that fails or is killed leaves no record, and the next one reads all.
    RECORD.unlink(missing_ok=True)
    if changed is None:
        shutil.rmtree(CACHE, ignore_errors=True)
    else:
        forget(changed)
    shutil.rmtree(CACHE / "html", ignore_errors=True)
    copy_repository(root)
    if status := run_sphinx(options):
        return status
    # Of the theme: maps of its sources, and fonts in a format that only old browsers need.
    for pattern in ("*.map", "*.ttf"):
        for path in (CACHE / "html" / "_static").rglob(pattern):
            path.unlink()
    shutil.rmtree(HTML, ignore_errors=True)
    (CACHE / "html").rename(HTML)
    if "--warningiserror" in options:
        RECORD.write_text(json.dumps(now._asdict()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(build(sys.argv[1:]))
