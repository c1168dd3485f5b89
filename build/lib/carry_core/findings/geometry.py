"""Where sums lie in the residual stream: principal planes with fixed signs, and what is apart in them (Sec. 4.1)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import ks_2samp, spearmanr
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from carry_core import carries, measure, sums
from carry_core.findings.base import MAIN, N1, N1_W0, S01, Measurement, all_heads, finding, measurement
from carry_core.findings.heads import column_mass, mean_attention
from carry_core.findings.survey import Evidence, random_sums, ranked_heads
from carry_core.groups import GROUPS
from carry_core.interventions import INTACT, Ablation
from carry_core.model import Transformer

AXES = 6  # kept of each stream; figures show the leading two
CENTROID_ACCURACY = 0.9  # nearest-centroid accuracy from which on the digits are said to have pockets
SEPARATING_ACCURACY = 0.95  # balanced accuracy of a threshold from which an axis separates two kinds of sums
ORDERED = 5_000  # random sums whose digits' order is looked at


@dataclass(frozen=True)
class Plane:
    """The stream at one layer and position, on its leading principal axes: a panel of Fig. 4.

    Attributes:
        layer: which block.
        after: "attention" (`resid_mid`) or "MLP" (`resid_post`).
        position: where in the sequence.
        points: coordinates of each sum, centred.
        share: each axis' share of the variance.
        digit: what colours a sum: its digit sum modulo ten without a carry, in the last layer the answer's digit.
        task: index of its carry class.
        split: what the layer is said to decide there: in the last layer whether a one arrives, before it whether the
            digits add up to ten or more.
    """

    layer: int
    after: str
    position: int
    points: Float[Tensor, "sums axis"]
    share: tuple[float, ...]
    digit: Int[Tensor, " sums"]
    task: Int[Tensor, " sums"]
    split: Bool[Tensor, " sums"]


def principal_axes(
    x: Float[Tensor, "sums d_model"], labels: Sequence[Tensor]
) -> tuple[Float[Tensor, "sums axis"], tuple[float, ...]]:
    """Coordinates on the leading principal axes of the centred `x`, and each axis' share of the variance.

    An axis has no sign of its own: each is turned so that the label it is most correlated with grows along it.

    Args:
        x: a stream at one position.
        labels: numbers for each sum, `[sums]` each; constant ones are ignored.
    """
    pca = PCA(AXES, svd_solver="covariance_eigh")
    points = torch.from_numpy(pca.fit_transform(x.double().numpy()))
    varied = [label.double() for label in labels if label.min() != label.max()]
    for i in range(AXES):
        found = [torch.corrcoef(torch.stack([points[:, i], label]))[0, 1].item() for label in varied]
        if found and max(found, key=abs) < 0:
            points[:, i] *= -1
    return points.float(), tuple(pca.explained_variance_ratio_.tolist())


def default_columns(model: Transformer, n_digits: int) -> list[tuple[int, int, int]]:
    """Layer, position and digit column of each column of Fig. 4; of Fig. 7 if there is one layer only.

    The first layer is looked at where a digit of the first number stands; in a decoder, which does not see the
    second number from there, where the second number's stands.
    """
    config, last = model.config, model.config.layers - 1
    digits = range(config.width - n_digits, config.width)
    start = config.width + 1 if config.causal else 0
    first = [(0, start + i, i) for i in digits] if last else []
    return first + [(last, config.layout.answer[i], i) for i in digits]


def journey(
    model: Transformer,
    a: Int[Tensor, " sums"],
    b: Int[Tensor, " sums"],
    n_digits: int | None = None,
    columns: Sequence[tuple[int, int, int]] | None = None,
) -> list[Plane]:
    """The planes of Fig. 4: for each column, after the attention and after the MLP.

    Args:
        a: first numbers.
        b: second numbers.
        n_digits: digits by which the sums are classed; the model's width if None.
        columns: as `default_columns`, which is what None means.
    """
    config = model.config
    n_digits = config.width if n_digits is None else n_digits
    columns = default_columns(model, n_digits) if columns is None else columns
    total = sums.digits(a, config.width) + sums.digits(b, config.width)
    answer, task = sums.digits(a + b, config.width), carries.classify(a, b, n_digits)
    planes: dict[int, list[Plane]] = {}
    for layer in {layer for layer, _, _ in columns}:
        sites = {"attention": f"blocks.{layer}.resid_mid", "MLP": f"blocks.{layer}.resid_post"}
        found = measure.activations(model, a, b, list(sites.values()))
        for i, (_, position, column) in [(i, c) for i, c in enumerate(columns) if c[0] == layer]:
            arrives = (answer[:, column] - total[:, column]) % 10 == 1
            last = layer == config.layers - 1
            split = arrives if last else total[:, column] >= 10
            digit = answer[:, column] if last else total[:, column] % 10
            for after, site in sites.items():
                points, share = principal_axes(found[site][:, position], [split, digit, total[:, column]])
                planes.setdefault(i, []).append(Plane(layer, after, position, points, share, digit, task, split))
    return [plane for i in range(len(columns)) for plane in planes[i]]


def two_sided(positive: Bool[Tensor, " sums"]) -> bool:
    """Whether some sums lie on either side."""
    return bool(positive.any()) and not bool(positive.all())


def threshold_accuracy(x: Float[Tensor, " sums"], positive: Bool[Tensor, " sums"]) -> float:
    """Balanced accuracy of the best single threshold on `x`: 0.5 by chance, 1 where the two sides are apart.

    NaN if one side is empty.
    """
    if not two_sided(positive):
        return float("nan")
    return 0.5 + 0.5 * float(ks_2samp(x[positive].numpy(), x[~positive].numpy(), method="asymp").statistic)


def axis_by_axis(points: Float[Tensor, "sums axis"], positive: Bool[Tensor, " sums"]) -> list[float]:
    """`threshold_accuracy` on each axis."""
    return [threshold_accuracy(x, positive) for x in points.unbind(1)]


def apart(plane: Plane) -> float:
    """How well one threshold on one of the two leading axes tells the sides of `plane.split` apart."""
    return max(axis_by_axis(plane.points[:, :2], plane.split))


def apart_on_all_axes(plane: Plane) -> float:
    """The same along the best direction in the space of all axes that were kept: Fisher's linear discriminant.

    Axes with nearly the same variance mix from draw to draw; the space that they span does not.
    """
    if not two_sided(plane.split):
        return float("nan")
    x = plane.points.double()
    one, other = x[plane.split], x[~plane.split]
    within = torch.cov(one.T, correction=0) * len(one) + torch.cov(other.T, correction=0) * len(other)
    direction = torch.linalg.solve(within, one.mean(0) - other.mean(0))
    return threshold_accuracy(x @ direction, plane.split)


def decided(planes: Iterable[Plane]) -> list[tuple[list[float], float]]:
    """What is told apart in each plane that has two sides: axis by axis, and along the best direction of all axes."""
    return [(axis_by_axis(p.points, p.split), apart_on_all_axes(p)) for p in planes if two_sided(p.split)]


def pockets(plane: Plane) -> tuple[float, float]:
    """`pocket_accuracy` for the digit and for the class."""
    return pocket_accuracy(plane.points, plane.digit), pocket_accuracy(plane.points, plane.task)


def pocket_accuracy(points: Float[Tensor, "sums axis"], labels: Int[Tensor, " sums"]) -> float:
    """How often a sum's nearest centroid is that of its own label, averaged over labels: 1 where each has a pocket.

    On the two leading axes.
    """
    kinds, index = labels.unique(return_inverse=True)
    points = points[:, :2].double()
    centres = torch.stack([points[index == i].mean(0) for i in range(len(kinds))])
    hit = torch.cdist(points, centres).argmin(1) == index
    return torch.stack([hit[index == i].double().mean() for i in range(len(kinds))]).mean().item()


def neighbour_accuracy(points: Float[Tensor, "sums axis"], labels: Int[Tensor, " sums"]) -> float:
    """How often the sum that lies nearest has the same label, averaged over labels: 1 without overlap (App. B).

    On the two leading axes.
    """
    nearest = NearestNeighbors(n_neighbors=1).fit(points[:, :2].numpy()).kneighbors(return_distance=False)[:, 0]
    hit = labels[torch.from_numpy(nearest)] == labels
    return torch.stack([hit[labels == kind].double().mean() for kind in labels.unique()]).mean().item()


def digit_order(points: Float[Tensor, "sums axis"], digit: Int[Tensor, " sums"], side: Bool[Tensor, " sums"]) -> float:
    """How well the better of the two leading axes puts digits in order: 1 if it does, about 0 by chance (App. B).

    The size of Spearman's correlation between coordinate and digit, on each side by itself, weighted by its sums;
    sides whose digits are all the same say nothing. NaN if there is no other.
    """
    sides = [which for which in (side, ~side) if digit[which].unique().numel() > 1]
    if not sides:
        return float("nan")
    weights = torch.stack([which.double().mean() for which in sides])
    found = torch.tensor(
        [[abs(float(spearmanr(x[which], digit[which]).statistic)) for which in sides] for x in points[:, :2].unbind(1)],
        dtype=torch.float64,
    )
    return float((found @ weights / weights.sum()).max())


def digit_orders(planes: Sequence[Plane], passes: Bool[Tensor, "sums pos"]) -> dict[str, list[float]]:
    """`digit_order` of the answer's digits in the last layer's planes, after the attention and after the MLP.

    Args:
        planes: as `journey` gives them.
        passes: where a column passes a one to its left: digits are in order on either side of that by themselves.
    """
    columns = range(passes.shape[1])
    last = planes[-2 * len(columns) :]
    return {
        plane.after: [digit_order(p.points, p.digit, passes[:, i]) for i, p in zip(columns, last[half::2], strict=True)]
        for half, plane in enumerate(last[:2])
    }


def orders_of_runs(
    models: Iterable[tuple[int, Transformer]], a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], n_digits: int
) -> dict[int, dict[str, list[float]]]:
    """`digit_orders` of each run on the same sums, a one being passed on where a column's symbol is not 0 (App. B)."""
    passes = carries.symbols(a, b, n_digits) > 0
    return {run: digit_orders(journey(model, a, b, n_digits), passes) for run, model in models}


