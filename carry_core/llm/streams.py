"""A language model's residual stream where it predicts the digits of its answer (Sec. 6, Fig. 6, App. G)."""

from collections.abc import Callable

import pandas as pd

from carry_core import carries
from carry_core.findings.geometry import Plane, apart, apart_on_all_axes, pocket_accuracy
from carry_core.llm.prompts import DIGITS, WIDTH, digit_and_carry
from carry_core.llm.survey import Survey

MIN_PROMPTS = 50  # with a right digit, below which nothing is said about a position
MEASURES: dict[str, Callable[[Plane], float]] = {
    "carry-in, on one of two axes": apart,
    "carry-in, on six axes": apart_on_all_axes,
    "nearest centre is the digit’s": lambda plane: pocket_accuracy(plane.points, plane.digit),
}


def planes(survey: Survey, layer: int) -> list[Plane]:
    """The stream of a layer at each digit of the answer, after attention and after MLP: a column of Fig. 6 each.

    Only prompts whose digit there is right and a token of its own count, and digits that 50 prompts or more have. The
    two sides are sums with a carry-in and without.
    """
    planes = []
    pairs = survey.answers.pairs
    a, b = pairs.unbind(1)
    carry_class = carries.classify(a, b, WIDTH)
    for output in range(DIGITS):
        right = survey.spelled[:, output]
        if right.sum() < MIN_PROMPTS:
            continue
        digit, carry = digit_and_carry(pairs, output)
        for after, name in enumerate(("attention", "MLP")):
            points = survey.points[layer, after, output, right]
            share = tuple(survey.share[layer, after, output].tolist())
            planes.append(Plane(layer, name, output, points, share, digit[right], carry_class[right], carry[right]))
    return planes


def separations(survey: Survey, measures: dict[str, Callable[[Plane], float]] = MEASURES) -> pd.DataFrame:
    """How the stream is ordered: a column for each measure, a row for each digit (`output`, from 0), layer and part."""
    rows = [
        {"output": plane.position, "layer": layer, "after": plane.after}
        | {name: measure(plane) for name, measure in measures.items()}
        for layer in range(len(survey.counts))
        for plane in planes(survey, layer)
    ]
    return pd.DataFrame(rows, columns=["output", "layer", "after", *measures])
