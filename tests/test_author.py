"""Importing the author's release: the part of it in ../shared, a made-up whole one, and hostile ones."""

import hashlib
import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from carry_core import author, groups, runs, sums
from carry_core.author import Unusable, curves, import_release, parameters
from carry_core.errors import BadInput
from carry_core.groups import Group
from carry_core.interventions import INTACT, Ablation
from carry_core.model import ModelConfig, Transformer
from carry_core.training import histories

MODEL = "Encoder-only/n2_s0.3_w0.2/model_n2_s0.3_w0.2_{}"
HISTORY = "Encoder-only/n2_s0.3_w0.2/DATA_n2_s0.3_w0.2_{}.data"
UNPRIMED = "Length generalisation/unprimed/{}_n2_s0.3_w0.2_0_epoch_{}"


Release = tuple[Path, dict[str, str]]  # a folder, and the sha256s of the files in it


# A release of our own making, in the author's format


def his_state(config: ModelConfig, seed: int) -> dict[str, torch.Tensor]:
    """Random parameters under the names that the released state dicts use."""
    torch.manual_seed(seed)
    names = {name: f"attn.linears.{i}" for i, name in enumerate("qkvo")}
    names |= {"up": "ffn.w1", "down": "ffn.w2", "norm": "norm"}
    ends = {"embed": ["embed.Emb"], "norm": ["decoder.norm"], "unembed": ["generator.ln", "gen.ln"]}
    state = {}
    for key, p in Transformer(config).state_dict().items():
        *block, owner, kind = key.split(".")
        for theirs in [f"decoder.layers.{block[1]}.{names[owner]}"] if block else ends[owner]:
            state[f"{theirs}.{kind}"] = p
    return state


def his_lists(group: Group, n_lists: int, epochs: int, start: int = 0) -> list[list[Any]]:
    """A history whose every value tells its list and its epoch: list + epoch / 10,000."""
    layout, config = group.config.layout, group.config
    shapes: list[tuple[int, ...]] = [(), (), (len(layout.loss_positions),), (len(layout.loss_positions),)]
    shapes += [(), ()] if n_lists > 6 else []
    pattern = (config.layers, config.heads, layout.length, layout.length)
    norm = 6 if group.padded and n_lists > 6 else n_lists - 1
    if group.padded:
        shapes += [(), (), (len(layout.loss_positions),), ()]
    elif n_lists >= 9:
        shapes += [(4, 3), (4, 3), pattern, ()]
    else:
        shapes += [pattern, ()] if n_lists != 7 else [()]
    if n_lists == 9 and not group.padded:
        shapes.pop(8)
    lists = []
    for i, shape in enumerate(shapes[:n_lists]):
        bounded = i != norm and shape != pattern
        values = [(i / 10 if bounded else 10 * i) + (start + e) / 10_000 for e in range(epochs)]
        lists.append([torch.full(shape, v) if i > 1 else v for v in values])
    return lists


def content(path: str, epochs: int = 12) -> Any:
    where = author.place(path)
    if where.kind == "weights":
        state = his_state(groups.find(where.name).config, where.run + where.epoch)
        return {"model": state, "optimizer": {"state": {0: torch.ones(2)}}} if " " in path else state
    if where.kind == "history":
        group = groups.find(where.name)
        n_lists = {"n1_s0.3_w0.2": 10, "n1_s0.3_w0.0": 6, "n3_s0.3_w0.2": 7}.get(group.name, 8)
        if where.epoch == 1000:
            return his_lists(group, 10, 500, start=500)
        return his_lists(group, 10 if group.padded else n_lists, 501 if where.epoch else epochs - where.run)
    if where.kind == "scores":
        return torch.rand(5, 4 if where.part == "att" else 2, 3)
    maps = [torch.rand(7, 7), torch.rand(7, 7)]
    data = [["1 + 1 =", "2 + 2 ="], [True, False], 0.5, torch.eye(2), maps, maps]
    answers = {"inputs": torch.ones(2, 4), "generations": ["2", "5"], "gen_tokens": [torch.ones(3)]}
    return data if where.part == "data" else answers[where.part]


