"""Sums in the residual stream: principal planes, and what is separated in them (Sec. 4.1).

A finding is a plain function of a run's model; the rule next to it decides whether the run shows
what the paper claims.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from carry_core import carries, measure, sums
from carry_core.interventions import INTACT, Ablation
from carry_core.model import ModelConfig, Transformer
from carry_core.sums import Numbers
from carry_paper.findings.bars import Bar, at_least, below
from carry_paper.findings.base import Fields
from carry_paper.findings.heads import column_mass, mean_attention
from carry_paper.findings.survey import random_sums

Points = Float[Tensor, "sums axis"]  # on principal axes, centred
Side = Bool[Tensor, " sums"]

AXES = 6  # principal axes of each stream; figures show the leading two
AFTER = {"attention": "resid_mid", "MLP": "resid_post"}  # hook points of the stream in a layer


# ---- planes (Fig. 4)


class Column(NamedTuple):
    """A digit column of the sums, with the layer and the position at which its stream is read.

    Attributes:
        layer: The layer; the stream is read after its attention and after its MLP.
        position: The position in the sequence.
        column: The column, counted from 0 at the left.
    """

    layer: int
    position: int
    column: int


@dataclass(frozen=True)
class Plane:
    """The stream at one layer and position, on its leading principal axes: a panel of Fig. 4."""

    layer: int
    after: str  # "attention" (`resid_mid`) or "MLP" (`resid_post`)
    position: int  # in the sequence
    points: Points  # the sums on the axes
    share: tuple[float, ...]  # each axis' share of the variance
    digit: Int[Tensor, " sums"]  # as in `ColumnLabels`
    split: Side  # as in `ColumnLabels`


def principal_axes(
    x: Float[Tensor, "sums d_model"], labels: Sequence[Tensor]
) -> tuple[Points, tuple[float, ...]]:
    """Return coordinates on the leading principal axes of x, and each axis' share of the variance.

    The sign of an axis is arbitrary, so each is oriented such that the label with which it
    correlates most grows along it.
    """
    from sklearn.decomposition import PCA

    pca = PCA(AXES, svd_solver="covariance_eigh")
    points = torch.from_numpy(pca.fit_transform(x.double().numpy()))
    varied = [label.double() for label in labels if label.min() != label.max()]
    for axis in range(AXES):
        correlations = []
        for label in varied:
            pair = torch.stack([points[:, axis], label])
            correlations.append(torch.corrcoef(pair)[0, 1].item())
        if correlations and max(correlations, key=abs) < 0:
            points[:, axis] *= -1
    return points.float(), tuple(pca.explained_variance_ratio_.tolist())


def axis_directions(
    x: Float[Tensor, "sums d_model"], points: Points
) -> Float[Tensor, "axis d_model"]:
    """Return the unit vectors of the principal axes on which x has the coordinates `points`.

    The coordinates are Xv for a centred X, so that Xᵀ(Xv) = λv.
    """
    return nn.functional.normalize((x - x.mean(0)).T @ points, dim=0).T


class ColumnLabels(NamedTuple):
    """Labels of the sums by what a layer computes for a column.

    Attributes:
        digit: The column's digit sum modulo ten; in the last layer, the answer's digit.
        split: True if the digit sum is ten or more; in the last layer, if there is a carry-in.
    """

    digit: Int[Tensor, " sums"]
    split: Side


def digit_sums(a: Numbers, b: Numbers, width: int) -> Int[Tensor, "sums pos"]:
    """Return the sum of the two digits in each column of the sums a + b, from 0 to 18."""
    return sums.digits(a, width) + sums.digits(b, width)


def column_labels(
    config: ModelConfig, a: Numbers, b: Numbers, layer: int, column: int
) -> ColumnLabels:
    """Return labels of the sums a + b by what a layer computes for a column (Sec. 4.1)."""
    digit_sum = digit_sums(a, b, config.width)[:, column]
    if layer < config.layers - 1:
        return ColumnLabels(digit=digit_sum % 10, split=digit_sum >= 10)
    digit = sums.digits(a + b, config.width)[:, column]
    has_carry_in = (digit - digit_sum) % 10 == 1
    return ColumnLabels(digit=digit, split=has_carry_in)


def default_columns(model: Transformer, n_digits: int) -> list[Column]:
    """Return the columns of Fig. 4, or those of Fig. 7 if the model has one layer."""
    config = model.config
    last_layer = config.layers - 1
    digits = range(config.width - n_digits, config.width)
    columns = []
    if last_layer > 0:
        # A decoder's first number does not see the second.
        start = config.width + 1 if config.causal else 0
        columns += [Column(0, start + i, i) for i in digits]
    columns += [Column(last_layer, config.layout.answer[i], i) for i in digits]
    return columns


def journey(
    model: Transformer,
    a: Numbers,
    b: Numbers,
    columns: Sequence[tuple[int, int, int]] | None = None,
) -> list[Plane]:
    """Return the planes of Fig. 4: two for each column, after the attention and after the MLP.

    `columns` have the entries of a `Column`; they are `default_columns` if None.
    """
    config = model.config
    columns = columns or default_columns(model, config.width)
    names = {f"blocks.{layer}.{point}" for layer, *_ in columns for point in AFTER.values()}
    # The last layer is computed only where it is looked at.
    read = sorted({position for layer, position, _ in columns if layer == config.layers - 1})
    streams = measure.activations(model, a, b, sorted(names), read=read or None)
    planes = []
    for layer, position, column in columns:
        digit, split = column_labels(config, a, b, layer, column)
        digit_sum = digit_sums(a, b, config.width)[:, column]
        for after, point in AFTER.items():
            name = f"blocks.{layer}.{point}"
            stream = streams[name][:, config.positions_at(name, read or None).index(position)]
            points, share = principal_axes(stream, [split, digit, digit_sum])
            planes.append(Plane(layer, after, position, points, share, digit, split))
    return planes


# ---- accuracies of probes on the axes

# From this balanced accuracy of a threshold on, an axis separates two kinds of sums.
SEPARATING_ACCURACY = Bar(0.95, perfect=1, chance=0.5)
# The order of the digits is lost if at most this share of it is left. Digits that are renamed at
# random still have some.
ORDER_LEFT = 0.5


def threshold_accuracy(x: Float[Tensor, " sums"], positive: Side) -> float:
    """Return the balanced accuracy of the best threshold on x, in either direction.

    It is 0.5 by chance, 1 if the two sides are separated, and NaN if one of them is empty.
    """
    if not 0 < positive.sum() < len(positive):
        return float("nan")
    test = scipy.stats.ks_2samp(x[positive].numpy(), x[~positive].numpy(), method="asymp")
    return 0.5 + 0.5 * float(test.statistic)


def axis_by_axis(points: Points, positive: Side) -> list[float]:
    """Return `threshold_accuracy` on each axis."""
    return [threshold_accuracy(x, positive) for x in points.unbind(1)]


def plane_accuracy(plane: Plane) -> float:
    """Return the accuracy of the best threshold on a leading axis for `plane.split`."""
    return max(axis_by_axis(plane.points[:, :2], plane.split))


def accuracy_on_all_axes(plane: Plane) -> float:
    """Return the accuracy of the best threshold along Fisher's discriminant in all axes.

    Axes of similar variance mix differently in each sample, so that no single one is meaningful.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    if not 0 < plane.split.sum() < len(plane.split):
        return float("nan")
    x = plane.points.double().numpy()
    fisher = LinearDiscriminantAnalysis(solver="eigen").fit(x, plane.split.numpy())
    along = torch.from_numpy(fisher.decision_function(x))
    return threshold_accuracy(along, plane.split)


