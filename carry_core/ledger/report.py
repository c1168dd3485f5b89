"""The ledger as tables on a terminal: one for each section, worst rows first."""

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from carry_core.claims import Row
from carry_core.ledger.verdicts import VERDICTS

MARKS = {"reproduced": "green", "differs": "bold red", "undecided": "yellow", "not run": "dim"}
SECTIONS = (
    ("tab1/decision_head", "Table 1, decision head"), ("tab1/final_mlp", "Table 1, final MLP"),
    ("tab2", "Table 2, language models"), ("tab3", "Table 3, three layers"), ("tab4", "Table 4, dissection"),
    ("tab5/final_mlp", "Table 5, decoder without the final MLP"), ("tab5/dissected", "Table 5, decoder dissected"),
    ("data", "The sums"), ("n", "Two and three layers"), ("decoder/", "Decoder"), ("digits4", "Four digits"),
    ("pad6", "Longer sums"), ("decoder_pad6", "Longer sums, decoder"), ("llm", "Language models"),
    ("finding", "What the paper says in words"),
)  # fmt: skip
RUNS = 42  # columns for the values of the runs
NARROW = 150  # columns where the output is no terminal


def show(rows: Iterable[Row], console: Console | None = None) -> None:
    """Print the ledger: a table for each section, worst first, and the totals.

    Rows that were not run for the same reason share a line that says how many they are.
    """
    console = console or Console(width=None if sys.stdout.isatty() else NARROW, highlight=False)
    rows = list(rows)
    left = list(rows)
    for prefix, title in SECTIONS:
        section = [row for row in left if row.id.startswith(prefix)]
        left = [row for row in left if not row.id.startswith(prefix)]
        if section:
            _section(console, title, section)
    if left:
        _section(console, "Others", left)
    console.print(f"{len(rows)} rows: {totals(rows)}.")


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
    for row in sorted(done, key=_badness):
        numbers = [row.value] if finding else [row.paper, row.value, row.std, row.tolerance]
        cells = [row.id, *map(_text, numbers), _cut(" ".join(map(_text, row.runs)), RUNS)]
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
        names = ids[0] if len(ids) == 1 else f"{len(ids)} rows, {ids[0]} to {ids[-1]}"
        console.print(f"[dim]not run:[/] {names}: {escape(reason)}", soft_wrap=False)
    console.print()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _badness(row: Row) -> tuple[int, float]:
    """The worst verdict first, then the farthest from the paper for what is allowed."""
    order = VERDICTS.index(row.verdict)
    if not isinstance(row.value, (int, float)) or not isinstance(row.paper, (int, float)):
        return order, 0.0
    return order, -abs(row.value - row.paper) / (row.tolerance or 1.0)


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, float) and value != int(value):
        if abs(value) < 0.01:
            return f"{value:.2g}"
        return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"
    return f"{int(value)}" if abs(value) < 1e6 else f"{value:.3g}"
