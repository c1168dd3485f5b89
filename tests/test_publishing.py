"""What `carry train` publishes, and that neither a kill nor another recipe or process loses any of it."""

import errno
import shutil
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import torch

from carry_core import campaign, files, groups, manifest, publishing, runs, trainings
from carry_core.checkpoints import Checkpoints
from carry_core.errors import BadInput
from carry_core.groups import RECIPES
from carry_core.train import Trainer
from carry_core.verify import verify
from tests.trainings import QUICK, Ticks, train_and_publish, weights


def test_what_is_published_is_of_whole_epochs(small_group, data, monkeypatch):
    """A run that was stopped within an epoch is published with the weights after the one before."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=3))
    trainer = Trainer(small_group, QUICK, [0])
    trainer.run_epoch()
    after_one = weights(trainer)
    again = Trainer(small_group, QUICK, [0])
    assert not campaign.train_runs(again, checkpoints, Ticks(9), lambda *_: None)
    assert (again.epoch, again.done) == (1, 3)
    campaign.train_group(replace(checkpoints, recipe=replace(QUICK, limit=1)), [0], data / "runs", say=lambda _: None)
    published = runs.load("small")
    assert published.record["epochs"] == 1
    assert set(published.record["runs"][0]) == {"run", "precision", "device", "torch", "numpy", "commit", "seconds"}
    for name, p in after_one.items():
        assert torch.equal(published.weights[name][0], p.half().float()), name
    assert checkpoints.latest(0)[1]["batches"] == 3


def test_publishing_never_goes_backwards(small_group, data, monkeypatch):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    quick = replace(QUICK, limit=4)
    train = partial(train_and_publish, small_group, data)
    assert train(quick, [0, 1])[1] == {"quick": ([0, 1], 4)}
    assert train(replace(quick, limit=6), [0, 1])[1] == {"quick": ([0, 1], 6)}
    shutil.rmtree(data / "checkpoints")
    said, found = train(quick, [0])
    assert found == {"quick": ([0, 1], 6)}
    assert said == "small: published already, as far or further: runs 0, 1 by quick."
    said, found = train(replace(quick, limit=5), [2])
    assert "the quick group with 6 epochs, runs 0, 1, is kept" in said
    assert found == {"quick": ([0, 1], 6)}


def test_two_trainings_publish_one_after_the_other(small_group, data, monkeypatch):
    """Neither loses what the other publishes after it looked at what was there."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    here, there = (Checkpoints(data / "checkpoints" / name, small_group, replace(QUICK, limit=1)) for name in "ab")
    for run, checkpoints in enumerate((here, there)):
        trainer = Trainer(small_group, checkpoints.recipe, [run])
        campaign.train_runs(trainer, checkpoints, campaign.Clock(), lambda *_: None)
    look = publishing.look
    other = threading.Thread(target=publishing.publish, args=(there, data / "runs"))

    def look_and_wait(group, out):
        found = look(group, out)
        if threading.current_thread() is not other:
            other.start()
            other.join(1)
        return found

    monkeypatch.setattr(publishing, "look", look_and_wait)
    publishing.publish(here, data / "runs")
    other.join()
    assert runs.load("small").numbers == (0, 1)
    assert verify(data) == []


