"""The page on what was trained: every training is in its table, and trainings are compared step by step."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from carry_core import groups, measure, runs, sums
from carry_core.findings import heads
from carry_core.groups import MAIN
from carry_core.interventions import Ablation
from carry_core.model import ModelConfig, Transformer
from carry_core.pages import trainings
from carry_core.pages.trainings import Training
from carry_core.training.trainer import initialise
from tests.trainings import save_group

N1 = "n1_s0.2_w1.0"


def history(epochs: int, n_runs: int = 2) -> dict[str, np.ndarray]:
    norm = np.arange(2000.0, 2000.0 - epochs, -1)
    curve = np.stack([norm] * n_runs)
    return {"test_loss": curve, "test_whole": curve, "weight_norm": curve, "runs": np.arange(n_runs)}


def training(epochs: int, n_runs: int = 2, source: str = "ours", recipe: str = "quick") -> Training:
    record = {"recipe": recipe, "epochs": epochs, "runs": [{"run": i} for i in range(n_runs)]}
    return Training(
        runs.Runs(MAIN, source, groups.find(MAIN).config, tuple(range(n_runs)), {}, record, {}),
        history(epochs, n_runs),
    )


@pytest.fixture
def both(data):
    """A group of ours by both recipes, `paper` cut short and beside, and the author's."""
    config = groups.find(N1).config
    about = {"device": "cpu", "precision": "bf16", "torch": "2", "seconds": 90.0}
    for where, recipe, epochs, numbers in (
        (data / "runs", "quick", 90, [0, 1]),
        (data / "runs", "paper", 7, [0]),
        (data / "author", "paper", 5, [2]),
    ):
        fresh = [initialise(config, torch.Generator().manual_seed(run)) for run in numbers]
        weights = {name: torch.stack([f[name] for f in fresh]) for name in fresh[0]}
        record = {"recipe": recipe, "epochs": epochs, "runs": [{"run": run, **about} for run in numbers]}
        curves = {"runs": np.array(numbers), "test_whole": np.full((len(numbers), epochs), 0.5)}
        save_group(where, N1, config, weights, record, curves)


def test_trainings_are_found_and_called_by_source_and_recipe(both):
    found = trainings.of(N1, "ours")
    assert list(found) == ["ours (paper, 7 of 1000 epochs)", "ours (quick)"]
    assert [t.kind for t in found.values()] == ["paper", "quick"]
    assert [t.runs.numbers for t in found.values()] == [(0,), (0, 1)]
    assert list(trainings.of(N1, "author")) == ["author’s"]
    assert trainings.compared() == [N1]


def test_a_group_that_only_the_author_has_is_shown_too():
    pad5 = "pad5_n2_s0.3_w0.2"
    table = trainings.table_of_norms({"author’s": training(9, source="author")}, pad5)
    assert table.rows[0][1] == "2000"
    assert trainings.training_curves({"author’s": training(9, source="author")}, pad5).axes


def test_norms_at_the_epochs_that_a_training_reached():
    table = trainings.table_of_norms(
        {"short": training(60, 1), "long": training(1000), "none": replace(training(9), history={})}, MAIN
    )
    assert table.header == ["", "epoch 1", "epoch 20", "epoch 60", "epoch 90", "epoch 1000"]
    assert table.rows[0] == ["short, run 0", "2000", "1981", "1941", "–", "–"]
    assert table.rows[2] == ["long, run 1", "2000", "1981", "1941", "1911", "1001"]


def test_inside_is_what_ablating_by_hand_gives():
    config = ModelConfig(width=2, d_model=16, d_ff=16)
    model = Transformer(config).eval()
    a, b = measure.sample(100, 2, 0)
    found = trainings.inside(model, a, b, 2)

    def right(*, site=lambda name, x: x):
        logits = model(sums.encode(a, b, config.layout), site)[:, -2:]
        return (logits.argmax(-1) == sums.digits(a + b, 2)).all(1).double().mean().item()

    def without(head):
        def site(name, x):
            if name != "blocks.1.attn.z":
                return x
            x = x.clone()
            x[:, :, head] = 0
            return x

        return site

    with torch.inference_mode():
        whole, *without_head = right(), right(site=without(0)), right(site=without(1))
        pattern = measure.attention(model, a, b)[0]
    assert found["whole answers"] == pytest.approx(whole)
    assert found["lost without the decision head"] == pytest.approx(whole - min(without_head))
    assert found["lost without the last layer’s other head"] == pytest.approx(whole - max(without_head))
    partners = [max(pattern[h, i, j].item() for h in range(2)) for i, j in ((0, 3), (1, 4), (3, 0), (4, 1))]
    assert found["staircase: the least attention that a digit gives its partner"] == pytest.approx(min(partners))
    (mlp,) = measure.class_accuracies(model, a, b, [Ablation(mlps=frozenset({1}))])
    (correlation,) = (value for name, value in found.items() if "correlation" in name)
    assert correlation == pytest.approx(heads.pearson(mlp, heads.no_carry_reference(2)))


def test_inside_one_layer_the_answers_rows_look():
    config = ModelConfig(layers=1, width=2, d_model=16, d_ff=16)
    model = Transformer(config).eval()
    a, b = measure.sample(100, 2, 0)
    found = trainings.inside(model, a, b, 2)
    with torch.inference_mode():
        pattern = measure.attention(model, a, b)[0]
    own = [max(float(pattern[h, row, list(keys)].sum()) for h in range(2)) for row, keys in ((5, (0, 3)), (6, (1, 4)))]
    assert found["the least attention that a row of the answer gives its own column"] == pytest.approx(min(own))
    assert not any("correlation" in name or "staircase" in name for name in found)
