"""Measures of a run that no claim is about: what each of many runs of the main group does.

The page `what_kind_of_run` compares them between runs, beside the findings of the paper.
"""

from functools import partial
from typing import Any

import pandas as pd

from carry_core import measure
from carry_core.model import Transformer
from carry_paper import catalogue
from carry_paper.findings import dynamics, heads, interchange, interchange_maps, typology
from carry_paper.findings.base import Fields, per_run
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import random_sums

# Parts of the last layer (`typology.who_decides`), and the full adder's variables in their places
# (`typology.abstraction`).
PARTS = ["one head", "heads together", "earlier", "final MLP", "digit_sum", "carry_in", "all"]


def in_short(model: Transformer) -> Fields:
    """Exact match on random sums.

    Besides, the squared norm of the weights; the head of the last layer that costs most under zero
    ablation; and the decision head's mean attention to the columns left of the answer's own, to the
    own one, and right of it.
    """
    decision_head = measure.decision_head(model)
    attention = heads.mean_attention(model)[-1][decision_head]  # (query, key)
    correct = measure.correct_digits(model, *random_sums())  # (sums, pos)
    fields = {
        "value": correct.all(1).double().mean().item(),
        "squared norm": sum(float(weight.square().sum()) for weight in model.parameters()),
        "zero ablation": measure.costliest_head(model),
    }
    for name, shift in (("left", -1), ("own", 0), ("right", 1)):
        mass = heads.column_mass(attention, model.config.layout, shift)
        fields[f"attention {name}"] = float(mass.nanmean())
    return fields


def deciding_parts(model: Transformer) -> Fields:
    """Interchange accuracy of a carry, of the best head of the last layer.

    Besides, which `head` it is, and the accuracies of `typology.PARTS`.
    """
    swaps = interchange.carry_swaps(model, interchange_maps.PAIRS).assign(run=0)
    parts = typology.who_decides(swaps).loc[0]
    return {"value": parts.pop("one head"), **parts.to_dict()}


def epoch_of_learning(evidence: Evidence, group: str) -> pd.DataFrame:
    """Epoch from which on the exact match on test sums is 0.99."""
    learned = partial(dynamics.first_at, level=dynamics.LEARNT_ACCURACY)
    return dynamics.of_curves(evidence.curves(group), "test_whole", learned)


def on_the_way(evidence: Evidence, group: str) -> pd.DataFrame:
    """Number of the snapshots of a run's training, and what each of `PARTS` does at each of them.

    Fields are lists by snapshot, with the end of the training as the last one: its own `epoch`, the
    `head` that moves the carry in the most pairs, and the value of each of `PARTS`. They are empty
    for a run without snapshots.
    """
    rows: dict[int, dict[str, Any]] = {}
    for run in evidence.group(group).numbers:
        table = snapshots(evidence.group(group), run)
        lists = {str(name): column.tolist() for name, column in table.items()}
        rows[run] = {"value": max(0, len(table) - 1), **lists}
    return per_run(rows)


def snapshots(loaded: catalogue.GroupRuns, run: int) -> pd.DataFrame:
    """Return the values of `PARTS` in a run at each of its snapshots and at the end, by `epoch`.

    There is no row if the run has no snapshots.
    """
    if loaded.source == "ours":  # other runs of the group may have no snapshots
        loaded = catalogue.load(loaded.group, recipe=loaded.record["recipe"], runs=[run])
    if not loaded.snapshots:
        return pd.DataFrame(columns=["epoch", "head", *PARTS])
    models = {}
    for epoch in (*loaded.snapshots, None):
        models[loaded.own_epoch(epoch)] = loaded.model(run, epoch)

    swaps = []
    for epoch, model in models.items():
        swaps.append(interchange.carry_swaps(model, typology.COUNT).assign(run=epoch))
    table = typology.who_decides(pd.concat(swaps)).reindex([*models])
    head_at_the_end = int(table["head"].iloc[-1])
    accuracies = {}
    for epoch, model in models.items():
        adder = typology.abstraction(model, head_at_the_end, "digits and answer", typology.COUNT)
        accuracies[epoch] = adder.set_index("variable").accuracy
    table = table.join(pd.DataFrame(accuracies).T)
    return table.rename_axis("epoch").reset_index()[["epoch", "head", *PARTS]]


def settled(way: pd.DataFrame) -> pd.DataFrame:
    """Return the epoch from which on each of `PARTS` does what it does at the end, by run.

    It is NaN for a part that does nothing at the end of `way`, the rows of `snapshots`. One head
    does what it does at the end only if it is the same head.
    """
    epochs = {}
    for run, rows_of_run in way.sort_values("epoch").set_index("epoch").groupby("run"):
        acts = rows_of_run[PARTS] >= typology.DECIDES
        acts["one head"] &= rows_of_run["head"] == rows_of_run["head"].iloc[-1]
        acts_from_here_on = acts[::-1].cummin()[::-1]
        epochs[run] = acts_from_here_on.idxmax().where(acts_from_here_on.iloc[-1])
    return pd.DataFrame.from_dict(epochs, orient="index")
