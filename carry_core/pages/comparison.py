"""A page beside the ledger: tables that it computes, judged as the ledger judges them, and rows that the ledger has."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from carry_core import carries
from carry_core.errors import BadInput
from carry_core.findings.base import Measurement
from carry_core.findings.survey import DRAWN
from carry_core.ledger import claims, compute, quantities, results, verdicts
from carry_core.ledger.quantities import KINDS, READINGS, binomial, drawn_for
from carry_core.measure import ClassAccuracies
from carry_core.plots import Part
from carry_core.plots.style import Table
from carry_core.runs import Runs


class Judged(NamedTuple):
    """A table of the paper, and the verdict on each cell: `verdicts["accuracy"][task][pos]`."""

    printed: ClassAccuracies
    verdicts: Mapping[str, Sequence[Sequence[str]]]


def judge_cells(table: str, source: str, runs: Mapping[int, ClassAccuracies], drawn: Sequence[float | int]) -> Judged:
    """Judge a table that a page computed on a draw of sums, by the rules and the author's runs that the ledger has.

    The ledger counts on all sums. From the author's weights the page's own draw is therefore granted too, as much
    again as the paper's, by its size. Between runs of ours it is a part of their scatter.

    Args:
        table: such as `tab1/final_mlp`.
        source: `ours` or `author`.
        runs: what each run gets right.
        drawn: how many sums of each class the page counted on.

    Raises:
        BadInput: the ledger has no such table.
    """
    printed, rows, theirs = claims.cells(table), claims.claims(), results.author_rows()

    def verdict(kind: str, task: int, pos: int) -> str:
        pattern = carries.patterns(3)[task]
        name = f"{table}/{carries.claim_key(pattern)}/{kind}/pos{7 + pos}"
        claim, reading, row = rows[name], READINGS[name], theirs.get(name)
        values = {run: float(getattr(cells, kind)[task, pos]) for run, cells in runs.items()}
        shown = [reading.shown] if source == "author" and reading.shown in values else list(values)
        if claim.rule == "selected":  # the ledger found by ten draws how much another choice of neurons changes
            granted = row.tolerance if row and row.tolerance else claim.unit / 2
            variance = ((granted - claim.unit / 2) / verdicts.STANDARD_ERRORS) ** 2 * (1 + DRAWN / drawn[task])
        else:
            sizes = (drawn_for(reading.group, pattern), drawn[task])
            variance = sum(binomial(values[run], size) for run in shown for size in sizes) / len(shown) ** 2
        found = Measurement(values, reading.combine([values[run] for run in shown]), variance**0.5)
        return compute.judge(claim, source, found, row.runs if row else []).verdict

    n_tasks, n_pos = printed.accuracy.shape
    return Judged(
        printed, {kind: [[verdict(kind, t, p) for p in range(n_pos)] for t in range(n_tasks)] for kind in KINDS}
    )


def part(
    title: str,
    cells: Mapping[int, ClassAccuracies],
    loaded: Runs,
    table: str,
    a: Int[Tensor, " sums"],
    b: Int[Tensor, " sums"],
) -> Part:
    """A part of a table for `plots`, with the paper's beside it if the runs are of the group that the paper has there.

    Args:
        title: what was ablated.
        cells: what each run gets right.
        loaded: the runs.
        table: such as `tab1/final_mlp`.
        a: first numbers of the sums that were counted on.
        b: second numbers.
    """
    if READINGS[f"{table}/NC/accuracy/pos7"].group != loaded.group:
        return Part(title, list(cells.values()))
    drawn = torch.bincount(carries.classify(a, b), minlength=len(carries.patterns(3))).tolist()
    return Part(title, list(cells.values()), *judge_cells(table, loaded.source, cells, drawn))


def committed(name: str) -> dict[str, results.Row]:
    """A row of the ledger as `carry claims --save` wrote it, for each source that has results.

    Raises:
        BadInput: results are damaged, or lack the row.
    """
    found = {}
    for source in ("author", "ours"):
        if results.path_of(source).exists():
            rows = {row.id: row for row in results.read(source)["rows"]}
            if name not in rows:
                path = results.path_of(source)
                raise BadInput(f"{path} has no row {name}: write it with `carry claims --source {source} --save`.")
            found[source] = rows[name]
    return found


def table_of_rows(names: Mapping[str, str], group: str | None = None) -> Table:
    """Rows of the ledger, from all sums: what the paper has, the author's weights and ours give, and the verdicts.

    In small type their ids, whose rows they are if not the page's, the runs if there are several, a dash for one in
    which nothing was found, how they were trained if not as the paper's were, or why nothing was run.

    Args:
        names: what to call each row, by its id.
        group: the one that the page shows; None for several.
    """
    rows = []
    for name, title in names.items():
        found, claim = committed(name), claims.claims()[name]
        cells = [_cell(found[source]) if source in found else "–" for source in ("author", "ours")]
        about = quantities.groups_of(claim.id)
        other = f"\nof {', '.join(sorted(about))}, not of {group}" if group and about and group not in about else ""
        rows.append([f"{title}\n{name}{other}", "–" if claim.paper is None else _text(claim.paper, 4), *cells])
    return Table(["", "paper", "author’s weights", "ours"], rows)


def _cell(row: results.Row) -> str:
    if row.value is None:
        return "\n".join([row.verdict, *textwrap.wrap(textwrap.shorten(row.detail, 120, placeholder=" …"), 40)])
    runs = ["–" if x is None else _text(x, 3) for x in row.runs]
    lines = [" ".join(runs[i : i + 3]) for i in range(0, len(runs), 3)] if len(runs) > 1 else []
    return "\n".join([f"{_text(row.value, 4)} {row.verdict}", *lines, *row.trainings])


def _text(value: Any, places: int) -> str:
    """A number, or the ends of a range."""
    return " to ".join(_text(x, places) for x in value) if isinstance(value, list) else f"{value:.{places}g}"
