"""The ledger as tables on a terminal: one for each section, worst rows first."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import click
import pandas as pd

from carry_paper.ledger import claims
from carry_paper.ledger.results import Row, gathered
from carry_paper.ledger.verdicts import VERDICTS


def show(rows: Sequence[Row]) -> None:
    """Print a table for each section, and the totals; rows that were not run for the same reason share a line."""
    known = claims.claims()
    for heading, some in gathered(rows, lambda row: known[row.id].heading).items():
        click.echo(f"{heading}: {totals(some)}")
        done = {
            row.id: _columns(row) for row in sorted(some, key=badness) if row.verdict != "not run"
        }
        if done:
            click.echo(pd.DataFrame.from_dict(done, orient="index").to_string(max_colwidth=50))
        for reason, same in gathered(
            (row for row in some if row.verdict == "not run"), lambda row: row.detail
        ).items():
            which = (
                same[0].id if len(same) == 1 else f"{len(same)} rows, {same[0].id} to {same[-1].id}"
            )
            click.echo(f"not run: {which}: {reason}")
        click.echo()
    click.echo(f"{len(rows)} row{'' if len(rows) == 1 else 's'}: {totals(rows)}.")


def totals(rows: Iterable[Row]) -> str:
    """How many rows have which verdict."""
    count = Counter(row.verdict for row in rows)
    return ", ".join(counted(count[verdict], verdict) for verdict in reversed(VERDICTS))


def _columns(row: Row) -> dict[str, str]:
    numbers = {
        "paper": row.paper,
        "value": row.value,
        "± std": row.std,
        "allowed": row.tolerance,
        "n": row.n,
    }
    runs = "{} of {} show it".format(*row.shown) if row.shown else " ".join(map(text, row.runs))
    return {name: text(x) for name, x in numbers.items()} | {"runs": runs, "verdict": row.verdict}


def counted(n: int, verdict: str) -> str:
    """How many rows have a verdict: `1 differs`, `8 differ`, `3 mostly reproduced`."""
    words = {"mostly": "mostly reproduced", "differs": "differs" if n == 1 else "differ"}
    return f"{n} {words.get(verdict, verdict)}"


def badness(row: Row) -> tuple[int, float]:
    """A key to sort by: the worst verdict first, then the farthest from the paper for what is allowed."""
    order = VERDICTS.index(row.verdict)
    if not isinstance(row.value, (int, float)) or not isinstance(row.paper, (int, float)):
        return order, 0.0
    return order, -abs(row.value - row.paper) / (row.tolerance or 1.0)


def text(value: Any) -> str:
    """A number of a row, or a list of them, as short as it can be read."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return (":" if all(isinstance(x, int) for x in value) else ", ").join(map(text, value))
    places = ".0f" if abs(value) < 1e4 else ",.0f"
    if isinstance(value, float) and value != int(value):
        places = ".2g" if abs(value) < 0.01 else ".3f" if abs(value) < 100 else ".1f"
    return f"{value:{places}}".replace("-", "−")
