"""Folders for the kernels of `pytest --nbval`, where checkout or home cannot be written to."""

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
    """Put a temporary folder in the place of each that cannot be written to."""
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
