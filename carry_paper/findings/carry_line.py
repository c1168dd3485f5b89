"""The carry line: one direction of the residual stream, and the carry-in that it holds.

The *line* of an answer column is the difference in means of the last layer's `resid_mid`, at the
position that answers the column, between sums that differ only in the carry into it. Its
*coordinate* is the projection onto that unit vector. Where the carry is on the line, swapping the
coordinate alone between the two sums of a pair moves the carry; in which states of the next column
it does is asked in `corners`. This is a distributed
interchange intervention (Geiger et al. 2024, Finding Alignments Between Interpretable Causal
Variables and Distributed Neural Representations) on a subspace of one dimension. It is not
searched for, as in their distributed alignment search (DAS), but fitted as a difference in means
(Marks & Tegmark 2024, The Geometry of Truth) on one half of the pairs, and tested on the other.
Since nothing is optimised for its effect, no dormant pathway is looked for (Makelov et al. 2024,
Is This the Subspace You Are Looking for?).

The stream is a sum of what was written into it. So the coordinate's change between two sums is the
sum of what each head and MLP contributes to it. The last layer's attention writes the *late*
part; the *early* part came before it, and passes along the skip path. The swap acts on `resid_mid`
itself, which both the final MLP (through its LayerNorm) and the skip path around it read.

`column_lines` measures a run. `data/results/lines.csv.gz` has the stored results
(`carry_paper.findings.line_table`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core import measure, sums
from carry_core.errors import check_whole
from carry_core.hooks import no_hook
from carry_core.model import MAX_SIZE, ModelConfig, Transformer
from carry_core.pairs import Contrast, Pairs
from carry_paper.findings.bars import Bar

PAIRS = 4_000  # pairs of a column, half of them to fit the line and half to test it
PROBE_PAIRS = 250  # pairs on which it is seen first that a run gets enough of them right
PROFILE_SUMS = 10_000  # random sums in which the coordinate's parts are looked at
BATCH = 500  # sums in a forward pass
TINY = 1e-6  # a shorter vector has no direction but that of rounding

# A run that gets fewer of the sampled pairs right has no line.
FEWEST_RIGHT = 0.5
# From this late share on, a run's carry is written late; up to its complement, early.
WRITTEN_LATE = Bar(0.95, perfect=1)
# The words for a run by its late share (`who_writes`).
WHO_WRITES = ("late", "shared", "early")
# From this share of the coordinate's change on, a head of the last layer counts as a writer.
WRITES = 0.1

Line = Float[Tensor, " d_model"]  # a unit vector
Basis = Float[Tensor, "dim d_model"]  # orthonormal rows
PairStreams = Float[Tensor, "side pair d_model"]  # side 0 has no carry-in
PairDigits = Int[Tensor, "side pair"]


# ---- columns


@dataclass(frozen=True)
class Column:
    """A column of sums that can receive a carry, and the position at which a model answers it.

    Attributes:
        index: The column, counted from the left of the sums' digits.
        n_digits: The number of digits of the sums.
        answer: The column, counted from the left of the model's answer.
        position: The token position that predicts the column's digit.
    """

    index: int
    n_digits: int
    answer: int
    position: int

    @property
    def n_lower(self) -> int:
        """The number of columns to the right."""
        return self.n_digits - self.index - 1

    @property
    def next_column(self) -> "Column":
        """The column to the right, from which a carry arrives."""
        return Column(self.index + 1, self.n_digits, self.answer + 1, self.position + 1)

    def digits(self, numbers: Int[Tensor, "*sums"]) -> Int[Tensor, "*sums"]:
        """Return the numbers' digits in this column."""
        digits: Tensor = numbers // 10**self.n_lower % 10
        return digits

    def next_digit_sum(
        self, a: Int[Tensor, "*sums"], b: Int[Tensor, "*sums"]
    ) -> Int[Tensor, "*sums"]:
        """Return the digit sum of the next column."""
        return self.next_column.digits(a) + self.next_column.digits(b)

    def carry_in(self, a: Int[Tensor, "*sums"], b: Int[Tensor, "*sums"]) -> Bool[Tensor, "*sums"]:
        """Return True for sums with a carry into this column."""
        side = 10**self.n_lower
        has_carry: Tensor = a % side + b % side >= side
        return has_carry


