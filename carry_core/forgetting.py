"""How longer sums are learned and forgotten over the epochs of a padded run (Sec. 6, App. H, Fig. 20)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
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


def told(name: str, found: Mapping[int, Forgetting]) -> str:
    """How many runs forget, when they are best, and which positions go first, as a sentence."""
    peaks = ", ".join(f"{f.peak} of {f.epochs}" for f in found.values())
    gone = ", ".join("none" if not f.first else " and ".join(map(str, f.first)) for f in found.values())
    forget = sum(f.forgets for f in found.values())
    return f"{name}: **{forget} of {len(found)}** forget. Best at epoch {peaks}. Position that goes first: {gone}."


def told_stairs(found: Mapping[str, Sequence[tuple[str, Heads]]], n_long: int) -> str:
    """What becomes of each kind of staircase, and of single heads' ones, over the epochs that are kept (App. H)."""
    if not found:
        return "No run without priming has weights from along the way here."
    kinds = next(iter(found.values()))[0][1].staircases
    steps = {kind: {run: [h.staircases[kind] for _, h in every] for run, every in found.items()} for kind in kinds}
    told = [_told_kind(kind, by_run, n_long) for kind, by_run in steps.items()]
    return "\n\n".join([*told, *(_told_falling(layer, found, n_long) for layer in range(len(kinds) - 1))])


def _path(values: Iterable[float]) -> str:
    return " → ".join(f"{x:.2f}" for x in values)


def _told_kind(kind: str, steps: Mapping[str, Sequence[Float[Tensor, " column"]]], n_long: int) -> str:
    """The weakest long step over the epochs, in how many runs it breaks, and whether trained ones sink as well.

    It breaks if it is at least one half at some epoch and below at a later one.
    """
    weakest = {run: [float(x[:n_long].min()) for x in every] for run, every in steps.items()}
    formed = [[value >= STAIRCASE for value in x] for x in weakest.values() if max(x) >= STAIRCASE]
    breaks = sum(not all(holds[holds.index(True) :]) for holds in formed)
    listed = "; ".join(f"{run}: {_path(values)}" for run, values in weakest.items())
    long, trained = (
        sum(float(every[-1][part].min()) < float(every[0][part].min()) for every in steps.values())
        for part in (slice(0, n_long), slice(n_long, None))
    )
    return (
        f"Staircase **{kind}**, its weakest long step by each column's best head, at the epochs that are kept,"
        f" {listed}. It reaches one half in **{len(formed)} of {len(steps)}** runs, and of these it breaks, falling"
        f" below one half later, in **{breaks}**. It is lower at the last of these epochs than at the first in"
        f" **{long}**; the weakest trained step is in **{trained}**."
    )


def _told_falling(layer: int, found: Mapping[str, Sequence[tuple[str, Heads]]], n_long: int) -> str:
    """Each run's head of a layer whose own answer rows' staircase sinks most at the long columns, as a sentence."""
    told, alone = [], 0
    for run, every in found.items():
        steps = torch.stack([h.own[layer] for _, h in every])  # (epoch, head, column)
        long, trained = (part.amin(-1) for part in (steps[..., :n_long], steps[..., n_long:]))
        head = int((long[0] - long[-1]).argmax())
        long, trained = long[:, head], trained[:, head]
        told.append(f"{run}, head {layer}:{head}: {_path(long.tolist())}, trained {_path(trained.tolist())}")
        alone += bool(long[0] >= STAIRCASE > long[-1]) and bool(trained.min() >= STAIRCASE)
    return (
        f"One head by itself: of layer {layer}, the one whose weakest long step of the answer rows falls most, or rises"
        f" least, {'; '.join(told)}. It goes from half or more to less, while the trained steps stay at half or more,"
        f" in **{alone} of {len(found)}** runs."
    )
