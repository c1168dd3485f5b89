"""After which epochs a run is tested, and what is read off curves that have these only."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from carry_core.errors import BadInput
from carry_core.files import data_dir
from carry_core.runs import run_path
from carry_core.sums import Layout
from carry_paper import catalogue
from carry_paper.findings import dynamics, lengths
from carry_paper.findings.evidence import Evidence
from carry_paper.ledger.entries import COMBINE
from carry_paper.pages import playground
from carry_paper.plots import curves as drawn
from carry_train import curves, groups, loop
from carry_train.checkpoints import Checkpoints, part
from carry_train.groups import RECIPES, MoreSnapshots
from carry_train.precisions import FUSED_FP32, TORCH_FP32
from carry_train.trainer import Trainer
from tests.findings import test_dynamics as planted
from tests.helpers.trainings import QUICK, needs_fused, save_random

pytestmark = pytest.mark.machine

NAME = "n1_s0.3_w0.2"
SPARSE = np.array([*range(1, 51), *range(60, 401, 10)])


# ---------------------------------------------------------------- the schedule


def test_the_schedule_of_both_recipes():
    main, pad6 = (groups.find(name) for name in (groups.MAIN, "pad6_n2_s0.3_w0.2"))
    paper, quick = RECIPES["paper"], RECIPES["quick"]
    assert paper.tested(main) == {*range(1, 51), *range(60, 1001, 10)}
    assert len(paper.tested(main)) == 145
    assert quick.tested(main) == {*range(1, 51), 60}
    assert max(replace(paper, limit=57).tested(main)) == 57
    more = {groups.MAIN: MoreSnapshots(runs=(3,), epochs=(333,))}
    late = replace(quick, limit=None, steps=147 * 200, more_snapshots=more)
    assert 67 in late.tested(main)  # a snapshot of one run; the runs of a group are tested alike
    assert set(quick.snapshots(pad6, 0)) <= quick.tested(pad6)
    finetuned = groups.find("pad6_finetuned500_n2_s0.3_w0.2")
    assert paper.tested(finetuned) == quick.tested(finetuned) == {*range(1, 51)}


@pytest.fixture
def few_tests(monkeypatch):
    """Tests after epoch 1 and every third."""
    monkeypatch.setattr(groups, "TESTED_FIRST", 1)
    monkeypatch.setattr(groups, "TESTED_EVERY", 3)


@pytest.mark.slow
@pytest.mark.parametrize("precision", [TORCH_FP32, pytest.param(FUSED_FP32, marks=needs_fused)])
def test_testing_less_often_changes_no_bit_of_what_is_trained(
    small_group, few_tests, monkeypatch, precision
):
    """Weights, moments, masks to come and training curves stay; other tests are the same."""
    size = 128 if precision == FUSED_FP32 else 16  # it knows the paper's only
    group = replace(small_group, config=replace(small_group.config, d_model=size, d_ff=size))
    recipe, states = replace(QUICK, limit=5), []
    for first in (1, 50):
        monkeypatch.setattr(groups, "TESTED_FIRST", first)
        trainer = Trainer(group, recipe, [0], precision=precision)
        while not trainer.finished:
            trainer.run_epoch()
        states.append(trainer.states()[0])
    (few, record), (often, expected) = states
    assert few["history/epochs"].tolist() == [1, 3, 5]
    assert often["history/epochs"].tolist() == [1, 2, 3, 4, 5]
    assert record | {"seconds": 0} == expected | {"seconds": 0}
    for name, tensor in often.items():
        at_tests = name.startswith("history/") and not name.startswith("history/train_")
        assert torch.equal(few[name], tensor[[0, 2, 4]] if at_tests else tensor), name


@pytest.mark.slow
def test_a_run_that_was_tested_after_every_epoch_goes_on(small_group, few_tests, data, monkeypatch):
    """A checkpoint from before there was a schedule does not name its epochs."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=8))
    monkeypatch.setattr(groups, "TESTED_FIRST", 50)
    trainer = Trainer(small_group, checkpoints.recipe, [0])
    for _ in range(4):
        trainer.run_epoch()
    ((tensors, record),) = trainer.states()
    del tensors["history/epochs"], record["seeds"]
    checkpoints.save([(tensors, record)])
    monkeypatch.setattr(groups, "TESTED_FIRST", 1)
    assert loop.train_group(checkpoints, [0], data / "runs")
    history = catalogue.load_curves("small")
    assert history["epochs"].tolist() == [1, 2, 3, 4, 6, 8]
    assert not np.isnan(history["test_loss"]).any()
    np.testing.assert_array_equal(
        history["test_loss"][0, :4], part(tensors, "history/")["test_loss"]
    )


