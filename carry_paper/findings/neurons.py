"""The last MLP neuron by neuron: the singular axes of its input weights, and what becomes of equal outcomes (Sec. 5).

Which neurons carry the one is `heads.carry_neurons`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from carry_core import carries, measure, sums
from carry_core.interventions import INTACT, Ablation
from carry_core.model import Transformer
from carry_core.sums import Numbers
from carry_paper.findings.base import Fields
from carry_paper.findings.heads import carry_neurons
from carry_paper.findings.survey import random_sums

CARRY_AXIS_CORRELATION = 0.7  # its size, from which an axis is a carry axis (Sec. 5)
# between cosines within and across carry status, if an ablation is to have opened it
CHECKERBOARD_GAP = 0.1
OUTCOMES = (74, 149, 250, 349, 499, 574, 650, 750, 849)  # whose boards are averaged


def most_often(
    often: Float[Tensor, "task pos neuron"], count: int
) -> Bool[Tensor, "task pos neuron"]:
    """The `count` neurons, the first of equals, that are most often active: the red ones of Fig. 13 and 14."""
    order = often.argsort(dim=-1, descending=True, stable=True)[..., :count]
    return torch.zeros_like(often, dtype=torch.bool).scatter(-1, order, value=True)


@dataclass(frozen=True)
class CarryAxis:
    """The last MLP's neurons on the singular axes of its input weights, and what they are active for (Fig. 13, 14)."""

    # U S on the two leading axes; the carry neurons further along the first
    points: Float[Tensor, "neuron axis"]
    share: list[float]  # of the weights' squared norm, for each axis
    # the share of a class's sums for which it is active; NaN if it has none
    often: Float[Tensor, "task pos neuron"]
    # mean activation with a carry-in minus that without, over all sums and positions
    more: Float[Tensor, " neuron"]
    # over neurons, of the coordinate on each axis and of `more`; never negative
    correlations: list[float]

    @property
    def plane(self) -> float:
        """The correlation along the best direction in the plane of both axes, the multiple one (App. H.1)."""
        (first, second), between = self.correlations, torch.corrcoef(self.points.T)[0, 1].item()
        return float(
            ((first**2 + second**2 - 2 * first * second * between) / (1 - between**2)) ** 0.5
        )

    def lean(self, chosen: Bool[Tensor, "task pos neuron"]) -> Float[Tensor, "task pos"]:
        """How much further along the leading axis the chosen neurons lie than the others, on average."""
        x = self.points[:, 0]
        return (x * chosen).sum(-1) / chosen.sum(-1) - (x * ~chosen).sum(-1) / (~chosen).sum(-1)


def singular_axes(
    model: Transformer, a: Numbers, b: Numbers, n_digits: int | None = None
) -> CarryAxis:
    """The SVD of the last MLP's input weights beside what its neurons do (Sec. 5, App. C.4)."""
    n_digits, last = n_digits or model.config.width, model.config.layers - 1
    name, read = f"blocks.{last}.mlp.post", model.config.layout.answer[-n_digits:]
    post, task = (
        measure.activations(model, a, b, [name], read=read)[name],
        carries.classify(a, b, n_digits),
    )
    often = torch.stack(
        [(post[task == i] > 0).double().mean(0) for i in range(len(carries.patterns(n_digits)))]
    )
    carry_in = carries.carry_in(n_digits)[task]
    more = post[carry_in].double().mean(0) - post[~carry_in].double().mean(0)
    u, s, _ = torch.linalg.svd(model.blocks[last].up.weight.double(), full_matrices=False)
    points, share = (u * s)[:, :2], (s.square() / s.square().sum())[:2]
    along = torch.corrcoef(torch.cat([points.T, more[None]]))[-1, :-1]
    points = points * torch.where(along < 0, -1.0, 1.0)  # an axis has no sign of its own
    return CarryAxis(points, share.tolist(), often, more, along.abs().tolist())


def boards(
    model: Transformer, a: Numbers, b: Numbers, ablation: Ablation = INTACT
) -> tuple[Bool[Tensor, "pos sums"], Float[Tensor, "pos sums sums"]]:
    """Whether each sum has a carry-in, where one can be, and the cosines between their streams after the last MLP."""
    config = model.config
    carry_in = carries.carry_in(config.width)[carries.classify(a, b, config.width)]
    name = f"blocks.{config.layers - 1}.resid_post"
    stream = measure.activations(model, a, b, [name], ablation)[name][
        :, list(config.layout.answer[:-1])
    ]
    x = torch.nn.functional.normalize(stream.double(), dim=-1).transpose(0, 1)
    return carry_in[:, :-1].T, x @ x.mT


def gap(carry_in: Bool[Tensor, " sums"], cosine: Float[Tensor, "sums sums"]) -> float:
    """Mean cosine of two sums with the same carry-in, minus that of two with different ones; NaN if all are alike."""
    same = carry_in[:, None] == carry_in
    return float(cosine[same].mean() - cosine[~same].mean())


def checkerboard_gap(model: Transformer, ablation: Ablation = INTACT) -> float:
    """Mean gap of the boards of nine outcomes (Sec. 5)."""
    found = [boards(model, *sums.equal_sums(outcome), ablation) for outcome in OUTCOMES]
    return float(np.nanmean([gap(*board) for both in found for board in zip(*both, strict=True)]))


def carry_axis(model: Transformer) -> Fields:
    """Correlation over neurons of the coordinate on the leading axis and what they are active for (Sec. 5, Fig. 14)."""
    return {"value": singular_axes(model, *random_sums()).correlations[0]}


def has_carry_axis(measured: Fields) -> bool:
    """Return True if neurons lie along the leading axis by what they are active for."""
    return bool(measured["value"] >= CARRY_AXIS_CORRELATION)


def checkerboard(model: Transformer) -> Fields:
    """Mean cosine within minus across carry status, over nine outcomes at 7 and 8, carry neurons gone (Sec. 5)."""
    chosen = carry_neurons(model, *measure.sample(2_000, 3, seed=0))
    without = Ablation(neurons={(model.config.layers - 1, int(i)) for i in chosen.nonzero()})
    return {"value": checkerboard_gap(model, without), "intact": checkerboard_gap(model)}


def gap_opens(measured: Fields) -> bool:
    """Return True if the ablation opens a gap that is large, and larger than the intact model's."""
    return bool(measured["value"] > max(CHECKERBOARD_GAP, measured["intact"]))
