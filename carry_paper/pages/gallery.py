"""The gallery of figures and tables: each page's first claim, and how many rows got which verdict.

A page's first claim is the first row of its verdict box. The box's rows are read from the notebook
itself, so that the gallery and the page cannot tell apart.
"""

import ast
from collections import Counter
from pathlib import Path

import nbformat

from carry_core.files import ROOT
from carry_paper.ledger.claims import of_line
from carry_paper.ledger.verdicts import NOT_RUN
from carry_paper.pages.claims_page import JUDGED_KINDS, KINDS, JudgedClaim, Outcomes, in_words
from carry_paper.pages.row_words import number

NOTEBOOKS = ROOT / "notebooks"
NOTHING = "–"
NO_MODEL = "no model can say"
WHOSE = {"author": "the author’s", "ours": "ours"}


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


def outcome(outcomes: Outcomes, notebook: Path) -> str:
    """Return a page's first claim, and its result from each source."""
    names = in_box(notebook)
    if not names:
        return NOTHING
    entries = [entry for entry in outcomes.entries if entry.claim in of_line(names[0])]
    claim = entries[0].claim
    results = [f"{WHOSE[source]} {_result(entries, source)}" for source in outcomes.sources]
    if len(entries) == 1 and claim.paper is not None:
        results.insert(0, f"the paper {number(claim.paper, claim)}")
    return f"{claim.short or claim.words}: {', '.join(results)}"


def _result(entries: list[JudgedClaim], source: str) -> str:
    """Return what a source says of a claim: its number, or how many models or cells agree."""
    if len(entries) > 1:
        verdicts = [entry.verdict(source) for entry in entries if not entry.weightless]
        judged = [verdict for verdict in verdicts if verdict != NOT_RUN]
        if not judged:
            return NOT_RUN
        return f"{judged.count('reproduced')} of {len(verdicts)} cells reproduced"
    (entry,) = entries
    row = entry.rows[source]
    if row.verdict == NOT_RUN:
        return NOT_RUN
    if row.shown is None:
        return number(row.value, entry.claim)
    n_showing, n_models = row.shown
    models = "1 model" if n_models == 1 else f"{n_models} models"
    return f"{n_showing} of {models}" if n_models else NO_MODEL


def counts(outcomes: Outcomes, source: str, notebook: Path) -> Counter[str]:
    """Return the number of rows with each verdict: of a page's own, and of those in its box.

    Rows that can hardly fail are left out; rows beyond the paper count where a page has no others.
    """
    of_box = [claim for name in in_box(notebook) for claim in of_line(name)]
    of_page = [
        e for e in outcomes.entries if e.claim in of_box or e.claim.notebook == notebook.stem
    ]
    for kinds in (JUDGED_KINDS, KINDS):
        verdicts = Counter(entry.verdict(source) for entry in of_page if entry.kind in kinds)
        if verdicts:
            return verdicts
    return Counter()


def words(outcomes: Outcomes, name: str) -> dict[str, str]:
    """Return what a page found as values to glue, such as `fig03_outcome`.

    That is its first claim, and for each source how many rows got which verdict: `fig03_ours`.
    """
    notebook = notebook_of(name)
    values = {f"{name}_outcome": outcome(outcomes, notebook)}
    for source in outcomes.sources:
        of_page = counts(outcomes, source, notebook)
        values[f"{name}_{source}"] = in_words(of_page, signs=True) or NOTHING
    return values
