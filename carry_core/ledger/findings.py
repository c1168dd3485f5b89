"""The findings of `findings.yml`: which measure gives each, and what the missing ones wait for."""

from carry_core.errors import BadInput
from carry_core.ledger import billions, dynamics, insides, pairs, structure
from carry_core.ledger.behaviour import FINDINGS
from carry_core.ledger.evidence import Evidence, Need
from carry_core.ledger.readings import Found

__all__ = ["FINDINGS", "MISSING", "dynamics", "find", "insides", "needed", "pairs", "structure"]

MISSING = {
    "four_digits": "measures of four-digit runs over thirteen classes (Fig. 18's notebook)",
    "length": "measures of padded runs over epochs (Fig. 20's notebook)",
    "mlp_2500": "measures of padded runs at 500, 1000 and 2500 epochs",
    "primed_parts": "accuracies of padded runs cell by cell without each part (Fig. 24's notebook)",
    "carry_axis_long": "the carry axis of primed and finetuned runs (Fig. 25's notebook)",
}


def needed(name: str) -> dict[str, Need]:
    """What a finding needs of which group."""
    return dict(FINDINGS[name].needs) if name in FINDINGS else {}


def find(name: str, evidence: Evidence) -> Found:
    """The finding called `name`, from a source's weights.

    Raises:
        BadInput: it cannot be measured; says what is missing.
    """
    if name in FINDINGS:
        return FINDINGS[name].of(evidence)
    if name == "finding/llm_heads":
        return billions.llm_heads(evidence)
    raise BadInput(f"needs: {MISSING[name.removeprefix('finding/')]}.")