def test_published_runs_stay_where_no_checkpoint_has_them(small_group, data, monkeypatch):
    """In a fresh clone, where there are no checkpoints, another run joins those that are there."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    quick = replace(QUICK, limit=2)
    train_and_publish(small_group, data, quick, [0, 1])
    before, curves = runs.load("small"), runs.history("small")
    shutil.rmtree(data / "checkpoints")
    _, found = train_and_publish(small_group, data, quick, [2])
    assert found == {"quick": ([0, 1, 2], 2)}
    after = runs.load("small")
    assert {(data / "runs" / name).stat().st_mode & 0o777 for name in runs.files_of("small")} == {0o644}
    assert after.record["runs"][:2] == before.record["runs"]
    assert all(torch.equal(p, after.weights[name][:2]) for name, p in before.weights.items())
    np.testing.assert_array_equal(curves["test_loss"], runs.history("small")["test_loss"][:2])


class Killed(BaseException):
    """The process, at this moment."""


def others_runs(small_group, data) -> dict[str, torch.Tensor]:
    """Runs 0 and 1, published by somebody else: no checkpoint of them is here. Returns their weights."""
    train_and_publish(small_group, data, replace(QUICK, limit=2), [0, 1])
    shutil.rmtree(data / "checkpoints")
    return runs.load("small").weights


@contextmanager
def dying(monkeypatch, moment: int):
    """A process that dies before one of its changes to published files, and changes nothing any more.

    A change is a file that takes its place, one that is removed, or one that is begun under its temporary name. Yields
    those that it came to.
    """
    happened: list[str] = []
    unlink, new = Path.unlink, manifest.Publication.new

    def mortal(act, path, *others, **options):
        private = {"checkpoints", ".lock"} & {*path.parts} or ".probe" in path.name
        if private or (act is unlink and not path.exists()):
            return act(path, *others, **options)
        if len(happened) < moment:
            happened.append(path.name)
        if len(happened) == moment:
            raise Killed
        return act(path, *others, **options)

    with monkeypatch.context() as patch, suppress(Killed):
        for name, act in (("replace", Path.replace), ("unlink", unlink)):
            patch.setattr(Path, name, lambda path, *others, act=act, **options: mortal(act, path, *others, **options))
        patch.setattr(manifest.Publication, "new", lambda p, name: mortal(lambda path: new(p, name), p.root / name))
        yield happened


@pytest.mark.parametrize("moment", range(1, 8))
def test_a_kill_while_a_run_joins_loses_nobodys(small_group, data, monkeypatch, moment):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    before = others_runs(small_group, data)
    with dying(monkeypatch, moment) as happened:
        train_and_publish(small_group, data, replace(QUICK, limit=2), [2])
    assert len(happened) == moment, "there is no such moment"
    assert verify(data) == []
    assert runs.load("small").numbers in ((0, 1), (0, 1, 2))
    stacks = []
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    report = lambda trainer, row: stacks.append(trainer.runs)  # noqa: E731
    campaign.train_group(checkpoints, [0, 1, 2], data / "runs", report=report, say=str)
    assert stacks == []  # neither what was published nor run 2 is trained again
    assert verify(data) == []
    assert runs.load("small").numbers == (0, 1, 2)
    assert all(torch.equal(p, runs.load("small").weights[name][:2]) for name, p in before.items())
    left = [path.name for path in (*data.iterdir(), *(data / "runs").iterdir()) if path.name.startswith(".")]
    assert left == [".lock"]


@pytest.mark.parametrize("lost", ["weights and curves", "curves to come", "all"])
def test_a_publication_is_not_finished_with_other_files_than_its_own(small_group, data, monkeypatch, lost):
    """What somebody has restored with git since, or cleared away, is compared with the manifest as it is."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    others_runs(small_group, data)
    shutil.copytree(data, data.parent / "git")
    shutil.rmtree(data)
    shutil.copytree(data.parent / "git", data)
    with dying(monkeypatch, 5) as happened:
        train_and_publish(small_group, data, replace(QUICK, limit=2), [2])
    assert happened[-1] == ".small.history.npz.new"
    if lost == "curves to come":
        (data / "runs" / ".small.history.npz.new").unlink()
        assert len(verify(data)) == 1  # the new weights, which the manifest does not list
    for name in ("manifest.json", "runs/small.safetensors", "runs/small.history.npz"):
        shutil.copyfile(data.parent / "git" / name, data / name)
    if lost == "all":
        (data / "runs" / ".small.history.npz.new").unlink()
    assert verify(data) == []
    assert runs.load("small").numbers == (0, 1)
    assert runs.history("small")["runs"].tolist() == [0, 1]
    assert not (data / manifest.JOURNAL).exists()
    assert not (data / "runs" / ".small.history.npz.new").exists()


def test_removals_wait_for_what_takes_their_place(small_group, data, monkeypatch):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    train_and_publish(small_group, data, replace(QUICK, limit=2), [0])
    paper = replace(RECIPES["paper"], limit=small_group.epochs)
    train_and_publish(small_group, data, replace(paper, limit=1), [0])
    with dying(monkeypatch, 6):
        campaign.train_group(Checkpoints(data / "checkpoints", small_group, paper), [0], data / "runs", say=str)
    assert (data / manifest.JOURNAL).exists()
    for path in (data / "runs").rglob(".small*.new"):
        path.unlink()
    assert verify(data) == []
    assert (data / "runs" / "paper" / "small.safetensors").exists()


def test_a_disk_that_fills_up_last_leaves_a_publication_that_waits(small_group, data, monkeypatch):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    others_runs(small_group, data)

    def full(*args):
        raise BadInput("Cannot write manifest.json: No space left on device.")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_manifest", full)
        with pytest.raises(BadInput, match=r"Cannot finish the publication that .* which waits: .*No space left"):
            train_and_publish(small_group, data, replace(QUICK, limit=2), [2])
    assert verify(data) == []
    assert runs.load("small").numbers == (0, 1, 2)


