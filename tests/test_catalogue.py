import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from carry_core import load, runs
from carry_core.errors import BadInput
from carry_core.files import ROOT
from carry_core.runs import run_path
from carry_paper import catalogue
from carry_paper.catalogue import load_curves
from carry_paper.pages.page import Page
from carry_paper.pages.provenance import provenance
from carry_train import groups
from tests.conftest import random_model
from tests.helpers.trainings import save_random

pytestmark = pytest.mark.machine

NAME = "n1_s0.3_w0.2"


def publish(recipe: str, epochs: int, numbers: list[int]) -> None:
    """Random runs of a one-layer group, with a snapshot."""
    group = replace(groups.find(NAME), snapshots=(7,))
    save_random(group, numbers, recipe, epochs, test_loss=np.ones(epochs))


@pytest.fixture
def two(data) -> Path:
    publish("quick", 9, [0, 3])
    return data / "runs" / NAME / "quick" / "run0.safetensors"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_weights_of_any_floating_type_are_loaded_in_float32(two, dtype):
    with safe_open(two, "pt") as file:
        metadata = file.metadata()
    stored = {name: p.to(dtype) for name, p in load_file(two).items()}
    save_file(stored, two, metadata)
    for name, p in catalogue.load(NAME).model(0).state_dict().items():
        assert p.dtype == torch.float32
        assert torch.equal(p, stored[name].float())


def test_what_is_saved_is_loaded(two):
    loaded = catalogue.load(NAME)
    assert (loaded.group, loaded.source, loaded.numbers) == (NAME, "ours", (0, 3))
    assert loaded.config == groups.find(NAME).config
    fresh = random_model(loaded.config, 3).state_dict()
    for name, p in loaded.model(np.int64(3)).state_dict().items():
        assert torch.equal(p, fresh[name])
        assert torch.equal(loaded.model(3, epoch=7).state_dict()[name], 0.9 * fresh[name])
        assert torch.equal(loaded.model(3, epoch=9).state_dict()[name], fresh[name])
    assert [run for run, _ in loaded.models()] == [0, 3]
    assert provenance(loaded).endswith(
        "They stand in for full runs (1000 epochs) by the recipe “paper”."
    )
    assert load_curves(NAME)["test_loss"].shape == (2, 9)
    assert load_curves(NAME, run=3)["runs"].tolist() == [0, 3]
    for wrong, message in (
        ({"run": 77}, r"No learning curves of run 77 of .* from ours: expected one of \[0, 3\]"),
        ({"runs": [0, 77]}, "No learning curves of .* run 77 from ours"),
        ({"source": "author", "recipe": "paper"}, "recipe='paper' with the author's runs"),
    ):
        with pytest.raises(BadInput, match=message):
            load_curves(NAME, **wrong)


def test_snapshots_are_read_when_they_are_asked_for(two):
    """From the file that was checked, and no other; the weights at the end are there at once."""
    loaded = catalogue.load(NAME)
    tensors = load_file(two)
    with safe_open(two, "pt") as file:
        description = json.loads(file.metadata()["carry"])
    tensors["epoch_7/norm.bias"][0] = torch.nan
    save_file(tensors, two, {"carry": json.dumps(description)})
    with pytest.raises(BadInput, match="damaged .it has weights that are not finite"):
        loaded.model(0, epoch=7)
    description["record"]["commit"] = "another"
    save_file(tensors, two, {"carry": json.dumps(description)})
    with pytest.raises(BadInput, match=r"run0.safetensors has changed .*: load it again"):
        loaded.model(0, epoch=7)
    assert loaded.model(0).norm.bias.isfinite().all()
    assert loaded.model(3, epoch=7).norm.bias.isfinite().all()
    two.unlink()
    with pytest.raises(BadInput, match="run0.safetensors does not exist"):
        loaded.model(0, epoch=7)


def test_the_list_follows_what_leads(data):
    """It is what the core reads; a recipe that leads no more is replaced, others stay."""
    publish("quick", 60, range(6))
    publish("paper", 1000, [0, 1])
    (data / "runs" / "leading.json").write_text('{"another": "by hand"}')
    catalogue.write_leading(data / "runs", NAME)
    assert runs.leading_recipes(data / "runs") == {"another": "by hand", NAME: "quick"}
    assert load(NAME).record == catalogue.load(NAME).record
    publish("paper", 1000, [2])
    catalogue.write_leading(data / "runs", NAME)
    assert load(NAME).numbers == catalogue.load(NAME).numbers == (0, 1, 2)


def test_the_shipped_list_is_what_leads():
    """The core's `load` and the paper's give the same runs of each group."""
    root = ROOT / "data" / "runs"
    listed = runs.leading_recipes(root)
    assert listed.keys() == {path.name for path in root.iterdir() if path.is_dir()}
    for name, recipe in listed.items():
        leading = catalogue.leading(name)
        assert {run.record["recipe"] for run in leading.values()} == {recipe}, name
        assert load(name).numbers == tuple(leading), name


