"""Configure the kernels of `make book` and `make nbval`.

The set-up copies this file into .venv, which takes the place of the reader's home folder.
"""

import gc

c = get_config()
# At a lower level each kernel prints that its socket on this machine is not encrypted.
c.IPKernelApp.log_level = "CRITICAL"
c.HistoryManager.enabled = False
# A page lives for seconds and imports a million objects: at Python's own thresholds these would be
# searched for garbage again and again.
gc.set_threshold(100_000, 50, 50)
# A kernel that is told to stop often waits for its own threads until it is killed, seconds later.
# This one ends at once, after the functions that its cells have registered.
c.InteractiveShellApp.exec_lines = [
    "import atexit, os; atexit.register(os._exit, 0); del atexit, os",
]
