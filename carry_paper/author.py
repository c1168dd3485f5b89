"""Convert the author's public release to our file formats, without running any code in it.

His files are pickles, which can run code when opened. Weights and language-model files go through
`torch.load(weights_only=True)`. The histories need an unpickler; ours allows three harmless names
and refuses all others, even in the pickles that tensors carry within pickles.

The release has no licence: what this module writes is for the user alone and is never committed.
Under `out`:

    <group>/run<k>.safetensors  weights, as `runs` describes; the record names the released file and
                                its sha256
    <group>/run<k>.npz          float32 [epoch, …] by our trainer's names, NaN where there is no
                                such epoch; `pattern` [epoch, (layer if more than one,) head, query,
                                key]; `class_accuracy`, `class_corrected` [epoch, class, pos] of the
                                intact one-layer model, with classes NC, C@1, C@2 (which includes C
                                all con.), C all
    decoder_scores.npz          Tab. 5: `att` [class, score, pos], where the scores are accuracy and
                                corrected without head 1:1, then the same without head 1:0; `ffn`
                                [class, score, pos], accuracy and corrected without the final MLP
    llm/<model>.safetensors     `inputs` [prompt, token], `wins` [layer, head], `attention_mean` and
                                `attention_std` [map, query, key]
    llm/<model>.json            `prompts`, `correct`, `generations` (lists with an entry for each
                                prompt), `accuracy`
    sources.json                the released files behind each of these outputs, and their sha256
"""

import hashlib
import io
import json
import os
import pickle
import re
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, RootModel
from safetensors.torch import save_file
from torch import Tensor

from carry_core.errors import BadInput
from carry_paper.schemas import read_json
from carry_train import groups
from carry_train.files import json_bytes, replacing, replacing_all, save_run, write_json
from carry_train.groups import Group

CHECKSUMS = Path(__file__).parent / "resources" / "release.sha256"
Curves = dict[str, NDArray[np.float32]]

FOLDERS = {
    "Encoder-only/5digits/n2_s0.3_w0.2": "pad5_n2_s0.3_w0.2",
    "Decoder-only/n2_s0.3_w0.2": "decoder_n2_s0.3_w0.2",
    "Length generalisation/unprimed": "pad6_n2_s0.3_w0.2",
    "Length generalisation/primed": "pad6_primed100_n2_s0.3_w0.2",
    "Length generalisation/finetuning": "pad6_finetuned500_n2_s0.3_w0.2",
}
MODELS = {
    "Llemma 7B": "llemma",
    "Zephyr 7B": "zephyr",
    "Alpaca 7B/addition/test": "alpaca",
    "Alpaca 7B/addition/test_ablated": "alpaca_ablated",
}
RUN_FILE = re.compile(
    r"(?P<what>model|DATA)_n\d_s\d\.\d_w\d\.\d(_(?P<run>\d))?"
    r"(_FT_p_epoch_500|_epoch_(?P<epoch>\d+))?(\.data)?"
)
OURS = {
    "embed.Emb": "embed",
    "decoder.norm": "norm",
    "generator.ln": "unembed",
    "ffn.w1": "up",
    "ffn.w2": "down",
}
OURS |= {"decoder.layers": "blocks"} | {f"attn.linears.{i}": name for i, name in enumerate("qkvo")}
FIRST_LISTS = (
    "train_loss",
    "test_loss",
    "train_accuracy",
    "test_accuracy",
    "train_whole",
    "test_whole",
)
LAST_LISTS = ("weight_norm", "long_loss", "long_accuracy", "long_whole")
DATA_ITEMS = ("prompts", "correct", "accuracy", "wins", "attention_mean", "attention_std")
SOURCES_FILE = "sources.json"
TENSORS = ("inputs", "wins", "attention_mean", "attention_std")


class Imported(BaseModel):
    """An entry of `sources.json`: the released files behind an output, and their sha256."""

    model_config = ConfigDict(extra="forbid", strict=True)

    files: dict[str, str]


class Sources(RootModel[dict[str, Imported]]):
    """The content of `sources.json`, by output."""


@dataclass(frozen=True)
class Place:
    """The output that a released file goes into, and its part in it."""

    path: str  # in the author's repository
    kind: str  # `weights`, `history`, `scores` or `llm`
    output: str  # under `out`, without a suffix such as `.npz`
    group: str = ""  # of runs
    run: int = 0
    # of weights, how long they were trained; of a history, what its file name says, else 0
    epoch: int = 0
    part: str = ""  # which table, or which of a language model's files


def checksums() -> dict[str, str]:
    """Return the sha256 of every released file, by path in the author's repository."""
    lines = CHECKSUMS.read_text(encoding="utf-8").splitlines()
    return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