def mean_order(orders: Mapping[str, Sequence[float]]) -> float:
    """The mean over positions and over attention and MLP of a run's `digit_orders`."""
    return float(torch.tensor(list(orders.values()), dtype=torch.float64).mean())


# ---------------------------------------------------------------- claims about axes (Sec. 4.1, App. B, C)


def leading_axis_separates(scores: Iterable[Sequence[float]]) -> bool:
    """Whether the leading axis separates at each position, and is the one that does so best.

    For `finding/layer0_tens` and `layer1_carry`: Sec. 4.1.

    Args:
        scores: at each position, how well a threshold on each axis tells.
    """
    return all(axes[0] >= SEPARATING_ACCURACY and axes[0] == max(axes) for axes in scores)


def by_outcome(accuracies: Iterable[tuple[float, float]]) -> bool:
    """Whether sums lie by their digit more than by their class, at each position (`finding/outcome_pockets`): Sec. 4.1.

    Args:
        accuracies: `pocket_accuracy` for the digit and for the class.
    """
    return all(digit > task for digit, task in accuracies)


def loses_order(order: float, decayed: Iterable[float]) -> bool:
    """Whether the digits of a run are less in order than those of every run with weight decay (App. B, C.1)."""
    return order < min(decayed)


def axes_of(
    model: Transformer, site: str, labels: Mapping[int, Bool[Tensor, " sums"]], ablation: Ablation = INTACT
) -> dict[int, list[float]]:
    """By position of a site, how well a threshold on each leading axis tells its label, on random sums."""
    found = measure.activations(model, *random_sums(), [site], ablation)[site]
    return {
        position: axis_by_axis(principal_axes(found[:, position], [])[0], label) for position, label in labels.items()
    }


