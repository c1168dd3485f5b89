"""The ledger as tables on a terminal: one for each section, worst rows first."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import click
import pandas as pd

from carry_paper.ledger import claims
from carry_paper.ledger.results import Row, gathered
from carry_paper.ledger.verdicts import NO_VERDICT, RANGE, VERDICTS, runs_show

# The verdicts on rows beyond the paper, in words: nothing is attributed to the paper, and nothing
# differs from it.
BEYOND_THE_PAPER = {"reproduced": "holds", "differs": "does not hold"}
WORDS = {NO_VERDICT: "shown, not judged"}  # of a verdict whose name says too little


def show(rows: Sequence[Row]) -> None:
    """Print a table for each section, and the totals.

    Rows that were not run for the same reason share a line.
    """
    by_id = claims.claims()
    for heading, section in gathered(rows, lambda row: by_id[row.id].heading).items():
        beyond = by_id[section[0].id].beyond
        click.echo(f"{heading}: {totals(section, beyond=beyond)}")
        table = {}
        for row in sorted(section, key=badness):
            if row.verdict != "not run":
                runs = " ".join(text(value) for value in row.runs)
                table[row.id] = {
                    "paper": text(row.paper),
                    "value": text(row.value),
                    "± std": text(row.std),
                    "allowed": text(row.tolerance),
                    "n": text(row.n),
                    "runs": runs if row.shown is None else shown_in_words(row),
                    "verdict": in_words(row.verdict, beyond=beyond),
                }
        if table:
            frame = pd.DataFrame.from_dict(table, orient="index")
            click.echo(frame.to_string(max_colwidth=50))

        not_run = [row for row in section if row.verdict == "not run"]
        for reason, same in gathered(not_run, lambda row: row.detail).items():
            names = same[0].id
            if len(same) > 1:
                names = f"{len(same)} rows, {same[0].id} to {same[-1].id}"
            click.echo(f"not run: {names}: {reason}")
        click.echo()
    for beyond in (False, True):
        own = [row for row in rows if by_id[row.id].beyond == beyond]
        if own:
            where = " beyond the paper" if beyond else ""
            n_rows = f"{len(own)} row{'' if len(own) == 1 else 's'}{where}"
            click.echo(f"{n_rows}: {totals(own, beyond=beyond)}.")


def totals(rows: Iterable[Row], *, beyond: bool = False) -> str:
    """Return the number of rows with each verdict in words, the best verdict first."""
    count = Counter(row.verdict for row in rows)
    parts = [counted(count[verdict], verdict, beyond=beyond) for verdict in reversed(VERDICTS)]
    return ", ".join(parts)


def in_words(verdict: str, *, beyond: bool = False) -> str:
    """Return a verdict in words; a row `beyond` the paper holds, or does not hold."""
    words = WORDS | BEYOND_THE_PAPER if beyond else WORDS
    return words.get(verdict, verdict)


def counted(n: int, verdict: str, *, beyond: bool = False) -> str:
    """Return the number of rows with a verdict in words: `1 differs`, `3 mostly reproduced`.

    Rows `beyond` the paper are those of which it says nothing: `1 does not hold`, `3 mostly hold`.
    """
    if beyond:
        words = {"mostly": "mostly hold", "reproduced": "hold", "differs": "do not hold"}
        if n == 1:
            words |= {"mostly": "mostly holds", "reproduced": "holds", "differs": "does not hold"}
        return f"{n} {words.get(verdict, in_words(verdict))}"
    if verdict == "differs" and n != 1:
        return f"{n} differ"
    return f"{n} mostly reproduced" if verdict == "mostly" else f"{n} {in_words(verdict)}"


def shown_in_words(row: Row) -> str:
    """Return how many runs show a finding, with the exact interval: `4 of 6 runs show it (22–96%)`.

    The interval, by Clopper and Pearson, is that of the share of runs; one run has none. A row on a
    range counts settings.
    """
    n_showing, n = row.shown or (0, 0)
    if claims.claims()[row.id].quantifier == RANGE:
        n_open = f", and {row.n - n} can't tell" if row.n > n else ""
        return f"it holds in {n_showing} of {row.n} settings{n_open}"
    words = runs_show(n_showing, n)
    return words if row.interval is None else f"{words} ({percents(row.interval[0])})"


def percents(ends: Sequence[float]) -> str:
    """Return the ends of an interval of a share as percents: `22–96%`."""
    low, high = ends
    return f"{100 * low:.0f}–{100 * high:.0f}%"


def badness(row: Row) -> tuple[int, float]:
    """Return a key that sorts by verdict, the worst first, then by distance from the paper.

    The distance is in multiples of the tolerance, the largest first.
    """
    order = VERDICTS.index(row.verdict)
    if not isinstance(row.value, (int, float)) or not isinstance(row.paper, (int, float)):
        return order, 0.0
    return order, -abs(row.value - row.paper) / (row.tolerance or 1.0)


def text(value: Any) -> str:
    """Return a number of a row, or a list of them, as short text."""
    if value is None:
        return "–"
    if isinstance(value, list):
        is_head = all(isinstance(entry, int) for entry in value)
        return (":" if is_head else ", ").join(text(entry) for entry in value)
    is_whole = isinstance(value, int) or value == int(value)
    size = abs(value)
    if is_whole:
        places = ".0f" if size < 1e4 else ",.0f"
    elif size < 0.01:
        places = ".2g"
    else:
        places = ".3f" if size < 100 else ".1f"
    return f"{value:{places}}".replace("-", "−")
