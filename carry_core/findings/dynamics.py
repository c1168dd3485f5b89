"""What learning curves show: the transition of one layer (Sec. 3, Fig. 2), kinks, the final MLP (Sec. 5, Fig. 5).

Epochs count from one. Shares of epochs are of those of the whole recipe: a training that stopped early has had fewer,
not shorter ones.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.signal
import scipy.stats
import torch
from jaxtyping import Float

from carry_core.errors import BadInput
from carry_core.findings.base import MAIN, N1, N1_W1, Fields, finding, per_run
from carry_core.findings.heads import column_mass, no_carry_reference
from carry_core.findings.survey import Evidence
from carry_core.groups import GROUPS
from carry_core.sums import Layout
from carry_core.training.histories import History

Curve = Float[np.ndarray, " epoch"]
PLOTTED = 0.4  # what Fig. 5 plots: 400 of 1000 epochs
PIECE = 3  # epochs that a straight piece of a curve needs

KINK_TO_RISE = 0.01  # from the kink of the loss to the start of the rise
SMOOTHED = 10  # epochs: the loss of a single one is noisy
EXPLAINED_VARIANCE = 0.95  # of the smoothed loss's logarithm
LEARNT_ACCURACY, TEST_DELAY = 0.99, 0.05  # from which a run has learned; share of the epochs by which tests may lag
ACCURACY_TO_ATTENTION, ACCURACY_TO_NORM = 0.02, 0.01  # epochs between two changes at the transition
VISIBLE_BOUNCE = 0.01  # of the squared norm


def finished(curve: Float[np.ndarray, "epoch *more"]) -> Float[np.ndarray, "trained *more"]:
    """The epochs that a run was trained for: where other runs of its group went on, it has NaN."""
    return np.compress(~np.isnan(curve.reshape(len(curve), -1)).any(1), curve, 0)


def curves(history: History, name: str) -> dict[int, Float[np.ndarray, "epoch *more"]]:
    """A learning curve of each run, as far as it was trained."""
    return {int(run): finished(curve) for run, curve in zip(history["runs"], history[name], strict=True)}


def first_at(curve: Curve, level: float) -> float:
    """The first epoch at which the curve reaches the level; NaN if it never does."""
    reached = np.flatnonzero(curve >= level)
    return float(reached[0] + 1) if len(reached) else np.nan


def window(epochs: int, share: float) -> float:
    """A share of the epochs, two at least."""
    return max(2.0, share * epochs)


class Kink(NamedTuple):
    """Where the fall of a loss turns from one exponential to another, and the second one (Sec. 5, Fig. 5)."""

    epoch: int
    end: int  # the last epoch that was looked at
    rate: float  # per epoch; after the kink the loss goes as exp(-rate * epoch)
    interval: tuple[float, float]  # of `rate`, 95%, as for independent residuals
    explained: float  # share of the variance of the logarithm after the kink, over means of `SMOOTHED` epochs
    level: float  # logarithm of the exponential at epoch 0


def kink(loss: Curve, share: float = PLOTTED, planned: int = 0) -> Kink:
    """The corner of the two joined straight pieces that fit a loss's logarithm best; `BadInput` if it is too short.

    In the first `share` of the training, which was to have `planned` epochs if those are more than there are.
    """
    end = min(len(loss), max(round(share * max(planned, len(loss))), 2 * PIECE + 1))
    if end < 2 * PIECE + 1:
        raise BadInput(f"A loss over {len(loss)} epochs has no kink to look for: expected {2 * PIECE + 1} or more.")
    epochs, log = np.arange(1.0, end + 1), np.log(loss[:end].astype(np.float64))

    def misfit(corner: int) -> float:
        pieces = np.stack([np.ones(end), epochs, np.maximum(epochs - corner, 0)], 1)
        return float(np.square(log - pieces @ np.linalg.lstsq(pieces, log)[0]).sum())

    corner = min(range(PIECE, end - PIECE + 2), key=misfit)
    fit = scipy.stats.linregress(epochs[corner - 1 :], log[corner - 1 :])
    wide = float(scipy.stats.t.ppf(0.975, end - corner - 1) * fit.stderr)
    rate, after = -float(fit.slope), loss[corner - 1 : end]
    smooth = np.log(after[: len(after) // SMOOTHED * SMOOTHED].reshape(-1, SMOOTHED).mean(1))
    explained = scipy.stats.linregress(range(len(smooth)), smooth).rvalue ** 2 if len(smooth) > 2 else np.nan
    return Kink(corner, end, rate, (rate - wide, rate + wide), float(explained), float(fit.intercept))


def correlations(history: History) -> dict[int, Curve]:
    """Pearson correlation of what is right without the final MLP with a model that cannot carry (Fig. 5), by run.

    Over accuracies and corrected ones, as in `measure.ClassAccuracies`; of no run if the history has none.
    """
    if "test_ablated_accuracy" not in history:
        return {}
    right, corrected = (curves(history, f"test_ablated_{kind}") for kind in ("accuracy", "corrected"))
    cells = {run: np.concatenate([right[run], corrected[run]], 1).astype(float) for run in right}
    expected = no_carry_reference(history["test_ablated_accuracy"].shape[-1])
    reference = pd.Series(torch.cat([expected.accuracy, expected.corrected]).flatten().numpy())
    return {run: pd.DataFrame(x.reshape(len(x), -1)).corrwith(reference, axis=1).to_numpy() for run, x in cells.items()}


def starts_to_rise(curve: Curve, planned: int = 0) -> tuple[int, float]:
    """The epoch at the bottom of the curve's deepest fall below an earlier high, and how deep it is (as in `kink`)."""
    # the first ordinary additions raise the correlation, too; what is asked is when it rises for good
    looked_at = curve[: max(1, round(PLOTTED * max(planned, len(curve))))]
    fall = np.maximum.accumulate(looked_at) - looked_at
    return int(fall.argmax()) + 1, float(fall.max())


