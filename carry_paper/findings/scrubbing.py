"""How much of a run the algorithm explains: causal scrubbing (Chan et al. 2022).

A hypothesis says which variables of a sum a part of the network holds. If it is right, then nothing
changes when the part is replaced by that of another sum, drawn at random among those with the same
variables. Each part is drawn on its own, so that everything else is resampled, and the loss at the
answer says how much was lost:

    recovered = (everything resampled - hypothesis) / (everything resampled - intact)

in mean cross entropies of the column's digit. Variables are the column's own digit sum, its
carry-in, and whether the next column adds to nine without a carry (`corners`).

The parts are those of the stream after the last attention: its coordinates on the carry line, or
in the plane of carry and nine, and the rest of it, which should hold the own digit sum; or what
the decision head brings, and the rest (the paper's third step, Sec. 4). In the first of the paper's
steps each column is added before the last layer: its positions hold its digit sum alone.

To resample the whole stream at once among sums with the same own digit sum and carry is no test.
These have the same answer, so every model that adds recovers everything.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from carry_core import measure, sums
from carry_core.model import Transformer
from carry_core.sums import Numbers
from carry_paper.findings import carry_line, corners
from carry_paper.findings.base import Fields
from carry_paper.findings.carry_line import Column, Stream
from carry_paper.findings.corners import Corners

SUMS = 3_000  # random sums whose activations are resampled among each other
BATCH = 500  # sums in a forward pass

Variable = Callable[[Column, Numbers, Numbers], Int[Tensor, " sums"]]
Variables = tuple[str, ...]


# ---- variables


# A sum's variables at a column. The last one is in no algorithm: a hypothesis with it in place of
# the carry is wrong on purpose.
VARIABLES: Mapping[str, Variable] = {
    "own digit sum": corners.own_digit_sum,
    "carry": lambda column, a, b: column.carry_in(a, b).long(),
    "nine": lambda column, a, b: (corners.state(column, a, b) == corners.NINE).long(),
    "parity of the next digit sum": lambda column, a, b: column.next_digit_sum(a, b) % 2,
}
OWN: Variables = ("own digit sum",)
CARRY: Variables = ("carry",)
CARRY_AND_NINE: Variables = ("carry", "nine")
WRONG: Variables = ("parity of the next digit sum",)


def keys(column: Column, variables: Variables, a: Numbers, b: Numbers) -> Int[Tensor, " sums"]:
    """Return a number for each sum, the same for sums with the same variables."""
    rows = torch.stack([VARIABLES[name](column, a, b) for name in variables], -1)
    number: Tensor = rows.unique(dim=0, return_inverse=True)[1]
    return number


def resampled(key: Int[Tensor, " sums"], generator: torch.Generator) -> Int[Tensor, " sums"]:
    """Return, for each sum, the index of one drawn uniformly among those with the same key.

    The sum itself is among them.
    """
    order = key.argsort(stable=True)
    counts = key.bincount()
    first = counts.cumsum(0) - counts
    drawn = (torch.rand(len(key), generator=generator) * counts[key]).long()
    return order[first[key] + drawn.minimum(counts[key] - 1)]


# ---- what is resampled


class Scrubbed(NamedTuple):
    """A column of a run, and random sums whose activations are resampled.

    Attributes:
        model: The run's model.
        column: The column.
        a: The first numbers.
        b: The second ones.
        streams: The last layer's `resid_mid` at the position that answers the column, and its
            parts.
        target: The digit that is right.
    """

    model: Transformer
    column: Column
    a: Numbers
    b: Numbers
    streams: Stream
    target: Int[Tensor, " sums"]


@torch.inference_mode()
def loss_of(of: Scrubbed, resid_mid: Float[Tensor, "sums d_model"]) -> float:
    """Return the mean cross entropy of the right digit after these streams."""
    losses = []
    for rows, target in zip(resid_mid.split(BATCH), of.target.split(BATCH), strict=True):
        logits = corners.logits_of(of.model, rows)
        losses.append(F.cross_entropy(logits, target, reduction="none"))
    return torch.cat(losses).double().mean().item()


def by_subspace(
    of: Scrubbed, bases: corners.Bases, of_subspace: Variables, generator: torch.Generator
) -> float:
    """Return the loss if a subspace holds some variables, and the rest the own digit sum.

    `bases` were fitted on other sums.
    """
    resid_mid = of.streams.resid_mid
    source = resid_mid[resampled(keys(of.column, of_subspace, of.a, of.b), generator)]
    rest = resid_mid[resampled(keys(of.column, OWN, of.a, of.b), generator)]
    own = corners.own_digit_sum(of.column, of.a, of.b)
    return loss_of(of, corners.swapped(rest, source, bases, own))


def by_head(of: Scrubbed, head: int, of_head: Variables, generator: torch.Generator) -> float:
    """Return the loss if the last layer's `head` brings some variables, and the rest the own sum.

    The rest is every other part of the stream after the last attention, the skip connection
    included; it is resampled as a whole.
    """
    name = f"blocks.{of.model.config.layers - 1}.attn.z:{head}"
    written = of.streams.parts[name]
    rest = of.streams.resid_mid - written
    donors = resampled(keys(of.column, of_head, of.a, of.b), generator)
    others = resampled(keys(of.column, OWN, of.a, of.b), generator)
    return loss_of(of, written[donors] + rest[others])


@torch.inference_mode()
def before_last_layer(of: Scrubbed, generator: torch.Generator) -> float:
    """Return the loss if, before the last layer, each column's positions hold its digit sum alone.

    The positions of a column, its two digits and its answer, are taken together from a sum with
    the same digit sum there; positions of no column, from any sum.
    """
    config = of.model.config
    point = f"blocks.{config.layers - 1}.resid_pre"
    before = measure.activations(of.model, of.a, of.b, [point])[point]  # (sums, pos, d_model)
    any_sum = torch.zeros_like(of.a)
    source = resampled(any_sum, generator)[:, None].repeat(1, before.shape[1])  # (sums, pos)
    for index in range(config.width):
        power = 10 ** (config.width - 1 - index)
        digit_sum = of.a // power % 10 + of.b // power % 10
        donors = resampled(digit_sum, generator)
        positions = [index, config.width + 1 + index, config.layout.answer[index]]
        source[:, positions] = donors[:, None]
    replaced = before.gather(0, source[..., None].expand_as(before))

    losses = []
    tokens = sums.encode(of.a, of.b, config.layout)
    parts = (tokens.split(BATCH), replaced.split(BATCH), of.target.split(BATCH))
    for batch, rows, target in zip(*parts, strict=True):

        def put(name: str, x: Tensor, rows: Tensor = rows) -> Tensor:
            return rows if name == point else x

        logits = of.model(batch, put, [of.column.position])[:, 0]
        losses.append(F.cross_entropy(logits, target, reduction="none"))
    return torch.cat(losses).double().mean().item()


# ---- a column of a run


def column_losses(
    model: Transformer,
    fitted: Corners,
    head: int,
    generator: torch.Generator,
    count: int = SUMS,
) -> dict[str, float]:
    """Return the loss of a column's digit under each hypothesis, by its name.

    These are also the loss `intact` and that with everything `resampled`. Without a line there are
    none of its subspaces. `head` is the decision head; on the sums of `fitted`, which are others,
    subspaces are fitted.
    """
    column = fitted.column
    a, b = sums.long_sums(count, column.n_digits, generator)
    streams = carry_line.stream(model, a, b, column.position)
    of = Scrubbed(model, column, a, b, streams, column.digits(a + b))
    resid_mid = streams.resid_mid
    any_sum = resampled(torch.zeros_like(of.a), generator)
    by_name = {"intact": loss_of(of, resid_mid), "resampled": loss_of(of, resid_mid[any_sum])}
    if corners.can_be_fitted(fitted):
        line = corners.fitted_bases(fitted, corners.line_basis)
        plane = corners.fitted_bases(fitted, corners.plane_basis)
        by_name |= {
            "plane: carry, nine": by_subspace(of, plane, CARRY_AND_NINE, generator),
            "line: carry": by_subspace(of, line, CARRY, generator),
            "plane: wrong on purpose": by_subspace(of, plane, WRONG, generator),
        }
    return by_name | {
        "head: carry, nine": by_head(of, head, CARRY_AND_NINE, generator),
        "head: carry": by_head(of, head, CARRY, generator),
        "head: wrong on purpose": by_head(of, head, WRONG, generator),
        "digit sums before the last layer": before_last_layer(of, generator),
    }


def recovered(fields: Fields, hypothesis: str) -> float:
    """Return the share of the loss that a hypothesis recovers: 1 for all, 0 for none."""
    everything = fields["resampled"]
    share: float = (everything - fields[hypothesis]) / (everything - fields["intact"])
    return share