# ---------------------------------------------------------------- files


def save(run: int, **curves: list[float]) -> None:
    """Random weights of a run, with these curves."""
    save_random(groups.find(NAME), (run,), epochs=9)
    path = run_path(data_dir() / "runs", NAME, "paper", run).with_suffix(".npz")
    np.savez(path, **{name: np.array(x) for name, x in curves.items()})


def test_curves_of_runs_that_were_tested_alike_or_not(data):
    """Rows are the epochs that all have; training curves, of every epoch, are read at these."""
    nine = [float(epoch) for epoch in range(1, 10)]
    save(0, train_loss=nine, test_loss=[2.0, 4, 6, 10, 18], epochs=[1, 2, 3, 5, 9])
    history = catalogue.load_curves(NAME, run=0)
    assert history["epochs"].tolist() == [1, 2, 3, 5, 9]
    np.testing.assert_array_equal(2 * history["train_loss"], history["test_loss"])
    save(1, train_loss=nine, test_loss=[2 * x for x in nine])  # no epochs: all of them
    save(2, train_loss=nine, test_loss=[2.0, 4, 8, 10, 18], epochs=[1, 2, 4, 5, 9])
    history = catalogue.load_curves(NAME)
    assert history["epochs"].tolist() == [1, 2, 5, 9]
    for name, factor in (("train_loss", 1), ("test_loss", 2)):
        np.testing.assert_array_equal(history[name], factor * np.tile([1, 2, 5, 9], (3, 1)))
    assert catalogue.load_curves(NAME, runs=[1])["epochs"].tolist() == list(range(1, 10))


def test_a_run_that_stopped_early_does_not_cut_the_others_short():
    long = {"epochs": np.array([1, 2, 4, 6]), "loss": np.array([1.0, 2, 4, 6])}
    short = {"epochs": np.array([1, 2, 3, 4]), "loss": np.array([1.0, 2, 3, 4])}
    together = curves.aligned([long, short])
    assert together["epochs"].tolist() == [1, 2, 4, 6]
    np.testing.assert_array_equal(together["loss"], [[1, 2, 4, 6], [1, 2, 4, np.nan]])


# ---------------------------------------------------------------- what is read off


def thin(history: dict[str, np.ndarray], tested: np.ndarray = SPARSE) -> dict[str, np.ndarray]:
    """The rows that a history of every epoch would have if only some had been tested."""
    rows = tested - 1
    curves = {name: x[:, rows] for name, x in history.items() if name not in ("runs", "epochs")}
    return {"runs": history["runs"], "epochs": tested} | curves


def test_an_epoch_is_that_of_the_first_test_at_which_something_shows():
    curve = pd.Series(SPARSE >= 123, SPARSE).astype(float)
    assert dynamics.first_at(curve, 1.0) == 130
    assert np.isnan(dynamics.first_at(curve, 2.0))
    assert dynamics.resolution(SPARSE, [130]) == dynamics.resolution(SPARSE, [7, 60, np.nan]) == 10
    assert dynamics.resolution(SPARSE, [1, 50]) == 1


def test_a_planted_transition_is_seen_at_the_next_test():
    """Ten epochs between tests: heads pass one half at 100 and 200, the rest turns at 101."""
    full = dynamics.transitions(planted.one_layer(), Layout()).loc[4]
    thinned = dynamics.transitions(thin(planted.one_layer()), Layout())
    sparse = thinned.loc[4]
    assert sparse.passes == (100, 200)
    assert (sparse.rise, sparse.epochs) == (110, 400)
    assert sparse.bounce == 100  # the lowest of the norms that were seen
    assert sparse.jump == pytest.approx((0.9 - 0.11) / 10, abs=1e-3)  # an epoch
    assert (full.resolution, sparse.resolution) == (1, 10)
    assert thinned.epochs.tolist() == [400, 350]
    assert dynamics.shown_epochs(sparse, SPARSE) == (50, 150, 300)
    assert dynamics.shown_epochs(sparse.replace({100.0: 126.0}), SPARSE) == (60, 160, 300)


