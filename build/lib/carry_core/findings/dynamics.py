"""What learning curves show: the transition of one layer (Sec. 3, Fig. 2), kinks, the final MLP (Sec. 5, Fig. 5).

Epochs count from one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from carry_core import measure
from carry_core.errors import BadInput
from carry_core.findings.base import MAIN, N1, Measurement, finding, measurement
from carry_core.findings.heads import column_mass, no_carry_reference, pearson
from carry_core.findings.survey import Evidence
from carry_core.groups import GROUPS
from carry_core.measure import ClassAccuracies
from carry_core.model import Transformer
from carry_core.runs import History
from carry_core.sums import Layout

# Shares are of the epochs of the whole recipe: a training that stopped early has had fewer, not shorter ones.
PLOTTED = 0.4  # what Fig. 5 plots: 400 of 1000 epochs
PIECE = 3  # epochs that a straight piece of a curve needs

KINK_TO_RISE = 0.01  # from the kink of the loss to the start of the rise
EXPLAINED_VARIANCE = 0.95  # of the loss's logarithm
LEARNT_ACCURACY, TEST_DELAY = 0.99, 0.05  # from which a run has learned; share of the epochs by which tests may lag
ACCURACY_TO_ATTENTION, ACCURACY_TO_NORM = 0.02, 0.01  # epochs between two changes at the transition
VISIBLE_BOUNCE = 0.01  # of the squared norm


def finished(curve: Float[np.ndarray, "epoch *more"]) -> Float[np.ndarray, "trained *more"]:
    """The epochs that a run was trained for: what stands behind them in its group's file is NaN."""
    known: NDArray[Any] = curve[~np.isnan(curve.reshape(len(curve), -1)).any(1)]
    return known


def first_at(curve: Float[np.ndarray, " epoch"], level: float) -> float:
    """The first epoch at which the curve reaches the level; NaN if it never does."""
    reached = np.flatnonzero(curve >= level)
    return float(reached[0] + 1) if len(reached) else float("nan")


def steepest(curve: Float[np.ndarray, " epoch"]) -> float:
    """The epoch during which the curve rises most."""
    return float(np.diff(curve).argmax() + 2)


def window(epochs: int, share: float) -> float:
    """A share of the epochs, two at least."""
    return max(2.0, share * epochs)


def rebound(loss: Float[np.ndarray, " epoch"], share: float = 0.1) -> float:
    """How far a loss ends above its lowest point: the ratio of the two, 1 if it ends there (App. C.1).

    Both are means over a share of the epochs, since the loss of a single one says little.
    """
    width = max(1, round(share * len(loss)))
    smooth = np.convolve(loss, np.full(width, 1 / width), "valid")
    return float(smooth[-1] / smooth.min())


# ---------------------------------------------------------------- the kink of the test loss


@dataclass(frozen=True)
class Kink:
    """Where the fall of a loss turns from one exponential to another, and the second one (Sec. 5, Fig. 5).

    Attributes:
        epoch: of the kink.
        end: the last epoch that was looked at.
        rate: per epoch; after the kink the loss goes as exp(-rate * epoch).
        interval: the 95% interval of `rate`, as for independent residuals.
        explained: share of the variance of the logarithm after the kink that the exponential explains.
        level: logarithm of the exponential at epoch 0.
    """

    epoch: int
    end: int
    rate: float
    interval: tuple[float, float]
    explained: float
    level: float

    def curve(self) -> tuple[Int[np.ndarray, " epoch"], Float[np.ndarray, " epoch"]]:
        """The fitted exponential from the kink on: epochs and losses."""
        epochs = np.arange(self.epoch, self.end + 1)
        return epochs, np.exp(self.level - self.rate * epochs)


def kink(loss: Float[np.ndarray, " epoch"], share: float = PLOTTED, whole: int = 0) -> Kink:
    """The kink of a loss: the corner of the two joined straight pieces that fit its logarithm best.

    Args:
        loss: after each epoch.
        share: how much of the training to look at, from its start.
        whole: epochs of the whole recipe, if there were to be more.

    Raises:
        BadInput: too few epochs for two pieces.
    """
    end = min(len(loss), max(round(share * max(whole, len(loss))), 2 * PIECE + 1))
    if end < 2 * PIECE + 1:
        raise BadInput(f"A loss over {len(loss)} epochs has no kink to look for: expected {2 * PIECE + 1} or more.")
    epochs, log = np.arange(1.0, end + 1), np.log(loss[:end].astype(np.float64))

    def misfit(corner: int) -> float:
        pieces = np.stack([np.ones(end), epochs, np.maximum(epochs - corner, 0)], 1)
        return float(np.square(log - pieces @ np.linalg.lstsq(pieces, log)[0]).sum())

    corner = min(range(PIECE, end - PIECE + 2), key=misfit)
    fit = scipy.stats.linregress(epochs[corner - 1 :], log[corner - 1 :])
    wide = float(scipy.stats.t.ppf(0.975, end - corner - 1) * fit.stderr)
    rate = -float(fit.slope)
    return Kink(corner, end, rate, (rate - wide, rate + wide), float(fit.rvalue**2), float(fit.intercept))


