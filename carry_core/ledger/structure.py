"""What the paper claims in words about pentagons and full adders, measured in each run (App. E, App. I).

As in `behaviour`, a row's `reason` in `data/claims.yml` says when a run counts as showing a finding.
"""

import torch

from carry_core import adder, sums
from carry_core.groups import MAIN
from carry_core.ledger.behaviour import finding, per_model, random_sums, result
from carry_core.ledger.evidence import Evidence
from carry_core.ledger.readings import Found
from carry_core.pentagon import BEYOND, VISIBLE, pentagon

AGREES = 0.99  # share of sums from which a part's truth table counts as the schoolbook's
ADDED = 6_000  # random sums for the truth tables: some sixty for each pair of digits


@finding("pentagon")
def pentagons(evidence: Evidence) -> Found:
    """App. E, Fig. 17: position 8 after the last attention, sums at which no carried one arrives."""
    found = per_model(evidence, MAIN, lambda run, m: pentagon(m, *random_sums()))
    told = "; ".join(
        f"run {run}: {p.score:.3f} ({p.chance:.3f}), best {p.best:.3f} ({p.best_chance:.3f}) on axes"
        f" {p.plane[0] + 1} and {p.plane[1] + 1}, with a one {p.turn:+.2f} vertices further"
        for run, p in found.items()
    )
    detail = f"Share of the spread of the ten digits that a pentagon explains, in brackets {BEYOND} of shuffled labels."
    seen, best = (sum(getattr(p, x) >= VISIBLE for p in found.values()) for x in ("score", "best"))
    told += f". One can see a pentagon ({VISIBLE} or more) in {seen} leading planes and in {best} best ones"
    shows = {run: p.rank > BEYOND for run, p in found.items()}
    return result({run: p.score for run, p in found.items()}, shows, f"{detail} In the leading plane: {told}.")


def is_full_adder(parts: adder.Parts) -> bool:
    """Whether every part's truth table is the schoolbook's, and the carry line is nowhere there before its time."""
    return min(parts.claimed.values()) >= AGREES and max(parts.early.by_column) < AGREES


@finding("full_adder")
def full_adder(evidence: Evidence) -> Found:
    """App. I, Fig. 26: truth tables of the parts."""
    a, b = sums.long_sums(ADDED, 3, torch.Generator().manual_seed(0))
    found = per_model(evidence, MAIN, lambda run, m: adder.parts(m, a, b))
    told = "; ".join(
        f"run {run}: "
        + ", ".join(f"{name} {share:.3f}" for name, share in parts.claimed.items())
        + f", one before the last attention {' and '.join(f'{share:.3f}' for share in parts.early.by_column)}"
        for run, parts in found.items()
    )
    return result(
        {run: min(parts.claimed.values()) for run, parts in found.items()},
        {run: is_full_adder(parts) for run, parts in found.items()},
        f"The lowest agreement of a part with the schoolbook, in the worst column; {told}.",
    )
