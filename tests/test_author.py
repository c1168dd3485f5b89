"""Importing the author's release: that in ../shared, made-up parts of it, and hostile files."""

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

from carry_core import sums
from carry_core.errors import BadInput
from carry_core.interventions import INTACT, Ablation
from carry_core.model import ModelConfig, Transformer
from carry_paper import author, catalogue
from carry_paper.author import curves, import_release
from carry_paper.catalogue import load_curves
from carry_train import groups
from carry_train.groups import Group
from tests.helpers.tolerances import assert_close

MODEL = "Encoder-only/n2_s0.3_w0.2/model_n2_s0.3_w0.2_{}"
HISTORY = "Encoder-only/n2_s0.3_w0.2/DATA_n2_s0.3_w0.2_{}.data"
UNPRIMED = "Length generalisation/unprimed/{}_n2_s0.3_w0.2_0_epoch_{}"


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
        for module_name in [f"decoder.layers.{block[1]}.{names[owner]}"] if block else ends[owner]:
            state[f"{module_name}.{kind}"] = p
    return state


def his_lists(group: Group, n_lists: int, epochs: int) -> list[list[Any]]:
    """A history whose every value tells its list and its epoch: list + epoch / 10,000."""
    layout, config = group.config.layout, group.config
    by_digit = (len(layout.loss_positions),)
    shapes: list[tuple[int, ...]] = [(), (), by_digit, by_digit]
    shapes += [(), ()] if n_lists > 6 else []
    pattern = (config.layers, config.heads, layout.length, layout.length)
    shapes += [(4, 3), (4, 3), pattern, ()] if n_lists > 8 else [pattern, ()]
    lists = []
    for i, shape in enumerate(shapes):
        bounded = i != n_lists - 1 and shape != pattern
        values = [(i / 10 if bounded else 10 * i) + e / 10_000 for e in range(epochs)]
        lists.append([torch.full(shape, v) if i > 1 else v for v in values])
    return lists


def make(folder: Path, paths: list[str]) -> dict[str, str]:
    """Write made-up files as the author did, and return their sha256s."""
    for path in paths:
        place, file = author.place(path), folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if place.kind == "history":
            file.write_bytes(pickle.dumps(his_lists(groups.find(place.group), 8, 12)))
        else:
            state = his_state(groups.find(place.group).config, place.run + place.epoch)
            torch.save({"model": state, "optimizer": {}} if " " in path else state, file)
    return {path: hashlib.sha256((folder / path).read_bytes()).hexdigest() for path in paths}


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def test_every_released_path_has_its_place() -> None:
    places = {path: author.place(path) for path in author.checksums()}
    assert len(places) == 123
    assert len({(place.output, place.epoch, place.part) for place in places.values()}) == 123
    kinds = [place.kind for place in places.values()]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "weights": 61,
        "history": 46,
        "scores": 2,
        "llm": 14,
    }


def test_sha256s_are_those_of_the_release(shared: Path) -> None:
    lines = (shared / "CarryingTransformers.sha256").read_text().splitlines()
    assert {line[66:]: line[:64] for line in lines} == author.checksums()


def test_importing_again_changes_nothing_and_leaves_other_outputs(tmp_path: Path) -> None:
    out, clone = tmp_path / "out", tmp_path / "clone"
    three = make(clone, [UNPRIMED.format("model", epoch) for epoch in (500, 1000, 2500)])
    whole = import_release(clone, out, expected=three)
    before = snapshot(out)
    assert import_release(clone, out, expected=three) == whole
    assert snapshot(out) == before
    import_release(clone, out, expected=make(clone, [MODEL.format(0)]))  # of another group
    assert (
        snapshot(out).items()
        >= {key: value for key, value in before.items() if key != "sources.json"}.items()
    )
    assert list(json.loads((out / "sources.json").read_text())) == [
        f"{groups.MAIN}/run0",
        "pad6_n2_s0.3_w0.2/run0",
    ]


# Bad input


