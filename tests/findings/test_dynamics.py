"""Findings about learning curves with planted transitions, kinks and correlations."""

import numpy as np
import pandas as pd
import pytest
import torch

from carry_core.errors import BadInput
from carry_core.model import ModelConfig
from carry_core.sums import Layout
from carry_paper import catalogue
from carry_paper.findings import dynamics, heads
from carry_paper.findings.base import MAIN, N1, N1_W0, S01
from carry_paper.findings.evidence import Evidence
from tests.helpers.measured import measured

EPOCHS = 400
EPOCH = np.arange(1, EPOCHS + 1)


def one_layer(
    first: int = 100, last: int = 200, rise: int = 101, turn: int = 101
) -> dict[str, np.ndarray]:
    """The history of two runs; the second mirrors the first's heads, 50 epochs shorter."""
    units = np.where(rise <= EPOCH, 0.9, 0.1 + EPOCH / 10_000)
    pattern = np.zeros((EPOCHS, 2, 10, 10))
    for head, since in enumerate((first, last)):
        pattern[since <= EPOCH, head, 9, 2] = 0.3
        pattern[since <= EPOCH, head, 9, 6] = 0.21
    history = {
        "runs": np.array([4, 7]),
        "epochs": EPOCH,
        "test_accuracy": np.stack([np.stack([EPOCH / EPOCHS, EPOCH / EPOCHS, units], -1)] * 2),
        "pattern": np.stack([pattern, pattern[:, ::-1]]),
        "weight_norm": np.stack([500.0 + np.abs(EPOCH - turn)] * 2),
    }
    for key in ("test_accuracy", "pattern", "weight_norm"):
        history[key][1, 350:] = np.nan
    return history


# ---------------------------------------------------------------- marks


def test_marks_on_curves():
    curve = pd.Series([0.1, 0.2, 0.7, 0.9, 0.95], range(1, 6))
    assert dynamics.first_at(curve, 0.9) == 4
    assert np.isnan(dynamics.first_at(curve, 0.99))
    assert [dynamics.window(epochs, 0.01) for epochs in (60, 1000)] == [2, 10]


# ---------------------------------------------------------------- transitions


def test_a_planted_transition_is_found_in_each_run():
    transitions = dynamics.transitions(one_layer(), Layout())
    assert transitions.index.tolist() == [4, 7]
    assert transitions.passes.tolist() == [(100, 200), (200, 100)]
    assert transitions.epochs.tolist() == [400, 350]
    first = transitions.loc[4]
    assert first[["rise", "bounce", "first", "last", "lag"]].tolist() == [101, 101, 100, 200, 1]
    assert first.jump == pytest.approx(0.9 - 0.11)
    assert first.coincides
    assert first.bounces
    # from 600 at the first epoch to 500 at the turn
    assert first.fall == pytest.approx(1 - 500 / 600)
    assert first.rebound == pytest.approx(799 / 500 - 1)


def test_what_does_not_coincide_and_does_not_bounce_is_said_not_to():
    far = dynamics.transitions(one_layer(first=50, turn=120), Layout()).loc[4]
    assert (far.lag, far.bounce) == (51, 120)
    assert not far.coincides  # 8 epochs are 2% of 400
    assert not far.bounces
    near = dynamics.transitions(one_layer(first=93, turn=105), Layout()).loc[4]
    assert near.coincides
    assert near.bounces
    falling, shallow = -1.0 * EPOCH, 500 + 0.01 * np.abs(EPOCH - 101)  # less than 1% of 500 is lost
    for norm in (falling, shallow):
        assert (
            not dynamics.transitions(one_layer() | {"weight_norm": np.stack([norm] * 2)}, Layout())
            .loc[4]
            .bounces
        )


@pytest.mark.parametrize(("last", "shows"), [(108, False), (109, True)])
def test_heads_that_change_more_than_a_fiftieth_of_the_training_apart(monkeypatch, last, shows):
    history = one_layer(first=100, last=last)
    monkeypatch.setattr(Evidence, "curves", lambda self, group: history)
    monkeypatch.setattr(Evidence, "planned_epochs", lambda self, group: EPOCHS)
    measurement = measured("finding/heads_separately", Evidence("ours"))
    assert measurement.runs == {4: last - 100, 7: last - 100}
    assert list(measurement.shows.values()) == [shows, shows]


