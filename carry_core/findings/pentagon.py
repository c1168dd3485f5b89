"""Digits as a pentagon of pairs at distance five, in the residual stream before the last MLP (App. E, Fig. 17)."""

from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from carry_core import carries, measure, sums
from carry_core.findings import geometry
from carry_core.findings.base import MAIN, Fields, finding_of_models
from carry_core.findings.survey import random_sums
from carry_core.model import Transformer
from carry_core.sums import Numbers

SHUFFLES = 2_000
RANK_AMONG_SHUFFLED = 0.99  # share of shuffled labels whose score a pentagon has to exceed
VISIBLE_SCORE = 0.9  # from which one can see it


def centres(points: Float[Tensor, "sums 2"], digit: Int[Tensor, " sums"]) -> Complex[Tensor, " 10"]:
    """The middle of each digit's sums in a plane, as a complex number; NaN for a digit that does not occur."""
    found = [points[digit == d].double().mean(0) for d in range(10)]
    return torch.view_as_complex(torch.stack(found))


def spectrum(centre: Complex[Tensor, "*batch 10"]) -> Float[Tensor, "*batch 10"]:
    """How the spread of ten centres divides over the regular polygons k, where digit d lies at the angle k d 36°.

    2 and 8 are pentagons of pairs at distance five in the order of the digits, 1 and 9 the ten digits in a circle.
    """
    power = torch.fft.fft(centre).abs().square()[..., 1:]
    return torch.cat([torch.zeros_like(power[..., :1]), power / power.sum(-1, keepdim=True)], -1)


def score(centre: Complex[Tensor, "*batch 10"]) -> Float[Tensor, "*batch"]:
    """How much of the spread of ten centres the best regular pentagon of the pairs {0, 5}, …, {4, 9} explains."""
    return spectrum(centre)[..., [2, 8]].amax(-1)


def shuffled(planes: Complex[Tensor, "plane 10"], seed: int = 0) -> Float[Tensor, " shuffle"]:
    """The scores of the same centres with the digits shuffled among them, the best plane of each shuffle."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(SHUFFLES, 10, generator=generator).argsort(-1)
    return torch.stack([score(plane[order]) for plane in planes]).amax(0)


@dataclass(frozen=True)
class Pentagon:
    """A position of the answer before the last MLP, and how much of a pentagon is in it."""

    points: geometry.Points  # on the leading principal axes of all sums
    share: tuple[float, ...]  # of the variance, for each axis
    score: float  # of the sums at which none arrives, in the leading plane, which the paper shows
    chance: float  # what 0.99 of shuffled labels stay below
    rank: float  # share of shuffled labels that the score exceeds
    best: float  # the highest score in a plane of two of the axes
    plane: tuple[int, int]  # which
    best_chance: float  # what 0.99 of shuffled labels stay below if their best plane is looked for too
    turn: float  # vertices by which the pentagon of the sums with a carry-in is ahead of the other


def pentagon(
    model: Transformer, a: Numbers, b: Numbers, column: int = 1, seed: int = 0, n_digits: int | None = None
) -> Pentagon:
    """Look for a pentagon where the answer's digit `column` is predicted, after the last attention (App. E)."""
    config, n_digits = model.config, n_digits or model.config.width
    name, position = f"blocks.{config.layers - 1}.resid_mid", config.layout.answer[column - n_digits]
    digit = sums.digits(a + b, n_digits)[:, column]
    arrives = carries.carry_in(n_digits)[carries.classify(a, b, n_digits), column]
    stream = measure.activations(model, a, b, [name])[name][:, position]
    points, share = geometry.principal_axes(stream, [arrives, digit])
    pairs = list(combinations(range(geometry.AXES), 2))
    planes = torch.stack([centres(points[~arrives][:, pair], digit[~arrives]) for pair in pairs])
    scores, chance, anywhere = score(planes), shuffled(planes[:1], seed), shuffled(planes, seed)
    return Pentagon(
        points,
        share,
        score=float(scores[0]),
        chance=float(chance.quantile(RANK_AMONG_SHUFFLED)),
        rank=float((chance < scores[0]).double().mean()),
        best=float(scores.max()),
        plane=pairs[int(scores.argmax())],
        best_chance=float(anywhere.quantile(RANK_AMONG_SHUFFLED)),
        turn=turn(planes[0], centres(points[arrives][:, :2], digit[arrives])),
    )


def turn(one: Complex[Tensor, " 10"], other: Complex[Tensor, " 10"]) -> float:
    """By how many vertices, -2.5 to 2.5, the best pentagon of `other` is ahead of `one`'s; NaN with too few digits."""
    way = 2 if spectrum(one)[2] >= spectrum(one)[8] else 8
    angle = (torch.fft.fft(other)[way] / torch.fft.fft(one)[way]).angle()
    return float(angle / (2 * torch.pi / 5)) * (1 if way == 2 else -1)


@finding_of_models("pentagon", MAIN)
def pentagons(model: Transformer) -> Fields:
    """Share of the spread of the ten digits that a pentagon explains in the leading plane at 8 (App. E, Fig. 17)."""
    p = pentagon(model, *random_sums())
    return {
        "value": p.score,
        "shows": p.rank > RANK_AMONG_SHUFFLED,
        "shuffled_labels_reach": p.chance,
        "visible": p.score >= VISIBLE_SCORE,
        "best_plane": [axis + 1 for axis in p.plane],
        "score_there": p.best,
        "shuffled_labels_reach_there": p.best_chance,
        "visible_there": p.best >= VISIBLE_SCORE,
        "vertices_further_with_a_one": p.turn,
    }
