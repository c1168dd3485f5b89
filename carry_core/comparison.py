"""Tables of the paper that a page computes on a draw of sums, judged as the ledger judges them (Tab. 1, 3, 4, 5)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from carry_core import claims, tasks
from carry_core.ledger import verdicts
from carry_core.ledger.readings import KINDS, READINGS, Found, binomial, drawn_for
from carry_core.ledger.survey import DRAWN
from carry_core.measure import Cells


class Judged(NamedTuple):
    """A table of the paper, and the verdict on each cell: `verdicts["accuracy"][task][pos]`."""

    printed: Cells
    verdicts: Mapping[str, Sequence[Sequence[str]]]


def judge_cells(table: str, source: str, runs: Mapping[int, Cells], drawn: float | int) -> Judged:
    """Judge a table that a page computed on a draw of sums, by the rules and the author's runs that the ledger has.

    The ledger counts on all sums. From the author's weights the page's own draw is therefore granted too, as much
    again as the paper's, by its size. Between runs of ours it is a part of their scatter.

    Args:
        table: such as `tab1/final_mlp`.
        source: `ours` or `author`.
        runs: what each run gets right.
        drawn: sums of each class that the page counted on.

    Raises:
        BadInput: the ledger has no such table.
    """
    printed, rows, theirs = claims.printed_cells(table), claims.published(), claims.author_rows()

    def verdict(kind: str, task: int, pos: int) -> str:
        pattern = tasks.patterns(3)[task]
        name = f"{table}/{tasks.key(pattern)}/{kind}/pos{7 + pos}"
        claim, reading, row = rows[name], READINGS[name], theirs.get(name)
        values = {run: float(getattr(cells, kind)[task, pos]) for run, cells in runs.items()}
        shown = [reading.shown] if source == "author" and reading.shown in values else list(values)
        if claim.rule == "selected":  # the ledger found by ten draws how much another choice of neurons changes
            granted = row.tolerance if row and row.tolerance else claim.unit / 2
            variance = ((granted - claim.unit / 2) / verdicts.STANDARD_ERRORS) ** 2 * (1 + DRAWN / drawn)
        else:
            sizes = (drawn_for(reading.group, pattern), drawn)
            variance = sum(binomial(values[run], size) for run in shown for size in sizes) / len(shown) ** 2
        found = Found(values, reading.combine([values[run] for run in shown]), variance**0.5)
        return claims.judge(claim, source, found, row.runs if row else []).verdict

    n_tasks, n_pos = printed.accuracy.shape
    return Judged(
        printed, {kind: [[verdict(kind, t, p) for p in range(n_pos)] for t in range(n_tasks)] for kind in KINDS}
    )
