"""The schoolbook's full adder, digit by digit, and what the network's parts do in its place (App. I, Fig. 26, 1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from torch import Tensor

from carry_core import measure, sums
from carry_core.errors import BadInput
from carry_core.findings.base import MAIN, Measurement, finding, measurement
from carry_core.findings.survey import Evidence
from carry_core.interventions import INTACT, Ablation
from carry_core.model import Transformer, cache_hook

FOLDS = 5
AGREEMENT = 0.99  # share of sums from which a part's truth table counts as the schoolbook's
ADDED = 6_000  # random sums for the truth tables: some sixty for each pair of digits


@dataclass(frozen=True)
class Wires:
    """What flows through a chain of full adders, one for each column (App. I).

    Attributes:
        left: the digits of a.
        right: the digits of b.
        ones: the digit sum modulo ten, from the first half adder (its XOR).
        tens: whether the digit sum is ten or more (its AND).
        arrives: the carry line: what the column to the right hands on; nothing at the last one.
        digit: the answer's digit, from the second half adder (its XOR).
    """

    left: Int[Tensor, "sums pos"]
    right: Int[Tensor, "sums pos"]
    ones: Int[Tensor, "sums pos"]
    tens: Bool[Tensor, "sums pos"]
    arrives: Bool[Tensor, "sums pos"]
    digit: Int[Tensor, "sums pos"]


def half_adder(
    x: Int[Tensor, "*batch"], y: Int[Tensor, "*batch"]
) -> tuple[Int[Tensor, "*batch"], Bool[Tensor, "*batch"]]:
    """The sum of two digits modulo ten, and whether it is ten or more."""
    return (x + y) % 10, x + y >= 10


def schoolbook(a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], width: int = 3) -> Wires:
    """Every wire of `width` full adders, each of two half adders and an OR, that pass their carry to the left."""
    left, right = sums.digits(a, width), sums.digits(b, width)
    ones, tens = half_adder(left, right)
    arrives, digit = torch.zeros_like(tens), torch.zeros_like(ones)
    for i in range(width - 1, -1, -1):
        digit[:, i], over = half_adder(ones[:, i], arrives[:, i].long())
        if i:
            arrives[:, i - 1] = tens[:, i] | over
    return Wires(left, right, ones, tens, arrives, digit)


def read(
    x: Float[Tensor, "sums d_model"],
    label: Int[Tensor, " sums"],
    left: Int[Tensor, " sums"],
    right: Int[Tensor, " sums"],
) -> Int[Tensor, " sums"]:
    """What a linear reader finds of `label` in a stream, for digit pairs that it was not fitted on.

    Fisher's discriminant (its covariance shrunk by a tenth), fitted on four fifths of the hundred pairs of digits and
    asked about the last fifth, in turn. A stream that merely holds both digits could have any label of a hundred
    pairs learned by heart; on new pairs it fails wherever the label is no sum of a part for each digit.

    Args:
        x: a stream at one position.
        label: what to read; where all are the same, that is the answer.
        left: the digit of a that `label` depends on.
        right: the digit of b.
    """
    if label.min() == label.max():
        return label
    reader = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1)
    folds = PredefinedSplit(((left + 2 * right) % FOLDS).numpy())  # every digit sum is spread over all of them
    return torch.from_numpy(cross_val_predict(reader, x.double().numpy(), label.numpy(), cv=folds))


@dataclass(frozen=True)
class Truth:
    """What a part should say, and what it says.

    Attributes:
        columns: which of the sum's columns, 0 for the leftmost.
        expected: the schoolbook's.
        found: the network's.
    """

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


@dataclass(frozen=True)
class Parts:
    """The parts of a network beside those of a full adder (App. I), each with its truth table.

    Attributes:
        wires: the schoolbook's, for the same sums.
        tens: after the first layer, at the digits: whether their sum is ten or more.
        ones: the same place: the sum modulo ten.
        halfway: the same before the first layer's MLP.
        early: before the last attention, at the answer's positions: whether a one arrives.
        carry: the same after the last attention.
        digit: the answer's digit.
        bypassed: the digit without the final MLP, where a direct connection would leave the sum modulo ten.
        leaky: the digit without the decision head.
    """

    wires: Wires
    tens: Truth
    ones: Truth
    halfway: Truth
    early: Truth
    carry: Truth
    digit: Truth
    bypassed: Truth
    leaky: Truth

    @property
    def claimed(self) -> dict[str, float]:
        """The agreement of every part that the paper likens to one of the adder's."""
        names = ("tens", "ones", "carry", "digit", "bypassed")
        return {name: getattr(self, name).agreement for name in names}


def half_adders(
    model: Transformer,
    stream: Float[Tensor, "sums pos d_model"],
    a: Int[Tensor, " sums"],
    b: Int[Tensor, " sums"],
    *,
    second: bool = False,
) -> tuple[Truth, Truth]:
    """Whether the stream after the first layer tells a column's tens and ones, in the columns that can reach ten.

    Read at the digits of a; at those of b if `second`, and in a decoder, where a's digits cannot see them.
    """
    width, wires = model.config.width, schoolbook(a, b, model.config.width)
    columns = tuple(range(1, width))
    start = width + 1 if second or model.config.causal else 0
    return (
        _truth(stream, [start + i for i in columns], columns, wires.tens, columns, a, b, width),
        _truth(stream, [start + i for i in columns], columns, wires.ones, columns, a, b, width),
    )


def carry_line(
    model: Transformer, stream: Float[Tensor, "sums pos d_model"], a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]
) -> Truth:
    """Whether a stream tells that a one arrives, at the answer's positions where it can.

    On digit pairs of the column to the right that the reader was not fitted on.
    """
    width, wires = model.config.width, schoolbook(a, b, model.config.width)
    columns, to_right = tuple(range(width - 1)), tuple(range(1, width))
    return _truth(stream, model.config.layout.answer[:-1], columns, wires.arrives, to_right, a, b, width)


def _truth(
    stream: Tensor, positions: Sequence[int], columns: tuple[int, ...], label: Tensor, depends: tuple[int, ...],
    a: Tensor, b: Tensor, width: int,
) -> Truth:  # fmt: skip
    left, right, found = sums.digits(a, width), sums.digits(b, width), []
    for position, i, j in zip(positions, columns, depends, strict=True):
        found.append(read(stream[:, position], label[:, i].long(), left[:, j], right[:, j]))
    return Truth(columns, label[:, columns].long(), torch.stack(found, 1))


def sites(model: Transformer) -> tuple[str, str, str]:
    """Where the parts are read: after the first layer, before the last attention, and after it."""
    last = model.config.layers - 1
    return "blocks.0.resid_post", f"blocks.{last - 1}.resid_post" if last else "embed", f"blocks.{last}.resid_mid"


def parts(model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]) -> Parts:
    """Measure every part on the given sums: some thousands, so that every pair of digits occurs often."""
    config, wires = model.config, schoolbook(a, b, model.config.width)
    first, before, after = sites(model)
    halfway = "blocks.0.resid_mid"
    stream = measure.activations(model, a, b, list(dict.fromkeys([halfway, first, before, after])))
    edits = [INTACT, measure.final_mlp(model), *measure.last_heads(model)]
    acting = edits
    intact, without, *headless = measure.predict(model, a, b, acting, config.width)
    leaky = headless[measure.decision_head(model)]
    tens, ones = half_adders(model, stream[first], a, b)
    every = tuple(range(config.width))
    return Parts(
        wires,
        tens,
        ones,
        halfway=half_adders(model, stream[halfway], a, b)[1],
        early=carry_line(model, stream[before], a, b),
        carry=carry_line(model, stream[after], a, b),
        digit=Truth(every, wires.digit, intact.long()),
        bypassed=Truth(every, wires.ones, without.long()),
        leaky=Truth(every, wires.digit, leaky.long()),
    )


CASES = ("8 or less", "9, none arrives", "9, a one arrives", "10 or more")


def carry_case(wires: Wires, column: int) -> Int[Tensor, " sums"]:
    """Which of `CASES` the digits of a column are: what decides whether it hands on a one."""
    total = wires.ones[:, column] + 10 * wires.tens[:, column]
    return torch.where(total >= 10, 3, torch.where(total == 9, 1 + wires.arrives[:, column].long(), 0))


def tabulate(
    shape: tuple[int, int],
    expected: Int[Tensor, " sums"],
    found: Int[Tensor, " sums"],
    row: Int[Tensor, " sums"],
    column: Int[Tensor, " sums"],
) -> tuple[Int[Tensor, "row column"], Float[Tensor, "row column"]]:
    """A measured truth table: what is found most often in each cell (-1 in an empty one), and how often that is right.

    Args:
        shape: rows and columns of the table.
        expected: what is right.
        found: what is said.
        row: each sum's row.
        column: each sum's column.
    """
    cell = row * shape[1] + column
    counts = torch.zeros(shape[0] * shape[1], int(found.max()) + 1, dtype=torch.int64)
    counts.index_put_((cell, found), torch.ones_like(cell), accumulate=True)
    right = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, cell, (found == expected).double())
    often = torch.where(counts.sum(1) > 0, counts.argmax(1), -1)
    return often.view(shape), (right / counts.sum(1)).view(shape)


@dataclass(frozen=True)
class Trace:
    """One sum on its way through a run (Fig. 1).

    Attributes:
        first: attention of the first layer's heads.
        last: attention of the last layer's heads.
        last_layer: its number.
        decision_head: which of its heads decides.
        tens: at the digits' positions, whether the stream after the first layer is read as ten or more.
        ones: the same for the digit sum modulo ten.
        arrives: at the answer's positions, whether the stream after the last attention is read as a one arriving.
        answers: by what is taken out, each digit of the answer and its probability.
    """

    a: int
    b: int
    layout: sums.Layout
    first: Float[Tensor, "head query key"]
    last: Float[Tensor, "head query key"]
    last_layer: int
    decision_head: int
    tens: dict[int, bool]
    ones: dict[int, int]
    arrives: dict[int, bool]
    answers: dict[str, list[tuple[int, float]]]

    def said(self, without: str) -> list[int]:
        """The digits of an answer: `intact`, or without the `head` or the `MLP`."""
        return [digit for digit, _ in self.answers[without]]

    def departs(self) -> list[str]:
        """What of the paper's drawing does not hold here: nothing where all is as the schoolbook has it (Fig. 1)."""
        wires = schoolbook(torch.tensor([self.a]), torch.tensor([self.b]), self.layout.width)
        ones, tens, arrives, digit = (x[0].tolist() for x in (wires.ones, wires.tens, wires.arrives, wires.digit))
        columns = {position: position % (self.layout.width + 1) for position in self.tens}
        leaky = zip(self.said("head"), digit, arrives, strict=True)
        holds = {
            "the digit sums that are read": all(
                (self.tens[p], self.ones[p]) == (tens[i], ones[i]) for p, i in columns.items()
            ),
            "where a one is read to arrive": list(self.arrives.values()) == arrives[:-1],
            "the answer": self.said("intact") == digit,
            "the answer without the decision head": all(
                x == right or (x == (right + 1) % 10 and not one) for x, right, one in leaky
            ),
            "the answer without the final MLP": self.said("MLP") == ones,
        }
        return [name for name, agrees in holds.items() if not agrees]


@torch.inference_mode()
def trace(
    model: Transformer, a: int, b: int, others: tuple[Int[Tensor, " sums"], Int[Tensor, " sums"]], decision_head: int
) -> Trace:
    """Follow `a + b` through the model (Fig. 1).

    Args:
        model: the run.
        a: first number.
        b: second number.
        others: some thousands of sums that the linear readers are fitted on, as `read` does.
        decision_head: of the last layer's heads, the one that decides.

    Raises:
        BadInput: the model has one layer only, or the sum is none that it has an answer for.
    """
    config, layout = model.config, model.config.layout
    sums.parse(f"{a}+{b}", config.width)
    if config.layers < 2:
        raise BadInput(f"A trace needs a layer that adds and a layer that carries: this model has {config.layers}.")
    one_a, one_b = torch.tensor([a]), torch.tensor([b])
    all_a, all_b = torch.cat([others[0], one_a]), torch.cat([others[1], one_b])
    first, _, after = sites(model)
    stream = measure.activations(model, all_a, all_b, [first, after])
    tens, ones = {}, {}
    for second in (True,) if config.causal else (False, True):
        start = config.width + 1 if second else 0
        found = half_adders(model, stream[first], all_a, all_b, second=second)
        for i, column in enumerate(found[0].columns):
            tens[start + column] = bool(found[0].found[-1, i])
            ones[start + column] = int(found[1].found[-1, i])
    carry = carry_line(model, stream[after], all_a, all_b).found[-1]
    kept: dict[str, Tensor] = {}
    tokens, last = sums.encode(one_a, one_b, layout), config.layers - 1
    model(tokens, cache_hook(kept))
    answers = {}
    head = Ablation(heads=frozenset({(last, decision_head)}))
    for name, ablation in {"intact": INTACT, "head": head, "MLP": measure.final_mlp(model)}.items():
        probability = model(tokens, ablation.hook(model), layout.answer)[0].softmax(-1)
        answers[name] = [(int(row.argmax()), float(row.max())) for row in probability]
    return Trace(
        a, b, layout, kept["blocks.0.attn.pattern"][0], kept[f"blocks.{last}.attn.pattern"][0], last, decision_head,
        tens, ones, dict(zip(layout.answer[:-1], map(bool, carry), strict=True)), answers,
    )  # fmt: skip


def is_full_adder(parts: Parts) -> bool:
    """Whether every part's truth table is the schoolbook's, and the carry line is nowhere there before its time."""
    return min(parts.claimed.values()) >= AGREEMENT and max(parts.early.by_column) < AGREEMENT


@finding("full_adder", MAIN)
def full_adder(evidence: Evidence) -> Measurement:
    """App. I, Fig. 26: truth tables of the parts."""
    a, b = sums.long_sums(ADDED, 3, torch.Generator().manual_seed(0))
    rows = {
        run: {
            "value": min(found.claimed.values()),
            "shows": is_full_adder(found),
            **found.claimed,
            "carry_before_the_last_attention": found.early.by_column,
        }
        for run, found in evidence.each(MAIN, lambda run, m: parts(m, a, b)).items()
    }
    return measurement(rows, "The lowest agreement of a part with the schoolbook, in the worst column.")
