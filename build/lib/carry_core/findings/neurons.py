"""The last MLP neuron by neuron: the singular axes of its input weights, and what becomes of equal outcomes (Sec. 5).

Which neurons carry the one, and what is left without them, is `heads.carry_neurons` and `heads.dissection`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core import carries, measure, sums
from carry_core.findings.base import MAIN, Measurement, finding, measurement
from carry_core.findings.heads import carry_neurons, dissection, mean_over, only_carrying_goes
from carry_core.findings.survey import Evidence, random_sums
from carry_core.interventions import INTACT, Ablation
from carry_core.model import Transformer, cache_hook

CARRY_AXIS_CORRELATION = 0.7  # its size, from which an axis is a carry axis
CHECKERBOARD_GAP = 0.1  # between cosines within and across carry status
OUTCOMES = (74, 149, 250, 349, 499, 574, 650, 750, 849)  # whose boards are averaged


def is_carry_axis(correlation: float) -> bool:
    """Whether an axis is a carry axis (`finding/carry_axis`): Sec. 5."""
    return correlation >= CARRY_AXIS_CORRELATION


def makes_checkerboard(before: float, after: float) -> bool:
    """Whether ablation makes a checkerboard of the cosines (`finding/checkerboard`): Sec. 5.

    Args:
        before: the gap between cosines within and across carry status, intact.
        after: the same without the carry neurons.
    """
    return after > CHECKERBOARD_GAP and after > before


@dataclass(frozen=True)
class Activity:
    """What the last MLP's neurons do at the answer's positions.

    Attributes:
        often: in how many of a class' sums each neuron is active, as a share; NaN for a class without sums.
        more: its mean activation where a one arrives, minus that elsewhere; every sum and position counts once.
    """

    often: Float[Tensor, "task pos neuron"]
    more: Float[Tensor, " neuron"]


@torch.inference_mode()
def activity(
    model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], n_digits: int | None = None
) -> Activity:
    """How often each neuron of the last MLP is active, and how much more where a one arrives (Sec. 5, Fig. 13, 14).

    Args:
        model: the run.
        a: first numbers.
        b: second numbers.
        n_digits: digits by which the sums are classed, and positions that are looked at; the model's width if None.
    """
    config = model.config
    n_digits = config.width if n_digits is None else n_digits
    last, read = config.layers - 1, config.layout.answer[-n_digits:]
    name = f"blocks.{last}.mlp.post"
    arrives = carries.carry_in(n_digits)
    active, total = torch.zeros(2, *arrives.shape, config.d_ff, dtype=torch.float64)
    count = torch.zeros(len(arrives), dtype=torch.float64)
    cache: dict[str, Tensor] = {}
    shared = measure.SharedPrefix(model, [], read, cache_hook(cache, name))
    for part_a, part_b in zip(a.split(measure.BATCH), b.split(measure.BATCH), strict=True):
        shared(sums.encode(part_a, part_b, config.layout))
        task, post = carries.classify(part_a, part_b, n_digits), cache[name].double()
        active.index_add_(0, task, (post > 0).double())
        total.index_add_(0, task, post)
        count += torch.bincount(task, minlength=len(count))
    weight = count[:, None].expand(arrives.shape)
    with_one, without = (total[side].sum(0) / weight[side].sum() for side in (arrives, ~arrives))
    return Activity(active / count[:, None, None], with_one - without)


def most_often(often: Float[Tensor, "task pos neuron"], count: int) -> Bool[Tensor, "task pos neuron"]:
    """The `count` neurons that are most often active for each class and position: the red ones of Fig. 13 and 14.

    Of equally active ones, those that come first.
    """
    order = often.argsort(dim=-1, descending=True, stable=True)[..., :count]
    return torch.zeros_like(often, dtype=torch.bool).scatter(-1, order, value=True)


@dataclass(frozen=True)
class CarryAxis:
    """The last MLP's neurons on the singular axes of its input weights, and what they are active for (Fig. 13, 14).

    Attributes:
        points: each neuron at U S on the two leading axes; those that are more active where a one arrives lie further
            along the first.
        share: each axis' share of the weights' squared norm.
        often: as in `Activity`.
        correlations: over neurons, of the coordinate on each axis and of `Activity.more`; never negative.
    """

    points: Float[Tensor, "neuron axis"]
    share: tuple[float, ...]
    often: Float[Tensor, "task pos neuron"]
    correlations: tuple[float, ...]

    @property
    def correlation(self) -> float:
        """That of the leading axis."""
        return self.correlations[0]

    def lean(self, chosen: Bool[Tensor, "task pos neuron"]) -> Float[Tensor, "task pos"]:
        """How much further along the leading axis the chosen neurons lie than the others, on average."""
        x = self.points[:, 0]
        return (x * chosen).sum(-1) / chosen.sum(-1) - (x * ~chosen).sum(-1) / (~chosen).sum(-1)


def carry_axis(
    model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], n_digits: int | None = None
) -> CarryAxis:
    """The SVD of the last MLP's input weights beside what its neurons do (Sec. 5, App. C.4).

    An axis has no sign of its own: each is turned so that its correlation with `Activity.more` is not negative.
    """
    found = activity(model, a, b, n_digits)
    u, s, _ = torch.linalg.svd(model.blocks[model.config.layers - 1].up.weight.double(), full_matrices=False)
    points = (u * s)[:, :2]
    along = torch.corrcoef(torch.cat([points.T, found.more[None]]))[-1, :-1]
    points = points * torch.where(along < 0, -1.0, 1.0)
    share = tuple((s.square() / s.square().sum())[:2].tolist())
    return CarryAxis(points, share, found.often, tuple(along.abs().tolist()))


# what is left of the checkerboard


@dataclass(frozen=True)
class Board:
    """Cosines between the streams of sums with one outcome after the last MLP, at one position (Sec. 5).

    Attributes:
        position: where the stream is taken.
        arrives: whether a one arrives there, for each sum.
        cosine: between each two sums.
    """

    position: int
    arrives: Bool[Tensor, " sums"]
    cosine: Float[Tensor, "sums sums"]

    @property
    def gap(self) -> float:
        """Mean cosine of two sums with the same carry status, minus that of two with different ones.

        The whole board counts, also its diagonal, where a sum is paired with itself. Zero where all are alike, NaN
        where a one arrives at all sums or at none.
        """
        same = self.arrives[:, None] == self.arrives
        return float(self.cosine[same].mean() - self.cosine[~same].mean())


def boards(
    model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], ablation: Ablation = INTACT
) -> list[Board]:
    """A board of the given sums for each answer position at which a one can arrive."""
    config = model.config
    arrives = carries.carry_in(config.width)[carries.classify(a, b, config.width)]
    name = f"blocks.{config.layers - 1}.resid_post"
    stream = measure.activations(model, a, b, [name], ablation)[name]
    found = []
    for i, position in enumerate(config.layout.answer[:-1]):
        x = torch.nn.functional.normalize(stream[:, position].double(), dim=-1)
        found.append(Board(position, arrives[:, i], x @ x.T))
    return found


def checkerboard(model: Transformer, neurons: Bool[Tensor, " neuron"]) -> tuple[float, float]:
    """Mean gap of the boards of nine outcomes, intact and without the given neurons of the last MLP (Sec. 5).

    Boards where a one arrives at all sums or at none are left out.
    """
    without = dissection(neurons, model.config.layers - 1)
    gaps = [
        [board.gap for outcome in OUTCOMES for board in boards(model, *sums.equal_sums(outcome), ablation)]
        for ablation in (INTACT, without)
    ]
    before, after = (torch.tensor(found, dtype=torch.float64).nanmean().item() for found in gaps)
    return before, after


@dataclass(frozen=True)
class Carriers:
    """What the carry neurons of a run are, and what is left without them (Sec. 5).

    Attributes:
        correlation: of the leading singular axis, as `CarryAxis`.
        count: how many neurons carry.
        carry: right without them, mean over the cells at which a one arrives.
        corrected: the same once the missing one is added.
        rest: right without them, mean over the other cells.
        gaps: the checkerboard's, intact and without them.
    """

    correlation: float
    count: int
    carry: float
    corrected: float
    rest: float
    gaps: tuple[float, float]

    @property
    def shows(self) -> tuple[bool, bool, bool]:
        """Whether there is a carry axis, whether only carrying goes, and whether there is a checkerboard."""
        return (
            is_carry_axis(self.correlation),
            only_carrying_goes(self.carry, self.rest),
            makes_checkerboard(*self.gaps),
        )


def carriers(
    model: Transformer,
    axis: CarryAxis,
    chosen: Bool[Tensor, " neuron"],
    a: Int[Tensor, " sums"],
    b: Int[Tensor, " sums"],
    n_digits: int | None = None,
) -> Carriers:
    """Take the chosen neurons out and count on the given sums, which they should not have been chosen on."""
    n_digits = model.config.width if n_digits is None else n_digits
    (left,) = measure.class_accuracies(model, a, b, [dissection(chosen, model.config.layers - 1)], n_digits)
    carry, rest = (mean_over(left, "accuracy", carry=arrives) for arrives in (True, False))
    corrected = mean_over(left, "corrected", carry=True)
    return Carriers(axis.correlation, int(chosen.sum()), carry, corrected, rest, checkerboard(model, chosen))


# ---------------------------------------------------------------- claims (Sec. 5)


@finding("carry_axis", MAIN)
def carry_axis_of_runs(evidence: Evidence) -> Measurement:
    """Sec. 5, Fig. 14: a neuron's coordinate on the leading singular axis, and what it is active for."""
    found = evidence.each(MAIN, lambda run, m: carry_axis(m, *random_sums()).correlation)
    rows = {run: {"value": x, "shows": is_carry_axis(x)} for run, x in found.items()}
    return measurement(rows, "Size of the correlation over the 128 neurons.")


@finding("checkerboard", MAIN)
def checkerboard_of_runs(evidence: Evidence) -> Measurement:
    """Sec. 5: cosines between sums of equal outcome, within minus across carry status, before and after dissection."""
    chosen_on = measure.sample(2_000, 3, seed=0)
    found = evidence.each(MAIN, lambda run, m: checkerboard(m, carry_neurons(m, *chosen_on)))
    rows = {
        run: {"value": after, "shows": makes_checkerboard(before, after), "intact": before}
        for run, (before, after) in found.items()
    }
    how = f"Mean cosine within minus across carry status, over {len(OUTCOMES)} outcomes at 7 and 8, carry neurons gone."
    return measurement(rows, how)
