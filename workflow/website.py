"""Build the site from book/notebooks and playground/, in the working folder, into html/ there.

Where there is no playground/, its runs are exported (book/_ext/beside_pages.py). Everything else is
the repository's. Words on the command line are options of `jupyter-book build`. Sphinx warns about
a page only when it reads that page, so it reads all of them.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import inputs

BOOK = Path("book")
NOTEBOOKS = BOOK / "notebooks"
RUNS = Path("playground")  # what `carry export-playground` wrote
CACHE = BOOK / "_build"  # where Sphinx writes
HTML = Path("html")


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
    shutil.rmtree(CACHE, ignore_errors=True)
    copy_repository(root)
    if status := run_sphinx(options):
        return status
    # Of the theme: maps of its sources, and fonts in a format that only old browsers need.
    for pattern in ("*.map", "*.ttf"):
        for path in (CACHE / "html" / "_static").rglob(pattern):
            path.unlink()
    shutil.rmtree(HTML, ignore_errors=True)
    (CACHE / "html").rename(HTML)
    return 0


if __name__ == "__main__":
    sys.exit(build(sys.argv[1:]))