def arriving(model: Transformer) -> dict[int, Bool[Tensor, " sums"]]:
    """Whether a one arrives, at the two answer positions where it can."""
    arrives = carries.carry_in(3)[carries.classify(*random_sums())]
    return {position: arrives[:, i] for i, position in enumerate(model.config.layout.answer[:2])}


def leading(found: Mapping[int, Mapping[int, Sequence[float]]], where: str) -> Measurement:
    """Whether the leading axis separates at each position, and is the one that does so best."""
    rows = {
        run: {
            "value": min(scores[0] for scores in axes.values()),
            "shows": leading_axis_separates(axes.values()),
            **{f"axis_1_at_{position}": scores[0] for position, scores in axes.items()},
            **{f"best_axis_at_{position}": 1 + scores.index(max(scores)) for position, scores in axes.items()},
            **{f"its_accuracy_at_{position}": max(scores) for position, scores in axes.items()},
        }
        for run, axes in found.items()
    }
    return measurement(rows, f"Balanced accuracy of the leading axis, lowest position, {where}.")


@finding("layer0_tens", MAIN)
def layer0_tens(evidence: Evidence) -> Measurement:
    """Sec. 4.1, Fig. 4: digit sums below and above ten, at the tens and units of a."""
    a, b = random_sums()
    big = sums.digits(a, 3) + sums.digits(b, 3) >= 10
    labels = {i: big[:, i] for i in (1, 2)}
    return leading(evidence.each(MAIN, lambda run, m: axes_of(m, "blocks.0.resid_post", labels)), "after layer 0")


