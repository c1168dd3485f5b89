"""A recipe that is too short for epochs: segments, its own batches, a rate that cools down."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from carry_core.errors import BadInput
from carry_paper import catalogue
from carry_paper.findings.evidence import Evidence
from carry_paper.pages.page import Page
from carry_train import groups, loop
from carry_train.checkpoints import Checkpoints
from carry_train.groups import MAIN, RECIPES, Recipe
from carry_train.trainer import Trainer
from tests.helpers.trainings import Ticks, save_random

MINUTE = RECIPES["minute"]
NAME = "n1_s0.3_w0.2"


def trained(group, recipe) -> Trainer:
    trainer = Trainer(group, recipe, [0])
    while not trainer.finished:
        trainer.run_epoch()
    return trainer


def test_segments_train_the_same_bits_as_passes(small_group):
    """Segments go on where the last one stopped in the training set, and begin again at its end."""
    batch, n_batches = 260, 6
    passes = Recipe("quick", 1e-3, warmup=4, steps=2 * n_batches, batch=batch)
    segments = replace(passes, segments=3)
    assert passes.steps_in_epoch(small_group) == n_batches
    assert (segments.steps_in_epoch(small_group), segments.epochs(small_group)) == (4, 3)
    ((expected, _),), ((tensors, _),) = (
        trained(small_group, recipe).states() for recipe in (passes, segments)
    )
    for name in expected:
        if not name.startswith("history/"):
            assert torch.equal(tensors[name], expected[name]), name
    assert tensors["history/epochs"].tolist() == [3]


def test_the_rate_rises_stays_and_falls_to_zero(small_group):
    recipe = Recipe("minute", 2.0, warmup=4, steps=20, segments=5, cooldown=0.25)
    rates = [recipe.rate_of_step(number, small_group) for number in range(21)]
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0]
    assert rates[4:16] == [2.0] * 12
    assert rates[15:] == pytest.approx([2.0, 1.6, 1.2, 0.8, 0.4, 0.0])
    constant = replace(recipe, cooldown=0.0)
    assert constant.rate_of_step(19, small_group) == 2.0


def test_tests_and_snapshots_follow_the_share_of_the_training():
    main, pad6 = groups.find(MAIN), groups.find("pad6_n2_s0.3_w0.2")
    assert MINUTE.segments is not None
    assert MINUTE.tested(main) == {MINUTE.segments}
    assert max(replace(MINUTE, limit=7).tested(main)) == 7
    # Epochs 500 and 1000 of the paper's 2500.
    at_shares = {round(0.2 * MINUTE.segments): 500, round(0.4 * MINUTE.segments): 1000}
    assert MINUTE.snapshots(pad6, 0) == at_shares
    assert MINUTE.tested(pad6) == {*at_shares, MINUTE.segments}


def test_a_finetuned_group_is_trained_in_passes():
    finetuned = groups.find("pad6_finetuned500_n2_s0.3_w0.2")
    assert MINUTE.epochs(finetuned) == finetuned.epochs
    assert MINUTE.steps_in_epoch(finetuned) == -(-500 // MINUTE.batch_size(finetuned))


@pytest.mark.slow
def test_a_short_training_resumes_to_the_same_bits(small_group, data, monkeypatch):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    recipe = Recipe("minute", 1e-3, warmup=4, steps=20, batch=300, segments=4)
    checkpoints = Checkpoints(data / "checkpoints", small_group, recipe)
    progress = []
    while not loop.train_group(
        checkpoints,
        [0],
        data / "runs",
        clock=Ticks(3),
        report=lambda title, state, share: progress.append(state),
    ):
        pass
    (expected, _), (tensors, _) = trained(small_group, recipe).states()[0], checkpoints.load(0)
    for name in expected:
        assert torch.equal(tensors[name], expected[name]), name
    assert any(line.startswith("training loss") for line in progress)
    assert "accuracy" in progress[-1]


def test_a_recipe_that_does_not_lead_is_loaded_where_there_is_no_other(data):
    group = groups.find(NAME)
    save_random(group, range(6), "minute", MINUTE.epochs(group))
    assert catalogue.load(NAME).record["recipe"] == "minute"  # there are no others
    save_random(group, [0], "quick", 1)
    assert (catalogue.load(NAME).record["recipe"], catalogue.load(NAME).numbers) == ("quick", (0,))
    by_minute = catalogue.load(NAME, recipe="minute")
    assert by_minute.numbers == (0, 1, 2, 3, 4, 5)
    assert by_minute.training == "recipe “minute”, 100 segments"


def test_what_is_drawn_by_epoch_refuses_a_short_training(data):
    group = groups.find(NAME)
    save_random(group, [0], "minute", MINUTE.epochs(group), test_loss=np.ones(1))
    page = Page("fig99", source="ours", group=NAME)
    for by_epoch in (page.curves, lambda: Evidence("ours").curves(NAME)):
        with pytest.raises(BadInput, match="by the recipe “minute”, which is too short"):
            by_epoch()
    save_random(group, [0], "quick", 1, test_loss=np.ones(1))
    assert Page("fig99", source="ours", group=NAME).curves()["epochs"].tolist() == [1]
    assert catalogue.load_curves(NAME, recipe="quick")["runs"].tolist() == [0]