def test_a_training_that_stopped_early_is_judged_by_the_epochs_of_the_whole():
    """Ten epochs of 1000 are ten epochs, wherever the training stopped."""
    history = one_layer(first=89, turn=110)  # twelve and nine epochs before and after the rise
    early, whole = (dynamics.transitions(history, Layout(), epochs).loc[4] for epochs in (0, 1000))
    assert (early.epochs, whole.epochs) == (EPOCHS, EPOCHS)
    assert (early.coincides, early.bounces) == (False, False)
    assert (whole.coincides, whole.bounces) == (True, True)

    curve = np.concatenate(
        [np.linspace(1, 0.9, 100), np.linspace(0.9, 1, 150), np.linspace(1, 0.2, 150)]
    )
    assert dynamics.starts_to_rise(by_epoch(curve))[0] == 100
    assert dynamics.starts_to_rise(by_epoch(curve), planned=1000)[0] == EPOCHS
    falling = pd.Series([1.0, 0.9, 0.5, 0.1], index=[1, 2, 4, 10])
    assert dynamics.starts_to_rise(falling)[0] == 4
    correlation = dynamics.correlations(dips(65))[1]
    whole, part = (
        dynamics.carrying(by_epoch(bent(60, 0.08, 0.02)), correlation, planned)
        for planned in (0, 1000)
    )
    assert not dynamics.starts_at_the_kink(whole)  # within 4 of 400
    assert dynamics.starts_at_the_kink(part)  # within 10 of 1000


# ---------------------------------------------------------------- the kink


def bent(corner: int, fast: float, slow: float, epochs: int = EPOCHS) -> np.ndarray:
    """A loss that falls exponentially, faster before the corner than after it."""
    epoch = np.arange(1, epochs + 1)
    return np.exp(1 - fast * np.minimum(epoch, corner) - slow * np.maximum(epoch - corner, 0))


def by_epoch(values: np.ndarray) -> pd.Series:
    return pd.Series(values, np.arange(1, len(values) + 1))


@pytest.mark.parametrize(("corner", "slow"), [(30, 0.01), (120, 0.0)])
def test_the_kink_of_two_exponentials_is_exact(corner, slow):
    loss = bent(corner, 0.1, slow)
    kink = dynamics.fit_kink(by_epoch(loss), 160)
    assert (kink.epoch, kink.end) == (corner, 160)
    assert kink.rate == pytest.approx(slow, abs=1e-9)
    fitted = np.exp(kink.level - kink.rate * np.arange(corner, 161))
    np.testing.assert_allclose(fitted, loss[corner - 1 : 160], rtol=1e-7)


def test_a_loss_is_fitted_up_to_its_floor():
    """It falls by 9 in its logarithm, and the last tenth of that in 45 epochs."""
    loss = by_epoch(bent(50, 0.08, 0.02, 300))
    assert dynamics.loss_floor(loss) == pytest.approx(300 - 45, abs=dynamics.SMOOTHED)
    at_floor = by_epoch(np.concatenate([loss, np.full(700, loss.iloc[-1])]))
    noise = np.exp(np.random.default_rng(0).normal(0, 0.2, len(at_floor)))
    for curve in (loss, at_floor, at_floor * noise):
        assert dynamics.loss_floor(curve) == pytest.approx(300 - 45, abs=20)
        assert dynamics.fit_kink(curve).end == dynamics.loss_floor(curve)
        assert dynamics.fit_kink(curve).epoch == pytest.approx(50, abs=2)
    assert dynamics.fit_kink(at_floor, 1000).epoch > 200  # where the floor begins
    assert dynamics.shorter_fits(at_floor) == pytest.approx([50, 50], abs=1)


def test_a_kink_that_moves_with_the_end_of_the_fit_is_none():
    """A corner stays where it is; a curve that bends all the way has none."""
    correlation = dynamics.correlations(dips(60))[1]
    corner = dynamics.carrying(by_epoch(bent(60, 0.08, 0.02)), correlation)
    assert corner["kink_of_shorter_fits"] == [60, 60]
    assert corner["kink_moves_by"] == 0
    assert dynamics.starts_at_the_kink(corner) is True
    curved = dynamics.carrying(by_epoch(np.exp(-6 * np.sqrt(EPOCH / 40))), correlation)
    assert curved["kink_moves_by"] > 10
    assert dynamics.starts_at_the_kink(curved) is None


