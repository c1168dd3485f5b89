"""From the initial weights: does anything that can be measured there tell what a run becomes?

The features, the test and its bar were written down before any was computed (`book/protocol.md`).
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import StratifiedKFold, permutation_test_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from carry_core import measure
from carry_core.model import Transformer
from carry_paper.findings import heads
from carry_paper.findings.survey import random_sums
from carry_train.groups import Group
from carry_train.seeds import Seeds
from carry_train.trainer import initialise

COLUMNS = {"left": -1, "own": 0, "right": 1}  # beside the answer's own column
SUMS = 500  # random ones, over which attention is averaged
FOLDS, PERMUTATIONS = 5, 199


class Prediction(NamedTuple):
    """How well features tell runs of one label from the others.

    Attributes:
        runs: The number of runs.
        labelled: How many of them have the label.
        area: The mean area under the curve over the folds that were not fitted.
        seen: The area below which 95% of the permutations stay.
        p: The share of permutations, with the labels' own order, that reach the area.
    """

    runs: int
    labelled: int
    area: float
    seen: float
    p: float


def initial_model(group: Group, run: int) -> Transformer:
    """Return a run's model with its initial weights, which follow from its number."""
    model = Transformer(group.config)
    model.load_state_dict(initialise(group.config, Seeds().streams(run).weights))
    return model.eval()


@torch.inference_mode()
def features(model: Transformer) -> dict[str, float]:
    """Return what each head attends to on average, and the norm of what it can write.

    The heads of a layer are in the order of their attention to the column right of the answer's.
    """
    config = model.config
    a, b = random_sums(config.width)
    attention = measure.attention(model, a[:SUMS], b[:SUMS])  # [layer, head, query, key]
    values: dict[str, float] = {}
    for layer, of_layer in enumerate(attention):
        of_heads = []
        block = model.blocks[layer]
        values_of = block.v.weight.unflatten(0, (config.heads, config.d_head))  # (head, d_head, in)
        written_by = block.o.weight.unflatten(1, (config.heads, config.d_head))  # (out, head, …)
        for head, pattern in enumerate(of_layer):
            row = {}
            for name, shift in COLUMNS.items():
                row[name] = float(heads.column_mass(pattern, config.layout, shift).nanmean())
            product = written_by[:, head] @ values_of[head]  # (out, in)
            row["norm"] = float(torch.linalg.matrix_norm(product))
            of_heads.append(row)
        of_heads.sort(key=lambda row: row["right"])
        for rank, row in enumerate(of_heads):
            values |= {f"layer {layer}, {rank}, {name}": value for name, value in row.items()}
    return values


def table(group: Group, numbers: Iterable[int]) -> pd.DataFrame:
    """Return the features of runs, a row for each, by number."""
    rows = {run: features(initial_model(group, run)) for run in numbers}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("run")


def predicted(of_runs: pd.DataFrame, labels: NDArray[np.bool_]) -> Prediction | None:
    """Return how well features, a row for each run, tell the runs whose label is True.

    None if fewer than one for each fold have it, or lack it.
    """
    if min(labels.sum(), (~labels).sum()) < FOLDS:
        return None
    area, permuted, p = permutation_test_score(
        make_pipeline(StandardScaler(), RidgeClassifier()),
        of_runs.to_numpy(),
        labels,
        scoring="roc_auc",
        cv=StratifiedKFold(FOLDS, shuffle=True, random_state=0),
        n_permutations=PERMUTATIONS,
        random_state=0,
    )
    seen = float(np.quantile(permuted, 0.95))
    return Prediction(len(labels), int(labels.sum()), float(area), seen, float(p))
