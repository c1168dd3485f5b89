"""What front page and story say of a finding: its verdict, and in how many models it holds.

It is read from the stored results, so that a new verdict changes the sentence.
"""

from carry_paper.ledger.report import counted
from carry_paper.ledger.verdicts import CANNOT_TELL, NOT_RUN
from carry_paper.pages.claims_page import JudgedClaim, Outcomes

# The first word of a finding, by its verdict; the weaker of two verdicts comes later.
LEADS = {
    "reproduced": "Holds",
    "mostly": "Mostly",
    "mixed": "In some models",
    CANNOT_TELL: "Can't tell yet",
    "differs": "Not so",
}
UNJUDGED = "Not judged"


def lead(entry: JudgedClaim) -> str:
    """Return the word with which a sentence on a finding begins, such as `Holds`."""
    verdicts = {row.verdict for row in entry.rows.values()}
    words_for_them = [word for verdict, word in LEADS.items() if verdict in verdicts]
    return words_for_them[-1] if words_for_them else UNJUDGED


def models(entry: JudgedClaim) -> str:
    """Return the models of all sources that show a finding: `all 12 models`, `4 of 12 models`."""
    counts = [row.shown for row in entry.rows.values() if row.shown and row.verdict != NOT_RUN]
    n_showing = sum(n for n, _ in counts)
    n_models = sum(n for _, n in counts)
    return of_models(n_showing, n_models)


def of_models(n_showing: int, n_models: int) -> str:
    """Return how many of some models show something, such that it fits after *in*."""
    if n_models == 0:
        return "no model yet"
    if n_showing == n_models:
        return {1: "the only model", 2: "both models"}.get(n_models, f"all {n_models} models")
    if n_showing == 0:
        return {1: "no model", 2: "neither model"}.get(n_models, f"none of {n_models} models")
    return f"{n_showing} of {n_models} models"


def words(outcomes: Outcomes, **ids: str) -> dict[str, str]:
    """Return the words of some findings: `NAME_lead` and `NAME_models` for each `NAME=id`."""
    entries = {entry.claim.id: entry for entry in outcomes.entries}
    values = {}
    for name, id_ in ids.items():
        values[f"{name}_lead"] = lead(entries[id_])
        values[f"{name}_models"] = models(entries[id_])
    return values


def verdicts(outcomes: Outcomes, **ids: str) -> dict[str, str]:
    """Return the verdicts on some findings in words: `NAME_verdicts` for each `NAME=id`."""
    entries = {entry.claim.id: entry for entry in outcomes.entries}
    whose = {"author": "the author's models", "ours": "ours"}
    values = {}
    for name, id_ in ids.items():
        parts = []
        for source, row in entries[id_].rows.items():
            beyond = entries[id_].claim.beyond
            verdict = counted(1, row.verdict, beyond=beyond).removeprefix("1 ")
            parts.append(f"{verdict} in {whose[source]}")
        values[f"{name}_verdicts"] = ", ".join(parts)
    return values
