import json
import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import torch
from safetensors import SafetensorError, safe_open

from carry_core import files, groups, manifest, measure, runs, trainings
from carry_core.errors import BadInput
from carry_core.files import ROOT, author_dir, data_dir, replacing, sha256, update_manifest, write_json
from carry_core.train import initialise
from carry_core.verify import verify

NAME = "n1_s0.3_w0.2"


@pytest.fixture
def group_file(data) -> Path:
    """Two runs of a one-layer group, published."""
    config = groups.find(NAME).config
    fresh = [initialise(config, torch.Generator().manual_seed(run)) for run in range(2)]
    weights = {name: torch.stack([f[name] for f in fresh]) for name in fresh[0]}
    weights |= {f"epoch_7/{name}": 2 * p for name, p in weights.items()}
    run = {"device": "cpu", "precision": "fp32", "torch": "2"}
    record = {"recipe": "quick", "epochs": 9, "runs": [{"run": 0, **run}, {"run": 3, **run}]}
    runs.save(data / "runs", NAME, config, weights, record, {"test_loss": np.ones((2, 9)), "runs": np.array([0, 3])})
    return data / "runs" / f"{NAME}.safetensors"


def test_what_is_saved_is_loaded(group_file):
    loaded = runs.load(NAME)
    assert (loaded.group, loaded.source, loaded.numbers) == (NAME, "ours", (0, 3))
    assert loaded.config == groups.find(NAME).config
    fresh = initialise(loaded.config, torch.Generator().manual_seed(1))
    for name, p in loaded.model(3).state_dict().items():
        assert torch.equal(p, fresh[name])
    for name, p in loaded.model(3, epoch=7).state_dict().items():
        assert torch.equal(p, 2 * fresh[name])
    assert [run for run, _ in loaded.models()] == [0, 3]
    assert runs.history(NAME)["test_loss"].shape == (2, 9)
    assert runs.history(NAME, run=int(runs.history(NAME)["runs"][-1]))["test_loss"].shape == (2, 9)
    with pytest.raises(BadInput, match="No learning curves of run 77 of .* expected one of"):
        runs.history(NAME, run=77)
    assert "quick" in loaded.provenance
    assert loaded.provenance.endswith("They stand in for runs of all 1000 epochs by the recipe “paper”.")
    whole = replace(loaded, record=loaded.record | {"recipe": "paper", "epochs": 1000})
    assert "stand in" not in whole.provenance + replace(loaded, source="author").provenance
    assert "not trained alike" in loaded.beside(whole)
    assert "not trained alike" not in loaded.beside(loaded) + whole.beside(whole)
    assert "not trained alike" not in whole.beside(replace(loaded, source="author"))
    moved = [record | {"sessions": [{"device": "a GPU", "torch": "2.9"}]} for record in loaded.record["runs"]]
    told = replace(loaded, record=loaded.record | {"runs": moved}).provenance
    assert ", a GPU, cpu, torch 2, 2.9. " in told
    assert verify() == []


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: runs.load("n9"), "Unknown group 'n9': expected one of n1_s0.3_w0.2"),
        (lambda: runs.load(NAME, "authr"), "Unknown source 'authr': expected 'ours' or 'author'"),
        (lambda: runs.load(NAME, "author"), "does not exist. Make it with `carry import-author DIR`"),
        (lambda: runs.load("n2_s0.3_w0.2"), "does not exist. Make it with `carry train n2_s0.3_w0.2`"),
        (lambda: runs.load(NAME).model(1), "No run 1 of n1_s0.3_w0.2 from ours: expected one of 0, 3"),
        (lambda: runs.load(NAME).model(0, epoch=500), "at epoch 500: expected one of 7, 9"),
        (lambda: runs.check(source="ours", group=NAME, n_examples=-1), "n_examples=-1: expected a whole number"),
        (lambda: runs.check(source="ours", group=NAME, run=9), "No run 9"),
        (lambda: runs.check(source="ours", group=NAME, seed=-1), "seed=-1: expected a whole number from 0 to"),
        (
            lambda: runs.check(source="ours", group=NAME, seed=2**63),
            "seed=9223372036854775808: expected a whole number",
        ),
        (lambda: runs.check(source="ours", group=NAME, seed=None), "seed=None: expected a whole number"),
        (lambda: runs.check(source="ours", group=NAME, seed=True), "seed=True: expected a whole number"),
        (lambda: runs.check(source="ours", group=NAME, n_examples=None), "n_examples=None: expected a whole number"),
    ],
)
def test_bad_parameters_are_named_in_one_line(group_file, call, complaint):
    with pytest.raises(BadInput) as error:
        call()
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("where", [0.1, 0.5, 0.999])
def test_one_flipped_byte_is_found_and_named(group_file, where):
    content = bytearray(group_file.read_bytes())
    content[int(where * len(content))] ^= 1
    group_file.write_bytes(content)
    (problem,) = verify()
    assert f"runs/{NAME}.safetensors is damaged" in problem
    with pytest.raises(BadInput, match=f"{NAME}.safetensors is damaged"):
        runs.load(NAME)


