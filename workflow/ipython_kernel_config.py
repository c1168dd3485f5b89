"""How the kernels of `make book` and `make nbval` start; copied into .venv, which stands in for the home folder."""

c = get_config()
c.IPKernelApp.log_level = "CRITICAL"  # else each prints that its socket on this machine is not encrypted
c.HistoryManager.enabled = False