@pytest.mark.parametrize("content", ["", "[]", '{"runs/small.safetensors": null}'])
def test_a_damaged_journal_is_one_clear_line(small_group, data, content):
    data.mkdir(exist_ok=True)
    (data / manifest.JOURNAL).write_text(content)
    with pytest.raises(BadInput, match=r"publication.json is damaged .*: remove it"):
        verify(data)


@pytest.mark.parametrize("writer", ["carry_core.runs.save_file", "carry_core.runs.np.savez_compressed"])
def test_a_full_disk_leaves_both_files_as_they_were(small_group, data, monkeypatch, writer):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    others_runs(small_group, data)
    before = {path.name: path.read_bytes() for path in (data / "runs").iterdir()}

    def full(*args, **options):
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(writer, full)
        with pytest.raises(BadInput, match=r"No space left on device. Free some space; what was there is untouched"):
            train_and_publish(small_group, data, replace(QUICK, limit=2), [2])
    assert {path.name: path.read_bytes() for path in (data / "runs").iterdir()} == before
    assert verify(data) == []


@pytest.mark.parametrize(
    "recipe", [replace(QUICK, limit=2), replace(QUICK, limit=1), replace(RECIPES["paper"], limit=2)]
)
@pytest.mark.parametrize("harm", ["weights", "curves", "both", "gone"])
def test_what_cannot_be_read_is_not_replaced(small_group, data, monkeypatch, recipe, harm):
    """Whose runs they were cannot be told any more: nothing is trained or written until they are back, or away."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    before = others_runs(small_group, data)
    paths = [data / "runs" / name for name in runs.files_of("small")]
    whole = [path.read_bytes() for path in paths]
    for path, what in zip(paths, ("weights", "curves"), strict=True):
        if harm in (what, "both"):
            path.write_bytes(path.read_bytes()[:100])
    if harm == "gone":
        paths[0].unlink()
    there = {path: path.read_bytes() for path in paths if path.exists()}
    checkpoints = Checkpoints(data / "checkpoints", small_group, recipe)
    with pytest.raises(BadInput, match="cannot be read, and are not replaced|without the other file"):
        campaign.train_group(checkpoints, [0, 1, 2], data / "runs", say=str)
    assert {path: path.read_bytes() for path in paths if path.exists()} == there
    assert checkpoints.runs() == []
    for path, content in zip(paths, whole, strict=True):
        path.write_bytes(content)
    campaign.train_group(checkpoints, [2], data / "runs", say=str)
    found = runs.load("small", recipe="quick").weights  # of one epoch, by the other recipe, or joined by run 2
    assert all(torch.equal(p, found[name][:2]) for name, p in before.items())


def test_what_was_moved_away_is_published_again_from_its_checkpoints(small_group, data, monkeypatch):
    """As `carry verify` says of a damaged file."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    train_and_publish(small_group, data, replace(QUICK, limit=2), [0, 1])
    path = data / "runs" / "small.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?")
    (told,) = verify(data)
    assert told.endswith("move the group's files away and run `carry train small --recipe quick`.")
    for name in runs.files_of("small"):
        (data / "runs" / name).unlink()
    train_and_publish(small_group, data, replace(QUICK, limit=2), [0, 1])
    assert path.read_bytes() == whole


def test_weights_and_curves_of_different_publications_are_refused(small_group, data, monkeypatch):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    train_and_publish(small_group, data, replace(QUICK, limit=2), [0])
    path = data / "runs" / "small.history.npz"
    older = path.read_bytes()
    for limit, numbers in ((2, [0, 1]), (3, [0, 1])):
        train_and_publish(small_group, data, replace(QUICK, limit=limit), numbers)
        newer = path.read_bytes()
        path.write_bytes(older)
        files.update_manifest(data, ["runs/small.history.npz"])
        with pytest.raises(BadInput, match="its weights and its learning curves are of other runs or epochs"):
            train_and_publish(small_group, data, replace(QUICK, limit=3), [2])
        path.write_bytes(newer)
        files.update_manifest(data, ["runs/small.history.npz"])