def carrying(loss: Curve, correlation: Curve, planned: int = 0) -> Fields:
    """How long after the kink the final MLP's role starts to form, and how the loss falls from there on (Sec. 5)."""
    fit, (rise, depth) = kink(loss, planned=planned), starts_to_rise(correlation, planned)
    return {
        "value": float(rise - fit.epoch),
        "planned": max(planned, len(loss)),
        "kink": fit.epoch,
        "rise": float(rise),
        "depth_of_the_fall_before": depth,
        "decay_rate": fit.rate,
        "its_95%_interval": list(fit.interval),
        "explained_variance": fit.explained,
    }


def coincides(lag: float, planned: int) -> bool:
    """Tell whether the accuracy rises so few epochs after the attention changes that they change together."""
    return bool(abs(lag) <= window(planned, ACCURACY_TO_ATTENTION))


def bounces(to_turn: float, fall: float, rebound: float, planned: int) -> bool:
    """Tell whether a norm turns so few epochs from the rise, and visibly: the shares that it loses and gains."""
    near = abs(to_turn) <= window(planned, ACCURACY_TO_NORM)
    return bool(near and min(fall, rebound) >= VISIBLE_BOUNCE)


def transitions(history: History, layout: Layout, planned: int = 0) -> pd.DataFrame:
    """When each one-layer run learns the units, and what its attention and its norm do then (Sec. 3, Fig. 2).

    A row for each run, all in epochs but for shares: `epochs`; `rise`, during which the units' test accuracy rises
    most, by `jump`; `passes`, for each head the first at which the units' answer position gives half of its attention
    or more to the two digits of its column (NaN: never), `first` and `last` of these; `bounce`, the nearest to `rise`
    at which the squared norm turns from falling to rising, where it has lost `fall` of its highest value and goes on to
    gain `rebound` of its lowest; `lag` of the rise behind `first`. Whether accuracy and attention change together
    (`coincides`), heads `apart`, and the norm visibly `bounces`. `BadInput` without one layer's attention.
    """
    if "pattern" not in history or history["pattern"].ndim != 5:
        raise BadInput("No mean attention of one layer in this history: expected that of a one-layer group.")
    rows = {}
    for i, (run, accuracy) in enumerate(curves(history, "test_accuracy").items()):
        epochs, rises = len(accuracy), np.diff(accuracy[:, -1])
        mass = column_mass(torch.from_numpy(history["pattern"][i, :epochs]), layout)[..., -1].numpy()
        passes = pd.Series([first_at(head, 0.5) for head in mass.T])
        rise, first, last = float(rises.argmax() + 2), passes.min(), passes.max()
        bounce, fall, rebound = _turn(history["weight_norm"][i, :epochs], rise)
        whole = max(planned, epochs)
        rows[run] = {
            "epochs": epochs,
            "rise": rise,
            "jump": float(rises.max()),
            "passes": tuple(passes),
            "first": first,
            "last": last,
            "lag": rise - first,
            "coincides": coincides(rise - first, whole),
            "apart": last - first > window(whole, ACCURACY_TO_ATTENTION),
            "bounce": bounce,
            "fall": fall,
            "rebound": rebound,
            "bounces": bounces(bounce - rise, fall, rebound, whole),
        }
    return per_run(rows)


def _turn(norm: Curve, rise: float) -> tuple[float, float, float]:
    """The turn of a norm that is nearest to an epoch, and the shares that it lost before and gains after; or NaN."""
    turns = scipy.signal.argrelmin(norm)[0] + 1
    if not len(turns):
        return np.nan, np.nan, np.nan
    turn = int(turns[np.abs(turns - rise).argmin()])
    after = norm[turn - 1 :]
    top = after[np.append(np.diff(after) > 0, values=False).argmin()]  # it rises no further
    return float(turn), float(1 - after[0] / norm[:turn].max()), float(top / after[0] - 1)


