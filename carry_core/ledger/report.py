"""The ledger as tables on a terminal: one for each section, worst rows first."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from carry_core.ledger import claims
from carry_core.ledger.box import counted
from carry_core.ledger.results import Row, gathered
from carry_core.ledger.verdicts import VERDICTS
from carry_core.ledger.webpage import badness, text

STYLES = {"reproduced": "green", "mostly": "green", "compatible": "yellow", "mixed": "yellow", "differs": "bold red"}
NARROW = 150  # columns where the output is no terminal


def show(rows: Sequence[Row], console: Console | None = None) -> None:
    """Print the ledger: a table for each section, worst first, and the totals.

    Rows that were not run for the same reason share a line that says how many they are.
    """
    console = console or Console(width=None if sys.stdout.isatty() else NARROW, highlight=False)
    known = claims.claims()
    for heading, some in gathered(rows, lambda row: known[row.id].heading).items():
        title = f"[bold]{heading}: {totals(some)}[/]"
        done = sorted((row for row in some if row.verdict != "not run"), key=badness)
        console.print(_table(title, done) if done else title)
        waiting = gathered((row for row in some if row.verdict == "not run"), lambda row: row.detail)
        for reason, same in waiting.items():
            which = same[0].id if len(same) == 1 else f"{len(same)} rows, {same[0].id} to {same[-1].id}"
            console.print(f"[dim]not run:[/] {which}: {escape(reason)}")
        console.print()
    console.print(f"{len(rows)} row{'' if len(rows) == 1 else 's'}: {totals(rows)}.")


def totals(rows: Iterable[Row]) -> str:
    """How many rows have which verdict."""
    count = Counter(row.verdict for row in rows)
    return ", ".join(counted(count[verdict], verdict) for verdict in reversed(VERDICTS))


def _table(title: str, rows: Iterable[Row]) -> Table:
    table = Table("id", title=title, title_justify="left", title_style="", box=None, pad_edge=False)
    for name in ("paper", "value", "± std", "allowed", "n"):
        table.add_column(name, justify="right")
    table.add_column("runs", no_wrap=True, max_width=42, overflow="ellipsis")
    table.add_column("verdict", no_wrap=True)
    for row in rows:
        numbers = map(text, [row.paper, row.value, row.std, row.tolerance, row.n])
        runs = "{} of {} show it".format(*row.shown) if row.shown else " ".join(map(text, row.runs))
        table.add_row(row.id, *numbers, runs, f"[{STYLES[row.verdict]}]{row.verdict}[/]")
    return table
