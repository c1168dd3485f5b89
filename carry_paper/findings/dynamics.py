"""What learning curves show: the transition of one layer (Sec. 3, Fig. 2), kinks, the final MLP (Sec. 5, Fig. 5).

Epochs count from one. Shares of epochs are of those of the whole recipe: a training that stopped
early has had fewer, not shorter ones. A run is tested after some of its epochs only, later in the
training after every tenth. So an epoch that is measured is one after which it was tested, and what
it marks may have happened at any time since the test before: `resolution`.
"""

import math
from collections.abc import Collection
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import scipy.signal
import scipy.stats
import torch
from jaxtyping import Float, Int

from carry_core.errors import BadInput
from carry_core.groups import GROUPS
from carry_core.runs import History
from carry_core.sums import Layout
from carry_paper.findings.base import MAIN, N1, N1_W1, Fields, per_run
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.heads import column_mass, no_carry_reference

Curve: TypeAlias = pd.Series  # of numbers, by the epochs after which a run was tested
PLOTTED = 0.4  # what Fig. 5 plots: 400 of 1000 epochs
PIECE = 3  # epochs that a straight piece of a curve needs

KINK_TO_RISE = 0.01  # from the kink of the loss to the start of the rise
SMOOTHED = 10  # epochs: the loss of a single one is noisy
EXPLAINED_VARIANCE = 0.95  # of the smoothed loss's logarithm
# from which a run has learned; share of the epochs by which tests may lag
LEARNT_ACCURACY, TEST_DELAY = 0.99, 0.05
ACCURACY_TO_ATTENTION, ACCURACY_TO_NORM = 0.02, 0.01  # epochs between two changes at the transition
VISIBLE_BOUNCE = 0.01  # of the squared norm


def finished(curve: Float[np.ndarray, "epoch *more"]) -> Float[np.ndarray, "trained *more"]:
    """The epochs that a run was trained for: where other runs of its group went on, it has NaN."""
    return np.compress(~np.isnan(curve.reshape(len(curve), -1)).any(1), curve, 0)


def curves(history: History, name: str, position: int | None = None) -> dict[int, Curve]:
    """A learning curve of each run, as far as it was trained; of one `position` if it has some."""
    values = history[name] if position is None else history[name][..., position]
    return {
        int(run): pd.Series(curve, history["epochs"]).dropna()
        for run, curve in zip(history["runs"], values, strict=True)
    }


def first_at(curve: Curve, level: float) -> float:
    """The first tested epoch at which the curve reaches the level; NaN if it never does."""
    reached = curve.index[curve >= level]
    return float(reached[0]) if len(reached) else np.nan


def since_last_test(epochs: Int[np.ndarray, " test"]) -> Int[np.ndarray, " test"]:
    """Epochs from one test to the next, of each test; of the first one 1."""
    return np.diff(epochs, prepend=epochs[0] - 1)


def per_epoch(curve: Curve) -> Curve:
    """The curve with each test as often as there are epochs since the one before it."""
    return curve.repeat(since_last_test(curve.index.to_numpy()))


def resolution(epochs: Int[np.ndarray, " test"], measured: Collection[Any]) -> int:
    """The most epochs since the test before, over the `measured` epochs that are not NaN."""
    waited = pd.Series(since_last_test(epochs), epochs)
    return int(waited[waited.index.isin(measured)].max())


