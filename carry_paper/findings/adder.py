"""The schoolbook's full adder, digit by digit, and what the network's parts do in its place (App. I, Fig. 26, 1)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from torch import Tensor

from carry_core import carries, measure, sums
from carry_core.interventions import INTACT
from carry_core.model import Transformer
from carry_core.sums import Numbers
from carry_paper.findings.base import Fields
from carry_paper.findings.survey import random_sums

AGREEMENT = 0.99  # share of sums from which a part's truth table counts as the schoolbook's
ADDED = 6_000  # random sums for the truth tables: some sixty for each pair of digits


class Wires(NamedTuple):
    """What flows through a chain of full adders, one for each column (App. I)."""

    left: Int[Tensor, "sums pos"]  # the digits of a
    right: Int[Tensor, "sums pos"]  # and of b
    ones: Int[Tensor, "sums pos"]  # the digit sum modulo ten, from the first half adder (its XOR)
    tens: Bool[Tensor, "sums pos"]  # whether the digit sum is ten or more (its AND)
    # the carry line: what the column to the right hands on; nothing at the last
    carry_in: Bool[Tensor, "sums pos"]
    digit: Int[Tensor, "sums pos"]  # the answer's digit, from the second half adder (its XOR)


def schoolbook(a: Numbers, b: Numbers, width: int = 3) -> Wires:
    """Every wire of `width` full adders, each of two half adders and an OR, that pass their carry to the left."""
    left, right = sums.digits(a, width), sums.digits(b, width)
    carry_in = carries.carry_in(width)[carries.classify(a, b, width)]
    return Wires(
        left, right, (left + right) % 10, left + right >= 10, carry_in, sums.digits(a + b, width)
    )


def linear_probe() -> LinearDiscriminantAnalysis:
    """Return a linear probe, not yet fitted: Fisher's discriminant with a shrunk covariance."""
    return LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1)


def read(
    x: Float[Tensor, "sums d_model"], label: Numbers, left: Numbers, right: Numbers
) -> Numbers:
    """What a linear probe finds of `label` in a stream, for pairs of digits `left`, `right` that it was not fitted on.

    Fisher's discriminant, fitted on four fifths of the hundred pairs and asked about the last, in
    turn. Any label of a hundred pairs could be learned by heart; on new pairs that fails unless it
    is a sum of a part for each digit.
    """
    if label.min() == label.max():
        return label
    probe = linear_probe()
    # every digit sum is spread over all of them
    folds = PredefinedSplit(((left + 2 * right) % 5).numpy())
    return torch.from_numpy(cross_val_predict(probe, x.double().numpy(), label.numpy(), cv=folds))


class Truth(NamedTuple):
    """What a part should say (the schoolbook's) and what it says (the network's), in some of a sum's columns."""

    columns: tuple[int, ...]
    expected: Int[Tensor, "sums column"]
    found: Int[Tensor, "sums column"]

    @property
    def by_column(self) -> list[float]:
        """The share of sums for which the part is right, column by column."""
        shares: list[float] = (self.expected == self.found).double().mean(0).tolist()
        return shares

    @property
    def agreement(self) -> float:
        """The same in the column where it is lowest."""
        return min(self.by_column)


def probe(
    model: Transformer,
    stream: Float[Tensor, "sums pos d_model"],
    a: Numbers,
    b: Numbers,
    wire: str,
    start: int,
) -> Truth:
    """Whether a stream tells `tens` or `ones` at the digits from `start` on, or at the answer the `carry_in`.

    In the columns that can reach ten, or can have a carry-in; that depends on the digits of the
    column to the right.
    """
    width, wires, shift = (
        model.config.width,
        schoolbook(a, b, model.config.width),
        int(wire == "carry_in"),
    )
    columns = tuple(range(width - 1) if wire == "carry_in" else range(1, width))
    label, left, right = (
        getattr(wires, wire).long(),
        wires.left.roll(-shift, 1),
        wires.right.roll(-shift, 1),
    )
    found = [read(stream[:, start + i], label[:, i], left[:, i], right[:, i]) for i in columns]
    return Truth(columns, label[:, columns], torch.stack(found, 1))


