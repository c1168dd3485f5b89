"""Where sums lie in the residual stream: principal planes with fixed signs, and what is apart in them (Sec. 4.1)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import ks_2samp, spearmanr
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import balanced_accuracy_score, pairwise_distances_argmin
from sklearn.neighbors import NearestCentroid
from torch import Tensor

from carry_core import carries, measure, sums
from carry_core.interventions import INTACT, Ablation
from carry_core.model import Transformer
from carry_core.sums import Numbers
from carry_paper.findings.base import N1, N1_W0, Fields, per_run
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.heads import column_mass, mean_attention
from carry_paper.findings.survey import random_sums

Points = Float[Tensor, "sums axis"]  # on principal axes, centred
Side = Bool[Tensor, " sums"]
Columns = Sequence[tuple[int, int, int]]  # layer, position in the sequence, digit column
AXES = 6  # kept of each stream; figures show the leading two
# balanced accuracy of a threshold from which an axis separates two kinds of sums
SEPARATING_ACCURACY = 0.95
ORDERED = 5_000  # random sums whose digits' order is looked at


@dataclass(frozen=True)
class Plane:
    """The stream at one layer and position, on its leading principal axes: a panel of Fig. 4."""

    layer: int
    after: str  # "attention" (`resid_mid`) or "MLP" (`resid_post`)
    position: int  # in the sequence
    points: Points
    share: tuple[float, ...]  # of the variance, for each axis
    # digit sum modulo ten without a carry; in the last layer the answer's digit
    digit: Int[Tensor, " sums"]
    # what the layer decides: ten or more; in the last layer whether there is a carry-in
    split: Side


def principal_axes(
    x: Float[Tensor, "sums d_model"], labels: Sequence[Tensor]
) -> tuple[Points, tuple[float, ...]]:
    """Coordinates on the leading principal axes of the centred `x`, and each axis' share of the variance.

    An axis has no sign of its own: each is turned so that the label it is most correlated with
    grows along it.
    """
    pca = PCA(AXES, svd_solver="covariance_eigh")
    points = torch.from_numpy(pca.fit_transform(x.double().numpy()))
    varied = [label.double() for label in labels if label.min() != label.max()]
    for i in range(AXES):
        found = [
            torch.corrcoef(torch.stack([points[:, i], label]))[0, 1].item() for label in varied
        ]
        if found and max(found, key=abs) < 0:
            points[:, i] *= -1
    return points.float(), tuple(pca.explained_variance_ratio_.tolist())


def default_columns(model: Transformer, n_digits: int) -> list[tuple[int, int, int]]:
    """The columns of Fig. 4; those of Fig. 7 if there is one layer only."""
    config, last = model.config, model.config.layers - 1
    digits = range(config.width - n_digits, config.width)
    # a decoder's first number does not see the second
    start = config.width + 1 if config.causal else 0
    first = [(0, start + i, i) for i in digits] if last else []
    return first + [(last, config.layout.answer[i], i) for i in digits]


def journey(
    model: Transformer, a: Numbers, b: Numbers, columns: Columns | None = None
) -> list[Plane]:
    """The planes of Fig. 4: for each of the columns (`default_columns` if None), after the attention and the MLP."""
    config, columns = model.config, columns or default_columns(model, model.config.width)
    answer, total = (
        sums.digits(a + b, config.width),
        sums.digits(a, config.width) + sums.digits(b, config.width),
    )
    sites = {"attention": "resid_mid", "MLP": "resid_post"}
    names = {f"blocks.{layer}.{site}" for layer, *_ in columns for site in sites.values()}
    streams, planes = measure.activations(model, a, b, sorted(names)), []
    for layer, position, column in columns:
        digit_sum, digit = total[:, column], answer[:, column]
        split = (digit - digit_sum) % 10 == 1  # whether there is a carry-in
        if layer < config.layers - 1:
            split, digit = digit_sum >= 10, digit_sum % 10
        for after, site in sites.items():
            axes = principal_axes(
                streams[f"blocks.{layer}.{site}"][:, position], [split, digit, digit_sum]
            )
            planes.append(Plane(layer, after, position, *axes, digit, split))
    return planes


def threshold_accuracy(x: Float[Tensor, " sums"], positive: Side) -> float:
    """Balanced accuracy of the best threshold on `x`: 0.5 by chance, 1 if the sides are apart, NaN if one is empty."""
    if not 0 < positive.sum() < len(positive):
        return float("nan")
    return 0.5 + 0.5 * float(
        ks_2samp(x[positive].numpy(), x[~positive].numpy(), method="asymp").statistic
    )


def axis_by_axis(points: Points, positive: Side) -> list[float]:
    """`threshold_accuracy` on each axis."""
    return [threshold_accuracy(x, positive) for x in points.unbind(1)]


def plane_accuracy(plane: Plane) -> float:
    """How well one threshold on one of the two leading axes tells the sides of `plane.split` apart."""
    return max(axis_by_axis(plane.points[:, :2], plane.split))


def accuracy_on_all_axes(plane: Plane) -> float:
    """The same along Fisher's linear discriminant in all axes: single ones of like variance mix from draw to draw."""
    if not 0 < plane.split.sum() < len(plane.split):
        return float("nan")
    x = plane.points.double().numpy()
    along = (
        LinearDiscriminantAnalysis(solver="eigen").fit(x, plane.split.numpy()).decision_function(x)
    )
    return threshold_accuracy(torch.from_numpy(along), plane.split)