def test_a_fast_rise_between_two_tests_is_not_outdone_by_a_slow_one_over_ten_epochs():
    """The rise an epoch counts: 0.2 at epoch 30, 0.3 in ten epochs later."""
    history = planted.one_layer()
    units = 0.2 * (planted.EPOCH >= 30) + 0.03 * np.clip(planted.EPOCH - 100, 0, 10)
    history["test_accuracy"][:] = units[:, None]
    assert set(dynamics.transitions(thin(history), Layout()).rise) == {30}


@pytest.mark.parametrize(("corner", "slow"), [(30, 0.01), (120, 0.002)])
def test_the_kink_is_within_the_resolution_of_that_of_every_epoch(corner, slow):
    loss = planted.bent(corner, 0.1, slow)
    full, sparse = (
        dynamics.fit_kink(pd.Series(x, epochs), 160)
        for x, epochs in ((loss, planted.EPOCH), (loss[SPARSE - 1], SPARSE))
    )
    assert abs(sparse.epoch - full.epoch) <= dynamics.resolution(SPARSE, [sparse.epoch])
    assert sparse.end == full.end == 160
    assert sparse.rate == pytest.approx(slow, abs=1e-9)
    noisy = loss * np.exp(np.random.default_rng(0).normal(0, 0.2, len(loss)))
    low, high = dynamics.fit_kink(pd.Series(noisy[SPARSE - 1], SPARSE), 160).interval
    sure = dynamics.fit_kink(pd.Series(noisy, planted.EPOCH), 160).interval
    assert low < slow < high
    assert high - low > 2 * (sure[1] - sure[0])  # a tenth of the tests says less


def test_epochs_count_alike_however_many_of_them_were_tested():
    """A loss with no corner: weighted by tests, the first fifty epochs would decide where it is."""
    curved = np.exp(-2 * np.sqrt(planted.EPOCH / 40))
    full, sparse = (
        dynamics.fit_kink(pd.Series(x, epochs))
        for x, epochs in ((curved, planted.EPOCH), (curved[SPARSE - 1], SPARSE))
    )
    assert abs(sparse.epoch - full.epoch) <= 10
    np.testing.assert_array_equal(
        dynamics.per_epoch(pd.Series([1.0, 2, 5], [1, 2, 5])), [1, 2, 5, 5, 5]
    )


@pytest.fixture
def evidence(monkeypatch):
    def of(history: dict[str, np.ndarray]) -> Evidence:
        monkeypatch.setattr(Evidence, "curves", lambda self, group: history)
        monkeypatch.setattr(Evidence, "planned_epochs", lambda self, group: planted.EPOCHS)
        monkeypatch.setattr(Evidence, "by_the_papers_epochs", lambda self, group: None)
        return Evidence("author")

    return of


def test_findings_state_their_resolution_where_it_is_coarse(evidence):
    """Findings say nothing of it if every epoch was tested."""
    grokking = planted.exact_match(planted.EPOCH > 50, planted.EPOCH > 51)
    coarse = {
        "runs": np.array([0]),
        "epochs": planted.EPOCH,
        "long_whole": 1.0 - np.abs(planted.EPOCH - 203)[None] / 400,
    }
    coarse["long_accuracy"] = np.repeat(coarse["long_whole"][..., None], 6, 2)
    for history, finding in (
        (planted.one_layer(), dynamics.transition),
        (planted.one_layer(), dynamics.norm_bounce),
        (planted.one_layer(), dynamics.strong_decay_transition),
        (planted.dips(100), dynamics.kink),
        (grokking, dynamics.no_grokking),
        (coarse, lengths.length),
    ):
        assert "resolution" not in finding(evidence(history))
        assert set(finding(evidence(thin(history))).resolution) == {10}, finding


def test_what_becomes_of_longer_sums_is_dated_by_tests():
    peak, epoch = 203, planted.EPOCH
    whole = 1.0 - np.abs(epoch - peak) / 400
    digits = np.stack([np.where(epoch < 254, 0.9, 0.1), np.full(len(epoch), 0.9)], -1)
    history = {
        "runs": np.array([0]),
        "epochs": epoch,
        "long_whole": whole[None],
        "long_accuracy": digits[None],
    }
    full, sparse = (lengths.forgetting(x).loc[0] for x in (history, thin(history)))
    assert (full.peak, full.goes[0], full.epochs, full.resolution) == (203, 254, 400, 1)
    assert (sparse.peak, sparse.goes[0], sparse.epochs, sparse.resolution) == (200, 260, 400, 10)
    assert sparse["first"] == full["first"] == (0,)
    assert np.isnan(sparse.goes[1])