def stream_names(model: Transformer) -> tuple[str, str, str]:
    """Where the parts are read: after the first layer, before the last attention, and after it."""
    last = model.config.layers - 1
    return (
        "blocks.0.resid_post",
        f"blocks.{last - 1}.resid_post" if last else "embed",
        f"blocks.{last}.resid_mid",
    )


def parts(model: Transformer, a: Numbers, b: Numbers) -> dict[str, Truth]:
    """The parts of a network beside those of a full adder (App. I), each with its truth table on thousands of sums.

    After the first layer, at the digits, `tens` and `ones`, and the ones `halfway`, before its MLP;
    the carry-in at the answer before the last attention (`early`) and after it (`carry`); the
    answer's `digit`, `bypassed` without the final MLP, where the sum modulo ten is left, and
    `leaky` without the decision head.
    """
    config, wires = model.config, schoolbook(a, b, model.config.width)
    first, before, after = stream_names(model)
    halfway = "blocks.0.resid_mid"
    stream = measure.activations(model, a, b, list(dict.fromkeys([halfway, first, before, after])))
    ablations = [
        INTACT,
        measure.final_mlp(model),
        measure.last_heads(model)[measure.decision_head(model)],
    ]
    intact, bypassed, leaky = (
        x.long() for x in measure.predict(model, a, b, ablations, config.width)
    )
    every, answer = tuple(range(config.width)), config.layout.answer[0]
    # a decoder's first number does not see the second
    start = config.width + 1 if config.causal else 0
    return {
        "tens": probe(model, stream[first], a, b, "tens", start),
        "ones": probe(model, stream[first], a, b, "ones", start),
        "halfway": probe(model, stream[halfway], a, b, "ones", start),
        "early": probe(model, stream[before], a, b, "carry_in", answer),
        "carry": probe(model, stream[after], a, b, "carry_in", answer),
        "digit": Truth(every, wires.digit, intact),
        "bypassed": Truth(every, wires.ones, bypassed),
        "leaky": Truth(every, wires.digit, leaky),
    }


def claimed(parts: Mapping[str, Truth]) -> dict[str, float]:
    """The agreement of every part that the paper likens to one of the adder's."""
    return {name: parts[name].agreement for name in ("tens", "ones", "carry", "digit", "bypassed")}


def is_full_adder(lowest: Any, early: Any) -> Any:
    """Tell whether a network is a full adder, or each of some: from numbers, or a series of each.

    The `lowest` agreement of what is `claimed` has to be the schoolbook's, and the carry line may
    not be there before its time: `early` is its agreement before the last attention, in the better
    column.
    """
    return (lowest >= AGREEMENT) & (early < AGREEMENT)


def shows_full_adder(row: Fields) -> bool:
    """Tell the same from a row of the finding."""
    return bool(is_full_adder(row["value"], max(row["carry_before_the_last_attention"])))


def full_adder(model: Transformer) -> Fields:
    """The lowest agreement of a part with the schoolbook's truth table, in the worst column (App. I, Fig. 26)."""
    found = parts(model, *random_sums(3, ADDED))
    agreement = claimed(found)
    early = {"carry_before_the_last_attention": found["early"].by_column}
    return {"value": min(agreement.values())} | agreement | early


# ---- truth tables, for the figure


# A column's digit sum by the carry that it hands on: 0 to 8, 9 without a carry-in, 9 with one, 10 to 18.
CASES = 4


def truth_tables(truths: Mapping[str, Truth], wires: Wires) -> dict[str, NDArray[Any]]:
    """Return the truth tables of `parts` (Fig. 26).

    A part's table has its most frequent value for each pair of what it should depend on,
    -1 where no sum has the pair: the two digits for `tens` and `ones`; for `early` and
    `carry` the case of `CASES` of the column to the right, and the column; for the others
    the carry-in and the digit sum modulo ten. As `…_share` it has how often the part
    agrees with the schoolbook there.
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
                "value": truth.found.flatten(),
                "agrees": (truth.expected == truth.found).flatten(),
            }
        )
        cells = frame.groupby(["row", "column"])
        pairs = pd.MultiIndex.from_product([range(shape[0]), range(shape[1])])
        most_frequent = cells.value.agg(lambda values: values.mode()[0])
        tables[name] = most_frequent.reindex(pairs, fill_value=-1).to_numpy().reshape(shape)
        tables[f"{name}_share"] = cells.agrees.mean().reindex(pairs).to_numpy().reshape(shape)
    return tables