def shown_epochs(transition: "pd.Series[Any]") -> tuple[int, ...]:
    """Epochs before, between and after the heads' transitions, for the maps of Fig. 2; from a row of `transitions`."""
    end, first, last = transition[["epochs", "first", "last"]]
    if np.isnan(first):  # no head ever passes one half: after a quarter, a half and three quarters of the training
        first = last = end / 2
    return tuple(max(1, round(middle)) for middle in (first / 2, (first + last) / 2, (last + end) / 2))


def shown_run(transitions: pd.DataFrame) -> int:
    """The run with the sharpest rise, of those whose heads change apart if there are any."""
    return int((transitions[transitions.apart] if transitions.apart.any() else transitions).jump.idxmax())


def transition_rows(evidence: Evidence, group: str, **names: str) -> pd.DataFrame:
    """`transitions` of a group, with some of its columns by other names."""
    rows = transitions(evidence.curves(group), GROUPS[group].config.layout, evidence.planned_epochs(group))
    rows = rows.assign(to_turn=rows.bounce - rows.rise, both_heads=rows.coincides & rows["last"].notna())
    return rows[[*names]].rename(columns=names)


@finding("transition", N1)
def transition(evidence: Evidence) -> pd.DataFrame:
    """Epochs by which the units' accuracy rises after the first head's attention passes half (Sec. 3, Fig. 2)."""
    names = {"lag": "value", "coincides": "shows", "rise": "steepest_rise", "first": "attention_passes_half"}
    return transition_rows(evidence, N1, **names)


@finding("strong_decay_transition", N1_W1)
def strong_decay_transition(evidence: Evidence) -> pd.DataFrame:
    """Epochs by which the units' accuracy rises after the first head's attention passes half (App. C.1, Fig. 10)."""
    names = {"lag": "value", "both_heads": "shows", "rise": "steepest_rise", "first": "attention_passes_half"}
    return transition_rows(evidence, N1_W1, **names)


@finding("norm_bounce", N1)
def norm_bounce(evidence: Evidence) -> pd.DataFrame:
    """Epochs from the steepest rise of the units' accuracy to the nearest turn of the norm (Sec. 3, Fig. 2)."""
    return transition_rows(evidence, N1, to_turn="value", bounces="shows", fall="share_lost", rebound="share_gained")


@finding("one_layer_imperfect", N1)
def one_layer_imperfect(evidence: Evidence) -> pd.DataFrame:
    """Best test exact match of any epoch (Sec. 3)."""
    best = curves(evidence.curves(N1), "test_whole")
    return per_run(best, lambda curve: {"value": float(curve.max()), "shows": float(curve.max()) < 1})


def starts_at_the_kink(row: Fields) -> bool:
    """Tell whether the final MLP's role starts to form at the kink, and the loss then falls exponentially."""
    exponential = row["decay_rate"] > 0 and row["explained_variance"] >= EXPLAINED_VARIANCE
    return bool(exponential and abs(row["value"]) <= window(row["planned"], KINK_TO_RISE))


def learns_at_once(row: Fields) -> bool:
    """Tell whether the test sums are learned with those trained on."""
    return bool(row["value"] <= window(row["planned"], TEST_DELAY))


@finding("no_grokking", *GROUPS, rule=learns_at_once)
def no_grokking(evidence: Evidence) -> pd.DataFrame:
    """Epochs by which test exact match passes 0.99 later than training exact match (App. C)."""
    delays = {}
    for group in GROUPS:
        try:
            history = evidence.curves(group)
        except BadInput:
            continue
        if "train_whole" not in history:  # a released history of n2_s0.1_w0.2 counts single digits only
            continue
        planned, test = evidence.planned_epochs(group), curves(history, "test_whole")
        for run, curve in curves(history, "train_whole").items():
            learnt, tested = (first_at(x, LEARNT_ACCURACY) for x in (curve, test[run]))
            if not np.isnan(learnt):  # if test accuracy never follows, that is what grokking would look like so far
                delays[group, run] = {"value": tested - learnt, "planned": planned}
    if not delays:
        raise BadInput(f"It needs learning curves in which training and test accuracy pass {LEARNT_ACCURACY}.")
    return per_run(delays)


@finding("kink", MAIN, rule=starts_at_the_kink)
def kink_of_runs(evidence: Evidence) -> pd.DataFrame:
    """Epochs from the kink of the test loss to the start of the rise of the correlation (Sec. 5, Fig. 5)."""
    history, planned = evidence.curves(MAIN), evidence.planned_epochs(MAIN)
    losses, by_run = curves(history, "test_loss"), correlations(history)
    if not by_run:
        raise BadInput(
            f"It needs accuracies without the final MLP after every epoch, which {MAIN}'s history does not have."
        )
    return per_run({run: carrying(losses[run], x, planned) for run, x in by_run.items()})
