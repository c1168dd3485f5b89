"""The last MLP neuron by neuron: its singular axes, and sums with the same outcome (Sec. 5).

`heads.carry_neurons` selects the neurons that carry.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from carry_core import carries, measure
from carry_core.interventions import INTACT, Ablation
from carry_core.model import Transformer
from carry_core.sums import Numbers, equal_sums
from carry_paper.findings.bars import Bar, at_least
from carry_paper.findings.base import Fields
from carry_paper.findings.heads import carry_neurons
from carry_paper.findings.survey import random_neurons, random_sums

# ---- the carry axis (Fig. 13, 14)


def most_often(
    often: Float[Tensor, "carry_class pos neuron"], count: int
) -> Bool[Tensor, "carry_class pos neuron"]:
    """Return a mask of the `count` neurons that are active most often, red in Fig. 13 and 14.

    Ties are broken in favour of the neuron with the lower number.
    """
    order = often.argsort(dim=-1, descending=True, stable=True)[..., :count]
    return torch.zeros_like(often, dtype=torch.bool).scatter(-1, order, value=True)


@dataclass(frozen=True)
class CarryAxis:
    """The last MLP's neurons on the singular axes of its input weights (Fig. 13, 14).

    Attributes:
        points: Coordinates on the two leading axes (U S of the SVD); neurons that are more active
            with a carry-in lie further along each.
        share: Each axis' share of the weights' squared norm.
        often: The share of a class's sums for which a neuron is active; NaN without such sums.
        more: A neuron's mean activation with a carry-in minus that without, over all sums and
            positions.
        correlations: For each axis, the correlation over neurons of the coordinate and `more`;
            never negative.
    """

    points: Float[Tensor, "neuron axis"]
    share: list[float]
    often: Float[Tensor, "carry_class pos neuron"]
    more: Float[Tensor, " neuron"]
    correlations: list[float]

    @property
    def plane(self) -> float:
        """Return the multiple correlation of `more` with the coordinates on both axes (App. H.1).

        That is the correlation along the best direction in their plane.
        """
        first, second = self.correlations
        between = torch.corrcoef(self.points.T)[0, 1].item()
        squares = first**2 + second**2 - 2 * first * second * between
        return float((squares / (1 - between**2)) ** 0.5)

    def lean(
        self, mask: Bool[Tensor, "carry_class pos neuron"]
    ) -> Float[Tensor, "carry_class pos"]:
        """Return how much further along the leading axis chosen neurons lie than the others.

        It is the difference of two means over neurons.
        """
        x = self.points[:, 0]
        mean_chosen = (x * mask).sum(-1) / mask.sum(-1)
        mean_others = (x * ~mask).sum(-1) / (~mask).sum(-1)
        return mean_chosen - mean_others


def singular_axes(
    model: Transformer, a: Numbers, b: Numbers, n_digits: int | None = None
) -> CarryAxis:
    """Return the last MLP's neurons on its singular axes, with their activity (Sec. 5, App. C.4).

    Neurons are observed on the sums a + b, at the last `n_digits` answer positions (all if None).
    """
    n_digits = n_digits or model.config.width
    last_layer = model.config.layers - 1
    name = f"blocks.{last_layer}.mlp.post"
    answer = model.config.layout.answer[-n_digits:]
    post = measure.activations(model, a, b, [name], read=answer)[name]  # (sums, pos, neuron)

    carry_class = carries.classify(a, b, n_digits)
    often = []
    for i in range(len(carries.patterns(n_digits))):
        often.append((post[carry_class == i] > 0).double().mean(0))
    carry_in = carries.carry_in(n_digits)[carry_class]  # (sums, pos)
    more = post[carry_in].double().mean(0) - post[~carry_in].double().mean(0)

    weight = model.blocks[last_layer].up.weight.double()
    u, s, _ = torch.linalg.svd(weight, full_matrices=False)
    points = (u * s)[:, :2]
    share = (s.square() / s.square().sum())[:2]
    along = torch.corrcoef(torch.cat([points.T, more[None]]))[-1, :-1]
    # An axis has no sign of its own.
    points = points * torch.where(along < 0, -1.0, 1.0)
    return CarryAxis(
        points=points,
        share=share.tolist(),
        often=torch.stack(often),
        more=more,
        correlations=along.abs().tolist(),
    )


def carry_axis(model: Transformer) -> Fields:
    """Correlation over neurons of activity with a carry-in and the leading axis (Sec. 5, Fig. 14).

    The model has to be one of three-digit sums.
    """
    return {"value": singular_axes(model, *random_sums()).correlations[0]}


# From this correlation on, an axis is a carry axis (Sec. 5).
CARRY_AXIS_CORRELATION = Bar(0.7, perfect=1)

has_carry_axis = at_least(CARRY_AXIS_CORRELATION)

# ---- checkerboards of equal outcomes (Sec. 5)


def boards(
    model: Transformer, a: Numbers, b: Numbers, ablation: Ablation = INTACT
) -> tuple[Bool[Tensor, "pos sums"], Float[Tensor, "pos sums sums"]]:
    """Return a mask of the sums with a carry-in, and the cosines of all pairs after the last MLP.

    The positions are the answer positions at which a carry-in is possible.
    """
    return _boards_of(_stream(model, a, b, ablation), a, b)


def _stream(
    model: Transformer, a: Numbers, b: Numbers, ablation: Ablation
) -> Float[Tensor, "sums pos d_model"]:
    """Return the stream after the last MLP at the answer positions that may have a carry-in."""
    name = f"blocks.{model.config.layers - 1}.resid_post"
    positions = list(model.config.layout.answer[:-1])  # nothing carries into the last one
    return measure.activations(model, a, b, [name], ablation, read=positions)[name]


def _boards_of(
    stream: Float[Tensor, "sums pos d_model"], a: Numbers, b: Numbers
) -> tuple[Bool[Tensor, "pos sums"], Float[Tensor, "pos sums sums"]]:
    """Return `boards` from the stream after the last MLP."""
    width = stream.shape[1] + 1
    carry_in = carries.carry_in(width)[carries.classify(a, b, width)]  # (sums, pos)
    unit = torch.nn.functional.normalize(stream.double(), dim=-1).transpose(0, 1)
    return carry_in[:, :-1].T, unit @ unit.mT


def gap(carry_in: Bool[Tensor, " sums"], cosine: Float[Tensor, "sums sums"]) -> float:
    """Return the mean cosine of pairs with the same carry-in, minus that of the other pairs.

    It is NaN if all sums have the same carry-in.
    """
    same = carry_in[:, None] == carry_in
    return float(cosine[same].mean() - cosine[~same].mean())


OUTCOMES = (74, 149, 250, 349, 499, 574, 650, 750, 849)  # whose gaps are averaged


def checkerboard_gap(model: Transformer, ablation: Ablation = INTACT) -> float:
    """Return the mean gap of the boards of nine outcomes (Sec. 5)."""
    sums_of_outcomes = [equal_sums(outcome) for outcome in OUTCOMES]
    a, b = (torch.cat(numbers) for numbers in zip(*sums_of_outcomes, strict=True))
    streams = _stream(model, a, b, ablation).split([len(a) for a, _ in sums_of_outcomes])
    gaps = []
    for stream, (a, b) in zip(streams, sums_of_outcomes, strict=True):
        carry_in, cosine = _boards_of(stream, a, b)
        for pos in range(len(cosine)):
            gaps.append(gap(carry_in[pos], cosine[pos]))
    return float(np.nanmean(gaps))


RANDOM_SETS = 9  # sets of as many random neurons, whose gaps a checkerboard has to exceed


def without_neurons(model: Transformer, neurons: Bool[Tensor, " neuron"]) -> Ablation:
    """Return the ablation of some neurons of the final MLP."""
    last_layer = model.config.layers - 1
    return Ablation(neurons={(last_layer, i) for i in neurons.nonzero().flatten().tolist()})


def checkerboard(model: Transformer) -> Fields:
    """Mean cosine within minus across carry status without the carry neurons, at 7 and 8 (Sec. 5).

    The mean is over nine outcomes. The model has to be one of three-digit sums.
    """
    carrying = carry_neurons(model, *measure.sample(2_000, 3, seed=0))
    return {
        "value": checkerboard_gap(model, without_neurons(model, carrying)),
        "intact": checkerboard_gap(model),
        "without_random_neurons": random_gaps(model, int(carrying.sum())),
    }


def random_gaps(model: Transformer, count: int) -> list[float]:
    """Return the gap without `count` random neurons of the final MLP, for `RANDOM_SETS` of them."""
    sets = random_neurons(model.config.d_ff, count, RANDOM_SETS)
    return [checkerboard_gap(model, without_neurons(model, neurons)) for neurons in sets]


def gap_opens(measured: Fields) -> bool:
    """Return True if the gap is larger than intact, and than without any set of random neurons."""
    others = [measured["intact"], *measured["without_random_neurons"]]
    return bool(measured["value"] > max(others))