def test_verify_names_missing_and_unlisted_files(group_file):
    group_file.unlink()
    (group_file.parent / "stray.bin").write_bytes(b"x")
    (data_dir() / "checkpoints").mkdir()
    (data_dir() / "checkpoints" / "anything").write_bytes(b"x")
    assert [line.split(":")[0] for line in verify()] == [
        f"runs/{NAME}.safetensors is missing",
        "runs/stray.bin is not in the manifest",
    ]


def test_a_file_of_another_version_is_refused(group_file, monkeypatch):
    monkeypatch.setattr(runs, "FORMAT", "2")
    with pytest.raises(BadInput, match="has format '1', expected '2'"):
        runs.load(NAME)


def test_a_missing_manifest_is_named(group_file):
    (data_dir() / "manifest.json").unlink()
    (problem,) = verify()
    assert "manifest.json is missing: restore it with git" in problem


def test_a_damaged_manifest_is_named(group_file):
    (data_dir() / "manifest.json").write_text("[")
    with pytest.raises(BadInput, match="manifest.json is damaged"):
        verify()


def test_a_manifest_of_another_program_stays_as_it_is(group_file, tmp_path):
    """Also an empty one beside a folder that happens to be called `quick`; ours are told by their form."""
    web = tmp_path / "web"
    for content in ('{"name": "App"}', json.dumps({"icon.png": "z" * 64}), json.dumps({"a": 1}), "[]", "["):
        write_json(web / "manifest.json", {})
        (web / "manifest.json").write_text(content)
        with pytest.raises(BadInput, match="manifest.json is not of this program, or damaged .* Choose another folder"):
            update_manifest(web, [])
        assert (web / "manifest.json").read_text() == content
    (web / "manifest.json").write_text("{}")
    assert manifest.home(web / "quick") == (web / "quick", PurePosixPath())
    (web / "manifest.json").write_text(json.dumps({"x": sha256(group_file)}))
    assert manifest.home(web / "quick") == (web, PurePosixPath("quick"))


def test_an_empty_variable_is_as_none(monkeypatch):
    monkeypatch.setenv("CARRY_DATA", "")
    monkeypatch.setenv("CARRY_AUTHOR", "")
    assert data_dir() == ROOT / "data"
    assert author_dir() == ROOT / "data" / "author"


def test_an_interrupted_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def stop(temporary: Path) -> None:
        temporary.write_text("new")
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"), replacing(path) as temporary:
        stop(temporary)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_line(tmp_path):
    def fill(temporary: Path) -> None:
        with Path("/dev/full").open("w") as full:
            full.write("x" * 10_000)

    path = tmp_path / "file"
    path.write_text("old")
    full = pytest.raises(BadInput, match="No space left on device. Free some space; what was there is untouched")
    with full, replacing(path) as temporary:
        fill(temporary)
    assert path.read_text() == "old"


def test_a_full_disk_under_safetensors_is_one_line(tmp_path):
    """Its writer tells the system's error in words of its own."""
    path = tmp_path / "x"
    path.write_text("old")
    complaint = f"Cannot write {path}: No space left on device. Free some space; what was there is untouched."
    with pytest.raises(BadInput, match=re.escape(complaint)), replacing(path):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
    with pytest.raises(SafetensorError, match="another"), replacing(path):
        raise SafetensorError("another")
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        (f"{NAME}.safetensors", f"carry train {NAME}`"),  # what it was nobody knows
        (f"{NAME}.history.npz", f"carry train {NAME} --recipe quick`"),
        (f"paper/{NAME}.history.npz", "remove it"),
        ("stray.bin", "remove it"),
    ],
)
def test_verify_says_which_command_makes_a_file(group_file, name, command):
    path = group_file.parent / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"something else")
    (problem,) = verify()
    assert command in problem
    assert ("carry train" in problem) == name.startswith(NAME)


