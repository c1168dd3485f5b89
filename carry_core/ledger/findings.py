"""The findings of `findings.yml`: which measure gives each."""

from carry_core.ledger import billions, dynamics, insides, longer, pairs, structure
from carry_core.ledger.behaviour import FINDINGS
from carry_core.ledger.evidence import Evidence, Need
from carry_core.ledger.readings import Found

__all__ = ["FINDINGS", "dynamics", "find", "insides", "longer", "needed", "pairs", "structure"]


def known(name: str) -> bool:
    """Whether there is a measure for the finding."""
    return name in FINDINGS or name == "finding/llm_heads"


def needed(name: str) -> dict[str, Need]:
    """What a finding needs of which group."""
    return dict(FINDINGS[name].needs) if name in FINDINGS else {}


def find(name: str, evidence: Evidence) -> Found:
    """The finding called `name`, from a source's weights.

    Raises:
        BadInput: it cannot be measured; says what is missing.
    """
    return billions.llm_heads(evidence) if name == "finding/llm_heads" else FINDINGS[name].of(evidence)
