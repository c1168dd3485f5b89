"""The abstract's claim: the algorithm occurs across a range of hyperparameters (App. C, D, F)."""

from typing import NamedTuple

import pandas as pd

from carry_core import carries, measure
from carry_core.errors import BadInput
from carry_core.model import Transformer
from carry_paper.findings import heads, interchange_maps, typology
from carry_paper.findings.bars import Bar
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
    per_run,
)
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.neurons import without_neurons
from carry_paper.findings.typology import DECIDES

# Groups of two and three layers whose sums are as long as those that they were trained on.
HYPERPARAMETERS = (MAIN, S01, W0, DFF512, DFF1024, N3, DECODER, DIGITS4)

SUMS = 2_000  # of each class, on which a run's final MLP is ablated
# From this share of a group's runs on, the group works in the same way.
MOST_RUNS = Bar(2 / 3, perfect=1)


class FinalMlp(NamedTuple):
    """Correlations with a model that cannot carry, of a run under two ablations."""

    without_it: float
    without_its_carry_neurons: float


def final_mlp(model: Transformer) -> FinalMlp:
    """Measure a run without its final MLP, and without its carry neurons alone (Sec. 4, 5).

    With three layers `C all con.` at 8 does not count: the paper excepts it (App. C.3).
    """
    n_digits = model.config.width
    per_class = max(1, SUMS * len(carries.patterns(3)) // len(carries.patterns(n_digits)))
    chosen_on, counted_on = (measure.sample(per_class, n_digits, seed) for seed in (0, 1))
    carrying = heads.carry_neurons(model, *chosen_on).nonzero().flatten()
    ablations = [measure.final_mlp(model), without_neurons(model, carrying)]
    tables = measure.class_accuracies(model, *counted_on, ablations)
    excepted = heads.C_ALL_CON_AT_8 if model.config.layers > 2 and n_digits == 3 else None
    return FinalMlp(*(heads.no_carry_correlation(table, but=excepted) for table in tables))


def works_in_the_same_way(attention: float, without: FinalMlp) -> bool:
    """Return True if the last attention decides on the carry, and the final MLP adds it.

    The paper ablates the whole final MLP, or where that takes away more, its carry neurons.

    Args:
        attention: The share of carries that the last layer's heads together move.
        without: What is left without the final MLP.
    """
    adds = max(without) >= heads.CANNOT_CARRY_CORRELATION
    return attention >= DECIDES and adds


def elsewhere(evidence: Evidence) -> pd.DataFrame:
    """Share of a group's runs in which the attention decides and the final MLP adds (abstract).

    There is a row for each group. Attention is judged by stored maps of interchange, so that runs
    without one do not count.

    Raises:
        BadInput: A group has no runs, or no stored maps.
    """
    rows: dict[str, Fields] = {}
    for group in HYPERPARAMETERS:
        if evidence.source == "author" and not evidence.has(group):
            continue
        rows[group] = _group_row(evidence, group)
    if not rows:
        raise BadInput("It needs runs of two or three layers: import or train some.")
    return per_run(rows)


def most_runs_work_in_the_same_way(measured: Fields, *, share: float = MOST_RUNS) -> bool:
    """Return True if most runs of a group of `elsewhere` work in the same way."""
    return bool(measured["value"] >= share)


def _group_row(evidence: Evidence, group: str) -> Fields:
    """Return a group's row of `elsewhere`."""
    parts = typology.who_decides(interchange_maps.load(evidence.source, group))
    attention = parts["heads together"]
    final_mlps = evidence.each(group, lambda run, model: final_mlp(model))
    final_mlps = {run: without for run, without in final_mlps.items() if run in attention.index}
    if not final_mlps:
        raise BadInput(
            f"{group} has no stored map of its runs: "
            f"run `carry interchange --source {evidence.source} {group} --save`."
        )
    same = []
    for run, without in final_mlps.items():
        same.append(works_in_the_same_way(float(attention[run]), without))
    share = sum(same) / len(same)
    return {
        "value": share,
        "runs": len(same),
        "attention": [float(attention[run]) for run in final_mlps],
        "without_the_final_MLP": [without.without_it for without in final_mlps.values()],
        "without_its_carry_neurons": [
            without.without_its_carry_neurons for without in final_mlps.values()
        ],
    }
