"""The transition of one-layer runs: accuracy, attention and squared norm (Sec. 3, Fig. 2).

Epochs count from one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from carry_core import measure
from carry_core.dynamics import finished, first_at, steepest, window
from carry_core.errors import BadInput
from carry_core.runs import History
from carry_core.sums import Layout

STEP, TURN = 0.02, 0.01  # of the recipe's epochs: between accuracy and attention, between accuracy and norm
EVIDENT = 0.01  # of the squared norm: a bounce that one can see


@dataclass(frozen=True)
class Transition:
    """When a one-layer run learns the units, and what its attention and its norm do then (Sec. 3, Fig. 2).

    Attributes:
        epochs: how many there are.
        whole: how many the whole recipe has.
        rise: the epoch during which the test accuracy of the units rises most.
        jump: by how much it does.
        passes: for each head, the first epoch at which the units' answer position gives half of its attention or more
            to the two digits of its column; NaN if it never does.
        bounce: of the epochs at which the squared norm turns from falling to rising, the nearest to `rise`; or NaN.
        fall: the share of its highest value until then that the squared norm has lost at the turn.
        rebound: the share of its value at the turn that it gains until it falls again.
    """

    epochs: int
    whole: int
    rise: float
    jump: float
    passes: tuple[float, ...]
    bounce: float
    fall: float = float("nan")
    rebound: float = float("nan")

    @property
    def formed(self) -> tuple[float, float]:
        """When the first head and when the last head passes one half; NaN if none does."""
        known = [epoch for epoch in self.passes if epoch == epoch]
        return (min(known), max(known)) if known else (float("nan"), float("nan"))

    @property
    def lag(self) -> float:
        """Epochs by which the accuracy rises after the first head has passed one half."""
        return self.rise - self.formed[0]

    @property
    def coincides(self) -> bool:
        """Whether accuracy and attention change within 2% of the epochs, two at least."""
        return abs(self.lag) <= window(self.whole, STEP)

    @property
    def apart(self) -> bool:
        """Whether the heads pass one half more than 2% of the epochs (two at least) from each other."""
        return self.formed[1] - self.formed[0] > window(self.whole, STEP)

    @property
    def late(self) -> bool:
        """Whether the accuracy rises with the last head's change, and not with the first one's."""
        return not self.coincides and abs(self.rise - self.formed[1]) <= window(self.whole, STEP)

    @property
    def bounces(self) -> bool:
        """Whether the norm turns within 1% of the epochs of the transition, two at least; however slightly."""
        return abs(self.bounce - self.rise) <= window(self.whole, TURN)

    @property
    def evident(self) -> bool:
        """Whether the norm bounces, and 1% of it or more is lost before and 1% gained after, so that one can see it."""
        return self.bounces and min(self.fall, self.rebound) >= EVIDENT

    def shown(self, epochs: Sequence[int] | None = None) -> tuple[int, ...]:
        """Epochs before, between and after the heads' transitions, for the maps of Fig. 2.

        Halfway to the first head's, halfway between the first head's and the last head's, and halfway from there to
        the end. If no head ever passes one half: after a quarter, a half and three quarters of the training.

        Args:
            epochs: those asked for instead.

        Raises:
            BadInput: these are not epochs of the training.
        """
        if epochs is not None:
            known = isinstance(epochs, list | tuple) and len(epochs) > 0
            if not known or not all(type(epoch) is int and 1 <= epoch <= self.epochs for epoch in epochs):
                raise BadInput(f"epochs={epochs!r}: expected a list of whole numbers from 1 to {self.epochs}.")
            return tuple(epochs)
        first, last = self.formed
        if first != first:
            first = last = self.epochs / 2
        return tuple(max(1, round(middle)) for middle in (first / 2, (first + last) / 2, (last + self.epochs) / 2))


def of_run(
    units: Float[np.ndarray, " epoch"],
    pattern: Float[np.ndarray, "epoch head query key"],
    norm: Float[np.ndarray, " epoch"],
    layout: Layout,
    whole: int = 0,
) -> Transition:
    """The transition of one run, from its units' test accuracy, its mean attention and its squared norm."""
    mass = measure.column_mass(torch.from_numpy(pattern), layout)[..., -1].numpy()
    slope, rise = np.diff(norm), steepest(units)
    turns = np.flatnonzero((slope[:-1] < 0) & (slope[1:] > 0)) + 2.0
    bounce = float(turns[np.abs(turns - rise).argmin()]) if len(turns) else float("nan")
    sizes = _bounce(norm, int(bounce)) if len(turns) else (float("nan"), float("nan"))
    passes = tuple(first_at(head, 0.5) for head in mass.T)
    return Transition(len(units), max(whole, len(units)), rise, float(np.diff(units).max()), passes, bounce, *sizes)


def _bounce(norm: Float[np.ndarray, " epoch"], turn: int) -> tuple[float, float]:
    """How far a norm that turns at an epoch has fallen by then, and how far it rises after, as shares."""
    before, after = norm[:turn], norm[turn - 1 :]
    downhill = np.flatnonzero(np.diff(after) <= 0)
    top = after[downhill[0]] if len(downhill) else after[-1]
    return float(1 - after[0] / before.max()), float(top / after[0] - 1)


def of_runs(history: History, layout: Layout, whole: int = 0) -> dict[int, Transition]:
    """The transition of every run of a one-layer group, of whose recipe the history may have a part.

    Raises:
        BadInput: the history has no mean attention of one-layer runs.
    """
    if "pattern" not in history or history["pattern"].ndim != 5:
        raise BadInput("No mean attention of one layer in this history: expected that of a one-layer group.")
    found = {}
    for i, run in enumerate(history["runs"].tolist()):
        units = finished(history["test_accuracy"][i, :, -1])
        pattern, norm = (history[key][i, : len(units)] for key in ("pattern", "weight_norm"))
        found[run] = of_run(units, pattern, norm, layout, whole)
    return found


def shown_run(found: Mapping[int, Transition], run: int | None = None) -> int:
    """The run with the sharpest rise, of those whose heads have their transitions apart if there are any.

    With heads that change together there is no *between* to show.

    Args:
        found: every run's transition.
        run: the one asked for instead.

    Raises:
        BadInput: its learning curves are not there.
    """
    if run is not None and run not in found:
        raise BadInput(f"No learning curves of run {run!r}: expected one of {', '.join(map(str, found))}.")
    apart = [run for run, t in found.items() if t.apart]
    return max(apart or found, key=lambda run: found[run].jump) if run is None else run
