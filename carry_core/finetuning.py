"""What finetuning moves: norms, distances, matrix by matrix (App. H.2)."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from carry_core import at_hand, groups
from carry_core.at_hand import AtHand
from carry_core.errors import BadInput
from carry_core.model import Transformer
from carry_core.runs import Runs


@dataclass(frozen=True)
class Moved:
    """How far finetuning moved a run's weights (App. H.2).

    Attributes:
        before: squared norm of all parameters.
        after: the same.
        distance: between the two, over the norm before.
        parts: for each parameter, the distance over its norm before, and its share of the squared distance.
    """

    before: float
    after: float
    distance: float
    parts: dict[str, tuple[float, float]]

    @property
    def change(self) -> float:
        """Relative change of the squared norm."""
        return self.after / self.before - 1


def moved(before: nn.Module, after: nn.Module) -> Moved:
    """Compare two sets of weights."""
    old, new = ({name: p.detach().double() for name, p in m.named_parameters()} for m in (before, after))
    squares: dict[str, list[Any]] = {
        name: [float(x.square().sum()) for x in (p, new[name], new[name] - p)] for name, p in old.items()
    }
    was, is_, step = (sum(values) for values in zip(*squares.values(), strict=True))
    shares = {
        name: ((d / w) ** 0.5 if w else float("nan"), d / step if step else 0.0) for name, (w, _, d) in squares.items()
    }
    return Moved(was, is_, (step / was) ** 0.5, shares)


def finetuned_pairs(before: Runs, after: Runs, epoch: int) -> dict[int, tuple[Transformer, Transformer]]:
    """Each finetuned run and what it started from: the run of its number, or the only one.

    The released run 1 was finetuned from the only released run without priming, run 0.
    """
    found = {}
    for i, run in enumerate(after.numbers):
        start = run if run in before.numbers else before.numbers[min(i, len(before.numbers) - 1)]
        found[run] = (before.model(start, epoch), after.model(run))
    return found


def parent(group: str) -> tuple[str, int]:
    """The group and epoch that a finetuned group starts from.

    Raises:
        BadInput: it is not finetuned.
    """
    found = groups.find(group).parent
    if found is None:
        known = ", ".join(name for name, other in groups.GROUPS.items() if other.parent)
        raise BadInput(f"{group} is not finetuned: expected a group that is, one of {known}.")
    return found


def moves(before: AtHand, after: AtHand, epoch: int) -> dict[str, Moved]:
    """`moved` of every run of a source that has both groups, by whose it is."""
    return {
        f"{at_hand.mark(loaded)} {run}": moved(*pair)
        for loaded in after
        for start in before.of(loaded.source)
        for run, pair in finetuned_pairs(start, loaded, epoch).items()
    }
