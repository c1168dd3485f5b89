"""The ledger as tables on a terminal: one for each section, worst rows first."""

import sys
from collections import Counter
from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from carry_core.ledger import claims
from carry_core.ledger.box import counted
from carry_core.ledger.results import Row
from carry_core.ledger.verdicts import VERDICTS
from carry_core.ledger.webpage import badness, text

STYLES = {
    "reproduced": "green",
    "mostly": "green",
    "compatible": "yellow",
    "mixed": "yellow",
    "differs": "bold red",
    "not run": "dim",
}
NARROW = 150  # columns where the output is no terminal


def show(rows: Iterable[Row], console: Console | None = None) -> None:
    """Print the ledger: a table for each section, worst first, and the totals.

    Rows that were not run for the same reason share a line that says how many they are.
    """
    console = console or Console(width=None if sys.stdout.isatty() else NARROW, highlight=False)
    rows, known = list(rows), claims.claims()
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(known[row.id].heading, []).append(row)
    for title, some in tables.items():
        _section(console, title, some)
    console.print(f"{len(rows)} row{'' if len(rows) == 1 else 's'}: {totals(rows)}.")


def totals(rows: Iterable[Row]) -> str:
    """How many rows have which verdict."""
    count = Counter(row.verdict for row in rows)
    return ", ".join(counted(count[verdict], verdict) for verdict in reversed(VERDICTS))


def _section(console: Console, title: str, rows: list[Row]) -> None:
    table = Table(title=f"{title}: {totals(rows)}", title_justify="left", title_style="bold", box=None, pad_edge=False)
    findings = all(row.paper is None for row in rows)
    table.add_column("id")
    for name in ("value", "n") if findings else ("paper", "value", "± std", "allowed", "n"):
        table.add_column(name, justify="right")
    table.add_column("runs", no_wrap=True, max_width=42, overflow="ellipsis")
    table.add_column("verdict", no_wrap=True)
    if findings:
        table.add_column("how", no_wrap=True, max_width=48, overflow="ellipsis")
    done = [row for row in rows if row.verdict != "not run"]
    for row in sorted(done, key=badness):
        numbers = [row.value, row.n] if findings else [row.paper, row.value, row.std, row.tolerance, row.n]
        verdict = f"[{STYLES[row.verdict]}]{row.verdict}[/]"
        how = [escape(row.detail)] if findings else []
        table.add_row(row.id, *map(text, numbers), " ".join(map(text, row.runs)), verdict, *how)
    console.print(table if done else f"[bold]{title}[/]: {totals(rows)}")
    waiting: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict == "not run":
            waiting.setdefault(row.detail, []).append(row.id)
    for reason, ids in waiting.items():
        which = ids[0] if len(ids) == 1 else f"{len(ids)} rows, {ids[0]} to {ids[-1]}"
        console.print(f"[dim]not run:[/] {which}: {escape(reason)}")
    console.print()