def centroid_accuracy(points: Points, labels: Int[Tensor, " sums"]) -> float:
    """Return the balanced accuracy of the nearest centroid on the two leading axes.

    It is 1 if the sums of each label are nearest to their own centroid.
    """
    from sklearn.metrics import balanced_accuracy_score, pairwise_distances_argmin

    x, kinds = points[:, :2].double().numpy(), labels.numpy()
    centroids = pd.DataFrame(x).groupby(kinds).mean()
    nearest = centroids.index[pairwise_distances_argmin(x, centroids)]
    return float(balanced_accuracy_score(kinds, nearest))


def nines_apart(points: Points, digit_sum: Int[Tensor, " sums"]) -> float:
    """Return the share of digit sums of nine that cluster on two axes (Sec. 4.1, Fig. 4).

    These lie nearer to their own centroid than to that of smaller or of larger digit sums.
    """
    from sklearn.neighbors import NearestCentroid

    side = np.sign(digit_sum.numpy() - 9)
    plane = points[:, :2]
    nearest = NearestCentroid().fit(plane, side).predict(plane)
    return float((nearest[side == 0] == 0).mean())


# ---- the order of digits (App. B)

ORDERED = 5_000  # random sums on which the order of digits is measured


def digit_order(points: Points, digit: Int[Tensor, " sums"], side: Side) -> float:
    """Return the absolute Spearman correlation of digit and axis, on the better leading axis.

    It is the mean over the two sides, of the sums on each; NaN if the digits of both sides are all
    equal (App. B).
    """
    sides = [mask for mask in (side, ~side) if digit[mask].unique().numel() > 1]
    if not sides:
        return float("nan")
    n_sums = [int(mask.sum()) for mask in sides]
    orders = []
    for x in points[:, :2].unbind(1):
        correlations = [
            abs(scipy.stats.spearmanr(x[mask], digit[mask]).statistic) for mask in sides
        ]
        orders.append(np.average(correlations, weights=n_sums))
    return float(max(orders))


