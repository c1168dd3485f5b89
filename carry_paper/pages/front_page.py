"""What front page and story say of a finding: its verdict, and in how many models it holds.

It is read from the stored results, so that a new verdict changes the word, and a new count makes a
fact of these pages false.
"""

from carry_paper.ledger.report import counted
from carry_paper.ledger.verdicts import CANNOT_TELL, NOT_RUN
from carry_paper.pages import claims_page
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


def count(entry: JudgedClaim) -> tuple[int, int]:
    """Return the number of models of all sources that show a finding, and of all models."""
    counts = [row.shown for row in entry.rows.values() if row.shown and row.verdict != NOT_RUN]
    return sum(n for n, _ in counts), sum(n for _, n in counts)


def counts(outcomes: Outcomes, **ids: str) -> dict[str, tuple[int, int]]:
    """Return the models that show some findings, and all models: a pair for each `NAME=id`."""
    return {name: count(outcomes.entry(id_)) for name, id_ in ids.items()}


def leads(outcomes: Outcomes, **ids: str) -> dict[str, str]:
    """Return the first words of the sentences on some findings: `NAME_lead` for each `NAME=id`."""
    return {f"{name}_lead": lead(outcomes.entry(id_)) for name, id_ in ids.items()}


def tally(outcomes: Outcomes) -> dict[str, str]:
    """Return the tally in words: `numbers_author`, `findings_ours` and so on."""
    numbers, findings, _ = claims_page.tallied(outcomes)
    values = {}
    for name, kind in {"numbers": numbers, "findings": findings}.items():
        for source in outcomes.sources:
            values[f"{name}_{source}"] = kind[source].words()
    return values


def verdicts(outcomes: Outcomes, **ids: str) -> dict[str, str]:
    """Return the verdicts on some findings in words: `NAME_verdicts` for each `NAME=id`."""
    whose = {"author": "the author's models", "ours": "ours"}
    values = {}
    for name, id_ in ids.items():
        parts = []
        entry = outcomes.entry(id_)
        for source, row in entry.rows.items():
            verdict = counted(1, row.verdict, beyond=entry.claim.beyond).removeprefix("1 ")
            parts.append(f"{verdict} in {whose[source]}")
        values[f"{name}_verdicts"] = ", ".join(parts)
    return values