@finding("layer1_carry", MAIN)
def layer1_carry(evidence: Evidence) -> Measurement:
    """Sec. 4.1, Fig. 4: whether a one is needed."""
    found = evidence.each(MAIN, lambda run, m: axes_of(m, "blocks.1.resid_mid", arriving(m)))
    return leading(found, "after the last attention")


@finding("one_layer_no_carry", N1)
def one_layer_no_carry(evidence: Evidence) -> Measurement:
    """App. B, Fig. 7: whether a one is needed is never what the leading axis of a one-layer run tells."""
    sites = {"attention": "blocks.0.resid_mid", "MLP": "blocks.0.resid_post"}
    by_site = lambda run, m: {after: axes_of(m, site, arriving(m)) for after, site in sites.items()}  # noqa: E731
    rows = {}
    for run, found in evidence.each(N1, by_site).items():
        firsts = {after: [scores[0] for scores in axes.values()] for after, axes in found.items()}
        value = max(x for scores in firsts.values() for x in scores)
        best = max(max(scores) for axes in found.values() for scores in axes.values())
        after = {f"at_7_8_after_{name}": scores for name, scores in firsts.items()}
        rows[run] = {"value": value, "shows": value < SEPARATING_ACCURACY, **after, "best_of_six_axes": best}
    return measurement(rows, "Balanced accuracy of the leading axis at 7 and 8, the highest.")


