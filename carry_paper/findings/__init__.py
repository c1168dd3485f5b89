"""One function for each claim: it takes a source's evidence and gives a value, and whether it shows, for each run.

`base` has what a finding is, `survey` what one pass over a run's sums gives. The others have a
section of the paper each, and importing this package registers every finding in `base.FINDINGS`.
"""

from carry_paper.findings import (
    adder,
    base,
    dynamics,
    geometry,
    heads,
    lengths,
    neurons,
    pentagon,
    survey,
    typology,
)

__all__ = [
    "adder",
    "base",
    "dynamics",
    "geometry",
    "heads",
    "lengths",
    "neurons",
    "pentagon",
    "survey",
    "typology",
]
