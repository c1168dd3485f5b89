"""Runs of the core's own: by the list in the data folder, by a recipe, by a path."""

import json

import pytest
import torch

from carry_core import files, load, runs
from carry_core.errors import BadInput
from carry_core.model import ModelConfig, Transformer
from carry_paper import catalogue
from carry_train.files import save_run
from carry_train.groups import Group

NAME = "mine"  # no name of the paper's, so that nothing but the files says what it is
CONFIG = ModelConfig(layers=1, width=2, d_model=16, heads=2, d_ff=8)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("CARRY_DATA", str(tmp_path))
    return tmp_path / "runs"


def save(root, recipe="paper", run=0, epochs=10):
    torch.manual_seed(run)
    weights = Transformer(CONFIG).state_dict()
    record = {"recipe": recipe, "run": run, "epochs": epochs}
    save_run(runs.run_path(root, NAME, recipe, run), Group(NAME, CONFIG), weights, record)
    return weights


def test_the_only_recipe_needs_no_list_and_no_known_name(root):
    weights = save(root, "by hand", 3)
    loaded = load(NAME)
    assert (loaded.numbers, loaded.config) == ((3,), CONFIG)
    for name, p in loaded.model(3).state_dict().items():
        assert torch.equal(p, weights[name])


def test_the_list_says_which_of_two_recipes_leads(root):
    save(root, "paper")
    save(root, "quick")
    with pytest.raises(BadInput, match="or one that leading.json names: .*'paper', 'quick'"):
        load(NAME)
    assert load(NAME, recipe="paper").record["recipe"] == "paper"
    (root / "leading.json").write_text(json.dumps({NAME: "quick"}))
    assert load(NAME).record["recipe"] == "quick"
    (root / "leading.json").write_text("[")
    with pytest.raises(BadInput, match="leading.json is damaged"):
        load(NAME)


def test_numbers_that_the_recipe_lacks_are_one_line(root):
    save(root, "paper")
    save(root, "quick", 6)
    (root / "leading.json").write_text(json.dumps({NAME: "paper"}))
    assert load(NAME, recipe="quick", runs=[6]).numbers == (6,)
    with pytest.raises(BadInput, match=f"No weights of {NAME} runs 6 in "):
        load(NAME, runs=[0, 6])


def test_runs_of_two_lengths_are_not_loaded_together(root):
    for run, epochs in enumerate((10, 20, 20)):
        save(root, run=run, epochs=epochs)
    assert load(NAME, runs=[1, 2]).record["epochs"] == 20
    with pytest.raises(BadInput, match="trained alike .*10 epochs; .*20 epochs.*some by `runs`"):
        load(NAME)


def test_files_of_two_shapes_are_not_loaded_together(root):
    save(root, run=0)
    other = ModelConfig(layers=2, width=2, d_model=16, heads=2, d_ff=8)
    record = {"recipe": "paper", "run": 1, "epochs": 10}
    path = runs.run_path(root, NAME, "paper", 1)
    save_run(path, Group(NAME, other), Transformer(other).state_dict(), record)
    with pytest.raises(BadInput, match="were not trained alike"):
        load(path.parent)


@pytest.mark.parametrize(
    "of", [load, catalogue.load, catalogue.load_curves], ids=["core", "paper", "curves"]
)
@pytest.mark.parametrize("wrong", [{"source": "author"}, {"recipe": "quick"}, {"recipe": "x"}])
def test_what_contradicts_a_path_s_records_is_one_line(root, of, wrong):
    save(root, "paper")
    path = root / NAME / "paper"
    with pytest.raises(BadInput, match="recipe 'paper': leave both out with a path"):
        of(path, **wrong)
    save(root, "author")
    for recipe, source in (("paper", "ours"), ("author", "author")):
        assert load(root / NAME / recipe, source, recipe=recipe).source == source


def test_the_installed_package_says_which_runs_it_has_and_where_the_others_are(
    tmp_path, monkeypatch
):
    monkeypatch.delenv("CARRY_DATA", raising=False)
    monkeypatch.setattr(files, "PACKAGED", tmp_path)
    save(tmp_path / "runs", "paper")
    leading = {NAME: "paper", "not_shipped": "quick"}
    (tmp_path / "runs" / "leading.json").write_text(json.dumps(leading))
    assert load(NAME).numbers == (0,)
    place = f"the installed package has the runs of {NAME} alone, and the repository has the others"
    for name, of in (("not_shipped", {}), ("not_listed", {}), (NAME, {"runs": [3]})):
        with pytest.raises(BadInput, match=f"{name}.*{place}"):
            load(name, **of)


def test_a_file_is_no_data_folder(monkeypatch):
    monkeypatch.setenv("CARRY_DATA", __file__)
    with pytest.raises(BadInput, match="CARRY_DATA=.*: Not a directory. Expected a folder"):
        load(NAME)


def test_no_runs_are_no_choice(root):
    save(root)
    for place in (NAME, root / NAME / "paper"):
        with pytest.raises(BadInput, match=r"runs=\[\]: expected"):
            load(place, runs=[])


def test_a_long_reason_is_cut():
    assert files.reason(ValueError("x" * 200)) == "x" * 200
    assert files.reason(ValueError("x" * 201)) == "x" * 200 + "…"
