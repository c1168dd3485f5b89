"""A language model's residual stream where it predicts the digits of its answer (Sec. 6, Fig. 6, App. G)."""

from collections.abc import Callable
from dataclasses import dataclass

from carry_core import carries
from carry_core.findings.geometry import Plane, apart, apart_on_all_axes, pocket_accuracy
from carry_core.llm.prompts import DIGITS, WIDTH, digit_and_carry
from carry_core.llm.survey import Survey

AFTER = ("attention", "MLP")
MIN_PROMPTS = 50  # with a right digit, below which nothing is said about a position


def planes(survey: Survey, layer: int) -> list[Plane]:
    """The stream of a layer at each digit of the answer, after attention and after MLP: a column of Fig. 6 each.

    Only prompts whose digit there is right and a token of its own count. The two sides are sums with a carry-in and
    without.
    """
    planes = []
    pairs = survey.answers.pairs
    a, b = pairs.unbind(1)
    carry_class = carries.classify(a, b, WIDTH)
    for output in positions(survey):
        right = survey.spelled[:, output]
        digit, carry = digit_and_carry(pairs, output)
        for after, name in enumerate(AFTER):
            points = survey.points[layer, after, output, right]
            share = tuple(survey.share[layer, after, output].tolist())
            planes.append(Plane(layer, name, output, points, share, digit[right], carry_class[right], carry[right]))
    return planes


def positions(survey: Survey) -> list[int]:
    """The digits of the answer, from the left, that enough prompts have right."""
    return [i for i in range(DIGITS) if int(survey.spelled[:, i].sum()) >= MIN_PROMPTS]


@dataclass(frozen=True)
class Separation:
    """How the stream of one position is ordered, after the attention and the MLP of every layer.

    Attributes:
        output: which digit of the answer is predicted there.
        values: for each measure, one value for each layer and for after attention and after MLP, in order.
    """

    output: int
    values: dict[str, list[float]]


Measure = Callable[[Plane], float]
MEASURES: dict[str, Measure] = {
    "carry-in, on one of two axes": apart,
    "carry-in, on six axes": apart_on_all_axes,
    "nearest centre is the digit’s": lambda plane: pocket_accuracy(plane.points, plane.digit),
}


def separations(survey: Survey, measures: dict[str, Measure] | None = None) -> list[Separation]:
    """The measures at every layer, for each digit of the answer."""
    measures = MEASURES if measures is None else measures
    layers = [planes(survey, layer) for layer in range(survey.counts.shape[0])]
    result = []
    for i, output in enumerate(positions(survey)):
        column = [plane for layer in layers for plane in layer[2 * i : 2 * i + 2]]
        result.append(Separation(output, {name: [*map(measure, column)] for name, measure in measures.items()}))
    return result