@finding("outcome_pockets", MAIN)
def outcome_pockets(evidence: Evidence) -> Measurement:
    """Sec. 4.1: after the final MLP sums sit by outcome, not by class."""
    a, b = random_sums()
    answer, task = sums.digits(a + b, 3), carries.classify(a, b)

    def accuracies(run: int, model: Transformer) -> dict[str, list[tuple[float, float]]]:
        """Nearest-centroid accuracy for the digit and for the class, at 7 and 8, before and after the MLP."""
        found: dict[str, list[tuple[float, float]]] = {}
        for name, stream in measure.activations(model, a, b, ["blocks.1.resid_mid", "blocks.1.resid_post"]).items():
            for i, position in enumerate(model.config.layout.answer[:2]):
                points, _ = principal_axes(stream[:, position], [])
                pair = pocket_accuracy(points, answer[:, i]), pocket_accuracy(points, task)
                found.setdefault(name, []).append(pair)
        return found

    rows = {}
    for run, (before, after) in ((run, found.values()) for run, found in evidence.each(MAIN, accuracies).items()):
        rows[run] = {
            "value": min(digit for digit, _ in after),
            "shows": by_outcome(after),
            "digit_and_class_before_the_MLP": [x for pair in before for x in pair],
            "digit_and_class_after_it": [x for pair in after for x in pair],
        }
    return measurement(rows, "Nearest-centroid accuracy for the digit after the MLP, the lower of 7 and 8.")


@finding("pca_without_decision_head", MAIN, need=all_heads(MAIN))
def pca_without_decision_head(evidence: Evidence) -> Measurement:
    """Sec. 4.1, footnote: position 8 with either head of the last layer gone."""
    surveys = evidence.surveys(MAIN)

    def best(run: int, model: Transformer) -> list[float]:
        labels = {model.config.layout.answer[1]: arriving(model)[model.config.layout.answer[1]]}
        ranked, site = ranked_heads(surveys[run], MAIN), "blocks.1.resid_mid"
        return [max(max(s) for s in axes_of(model, site, labels, head).values()) for head in (ranked[0], ranked[-1])]

    found = evidence.each(MAIN, best)
    rows = {
        run: {"value": without, "shows": without < SEPARATING_ACCURACY <= other, "without_the_other_head": other}
        for run, (without, other) in found.items()
    }
    return measurement(rows, "Best of six axes at 8 without the decision head.")


@finding("carry_in_layer0", S01)
def carry_in_layer0(evidence: Evidence) -> Measurement:
    """App. C.2: whether layer 0 already knows that a one arrives, and looks where it comes from."""

    def axes(run: int, model: Transformer) -> dict[int, list[float]]:
        labels = arriving(model)
        at_digits = dict(zip(range(2), labels.values(), strict=True))
        return axes_of(model, "blocks.0.resid_post", at_digits | labels)

    patterns, answer = evidence.each(S01, mean_attention), GROUPS[S01].config.layout.answer[:2]
    rows = {}
    for run, scores in evidence.each(S01, axes).items():
        best = {position: max(found) for position, found in scores.items()}
        mass = column_mass(patterns[run][0], GROUPS[S01].config.layout, shift=1)[:, :2].amax(0)
        value = min(best[position] for position in answer)
        rows[run] = {
            "value": value,
            "shows": value >= SEPARATING_ACCURACY,
            "attention_one_to_the_right_from_7_8": mass.tolist(),
            **{f"best_axis_at_{position}": x for position, x in best.items()},
        }
    return measurement(rows, "Balanced accuracy of the best of six axes after layer 0, the lower of positions 7 and 8.")


def order(run: int, model: Transformer) -> float:
    """`mean_order` of a run on the same random sums every time, those of Fig. 9's page."""
    a, b = sums.long_sums(ORDERED, 3, torch.Generator().manual_seed(0))
    return mean_order(orders_of_runs([(run, model)], a, b, 3)[run])


@finding("decay_matters_one_layer", N1_W0, N1)
def decay_matters_one_layer(evidence: Evidence) -> Measurement:
    """App. B, C.1: whether the answer's digits stand in order along the leading axes, without decay and with it."""
    without, decayed = evidence.each(N1_W0, order), list(evidence.each(N1, order).values())
    rows = {
        run: {"value": x, "shows": loses_order(x, decayed), "runs_with_decay": decayed} for run, x in without.items()
    }
    how = "Mean size of Spearman's correlation of the better leading axis, over 7, 8, 9, after attention and MLP."
    return measurement(rows, how)
