"""The schoolbook's full adder, and the parts of a network that act as its wires (App. I, Fig. 26).

A full adder adds the two digits of a column and the carry-in. It consists of two half adders and an
OR; a chain of them, one for each column, adds numbers. `parts` compares each of its wires with the
part of a network that the paper likens to it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from carry_core import carries, measure
from carry_core.interventions import INTACT
from carry_core.model import Transformer
from carry_core.sums import Numbers, digits
from carry_paper.findings.bars import Bar, at_least
from carry_paper.findings.base import Fields
from carry_paper.findings.survey import random_sums

# From this share of sums on, a part's truth table is roughly the schoolbook's: halfway from a coin
# to the truth. The paper makes "a rough comparison".
ROUGH_AGREEMENT = Bar(0.75, perfect=1, chance=0.5)
ADDED = 6_000  # random sums for the truth tables: some sixty for each pair of digits


class Wires(NamedTuple):
    """The values on the wires of a chain of full adders, one for each column (App. I).

    Attributes:
        left: The digits of the first number.
        right: The digits of the second number.
        ones: The digit sum modulo ten, from the first half adder (its XOR).
        tens: True where the digit sum is ten or more (the first half adder's AND).
        carry_in: True where the column to the right carries; nothing carries into the last.
        digit: The answer's digit, from the second half adder (its XOR).
    """

    left: Int[Tensor, "sums pos"]
    right: Int[Tensor, "sums pos"]
    ones: Int[Tensor, "sums pos"]
    tens: Bool[Tensor, "sums pos"]
    carry_in: Bool[Tensor, "sums pos"]
    digit: Int[Tensor, "sums pos"]


def schoolbook(a: Numbers, b: Numbers, width: int = 3) -> Wires:
    """Return the values of all wires of `width` full adders that compute a + b."""
    left = digits(a, width)
    right = digits(b, width)
    carry_class = carries.classify(a, b, width)
    return Wires(
        left=left,
        right=right,
        ones=(left + right) % 10,
        tens=left + right >= 10,
        carry_in=carries.carry_in(width)[carry_class],
        digit=digits(a + b, width),
    )


def linear_probe() -> Any:
    """Return a linear probe, not yet fitted: Fisher's discriminant with a shrunk covariance.

    It is scikit-learn's `LinearDiscriminantAnalysis`.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    return LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1)


def probe_predictions(
    x: Float[Tensor, "sums d_model"], label: Numbers, left: Numbers, right: Numbers
) -> Numbers:
    """Return a linear probe's predictions of `label` on pairs of digits that it was not fitted to.

    Fisher's discriminant is fitted to four fifths of the hundred pairs of digits `left` and
    `right`, and predicts the last fifth, in turn. Any label of a hundred pairs could be memorised.
    On new pairs this fails, unless the label depends on a sum of a term for each digit.
    """
    from sklearn.model_selection import PredefinedSplit, cross_val_predict

    if label.min() == label.max():
        return label
    probe = linear_probe()
    # This spreads every digit sum over all five folds.
    folds = PredefinedSplit(((left + 2 * right) % 5).numpy())
    predicted = cross_val_predict(probe, x.double().numpy(), label.numpy(), cv=folds)
    return torch.from_numpy(predicted)


class Truth(NamedTuple):
    """A wire's values in some columns of many sums, as expected and as predicted by a part."""

    columns: tuple[int, ...]  # the columns, from the left
    expected: Int[Tensor, "sums column"]  # the schoolbook's values
    predicted: Int[Tensor, "sums column"]  # by a part of the network

    @property
    def by_column(self) -> list[float]:
        """Return the share of sums on which the part is correct, column by column."""
        shares: list[float] = (self.expected == self.predicted).double().mean(0).tolist()
        return shares

    @property
    def agreement(self) -> float:
        """Return the share of sums on which the part is correct, in the worst column."""
        return min(self.by_column)


def probe(
    model: Transformer,
    resid: Float[Tensor, "sums pos d_model"],
    a: Numbers,
    b: Numbers,
    wire: str,
    start: int,
) -> Truth:
    """Return the truth table of a linear probe for a wire, on activations of the sums a + b.

    The wire is `tens` or `ones`, read at the digits from position `start` on, or `carry_in`, read
    at the answer from `start` on. The table covers the columns that can reach ten, or that can have
    a carry-in. A carry-in depends on the digits of the column to the right.
    """
    width = model.config.width
    wires = schoolbook(a, b, width)
    if wire == "carry_in":
        columns = tuple(range(width - 1))
        left, right = wires.left.roll(-1, 1), wires.right.roll(-1, 1)
    else:
        columns = tuple(range(1, width))
        left, right = wires.left, wires.right
    label = getattr(wires, wire).long()

    predictions = []
    for i in columns:
        x = resid[:, start + i]
        predictions.append(probe_predictions(x, label[:, i], left[:, i], right[:, i]))
    return Truth(columns, label[:, columns], torch.stack(predictions, 1))


def stream_names(model: Transformer) -> tuple[str, str, str]:
    """Return the streams after layer 0, before the last attention, and after it."""
    last = model.config.layers - 1
    before = f"blocks.{last - 1}.resid_post" if last > 0 else "embed"
    return "blocks.0.resid_post", before, f"blocks.{last}.resid_mid"


def parts(model: Transformer, a: Numbers, b: Numbers) -> dict[str, Truth]:
    """Return the truth table of each part that stands for a wire, on thousands of sums (App. I).

    Probes read `tens` and `ones` at the digits after layer 0, and `halfway` the ones before that
    layer's MLP. At the answer they read the carry-in before the last attention (`early`) and after
    it (`carry`). The others are answers of the model: `digit` of the intact one; `bypassed` without
    the final MLP, expected to be the digit sum modulo ten; `leaky` without the decision head.
    """
    config = model.config
    wires = schoolbook(a, b, config.width)
    first, before, after = stream_names(model)
    halfway = "blocks.0.resid_mid"
    names = dict.fromkeys([halfway, first, before, after])  # with one layer, two are the same
    resid = measure.activations(model, a, b, list(names))

    decision_head = measure.last_heads(model)[measure.decision_head(model)]
    ablations = [INTACT, measure.final_mlp(model), decision_head]
    intact, bypassed, leaky = measure.predict(model, a, b, ablations, config.width)

    columns = tuple(range(config.width))
    answer = config.layout.answer[0]
    # A decoder's first number does not see the second.
    start = config.width + 1 if config.causal else 0
    return {
        "tens": probe(model, resid[first], a, b, "tens", start),
        "ones": probe(model, resid[first], a, b, "ones", start),
        "halfway": probe(model, resid[halfway], a, b, "ones", start),
        "early": probe(model, resid[before], a, b, "carry_in", answer),
        "carry": probe(model, resid[after], a, b, "carry_in", answer),
        "digit": Truth(columns, wires.digit, intact.long()),
        "bypassed": Truth(columns, wires.ones, bypassed.long()),
        "leaky": Truth(columns, wires.digit, leaky.long()),
    }


CLAIMED = ("tens", "ones", "carry", "digit", "bypassed")


def claimed(parts: Mapping[str, Truth]) -> dict[str, float]:
    """Return the agreement of each part that the paper likens to a wire of the adder."""
    return {name: parts[name].agreement for name in CLAIMED}


def full_adder(model: Transformer) -> Fields:
    """Lowest agreement of a part with the schoolbook's truth table, worst column (App. I, Fig. 26).

    The model has to be one of three-digit sums.
    """
    truth_by_part = parts(model, *random_sums(3, ADDED))
    agreement = claimed(truth_by_part)
    return {
        "value": min(agreement.values()),
        **agreement,
        "first_layer": min(agreement["tens"], agreement["ones"]),
        "carry_before_the_last_attention": truth_by_part["early"].by_column,
    }


def first_layer_adds(measured: Fields, *, agreement: float = ROUGH_AGREEMENT) -> bool:
    """Return True if the first layer of `full_adder` is a half adder: digit sum and ten or more."""
    return bool(min(measured["tens"], measured["ones"]) >= agreement)


def attention_is_the_carry_line(measured: Fields, *, agreement: float = ROUGH_AGREEMENT) -> bool:
    """Return True if the carry-in of `full_adder` comes with the last attention.

    It can be read after that attention in both columns, and before it in neither.
    """
    before = measured["carry_before_the_last_attention"]
    return bool(measured["carry"] >= agreement > max(before))


# Without its final MLP, `full_adder` answers the digit sum modulo ten.
mlp_is_the_second_xor = at_least(ROUGH_AGREEMENT, "bypassed")

# ---- truth tables, for the figure


# The cases of a column, which decide whether it carries: a digit sum from 0 to 8, 9 without a
# carry-in, 9 with a carry-in, 10 to 18.
CASES = 4


def truth_tables(truths: Mapping[str, Truth], wires: Wires) -> dict[str, NDArray[Any]]:
    """Return the truth tables of `parts` (Fig. 26).

    A part's table has its most frequent value for each pair of inputs on which it should depend,
    or -1 if no sum has the pair. The inputs of `tens` and `ones` are the two digits; those of
    `early` and `carry` are the column to the right, by its case of `CASES`, and the column itself;
    those of the answers are the carry-in and the digit sum modulo ten. The table `…_share` has the
    share of sums with these inputs on which the part agrees with the schoolbook. There is no table
    for `halfway`.
    """
    digit_sum = 10 * wires.tens + wires.ones
    case = torch.where(
        digit_sum >= 10, 3, torch.where(digit_sum == 9, 1 + wires.carry_in.long(), 0)
    )
    column = torch.arange(case.shape[1]).expand_as(case)
    digits = ((10, 10), wires.left, wires.right)
    carry_line = ((CASES, case.shape[1] - 1), case.roll(-1, 1), column)
    answer = ((2, 10), wires.carry_in.long(), wires.ones)
    axes_by_part = {
        **dict.fromkeys(("tens", "ones"), digits),
        **dict.fromkeys(("early", "carry"), carry_line),
        **dict.fromkeys(("digit", "bypassed", "leaky"), answer),
    }
    tables = {}
    for name, (shape, row, column) in axes_by_part.items():
        truth = truths[name]
        columns = list(truth.columns)
        frame = pd.DataFrame(
            {
                "row": row[:, columns].flatten(),
                "column": column[:, columns].flatten(),
                "value": truth.predicted.flatten(),
                "agrees": (truth.expected == truth.predicted).flatten(),
            }
        )
        cells = frame.groupby(["row", "column"])
        pairs = pd.MultiIndex.from_product([range(shape[0]), range(shape[1])])
        most_frequent = cells.value.agg(lambda values: values.mode()[0])
        tables[name] = most_frequent.reindex(pairs, fill_value=-1).to_numpy().reshape(shape)
        tables[f"{name}_share"] = cells.agrees.mean().reindex(pairs).to_numpy().reshape(shape)
    return tables
