"""The files of the author's public release: where each belongs, and its content in our names and shapes.

They are pickles, which can run code when opened. Weights and language-model files go through
`torch.load(weights_only=True)`; the histories need an unpickler, which here knows three harmless names and
refuses all others, also inside the pickles that tensors carry within pickles.
"""

import hashlib
import io
import pickle
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carry_core import groups
from carry_core.groups import Group
from carry_core.model import ModelConfig, Transformer

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
    r"(?P<what>model|DATA)_n\d_s\d\.\d_w\d\.\d(_(?P<run>\d))?(_FT_p_epoch_500|_epoch_(?P<epoch>\d+))?(\.data)?"
)
THEIRS = {
    "embed": "embed.Emb", "norm": "decoder.norm", "unembed": "generator.ln",
    "q": "attn.linears.0", "k": "attn.linears.1", "v": "attn.linears.2", "o": "attn.linears.3",
    "up": "ffn.w1", "down": "ffn.w2",
}  # fmt: skip
DATA_ITEMS = ("prompts", "correct", "accuracy", "wins", "attention_mean", "attention_std")
AS_TEXT = ("prompts", "correct", "accuracy", "generations")


class Unusable(Exception):
    """One released file cannot be used; the message says why, and goes on after the file's name."""


@dataclass(frozen=True)
class Place:
    """Where a released file belongs: an output, and its part in it.

    Attributes:
        kind: `weights`, `history`, `scores` or `llm`.
        name: the group, or what the output is called.
        epoch: of weights, how long they were trained; of a history, what its file name says, else 0.
        part: which table or which of a language model's files.
    """

    kind: str
    name: str
    run: int = 0
    epoch: int = 0
    part: str = ""

    @property
    def output(self) -> str:
        return f"{self.name}.history" if self.kind == "history" else self.name


def checksums() -> dict[str, str]:
    """sha256 of every file of the release, by path in a clone of the author's repository."""
    lines = Path(__file__).with_name("release.sha256").read_text(encoding="utf-8").splitlines()
    return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


def place(path: str) -> Place | None:
    """Where the released file `path` belongs; None if it is nothing that we know."""
    folder, _, file = path.rpartition("/")
    if folder in MODELS and file.endswith(".pt"):
        return Place("llm", f"llm/{MODELS[folder]}", part=file.removesuffix(".pt"))
    name = FOLDERS.get(folder, folder.removeprefix("Encoder-only/"))
    if match := re.fullmatch(r"scores_(att|ffn)\.data", file):
        return Place("scores", "decoder_scores", part=match[1])
    match = RUN_FILE.fullmatch(file)
    if match is None or name not in groups.GROUPS | groups.RELEASED_ONLY:
        return None
    run, epoch = int(match["run"] or 0), int(match["epoch"] or 0)
    if match["what"] == "DATA":
        return Place("history", name, run, epoch)
    return Place("weights", name, run, epoch or groups.find(name).epochs)


@cache
def holds(kind: str, name: str) -> bool:
    """Whether the whole release has something of a kind, such as the `weights` of a group."""
    return any(found is not None and (found.kind, found.name) == (kind, name) for found in map(place, checksums()))


def read(path: Path, expected: str) -> bytes:
    """The file's content, once it is known to be the released one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Unusable(f"it cannot be read ({error.strerror}): make it readable") from error
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise Unusable(f"its sha256 is {found[:12]}…, expected {expected[:12]}…: fetch it again")
    return content


def _storage(data: bytes) -> Any:
    """What `torch.storage._load_from_bytes` does, except that the original would unpickle anything."""
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
    ("torch.storage", "_load_from_bytes"): _storage,
}


class _DataUnpickler(pickle.Unpickler):
    """Reads lists and tensors, and nothing that could run."""

    def find_class(self, module: str, name: str) -> Any:
        if (allowed := ALLOWED.get((module, name))) is None:
            raise pickle.UnpicklingError(f"GLOBAL {module}.{name} is not data")
        return lambda *args: allowed(*args)  # a fresh one each time: a pickle can set attributes of what it gets


def unpack(path: str, content: bytes) -> Any:
    """The lists, dicts and tensors that a file holds."""
    try:
        if path.endswith(".data"):
            return _DataUnpickler(io.BytesIO(content)).load()
        return _storage(content)
    except Exception as error:  # a broken pickle can fail in any way
        if code := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise Unusable(f"it wants to run {code[1]}, data does not; nothing was run: get a clean copy") from error
        raise Unusable(f"it cannot be opened ({_line(error)}): get a clean copy") from error


def convert(where: Place, value: Any) -> Any:
    """The content of a file, in our names and shapes."""
    try:
        if where.kind == "weights":
            return parameters(value, groups.find(where.name).config)
        if where.kind == "history":
            return curves(value, groups.find(where.name))
        if where.kind == "scores":
            return torch.as_tensor(value, dtype=torch.float32).numpy()
        return _answers(where.part, value)
    except (TypeError, ValueError, LookupError, RuntimeError, AttributeError) as error:
        raise Unusable(f"its content is not what such a file holds ({_line(error)}): get a clean copy") from error


def _line(error: Exception) -> str:
    """What went wrong, on one line."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:100]}"


