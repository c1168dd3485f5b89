"""The paper's measures and claims, by topic: a claim is a function of a model or its curves.

`base` says what such a function returns, `survey` what one pass over a run's sums measures.
"""

from carry_paper.findings import (
    adder,
    base,
    carry_line,
    dynamics,
    evidence,
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
    "carry_line",
    "dynamics",
    "evidence",
    "geometry",
    "heads",
    "lengths",
    "neurons",
    "pentagon",
    "survey",
    "typology",
]
