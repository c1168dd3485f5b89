"""Findings about digits in a pentagon, whose vertices are pairs of digits that differ by five.

The paper sees it in the residual stream before the last MLP (App. E, Fig. 17).
"""

from itertools import combinations

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from carry_core import carries, measure, sums
from carry_core.model import Transformer
from carry_core.sums import Numbers
from carry_paper.findings import geometry
from carry_paper.findings.bars import Bar
from carry_paper.findings.base import Fields
from carry_paper.findings.survey import random_sums

SHUFFLES = 2_000
RANK_AMONG_SHUFFLED = 0.99  # share of shuffled labels whose score a pentagon has to exceed
VISIBLE_SCORE = Bar(0.9, perfect=1)  # from this score on, a pentagon is visible

# The numbers k of the two pentagons, with digit d at the angle k d 36°: d and d + 5 coincide.
PENTAGONS = (2, 8)


# ---- ten centres in a plane


def centres(points: Float[Tensor, "sums 2"], digit: Int[Tensor, " sums"]) -> Complex[Tensor, " 10"]:
    """Return the mean of each digit's sums in a plane, as a complex number.

    It is NaN for a digit that does not occur.
    """
    means = [points[digit == d].double().mean(0) for d in range(10)]
    return torch.view_as_complex(torch.stack(means))


def spectrum(centre: Complex[Tensor, "*batch 10"]) -> Float[Tensor, "*batch 10"]:
    """Return the share of ten centres' spread that each regular polygon explains, by its number k.

    In polygon k, digit d is at the angle k d 36°. Polygons 2 and 8 are pentagons, on whose vertices
    d and d + 5 coincide; 1 and 9 are the ten digits in a circle.
    """
    power = torch.fft.fft(centre).abs().square()[..., 1:]
    shares = power / power.sum(-1, keepdim=True)
    mean = torch.zeros_like(shares[..., :1])  # polygon 0 is the common centre, not a spread
    return torch.cat([mean, shares], -1)


def score(centre: Complex[Tensor, "*batch 10"]) -> Float[Tensor, "*batch"]:
    """Return the share of the spread that the better pentagon of {0, 5}, …, {4, 9} explains."""
    return spectrum(centre)[..., list(PENTAGONS)].amax(-1)


def shuffled(planes: Complex[Tensor, "plane 10"], seed: int = 0) -> Float[Tensor, " shuffle"]:
    """Return the scores of `SHUFFLES` random labels of the centres, each in its best plane."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(SHUFFLES, 10, generator=generator).argsort(-1)
    scores = [score(plane[order]) for plane in planes]
    return torch.stack(scores).amax(0)


def turn(first: Complex[Tensor, " 10"], second: Complex[Tensor, " 10"]) -> float:
    """Return by how many vertices, -2.5 to 2.5, the pentagon of `second` is ahead of `first`'s.

    It is NaN if a digit does not occur.
    """
    forwards, backwards = PENTAGONS
    shares = spectrum(first)
    is_forwards = bool(shares[forwards] >= shares[backwards])
    k = forwards if is_forwards else backwards
    angle = (torch.fft.fft(second)[k] / torch.fft.fft(first)[k]).angle()
    vertices = float(angle / (2 * torch.pi / 5))
    return vertices if is_forwards else -vertices


# ---- the finding


def look_for_pentagon(
    model: Transformer, a: Numbers, b: Numbers, seed: int = 0, n_digits: int | None = None
) -> tuple[Fields, geometry.Points, tuple[float, ...]]:
    """Look for a pentagon where the answer's second digit is predicted, after the last attention.

    (App. E, Fig. 17.) The fields have the scores of the sums without a carry-in, in the leading
    plane, which the paper shows, and in the best plane of two axes. Beside each is the score below
    which 0.99 of shuffled labels stay, in the leading plane or in the best one for each shuffle.
    The last field is the number of vertices by which the pentagon of the sums with a carry-in is
    ahead. Returned with them are all sums on the leading principal axes, and each axis' share of
    the variance.
    """
    config, n_digits = model.config, n_digits or model.config.width
    name, position = f"blocks.{config.layers - 1}.resid_mid", config.layout.answer[1 - n_digits]
    digit = sums.digits(a + b, n_digits)[:, 1]
    carry_in = carries.carry_in(n_digits)[carries.classify(a, b, n_digits), 1]
    stream = measure.activations(model, a, b, [name], read=[position])[name][:, 0]
    points, share = geometry.principal_axes(stream, [carry_in, digit])

    pairs_of_axes = list(combinations(range(geometry.AXES), 2))  # the leading plane comes first
    planes = []
    for pair in pairs_of_axes:
        planes.append(centres(points[~carry_in][:, pair], digit[~carry_in]))
    without_carry_in = torch.stack(planes)
    scores = score(without_carry_in)
    best = float(scores.max())
    reach = float(shuffled(without_carry_in[:1], seed).quantile(RANK_AMONG_SHUFFLED))
    best_reach = float(shuffled(without_carry_in, seed).quantile(RANK_AMONG_SHUFFLED))
    with_carry_in = centres(points[carry_in][:, :2], digit[carry_in])
    fields = {
        "value": float(scores[0]),
        "beyond_chance": float(scores[0]) > reach,
        "shuffled_labels_reach": reach,
        "best_plane": [axis + 1 for axis in pairs_of_axes[int(scores.argmax())]],
        "score_there": best,
        "shuffled_labels_reach_there": best_reach,
        "visible_there": best >= VISIBLE_SCORE,
        "vertices_further_with_a_one": turn(without_carry_in[0], with_carry_in),
    }
    return fields, points, share


def pentagon(model: Transformer) -> Fields:
    """Share of the digits' spread that a pentagon explains in the leading plane at 8 (App. E)."""
    return look_for_pentagon(model, *random_sums())[0]


def can_be_seen(measured: Fields, *, score: float = VISIBLE_SCORE) -> bool:
    """Return True if the leading plane has a visible pentagon, beyond shuffled labels."""
    value = measured["value"]
    return bool(value > measured["shuffled_labels_reach"] and value >= score)
