"""Digits as a pentagon of pairs at distance five, in the residual stream before the last MLP (App. E, Fig. 17)."""

from itertools import combinations

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from carry_core import carries, measure, sums
from carry_core.model import Transformer
from carry_core.sums import Numbers
from carry_paper.findings import geometry
from carry_paper.findings.base import Fields
from carry_paper.findings.survey import random_sums

SHUFFLES = 2_000
RANK_AMONG_SHUFFLED = 0.99  # share of shuffled labels whose score a pentagon has to exceed
VISIBLE_SCORE = 0.9  # from which one can see it


def centres(points: Float[Tensor, "sums 2"], digit: Int[Tensor, " sums"]) -> Complex[Tensor, " 10"]:
    """The middle of each digit's sums in a plane, as a complex number; NaN for a digit that does not occur."""
    return torch.view_as_complex(
        torch.stack([points[digit == d].double().mean(0) for d in range(10)])
    )


def spectrum(centre: Complex[Tensor, "*batch 10"]) -> Float[Tensor, "*batch 10"]:
    """How the spread of ten centres divides over the regular polygons k, where digit d lies at the angle k d 36°.

    2 and 8 are pentagons of pairs at distance five in the order of the digits, 1 and 9 the ten
    digits in a circle.
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


def look_for_pentagon(
    model: Transformer, a: Numbers, b: Numbers, seed: int = 0, n_digits: int | None = None
) -> tuple[Fields, geometry.Points, tuple[float, ...]]:
    """Look for a pentagon where the answer's second digit is predicted, after the last attention (App. E, Fig. 17).

    Returned are a row of `finding/pentagon`, all sums on the leading principal axes, and each axis'
    share of the variance. The row has the scores of the sums with no carry-in, in the leading
    plane, which the paper shows, and in the best plane of two axes; beside each what 0.99 of
    shuffled labels stay below, in that plane or in their own best one; and by how many vertices the
    pentagon of the sums with a carry-in is ahead.
    """
    config, n_digits = model.config, n_digits or model.config.width
    name, position = f"blocks.{config.layers - 1}.resid_mid", config.layout.answer[1 - n_digits]
    digit = sums.digits(a + b, n_digits)[:, 1]
    carry_in = carries.carry_in(n_digits)[carries.classify(a, b, n_digits), 1]
    stream = measure.activations(model, a, b, [name])[name][:, position]
    points, share = geometry.principal_axes(stream, [carry_in, digit])
    pairs = list(combinations(range(geometry.AXES), 2))
    planes = torch.stack([centres(points[~carry_in][:, pair], digit[~carry_in]) for pair in pairs])
    scores, chance, anywhere = score(planes), shuffled(planes[:1], seed), shuffled(planes, seed)
    leading, best = float(scores[0]), float(scores.max())
    reach = float(chance.quantile(RANK_AMONG_SHUFFLED))
    row = {
        "value": leading,
        "beyond_chance": leading > reach,
        "shuffled_labels_reach": reach,
        "best_plane": [axis + 1 for axis in pairs[int(scores.argmax())]],
        "score_there": best,
        "shuffled_labels_reach_there": float(anywhere.quantile(RANK_AMONG_SHUFFLED)),
        "visible_there": best >= VISIBLE_SCORE,
        "vertices_further_with_a_one": turn(
            planes[0], centres(points[carry_in][:, :2], digit[carry_in])
        ),
    }
    return row, points, share


def turn(one: Complex[Tensor, " 10"], other: Complex[Tensor, " 10"]) -> float:
    """By how many vertices, -2.5 to 2.5, the best pentagon of `other` is ahead of `one`'s; NaN with too few digits."""
    way = 2 if spectrum(one)[2] >= spectrum(one)[8] else 8
    angle = (torch.fft.fft(other)[way] / torch.fft.fft(one)[way]).angle()
    return float(angle / (2 * torch.pi / 5)) * (1 if way == 2 else -1)


def can_be_seen(row: Fields) -> bool:
    """Tell whether the leading plane has a pentagon that one can see, and more of one than shuffled labels give."""
    return bool(row["value"] > row["shuffled_labels_reach"] and row["value"] >= VISIBLE_SCORE)


def pentagon(model: Transformer) -> Fields:
    """Share of the spread of the ten digits that a pentagon explains in the leading plane at 8 (App. E, Fig. 17)."""
    return look_for_pentagon(model, *random_sums())[0]