def digit_orders(
    planes: Sequence[Plane], carry_out: Bool[Tensor, "sums pos"]
) -> dict[str, list[float]]:
    """Return `digit_order` in the last layer's planes, by part, with a value for each column.

    The two sides of a column are the sums with and without its `carry_out`.
    """
    last_layer = max(plane.layer for plane in planes)
    orders: dict[str, list[float]] = {after: [] for after in AFTER}
    for plane in planes:
        if plane.layer == last_layer:
            column = len(orders[plane.after])
            order = digit_order(plane.points, plane.digit, carry_out[:, column])
            orders[plane.after].append(order)
    return orders


def orders_of_runs(
    models: Iterable[tuple[int, Transformer]], a: Numbers, b: Numbers
) -> pd.DataFrame:
    """Return `digit_orders` of each run, by part and position, and their mean (App. B).

    All runs are measured on the same sums.
    """
    rows = {}
    for run, model in models:
        names = [name.replace("pos", "pos. ") for name in model.config.layout.position_names]
        carry_out = carries.symbols(a, b, model.config.width) > 0
        row = {}
        for part, by_column in digit_orders(journey(model, a, b), carry_out).items():
            for name, order in zip(names, by_column, strict=True):
                row[f"after {part}", name] = order
        rows[run] = row
    frame = pd.DataFrame(rows).T
    frame["mean", ""] = frame.mean(axis=1)
    return frame


def order_of_digits(model: Transformer) -> Fields:
    """Mean Spearman correlation of digits and the better leading axis (App. B, C.1)."""
    a, b = random_sums(3, ORDERED)
    orders = digit_orders(journey(model, a, b), carries.symbols(a, b, 3) > 0)
    return {"value": float(np.mean(list(orders.values())))}


def order_is_lost(measured: Fields, *, share_left: float = ORDER_LEFT) -> bool:
    """Return True if little of the order is left that digits have in runs with weight decay."""
    return bool(measured["value"] <= share_left * np.mean(measured["runs_with_decay"]))


# ---- leading axes (Sec. 4.1)


def axes_of(
    model: Transformer, name: str, labels: Mapping[int, Side], ablation: Ablation = INTACT
) -> dict[int, list[float]]:
    """Return the accuracy of a threshold on each leading axis of a stream, on random sums.

    `labels` has the two sides that the threshold is to separate, by position of the stream.
    """
    read = list(labels)
    stream = measure.activations(model, *random_sums(), [name], ablation, read)[name]
    accuracies = {}
    for position, label in labels.items():
        place = model.config.positions_at(name, read).index(position)
        points, _ = principal_axes(stream[:, place], [])
        accuracies[position] = axis_by_axis(points, label)
    return accuracies


