"""Where sums lie in the residual stream: principal planes with fixed signs, and what is apart in them (Sec. 4.1)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import ks_2samp, spearmanr
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from carry_core import sums, tasks
from carry_core.measure import streams
from carry_core.model import Transformer

AXES = 6  # kept of each stream; figures show the leading two
POCKETS = 0.9  # share of sums nearest to their own digit's centroid from which on the digits are said to have pockets


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
    answer, task = sums.digits(a + b, config.width), tasks.classify(a, b, n_digits)
    planes: dict[int, list[Plane]] = {}
    for layer in {layer for layer, _, _ in columns}:
        sites = {"attention": f"blocks.{layer}.resid_mid", "MLP": f"blocks.{layer}.resid_post"}
        found = streams(model, a, b, list(sites.values()))
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
    passes = tasks.symbols(a, b, n_digits) > 0
    return {run: digit_orders(journey(model, a, b, n_digits), passes) for run, model in models}


def mean_order(orders: Mapping[str, Sequence[float]]) -> float:
    """The mean over positions and over attention and MLP of a run's `digit_orders`."""
    return float(torch.tensor(list(orders.values()), dtype=torch.float64).mean())
