"""Kernels of `pytest --nbval` get all cells of a notebook, one thread, folders of their own."""

import os
import tempfile
from pathlib import Path

import pytest

# Where each folder is unless the environment names it.
FOLDERS = {
    "IPYTHONDIR": "~/.ipython",
    "JUPYTER_RUNTIME_DIR": "~/.local/share/jupyter/runtime",
    "MPLCONFIGDIR": "~/.config/matplotlib",
}


def pytest_configure(config: pytest.Config) -> None:
    """Have each notebook run in one process, on one thread, with folders that can be written to."""
    # With `pytest -n 2` alone, a kernel would get only some of a notebook's cells.
    if config.getoption("dist", "no") == "load":
        config.option.dist = "loadfile"
    # Kernels side by side would take each other's cores, and spin while they wait.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name, usual in FOLDERS.items():
        if not writable(Path(os.environ.get(name) or usual).expanduser()):
            folder = tempfile.TemporaryDirectory()
            config.add_cleanup(folder.cleanup)
            os.environ[name] = folder.name
    # Builds the cache of fonts here: a kernel that builds it says so in its output.
    import matplotlib.font_manager  # noqa: F401


def writable(folder: Path) -> bool:
    """Make a folder if it is missing, and try to write to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