def carry_in_labels(model: Transformer) -> dict[int, Side]:
    """Return a mask of the random sums with a carry-in, at both positions that can have one."""
    carry_in = carries.carry_in(3)[carries.classify(*random_sums())]  # (sums, pos)
    return {position: carry_in[:, i] for i, position in enumerate(model.config.layout.answer[:2])}


def leading(axes: Mapping[int, Sequence[float]]) -> Fields:
    """Return the accuracy of the leading axis at each position, and the best axis there."""
    fields: dict[str, float] = {"value": min(scores[0] for scores in axes.values())}
    for position, scores in axes.items():
        fields[f"axis_1_at_{position}"] = scores[0]
    for position, scores in axes.items():
        fields[f"best_axis_at_{position}"] = 1 + scores.index(max(scores))
    for position, scores in axes.items():
        fields[f"its_accuracy_at_{position}"] = max(scores)
    return fields


def leads(measured: Fields, *, accuracy: float = SEPARATING_ACCURACY) -> bool:
    """Return True if the axis of `leading` separates at each position, better than any other."""
    best = [measured[name] for name in measured if name.startswith("best_axis_at_")]
    return bool(measured["value"] >= accuracy) and all(axis == 1 for axis in best)


def digit_sum_by_axis(model: Transformer, low: int, high: int) -> dict[int, list[float]]:
    """Return each axis' accuracy for a digit sum from `low` to `high`, after layer 0.

    It is read at the tens and units of a.
    """
    digit_sum = digit_sums(*random_sums(), 3)
    is_between = (low <= digit_sum) & (digit_sum <= high)
    labels = {position: is_between[:, position] for position in (1, 2)}
    return axes_of(model, "blocks.0.resid_post", labels)


def layer0_tens(model: Transformer) -> Fields:
    """Accuracy of the leading axis after layer 0, lower of tens and units of a (Sec. 4.1)."""
    return leading(digit_sum_by_axis(model, 10, 18))


def better_axis(axes: Mapping[int, Sequence[float]]) -> Fields:
    """Return the accuracy of the better of two leading axes, the lowest over positions.

    Axes of similar variance can change places, so that the paper's first is the second.
    """
    fields: dict[str, float] = {"value": min(max(scores[:2]) for scores in axes.values())}
    for position, scores in axes.items():
        fields[f"axis_1_at_{position}"] = scores[0]
        fields[f"axis_2_at_{position}"] = scores[1]
    return fields


def layer0_tens_either(model: Transformer) -> Fields:
    """Accuracy of the better leading axis after layer 0, lower of tens and units (Sec. 4.1)."""
    return better_axis(digit_sum_by_axis(model, 10, 18))


def layer0_nine(model: Transformer) -> Fields:
    """Accuracy of the second axis for nine after layer 0, lower of tens and units (Sec. 4.1)."""
    axes = digit_sum_by_axis(model, 9, 9)
    return {**better_axis(axes), "value": min(scores[1] for scores in axes.values())}


def layer1_carry(model: Transformer) -> Fields:
    """Accuracy of the leading axis after the last attention, lower of 7 and 8 (Sec. 4.1)."""
    return leading(axes_of(model, "blocks.1.resid_mid", carry_in_labels(model)))


carry_leads_at_7 = at_least(SEPARATING_ACCURACY, "axis_1_at_7")
carry_leads_at_8 = at_least(SEPARATING_ACCURACY, "axis_1_at_8")


def carry_on_some_axis(model: Transformer) -> Fields:
    """Accuracy of the best of six axes after the last attention, lower of 7 and 8 (Sec. 4.1)."""
    axes = axes_of(model, "blocks.1.resid_mid", carry_in_labels(model))
    return {**leading(axes), "value": min(max(scores) for scores in axes.values())}