def with_resolution(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of a finding, with their `resolution` only if tests were further apart than an epoch."""
    return rows if (rows.resolution > 1).any() else rows.drop(columns="resolution")


def window(epochs: int, share: float) -> float:
    """A share of the epochs, two at least."""
    return max(2.0, share * epochs)


class Kink(NamedTuple):
    """Where the fall of a loss turns from one exponential to another, and the second one (Sec. 5, Fig. 5)."""

    epoch: int
    end: int  # the last epoch that was looked at
    rate: float  # per epoch; after the kink the loss goes as exp(-rate * epoch)
    interval: tuple[float, float]  # of `rate`, 95%, as for independent residuals
    # share of the variance of the logarithm after the kink, over means of `SMOOTHED` epochs
    explained: float
    level: float  # logarithm of the exponential at epoch 0


def fit_kink(loss: Curve, share: float = PLOTTED, planned: int = 0) -> Kink:
    """The corner of the two joined straight pieces that fit a loss's logarithm best; `BadInput` if it is too short.

    In the first `share` of the training, which was to have `planned` epochs if those are more than
    there are. A test counts as often as there are epochs since the one before it.
    """
    last = int(loss.index[-1])
    tests = loss.loc[: max(round(share * max(planned, last)), 2 * PIECE + 1)]
    if len(tests) < 2 * PIECE + 1:
        expected = f"expected {2 * PIECE + 1} or more"
        raise BadInput(f"A loss over {len(tests)} epochs has no kink to look for: {expected}.")
    tested, weighted = tests.index.to_numpy(), per_epoch(tests)
    epochs, log = weighted.index.to_numpy(np.float64), np.log(weighted.to_numpy(np.float64))

    def misfit(corner: int) -> float:
        pieces = np.stack([np.ones(len(epochs)), epochs, np.maximum(epochs - corner, 0)], 1)
        return float(np.square(log - pieces @ np.linalg.lstsq(pieces, log)[0]).sum())

    corner = min(tested[PIECE - 1 : len(tested) - PIECE + 1].tolist(), key=misfit)
    after = epochs >= corner
    fit = scipy.stats.linregress(epochs[after], log[after])
    freedom = int((tested >= corner).sum()) - 2
    repeats = (int(after.sum()) - 2) / freedom  # they make the fit no surer
    error = float(fit.stderr) * math.sqrt(repeats)
    wide = float(scipy.stats.t.ppf(0.975, freedom)) * error
    rate, falling = -float(fit.slope), weighted.to_numpy()[after]
    smooth = np.log(falling[: len(falling) // SMOOTHED * SMOOTHED].reshape(-1, SMOOTHED).mean(1))
    explained = (
        scipy.stats.linregress(range(len(smooth)), smooth).rvalue ** 2
        if len(smooth) > 2
        else np.nan
    )
    interval = rate - wide, rate + wide
    return Kink(corner, int(tested[-1]), rate, interval, float(explained), float(fit.intercept))


def correlations(history: History) -> dict[int, Curve]:
    """Pearson correlation of what is right without the final MLP with a model that cannot carry (Fig. 5), by run.

    Over accuracies and corrected ones, as in `measure.ClassAccuracies`; of no run if the history
    has none.
    """
    if "test_ablated_accuracy" not in history:
        return {}
    # [run, epoch, class, position] each
    cells = [history[f"test_ablated_{kind}"] for kind in ("accuracy", "corrected")]
    flat = np.concatenate(cells, 2).astype(float).reshape(*cells[0].shape[:2], -1)
    expected = no_carry_reference(cells[0].shape[-1])
    reference = pd.Series(torch.cat([expected.accuracy, expected.corrected]).flatten().numpy())
    found = {}
    for run, numbers in zip(history["runs"], flat, strict=True):
        by_epoch = pd.DataFrame(numbers, history["epochs"]).dropna()
        found[int(run)] = by_epoch.corrwith(reference, axis=1)
    return found


def starts_to_rise(curve: Curve, planned: int = 0) -> tuple[int, float]:
    """The epoch at the bottom of the curve's deepest fall below an earlier high, and its depth, as in `fit_kink`."""
    # the first ordinary additions raise the correlation, too; what is asked is when it rises for
    # good
    looked_at = curve.loc[: max(1, round(PLOTTED * max(planned, int(curve.index[-1]))))]
    fall = looked_at.cummax() - looked_at
    return int(fall.idxmax()), float(fall.max())


def carrying(loss: Curve, correlation: Curve, planned: int = 0) -> Fields:
    """How long after the kink the final MLP's role starts to form, and how the loss falls from there on (Sec. 5)."""
    fit, (rise, depth) = fit_kink(loss, planned=planned), starts_to_rise(correlation, planned)
    return {
        "value": float(rise - fit.epoch),
        "planned": max(planned, int(loss.index[-1])),
        "kink": fit.epoch,
        "rise": float(rise),
        "depth_of_the_fall_before": depth,
        "decay_rate": fit.rate,
        "its_95%_interval": list(fit.interval),
        "explained_variance": fit.explained,
        "resolution": resolution(loss.index.to_numpy(), [fit.epoch, rise]),
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

    A row for each run, all in epochs but for shares: `epochs`; `rise`, during which the units' test
    accuracy rises most, by `jump` an epoch; `passes`, for each head the first at which the units'
    answer position gives half of its attention or more to the two digits of its column (NaN:
    never), `first` and `last` of these; `bounce`, the nearest to `rise` at which the squared norm
    turns from falling to rising, where it has lost `fall` of its highest value and goes on to gain
    `rebound` of its lowest; `lag` of the rise behind `first`; `resolution` of all of these. Whether
    accuracy and attention change together (`coincides`), heads `apart`, and the norm visibly
    `bounces`. `BadInput` without one layer's attention.
    """
    if "pattern" not in history or history["pattern"].ndim != 5:
        raise BadInput(
            "No mean attention of one layer in this history: expected that of a one-layer group."
        )
    rows = {}
    norms = curves(history, "weight_norm")
    for i, (run, units) in enumerate(curves(history, "test_accuracy", -1).items()):
        tested = units.index.to_numpy()
        pattern = history["pattern"][i, np.isin(history["epochs"], tested)]
        mass = column_mass(torch.from_numpy(pattern), layout)[..., -1].numpy()  # [epoch, head]
        passes = pd.Series([first_at(pd.Series(head, tested), 0.5) for head in mass.T])
        rises = units.diff() / since_last_test(tested)
        rise, first, last = float(rises.idxmax()), passes.min(), passes.max()
        bounce, fall, rebound = _turn(norms[run], rise)
        epochs = int(tested[-1])
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
            "resolution": resolution(tested, [rise, *passes, bounce]),
        }
    return per_run(rows)


def _turn(norm: Curve, rise: float) -> tuple[float, float, float]:
    """The turn of a norm that is nearest to an epoch, and the shares that it lost before and gains after; or NaN."""
    turns = norm.index[scipy.signal.argrelmin(norm.to_numpy())[0]]
    if not len(turns):
        return np.nan, np.nan, np.nan
    turn = turns[np.abs(turns - rise).argmin()]
    after = norm.loc[turn:].to_numpy()
    top = after[np.append(np.diff(after) > 0, values=False).argmin()]  # it rises no further
    return float(turn), float(1 - after[0] / norm.loc[:turn].max()), float(top / after[0] - 1)


def shown_epochs(transition: "pd.Series[Any]", tested: Int[np.ndarray, " test"]) -> tuple[int, ...]:
    """Epochs before, between and after the heads' transitions, for the maps of Fig. 2.

    From a row of `transitions`; of the `tested` epochs those that are nearest to the middles.
    """
    end, first, last = transition[["epochs", "first", "last"]]
    # no head ever passes one half: after a quarter, a half and three quarters of the training
    if np.isnan(first):
        first = last = end / 2
    middles = [round(middle) for middle in (first / 2, (first + last) / 2, (last + end) / 2)]
    return tuple(int(tested[np.abs(tested - middle).argmin()]) for middle in middles)


def shown_run(transitions: pd.DataFrame) -> int:
    """The run with the sharpest rise, of those whose heads change apart if there are any."""
    return int(
        (transitions[transitions.apart] if transitions.apart.any() else transitions).jump.idxmax()
    )


def transition_rows(evidence: Evidence, group: str, **names: str) -> pd.DataFrame:
    """`transitions` of a group, with some of its columns by other names."""
    rows = transitions(
        evidence.curves(group), GROUPS[group].config.layout, evidence.planned_epochs(group)
    )
    rows = rows.assign(
        to_turn=rows.bounce - rows.rise, both_heads=rows.coincides & rows["last"].notna()
    )
    return with_resolution(rows[[*names, "resolution"]].rename(columns=names))


def transition(evidence: Evidence) -> pd.DataFrame:
    """Epochs by which the units' accuracy rises after the first head's attention passes half (Sec. 3, Fig. 2)."""
    names = {
        "lag": "value",
        "coincides": "shows",
        "rise": "steepest_rise",
        "first": "attention_passes_half",
    }
    return transition_rows(evidence, N1, **names)


def strong_decay_transition(evidence: Evidence) -> pd.DataFrame:
    """Epochs by which the units' accuracy rises after the first head's attention passes half (App. C.1, Fig. 10)."""
    names = {
        "lag": "value",
        "both_heads": "shows",
        "rise": "steepest_rise",
        "first": "attention_passes_half",
    }
    return transition_rows(evidence, N1_W1, **names)


def norm_bounce(evidence: Evidence) -> pd.DataFrame:
    """Epochs from the steepest rise of the units' accuracy to the nearest turn of the norm (Sec. 3, Fig. 2)."""
    return transition_rows(
        evidence, N1, to_turn="value", bounces="shows", fall="share_lost", rebound="share_gained"
    )


def one_layer_imperfect(evidence: Evidence) -> pd.DataFrame:
    """Best test exact match of any epoch (Sec. 3)."""
    best = curves(evidence.curves(N1), "test_whole")
    rows = {}
    for run, curve in best.items():
        rows[run] = {"value": float(curve.max()), "shows": float(curve.max()) < 1}
    return per_run(rows)


def starts_at_the_kink(row: Fields) -> bool:
    """Tell whether the final MLP's role starts to form at the kink, and the loss then falls exponentially."""
    exponential = row["decay_rate"] > 0 and row["explained_variance"] >= EXPLAINED_VARIANCE
    return bool(exponential and abs(row["value"]) <= window(row["planned"], KINK_TO_RISE))


def learns_at_once(row: Fields) -> bool:
    """Tell whether the test sums are learned with those trained on."""
    return bool(row["value"] <= window(row["planned"], TEST_DELAY))


def no_grokking(evidence: Evidence) -> pd.DataFrame:
    """Epochs by which test exact match passes 0.99 later than training exact match (App. C)."""
    delays = {}
    for group in GROUPS:
        try:
            history = evidence.curves(group)
        except BadInput:
            continue
        # a released history of n2_s0.1_w0.2 counts single digits only
        if "train_whole" not in history:
            continue
        planned, test = evidence.planned_epochs(group), curves(history, "test_whole")
        for run, curve in curves(history, "train_whole").items():
            learnt, tested = (first_at(x, LEARNT_ACCURACY) for x in (curve, test[run]))
            # if test accuracy never follows, that is what grokking would look like so far
            if not np.isnan(learnt):
                epochs = resolution(history["epochs"], [learnt, tested])
                delays[group, run] = {
                    "value": tested - learnt,
                    "planned": planned,
                    "resolution": epochs,
                }
    if not delays:
        raise BadInput(
            f"It needs learning curves in which training and test accuracy pass {LEARNT_ACCURACY}."
        )
    return with_resolution(per_run(delays))


def kink(evidence: Evidence) -> pd.DataFrame:
    """Epochs from the kink of the test loss to the start of the rise of the correlation (Sec. 5, Fig. 5)."""
    history, planned = evidence.curves(MAIN), evidence.planned_epochs(MAIN)
    losses, by_run = curves(history, "test_loss"), correlations(history)
    if not by_run:
        raise BadInput(
            f"It needs accuracies without the final MLP after every epoch, which {MAIN}'s history does not have."
        )
    found = {run: carrying(losses[run], x, planned) for run, x in by_run.items()}
    return with_resolution(per_run(found))


def rebound(loss: Curve, share: float = 0.1) -> float:
    """Return how far a loss ends above its lowest point, as their ratio (App. B, Fig. 9).

    The loss, which has every epoch, is averaged over windows of a `share` of the epochs.
    """
    width = max(1, round(share * len(loss)))
    smooth = np.convolve(loss, np.full(width, 1 / width), "valid")
    return float(smooth[-1] / smooth.min())
