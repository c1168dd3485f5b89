"""The page on what was trained: every group is in its table, and trainings are compared step by step."""

import numpy as np

from carry_core import groups, runs
from carry_core.groups import MAIN
from carry_core.plots import table_of_groups, table_of_norms, trainings
from carry_core.plots.trained import steps


def history(epochs: int, n_runs: int = 2) -> dict[str, np.ndarray]:
    norm = np.arange(2000.0, 2000.0 - epochs, -1)
    curve = np.stack([norm] * n_runs)
    return {"test_loss": curve, "test_whole": curve, "weight_norm": curve, "runs": np.arange(n_runs)}


def test_every_group_has_a_row_and_what_is_missing_says_so(monkeypatch):
    rows = {row[0]: row[1:] for row in table_of_groups().rows}
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
    table = table_of_norms({"short": history(60, 1), "long": history(1000)}, MAIN)
    assert table.header == ["", "epoch 1", "epoch 20", "epoch 60", "epoch 90", "epoch 1000"]
    assert table.rows[0] == ["short, run 0", "2000", "1981", "1941", "–", "–"]
    assert table.rows[2] == ["long, run 1", "2000", "1981", "1941", "1911", "1001"]


def test_each_run_is_a_line_in_its_trainings_colour():
    figure = trainings({"short": history(60, 1), "long": history(100)}, MAIN)
    for ax in figure.axes:
        assert [len(line.get_xdata()) for line in ax.lines] == [60, 100, 100]
        first, second, third = (line.get_color() for line in ax.lines)
        assert first != second == third
        assert ax.lines[0].get_xdata()[-1] == 60 * 147
