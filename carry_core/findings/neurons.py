"""The last MLP neuron by neuron: the singular axes of its input weights, and what becomes of equal outcomes (Sec. 5).

Which neurons carry the one, and what is left without them, is `heads.carry_neurons` and `heads.dissection`.
"""

from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core import carries, measure, sums
from carry_core.findings.base import MAIN, finding, per_run
from carry_core.findings.heads import carry_neurons, dissection
from carry_core.findings.survey import Evidence, random_sums
from carry_core.interventions import INTACT, Ablation
from carry_core.model import Transformer, cache_hook
from carry_core.training.prefixes import SharedPrefix

CARRY_AXIS_CORRELATION = 0.7  # its size, from which an axis is a carry axis (Sec. 5)
CHECKERBOARD_GAP = 0.1  # between cosines within and across carry status
OUTCOMES = (74, 149, 250, 349, 499, 574, 650, 750, 849)  # whose boards are averaged


def makes_checkerboard(before: float, after: float) -> bool:
    """Whether an ablation opens the gap between cosines within and across carry status (Sec. 5)."""
    return after > CHECKERBOARD_GAP and after > before


@torch.inference_mode()
def activity(
    model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], n_digits: int | None = None
) -> tuple[Float[Tensor, "task pos neuron"], Float[Tensor, " neuron"]]:
    """How often each neuron of the last MLP is active, and how much more where a one arrives (Sec. 5, Fig. 13, 14).

    By `n_digits` digits the sums are classed, and so many positions are looked at; the model's width if None.

    Returns:
        The share of a class' sums in which it is active, NaN for a class without sums; and its mean activation where a
        one arrives, minus that elsewhere, in which every sum and position counts once.
    """
    config = model.config
    n_digits = config.width if n_digits is None else n_digits
    name, arrives = f"blocks.{config.layers - 1}.mlp.post", carries.carry_in(n_digits)
    active, total = torch.zeros(2, *arrives.shape, config.d_ff, dtype=torch.float64)
    count = torch.zeros(len(arrives), dtype=torch.float64)
    cache: dict[str, Tensor] = {}
    shared = SharedPrefix(model, [], config.layout.answer[-n_digits:], cache_hook(cache, name))
    for part_a, part_b in zip(a.split(measure.BATCH), b.split(measure.BATCH), strict=True):
        shared(sums.encode(part_a, part_b, config.layout))
        task, post = carries.classify(part_a, part_b, n_digits), cache[name].double()
        active.index_add_(0, task, (post > 0).double())
        total.index_add_(0, task, post)
        count += torch.bincount(task, minlength=len(count))
    weight = count[:, None].expand(arrives.shape)
    with_one, without = (total[side].sum(0) / weight[side].sum() for side in (arrives, ~arrives))
    return active / count[:, None, None], with_one - without


def most_often(often: Float[Tensor, "task pos neuron"], count: int) -> Bool[Tensor, "task pos neuron"]:
    """The `count` neurons that are most often active for each class and position: the red ones of Fig. 13 and 14.

    Of equally active ones, those that come first.
    """
    order = often.argsort(dim=-1, descending=True, stable=True)[..., :count]
    return torch.zeros_like(often, dtype=torch.bool).scatter(-1, order, value=True)


@dataclass(frozen=True)
class CarryAxis:
    """The last MLP's neurons on the singular axes of its input weights, and what they are active for (Fig. 13, 14)."""

    points: Float[Tensor, "neuron axis"]  # U S on the two leading axes; the carry neurons further along the first
    share: tuple[float, ...]  # of the weights' squared norm, for each axis
    often: Float[Tensor, "task pos neuron"]  # as `activity` gives them
    more: Float[Tensor, " neuron"]
    correlations: tuple[float, ...]  # over neurons, of the coordinate on each axis and of `more`; never negative

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

    An axis has no sign of its own: each is turned so that its correlation with `more` is not negative.
    """
    often, more = activity(model, a, b, n_digits)
    u, s, _ = torch.linalg.svd(model.blocks[model.config.layers - 1].up.weight.double(), full_matrices=False)
    points = (u * s)[:, :2]
    along = torch.corrcoef(torch.cat([points.T, more[None]]))[-1, :-1]
    points = points * torch.where(along < 0, -1.0, 1.0)
    share = tuple((s.square() / s.square().sum())[:2].tolist())
    return CarryAxis(points, share, often, more, tuple(along.abs().tolist()))


# ---------------------------------------------------------------- what is left of the checkerboard


@dataclass(frozen=True)
class Board:
    """Cosines between the streams of sums with one outcome after the last MLP, at one position (Sec. 5).

    `arrives` says of each sum whether a one arrives there.
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
    x = torch.nn.functional.normalize(stream[:, list(config.layout.answer)].double(), dim=-1).transpose(0, 1)
    return [Board(p, arrives[:, i], x[i] @ x[i].T) for i, p in enumerate(config.layout.answer[:-1])]


def checkerboard(model: Transformer, neurons: Bool[Tensor, " neuron"]) -> tuple[float, float]:
    """Mean gap of the boards of nine outcomes, intact and without the given neurons of the last MLP (Sec. 5).

    Boards where a one arrives at all sums or at none are left out.
    """
    without = dissection(neurons, model.config.layers - 1)
    gaps = [
        [board.gap for outcome in OUTCOMES for board in boards(model, *sums.equal_sums(outcome), ablation)]
        for ablation in (INTACT, without)
    ]
    before, after = torch.tensor(gaps, dtype=torch.float64).nanmean(1).tolist()
    return before, after


# ---------------------------------------------------------------- claims (Sec. 5)


@finding("carry_axis", MAIN)
def carry_axis_of_runs(evidence: Evidence) -> pd.DataFrame:
    """Correlation over neurons of the coordinate on the leading axis and what they are active for (Sec. 5, Fig. 14)."""
    sizes = evidence.each(MAIN, lambda run, m: carry_axis(m, *random_sums()).correlation)
    return per_run(sizes, lambda x: {"value": x, "shows": x >= CARRY_AXIS_CORRELATION})


@finding("checkerboard", MAIN)
def checkerboard_of_runs(evidence: Evidence) -> pd.DataFrame:
    """Mean cosine within minus across carry status, over nine outcomes at 7 and 8, carry neurons gone (Sec. 5)."""
    chosen_on = measure.sample(2_000, 3, seed=0)
    gaps = evidence.each(MAIN, lambda run, m: checkerboard(m, carry_neurons(m, *chosen_on)))
    return per_run(gaps, lambda x: {"value": x[1], "shows": makes_checkerboard(*x), "intact": x[0]})