def test_not_the_release(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("another project")
    with pytest.raises(BadInput, match=r"expected files such as `.+` in it\. Clone"):
        import_release(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_out_must_be_a_folder_of_its_own(tmp_path: Path) -> None:
    checksums = make(tmp_path / "clone", [MODEL.format(0)])
    (tmp_path / "sources.json").write_text("damaged")
    before = snapshot(tmp_path)
    for out in (tmp_path, tmp_path / "clone"):
        with pytest.raises(BadInput, match="a new folder, or that of an earlier import"):
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
    assert any(
        line.startswith(f"damaged {MODEL.format(1)}: its sha256 is") for line in report.lines()
    )
    assert [p.name for p in (tmp_path / "out" / groups.MAIN).iterdir()] == ["run0.safetensors"]


class Calls:
    """Pickles into a call of `function(*args)`."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


def torch_bytes(value: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def inside(content: bytes) -> bytes:
    """A history one of whose tensors is such a file."""
    return pickle.dumps([Calls(torch.storage._load_from_bytes, content)] * 8)


def run_by_name(evil: Calls) -> str:
    """Source text that does the same: `eval` is a builtin, and takes it."""
    _, (command,) = evil.call
    return f"__import__('os').system({command!r})"


DOTTED = b"\x80\x04\x8c\x0bcollections\x8c\x28OrderedDict.__init__.__objclass__.__mro__\x93."


HOSTILE: dict[str, tuple[str, Callable[[Calls], bytes]]] = {
    "an old pickle": (HISTORY.format(0), lambda evil: pickle.dumps([evil] * 8, protocol=0)),
    "a pickle": (HISTORY.format(0), lambda evil: pickle.dumps([evil] * 8, protocol=5)),
    "a pickle in a tensor": (
        HISTORY.format(0),
        lambda evil: inside(pickle.dumps(evil, protocol=2)),
    ),
    "a torch file in a tensor": (HISTORY.format(0), lambda evil: inside(torch_bytes(evil))),
    "a builtin": (
        HISTORY.format(0),
        lambda evil: pickle.dumps([Calls(eval, run_by_name(evil))] * 8),
    ),
    "a dotted name": (HISTORY.format(0), lambda evil: DOTTED),
    "a torch file": (MODEL.format(1), lambda evil: torch_bytes([evil])),
    "an old torch file": (
        "Llemma 7B/data.pt",
        lambda evil: torch_bytes([evil], _use_new_zipfile_serialization=False),
    ),
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_hostile_file_runs_nothing(attack: str, tmp_path: Path) -> None:
    path, hostile = HOSTILE[attack]
    trap, file = tmp_path / "trap", tmp_path / "clone" / path
    checksums = make(tmp_path / "clone", [MODEL.format(0)])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(hostile(Calls(os.system, f"touch {trap}")))
    checksums[path] = hashlib.sha256(file.read_bytes()).hexdigest()
    report = import_release(tmp_path / "clone", tmp_path / "out", expected=checksums)
    assert not trap.exists()
    assert report.imported == {f"{groups.MAIN}/run0": [MODEL.format(0)]}
    [(damaged, reason)] = report.damaged
    assert damaged == path
    assert "\n" not in reason
    pickle.loads(pickle.dumps(Calls(os.system, f"touch {trap}")))  # it would have worked
    assert trap.exists()


def test_a_pickle_cannot_change_what_it_is_given(tmp_path: Path) -> None:
    # sets its __defaults__ to (7,)
    change = b"ctorch._utils\n_rebuild_tensor_v2\n(N(V__defaults__\n(I7\ntdtb."
    (tmp_path / "x.data").write_bytes(change)
    author.unpack(tmp_path / "x.data", hashlib.sha256(change).hexdigest())
    assert torch._utils._rebuild_tensor_v2.__defaults__ == (None,)


# Translation


@pytest.mark.parametrize("n_lists", [6, 8, 10])
def test_histories_of_six_to_ten_lists(n_lists: int) -> None:
    group = groups.find("n1_s0.3_w0.2" if n_lists != 8 else groups.MAIN)
    histories = curves(his_lists(group, n_lists, 5), group)
    names = ["train_loss", "test_loss", "train_accuracy", "test_accuracy"]
    names += ["train_whole", "test_whole"] if n_lists > 6 else []
    names += ["class_accuracy", "class_corrected"] if n_lists > 8 else []
    assert list(histories) == [*names, "pattern", "weight_norm"]
    for i, (name, array) in enumerate(histories.items()):
        expected = (10 * i if name in ("pattern", "weight_norm") else i / 10) + np.arange(
            5
        ) / 10_000
        np.testing.assert_allclose(array.reshape(5, -1)[:, 0], expected, rtol=1e-6)
    assert histories["test_accuracy"].shape == (5, 3)
    assert histories["pattern"].shape == ((5, 2, 2, 10, 10) if n_lists == 8 else (5, 2, 10, 10))


def test_a_history_in_two_files_is_one() -> None:
    """Merge 501 epochs and the last 500 of a thousand; without the first file no start is known."""
    before, after = (
        {"train_loss": np.arange(start, end, dtype=np.float32)}
        for start, end in ((0, 501), (500, 1000))
    )
    np.testing.assert_array_equal(
        author._continued(before, after, 1000)["train_loss"], np.arange(1000)
    )
    assert np.isnan(author._continued({}, after, 1000)["train_loss"]).sum() == 500


# The real files


@pytest.fixture
def real(released: tuple[Path, author.Report], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CARRY_DATA", str(released[0].parent))
    monkeypatch.delenv("CARRY_AUTHOR", raising=False)
    return released[0]


def test_every_released_run_is_loaded(real: Path, released: tuple[Path, author.Report]) -> None:
    assert (released[1].damaged, released[1].missing) == ([], [])
    for name, group in (groups.GROUPS | groups.RELEASED_ONLY).items():
        if (real / name).exists():
            loaded = catalogue.load(name, "author")
            assert loaded.config == group.config
            assert all(next(model.parameters()).isfinite().all() for _, model in loaded.models())
    assert catalogue.load("pad6_finetuned500_n2_s0.3_w0.2", "author").numbers == (1,)
    assert catalogue.load("pad5_n2_s0.3_w0.2", "author").numbers == (0, 1, 2, 3, 4, 5)
    pad6 = catalogue.load("pad6_n2_s0.3_w0.2", "author")
    assert (pad6.record["epochs"], list(pad6.snapshots)) == (2500, [500, 1000])


ABLATIONS = {
    "intact": INTACT,
    "without_head_1_0": Ablation(heads=frozenset({(1, 0)})),
    "without_head_1_1": Ablation(heads=frozenset({(1, 1)})),
    "without_head_0_0": Ablation(heads=frozenset({(0, 0)})),
    "without_mlp_1": Ablation(mlps=frozenset({1})),
    "without_neurons_1_0_5_17_64_127": Ablation(
        neurons=frozenset((1, i) for i in (0, 5, 17, 64, 127))
    ),
}


@pytest.mark.machine
def test_golden_log_probabilities(real: Path, shared: Path) -> None:
    with np.load(shared / "golden" / "log_probabilities.npz") as file:
        golden = {key: torch.from_numpy(file[key]) for key in file.files}
    pairs = {3: golden.pop("sums3"), 6: golden.pop("sums6")}
    assert len(golden) == 10
    for key, expected in golden.items():
        group, run, ablation = key.split("/")
        model = catalogue.load(group, "author").model(int(run))
        tokens = sums.encode(*pairs[model.config.width].unbind(1), model.config.layout)
        with torch.inference_mode():
            log_probabilities = model(tokens, ABLATIONS[ablation].hook(model)).log_softmax(-1)
        assert_close(log_probabilities, expected, msg=key)


def test_real_histories(real: Path) -> None:
    main = load_curves(groups.MAIN, "author")
    i = main["runs"].tolist().index(2)
    assert main["test_whole"].shape[1] == 1000
    assert main["test_accuracy"][i, -1].tolist() == [1, 1, 1]
    assert main["weight_norm"][i, [0, -1]].tolist() == pytest.approx([1948, 491], abs=1)
    np.testing.assert_allclose(main["pattern"].sum(-1), 1, atol=1e-4)  # of each query over the keys
    one_layer = load_curves("n1_s0.3_w0.2", "author")
    # without a carry, one too large is the only mistake of the trained one-layer model
    np.testing.assert_allclose(
        (one_layer["class_accuracy"] + one_layer["class_corrected"])[0, -1, 0], 1, atol=1e-3
    )
    primed = load_curves("pad6_primed100_n2_s0.3_w0.2", "author")
    assert primed["long_whole"][0, -1] == pytest.approx(0.932, abs=1e-3)


def test_real_decoder_scores(real: Path) -> None:
    with np.load(real / "decoder_scores.npz") as scores:
        assert scores["ffn"][0, 0].tolist() == pytest.approx([0.992, 0.922, 0.955], abs=1e-3)