def place(path: str) -> Place:
    """Return the place of a file of the release, given its path in the author's repository."""
    folder, _, file = path.rpartition("/")
    if folder in MODELS:
        return Place(path, "llm", f"llm/{MODELS[folder]}", part=file.removesuffix(".pt"))
    if file.startswith("scores_"):
        part = file.removeprefix("scores_").removesuffix(".data")
        return Place(path, "scores", "decoder_scores", part=part)
    group = FOLDERS.get(folder, folder.removeprefix("Encoder-only/"))
    match = RUN_FILE.fullmatch(file)
    assert match is not None, path
    run, epoch = int(match["run"] or 0), int(match["epoch"] or 0)
    if match["what"] == "DATA":
        return Place(path, "history", f"{group}/run{run}.history", group, run, epoch)
    epochs = epoch or groups.find(group).epochs
    return Place(path, "weights", f"{group}/run{run}", group, run, epochs)


def imported_files(folder: Path) -> dict[str, dict[str, str]]:
    """Return the sha256 of each released file, by output and path in the author's repository.

    The result is empty if nothing was imported into the folder.

    Raises:
        BadInput: Its `sources.json` is damaged.
    """
    path = folder / SOURCES_FILE
    if not os.path.lexists(path):
        return {}
    sources = read_json(path, Sources, "import into a new folder, or that of an earlier import")
    return {output: entry.files for output, entry in sources.root.items()}


@cache
def holds(kind: str, group: str) -> bool:
    """Return True if the whole release has `weights` or a `history` of a group."""
    return any(
        (released.kind, released.group) == (kind, group) for released in map(place, checksums())
    )


def _storage(data: bytes) -> Any:
    """Load a tensor's storage as `torch.storage._load_from_bytes` does, but never run code."""
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
    ("torch.storage", "_load_from_bytes"): _storage,
}


class _DataUnpickler(pickle.Unpickler):
    """Reads lists and tensors, and refuses everything that could run."""

    def find_class(self, module: str, name: str) -> Any:
        if (allowed := ALLOWED.get((module, name))) is None:
            raise pickle.UnpicklingError(f"GLOBAL {module}.{name} is not data")
        # Each call returns a new function, since a pickle can set attributes of what it gets.
        return lambda *args: allowed(*args)


def unpack(path: Path, expected: str) -> Any:
    """Return the lists, dicts and tensors in a file.

    Raises:
        BadInput: The sha256 is not the expected one, or the file has anything else in it. The
            message continues after the file's name.
    """
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != expected:
        raise BadInput(f"its sha256 is {digest[:12]}…, expected {expected[:12]}…: fetch it again")
    try:
        if path.suffix == ".data":
            return _DataUnpickler(io.BytesIO(content)).load()
        return _storage(content)
    except Exception as error:  # a broken pickle can fail in any way
        code = re.search(r"GLOBAL ([\w.]+)", str(error))
        problem = f"cannot be opened ({error!r:.80})"
        if code:
            problem = f"wants to run {code[1]}, which was not done"
        raise BadInput(f"it {problem}: get a clean copy") from error


