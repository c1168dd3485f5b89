"""The gallery of figures and tables: what each page found first, in one line and one word.

A page's first claim is the first row of its verdict box. The box's rows are read from the notebook
itself, so that the gallery and the page cannot tell apart.
"""

import ast
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import nbformat

from carry_core.files import ROOT
from carry_paper.ledger.claims import chosen, claims
from carry_paper.ledger.verdicts import NOT_RUN
from carry_paper.pages.claims_page import JUDGED_KINDS, KINDS, Entry, Outcomes
from carry_paper.pages.front_page import LEADS, models
from carry_paper.pages.row_words import number

NOTEBOOKS = ROOT / "notebooks"
NOTHING = "–"
NO_MODEL = "no model can say"


class Outcome(NamedTuple):
    """What a page found first.

    Attributes:
        words: The claim and its result.
        verdict: The weaker of the verdicts on the author's weights and on ours.
    """

    words: str
    verdict: str


def notebook_of(name: str) -> Path:
    """Return the notebook whose name begins with a figure's or table's, such as `fig03`."""
    (path,) = NOTEBOOKS.glob(f"{name}_*.ipynb")
    return path


def in_box(notebook: Path) -> list[str]:
    """Return the ids, or beginnings of ids, that a notebook gives to its verdict box."""
    for cell in nbformat.read(notebook, 4).cells:
        if cell.cell_type == "code" and "page.verdicts(" in cell.source:
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "page.verdicts":
                    return [ast.literal_eval(argument) for argument in node.args]
    return []


def rows(name: str) -> list[str]:
    """Return the ids behind a row of a box: one, or those of a table's cells."""
    return [name] if name in claims() else [claim.id for claim in chosen(name)]


def outcome(outcomes: Outcomes, notebook: Path) -> Outcome:
    """Return what a page found first."""
    names = in_box(notebook)
    if not names:
        return Outcome(NOTHING, "")
    entries = [entry for entry in outcomes.entries if entry.claim.id in rows(names[0])]
    first = entries[0]
    claim = first.claim
    title = claim.short or claim.words
    if len(entries) > 1:
        return Outcome(f"{title}: {_cells(outcomes, entries)}", _weaker(entries))
    if claim.paper is None:
        can_say = any(row.shown and row.shown[1] for row in first.rows.values())
        return Outcome(f"{title}: {models(first) if can_say else NO_MODEL}", _weaker(entries))
    values = [f"{number(claim.paper, claim)} in the paper"]
    for source, row in first.rows.items():
        whose = "the author’s" if source == "author" else "ours"
        if row.verdict != NOT_RUN:
            values.append(f"{number(row.value, claim)} {whose}")
    return Outcome(f"{title}: {', '.join(values)}", _weaker(entries))


def _cells(outcomes: Outcomes, entries: list[Entry]) -> str:
    """Return how many cells of a table are reproduced."""
    informative = [entry for entry in entries if not entry.weightless] or entries
    parts = []
    for source in outcomes.sources:
        n_reproduced = sum(entry.verdict(source) == "reproduced" for entry in informative)
        whose = "the author’s weights" if source == "author" else "ours"
        parts.append(f"{n_reproduced} from {whose}")
    return f"of {len(informative)} cells, {' and '.join(parts)} are reproduced"


def _weaker(entries: list[Entry]) -> str:
    """Return the weakest verdict of some rows; that they were not run counts where none was."""
    verdicts = {row.verdict for entry in entries for row in entry.rows.values()}
    judged = [verdict for verdict in LEADS if verdict in verdicts]
    return judged[-1] if judged else sorted(verdicts)[0]


def counts(outcomes: Outcomes, source: str, notebook: Path) -> Counter[str]:
    """Return the number of rows with each verdict: of a page's own, and of those in its box.

    Rows that can hardly fail are left out; rows beyond the paper count where a page has no others.
    """
    ids = {id_ for name in in_box(notebook) for id_ in rows(name)}
    of_page = [
        e for e in outcomes.entries if e.claim.id in ids or e.claim.notebook == notebook.stem
    ]
    for kinds in (JUDGED_KINDS, KINDS):
        verdicts = Counter(entry.verdict(source) for entry in of_page if entry.kind in kinds)
        if verdicts:
            return verdicts
    return Counter()


def words(outcomes: Outcomes, name: str) -> dict[str, Any]:
    """Return what a page found first as values to glue: `fig03_outcome` and `fig03_verdict`."""
    found_first = outcome(outcomes, notebook_of(name))
    return {f"{name}_outcome": found_first.words, f"{name}_verdict": found_first.verdict or NOTHING}