def write(path: Path, value: Any) -> str:
    """Write a value as the author did, and return its sha256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".data":
        path.write_bytes(pickle.dumps(value))
    else:
        torch.save(value, path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make(folder: Path, paths: list[str]) -> dict[str, str]:
    return {path: write(folder / path, content(path)) for path in paths}


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_every_released_path_has_its_place() -> None:
    places = {path: author.place(path) for path in author.checksums()}
    assert len(places) == 123
    assert len(set(places.values())) == 123
    kinds = [where.kind for where in places.values()]
    assert {kind: kinds.count(kind) for kind in kinds} == {"weights": 61, "history": 46, "scores": 2, "llm": 14}


def test_sha256s_are_those_of_the_release(shared: Path) -> None:
    lines = (shared / "CarryingTransformers.sha256").read_text().splitlines()
    assert {line[66:]: line[:64] for line in lines} == author.checksums()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """All 123 files, made up, in a folder with a space in its name."""
    folder = tmp_path_factory.mktemp("a clone")
    return folder, make(folder, list(author.checksums()))


@pytest.fixture(scope="module")
def whole_import(whole: Release, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, author.Report]:
    folder = tmp_path_factory.mktemp("data")
    return folder, import_release(whole[0], folder / "author", whole[1])


@pytest.fixture
def out(whole_import: tuple[Path, author.Report], monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the whole release was imported into, as `data/author`."""
    monkeypatch.setenv("CARRY_DATA", str(whole_import[0]))
    monkeypatch.delenv("CARRY_AUTHOR", raising=False)
    return whole_import[0] / "author"


def test_whole_release(whole: Release, whole_import: tuple[Path, author.Report], out: Path) -> None:
    _, report = whole_import
    assert (report.missing, report.damaged, report.kept) == ([], [], [])
    assert sorted(path for files in report.imported.values() for path in files) == sorted(whole[1])
    assert report.lines()[-1] == "123 files imported, 0 missing, 0 damaged."
    assert "imported n2_s0.3_w0.2 from 12 file(s)" in report.lines()
    for name, group in (groups.GROUPS | groups.RELEASED_ONLY).items():
        if f"{name}/run0" in report.imported:
            loaded = runs.load(name, "author")
            assert loaded.config == group.config
            for run, model in loaded.models():
                expected = parameters(his_state(group.config, run + loaded.record["epochs"]), group.config)
                assert all(torch.equal(p, expected[key]) for key, p in model.state_dict().items())
    assert runs.load("pad6_finetuned500_n2_s0.3_w0.2", "author").numbers == (1,)
    assert runs.load("pad5_n2_s0.3_w0.2", "author").numbers == (0, 1, 2, 3, 4, 5)
    pad6 = runs.load("pad6_n2_s0.3_w0.2", "author")
    assert (pad6.record["epochs"], list(pad6.snapshots)) == (2500, [500, 1000])
    assert torch.equal(pad6.snapshots[500][0]["embed.weight"], his_state(pad6.config, 500)["embed.Emb.weight"])
    assert pad6.record["runs"][0]["file"] == UNPRIMED.format("model", 2500)


def test_whole_release_histories(out: Path) -> None:
    main = histories.load(groups.MAIN, "author")
    assert main["runs"].tolist() == [0, 1, 2, 3, 4, 5]
    assert main["test_accuracy"].shape == (6, 12, 3)
    assert np.isnan(main["test_loss"][5, 7:]).all(), "a shorter run is padded"
    assert not np.isnan(main["test_loss"][5, :7]).any()
    assert histories.load("n3_s0.3_w0.2", "author").keys() == main.keys() - {"pattern"}
    assert "train_whole" not in histories.load("n1_s0.3_w0.0", "author")
    long = histories.load("pad6_n2_s0.3_w0.2", "author")
    # one run of 1000 epochs from two files: 501 epochs, then the last 500
    np.testing.assert_allclose(long["test_loss"], 0.1 + np.arange(1000)[None] / 10_000, rtol=1e-6)
    assert all(array.dtype == np.float32 for key, array in long.items() if key != "runs")


def test_importing_again_changes_nothing(whole: Release, whole_import: tuple[Path, author.Report], out: Path) -> None:
    before = snapshot(out)
    assert import_release(whole[0], expected=whole[1]) == whole_import[1]
    assert snapshot(out) == before


def test_llm_files(out: Path) -> None:
    zephyr = load_file(out / "llm/zephyr.safetensors")
    assert zephyr["inputs"].dtype == torch.int64
    assert zephyr["attention_mean"].shape == (2, 7, 7)
    texts = json.loads((out / "llm/zephyr.json").read_text())
    assert (texts["prompts"], texts["correct"]) == (["1 + 1 =", "2 + 2 ="], [True, False])
    assert (texts["accuracy"], texts["generations"]) == (0.5, ["2", "5"])
    ablated = load_file(out / "llm/alpaca_ablated.safetensors")
    assert torch.equal(ablated["wins"], torch.eye(2))


