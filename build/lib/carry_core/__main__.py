"""`python -m carry_core` is `carry`."""

from carry_core.cli import main

main()
