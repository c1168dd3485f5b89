"""A language model's residual stream where it predicts the digits of its answer (Sec. 6, Fig. 6, App. G)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from scipy.stats import spearmanr

from carry_core import tasks
from carry_core.errors import BadInput
from carry_core.geometry import Plane, apart, apart_on_all_axes, pocket_accuracy, threshold_accuracy
from carry_core.llm.answers import WIDTH
from carry_core.llm.prompts import DIGITS
from carry_core.llm.recorded import Recording
from carry_core.llm.survey import Survey, label

AFTER = ("attention", "MLP")
FEWEST = 50  # prompts with a right digit, below which nothing is said about a position


def planes(survey: Survey, layer: int) -> list[Plane]:
    """The stream of a layer at each digit of the answer, after attention and after MLP: a column of Fig. 6 each.

    Only prompts whose digit there is right and a token of its own count. Sums are told apart by whether a one arrives.
    """
    found = []
    pairs = survey.answers.pairs
    a, b = pairs.unbind(1)
    task = tasks.classify(a, b, WIDTH)
    for output in positions(survey):
        there = survey.spelled[:, output]
        digit, arrives = label(pairs, output)
        for after, name in enumerate(AFTER):
            points = survey.points[layer, after, output, there]
            share = tuple(survey.share[layer, after, output].tolist())
            found.append(Plane(layer, name, output, points, share, digit[there], task[there], arrives[there]))
    return found


def check_layer(found: Survey | Recording, layer: int | None) -> None:
    """See that the model has this layer; None is any.

    Raises:
        BadInput: it has not.
    """
    last = found.counts.shape[0] - 1
    if layer is not None and (type(layer) is not int or not 0 <= layer <= last):
        raise BadInput(f"layer={layer!r}: expected None or a layer of {found.title}, from 0 to {last}.")


def positions(survey: Survey) -> list[int]:
    """The digits of the answer, from the left, that enough prompts have right."""
    return [i for i in range(DIGITS) if int(survey.spelled[:, i].sum()) >= FEWEST]


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
    "a one arrives, in the plane": apart,
    "a one arrives, on six axes": apart_on_all_axes,
    "pockets by digit": lambda plane: pocket_accuracy(plane.points, plane.digit),
}


def separations(survey: Survey, measures: dict[str, Measure] | None = None) -> list[Separation]:
    """The measures at every layer, for each digit of the answer."""
    measures = MEASURES if measures is None else measures
    every = [planes(survey, layer) for layer in range(survey.counts.shape[0])]
    return [
        Separation(output, {
            name: [measure(plane) for layer in every for plane in layer[2 * i : 2 * i + 2]]
            for name, measure in measures.items()
        })
        for i, output in enumerate(positions(survey))
    ]  # fmt: skip


def clearest_layer(found: Sequence[Separation], measure: str = "a one arrives, in the plane") -> int:
    """The first layer after whose MLP the sides are farthest apart, averaged over the digits of the answer."""
    values = [s.values[measure][1::2] for s in found]
    averages = [mean(column) for column in zip(*values, strict=True)]
    return averages.index(max(averages))


def first_carry(survey: Survey) -> dict[str, Measure]:
    """App. G's measures of the leading axis: the carry at the first digit, the carry here, and the digit's order."""
    first = label(survey.answers.pairs, 0)[1]

    def at_first(plane: Plane) -> float:
        return threshold_accuracy(plane.points[:, 0], first[survey.spelled[:, plane.position]])

    def order(plane: Plane) -> float:
        if plane.digit.unique().numel() < 2:
            return float("nan")
        return abs(float(spearmanr(plane.points[:, 0], plane.digit).statistic))

    return {
        "a one arrives at the first digit": at_first,
        "a one arrives here": lambda plane: threshold_accuracy(plane.points[:, 0], plane.split),
        "order of the digit": order,
    }