def carry_columns(config: ModelConfig, n_digits: int | None = None) -> list[Column]:
    """Return the columns of sums with `n_digits` digits (the model's if None) that have a carry-in.

    There is none for sums of one digit.
    """
    n_digits = n_digits or config.width
    columns = []
    for index in range(n_digits - 1):
        answer = config.width - n_digits + index
        columns.append(Column(index, n_digits, answer, config.layout.answer[answer]))
    return columns


# ---- the stream after the last attention, and the parts that add up to it


class Stream(NamedTuple):
    """The last layer's `resid_mid` of some sums, at one position.

    Attributes:
        resid_mid: The stream, `[*sums, d_model]`.
        parts: What the embedding, each head and each earlier MLP wrote into it, of the same shape.
            They add up to the stream but for the biases of the output projections, which are the
            same for all sums. Heads have names such as `blocks.1.attn.z:0`.
    """

    resid_mid: Tensor
    parts: dict[str, Tensor]

    def late(self, config: ModelConfig) -> Tensor:
        """Return what the last layer's attention wrote."""
        return torch.stack([x for name, x in self.parts.items() if is_late(name, config)]).sum(0)

    def some(self, pairs: Int[Tensor, " _"]) -> "Stream":
        """Return the streams of some pairs, if the sums are those of pairs: `[side, pair]`."""
        parts = {name: x[:, pairs] for name, x in self.parts.items()}
        return Stream(self.resid_mid[:, pairs], parts)


def is_late(part: str, config: ModelConfig) -> bool:
    """Return True if a part of the stream belongs to the last layer's attention."""
    return part.startswith(f"blocks.{config.layers - 1}.")


@torch.inference_mode()
def stream(
    model: Transformer, a: Int[Tensor, "*sums"], b: Int[Tensor, "*sums"], position: int
) -> Stream:
    """Return the last layer's `resid_mid` of each sum a + b at a position, and its parts."""
    config = model.config
    last = config.layers - 1
    names = ["embed", f"blocks.{last}.resid_mid"]
    names += [f"blocks.{layer}.attn.z" for layer in range(config.layers)]
    names += [f"blocks.{layer}.mlp_out" for layer in range(last)]

    written = {}
    activations = measure.activations(model, a.flatten(), b.flatten(), names, read=[position])
    for name, x in activations.items():
        written[name] = x[:, config.positions_at(name, [position]).index(position)]

    parts = {"embed": written["embed"]}
    for layer, block in enumerate(model.blocks):
        z = written[f"blocks.{layer}.attn.z"]  # (sums, head, d_head)
        weight = block.o.weight.unflatten(1, (config.heads, config.d_head))
        for head in range(config.heads):
            parts[f"blocks.{layer}.attn.z:{head}"] = z[:, head] @ weight[:, head].T
        if layer < last:
            parts[f"blocks.{layer}.mlp_out"] = written[f"blocks.{layer}.mlp_out"]
    resid_mid = written[f"blocks.{last}.resid_mid"]
    by_sum = {name: x.unflatten(0, a.shape) for name, x in parts.items()}
    return Stream(resid_mid.unflatten(0, a.shape), by_sum)


# ---- swaps of a subspace


def swapped(
    base: Float[Tensor, "*sums d_model"], source: Float[Tensor, "*sums d_model"], basis: Basis
) -> Float[Tensor, "*sums d_model"]:
    """Return the base's streams with the source's coordinates in a subspace."""
    patched: Tensor = base + (source - base) @ basis.T @ basis
    return patched


@torch.inference_mode()
def digits_of(
    model: Transformer, resid_mid: Float[Tensor, "*sums d_model"]
) -> Int[Tensor, "*sums"]:
    """Return the tokens that a model answers with these streams after its last attention."""
    rows = resid_mid.flatten(0, -2).unsqueeze(1)  # (sums, 1, d_model)
    tokens = []
    for batch in rows.split(BATCH):
        resid_post = model.blocks[model.config.layers - 1].mlp(batch, no_hook)
        tokens.append(model.unembed(model.norm(resid_post))[:, 0].argmax(-1))
    return torch.cat(tokens).view(resid_mid.shape[:-1])


