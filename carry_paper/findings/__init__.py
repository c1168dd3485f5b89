"""The paper's measures and claims, by topic: a claim is a function of a model or its curves.

`base` says what such a function returns, `survey` what one pass over a run's sums measures.
"""

from carry_paper.findings import adder as adder
from carry_paper.findings import base as base
from carry_paper.findings import carry_line as carry_line
from carry_paper.findings import dynamics as dynamics
from carry_paper.findings import evidence as evidence
from carry_paper.findings import geometry as geometry
from carry_paper.findings import heads as heads
from carry_paper.findings import lengths as lengths
from carry_paper.findings import neurons as neurons
from carry_paper.findings import pentagon as pentagon
from carry_paper.findings import survey as survey
from carry_paper.findings import typology as typology