def test_fewer_files_never_replace_more(tmp_path: Path) -> None:
    out, clone = tmp_path / "out", tmp_path / "clone"
    three = make(clone, [UNPRIMED.format("model", epoch) for epoch in (500, 1000, 2500)])
    one = {path: digest for path, digest in three.items() if path.endswith("1000")}
    import_release(clone, out, expected=one)
    import_release(clone, out, expected=three)
    before = snapshot(out)
    report = import_release(clone, out, expected=one)
    assert snapshot(out) == before
    assert [output for output, _ in report.kept] == ["pad6_n2_s0.3_w0.2/run0"]
    assert "made it from 3 files" in report.kept[0][1]
    assert (report.imported, report.damaged) == ({}, [])
    import_release(clone, out, expected=make(clone, [MODEL.format(0)]))  # of another group
    assert snapshot(out).items() >= {key: value for key, value in before.items() if key != "sources.json"}.items()


# Bad input


@pytest.mark.parametrize("where", ["nowhere", "other"])
def test_not_the_release(where: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "README.md").write_text("another project")
    with pytest.raises(BadInput, match=r"expected files such as `.+` in it\. Clone") as error:
        import_release(tmp_path / where, tmp_path / "out")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_out_must_be_a_folder_of_its_own(data: Path, tmp_path: Path) -> None:
    checksums = make(tmp_path / "clone", [MODEL.format(0)])
    (data / "runs").mkdir()
    (tmp_path / "file").write_text("a file")
    before = snapshot(tmp_path)
    for out in (data, data / "runs", tmp_path / "file", tmp_path / "clone"):
        with pytest.raises(BadInput, match="expected a folder of its own"):
            import_release(tmp_path / "clone", out, expected=checksums)
    assert snapshot(tmp_path) == before