def interchange_accuracy(
    model: Transformer, resid_mid: PairStreams, answers: PairDigits, basis: Basis
) -> tuple[float, float]:
    """Return the accuracies of swapping a subspace between the two sums of each pair.

    They are the share of pairs in which the sum without a carry-in takes exactly the other's digit
    (*up*), and that in which the sum with a carry-in does (*down*).
    """
    shares = []
    for base in (0, 1):
        patched = swapped(resid_mid[base], resid_mid[1 - base], basis)
        is_moved = digits_of(model, patched) == answers[1 - base]
        shares.append(is_moved.double().mean().item())
    return shares[0], shares[1]


# ---- fitting


def difference_in_means(resid_mid: PairStreams) -> Line:
    """Return the unit vector of the mean difference between the two sides of pairs."""
    step = (resid_mid[1] - resid_mid[0]).double().mean(0)
    return unit(step).to(resid_mid)


class FittedColumn(NamedTuple):
    """A column of a run with its line, and what the line is tested on.

    Attributes:
        column: The column.
        line: The line, fitted on one half of the pairs.
        pairs: The other half's sums.
        test: The streams of the other half.
        answers: The digits that the intact model answers in the other half.
        right: The share of sampled pairs of which the model gets both sums right.
    """

    column: Column
    line: Line
    pairs: Pairs
    test: Stream
    answers: PairDigits
    right: float


def share_right(model: Transformer, column: Column, generator: torch.Generator) -> float:
    """Return the share of pairs of which a model gets both sums right, from a few of them."""
    contrast = Contrast("carry_in", column.index)
    return measure.correct_pairs(model, contrast, PROBE_PAIRS, generator, column.n_digits).share


def fit_column(
    model: Transformer, column: Column, generator: torch.Generator, count: int = PAIRS
) -> FittedColumn:
    """Return a column's line, fitted on half of `count` pairs, and the other half to test it on.

    The two sums of a pair differ in the carry into the column, and to the right of it; the model
    gets both right (`carry_core.pairs`). Pairs with a sum on which the line was fitted are left
    out of the other half.
    """
    contrast = Contrast("carry_in", column.index)
    pairs, right = measure.correct_pairs(model, contrast, count, generator, column.n_digits)
    streams = stream(model, pairs[:, 0], pairs[:, 1], column.position)
    n_fit = pairs.shape[-1] // 2

    # A number for each sum: (side, pair)
    keys = pairs[:, 0] * 10**column.n_digits + pairs[:, 1]
    is_new = ~torch.isin(keys[:, n_fit:], keys[:, :n_fit]).any(0)
    test_indices = n_fit + is_new.nonzero().flatten()
    test_pairs = pairs[..., test_indices]

    return FittedColumn(
        column=column,
        line=difference_in_means(streams.resid_mid[:, :n_fit]),
        pairs=test_pairs,
        test=streams.some(test_indices),
        answers=column.digits(test_pairs.sum(1)),
        right=right,
    )


# ---- who writes the coordinate


def shares(line: Line, pairs: Stream) -> dict[str, float]:
    """Return each part's share of the mean change of the coordinate; they sum to one."""
    changes = {}
    for name, x in pairs.parts.items():
        changes[name] = _change(line, x).mean().item()
    whole = _change(line, pairs.resid_mid).mean().item()
    return {name: change / whole for name, change in changes.items()}


def late_share(part_shares: Mapping[str, float], config: ModelConfig) -> float:
    """Return the share that the last layer's attention writes."""
    return sum(share for name, share in part_shares.items() if is_late(name, config))


def _change(line: Line, x: Float[Tensor, "side pair d_model"]) -> Float[Tensor, " pair"]:
    return (x[1] - x[0]).double() @ line.double()


