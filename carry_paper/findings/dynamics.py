"""Findings about learning curves: the transition of one layer, the loss's kink, the final MLP.

(Sec. 3, 5, App. C; Fig. 2, 5, 10.) Epochs count from one. Shares of epochs are of those of the
whole recipe: a training that stopped early has had fewer, not shorter ones. A run is tested after
some of its epochs only, later in the training after every tenth. So an epoch that is measured is
one after which it was tested, and what it marks may have happened at any time since the test
before: `resolution`.
"""

import math
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import scipy
import torch
from jaxtyping import Float, Int

from carry_core.errors import BadInput
from carry_core.runs import History
from carry_core.sums import Layout
from carry_paper.findings.bars import Bar, below
from carry_paper.findings.base import MAIN, N1, N1_W1, Fields, per_run
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.heads import column_mass, no_carry_reference
from carry_train.groups import GROUPS

Curve: TypeAlias = pd.Series  # numbers, indexed by the epochs after which a run was tested

PLOTTED = 0.4  # share of the epochs that Fig. 5 plots: 400 of 1000


# ---- learning curves


def curves(history: History, name: str, position: int | None = None) -> dict[int, Curve]:
    """Return a learning curve of each run, as far as the run was trained.

    `position` is the index of an answer position, for a curve that has several.
    """
    values = history[name] if position is None else history[name][..., position]
    by_run = {}
    for run, curve in zip(history["runs"], values, strict=True):
        by_run[int(run)] = pd.Series(curve, history["epochs"]).dropna()
    return by_run


def of_curves(history: History, name: str, measure: Callable[[Curve], float]) -> pd.DataFrame:
    """Return what `measure` gives for a learning curve of each run."""
    by_run = curves(history, name)
    return per_run({run: {"value": measure(curve)} for run, curve in by_run.items()})


def first_at(curve: Curve, level: float) -> float:
    """Return the first tested epoch at which the curve reaches the level; NaN if it never does."""
    reached = curve.index[curve >= level]
    return float(reached[0]) if len(reached) else np.nan


def since_last_test(epochs: Int[np.ndarray, " test"]) -> Int[np.ndarray, " test"]:
    """Return the epochs from one test to the next, for each test; 1 for the first one."""
    return np.diff(epochs, prepend=epochs[0] - 1)


def per_epoch(curve: Curve) -> Curve:
    """Return the curve with each test repeated, once for each epoch since the test before it."""
    return curve.repeat(since_last_test(curve.index.to_numpy()))


def resolution(epochs: Int[np.ndarray, " test"], measured: Collection[Any]) -> int:
    """Return the largest number of epochs between a `measured` epoch and the test before it.

    Epochs that are NaN do not count.
    """
    waited = pd.Series(since_last_test(epochs), epochs)
    return int(waited[waited.index.isin(measured)].max())