def test_a_correlation_that_only_rises_has_no_start():
    rises = pd.Series(np.linspace(0.2, 0.95, EPOCHS), EPOCH)
    flat = dynamics.carrying(by_epoch(bent(60, 0.08, 0.02)), rises)
    assert flat["depth_of_the_fall_before"] == 0
    assert dynamics.starts_at_the_kink(flat) is None


# ---------------------------------------------------------------- the evolution


def dips(epoch: int) -> dict[str, np.ndarray]:
    """Two runs with a kink at 60 that come to resemble a model that cannot carry.

    The correlation falls until `epoch`.
    """
    expected, chaos = heads.no_carry_reference(), np.random.default_rng(0).random((2, 5, 3))
    share = (
        0.5 - 0.4 * (np.minimum(epoch, EPOCH) / epoch) + 0.5 * np.clip((EPOCH - epoch) / 200, 0, 1)
    )[:, None, None]
    history = {
        "runs": np.array([1, 3]),
        "epochs": EPOCH,
        "test_loss": np.stack([bent(60, 0.08, 0.02)] * 2),
    }
    for kind, noise in zip(("accuracy", "corrected"), chaos, strict=True):
        history[f"test_ablated_{kind}"] = np.stack(
            [(1 - share) * noise + share * getattr(expected, kind).numpy()] * 2
        )
    return history


def test_the_correlation_is_that_of_each_epochs_thirty_numbers():
    history = dips(60)
    history["test_ablated_accuracy"][1, 300:] = history["test_ablated_corrected"][1, 300:] = np.nan
    correlations = dynamics.correlations(history)
    assert {run: len(correlation) for run, correlation in correlations.items()} == {1: 400, 3: 300}
    expected = heads.no_carry_reference()
    flat = torch.cat([expected.accuracy, expected.corrected]).flatten()
    for epoch in (1, 90, 400):
        kinds = [
            history[f"test_ablated_{kind}"][0, epoch - 1].ravel()
            for kind in ("accuracy", "corrected")
        ]
        assert correlations[1][epoch] == pytest.approx(
            np.corrcoef(np.concatenate(kinds), flat)[0, 1]
        )
    assert dynamics.correlations({"runs": history["runs"], "epochs": EPOCH}) == {}


# ---------------------------------------------------------------- the findings


@pytest.fixture
def planted(monkeypatch):
    def plant(history: dict[str, np.ndarray]) -> Evidence:
        monkeypatch.setattr(Evidence, "curves", lambda self, group: history)
        monkeypatch.setattr(Evidence, "planned_epochs", lambda self, group: EPOCHS)
        return Evidence("ours")

    return plant


@pytest.mark.parametrize(("epoch", "shows"), [(60, True), (64, True), (65, False), (30, False)])
def test_the_kink_coincides_within_a_hundredth_of_the_epochs(planted, epoch, shows):
    measurement = measured("finding/kink", planted(dips(epoch)))
    assert measurement.runs == {1: epoch - 60, 3: epoch - 60}
    assert measurement.shows == {1: shows, 3: shows}


def test_a_loss_that_does_not_decay_exponentially_does_not_show_the_kink(planted):
    history = dips(60)
    history["test_loss"][0] = np.concatenate(
        [bent(60, 0.08, 0.02, 100), np.full(300, bent(60, 0.08, 0.02)[99])]
    )
    noise = np.exp(np.random.default_rng(0).normal(0, 1.5, EPOCHS))
    history["test_loss"][1, 60:] *= noise[60:]
    measurement = measured("finding/kink", planted(history))
    # The first decays for too few epochs to say how, the second too unevenly.
    assert list(measurement.shows.values()) == [None, False]


def by_group(monkeypatch, name: str, curves: dict[str, list[np.ndarray]]) -> Evidence:
    """Evidence of some groups' learning curves, which are by the paper's epochs."""
    histories = {
        group: {"runs": np.arange(len(runs)), "epochs": EPOCH, name: np.stack(runs)}
        for group, runs in curves.items()
    }
    monkeypatch.setattr(Evidence, "curves", lambda self, group: histories[group])
    monkeypatch.setattr(Evidence, "by_the_papers_epochs", lambda self, group: None)
    return Evidence("ours")