def parameters(state: Any, config: ModelConfig) -> dict[str, Tensor]:
    """Our names for the author's parameters, given bare or under `model`.

    Raises:
        Unusable: a parameter is missing, too many, of another shape, or the two copies of the unembedding differ.
    """
    state = dict(state.get("model", state))
    with torch.device("meta"):
        shapes = {name: p.shape for name, p in Transformer(config).named_parameters()}
    found = {}
    for name, shape in shapes.items():
        *block, owner, kind = name.split(".")  # blocks.0.q.weight, or embed.weight
        theirs = f"{THEIRS[owner]}.{kind}"
        if block:
            theirs = f"decoder.layers.{block[1]}." + (f"norm.{kind}" if owner == "norm" else theirs)
        tensor = state.pop(theirs, None)
        if not isinstance(tensor, Tensor) or tensor.shape != shape:
            size = list(tensor.shape) if isinstance(tensor, Tensor) else "missing"
            raise Unusable(f"its {theirs} is {size}, expected {list(shape)}: it is not a model of this group")
        found[name] = tensor.detach().float()
    for kind in ("weight", "bias"):  # stored twice
        if not torch.equal(state.pop(f"gen.ln.{kind}", found[f"unembed.{kind}"]).float(), found[f"unembed.{kind}"]):
            raise Unusable(f"its gen.ln.{kind} and generator.ln.{kind} differ, expected the same twice")
    if state:
        raise Unusable(f"it also holds {', '.join(state)}: it is not a model of this group")
    return found


def curves(lists: Any, group: Group) -> Curves:
    """The learning curves of one run, `[epoch, …]`, from the author's list of six to ten lists.

    Raises:
        Unusable: there are more or fewer lists, or one is not what its position or shape says.
    """
    if not isinstance(lists, list | tuple) or not 6 <= len(lists) <= 10:
        raise Unusable("it does not hold six to ten lists: it is not a history")
    config, length, read = group.config, group.config.layout.length, len(group.config.layout.read)
    first = ["train_loss", "test_loss", "train_accuracy", "test_accuracy", "train_whole", "test_whole"]
    first = first if len(lists) > 6 else first[:4]
    norm = 6 if group.padded and len(lists) > 6 else len(lists) - 1
    last = ["weight_norm", "long_loss", "long_accuracy", "long_whole"]
    found: Curves = {}
    for i, values in enumerate(lists):
        array = torch.stack([torch.as_tensor(value, dtype=torch.float32) for value in values]).numpy()
        if i < len(first) or i >= norm:
            name = first[i] if i < len(first) else last[i - norm]
            low, high = (0.0, 1.001) if name.endswith(("accuracy", "whole")) else (float(i == norm), np.inf)
            shape = (read,) if name.endswith("accuracy") else ()
            if array.shape[1:] != shape or not ((array >= low) & (array <= high)).all():
                raise Unusable(f"its list {i + 1} of {len(lists)} is not the {name} of {group.name}")
        elif array.shape[-2:] == (length, length):
            name, array = "pattern", array.reshape(-1, config.layers, config.heads, length, length)
            array = array[:, 0] if config.layers == 1 else array
        elif array.ndim == 3:
            name = "class_corrected" if "class_accuracy" in found else "class_accuracy"
        else:
            name, array = f"list_{i + 1}", array.reshape(len(array), -1)
        found[name] = array
    return found


def _answers(part: str, value: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, and what goes into JSON, of one file of a language model."""
    items = {part: value}
    if part == "data":
        names = [*DATA_ITEMS, *(f"data_{i + 1}" for i in range(len(DATA_ITEMS), len(value)))]
        items = dict(zip(names, value, strict=False))
    tensors: dict[str, Tensor] = {}
    texts: dict[str, Any] = {}
    for name, item in items.items():
        found = {} if name in AS_TEXT else dict(_tensors(name, item))
        tensors |= {key: t.long() if key in ("inputs", "gen_tokens") else t for key, t in found.items()}
        texts |= {} if found else {name: _plain(item)}
    return tensors, texts


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors in nested lists: stacked where shapes allow, rows of tokens padded with -1."""
    if isinstance(value, Tensor):
        yield name, value.detach().clone().contiguous()
    elif isinstance(value, list | tuple):
        if value and all(isinstance(item, Tensor) for item in value):
            if len({item.shape for item in value}) == 1:
                yield name, torch.stack(list(value))
                return
            if all(item.ndim == 1 for item in value):
                yield name, torch.nn.utils.rnn.pad_sequence(list(value), batch_first=True, padding_value=-1)
                return
        for i, item in enumerate(value):
            yield from _tensors(f"{name}.{i}", item)


def _plain(value: Any) -> Any:
    """Text, numbers and lists of them."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Tensor):
        return value.tolist()
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"a {type(value).__name__}")
