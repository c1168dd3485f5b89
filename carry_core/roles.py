"""Which part does what in a model of longer sums, where a one arrives and where none does (App. H, H.1)."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from carry_core import at_hand, criteria, measure, tasks
from carry_core.at_hand import AtHand
from carry_core.edits import INTACT, Ablation
from carry_core.measure import Cells
from carry_core.model import Transformer


def parts(model: Transformer) -> list[Ablation]:
    """Every head and every MLP by itself, after nothing at all."""
    config = model.config
    each = [Ablation(heads=frozenset({(i, head)})) for i in range(config.layers) for head in range(config.heads)]
    return [INTACT, *each, *(Ablation(mlps=frozenset({layer})) for layer in range(config.layers))]


def by_arrival(found: Cells, kind: str = "accuracy") -> Float[Tensor, "arrives pos"]:
    """Mean of the cells where no carried one arrives (first row) and of those where one does, position by position.

    Every class counts once; NaN where no carried one ever arrives.
    """
    values = getattr(found, kind)
    arrives = tasks.carry_arrives(values.shape[1])
    return torch.stack([values.where(side, torch.nan).nanmean(0) for side in (~arrives, arrives)])


def without_parts(
    model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]
) -> dict[Ablation, Float[Tensor, "arrives pos"]]:
    """`by_arrival` for each of `parts` (App. H.1)."""
    wanted = parts(model)
    return {part: by_arrival(found) for part, found in zip(wanted, measure.cells(model, a, b, wanted), strict=True)}


CARRIED, SUFFERS = 0.5, 0.1  # of the digits of cells: lost without the head that carries; lost without the final MLP


@dataclass(frozen=True)
class Primed:
    """Who carries and who corrects in a primed model (App. H.1).

    Attributes:
        head: the head of the first layer without which the carry cells of the long positions lose most.
        carried: how much they lose.
        corrected: how much the cells of all positions where no carried one arrives lose without the final MLP.
        trained: how much the carry cells of the trained positions lose without it.
        spared: how much the carry cells of the long positions lose without it.
    """

    head: Ablation
    carried: float
    corrected: float
    trained: float
    spared: float

    @property
    def shows(self) -> bool:
        """Whether carrying is lost without the first and the second corrects."""
        return self.carried > CARRIED and self.corrected > SUFFERS

    @property
    def spares(self) -> bool:
        """Whether all cells suffer without the final MLP but the carry cells at long positions, as the paper has it."""
        return min(self.corrected, self.trained) > SUFFERS >= self.spared

    def __str__(self) -> str:
        return (
            f"Where a one arrives at a long position, accuracy falls by {self.carried:.2f} {self.head}, the costliest"
            f" of the first layer. Without the final MLP it falls by {self.corrected:.2f} where none arrives, by"
            f" {self.trained:.2f} where one does at a trained position, and by {self.spared:.2f} where one does at a"
            f" long one. That all of these suffer (by more than {SUFFERS}) but the last, as the paper has it, is"
            f" {'so' if self.spares else 'not so'} here."
        )


def primed_parts(lost: Mapping[Ablation, Float[Tensor, "arrives pos"]], n_long: int) -> Primed:
    """Read `Primed` off the accuracies `without_parts`."""
    fall = {part: lost[INTACT] - found for part, found in lost.items()}
    first = {part: float(x[1, :n_long].mean()) for part, x in fall.items() if {at for at, _ in part.heads} == {0}}
    head = max(first, key=lambda part: first[part])
    mlp = max((part for part in lost if part.mlps), key=lambda part: max(part.mlps))
    none, one = fall[mlp]
    return Primed(head, first[head], float(none.mean()), float(one[n_long:].nanmean()), float(one[:n_long].mean()))


def needed_without_carry(lost: Mapping[Ablation, Float[Tensor, "arrives pos"]]) -> dict[Ablation, float]:
    """How much accuracy falls where no carried one arrives, without each part that costs more than `SUFFERS`."""
    falls = {part: float((lost[INTACT] - found)[0].mean()) for part, found in lost.items()}
    return {part: fall for part, fall in falls.items() if fall > SUFFERS}


def over_epochs(
    shown: AtHand, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], n_digits: int
) -> dict[str, dict[str, tuple[float, Cells]]]:
    """`trained_correlation` of every run that a page shows, at every epoch that is kept, by whose it is (App. H)."""
    return {
        f"{at_hand.mark(loaded)} {run}": {
            at_hand.epoch_label(loaded, epoch): trained_correlation(loaded.model(run, epoch), a, b, n_digits)
            for epoch in at_hand.kept(loaded)
        }
        for loaded in shown
        for run in loaded.numbers
    }


def comes_to_carry(early: float, late: float) -> bool:
    """Whether the final MLP carries at the later epoch, and does so more than at the earlier one."""
    return criteria.cannot_carry(late) and late > early


def trained_correlation(
    model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], n_digits: int
) -> tuple[float, Cells]:
    """Pearson correlation without the final MLP with a model that cannot carry, over the last `n_digits` positions.

    Returns:
        It and the accuracies of all positions, classed by the full pattern.
    """
    (found,) = measure.cells(model, a, b, [measure.final_mlp(model)])
    expected = measure.cannot_carry(model.config.width)
    ends = [Cells(c.accuracy[:, -n_digits:], c.corrected[:, -n_digits:], c.whole) for c in (found, expected)]
    return measure.pearson(*ends), found