def test_weights_that_still_change_are_compared_with_those_at_s_03(monkeypatch):
    def norm(change: float) -> np.ndarray:
        return 500 * (1 + change * np.clip((EPOCH - 360) / 40, 0, 1))

    norms = {S01: [norm(-0.06), norm(0.005)], MAIN: [norm(0.01), norm(-0.002)]}
    evidence = by_group(monkeypatch, "weight_norm", norms)
    measurement = measured("finding/weights_not_saturated", evidence)
    assert measurement.runs == pytest.approx({0: -0.06, 1: 0.005})
    assert measurement.shows == {0: True, 1: False}


def test_a_loss_that_increases_is_compared_with_those_with_decay(monkeypatch):
    falls, rises = np.linspace(2, 1, EPOCHS), np.abs(EPOCH - 200) / 200 + 1
    slightly = np.maximum(falls, 1.2)
    slightly[360:] *= 1.05
    losses = {N1_W0: [rises, falls, slightly], N1: [slightly, falls]}
    evidence = by_group(monkeypatch, "test_loss", losses)
    measurement = measured("finding/loss_increases", evidence)
    assert measurement.shows == {0: True, 1: False, 2: False}
    assert measurement.runs[0] > 1.5
    assert measurement.runs[1] == pytest.approx(1)


def test_a_training_of_which_an_epoch_is_only_a_segment_has_no_curves(monkeypatch):
    record = {"recipe": "minute"}
    loaded = catalogue.GroupRuns("n2_s0.3_w0.2", "ours", ModelConfig(), (0,), {}, record)
    monkeypatch.setattr(Evidence, "group", lambda self, name: loaded)
    with pytest.raises(BadInput, match="too short for learning curves by epoch"):
        Evidence("ours").curves(loaded.group)


@pytest.mark.usefixtures("data")
def test_a_group_without_runs_has_no_curves():
    with pytest.raises(BadInput, match="No learning curves of n2_s0.3_w0.2"):
        Evidence("ours").curves("n2_s0.3_w0.2")


def exact_match(train: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
    whole = {"train_whole": train[None].astype(float), "test_whole": test[None].astype(float)}
    return {"runs": np.array([0]), "epochs": EPOCH} | whole


@pytest.mark.parametrize(("since", "shows"), [(55, True), (150, False), (EPOCHS, False)])
def test_grokking_would_be_seen(planted, since, shows):
    evidence = planted(exact_match(EPOCH > 50, since < EPOCH))
    measurement = measured("finding/no_grokking", evidence)
    assert {*measurement.shows.values()} == {shows}
    assert shows <= all(value == since - 50 for value in measurement.runs.values())


def test_curves_that_never_learn_say_nothing_of_grokking(planted):
    with pytest.raises(BadInput, match="It needs learning curves"):
        dynamics.no_grokking(planted(exact_match(EPOCH < 0, EPOCH < 0)))


@pytest.mark.parametrize("best", [0.9, 1.0])
def test_a_one_layer_run_that_is_perfect_differs(planted, best):
    imperfect = dynamics.one_layer_imperfect(planted(exact_match(EPOCH > 0, best * (EPOCH > 100))))
    assert [dynamics.is_imperfect({"value": value}) for value in imperfect.value] == [best < 1]


def test_a_rebound_is_how_far_a_loss_ends_above_its_lowest_point():
    falling = by_epoch(np.linspace(2, 1, 100))
    assert dynamics.rebound(falling) == pytest.approx(1)
    rising_again = by_epoch(np.concatenate([np.ones(50), np.full(50, 3.0)]))
    assert dynamics.rebound(rising_again) == pytest.approx(3)
    spike = by_epoch(np.ones(100))
    spike.iloc[-1] = 11  # a tenth of the epochs are averaged
    assert dynamics.rebound(spike) == pytest.approx(2)
    # Each test counts for the epochs since the one before it.
    tested_less = pd.Series([1.0, 1.0, 2.0, 4.0], index=[1, 50, 90, 100])
    assert dynamics.rebound(tested_less) == pytest.approx(4)