def test_the_repositorys_data_is_as_its_manifest_says():
    assert verify(ROOT / "data") == []


def test_shipped_groups_say_how_they_were_trained():
    shipped = sorted((ROOT / "data" / "runs").glob("*.safetensors"))
    assert shipped, "no weights of our own are shipped"
    trained = [(recipe, t.runs, t.history) for path in shipped for recipe, t in trainings.ours(path.stem).items()]
    assert len(trained) == len(list((ROOT / "data" / "runs").rglob("*.safetensors")))
    for recipe, loaded, curves in trained:
        assert loaded.config == groups.find(loaded.group).config
        assert loaded.record["recipe"] == recipe
        with safe_open(runs.folder_of(loaded.group, "ours", recipe) / f"{loaded.group}.safetensors", "pt") as file:
            assert {file.get_slice(name).get_dtype() for name in file.keys()} == {"F16"}  # noqa: SIM118 (not a dict)
        for record in loaded.record["runs"]:
            assert {"run", "device", "precision", "torch", "numpy", "commit", "seconds"} <= set(record)
        assert set(loaded.numbers) <= set(curves["runs"].tolist())
        assert curves["test_whole"].shape == (len(curves["runs"]), loaded.record["epochs"])
        json.dumps(loaded.record)


def test_a_run_is_found_by_the_numbers_of_its_history(group_file):
    loaded = runs.load(NAME)
    for run in runs.history(NAME)["runs"]:
        assert isinstance(run, np.integer)
        torch.testing.assert_close(loaded.model(run).state_dict(), loaded.model(int(run)).state_dict(), rtol=0, atol=0)
    with pytest.raises(BadInput, match="No run .*1.* of n1_s0.3_w0.2 from ours: expected one of 0, 3"):
        loaded.model(np.int64(1))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("run", [False, np.False_, 0.0, "0"])
def test_what_is_no_whole_number_is_no_run(group_file, run):
    with pytest.raises(BadInput, match="No run .* of n1_s0.3_w0.2 from ours: expected one of 0, 3"):
        runs.load(NAME).model(run)


def test_what_a_caller_does_to_the_weights_changes_no_later_load(group_file):
    first, before = runs.load(NAME), runs.load_model(NAME, 3).state_dict()
    for early in (first.weights, *first.snapshots.values()):
        for p in early.values():
            p.zero_()
    first.record["runs"].clear()
    (other, _), again = runs.read(group_file.parent, NAME), runs.load(NAME)
    for loaded in (again, other):
        torch.testing.assert_close(loaded.model(3).state_dict(), before, rtol=0, atol=0)
        assert loaded.snapshots[7]["embed.weight"].any()
        assert len(loaded.record["runs"]) == 2
    again.model(3).embed.weight.zero_()
    assert again.weights["embed.weight"].any()


def test_rounding_to_float16_moves_no_cell_of_table_1():
    """As much noise again as rounding left in the main group's weights: no mean over runs moves by 0.001 (DESIGN)."""
    loaded, generator = runs.load(groups.MAIN), torch.Generator().manual_seed(0)
    a, b = measure.sample(1000, 3, 0)
    moved = []
    for _, model in loaded.models():
        found = []
        for size in (0.0, 2.0**-11):  # a float16 has eleven significant bits
            with torch.no_grad():
                for p in model.parameters():
                    p *= 1 + size * (2 * torch.rand(p.shape, generator=generator) - 1)
            last = measure.last_layer(model, a, b)
            parts = (last.intact, last.decision, last.other, last.mlp)
            found.append(torch.stack([x for cells in parts for x in (cells.accuracy, cells.corrected)]))
        moved.append(found[1] - found[0])
    assert 0 < torch.stack(moved).mean(0).abs().max() < 0.001


def test_two_processes_may_ask_at_once_whether_a_folder_can_be_written(tmp_path, monkeypatch):
    @contextmanager
    def overtaken(path):
        with replacing(path) as temporary:
            yield temporary
        path.unlink()  # by the other one

    monkeypatch.setattr(files, "replacing", overtaken)
    files.check_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []
