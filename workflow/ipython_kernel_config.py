"""How the kernels of `make book` and `make nbval` start; copied into .venv, which stands in for the home folder."""

c = get_config()
# else each prints that its socket on this machine is not encrypted
c.IPKernelApp.log_level = "CRITICAL"
c.HistoryManager.enabled = False
