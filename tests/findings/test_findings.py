"""The findings' measures, all of them on small random runs."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from carry_core import measure
from carry_core.curves import shapes_of_curves
from carry_core.files import ROOT
from carry_core.groups import GROUPS, MAIN, Group
from carry_paper.findings import evidence, geometry, interchange_maps, lengths, survey
from carry_paper.findings.base import (
    DECODER,
    DFF512,
    DFF1024,
    DIGITS4,
    FINETUNED,
    N1,
    N1_W0,
    N1_W1,
    N3,
    PAD6,
    PRIMED,
    S01,
    W0,
)
from carry_paper.ledger import compute, registry
from tests.helpers.trainings import save_random


def curves(group: Group) -> dict[str, np.ndarray]:
    """Return curves of a run that learns at epoch 100, those that runs of the group can have.

    The units' accuracy jumps, attention passes one half, the norm turns.
    """
    n_epochs = group.epochs
    epoch = np.arange(1, n_epochs + 1)
    pattern = np.zeros((n_epochs, 2, 10, 10), np.float32)
    pattern[epoch >= 98, 1, 9, 2] = pattern[epoch >= 98, 1, 9, 6] = 0.3
    planted = {
        "test_accuracy": np.stack([np.where(epoch < 100, 0.2, 0.9)] * 3, -1),
        "test_whole": np.ones(n_epochs),
        "train_whole": np.ones(n_epochs),
        "pattern": pattern,
        "weight_norm": 500.0 + np.abs(epoch - 101.0),
        "test_loss": np.exp(-epoch / 50),
        "test_ablated_accuracy": np.random.default_rng(0).random((n_epochs, 5, 3)),
        "test_ablated_corrected": np.random.default_rng(1).random((n_epochs, 5, 3)),
        "long_whole": np.where(epoch < 150, 0.5, 0.2),
        "long_accuracy": np.stack([np.where(epoch < 150, 1, 0.3)] * 6, 1),
    }
    shapes = shapes_of_curves(group)
    return {name: x for name, x in planted.items() if x.shape[1:] == shapes[name]}


WITH_CURVES = (MAIN, N1, N1_W0, N1_W1, S01, PAD6, PRIMED)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Small random runs under the names of the real groups, few sums, curves for one layer."""
    with pytest.MonkeyPatch.context() as patch:
        data = tmp_path_factory.mktemp("data")
        patch.setenv("CARRY_DATA", str(data))
        maps = ROOT / "data" / "results" / "interchange" / "ours"
        shutil.copytree(maps, data / "results" / "interchange" / "ours")
        # They are of the shipped weights, and these runs are random.
        patch.setattr(interchange_maps, "other_runs", lambda source, group: [])
        for name in (
            MAIN,
            N1,
            N1_W0,
            N1_W1,
            N3,
            S01,
            W0,
            DECODER,
            DFF512,
            DFF1024,
            DIGITS4,
            PAD6,
            PRIMED,
            FINETUNED,
        ):
            group = replace(GROUPS[name], config=replace(GROUPS[name].config, d_model=16, d_ff=12))
            patch.setitem(GROUPS, name, group)
            save_random(group, range(2), **curves(group) if name in WITH_CURVES else {})
        b = torch.arange(38)
        few = tuple(
            torch.cat(pair)
            for pair in zip(measure.sample(100, 3, seed=0), (74 - b, b), strict=True)
        )
        four = measure.sample(20, 4, seed=0)
        patch.setattr(evidence, "fixed_sums", lambda group: four if group == DIGITS4 else few)
        for module, constant, count in (
            (lengths, "BALANCED", 89),
            (lengths, "RANDOM", 200),
            (survey, "SAMPLE", 500),
        ):
            patch.setattr(module, constant, count)
        patch.setattr(survey, "DRAWN", 50)
        yield compute.Ledger("ours", "finding/").evidence


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [name for name in registry.ROWS if name.startswith("finding/") and name != "finding/llm_heads"],
)
def test_every_finding_is_measured_in_each_run(small, name):
    measurement = registry.entry(name).measure(small)
    assert set(measurement.runs) == set(measurement.shows) == set(measurement.fields)
    assert 1 <= len(measurement.runs) <= 2 * len(WITH_CURVES)
    assert all(isinstance(x, float) for x in measurement.runs.values())
    assert all(isinstance(x, bool | None) for x in measurement.shows.values())  # None: it can't say


def test_the_leading_axis_must_separate_and_win():
    fields = geometry.leading({7: [1.0, 0.5], 8: [0.99, 0.6]})
    assert (fields["value"], geometry.leads(fields)) == (0.99, True)
    assert not geometry.leads(geometry.leading({7: [0.96, 0.97], 8: [0.99, 0.6]}))
    assert not geometry.leads(geometry.leading({7: [0.94, 0.5], 8: [0.99, 0.6]}))
