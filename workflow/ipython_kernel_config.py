"""Configure the kernels of .venv, whoever starts them: make, papermill, pytest or JupyterLab.

The set-up copies this file into .venv/etc/ipython.
"""

import atexit
import gc
import os
import sys
from pathlib import Path

from ipykernel.ipkernel import IPythonKernel

c = get_config()
# At a lower level each kernel prints that its socket on this machine is not encrypted, and
# sometimes, when it is ended, that it was interrupted.
c.IPKernelApp.log_level = "CRITICAL"
c.HistoryManager.enabled = False
# Here Matplotlib keeps the list of fonts that the set-up made, which takes seconds.
MATPLOTLIB = Path(sys.prefix, "matplotlib")
if os.access(MATPLOTLIB, os.W_OK):
    os.environ.setdefault("MPLCONFIGDIR", str(MATPLOTLIB))
# A page lives for seconds and imports a million objects: at Python's own thresholds these would be
# searched for garbage again and again.
gc.set_threshold(100_000, 50, 50)


class Kernel(IPythonKernel):
    """A kernel without two of ipykernel's exit functions.

    They close its streams and sockets, and often wait for each other's threads until the kernel is
    killed, seconds later. The end of the process closes both anyway.
    """

    def start(self) -> None:
        """Start, and take the two away."""
        super().start()
        atexit.unregister(self.parent.close)
        atexit.unregister(self.parent.iopub_thread.stop)


c.IPKernelApp.kernel_class = Kernel
# Nor are a million objects searched for garbage before the process ends.
atexit.register(gc.freeze)
