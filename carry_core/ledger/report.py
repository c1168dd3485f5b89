"""The ledger as tables on a terminal: one for each section, worst rows first."""

from collections import Counter
from collections.abc import Iterable, Sequence

import click
import pandas as pd

from carry_core.ledger import claims
from carry_core.ledger.box import counted
from carry_core.ledger.results import Row, gathered
from carry_core.ledger.verdicts import VERDICTS
from carry_core.ledger.webpage import badness, text


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