def test_damaged_file_is_named_and_the_rest_imported(tmp_path: Path) -> None:
    checksums = make(tmp_path / "clone", [MODEL.format(0), MODEL.format(1), HISTORY.format(1)])
    (tmp_path / "clone" / HISTORY.format(1)).write_bytes(b"")
    weights = bytearray((tmp_path / "clone" / MODEL.format(1)).read_bytes())
    weights[len(weights) // 2] ^= 1  # in the middle of a weight: torch alone would not notice
    (tmp_path / "clone" / MODEL.format(1)).write_bytes(weights)
    (tmp_path / "clone" / "README.md").write_text("not on the list")
    checksums["Encoder-only/n2_s0.3_w0.2/model_n2_s0.3_w0.2_2"] = "0" * 64
    report = import_release(tmp_path / "clone", tmp_path / "out", expected=checksums)
    assert report.imported == {f"{groups.MAIN}/run0": [MODEL.format(0)]}
    assert report.missing == [MODEL.format(2)]
    assert [path for path, _ in report.damaged] == [MODEL.format(1), HISTORY.format(1)]
    assert f"missing {MODEL.format(2)}" in report.lines()
    assert any(line.startswith(f"damaged {MODEL.format(1)}: its sha256 is") for line in report.lines())
    assert [p.name for p in (tmp_path / "out" / groups.MAIN).iterdir()] == ["run0.safetensors"]


class Calls:
    """Pickles into a call of `function(*args)`."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


def hostile(evil: Calls, how: str) -> bytes:
    if how == "inner":
        return pickle.dumps([Calls(torch.storage._load_from_bytes, pickle.dumps(evil, protocol=2))] * 8)
    if how == "inner torch":
        buffer = io.BytesIO()
        torch.save(evil, buffer)
        return pickle.dumps([Calls(torch.storage._load_from_bytes, buffer.getvalue())] * 8)
    if how == "dotted":
        return b"\x80\x04\x8c\x0bcollections\x8c\x28OrderedDict.__init__.__objclass__.__mro__\x93."
    return pickle.dumps([evil] * 8, protocol=int(how))


@pytest.mark.parametrize(
    ("how", "function"),
    [("0", "system"), ("5", "exec"), ("5", "system"), ("inner", "system"), ("inner torch", "exec"), ("dotted", "exec")],
)
def test_hostile_history_runs_nothing(how: str, function: str, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    evil = (
        Calls(os.system, f"touch {trap}")
        if function == "system"
        else Calls(exec, f"import pathlib; pathlib.Path({str(trap)!r}).touch()")
    )
    checksums = make(tmp_path / "clone", [MODEL.format(0)])
    path = tmp_path / "clone" / HISTORY.format(0)
    path.write_bytes(hostile(evil, how))
    checksums[HISTORY.format(0)] = hashlib.sha256(path.read_bytes()).hexdigest()
    report = import_release(tmp_path / "clone", tmp_path / "out", expected=checksums)
    assert not trap.exists()
    check_refused(report, HISTORY.format(0), "system" if how != "dotted" and function == "system" else "")
    # the trap would have worked
    if how in ("5", "inner"):
        pickle.loads(path.read_bytes() if how == "5" else pickle.dumps(evil))
        assert trap.exists()


@pytest.mark.parametrize("path", [MODEL.format(1), "Llemma 7B/data.pt"])
@pytest.mark.parametrize("legacy", [False, True])
def test_hostile_torch_file_runs_nothing(path: str, legacy: bool, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    checksums = make(tmp_path / "clone", [MODEL.format(0)])
    file = tmp_path / "clone" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save([Calls(os.system, f"touch {trap}")], file, _use_new_zipfile_serialization=not legacy)
    checksums[path] = hashlib.sha256(file.read_bytes()).hexdigest()
    report = import_release(tmp_path / "clone", tmp_path / "out", expected=checksums)
    assert not trap.exists()
    check_refused(report, path, "system")
    torch.load(file, weights_only=False)
    assert trap.exists()


def check_refused(report: author.Report, path: str, name: str) -> None:
    assert report.imported == {f"{groups.MAIN}/run0": [MODEL.format(0)]}
    [(damaged, why)] = report.damaged
    assert damaged == path
    assert name in why
    assert "get a clean copy" in why
    assert "\n" not in why


def test_a_pickle_cannot_change_what_it_is_given() -> None:
    function = torch._utils._rebuild_tensor_v2
    change = b"ctorch._utils\n_rebuild_tensor_v2\n(N(V__defaults__\n(I7\ntdtb."  # sets its __defaults__ to (7,)
    author.unpack("x.data", change)
    assert function.__defaults__ == (None,)


# Translation


@pytest.mark.parametrize("n_lists", [6, 7, 8, 9, 10])
def test_histories_of_six_to_ten_lists(n_lists: int) -> None:
    group = groups.find("n1_s0.3_w0.2" if n_lists != 8 else groups.MAIN)
    found = curves(his_lists(group, n_lists, 5), group)
    names = ["train_loss", "test_loss", "train_accuracy", "test_accuracy"]
    names += ["train_whole", "test_whole"] if n_lists > 6 else []
    names += ["class_accuracy", "class_corrected"] if n_lists > 8 else []
    names += ["pattern"] if n_lists in (6, 8, 10) else []
    assert list(found) == [*names, "weight_norm"]
    for i, (name, array) in enumerate(found.items()):
        expected = (10 * i if name in ("pattern", "weight_norm") else i / 10) + np.arange(5) / 10_000
        np.testing.assert_allclose(array.reshape(5, -1)[:, 0], expected, rtol=1e-6)
    assert found["test_accuracy"].shape == (5, 3)
    if "pattern" in found:
        assert found["pattern"].shape == ((5, 2, 2, 10, 10) if n_lists == 8 else (5, 2, 10, 10))


OTHER_LISTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "too few": (lambda lists: lists[:5], "six to ten lists"),
    "accuracy as norm": (lambda lists: [*lists[:7], lists[5]], "list 8 of 8 is not the weight_norm"),
    "loss as accuracy": (lambda lists: [*lists[:2], lists[1], *lists[3:]], "list 3 of 8 is not the train_accuracy"),
    "empty": (lambda lists: [[], *lists[1:]], "not what such a file holds"),
}


@pytest.mark.parametrize("case", OTHER_LISTS)
def test_a_list_that_is_something_else(case: str) -> None:
    change, why = OTHER_LISTS[case]
    group = groups.find(groups.MAIN)
    with pytest.raises(Unusable, match=why):
        author.convert(author.Place("history", group.name), change(his_lists(group, 8, 5)))


OTHER_STATES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "copies differ": (
        lambda s: s | {"gen.ln.bias": s["gen.ln.bias"] + 1},
        r"gen\.ln\.bias and .* differ",
    ),
    "shape": (lambda s: s | {"embed.Emb.weight": torch.ones(11, 128)}, r"embed\.weight.*\[11, 128\]"),
    "third layer": (
        lambda s: s | {"decoder.layers.2.norm.bias": torch.ones(128)},
        r"Unexpected .*blocks\.2\.norm\.bias",
    ),
    "missing": (lambda s: {k: v for k, v in s.items() if "1.ffn.w2.b" not in k}, r"Missing .*blocks\.1\.down\.bias"),
    "no dict": (lambda s: [1, 2], "not what such a file holds"),
}


@pytest.mark.parametrize("case", OTHER_STATES)
def test_state_dict_of_another_model(case: str) -> None:
    change, why = OTHER_STATES[case]
    with pytest.raises(Unusable, match=why):
        author.convert(author.Place("weights", groups.MAIN), change(his_state(ModelConfig(), 0)))


# The real files


@pytest.fixture
def real(released: tuple[Path, author.Report], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CARRY_DATA", str(released[0].parent))
    monkeypatch.delenv("CARRY_AUTHOR", raising=False)
    return released[0]


def test_real_part(released: tuple[Path, author.Report], shared: Path) -> None:
    report = released[1]
    there = {p.relative_to(shared / "CarryingTransformers").as_posix() for p in (shared).glob("Carrying*/**/*.*")}
    assert report.damaged == []
    assert len(report.missing) == 123 - sum(map(len, report.imported.values()))
    assert not there & set(report.missing)
    assert sum(output.startswith(f"{groups.MAIN}/run") for output in report.imported) >= 6


ABLATIONS = {
    "intact": INTACT,
    "without_head_1_0": Ablation(heads=frozenset({(1, 0)})),
    "without_head_1_1": Ablation(heads=frozenset({(1, 1)})),
    "without_head_0_0": Ablation(heads=frozenset({(0, 0)})),
    "without_mlp_1": Ablation(mlps=frozenset({1})),
    "without_neurons_1_0_5_17_64_127": Ablation(neurons=frozenset((1, i) for i in (0, 5, 17, 64, 127))),
}


def test_golden_log_probabilities(real: Path, shared: Path) -> None:
    with np.load(shared / "golden" / "log_probabilities.npz") as file:
        golden = {key: torch.from_numpy(file[key]) for key in file.files}
    pairs = {3: golden.pop("sums3"), 6: golden.pop("sums6")}
    assert len(golden) == 10
    for key, expected in golden.items():
        group, run, ablation = key.split("/")
        model = runs.load(group, "author").model(int(run))
        tokens = sums.encode(*pairs[model.config.width].unbind(1), model.config.layout)
        with torch.inference_mode():
            found = model(tokens, ABLATIONS[ablation].hook(model)).log_softmax(-1)
        torch.testing.assert_close(found, expected, atol=1e-3, rtol=0, msg=lambda text, key=key: f"{key}: {text}")


def test_real_histories(real: Path) -> None:
    main = histories.load(groups.MAIN, "author")
    i = main["runs"].tolist().index(2)
    assert main["test_whole"].shape[1] == 1000
    assert main["test_accuracy"][i, -1].tolist() == [1, 1, 1]
    assert main["weight_norm"][i, [0, -1]].tolist() == pytest.approx([1948, 491], abs=1)
    np.testing.assert_allclose(main["pattern"].sum(-1), 1, atol=1e-4)  # of each query over the keys
    one = histories.load("n1_s0.3_w0.2", "author")
    assert one["pattern"].shape[1:] == (1000, 2, 10, 10)
    assert one["class_accuracy"].shape == one["class_corrected"].shape == (len(one["runs"]), 1000, 4, 3)
    # without a carry, one too large is the only mistake of the trained one-layer model
    np.testing.assert_allclose((one["class_accuracy"] + one["class_corrected"])[0, -1, 0], 1, atol=1e-3)
    primed = histories.load("pad6_primed100_n2_s0.3_w0.2", "author")
    assert primed["long_accuracy"].shape == (1, 1000, 6)
    assert primed["long_whole"][0, -1] == pytest.approx(0.932, abs=1e-3)
    assert primed["weight_norm"][0, -1] == pytest.approx(454, abs=1)


def test_real_decoder_scores_and_llm(real: Path) -> None:
    with np.load(real / "decoder_scores.npz") as scores:
        assert scores["att"].shape == (5, 4, 3)
        assert scores["ffn"][0, 0].tolist() == pytest.approx([0.992, 0.922, 0.955], abs=1e-3)
    texts = json.loads((real / "llm/llemma.json").read_text())
    assert len(texts["prompts"]) == len(texts["generations"]) == 1000
    assert sum(texts["correct"]) == 1000 * texts["accuracy"] == 867
    tensors = load_file(real / "llm/llemma.safetensors")
    assert tensors["wins"].sum() == 14 * 1000
    assert tensors["inputs"].shape == (1000, 14)
    assert tensors["attention_mean"].shape == tensors["attention_std"].shape == (8, 17, 17)
