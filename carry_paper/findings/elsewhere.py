"""The abstract's claim: the algorithm occurs across a range of hyperparameters (App. C, D, F).

It has two parts, each measured on every run of every group: what moves the carry, and what adds it.
"""

import pandas as pd

from carry_core import carries, measure
from carry_core.model import Transformer
from carry_paper.findings import heads, interchange_maps, typology
from carry_paper.findings.base import (
    DECODER,
    DFF512,
    DFF1024,
    DIGITS4,
    MAIN,
    N3,
    S01,
    W0,
    Fields,
)
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.neurons import without_neurons

# Groups of two and three layers whose sums are as long as those that they were trained on.
HYPERPARAMETERS = (MAIN, S01, W0, DFF512, DFF1024, N3, DECODER, DIGITS4)

SUMS = 2_000  # of each class, on which a run's final MLP is ablated


def last_attention(evidence: Evidence, group: str) -> pd.DataFrame:
    """Share of carries that the last layer's heads together move, swapped (abstract).

    It is read from the stored maps of interchange, with a row for each run.

    Raises:
        BadInput: The group has no stored maps.
    """
    maps = interchange_maps.load(evidence.source, group)
    return typology.who_decides(maps)[["heads together"]].set_axis(["value"], axis="columns")


def final_mlp(model: Transformer) -> Fields:
    """Correlation with a model that cannot carry, without what adds the carry (abstract, Sec. 5).

    The paper ablates the whole final MLP or, where that takes away more, its carry neurons: the
    value is the higher of the two. With three layers `C all con.` at 8 does not count: the paper
    excepts it (App. C.3).
    """
    n_digits = model.config.width
    per_class = max(1, SUMS * len(carries.patterns(3)) // len(carries.patterns(n_digits)))
    chosen_on, counted_on = (measure.sample(per_class, n_digits, seed) for seed in (0, 1))
    carrying = heads.carry_neurons(model, *chosen_on)
    ablations = [measure.final_mlp(model), without_neurons(model, carrying)]
    tables = measure.class_accuracies(model, *counted_on, ablations)
    excepted = heads.C_ALL_CON_AT_8 if model.config.layers > 2 and n_digits == 3 else None
    whole, neurons = (heads.no_carry_correlation(table, but=excepted) for table in tables)
    return {
        "value": max(whole, neurons),
        "without_the_final_MLP": whole,
        "without_its_carry_neurons": neurons,
    }