def test_which_runs_lead(data):
    """Most of the runs 0 to 5 lead, then most epochs, then `paper`; recipes are never mixed.

    Three finished runs by `paper` lead, whatever else there is.
    """
    publish("quick", 60, [0, 1, 2, 6, 7])
    publish("paper", 1000, [0])

    def leading(**options):
        loaded = catalogue.load(NAME, **options)
        return loaded.record["recipe"], loaded.record["epochs"], loaded.numbers

    assert leading() == ("quick", 60, (0, 1, 2))
    assert leading(recipe="paper") == ("paper", 1000, (0,))
    assert leading(runs=[7, 0, 6]) == ("quick", 60, (0, 6, 7))
    assert load_curves(NAME, runs=[6])["runs"].tolist() == [6]
    publish("paper", 300, [1, 2, 3])
    assert leading() == ("paper", 300, (1, 2, 3))
    with pytest.raises(BadInput, match=f"No weights of {NAME} runs 5,9 from ours"):
        catalogue.load(NAME, runs=[0, 5, 9])
    publish("quick", 60, range(6))
    assert leading() == ("quick", 60, (0, 1, 2, 3, 4, 5))
    publish("paper", 1000, [4])
    assert leading() == ("quick", 60, (0, 1, 2, 3, 4, 5))
    publish("paper", 1000, [5])
    assert leading() == ("paper", 1000, (0, 4, 5))


def test_curves_of_unequal_runs_are_filled_up(data):
    short = {"train_loss": np.ones(2), "test_accuracy": np.ones((2, 3))}
    for run, curves in ((0, {"train_loss": np.ones(3)}), (2, short)):
        save_random(groups.find(NAME), (run,), source="author", **curves)
    history = load_curves(NAME, "author")
    np.testing.assert_array_equal(history["train_loss"], [[1, 1, 1], [1, 1, np.nan]])
    assert np.isnan(history["test_accuracy"][0]).all()
    assert history["test_accuracy"].shape == (2, 3, 3)
    assert history["epochs"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: catalogue.load("n9"), "Unknown group 'n9': expected a name such as n"),
        (lambda: catalogue.load("n2_s0.3_w0.2"), "make them with `carry train n2_s0.3_w0.2`"),
        (lambda: catalogue.load(NAME).model(1), "No run 1 of n1_s0.3_w0.2 from ours: expected one"),
        (lambda: catalogue.load(NAME).model(0, epoch=500), "at epoch 500: expected one of None"),
        (
            lambda: Page("fig", source="ours", group=NAME, n_examples=1.5),
            "n_examples=1.5: expected a whole number",
        ),
    ],
)
def test_bad_parameters_are_named_in_one_line(two, call, complaint):
    with pytest.raises(BadInput, match=re.escape(complaint)):
        call()


# What is shipped


def test_shipped_runs_say_how_they_were_trained():
    shipped = sorted((ROOT / "data" / "runs").rglob("*.safetensors"))
    assert len(shipped) >= len(groups.GROUPS)
    for path in shipped:
        _, group, _, record = runs.describe(path, path.parent.parent.name)
        assert run_path(ROOT / "data" / "runs", group, record["recipe"], record["run"]) == path
        assert {"device", "precision", "torch", "numpy", "commit", "seconds"} <= record.keys()
        with safe_open(path, "pt") as file:
            names = list(file.keys())
            assert {file.get_slice(name).get_dtype() for name in names} == {"F16"}
        with np.load(path.with_suffix(".npz")) as curves:
            assert curves["train_whole"].shape == (record["epochs"],)
            tested = curves["epochs"] if "epochs" in curves else np.arange(1, record["epochs"] + 1)
            assert curves["test_whole"].shape == tested.shape
            assert tested[-1] == record["epochs"]


def test_the_unprimed_runs_differ_in_what_their_readme_says():
    """Beside run 200, one has another seed, another split, or another rounding."""
    changed = {
        200: {},
        201: {"init": 201, "mask": 201},
        202: {"init": 202, "mask": 202},
        203: {"split": 203},
        204: {"split": 204},
        205: {"rounding": 1200},
        206: {"rounding": 2200},
    }
    of_run_200 = {"split": 200, "init": 200, "order": None, "mask": 200}
    trained = catalogue.load(ROOT / "data" / "unprimed")
    assert trained.numbers == tuple(changed)
    for record in trained.record["runs"]:
        assert record["seeds"] == of_run_200 | changed[record["run"]]
        assert record["precision"] == "fused-bf16"
        assert (record["recipe"], record["epochs"]) == ("paper", 200)


# ---------------------------------------------------------------- your own runs, by path

UNLISTED = "n1_s0.4_w0.5_dff64_h4"


@pytest.fixture
def runs_folder(data, tmp_path) -> Path:
    """A folder of two runs of a group that nobody listed."""
    save_random(groups.find(UNLISTED), (3, 8), "quick", 9)
    return (data / "runs" / UNLISTED / "quick").rename(tmp_path / "own")


def test_a_run_is_loaded_by_its_path(runs_folder, monkeypatch):
    """A file, a folder, and some runs of it; as text and as a path; with or without a slash."""
    single = catalogue.load(str(runs_folder / "run3.safetensors"))
    assert (single.group, single.source, single.numbers) == (UNLISTED, "ours", (3,))
    assert single.config == groups.find(UNLISTED).config
    assert single.record["runs"][0]["recipe"] == "quick"
    fresh = random_model(single.config, 3).state_dict()
    assert torch.equal(
        single.model(3).state_dict()["blocks.0.q.weight"], fresh["blocks.0.q.weight"]
    )
    assert catalogue.load(runs_folder).numbers == (3, 8)
    assert catalogue.load(runs_folder, runs=[8]).numbers == (8,)
    monkeypatch.chdir(runs_folder.parent)
    assert catalogue.load("own").numbers == (3, 8)
    (runs_folder / "run3.safetensors").rename("mine.safetensors")
    assert catalogue.load("mine.safetensors").numbers == (3,)