def with_resolution(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a finding's rows, with `resolution` only if tests were more than an epoch apart."""
    return rows if (rows.resolution > 1).any() else rows.drop(columns="resolution")


SHORTEST_WINDOW = 2.0  # epochs


def window(epochs: int, share: float) -> float:
    """Return a share of the epochs, at least two."""
    return max(SHORTEST_WINDOW, share * epochs)


def rebound(loss: Curve) -> float:
    """Return the ratio of a loss at the end to its lowest value (App. B, Fig. 9).

    The loss is averaged over windows of a tenth of the epochs.
    """
    by_epoch = per_epoch(loss)
    width = max(1, round(0.1 * len(by_epoch)))
    smooth = np.convolve(by_epoch, np.full(width, 1 / width), "valid")
    return float(smooth[-1] / smooth.min())


# ---- the transition of one layer (Sec. 3, Fig. 2)

# Epochs between two changes that are one transition, as shares of the whole training.
ACCURACY_TO_ATTENTION = Bar(0.02, perfect=0)
ACCURACY_TO_NORM = Bar(0.01, perfect=0)
VISIBLE_BOUNCE = Bar(0.01, perfect=0)  # share of the squared norm
HALF_OF_ATTENTION = 0.5  # from this share on, a head attends to its column


def coincides(lag: float, planned: int, share: float = ACCURACY_TO_ATTENTION) -> bool:
    """Return True if accuracy and attention rise within so few epochs that they change together."""
    return bool(abs(lag) <= window(planned, share))


def bounces(
    to_turn: float,
    fall: float,
    rebound: float,
    planned: int,
    *,
    distance: float = ACCURACY_TO_NORM,
    visible: float = VISIBLE_BOUNCE,
) -> bool:
    """Return True if a norm turns near the rise, and both its loss and its gain are visible."""
    is_near = abs(to_turn) <= window(planned, distance)
    return bool(is_near and min(fall, rebound) >= visible)


def transitions(history: History, layout: Layout, planned: int = 0) -> pd.DataFrame:
    """Return when each one-layer run learns the units, by epochs (Sec. 3, Fig. 2).

    `planned` is the number of epochs of the whole training, if it stopped early.

    Returns:
        A row for each run: the `epochs` for which it was trained, and those `planned`; the epoch of
        the steepest `rise` of the units' test accuracy, which then rises by `jump`; for each head,
        the first epoch at which the units' answer position gives half of its attention or more to
        the two digits of its column (`passes`, NaN if it never does), with the `first` and the
        `last` of them; the `lag` from `first` to the rise; `coincides`, and `apart`, True if the
        heads change one after the other; the epoch nearest to the rise at which the squared norm
        turns from falling to rising (`bounce`), the share of its highest value so far that it has
        lost by then (`fall`), and the share that it gains afterwards (`rebound`); `bounces`; and
        the `resolution` of all these epochs.

    Raises:
        BadInput: The history has no attention of a one-layer model.
    """
    if "pattern" not in history or history["pattern"].ndim != 5:
        raise BadInput(
            "No mean attention of one layer in this history: expected that of a one-layer group."
        )
    norms = curves(history, "weight_norm")
    rows = {}
    for i, (run, units) in enumerate(curves(history, "test_accuracy", -1).items()):
        is_tested = np.isin(history["epochs"], units.index.to_numpy())
        pattern = torch.from_numpy(history["pattern"][i, is_tested])  # (epoch, head, query, key)
        mass = column_mass(pattern, layout)[..., -1].numpy()  # (epoch, head)
        rows[run] = _transition(units, mass, norms[run], planned)
    return per_run(rows)


def _transition(
    units: Curve, mass: Float[np.ndarray, "epoch head"], norm: Curve, planned: int
) -> Fields:
    """Return a run's row of `transitions`, from its units' accuracy, their attention and norm."""
    tested = units.index.to_numpy()
    passes = pd.Series([first_at(pd.Series(head, tested), HALF_OF_ATTENTION) for head in mass.T])
    first, last = passes.min(), passes.max()
    rises = units.diff() / since_last_test(tested)
    rise = float(rises.idxmax())
    bounce, fall, rebound = _turn(norm, rise)
    epochs = int(tested[-1])
    whole = max(planned, epochs)
    return {
        "epochs": epochs,
        "planned": whole,
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


def _turn(norm: Curve, rise: float) -> tuple[float, float, float]:
    """Return the epoch at which a norm turns upwards, and the shares lost before, gained after.

    Of several, it is the one nearest to the epoch `rise`. All are NaN if it never turns.
    """
    turns = norm.index[scipy.signal.argrelmin(norm.to_numpy())[0]]
    if not len(turns):
        return np.nan, np.nan, np.nan
    epoch = turns[np.abs(turns - rise).argmin()]
    highest_before = norm.loc[:epoch].max()
    after = norm.loc[epoch:].to_numpy()
    goes_on_rising = np.append(np.diff(after) > 0, values=False)
    top = after[goes_on_rising.argmin()]
    return float(epoch), float(1 - after[0] / highest_before), float(top / after[0] - 1)


def shown_epochs(transition: "pd.Series[Any]", tested: Int[np.ndarray, " test"]) -> tuple[int, ...]:
    """Return epochs before, between and after the heads' transitions, for the maps of Fig. 2.

    They are the `tested` epochs nearest to the middle of each stretch; `transition` is a row of
    `transitions`. If no head ever changes, they lie at a quarter, a half and three quarters of the
    training.
    """
    end, first, last = transition[["epochs", "first", "last"]]
    if np.isnan(first):
        first = last = end / 2
    middles = [round(middle) for middle in (first / 2, (first + last) / 2, (last + end) / 2)]
    return tuple(int(tested[np.abs(tested - middle).argmin()]) for middle in middles)


def shown_run(transitions: pd.DataFrame) -> int:
    """Return the run with the sharpest rise, preferably one whose heads change apart."""
    candidates = transitions[transitions.apart] if transitions.apart.any() else transitions
    return int(candidates.jump.idxmax())


def transition_rows(evidence: Evidence, group: str, **names: str) -> pd.DataFrame:
    """Return some columns of a group's `transitions`, renamed as `names` says, and two more.

    These are the epochs `planned`, and the `resolution`.
    """
    layout = GROUPS[group].config.layout
    rows = transitions(evidence.curves(group), layout, evidence.planned_epochs(group))
    rows = rows.assign(to_turn=rows.bounce - rows.rise)
    return with_resolution(rows[[*names, "planned", "resolution"]].rename(columns=names))


def transition(evidence: Evidence) -> pd.DataFrame:
    """Epochs by which the units' accuracy rises after a head's attention passes half (Sec. 3)."""
    names = {"lag": "value", "rise": "steepest_rise", "first": "attention_passes_half"}
    return transition_rows(evidence, N1, **names)


def changes_together(measured: Fields, *, share: float = ACCURACY_TO_ATTENTION) -> bool:
    """Return True if accuracy and attention of `transition` change together."""
    return coincides(measured["value"], measured["planned"], share)


def strong_decay_transition(evidence: Evidence) -> pd.DataFrame:
    """Epochs by which the units' accuracy rises after a head's attention passes half (App. C.1)."""
    return transition_rows(
        evidence,
        N1_W1,
        lag="value",
        rise="steepest_rise",
        first="attention_passes_half",
        last="last_head_passes_half",
    )


def changes_with_a_head(measured: Fields, *, share: float = ACCURACY_TO_ATTENTION) -> bool:
    """Return True if accuracy changes together with the attention of either head.

    "There is a distinct pattern after each transition …, which can happen separately in each head"
    (Fig. 2).
    """
    for head in ("attention_passes_half", "last_head_passes_half"):
        lag = measured["steepest_rise"] - measured[head]
        if coincides(lag, measured["planned"], share):
            return True
    return False


def heads_change_apart(evidence: Evidence) -> pd.DataFrame:
    """Epochs from one head's attention passing half to the other's (Sec. 3, Fig. 2)."""
    names = {"first": "attention_passes_half", "last": "last_head_passes_half"}
    rows = transition_rows(evidence, N1, **names)
    return rows.assign(value=rows.last_head_passes_half - rows.attention_passes_half)


def change_separately(measured: Fields, *, share: float = ACCURACY_TO_ATTENTION) -> bool:
    """Return True if the heads of `heads_change_apart` do not change together."""
    return bool(measured["value"] > window(measured["planned"], share))


def norm_bounce(evidence: Evidence) -> pd.DataFrame:
    """Epochs from the steepest rise of the units' accuracy to the norm's nearest turn (Sec. 3)."""
    names = {"to_turn": "value", "fall": "share_lost", "rebound": "share_gained"}
    return transition_rows(evidence, N1, **names)


def norm_bounces(
    measured: Fields,
    *,
    distance: float = ACCURACY_TO_NORM,
    visible: float = VISIBLE_BOUNCE,
) -> bool:
    """Return True if the norm of `norm_bounce` turns near the rise, visibly."""
    return bounces(
        measured["value"],
        measured["share_lost"],
        measured["share_gained"],
        measured["planned"],
        distance=distance,
        visible=visible,
    )


def one_layer_imperfect(evidence: Evidence) -> pd.DataFrame:
    """Best test exact match of any epoch (Sec. 3)."""
    return of_curves(evidence.curves(N1), "test_whole", lambda curve: float(curve.max()))


# From this exact match on, a run is perfect, as the paper's models of two layers are: fewer than
# one sum in 2,000 is wrong.
PERFECT = Bar(0.9995, perfect=1)

is_imperfect = below(PERFECT)

# ---- weights and losses that do not settle (App. C)

LAST_TENTH = 0.1  # share of the epochs, at their end, over which weights may still change


def change_at_the_end(norm: Curve) -> float:
    """Return the relative change of a squared norm over the last tenth of the epochs."""
    start = norm.loc[: round((1 - LAST_TENTH) * norm.index[-1])].iloc[-1]
    return float(norm.iloc[-1] / start - 1)


def change_of_the_norm(evidence: Evidence, group: str) -> pd.DataFrame:
    """Relative change of the squared norm over the last tenth of the epochs (App. C.2)."""
    evidence.by_the_papers_epochs(group)
    return of_curves(evidence.curves(group), "weight_norm", change_at_the_end)


def still_changes(measured: Fields) -> bool:
    """Return True if the norm of `change_of_the_norm` changes more than that of each other run.

    The others are the runs at s = 0.3, of which the paper does not say this.
    """
    largest = max(abs(change) for change in measured["runs_at_s_0.3"])
    return bool(abs(measured["value"]) > largest)


def rise_of_the_loss(evidence: Evidence, group: str) -> pd.DataFrame:
    """Test loss at the end over its lowest (App. C.1, Fig. 9)."""
    evidence.by_the_papers_epochs(group)
    return of_curves(evidence.curves(group), "test_loss", rebound)


def rises_more_than_with_decay(measured: Fields) -> bool:
    """Return True if the loss of `rise_of_the_loss` rises more than that of each run with decay."""
    return bool(measured["value"] > max(measured["runs_with_decay"]))


# ---- grokking (App. C)

LEARNT_ACCURACY = 0.99  # exact match from which a run has learned
TEST_DELAY = Bar(0.05, perfect=0)  # share of the epochs by which test accuracy may lag


def no_grokking(evidence: Evidence) -> pd.DataFrame:
    """Epochs by which test exact match passes 0.99 later than training exact match (App. C).

    Raises:
        BadInput: No run has learning curves in which training accuracy passes 0.99.
    """
    rows: dict[tuple[str, int], Fields] = {}
    for group in GROUPS:
        try:
            history = evidence.curves(group)
        except BadInput:
            continue
        # A released history of n2_s0.1_w0.2 counts single digits only.
        if "train_whole" in history:
            delays = _test_delays(history, evidence.planned_epochs(group))
            rows |= {(group, run): fields for run, fields in delays.items()}
    if not rows:
        raise BadInput(
            f"It needs learning curves in which training and test accuracy pass {LEARNT_ACCURACY}."
        )
    return with_resolution(per_run(rows))


def _test_delays(history: History, planned: int) -> dict[int, Fields]:
    """Return the delay of test accuracy behind training accuracy, for each run that has learned.

    If test accuracy never follows, as before grokking, it is the rest of the training.
    """
    test_curves = curves(history, "test_whole")
    delays: dict[int, Fields] = {}
    for run, train in curves(history, "train_whole").items():
        learned = first_at(train, LEARNT_ACCURACY)
        generalised = first_at(test_curves[run], LEARNT_ACCURACY)
        if not np.isnan(learned):
            if np.isnan(generalised):  # not within the training
                generalised = float(planned)
            delays[run] = {
                "value": generalised - learned,
                "planned": planned,
                "resolution": resolution(history["epochs"], [learned, generalised]),
            }
    return delays


def learns_at_once(measured: Fields, *, delay: float = TEST_DELAY) -> bool:
    """Return True if the test sums are learned together with the training sums."""
    return bool(measured["value"] <= window(measured["planned"], delay))


# ---- the kink of the loss, and the final MLP (Sec. 5, Fig. 5)

PIECE = 3  # the fewest epochs of a straight piece of a curve
SMOOTHED = 10  # epochs: the loss of a single one is noisy
CONFIDENCE = 0.95
# The loss is at its floor once its logarithm has only this share of its whole fall still to go.
FLOOR = 0.1
# The kink is fitted again to these shares of the epochs before the floor.
SHORTER_FITS = (0.6, 0.8)

# Share of the epochs from the kink of the loss to the start of the rise.
KINK_TO_RISE = Bar(0.01, perfect=0)
# Share of the variance of the smoothed loss's logarithm.
EXPLAINED_VARIANCE = Bar(0.95, perfect=1)
# A correlation that has fallen by more before can be said to start to rise.
DIP = Bar(0.1, perfect=0)


class Kink(NamedTuple):
    """A loss's turn from one exponential to another, and the second one (Sec. 5, Fig. 5).

    Attributes:
        epoch: The epoch of the turn.
        end: The last epoch of the fit, or the last test before it.
        rate: Per epoch; after the kink the loss goes as exp(-rate * epoch).
        interval: The 95% confidence interval of the rate, for independent residuals.
        explained: The share of the variance of the loss's logarithm after the kink that the
            exponential explains, with the loss averaged over `SMOOTHED` epochs.
        level: The logarithm of the exponential at epoch 0.
    """

    epoch: int
    end: int
    rate: float
    interval: tuple[float, float]
    explained: float
    level: float


def loss_floor(loss: Curve) -> int:
    """Return the first tested epoch at which a loss has reached its floor.

    Of the fall of the logarithm from the first epochs to the lowest ones, only a share of `FLOOR`
    is then left. The loss is averaged over `SMOOTHED` epochs, since that of a single one is noisy.
    """
    smooth = np.log(per_epoch(loss).rolling(SMOOTHED, min_periods=1, center=True).mean())
    lowest = smooth.min()
    is_low = smooth <= lowest + FLOOR * (smooth.iloc[0] - lowest)
    return int(smooth.index[is_low][0])


def fit_kink(loss: Curve, end: float | int | None = None) -> Kink:
    """Return the corner of the two joined straight pieces that fit a loss's logarithm best.

    They are fitted up to the epoch `end`, or up to `loss_floor` if it is None: a loss that has
    stopped falling would be a third piece. A test counts once for each epoch since the test before
    it.

    Raises:
        BadInput: The curve is too short.
    """
    shortest = 2 * PIECE + 1
    if len(loss) < shortest:
        raise BadInput(
            f"A loss over {len(loss)} epochs has no kink to look for: expected {shortest} or more."
        )
    last = loss_floor(loss) if end is None else end
    tests = loss.loc[: max(last, int(loss.index[shortest - 1]))]
    tested, weighted = tests.index.to_numpy(), per_epoch(tests)
    epochs = weighted.index.to_numpy(np.float64)
    log_loss = np.log(weighted.to_numpy(np.float64))

    def misfit(corner: int) -> float:
        pieces = np.stack([np.ones(len(epochs)), epochs, np.maximum(epochs - corner, 0)], 1)
        fitted = pieces @ np.linalg.lstsq(pieces, log_loss, rcond=None)[0]
        return float(np.square(log_loss - fitted).sum())

    corners = tested[PIECE - 1 : len(tested) - PIECE + 1].tolist()
    corner = min(corners, key=misfit)
    after = epochs >= corner
    fit = scipy.stats.linregress(epochs[after], log_loss[after])
    rate = -float(fit.slope)
    wide = _half_width(float(fit.stderr), int(after.sum()), int((tested >= corner).sum()))
    return Kink(
        epoch=corner,
        end=int(tested[-1]),
        rate=rate,
        interval=(rate - wide, rate + wide),
        explained=_explained(weighted.to_numpy()[after]),
        level=float(fit.intercept),
    )


def shorter_fits(loss: Curve) -> list[int]:
    """Return the epochs of the kinks of fits that end before the loss's floor (`SHORTER_FITS`).

    A curve that bends all the way has no corner: its kink moves with the end of the fit.
    """
    floor = loss_floor(loss)
    return [fit_kink(loss, share * floor).epoch for share in SHORTER_FITS]


def _half_width(standard_error: float, n_epochs: int, n_tests: int) -> float:
    """Return half of the confidence interval of a slope that was fitted to `n_epochs`.

    Only `n_tests` of them were tested: repeating a test does not make the fit more certain.
    """
    freedom = n_tests - 2
    repeats = (n_epochs - 2) / freedom
    quantile = float(scipy.special.stdtrit(freedom, (1 + CONFIDENCE) / 2))
    return quantile * (standard_error * math.sqrt(repeats))


def _explained(loss: Float[np.ndarray, " epoch"]) -> float:
    """Return the share of the variance of a smoothed loss that an exponential explains."""
    n_means = len(loss) // SMOOTHED
    smooth = np.log(loss[: n_means * SMOOTHED].reshape(-1, SMOOTHED).mean(1))
    if n_means <= 2:
        return np.nan
    return float(scipy.stats.linregress(range(n_means), smooth).rvalue ** 2)


def correlations(history: History) -> dict[int, Curve]:
    """Return each run's correlation with a model that cannot carry, without the final MLP (Fig. 5).

    It is Pearson's, over the `accuracy` and `corrected` of `measure.ClassAccuracies`. The result is
    empty if the history has no such accuracies.
    """
    if "test_ablated_accuracy" not in history:
        return {}
    accuracy = history["test_ablated_accuracy"]  # (run, epoch, class, position)
    corrected = history["test_ablated_corrected"]
    tables = np.concatenate([accuracy, corrected], 2).astype(float)
    tables = tables.reshape(*accuracy.shape[:2], -1)
    expected = no_carry_reference(accuracy.shape[-1])
    reference = pd.Series(torch.cat([expected.accuracy, expected.corrected]).flatten().numpy())
    by_run = {}
    for run, table in zip(history["runs"], tables, strict=True):
        by_epoch = pd.DataFrame(table, history["epochs"]).dropna()
        by_run[int(run)] = by_epoch.corrwith(reference, axis=1)
    return by_run


def starts_to_rise(curve: Curve, planned: int = 0) -> tuple[int, float]:
    """Return the bottom of the curve's deepest fall below an earlier high: epoch and depth.

    The first correct additions raise the correlation too; this finds when it rises for good. Only
    the epochs that Fig. 5 plots are searched.
    """
    last = int(curve.index[-1])
    plotted = curve.loc[: max(1, round(PLOTTED * max(planned, last)))]
    fall = plotted.cummax() - plotted
    return int(fall.idxmax()), float(fall.max())


def carrying(loss: Curve, correlation: Curve, planned: int = 0) -> Fields:
    """Return the epochs from the kink of the loss to the start of the final MLP's role (Sec. 5).

    Other fields describe the kink, and how well an exponential fits the loss after it.
    """
    fit = fit_kink(loss)
    kinks = [fit.epoch, *shorter_fits(loss)]
    rise, depth = starts_to_rise(correlation, planned)
    return {
        "value": float(rise - fit.epoch),
        "planned": max(planned, int(loss.index[-1])),
        "kink": fit.epoch,
        "kink_of_shorter_fits": kinks[1:],
        "kink_moves_by": max(kinks) - min(kinks),
        "loss_at_its_floor": fit.end,
        "rise": float(rise),
        "depth_of_the_fall_before": depth,
        "decay_rate": fit.rate,
        "its_95%_interval": list(fit.interval),
        "explained_variance": fit.explained,
        "resolution": resolution(loss.index.to_numpy(), [fit.epoch, rise]),
    }


def kink(evidence: Evidence) -> pd.DataFrame:
    """Epochs from the kink of the test loss to the start of the correlation's rise (Sec. 5).

    Raises:
        BadInput: The history has no accuracies without the final MLP.
    """
    history, planned = evidence.curves(MAIN), evidence.planned_epochs(MAIN)
    losses, by_run = curves(history, "test_loss"), correlations(history)
    if not by_run:
        raise BadInput(
            "It needs accuracies without the final MLP after every epoch, "
            f"which {MAIN}'s history does not have."
        )
    rows = {}
    for run, correlation in by_run.items():
        rows[run] = carrying(losses[run], correlation, planned)
    return with_resolution(per_run(rows))


def has_kink_and_rise(
    measured: Fields, *, distance: float = KINK_TO_RISE, dip: float = DIP
) -> bool:
    """Return True if a run has a kink that stays in place, and a rise that starts at some epoch.

    Else it can't say whether the two coincide: its kink depends on the end of the fit by more than
    the two may lie apart, its correlation never falls before it rises, or too few epochs after the
    kink are left to say how the loss falls.
    """
    stays = measured["kink_moves_by"] <= window(measured["planned"], distance)
    dips = measured["depth_of_the_fall_before"] > dip
    return bool(stays and dips and not np.isnan(measured["explained_variance"]))


def starts_at_the_kink(
    measured: Fields,
    *,
    distance: float = KINK_TO_RISE,
    explained: float = EXPLAINED_VARIANCE,
    dip: float = DIP,
) -> bool | None:
    """Return True if the final MLP's role starts to form at the kink of an exponential fall.

    None if the run can't say (`has_kink_and_rise`).
    """
    if not has_kink_and_rise(measured, distance=distance, dip=dip):
        return None
    is_exponential = measured["decay_rate"] > 0 and measured["explained_variance"] >= explained
    is_near = abs(measured["value"]) <= window(measured["planned"], distance)
    return bool(is_exponential and is_near)
