"""The ledger as tables on a terminal: one for each section, worst rows first."""

import sys
from collections import Counter
from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from carry_core.ledger import names
from carry_core.ledger.results import Row
from carry_core.ledger.verdicts import VERDICTS
from carry_core.ledger.webpage import badness, text

MARKS = {"reproduced": "green", "differs": "bold red", "undecided": "yellow", "not run": "dim"}
RUNS = 42  # columns for the values of the runs
NARROW = 150  # columns where the output is no terminal


def show(rows: Iterable[Row], console: Console | None = None) -> None:
    """Print the ledger: a table for each section, worst first, and the totals.

    Rows that were not run for the same reason share a line that says how many they are.
    """
    console = console or Console(width=None if sys.stdout.isatty() else NARROW, highlight=False)
    rows = list(rows)
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(names.heading(row.id), []).append(row)
    for title, some in tables.items():
        _section(console, title, some)
    console.print(f"{len(rows)} row{'' if len(rows) == 1 else 's'}: {totals(rows)}.")


def totals(rows: Iterable[Row]) -> str:
    """How many rows have which verdict."""
    count = Counter(row.verdict for row in rows)
    return ", ".join(f"{count[verdict]} {verdict}" for verdict in reversed(VERDICTS))


def _section(console: Console, title: str, rows: list[Row]) -> None:
    table = Table(title=f"{title}: {totals(rows)}", title_justify="left", title_style="bold", box=None, pad_edge=False)
    finding = all(row.paper is None for row in rows)
    table.add_column("id")
    for name in ("value",) if finding else ("paper", "value", "± std", "allowed"):
        table.add_column(name, justify="right")
    for name in ("runs", "verdict", "how") if finding else ("runs", "verdict"):
        table.add_column(name)
    done = [row for row in rows if row.verdict != "not run"]
    taken = max(len(row.id) for row in rows) + RUNS + 24
    for row in sorted(done, key=badness):
        numbers = [row.value] if finding else [row.paper, row.value, row.std, row.tolerance]
        cells = [row.id, *map(text, numbers), _cut(" ".join(map(text, row.runs)), RUNS)]
        how = [escape(_cut(row.detail, max(10, console.width - taken)))] if finding else []
        table.add_row(*cells, f"[{MARKS[row.verdict]}]{row.verdict}[/]", *how)
    if done:
        console.print(table)
    else:
        console.print(f"[bold]{title}[/]: {totals(rows)}")
    waiting: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict == "not run":
            waiting.setdefault(row.detail, []).append(row.id)
    for reason, ids in waiting.items():
        which = ids[0] if len(ids) == 1 else f"{len(ids)} rows, {ids[0]} to {ids[-1]}"
        console.print(f"[dim]not run:[/] {which}: {escape(reason)}", soft_wrap=False)
    console.print()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
