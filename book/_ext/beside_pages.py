"""Copy MathJax and the playground beside the pages, as they are.

`make book` has the playground's runs exported before Sphinx starts. Elsewhere, as for
`jupyter-book build .`, they are exported while Sphinx reads the pages.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
PLAYGROUND = "playground"
SCRIPTS = ("*.js", "*.css")
# The stamp of `make book`, beside its site. Another command that builds a site in the same place
# removes it, so that `make book` builds its own again.
STAMP = "html.made"


def start_export(app: Sphinx) -> None:
    """Start to export the playground's runs, unless they are among the sources."""
    app.export_of_runs = None  # type: ignore[attr-defined]
    if app.builder.format != "html":
        return
    Path(app.outdir).with_name(STAMP).unlink(missing_ok=True)
    if not Path(app.srcdir, PLAYGROUND, "runs").exists():
        out = Path(app.outdir, PLAYGROUND, "runs")
        command = [sys.executable, "-m", "carry_paper", "export-playground", "--out", str(out)]
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        app.export_of_runs = subprocess.Popen(  # type: ignore[attr-defined]
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )


def copy_files(app: Sphinx, error: Exception | None) -> None:
    """Copy the files, and wait for the export; after an error, only end it."""
    if app.builder.format != "html":
        return
    export: subprocess.Popen[str] | None = app.export_of_runs  # type: ignore[attr-defined]
    if error:
        if export is not None:
            export.kill()
        return
    mathjax = Path(app.srcdir, "book", "mathjax")
    shutil.copytree(mathjax, Path(app.outdir, "mathjax"), dirs_exist_ok=True)
    source, target = Path(app.srcdir, PLAYGROUND), Path(app.outdir, PLAYGROUND)
    target.mkdir(exist_ok=True)
    for pattern in SCRIPTS:
        for path in source.glob(pattern):
            shutil.copy2(path, target)
    if export is None:
        shutil.copytree(source / "runs", target / "runs", dirs_exist_ok=True)
        return
    printed, _ = export.communicate()
    if export.returncode:
        LOGGER.warning("The playground's runs could not be exported: %s", printed)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("builder-inited", start_export)
    app.connect("build-finished", copy_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