# ---------------------------------------------------------------- the final MLP over the epochs


@dataclass(frozen=True)
class Evolution:
    """What a run gets right without its final MLP, epoch by epoch (Sec. 5, Fig. 5).

    Attributes:
        epochs: at which it was measured.
        accuracy: share of right digits, per class and answer position.
        corrected: the same after the correction by one, as in `measure.ClassAccuracies`.
        correlation: Pearson correlation of all of these with a model that cannot carry.
    """

    epochs: Int[np.ndarray, " epoch"]
    accuracy: Float[np.ndarray, "epoch task pos"]
    corrected: Float[np.ndarray, "epoch task pos"]
    correlation: Float[np.ndarray, " epoch"]


def evolutions(history: History) -> dict[int, Evolution]:
    """The evolution of every run whose history has one; of none if the group's has not."""
    if "test_ablated_accuracy" not in history:
        return {}
    found = {}
    for i, run in enumerate(history["runs"].tolist()):
        accuracy, corrected = (finished(history[f"test_ablated_{kind}"][i]) for kind in ("accuracy", "corrected"))
        found[run] = _evolution(np.arange(1, len(accuracy) + 1), accuracy, corrected)
    return found


def at_the_end(model: Transformer, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"], epoch: int) -> Evolution:
    """The last point of a run's evolution, which its weights are enough for."""
    (found,) = measure.class_accuracies(model, a, b, [measure.final_mlp(model)])
    return _evolution(np.array([epoch]), found.accuracy[None].numpy(), found.corrected[None].numpy())


def _evolution(
    epochs: Int[np.ndarray, " epoch"],
    accuracy: Float[np.ndarray, "epoch task pos"],
    corrected: Float[np.ndarray, "epoch task pos"],
) -> Evolution:
    expected = no_carry_reference(accuracy.shape[-1])
    pairs = zip(torch.from_numpy(accuracy), torch.from_numpy(corrected), strict=True)
    correlation = [pearson(ClassAccuracies(*pair, exact_match=float("nan")), expected) for pair in pairs]
    return Evolution(epochs, accuracy, corrected, np.array(correlation))


def starts_to_rise(curve: Float[np.ndarray, " epoch"], share: float = PLOTTED, whole: int = 0) -> tuple[int, float]:
    """The lowest point of the curve's deepest fall below an earlier high, and how deep it is.

    Before training the correlation is low since nothing is learned, and the first ordinary additions raise it; what is
    asked is when it rises for good. A curve that never falls rises from epoch 1.

    Args:
        curve: after each epoch.
        share, whole: as in `kink`.
    """
    looked_at = curve[: max(1, round(share * max(whole, len(curve))))]
    fall = np.maximum.accumulate(looked_at) - looked_at
    return int(fall.argmax()) + 1, float(fall.max())


@dataclass(frozen=True)
class Carrying:
    """Whether the final MLP's role starts to form at the kink, and the loss then falls exponentially (Sec. 5).

    Attributes:
        whole: epochs of the whole recipe.
        kink: of the test loss.
        rise: the epoch from which the correlation with a model that cannot carry rises; NaN if that is not known.
        depth: how far it had fallen before.
    """

    whole: int
    kink: Kink
    rise: float
    depth: float

    @property
    def lag(self) -> float:
        """Epochs from the kink to the start of the rise."""
        return self.rise - self.kink.epoch

    @property
    def coincides(self) -> bool:
        """Whether they are within 1% of the epochs, two at least."""
        return abs(self.lag) <= window(self.whole, KINK_TO_RISE)

    @property
    def exponential(self) -> bool:
        """Whether the loss falls after the kink, and an exponential explains 0.95 of its logarithm's variance."""
        return self.kink.rate > 0 and self.kink.explained >= EXPLAINED_VARIANCE


def carrying(loss: Float[np.ndarray, " epoch"], evolution: Evolution, whole: int = 0) -> Carrying:
    """The kink of a run's test loss, beside the evolution of its final MLP if every epoch of that is known."""
    known = len(evolution.epochs) == len(loss)
    rise, depth = starts_to_rise(evolution.correlation, whole=whole) if known else (float("nan"), float("nan"))
    return Carrying(max(whole, len(loss)), kink(loss, whole=whole), float(rise), depth)


# ---------------------------------------------------------------- the transition of one layer


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
        return abs(self.lag) <= window(self.whole, ACCURACY_TO_ATTENTION)

    @property
    def apart(self) -> bool:
        """Whether the heads pass one half more than 2% of the epochs (two at least) from each other."""
        return self.formed[1] - self.formed[0] > window(self.whole, ACCURACY_TO_ATTENTION)

    @property
    def late(self) -> bool:
        """Whether the accuracy rises with the last head's change, and not with the first one's."""
        return not self.coincides and abs(self.rise - self.formed[1]) <= window(self.whole, ACCURACY_TO_ATTENTION)

    @property
    def bounces(self) -> bool:
        """Whether the norm turns within 1% of the epochs of the transition, two at least; however slightly."""
        return abs(self.bounce - self.rise) <= window(self.whole, ACCURACY_TO_NORM)

    @property
    def evident(self) -> bool:
        """Whether the norm bounces, and 1% of it or more is lost before and 1% gained after, so that one can see it."""
        return self.bounces and min(self.fall, self.rebound) >= VISIBLE_BOUNCE

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


def transition_of(
    units: Float[np.ndarray, " epoch"],
    pattern: Float[np.ndarray, "epoch head query key"],
    norm: Float[np.ndarray, " epoch"],
    layout: Layout,
    whole: int = 0,
) -> Transition:
    """The transition of one run, from its units' test accuracy, its mean attention and its squared norm."""
    mass = column_mass(torch.from_numpy(pattern), layout)[..., -1].numpy()
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


def transitions(history: History, layout: Layout, whole: int = 0) -> dict[int, Transition]:
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
        found[run] = transition_of(units, pattern, norm, layout, whole)
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


# ---------------------------------------------------------------- claims


@finding("transition", N1)
def transition(evidence: Evidence) -> Measurement:
    """Sec. 3, Fig. 2: attention from the units' answer position to its two digits, against its accuracy."""
    found = transitions(evidence.curves(N1), GROUPS[N1].config.layout, evidence.planned_epochs(N1))
    rows = {
        run: {"value": t.lag, "shows": t.coincides, "steepest_rise": t.rise, "attention_passes_half": t.formed[0]}
        for run, t in found.items()
    }
    return measurement(rows, "Epochs by which the units' accuracy rises after the first head's attention passes half.")


@finding("norm_bounce", N1)
def norm_bounce(evidence: Evidence) -> Measurement:
    """Sec. 3, Fig. 2: the squared norm turns from falling to rising."""
    found = transitions(evidence.curves(N1), GROUPS[N1].config.layout, evidence.planned_epochs(N1))
    rows = {
        run: {"value": t.bounce - t.rise, "shows": t.bounces, "share_lost": t.fall, "share_gained": t.rebound}
        for run, t in found.items()
    }
    return measurement(rows, "Epochs from the steepest rise of the units' accuracy to the nearest turn of the norm.")


@finding("one_layer_imperfect", N1)
def one_layer_imperfect(evidence: Evidence) -> Measurement:
    """Sec. 3."""
    curves = evidence.curves(N1)
    best = zip(curves["runs"].tolist(), curves["test_whole"].max(1).astype(float).tolist(), strict=True)
    return measurement({run: {"value": x, "shows": x < 1} for run, x in best}, "Best test exact match of any epoch.")


@finding("no_grokking", *GROUPS)
def no_grokking(evidence: Evidence) -> Measurement:
    """App. C."""
    rows = {}
    for group in GROUPS:
        try:
            curves = evidence.curves(group)
        except BadInput:
            continue
        if "train_whole" not in curves:  # a released history of n2_s0.1_w0.2 counts single digits only
            continue
        soon = window(evidence.planned_epochs(group), TEST_DELAY)
        for i, run in enumerate(curves["runs"].tolist()):
            learnt, tested = (first_at(curves[f"{part}_whole"][i], LEARNT_ACCURACY) for part in ("train", "test"))
            if learnt == learnt:  # if test accuracy never follows, that is what grokking would look like so far
                rows[group, run] = {"value": tested - learnt, "shows": tested - learnt <= soon}
    if not rows:
        raise BadInput(f"needs: learning curves in which training and test accuracy pass {LEARNT_ACCURACY}.")
    return measurement(rows, f"Epochs by which test accuracy passes {LEARNT_ACCURACY} later than training accuracy.")


@finding("kink", MAIN)
def kink_of_runs(evidence: Evidence) -> Measurement:
    """Sec. 5, Fig. 5: the correlation starts to rise at the kink, and the loss then falls exponentially."""
    curves, rows = evidence.curves(MAIN), {}
    found = evolutions(curves)
    if not found:
        raise BadInput(f"needs: accuracies without the final MLP after every epoch, which {MAIN}'s history has not.")
    for i, run in enumerate(curves["runs"].tolist()):
        c = carrying(finished(curves["test_loss"][i]), found[run], evidence.planned_epochs(MAIN))
        rows[run] = {
            "value": c.lag,
            "shows": c.coincides and c.exponential,
            "kink": c.kink.epoch,
            "rise": c.rise,
            "depth_of_the_fall_before": c.depth,
            "decay_rate": c.kink.rate,
            "its_95%_interval": list(c.kink.interval),
            "explained_variance": c.kink.explained,
        }
    return measurement(rows, "Epochs from the kink of the test loss to the start of the rise.")