def test_another_publication_of_the_same_recipe_is_not_forgotten(small_group, data, monkeypatch):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    others_runs(small_group, data)
    for folder in ("quick", "paper"):
        shutil.copytree(data / "runs", data / "runs" / folder, ignore=shutil.ignore_patterns("quick"))
        with pytest.raises(BadInput, match=f"{folder} has runs of small by quick, expected none or"):
            train_and_publish(small_group, data, replace(QUICK, limit=2), [2])
        shutil.rmtree(data / "runs" / folder)
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    with pytest.raises(BadInput, match=r"that folder is for what .*runs has by another recipe"):
        campaign.train_group(checkpoints, [2], data / "runs" / "quick", say=str)


def test_weights_that_are_published_stay_where_a_group_keeps_few(small_group, data, monkeypatch):
    group = replace(small_group, kept=2)
    monkeypatch.setitem(groups.GROUPS, "small", group)
    quick = replace(QUICK, limit=2)
    train_and_publish(group, data, quick, [1, 2])
    shutil.rmtree(data / "checkpoints")
    train_and_publish(group, data, quick, [0])
    assert runs.load("small").numbers == (1, 2)
    assert runs.history("small")["runs"].tolist() == [0, 1, 2]


def test_published_runs_stay_as_they_are_if_others_were_trained_here_too(small_group, data, monkeypatch, tmp_path):
    """At another precision, for another folder: what is published has been read, computed from and cited."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    others_runs(small_group, data)
    before = runs.load("small")
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    campaign.train_group(checkpoints, [0, 1], tmp_path / "mine", precision="bf16", say=str)
    campaign.train_group(checkpoints, [0, 1, 2], data / "runs", precision="bf16", say=str)
    after = runs.load("small")
    assert [r["precision"] for r in after.record["runs"]] == ["fp32", "fp32", "bf16"]
    assert all(torch.equal(p, after.weights[name][:2]) for name, p in before.weights.items())


def test_a_run_of_another_precision_is_refused_before_any_is_trained(small_group, data, monkeypatch):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    campaign.train_runs(
        Trainer(small_group, replace(QUICK, limit=1), [1], precision="bf16"),
        checkpoints,
        campaign.Clock(),
        lambda *_: None,
    )
    with pytest.raises(BadInput, match="was trained in bf16, not fp32"):
        campaign.train_group(checkpoints, [0, 1], data / "runs", say=str)
    assert checkpoints.runs() == [1]


def test_a_folder_that_another_manifest_lists_is_published_there(small_group, data, tmp_path, monkeypatch):
    """A training with a data folder of its own publishes to that of a checkout, whose manifest and lock it takes."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    others_runs(small_group, data)
    monkeypatch.setenv("CARRY_DATA", str(tmp_path / "elsewhere"))
    checkpoints = Checkpoints(tmp_path / "elsewhere" / "checkpoints", small_group, replace(QUICK, limit=2))
    campaign.train_group(checkpoints, [2], data / "runs", say=str)
    monkeypatch.setenv("CARRY_DATA", str(data))
    assert runs.load("small").numbers == (0, 1, 2)
    assert not (data / "runs" / "manifest.json").exists()
    assert verify(data) == []
    monkeypatch.chdir(data / "runs")
    assert manifest.home(Path()) == (data, PurePosixPath("runs"))
    (tmp_path / "link").symlink_to(data / "runs")
    monkeypatch.setenv("CARRY_DATA", str(tmp_path / "elsewhere"))
    assert manifest.home(tmp_path / "link") == (data, PurePosixPath("runs"))
    assert manifest.home(tmp_path / "elsewhere" / ".." / "link") == (data, PurePosixPath("runs"))
    monkeypatch.setenv("CARRY_DATA", str(data))
    assert manifest.home(data / "runs" / "mine") == (data, PurePosixPath("runs/mine"))