@torch.inference_mode()
def profile(
    model: Transformer,
    fitted: FittedColumn,
    generator: torch.Generator,
    count: int = PROFILE_SUMS,
) -> list[dict[str, Any]]:
    """Return the coordinate's two parts, by the digit sum of the next column.

    They are means over `count` random sums, less those whose digit in the column is wrong. The
    coordinate is in units of its mean change in the pairs, and 0 in the middle of it: a carry takes
    it from -0.5 to 0.5 on average.

    Returns:
        For each `digit_sum` from 0 to 18, and each `chain`, 1 if a carry arrives in the next
        column, else 0: the number of such `sums`; the mean of the coordinate's `early` part, 0 in
        the middle of its own change, and of its `late` part, likewise; and the standard `deviation`
        of the whole coordinate.
    """
    column, config = fitted.column, model.config
    a, b = sums.long_sums(count, column.n_digits, generator)
    streams = stream(model, a, b, column.position)
    is_right = digits_of(model, streams.resid_mid) == column.digits(a + b)

    # The coordinates, `[sums]`, and their middle and change in the pairs.
    line = fitted.line.double()
    whole = streams.resid_mid.double() @ line
    late = streams.late(config).double() @ line
    late_in_pairs = fitted.test.late(config).double() @ line  # (side, pair)
    whole_in_pairs = fitted.test.resid_mid.double() @ line
    change = (whole_in_pairs[1] - whole_in_pairs[0]).mean()
    late = (late - late_in_pairs.mean()) / change
    whole = (whole - whole_in_pairs.mean()) / change

    digit_sums = column.next_digit_sum(a, b)
    chains = column.next_column.carry_in(a, b)  # a chain of carries begins
    rows = []
    for digit_sum in range(19):
        for chain in (0, 1):
            chosen = is_right & (digit_sums == digit_sum) & (chains == bool(chain))
            if not chosen.any():
                continue
            row = {
                "digit_sum": digit_sum,
                "chain": chain,
                "sums": int(chosen.sum()),
                "early": (whole - late)[chosen].mean().item(),
                "late": late[chosen].mean().item(),
                "deviation": whole[chosen].std(correction=0).item(),
            }
            rows.append(row)
    return rows


def unit(vector: Float[Tensor, " d_model"]) -> Line:
    """Return the unit vector in a direction; of a vector of length 0, itself."""
    direction: Tensor = vector / vector.norm().clamp(min=TINY)
    return direction


# ---- a run


@torch.inference_mode()
def column_lines(
    model: Transformer,
    n_digits: int | None = None,
    count: int = PAIRS,
    n_profile_sums: int = PROFILE_SUMS,
) -> list[dict[str, Any]]:
    """Return what the line of each column with a carry-in moves, and who writes its coordinate.

    The sums have `n_digits` digits, the model's if None; there are `count` pairs of each column.

    Returns:
        For each column the `digits` of the sums, `reads`, which names the answer's digit, and
        `line_fields` with `profile`; or `right` and the `reason` if the run gets too few pairs
        right.

    Raises:
        BadInput: The model has one layer only, or a number is out of range.
    """
    check_whole("layers", model.config.layers, 2, MAX_SIZE)
    check_whole("count", count, 2, MAX_SIZE)
    if n_digits is not None:
        check_whole("n_digits", n_digits, 2, model.config.width)
    generator = torch.Generator().manual_seed(0)
    names = model.config.layout.position_names
    rows = []
    for column in carry_columns(model.config, n_digits):
        right = share_right(model, column, generator)
        fields: dict[str, Any] = {"digits": column.n_digits, "reads": names[column.answer]}
        if right < FEWEST_RIGHT:
            reason = f"the run gets {right:.2f} of the pairs right, fewer than {FEWEST_RIGHT}"
            rows.append({**fields, "reason": reason, "right": right})
            continue
        fitted = fit_column(model, column, generator, count)
        fields |= line_fields(model, fitted)
        fields["profile"] = profile(model, fitted, generator, n_profile_sums)
        rows.append(fields)
    return rows


def line_fields(model: Transformer, fitted: FittedColumn) -> dict[str, Any]:
    """Return what the line moves, and who writes its coordinate."""
    up, down = interchange_accuracy(model, fitted.test.resid_mid, fitted.answers, fitted.line[None])
    part_shares = shares(fitted.line, fitted.test)
    return {
        "right": fitted.right,
        "pairs": fitted.test.resid_mid.shape[1],
        "up": up,
        "down": down,
        "late": late_share(part_shares, model.config),
        "shares": part_shares,
    }


# ---- the criteria, which `book/protocol.md` dates


def who_writes(late: float) -> str:
    """Return `late`, `early` or `shared`, the word for a run's late share."""
    if late >= WRITTEN_LATE:
        return "late"
    return "early" if late <= 1 - WRITTEN_LATE else "shared"


def n_writers(part_shares: Mapping[str, float], config: ModelConfig) -> int:
    """Return the number of heads of the last layer that write the coordinate."""
    late = [share for name, share in part_shares.items() if is_late(name, config)]
    return sum(share >= WRITES for share in late)
