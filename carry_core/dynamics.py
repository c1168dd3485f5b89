"""What learning curves show: kinks, and how the final MLP comes to carry (Sec. 5).

Epochs count from one.
"""

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
from carry_core.measure import Cells
from carry_core.model import Transformer
from carry_core.runs import History

# Shares are of the epochs of the whole recipe: a training that stopped early has had fewer, not shorter ones.
SHOWN = 0.4  # what Fig. 5 plots: 400 of 1000 epochs
PIECE = 3  # epochs that a straight piece of a curve needs

KINK = 0.01  # from the kink of the loss to the start of the rise
EXPLAINED = 0.95  # of the variance of the loss's logarithm
LEARNT, SOON = 0.99, 0.05  # accuracy from which a run has learned; share of the epochs by which tests may come later


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


def kink(loss: Float[np.ndarray, " epoch"], share: float = SHOWN, whole: int = 0) -> Kink:
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
        corrected: the same after the correction by one, as in `measure.Cells`.
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
    (found,) = measure.cells(model, a, b, [measure.final_mlp(model)])
    return _evolution(np.array([epoch]), found.accuracy[None].numpy(), found.corrected[None].numpy())


def _evolution(
    epochs: Int[np.ndarray, " epoch"],
    accuracy: Float[np.ndarray, "epoch task pos"],
    corrected: Float[np.ndarray, "epoch task pos"],
) -> Evolution:
    expected = measure.cannot_carry(accuracy.shape[-1])
    pairs = zip(torch.from_numpy(accuracy), torch.from_numpy(corrected), strict=True)
    correlation = [measure.pearson(Cells(*pair, whole=float("nan")), expected) for pair in pairs]
    return Evolution(epochs, accuracy, corrected, np.array(correlation))


def starts_to_rise(curve: Float[np.ndarray, " epoch"], share: float = SHOWN, whole: int = 0) -> tuple[int, float]:
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
        return abs(self.lag) <= window(self.whole, KINK)

    @property
    def exponential(self) -> bool:
        """Whether the loss falls after the kink, and an exponential explains 0.95 of its logarithm's variance."""
        return self.kink.rate > 0 and self.kink.explained >= EXPLAINED


def carrying(loss: Float[np.ndarray, " epoch"], evolution: Evolution, whole: int = 0) -> Carrying:
    """The kink of a run's test loss, beside the evolution of its final MLP if every epoch of that is known."""
    known = len(evolution.epochs) == len(loss)
    rise, depth = starts_to_rise(evolution.correlation, whole=whole) if known else (float("nan"), float("nan"))
    return Carrying(max(whole, len(loss)), kink(loss, whole=whole), float(rise), depth)