def carry_in_layer0(model: Transformer) -> Fields:
    """Accuracy of the best of six axes after layer 0, the lower of positions 7 and 8 (App. C.2)."""
    at_answer = carry_in_labels(model)
    # The first number's digits of the same columns, and the answer.
    at_digits = dict(enumerate(at_answer.values()))
    axes = axes_of(model, "blocks.0.resid_post", at_digits | at_answer)
    best = {position: max(scores) for position, scores in axes.items()}
    value = min(best[position] for position in at_answer)
    attention = mean_attention(model)[0]  # (head, query, key)
    to_the_right = column_mass(attention, model.config.layout, shift=1)[:, :2]
    return {
        "value": value,
        "attention_one_to_the_right_from_7_8": to_the_right.amax(0).tolist(),
        **{f"best_axis_at_{position}": accuracy for position, accuracy in best.items()},
    }


def decoder_tens(model: Transformer) -> Fields:
    """Accuracy of ten or more on one of two axes after layer 0, lower of b's last two (App. D)."""
    # The leading digits of a three-digit sum never add up to ten.
    columns = [column for column in default_columns(model, 2) if column.layer == 0]
    planes = journey(model, *random_sums(), columns)
    value = min(plane_accuracy(plane) for plane in planes if plane.after == "MLP")
    return {"value": value}


# Of findings whose value is the accuracy of a threshold.
separates = at_least(SEPARATING_ACCURACY)
separates_nowhere = below(SEPARATING_ACCURACY)


def one_layer_no_carry(model: Transformer) -> Fields:
    """Balanced accuracy of the leading axis at 7 and 8, the highest (App. B, Fig. 7)."""
    labels = carry_in_labels(model)
    leading_axes, all_axes = {}, []
    for after, point in AFTER.items():
        by_position = axes_of(model, f"blocks.0.{point}", labels).values()
        leading_axes[f"at_7_8_after_{after}"] = [scores[0] for scores in by_position]
        all_axes += [max(scores) for scores in by_position]
    value = max(max(scores) for scores in leading_axes.values())
    return {
        "value": value,
        **leading_axes,
        "best_of_six_axes": max(all_axes),
    }


def outcome_pockets(model: Transformer) -> Fields:
    """Lower nearest-centroid accuracy of the digit at 7 and 8 after the MLP (Sec. 4.1)."""
    a, b = random_sums()
    carry_class = carries.classify(a, b)
    columns = [Column(1, model.config.layout.answer[i], i) for i in (0, 1)]
    accuracies: dict[str, list[float]] = {after: [] for after in AFTER}  # of digit, class, digit, …
    for plane in journey(model, a, b, columns):
        for labels in (plane.digit, carry_class):
            accuracies[plane.after].append(centroid_accuracy(plane.points, labels))
    return {
        "value": min(accuracies["MLP"][::2]),
        "digit_and_class_before_the_MLP": accuracies["attention"],
        "digit_and_class_after_it": accuracies["MLP"],
    }


def pockets_are_outcomes(measured: Fields) -> bool:
    """Return True if in `outcome_pockets` the digit beats the class after the MLP, at 7 and 8."""
    digit_at_7, class_at_7, digit_at_8, class_at_8 = measured["digit_and_class_after_it"]
    return bool(digit_at_7 > class_at_7 and digit_at_8 > class_at_8)


def pca_without_decision_head(model: Transformer) -> Fields:
    """Best of six axes at 8 without the decision head; also without the other (Sec. 4.1, note)."""
    position = model.config.layout.answer[1]
    labels = {position: carry_in_labels(model)[position]}
    best = []
    for head in measure.last_heads(model):
        axes = axes_of(model, "blocks.1.resid_mid", labels, head)
        best.append(max(axes[position]))
    without_decision_head = best.pop(measure.decision_head(model))
    return {"value": without_decision_head, "without_the_other_head": best[0]}


def only_the_other_head_leaves_it(
    measured: Fields, *, accuracy: float = SEPARATING_ACCURACY
) -> bool:
    """Return True if an axis separates, but only while the decision head is intact."""
    without_other_head = measured["without_the_other_head"]
    return bool(measured["value"] < accuracy <= without_other_head)