def centroid_accuracy(points: Points, labels: Int[Tensor, " sums"]) -> float:
    """Balanced accuracy of the nearest centroid on the two leading axes: 1 where each label has a pocket."""
    x, kinds = points[:, :2].double().numpy(), labels.numpy()
    centres = pd.DataFrame(x).groupby(kinds).mean()
    return float(
        balanced_accuracy_score(kinds, centres.index[pairwise_distances_argmin(x, centres)])
    )


def digit_order(points: Points, digit: Int[Tensor, " sums"], side: Side) -> float:
    """Size of Spearman's correlation of digit and better axis, mean over both sides; NaN if all are alike (App. B)."""
    sides = [which for which in (side, ~side) if digit[which].unique().numel() > 1]
    if not sides:
        return float("nan")
    orders = [
        [abs(spearmanr(x[which], digit[which]).statistic) for which in sides]
        for x in points[:, :2].unbind(1)
    ]
    return float(np.average(orders, axis=1, weights=[int(which.sum()) for which in sides]).max())


def digit_orders(
    planes: Sequence[Plane], carry_out: Bool[Tensor, "sums pos"]
) -> dict[str, list[float]]:
    """`digit_order` in the last layer's planes by part, on either side of each column's `carry_out` by itself."""
    last = planes[-2 * carry_out.shape[1] :]
    orders = [
        digit_order(plane.points, plane.digit, carry_out[:, i // 2]) for i, plane in enumerate(last)
    ]
    return {"attention": orders[::2], "MLP": orders[1::2]}


def orders_of_runs(
    models: Iterable[tuple[int, Transformer]], a: Numbers, b: Numbers
) -> pd.DataFrame:
    """`digit_orders` of each run on the same sums, by part and position, and their mean (App. B)."""
    rows = {}
    for run, model in models:
        names = [name.replace("pos", "pos. ") for name in model.config.layout.position_names]
        orders = digit_orders(journey(model, a, b), carries.symbols(a, b, model.config.width) > 0)
        rows[run] = {
            (f"after {part}", n): x
            for part in orders
            for n, x in zip(names, orders[part], strict=True)
        }
    frame = pd.DataFrame(rows).T
    frame["mean", ""] = frame.mean(axis=1)
    return frame


def leading_axis_separates(scores: Iterable[Sequence[float]]) -> bool:
    """Whether, of how well a threshold on each axis tells, the first is enough and best at each position (Sec. 4.1)."""
    return all(axes[0] >= SEPARATING_ACCURACY and axes[0] == max(axes) for axes in scores)


def axes_of(
    model: Transformer, name: str, labels: Mapping[int, Side], ablation: Ablation = INTACT
) -> dict[int, list[float]]:
    """By position of a stream, how well a threshold on each leading axis tells its label, on random sums."""
    stream = measure.activations(model, *random_sums(), [name], ablation)[name]
    return {
        i: axis_by_axis(principal_axes(stream[:, i], [])[0], label) for i, label in labels.items()
    }


def carry_in_labels(model: Transformer) -> dict[int, Side]:
    """Whether there is a carry-in, at the two answer positions where one can be."""
    carry_in = carries.carry_in(3)[carries.classify(*random_sums())]
    return {position: carry_in[:, i] for i, position in enumerate(model.config.layout.answer[:2])}


def leading(axes: Mapping[int, Sequence[float]]) -> Fields:
    """How well the leading axis separates at each position, and the axis that does so best."""
    return {
        "value": min(scores[0] for scores in axes.values()),
        **{f"axis_1_at_{position}": scores[0] for position, scores in axes.items()},
        **{
            f"best_axis_at_{position}": 1 + scores.index(max(scores))
            for position, scores in axes.items()
        },
        **{f"its_accuracy_at_{position}": max(scores) for position, scores in axes.items()},
    }


def leads(row: Fields) -> bool:
    """Tell whether the leading axis separates, and does so best, at each position, from the row of `leading`."""
    best = [row[name] for name in row if name.startswith("best_axis_at_")]
    return bool(row["value"] >= SEPARATING_ACCURACY) and all(axis == 1 for axis in best)


def layer0_tens(model: Transformer) -> Fields:
    """Balanced accuracy of the leading axis after layer 0, lowest of tens and units of a (Sec. 4.1, Fig. 4)."""
    a, b = random_sums()
    big = sums.digits(a, 3) + sums.digits(b, 3) >= 10
    return leading(axes_of(model, "blocks.0.resid_post", {i: big[:, i] for i in (1, 2)}))


def layer1_carry(model: Transformer) -> Fields:
    """Balanced accuracy of the leading axis after the last attention, lowest of 7 and 8 (Sec. 4.1, Fig. 4)."""
    return leading(axes_of(model, "blocks.1.resid_mid", carry_in_labels(model)))


def decoder_tens(model: Transformer) -> Fields:
    """Balanced accuracy of ten or more after layer 0, on one of two axes, lower of b's last two (App. D, Fig. 16)."""
    # the leading digits make no ten
    value = min(map(plane_accuracy, journey(model, *random_sums())[3:6:2]))
    return {"value": value, "shows": value >= SEPARATING_ACCURACY}


def one_layer_no_carry(model: Transformer) -> Fields:
    """Balanced accuracy of the leading axis at 7 and 8, the highest (App. B, Fig. 7)."""
    names, labels = {"attention": "resid_mid", "MLP": "resid_post"}, carry_in_labels(model)
    by_part = [list(axes_of(model, f"blocks.0.{name}", labels).values()) for name in names.values()]
    scores = np.array(by_part)  # [part, position, axis]
    first = float(scores[..., 0].max())
    after = {
        f"at_7_8_after_{name}": x.tolist() for name, x in zip(names, scores[..., 0], strict=True)
    }
    return {
        "value": first,
        "shows": first < SEPARATING_ACCURACY,
        **after,
        "best_of_six_axes": float(scores.max()),
    }


def pockets_are_outcomes(row: Fields) -> bool:
    """Tell whether after the MLP the nearest centroid tells the digit better than the class, at 7 and at 8."""
    digit_at_7, class_at_7, digit_at_8, class_at_8 = row["digit_and_class_after_it"]
    return bool(digit_at_7 > class_at_7 and digit_at_8 > class_at_8)


def outcome_pockets(model: Transformer) -> Fields:
    """Nearest-centroid accuracy for the digit after the MLP, the lower of 7 and 8 (Sec. 4.1)."""
    a, b = random_sums()
    task, answer = carries.classify(a, b), model.config.layout.answer
    planes = journey(model, a, b, [(1, answer[i], i) for i in (0, 1)])
    halves = planes[::2], planes[1::2]  # after the attention, and after the MLP
    before, after = (
        [centroid_accuracy(p.points, x) for p in half for x in (p.digit, task)] for half in halves
    )
    return {
        "value": min(after[::2]),
        "digit_and_class_before_the_MLP": before,
        "digit_and_class_after_it": after,
    }


def only_the_other_head_leaves_it(row: Fields) -> bool:
    """Tell whether an axis separates without the other head, and none does without the decision head."""
    return bool(row["value"] < SEPARATING_ACCURACY <= row["without_the_other_head"])


def pca_without_decision_head(model: Transformer) -> Fields:
    """Best of six axes at 8 without the decision head; beside it without the other one (Sec. 4.1, footnote)."""
    position = model.config.layout.answer[1]
    labels = {position: carry_in_labels(model)[position]}
    best = [
        max(axes_of(model, "blocks.1.resid_mid", labels, head)[position])
        for head in measure.last_heads(model)
    ]
    without, other = best.pop(measure.decision_head(model)), best[0]
    return {"value": without, "without_the_other_head": other}


def carry_in_layer0(model: Transformer) -> Fields:
    """Balanced accuracy of the best of six axes after layer 0, the lower of positions 7 and 8 (App. C.2)."""
    labels, layout = carry_in_labels(model), model.config.layout
    axes = axes_of(model, "blocks.0.resid_post", dict(enumerate(labels.values())) | labels)
    best = {position: max(scores) for position, scores in axes.items()}
    value = min(best[position] for position in labels)
    right = column_mass(mean_attention(model)[0], layout, shift=1)[:, :2]  # attention of layer 0
    return {
        "value": value,
        "shows": value >= SEPARATING_ACCURACY,
        "attention_one_to_the_right_from_7_8": right.amax(0).tolist(),
        **{f"best_axis_at_{position}": x for position, x in best.items()},
    }


def decay_matters_one_layer(evidence: Evidence) -> pd.DataFrame:
    """Mean Spearman correlation of digits and the better leading axis, without decay (App. B, C.1)."""

    def order(run: int, model: Transformer) -> float:
        a, b = random_sums(3, ORDERED)
        return float(
            np.mean(list(digit_orders(journey(model, a, b), carries.symbols(a, b, 3) > 0).values()))
        )

    without, decayed = evidence.each(N1_W0, order), list(evidence.each(N1, order).values())
    rows = {}
    for run, x in without.items():
        rows[run] = {"value": x, "shows": x < min(decayed), "runs_with_decay": decayed}
    return per_run(rows)


def nines_apart(points: Points, digit_sum: Int[Tensor, " sums"]) -> float:
    """Return the share of digit sums of nine that lie by themselves on two axes (Sec. 4.1, Fig. 4).

    They lie nearest to their own centre, not to that of smaller or of larger digit sums.
    """
    side = np.sign(digit_sum.numpy() - 9)
    plane = points[:, :2]
    nearest = NearestCentroid().fit(plane, side).predict(plane)
    return float((nearest[side == 0] == 0).mean())
