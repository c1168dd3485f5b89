"""How longer sums are learned and forgotten over the epochs of a padded run (Sec. 6, App. H, Fig. 20)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from carry_core import dynamics
from carry_core.criteria import STAIRCASE
from carry_core.errors import BadInput
from carry_core.longer import Heads
from carry_core.runs import History

GONE = 0.9  # of its own best accuracy: a position that ends below has been forgotten, from the epoch it stays below


@dataclass(frozen=True)
class Forgetting:
    """What becomes of the accuracy on longer sums over a run's epochs (Fig. 20).

    Attributes:
        epochs: how many there are.
        peak: the first epoch with the best whole-answer accuracy.
        best: that accuracy.
        last: the accuracy at the end.
        goes: for each position, the epoch from which it stays below nine tenths of its own best; NaN if it does not
            end there.
        ends: accuracy of each position at the end.
    """

    epochs: int
    peak: int
    best: float
    last: float
    goes: tuple[float, ...]
    ends: tuple[float, ...]

    @property
    def forgets(self) -> bool:
        """Whether accuracy peaks before the end and at the end is half of that or less."""
        return self.peak < self.epochs and self.last <= self.best / 2

    @property
    def first(self) -> tuple[int, ...]:
        """The positions that go first, counted from the left; empty if none goes."""
        known = [epoch for epoch in self.goes if epoch == epoch]
        return tuple(i for i, epoch in enumerate(self.goes) if known and epoch == min(known))


def goes_at(curve: Float[np.ndarray, " epoch"]) -> float:
    """The epoch from which a curve stays below nine tenths of its best; NaN if it does not end there."""
    kept = np.flatnonzero(curve >= GONE * curve.max())[-1]
    return float(kept + 2) if kept + 1 < len(curve) else float("nan")


def forgetting(history: History) -> dict[int, Forgetting]:
    """`Forgetting` of every run of a padded group, from its learning curves.

    Raises:
        BadInput: the group is not padded.
    """
    if "long_whole" not in history:
        raise BadInput("These learning curves have no longer sums: expected those of a padded group, such as pad6_….")
    found = {}
    for run, curve, positions in zip(history["runs"], history["long_whole"], history["long_accuracy"], strict=True):
        whole, each = dynamics.finished(curve), dynamics.finished(positions)
        goes = tuple(goes_at(column) for column in each.T)
        found[int(run)] = Forgetting(
            len(whole), int(whole.argmax()) + 1, float(whole.max()), float(whole[-1]), goes, tuple(each[-1].tolist())
        )
    return found


@dataclass(frozen=True)
class Steps:
    """The weakest steps of a staircase at the epochs that are kept, at long positions and at the others (App. H)."""

    long: tuple[float, ...]
    trained: tuple[float, ...]

    @property
    def stands(self) -> tuple[bool, ...]:
        """At which of the epochs it stands at the long positions."""
        return tuple(step >= STAIRCASE for step in self.long)

    @property
    def breaks(self) -> bool:
        """Whether it stands there at some epoch and does not at a later one."""
        return True in self.stands and not all(self.stands[self.stands.index(True) :])

    @property
    def ends_alone(self) -> bool:
        """Whether it stands there at first and not at last, while the trained steps stand all along."""
        return self.stands[0] and not self.stands[-1] and min(self.trained) >= STAIRCASE


def steps(columns: Iterable[Float[Tensor, " column"]], n_long: int) -> Steps:
    """`Steps` of one staircase, column by column at each epoch."""
    weakest = [(float(x[:n_long].min()), float(x[n_long:].min())) for x in columns]
    long, trained = zip(*weakest, strict=True)
    return Steps(long, trained)


def falling(layer: int, every: Sequence[Heads], n_long: int) -> tuple[int, Steps]:
    """The head of a layer whose answer rows' weakest long step falls most over the epochs, or rises least.

    Args:
        layer: which.
        every: the run's heads at each epoch that is kept.
        n_long: how many positions are long.
    """
    by_head = [steps((h.own[layer, head] for h in every), n_long) for head in range(every[0].own.shape[1])]
    head = max(range(len(by_head)), key=lambda head: by_head[head].long[0] - by_head[head].long[-1])
    return head, by_head[head]