def test_what_is_being_published_is_waited_for(small_group, data, monkeypatch):
    """A reader that comes between a rename and the manifest neither takes files for damaged nor trains again."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    others_runs(small_group, data)
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    found = {}
    update = files.write_manifest

    def read():
        found["problems"] = verify(data)
        found["missing"] = campaign.missing(checkpoints, [0, 1, 2], data / "runs")

    reader = threading.Thread(target=read)

    def update_late(*what):
        reader.start()
        reader.join(1)
        assert reader.is_alive()
        update(*what)

    monkeypatch.setattr(files, "write_manifest", update_late)
    campaign.train_group(checkpoints, [2], data / "runs", say=str)
    reader.join()
    assert found == {"problems": [], "missing": {}}


def test_runs_that_are_published_are_not_trained_again(small_group, data, monkeypatch):
    """Whoever published them, and at whatever precision; asked for more epochs or the other recipe, they are."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    quick, out = replace(QUICK, limit=2), data / "runs"
    others_runs(small_group, data)
    before, stacks = runs.load("small").record["runs"], []
    checkpoints = Checkpoints(data / "checkpoints", small_group, quick)
    assert campaign.missing(checkpoints, [0, 1, 2], out) == {2: (0, 0)}
    report = lambda trainer, row: stacks.append(trainer.runs)  # noqa: E731
    said = []
    assert campaign.train_group(checkpoints, [0, 1], out, report=report, say=said.append)
    assert (stacks, said) == ([], ["small: published already, as far or further: runs 0, 1 by quick."])
    assert campaign.train_group(checkpoints, [0, 1, 2], out, precision="bf16", report=report, say=str)
    assert stacks == [[2], [2]]
    record = runs.load("small").record["runs"]
    assert [r["precision"] for r in record] == ["fp32", "fp32", "bf16"]
    assert record[:2] == before
    assert list(campaign.missing(replace(checkpoints, recipe=replace(quick, limit=3)), [0, 1, 2], out)) == [0, 1, 2]
    assert list(campaign.missing(replace(checkpoints, recipe=replace(RECIPES["paper"], limit=2)), [0], out)) == [0]


def test_attention_patterns_are_rounded_once(small_group, data, monkeypatch):
    """They are half the size of float32, near what was measured, and publishing again does not move them."""
    group = replace(small_group, config=replace(small_group.config, layers=1))
    monkeypatch.setitem(groups.GROUPS, "small", group)
    quick = replace(QUICK, limit=2)
    train_and_publish(group, data, quick, [0])
    measured, _ = Checkpoints(data / "checkpoints", group, quick).load(0)
    pattern = runs.history("small")["pattern"]
    assert pattern.dtype == np.float32
    np.testing.assert_allclose(pattern[0], measured["history/pattern"], atol=3e-4)
    with np.load(data / "runs" / "small.history.npz") as file:
        assert {name: file[name].dtype for name in ("pattern", "test_loss")} == {
            "pattern": np.float16, "test_loss": np.float32
        }  # fmt: skip
    shutil.rmtree(data / "checkpoints")
    train_and_publish(group, data, quick, [1])
    np.testing.assert_array_equal(runs.history("small")["pattern"][:1], pattern)


@pytest.mark.parametrize("order", [("quick", "paper"), ("paper", "quick")])
@pytest.mark.parametrize(
    ("quick", "paper", "leads"),
    [
        (([0], 2), ([0], 2), "paper"),
        (([0], 2), ([0, 1], 3), "paper"),
        (([0], 3), ([0], 2), "quick"),  # fewer epochs
        (([0, 1], 2), ([0], 3), "quick"),  # fewer runs
    ],
)
def test_paper_leads_with_as_many_runs_and_epochs(small_group, data, monkeypatch, order, quick, paper, leads):
    """Whichever came first; then both are complete."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    recipes = {
        "quick": (replace(QUICK, limit=quick[1]), quick),
        "paper": (replace(RECIPES["paper"], limit=paper[1]), paper),
    }
    for name in order:
        recipe, (numbers, _) = recipes[name]
        assert not campaign.complete(Checkpoints(data / "checkpoints", small_group, recipe), numbers, data / "runs")
        _, found = train_and_publish(small_group, data, recipe, numbers)
    assert found == {"quick": quick, "paper": paper}
    assert next(iter(found)) == leads
    for recipe, (numbers, _) in recipes.values():
        assert campaign.complete(Checkpoints(data / "checkpoints", small_group, recipe), numbers, data / "runs")


def test_data_on_another_disk(small_group, data, tmp_path, monkeypatch):
    """`data/runs` may be a link, and `--out` a link to it."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    (tmp_path / "disk").mkdir()
    (data / "runs").symlink_to(tmp_path / "disk")
    (tmp_path / "link").symlink_to(data / "runs")
    train_and_publish(small_group, data, replace(QUICK, limit=2), [0])
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(RECIPES["paper"], limit=1))
    campaign.train_group(checkpoints, [0], tmp_path / "link", say=str)
    assert list(trainings.ours("small")) == ["quick", "paper"]
    assert verify(data) == []


