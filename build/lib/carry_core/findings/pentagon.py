"""Digits as a pentagon of pairs at distance five, in the residual stream before the last MLP (App. E, Fig. 17)."""

from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor

from carry_core import carries, measure, sums
from carry_core.findings import geometry
from carry_core.findings.base import MAIN, Measurement, finding, measurement
from carry_core.findings.survey import Evidence, random_sums
from carry_core.model import Transformer

SHUFFLES = 2_000
RANK_AMONG_SHUFFLED = 0.99  # share of shuffled labels whose score a pentagon has to exceed
VISIBLE_SCORE = 0.9  # from which one can see it
NEAR_HALF = 0.1  # distance from one half, a score that one of a pentagon's two directions would give


def centres(points: Float[Tensor, "sums 2"], digit: Int[Tensor, " sums"]) -> Complex[Tensor, " 10"]:
    """The middle of each digit's sums in a plane, as a complex number; NaN for a digit that does not occur."""
    found = [points[digit == d].double().mean(0) for d in range(10)]
    return torch.view_as_complex(torch.stack(found))


def spectrum(centre: Complex[Tensor, "*batch 10"]) -> Float[Tensor, "*batch 10"]:
    """How the spread of ten centres divides over ten regular polygons: by how far one goes round in a step, in tenths.

    A share 1 at k says that digit d lies at the angle k d 36° of a circle. Then 2 and 8 are pentagons of pairs at
    distance five in the order of the digits, 1 and 9 the ten digits in a circle, 4 and 6 pentagrams.
    """
    power = torch.fft.fft(centre).abs().square()[..., 1:]
    return torch.cat([torch.zeros_like(power[..., :1]), power / power.sum(-1, keepdim=True)], -1)


def score(centre: Complex[Tensor, "*batch 10"]) -> Float[Tensor, "*batch"]:
    """How much of the spread of ten centres the best regular pentagon of the pairs {0, 5}, …, {4, 9} explains.

    1 if the digits d and d + 5 lie at the same vertex and vertices follow each other as digits do, either way round.
    """
    return spectrum(centre)[..., [2, 8]].amax(-1)


def shuffled(planes: Complex[Tensor, "plane 10"], seed: int = 0) -> Float[Tensor, " shuffle"]:
    """The scores of the same centres with the digits shuffled among them, the best plane of each shuffle."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(SHUFFLES, 10, generator=generator).argsort(-1)
    return torch.stack([score(plane[order]) for plane in planes]).amax(0)


@dataclass(frozen=True)
class Pentagon:
    """A position of the answer before the last MLP, and how much of a pentagon is in it.

    Attributes:
        points: each sum on the leading principal axes of all of them.
        share: each axis' share of the variance.
        digit: the answer's digit.
        task: the carry class.
        arrives: whether a one arrives.
        score: of the sums at which none arrives, in the plane of the two leading axes, which the paper shows.
        chance: the score that 0.99 of shuffled labels stay below.
        rank: the share of shuffled labels that the score exceeds.
        best: the highest score in a plane of two of the axes.
        plane: that plane's axes.
        best_chance: what 0.99 of shuffled labels stay below if their best plane is looked for too.
        turn: by how many vertices the pentagon of the sums at which a one arrives is ahead of the other.
    """

    points: Float[Tensor, "sums axis"]
    share: tuple[float, ...]
    digit: Int[Tensor, " sums"]
    task: Int[Tensor, " sums"]
    arrives: Bool[Tensor, " sums"]
    score: float
    chance: float
    rank: float
    best: float
    plane: tuple[int, int]
    best_chance: float
    turn: float


def pentagon(
    model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], column: int = 1, seed: int = 0
) -> Pentagon:
    """Look for a pentagon where the answer's digit `column` is predicted, after the last attention (App. E).

    Args:
        model: the run.
        a: first numbers.
        b: second numbers.
        column: 0 for the answer's first digit; 1 is position 8, which the paper shows.
        seed: of the shuffles.
    """
    config = model.config
    name, position = f"blocks.{config.layers - 1}.resid_mid", config.layout.answer[column]
    digit = sums.digits(a + b, config.width)[:, column]
    task = carries.classify(a, b, config.width)
    arrives = carries.carry_in(config.width)[task, column]
    points, share = geometry.principal_axes(
        measure.activations(model, a, b, [name])[name][:, position], [arrives, digit]
    )
    none = ~arrives
    pairs = list(combinations(range(geometry.AXES), 2))
    planes = torch.stack([centres(points[none][:, pair], digit[none]) for pair in pairs])
    leading, chance, anywhere = score(planes[0]).item(), shuffled(planes[:1], seed), shuffled(planes, seed)
    other = centres(points[arrives][:, :2], digit[arrives])
    return Pentagon(
        points, share, digit, task, arrives, leading, chance.quantile(RANK_AMONG_SHUFFLED).item(),
        (chance < leading).double().mean().item(), score(planes).max().item(), pairs[int(score(planes).argmax())],
        anywhere.quantile(RANK_AMONG_SHUFFLED).item(), turn(planes[0], other),
    )  # fmt: skip


def turn(one: Complex[Tensor, " 10"], other: Complex[Tensor, " 10"]) -> float:
    """By how many vertices the best pentagon of `other` is ahead of that of `one`, in the order of its digits.

    Between -2.5 and 2.5; NaN if either has too few digits.
    """
    way = 2 if spectrum(one)[2] >= spectrum(one)[8] else 8
    angle = (torch.fft.fft(other)[way] / torch.fft.fft(one)[way]).angle()
    return float(angle / (2 * torch.pi / 5)) * (1 if way == 2 else -1)


@finding("pentagon", MAIN)
def pentagons(evidence: Evidence) -> Measurement:
    """App. E, Fig. 17: position 8 after the last attention, sums at which no carried one arrives."""
    rows = {
        run: {
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
        for run, p in evidence.each(MAIN, lambda run, m: pentagon(m, *random_sums())).items()
    }
    return measurement(rows, "Share of the spread of the ten digits that a pentagon explains in the leading plane.")