def test_the_range_of_accuracies_says_how_often_it_was_measured(evidence):
    epoch = np.arange(1, 1001)
    tested = np.array([*range(1, 51), *range(60, 1001, 10)])
    whole = np.stack([epoch / 1000, epoch / 2000])
    history = {"runs": np.array([0, 1]), "epochs": epoch, "long_whole": whole}
    full, sparse = (
        lengths.best_on_longer_sums(evidence(x)) for x in (history, thin(history, tested))
    )
    assert full.value.tolist() == sparse.value.tolist() == pytest.approx([1.0, 0.5])
    assert "resolution" not in full
    assert sparse.resolution.tolist() == [10, 10]
    with pytest.raises(BadInput, match="up to epoch 1000; these have 990"):
        lengths.best_on_longer_sums(evidence(thin(history, tested[:-1])))
    with pytest.raises(BadInput, match="a range over runs, and there is one only"):
        COMBINE["range"]([0.5])


# ---------------------------------------------------------------- what is drawn


def ramps() -> dict[str, np.ndarray]:
    """Curves whose value is the epoch."""
    names = ("train_loss", "test_loss", "test_whole", "train_whole", "weight_norm")
    return {"runs": np.array([0]), "epochs": planted.EPOCH} | dict.fromkeys(
        names, planted.EPOCH[None] * 1.0
    )


def test_curves_are_drawn_at_epochs_that_were_tested():
    for tested in (planted.EPOCH, SPARSE):
        thinned = drawn.thinned(thin(ramps(), tested))
        assert {*thinned["epoch"]} <= {*tested}
        assert thinned["epoch"][[0, -1]].tolist() == [1, 400]
        assert len(thinned["epoch"]) <= 150
        np.testing.assert_array_equal(thinned["test_loss"][0], thinned["epoch"])
    table = drawn.ends(thin(ramps()))
    assert table["exact match", "epoch"].tolist() == [400]
    assert table["loss", "epoch"].tolist() == [1]

    history = thin(planted.one_layer())
    losses = dict.fromkeys(("train_loss", "test_loss"), history["weight_norm"])
    arrays = drawn.transition_arrays(history | losses, 4, [50, 150, 300])
    assert arrays["epoch"].tolist() == [*range(5, 51, 5), *range(60, 401, 10)]
    pattern = planted.one_layer()["pattern"]
    np.testing.assert_array_equal(arrays["attention"], pattern[0, [49, 149, 299]])


def test_the_slider_over_training_has_epochs_at_equal_distances(data, monkeypatch):
    """Those that were tested; the page's script counts on the distance."""
    history = thin(planted.one_layer(), np.array([*range(1, 51), 60]))
    history["runs"], loss = np.array([0]), np.ones((1, 51))
    history = {name: x if name in ("epochs", "runs") else x[:1] for name, x in history.items()}
    history |= {"train_loss": loss, "test_loss": loss}
    save_random(groups.find(NAME), (0,), epochs=60)
    packed = {}
    monkeypatch.setattr(playground, "load_curves", lambda group: history)
    monkeypatch.setattr(
        playground, "_packed", lambda header, tensors: packed.update(header) or tensors
    )
    tensors = playground.training(NAME, "pattern", 5)
    assert packed["epochs"] == [10, 20, 30, 40, 50, 60]
    assert {len(x[0]) for x in tensors.values()} == {6}
    assert packed["shown"]["epoch"] in history["epochs"]


def test_shipped_curves_are_read_as_they_are_stored(monkeypatch):
    """Every run that was tested after each of its epochs is read so."""
    monkeypatch.delenv("CARRY_DATA", raising=False)
    folder = data_dir() / "runs" / groups.MAIN / "quick"
    history = catalogue.load_curves(groups.MAIN, recipe="quick", runs=[0, 3])
    for i, run in enumerate((0, 3)):
        with np.load(folder / f"run{run}.npz") as stored:
            for name in stored.files:
                np.testing.assert_array_equal(history[name][i], stored[name])
