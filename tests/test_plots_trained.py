"""The page on what was trained: every training is in its table, and trainings are compared step by step."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from carry_core import groups, measure, runs, sums, trainings
from carry_core.edits import Ablation
from carry_core.groups import MAIN
from carry_core.model import ModelConfig, Transformer
from carry_core.plots import table_of_groups, table_of_insides, table_of_norms, training_curves
from carry_core.plots.trained import steps
from carry_core.train import initialise
from carry_core.trainings import Training

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
        (data / "runs" / "paper", "paper", 7, [0]),
        (data / "author", "paper", 5, [2]),
    ):
        fresh = [initialise(config, torch.Generator().manual_seed(run)) for run in numbers]
        weights = {name: torch.stack([f[name] for f in fresh]) for name in fresh[0]}
        record = {"recipe": recipe, "epochs": epochs, "runs": [{"run": run, **about} for run in numbers]}
        curves = {"runs": np.array(numbers), "test_whole": np.full((len(numbers), epochs), 0.5)}
        runs.save(where, N1, config, weights, record, curves)


def test_trainings_are_found_and_called_by_source_and_recipe(both):
    found = trainings.of(N1, "ours")
    assert list(found) == ["author’s", "ours (paper, 7 of 1000 epochs)", "ours (quick)"]
    assert [t.kind for t in found.values()] == ["author", "paper", "quick"]
    assert [t.runs.numbers for t in found.values()] == [(2,), (0,), (0, 1)]
    assert [t.history["test_whole"].shape[1] for t in found.values()] == [5, 7, 90]
    assert list(trainings.of(N1, "author")) == ["author’s"]
    assert trainings.compared() == [N1]
    told = trainings.told(found).splitlines()
    assert len(told) == 3
    assert "1 run of our own, recipe “paper”, 7 of 1000 epochs" in told[1]


def test_both_recipes_have_a_line_and_what_is_missing_says_so(both):
    rows = table_of_groups().rows
    assert list(dict.fromkeys(row[0] for row in rows)) == list(groups.CAMPAIGN)
    assert [row[1:] for row in rows if row[0] == N1] == [
        ["2 of 6", "quick", "90", "bf16", "2", "0.5000"],
        ["1 of 6", "paper", "7 of 1000", "bf16", "2", "0.5000"],
    ]
    assert all(row[1:] == [f"0 of {groups.find(row[0]).n_runs}", *["–"] * 5] for row in rows if row[0] != N1)


def test_every_group_has_a_row_and_what_is_missing_says_so(monkeypatch):
    rows = {}
    for row in table_of_groups().rows:
        rows.setdefault(row[0], row[1:])  # the pages' own first
    assert list(rows) == list(groups.CAMPAIGN)
    for name, (n_runs, recipe, epochs, *_, accuracy) in rows.items():
        there = (runs.folder("ours") / f"{name}.safetensors").exists()
        planned = groups.find(name).n_runs
        if there:
            record = runs.load(name).record
            assert n_runs == f"{len(record['runs'])} of {planned}"
            assert (recipe, epochs.split()[0]) == (record["recipe"], f"{record['epochs']}")
            whole = groups.RECIPES[recipe].epochs(groups.find(name))
            assert epochs.endswith(f" of {whole}") == (record["epochs"] < whole)
            assert 0 <= float(accuracy) <= 1
        else:
            assert n_runs == f"0 of {planned}"
            assert accuracy == "–"
    assert rows[MAIN][0] == "6 of 6"


def test_an_epoch_has_147_steps():
    assert steps(history(3), MAIN).tolist() == [147, 294, 441]


def test_norms_at_the_epochs_that_a_training_reached():
    table = table_of_norms(
        {"short": training(60, 1), "long": training(1000), "none": replace(training(9), history={})}, MAIN
    )
    assert table.header == ["", "epoch 1", "epoch 20", "epoch 60", "epoch 90", "epoch 1000"]
    assert table.rows[0] == ["short, run 0", "2000", "1981", "1941", "–", "–"]
    assert table.rows[2] == ["long, run 1", "2000", "1981", "1941", "1911", "1001"]


def test_each_run_is_a_line_in_its_trainings_colour():
    figure = training_curves({"short": training(60, 1), "long": training(100, recipe="paper")}, MAIN)
    for ax in figure.axes:
        assert [len(line.get_xdata()) for line in ax.lines] == [60, 100, 100]
        first, second, third = (line.get_color() for line in ax.lines)
        assert first != second == third
        assert ax.lines[0].get_xdata()[-1] == 60 * 147
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["short", "long"]


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
        whole, *heads = right(), right(site=without(0)), right(site=without(1))
        pattern = measure.attention(model, a, b)[0]
    assert found["whole answers"] == pytest.approx(whole)
    assert found["lost without the decision head"] == pytest.approx(whole - min(heads))
    assert found["lost without the last layer’s other head"] == pytest.approx(whole - max(heads))
    partners = [max(pattern[h, i, j].item() for h in range(2)) for i, j in ((0, 3), (1, 4), (3, 0), (4, 1))]
    assert found["staircase: the least attention that a digit gives its partner"] == pytest.approx(min(partners))
    (mlp,) = measure.cells(model, a, b, [Ablation(mlps=frozenset({1}))])
    (correlation,) = (value for name, value in found.items() if "correlation" in name)
    assert correlation == pytest.approx(measure.pearson(mlp, measure.cannot_carry(2)))


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


def test_insides_are_means_over_runs_with_the_runs_below():
    table = table_of_insides({"one": [{"x": 0.25}], "two": [{"x": 0.5}, {"x": 1.0}]})
    assert table.header == ["", "one", "two"]
    assert table.rows == [["x", "0.250", "0.750\n0.50 1.00"]]
    assert table_of_insides({}).rows == []