def test_runs_without_weights_count_too(small_group, data, monkeypatch):
    """A group keeps the weights of some of its runs and the histories of all: fewer runs do not replace these."""
    group = replace(small_group, kept=1)
    monkeypatch.setitem(groups.GROUPS, "small", group)
    quick = replace(QUICK, limit=2)
    train_and_publish(group, data, quick, [0, 1, 2])
    shutil.rmtree(data / "checkpoints")
    said, found = train_and_publish(group, data, quick, [1])
    assert "published already, as far or further: runs 0, 1, 2 by quick" in said
    assert found == {"quick": ([0], 2)}
    assert runs.history("small")["runs"].tolist() == [0, 1, 2]
    said, _ = train_and_publish(group, data, replace(quick, limit=3), [1])
    assert "the quick group with 2 epochs, runs 0, 1, 2, is kept" in said  # further, but not all of them


def test_what_lies_beside_is_listed_where_the_group_is(small_group, data, tmp_path, monkeypatch):
    """A folder that happens to be called `quick` is a folder like any other."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    checkpoints = Checkpoints(data / "checkpoints", small_group, replace(QUICK, limit=2))
    out = tmp_path / "mine" / "quick"
    campaign.train_group(checkpoints, [0], out, say=str)
    assert [path.name for path in out.parent.iterdir()] == ["quick"]
    assert verify(out) == []
    paper = replace(checkpoints, recipe=replace(RECIPES["paper"], limit=1))
    campaign.train_group(paper, [0], out, say=str)
    assert (out / "paper" / "small.safetensors").exists()
    assert verify(out) == []


def test_snapshots_that_older_runs_lack_are_not_left_out_silently(small_group, data, monkeypatch):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    quick = replace(QUICK, limit=2)
    train_and_publish(small_group, data, quick, [0, 1])
    shutil.rmtree(data / "checkpoints")
    group = replace(small_group, snapshots=(1,))
    said, _ = train_and_publish(group, data, quick, [2])
    assert said.endswith("runs. Left out: epoch_1, missing in runs 0, 1.")
    assert runs.load("small").numbers == (0, 1, 2)


def test_the_other_recipe_is_kept_beside(small_group, data, monkeypatch):
    """`paper` becomes the group when it has as many epochs and runs; until then, and after, both are there."""
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    quick, paper = replace(QUICK, limit=3), replace(RECIPES["paper"], limit=4)
    train = partial(train_and_publish, small_group, data)
    assert train(quick, [0, 1])[1] == {"quick": ([0, 1], 3)}
    said, found = train(replace(paper, limit=2), [0, 1])
    assert list(found.items()) == [("quick", ([0, 1], 3)), ("paper", ([0, 1], 2))]  # cut short
    assert "runs/paper" in said
    shutil.rmtree(data / "checkpoints")
    early = runs.load("small", recipe="paper").weights
    said, found = train(replace(paper, limit=2), [0])
    assert found["paper"] == ([0, 1], 2)
    assert "published already, as far or further: runs 0, 1 by paper" in said
    assert all(torch.equal(early[k], v) for k, v in runs.load("small", recipe="paper").weights.items())
    assert runs.load("small").record["recipe"] == "quick"

    before = runs.load("small").weights
    said, found = train(paper, [0, 1])
    assert list(found.items()) == [("paper", ([0, 1], 4)), ("quick", ([0, 1], 3))]
    assert not (data / "runs" / "paper" / "small.safetensors").exists()
    assert all(torch.equal(before[k], v) for k, v in runs.load("small", recipe="quick").weights.items())
    said, found = train(quick, [0, 1, 2])  # run 2 joins those that lie beside
    assert list(found.items()) == [("quick", ([0, 1, 2], 3)), ("paper", ([0, 1], 4))]


@pytest.mark.parametrize("moment", range(1, 14))
def test_killed_while_one_recipe_takes_the_others_place(small_group, data, monkeypatch, moment):
    monkeypatch.setitem(groups.GROUPS, "small", small_group)
    quick, paper = replace(QUICK, limit=2), replace(RECIPES["paper"], limit=small_group.epochs)
    train_and_publish(small_group, data, quick, [0])
    train_and_publish(small_group, data, replace(paper, limit=1), [0])
    before = runs.load("small", recipe="quick").weights
    with dying(monkeypatch, moment) as happened:
        campaign.train_group(Checkpoints(data / "checkpoints", small_group, paper), [0], data / "runs", say=str)
    assert len(happened) == moment, "there is no such moment"
    assert verify(data) == []
    found = train_and_publish(small_group, data, paper, [0])[1]
    assert list(found.items()) == [("paper", ([0], small_group.epochs)), ("quick", ([0], 2))]
    assert all(torch.equal(p, runs.load("small", recipe="quick").weights[name]) for name, p in before.items())