def parameters(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the author's parameters by our names; they are given bare or under `model`."""
    renamed = {}
    for name, tensor in state.get("model", state).items():
        if name.startswith("gen."):  # the unembedding a second time
            continue
        for their_name, our_name in OURS.items():
            name = name.replace(their_name, our_name)
        renamed[name] = tensor.detach().float()
    return renamed


def curves(lists: Sequence[Any], group: Group) -> Curves:
    """Return a run's learning curves, `[epoch, …]`, from the author's list of six to ten lists."""
    config, length = group.config, group.config.layout.length
    n_first = 6 if len(lists) > 6 else 4
    norm = 6 if group.padded and len(lists) > 6 else len(lists) - 1
    names = dict(enumerate(FIRST_LISTS[:n_first])) | dict(enumerate(LAST_LISTS, norm))
    by_name: Curves = {}
    for i, values in enumerate(lists):
        array = torch.stack(
            [torch.as_tensor(value, dtype=torch.float32) for value in values]
        ).numpy()
        if i in names:
            name = names[i]
        elif array.shape[-2:] == (length, length):
            name, array = "pattern", array.reshape(-1, config.layers, config.heads, length, length)
            array = array[:, 0] if config.layers == 1 else array
        else:
            name = "class_corrected" if "class_accuracy" in by_name else "class_accuracy"
        by_name[name] = array
    return by_name


def _answers(part: str, value: Any) -> dict[str, Any]:
    """Return tensors and JSON values by name, from one file of a language model."""
    items = dict(zip(DATA_ITEMS, value, strict=False)) if part == "data" else {part: value}
    items.pop("gen_tokens", None)  # the generations again
    for name, item in items.items():
        if name in TENSORS:
            items[name] = torch.stack(list(item)).to(torch.long if name == "inputs" else None)
        else:
            items[name] = json.loads(json.dumps(item, default=Tensor.tolist))
    return items


@dataclass
class Report:
    """The outcome of an import."""

    imported: dict[str, list[str]] = field(default_factory=dict)  # by the output that has them
    missing: list[str] = field(default_factory=list)
    damaged: list[tuple[str, str]] = field(default_factory=list)  # with the reason

    def lines(self) -> list[str]:
        """Return a line per group and per file that was not imported, then the totals."""
        n_files = Counter(
            output.partition("/run")[0] for output, paths in self.imported.items() for _ in paths
        )
        return [
            *(f"imported {name} from {n} file(s)" for name, n in sorted(n_files.items())),
            *(f"missing {path}" for path in self.missing),
            *(f"damaged {path}: {reason}" for path, reason in self.damaged),
            f"{n_files.total()} files imported, {len(self.missing)} missing,"
            f" {len(self.damaged)} damaged.",
        ]


def import_release(source: Path, out: Path, expected: Mapping[str, str] | None = None) -> Report:
    """Convert the files in a clone of the author's repository, or in a part of it.

    The report names files that are missing or damaged; the rest is imported. `expected` has the
    sha256 of each file, by path; if it is None, those of the public release are used.

    Raises:
        BadInput: The folder is not a clone of that repository, or `out` cannot be written to or
            has other files in it.
    """
    expected = expected or checksums()
    present = [place(path) for path in expected if (source / path).is_file()]
    if not present:
        example = next(iter(expected))
        raise BadInput(
            f"{source} is no clone of the author's repository: expected files such as `{example}` "
            "in it. Clone the repository that the paper names and give its folder."
        )
    if any(out.glob("*")) and not (out / SOURCES_FILE).is_file():
        raise BadInput(
            f"Cannot import into {out}: it has files but no {SOURCES_FILE}. "
            "Expected a new folder, or that of an earlier import."
        )
    sources = imported_files(out)
    _write_sources(out, sources)  # first: it marks the folder as ours
    report = Report(missing=[path for path in expected if not (source / path).is_file()])
    for output, places in groupby(
        sorted(present, key=attrgetter("output", "epoch")), attrgetter("output")
    ):
        parts = []
        for released in places:
            try:
                parts.append((released, unpack(source / released.path, expected[released.path])))
            except (BadInput, OSError) as error:
                report.damaged.append((released.path, str(error)))
        if parts:
            digests = {released.path: expected[released.path] for released, _ in parts}
            _write(out / output, parts, digests)
            sources[output] = digests
            _write_sources(out, sources)
            report.imported[output] = list(digests)
    return report


def _write_sources(out: Path, sources: Mapping[str, Mapping[str, str]]) -> None:
    entries = {output: {"files": sources[output]} for output in sorted(sources)}
    write_json(out / SOURCES_FILE, entries)


def _write(path: Path, parts: Sequence[tuple[Place, Any]], digests: Mapping[str, str]) -> None:
    """Write an output by our names, in our shapes, from the contents of its released files."""
    last, latest = parts[-1]
    if last.kind == "weights":
        weights = parameters(latest)
        for released, early in parts[:-1]:
            for name, parameter in parameters(early).items():
                weights[f"epoch_{released.epoch}/{name}"] = parameter
        record = {"recipe": "author", "run": last.run, "epochs": last.epoch}
        record |= {"file": last.path, "sha256": digests[last.path]}
        save_run(path.with_suffix(".safetensors"), groups.find(last.group), weights, record)
    elif last.kind == "llm":
        values: dict[str, Any] = {}
        for released, content in parts:
            values |= _answers(released.part, content)
        paths = path.with_suffix(".safetensors"), path.with_suffix(".json")
        with replacing_all(*paths) as (tensors, text):
            save_file({name: values.pop(name) for name in TENSORS if name in values}, tensors)
            text.write_bytes(json_bytes(values))
    else:
        arrays: Curves = {}
        for released, content in parts:
            if last.kind == "history":
                own = curves(content, groups.find(released.group))
                arrays = _continued(arrays, own, released.epoch)
            else:
                arrays[released.part] = torch.as_tensor(content, dtype=torch.float32).numpy()
        with replacing(path.with_suffix(".npz")) as temporary, temporary.open("wb") as opened:
            np.savez_compressed(opened, **cast(dict[str, Any], arrays))


def _continued(before: Curves, after: Curves, end: int) -> Curves:
    """Join a run's curves to epoch `end`; `before` fills what `after` lacks at the start."""
    gap = max(0, end - len(after["train_loss"]))
    joined = {}
    for key, array in after.items():
        start = before.get(key, array[:0])[:gap]
        unknown = np.full((gap - len(start), *array.shape[1:]), np.nan, np.float32)
        joined[key] = np.concatenate([start, unknown, array])
    return joined
