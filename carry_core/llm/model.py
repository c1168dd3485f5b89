"""A causal language model from a folder or the hub: refused early, looked into, its heads ablated (Sec. 6).

`transformers` is imported only when a model is looked at: it takes seconds, and is the extra `carry-core[llm]`.
"""

import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from logging import ERROR
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from carry_core.errors import BadInput
from carry_core.llm.prompts import Template, check_tokenizer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ATTENTION = ("self_attn", "attn")
PROJECTION = ("o_proj", "out_proj", "c_proj", "dense")
BEFORE_MLP = ("pre_feedforward_layernorm", "post_attention_layernorm", "ln_2")  # Gemma 2 has the first two
OUTPUTS = 5  # digits of the answer at which the stream is kept: a four-digit sum has five at most
N_FREQUENT = 8  # the author's list of most frequent winners, from which he took pairs (App. A.3)
MOST_PAIRS = N_FREQUENT * (N_FREQUENT - 1) // 2

Head = tuple[int, int]  # layer, head
Heads = tuple[Head, ...]


# ---------------------------------------------------------------- loading


def library() -> Any:
    """The package `transformers`, which is told to be quiet.

    Raises:
        BadInput: it is not installed.
    """
    try:
        warnings.filterwarnings("ignore", message="IProgress not found")  # tqdm asks for a widget; pages show none
        import tokenizers  # noqa: F401
        import transformers
        from huggingface_hub import logging as hub_logging
    except ImportError as error:
        raise BadInput(
            f"Language models need the package {error.name}, which is not installed: pip install 'carry-core[llm]'."
        ) from error
    transformers.utils.logging.set_verbosity_error()  # no chatter and no bars, nor of the hub's retries
    transformers.utils.logging.disable_progress_bar()
    hub_logging.set_verbosity(ERROR)
    return transformers


@dataclass(frozen=True)
class Size:
    """Layers, heads of each, and how wide a head's output and the residual stream are."""

    layers: int
    heads: int
    d_head: int
    width: int

    @classmethod
    def of(cls, config: Any) -> "Size":
        """Read from a model's config.

        Raises:
            BadInput: the config names no layers or heads.
        """
        config = config.get_text_config()
        try:
            layers, heads, width = config.num_hidden_layers, config.num_attention_heads, config.hidden_size
        except AttributeError as error:
            kind = getattr(config, "model_type", "model")
            raise BadInput(f"A {kind} has no attention heads: expected a model such as Llama or Mistral.") from error
        return cls(layers, heads, getattr(config, "head_dim", None) or width // heads, width)


@dataclass(frozen=True)
class Source:
    """A model that can be loaded: what is known of it before its weights are read.

    Attributes:
        name: a folder, or an id on the hub.
    """

    name: str
    device: str
    dtype: str
    config: Any
    tokenizer: Any
    size: Size

    @property
    def title(self) -> str:
        """The last part of the name."""
        return Path(self.name).resolve().name

    def load(self) -> Any:
        """Read the weights.

        Raises:
            BadInput: they are missing or damaged.
        """
        with _reading(self.name, "cannot be loaded ({}): fetch it again.") as options:
            model: Any = library().AutoModelForCausalLM.from_pretrained(
                self.name, dtype=DTYPES[self.dtype], attn_implementation="eager", **options
            )
        return model.to(self.device).eval()


def inspect_model(name: str, template: Template, device: str = "cpu", dtype: str | None = None) -> Source:
    """Look at a model's config, tokenizer and size without reading its weights.

    Args:
        name: a folder in the format of `transformers`, or an id on the hub.
        template: what will be asked.
        device: `cpu` or `cuda`.
        dtype: one of `DTYPES`; what the config says if None.

    Raises:
        BadInput: there is no such model, it brings code of its own, its layers are laid out in an unknown way, its
            tokenizer cannot write sums.
    """
    if dtype is not None and dtype not in DTYPES:
        raise BadInput(f"Unknown dtype {dtype!r}: expected one of {', '.join(DTYPES)}.")
    check_device(device)
    name = str(Path(name).expanduser()) if name.startswith("~") else name
    config = _config(name)
    size = Size.of(config)
    if dtype is None:
        own = str(getattr(config, "dtype", None)).removeprefix("torch.")
        dtype = own if own in DTYPES else "float32"
    complaint = "is no causal language model with a tokenizer ({}): expected what AutoModelForCausalLM can load."
    with _reading(name, complaint) as options:
        with torch.device("meta"):
            empty = library().AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype], trust_remote_code=False)
        tokenizer = library().AutoTokenizer.from_pretrained(name, **options)
    blocks(empty)
    check_tokenizer(tokenizer, template)
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return Source(name, device, dtype, config, tokenizer, size)


def check_device(device: str) -> None:
    """See that PyTorch can compute there.

    Raises:
        BadInput: it cannot.
    """
    try:
        kind, index = torch.device(device).type, torch.device(device).index or 0
    except RuntimeError as error:
        raise BadInput(f"Unknown device {device!r}: expected cpu, cuda or cuda:1.") from error
    if kind not in ("cpu", "cuda"):
        raise BadInput(f"Device {device}: expected cpu or cuda.")
    if kind == "cuda" and index >= torch.cuda.device_count():
        raise BadInput(f"Device {device}: PyTorch finds {torch.cuda.device_count()} CUDA devices here; expected cpu.")


def _config(name: str) -> Any:
    """The config of a folder or hub id."""
    from huggingface_hub.constants import is_offline_mode

    path = Path(name)
    local = path.exists() or name.startswith((".", "/")) or name.count("/") > 1
    if local and not (path / "config.json").is_file():
        what = "has no config.json" if path.is_dir() else "is not a folder"
        raise BadInput(f"{name} {what}: expected a folder with a model in the format of `transformers`.")
    if local:
        complaint = "has a config.json that cannot be read ({}): fetch the model again."
    elif is_offline_mode():
        complaint = "is neither a folder nor in the hub's cache, and HF_HUB_OFFLINE is set ({}): unset it to fetch it."
    else:
        complaint = "is not a folder, and the hub does not give it ({}): expected a folder or a hub id."
    with _reading(name, complaint) as options:
        return library().AutoConfig.from_pretrained(name, **options)


@contextmanager
def _reading(name: str, complaint: str) -> Iterator[dict[str, bool]]:
    """Options for reading a model's files; whatever they hold, none of their code is run and failing is one line."""
    # A folder needs no network, whatever it is that its files refer to. Without the first, `transformers` asks on
    # the terminal whether the folder's code shall run.
    options = {"trust_remote_code": False} | ({"local_files_only": True} if Path(name).is_dir() else {})
    try:
        yield options
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise BadInput(
                f"{name} brings Python code of its own, which is never run here: expected an architecture and a"
                " tokenizer that `transformers` itself has."
            ) from error
        line = f"{type(error).__name__}: {shorten(str(error), 120, placeholder='…')}"
        raise BadInput(f"{name} {complaint.format(line)}") from error


# ---------------------------------------------------------------- architecture


@dataclass(frozen=True)
class Block:
    """One layer, by the names of `transformers`.

    Attributes:
        layer: takes and gives the residual stream.
        attention: gives its output and the attention probabilities `[batch, head, query, key]`.
        projection: takes the heads' outputs side by side, `[batch, pos, head * d_head]`.
        norm: what the residual stream goes through between attention and MLP.
    """

    layer: nn.Module
    attention: nn.Module
    projection: nn.Module
    norm: nn.Module


def blocks(model: Any) -> list[Block]:
    """The model's layers in order.

    Raises:
        BadInput: they are not laid out as in Llama, Mistral and their like, or GPT-2.
    """
    n_layers = Size.of(model.config).layers
    stacks = [m for m in model.base_model.modules() if isinstance(m, nn.ModuleList) and len(m) == n_layers]
    layers = [block for layer in (stacks[0] if stacks else []) if (block := _block(layer))]
    if not layers or len(layers) != n_layers:
        raise BadInput(
            f"{type(model).__name__} is laid out in another way: expected layers with an attention"
            f" ({', '.join(ATTENTION)}), its output projection ({', '.join(PROJECTION)}) and a norm before the MLP"
            f" ({', '.join(BEFORE_MLP)})."
        )
    return layers


def _block(layer: nn.Module) -> Block | None:
    attention, norm = _child(layer, ATTENTION), _child(layer, BEFORE_MLP)
    projection = attention and _child(attention, PROJECTION)
    return Block(layer, attention, projection, norm) if attention and projection and norm else None


def _child(module: nn.Module, names: Sequence[str]) -> nn.Module | None:
    return next((child for name in names if isinstance(child := getattr(module, name, None), nn.Module)), None)


# ---------------------------------------------------------------- heads


def parse_heads(text: str, size: Size) -> Heads:
    """Read heads such as `13:23,15:15`, layer before head, both from 0.

    Raises:
        BadInput: that is not how heads are written, the model has no such head, or one is named twice.
    """
    if not re.fullmatch(r"\s*\d+:\d+\s*(,\s*\d+:\d+\s*)*", text, re.ASCII):
        raise BadInput(f"--ablate {text}: expected heads as layer:head, such as 13:23,15:15.")
    heads = sorted((int(layer), int(head)) for layer, head in re.findall(r"(\d+):(\d+)", text, re.ASCII))
    if len(set(heads)) < len(heads):
        raise BadInput(f"--ablate {text}: names a head twice; expected each once.")
    _check_heads(heads, size)
    return tuple(heads)


def _check_heads(heads: Collection[Head], size: Size) -> None:
    for layer, head in heads:
        if layer >= size.layers or head >= size.heads:
            raise BadInput(
                f"No head {layer}:{head}: expected a layer from 0 to {size.layers - 1}"
                f" and a head from 0 to {size.heads - 1}."
            )


def format_heads(heads: Heads, spaced: bool = False) -> str:
    """Heads as the command line takes them, or as a sentence lists them."""
    return (", " if spaced else ",").join(f"{layer}:{head}" for layer, head in heads)


@contextmanager
def ablated(model: Any, heads: Heads) -> Iterator[None]:
    """Zero ablation of heads: what they give the output projection is zero; its bias stays.

    Raises:
        BadInput: no such head.
    """
    size, layers = Size.of(model.config), blocks(model)
    _check_heads(heads, size)

    def zero(numbers: list[int], module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        z = args[0].unflatten(-1, (size.heads, size.d_head)).clone()
        z[..., numbers, :] = 0
        return (z.flatten(-2), *args[1:])

    handles = []
    for layer in {layer for layer, _ in heads}:
        numbers = [head for l, head in heads if l == layer]
        handles.append(layers[layer].projection.register_forward_pre_hook(partial(zero, numbers)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def most_frequent(wins: Int[Tensor, "layer head"], count: int = N_FREQUENT) -> Heads:
    """The heads that win most often, the most frequent first; of equals the earlier; none that never wins."""
    order = wins.flatten().sort(descending=True, stable=True).indices[:count].tolist()
    return tuple(divmod(i, wins.shape[1]) for i in order if wins.flatten()[i] > 0)


def frequent_pairs(wins: Int[Tensor, "layer head"], count: int) -> list[Heads]:
    """Pairs among the most frequent winners, the most frequent pair first (App. A.3)."""
    pairs = sorted(combinations(most_frequent(wins), 2), key=lambda pair: -sum(int(wins[head]) for head in pair))
    return [tuple(sorted(pair)) for pair in pairs[:count]]


def random_pairs(size: Size, targets: Collection[Heads], others: Collection[Head], seed: int) -> list[Heads]:
    """For each target as many heads of the same layers, drawn from all but `others`, no pair twice.

    Matched by layer, since a pair may cost much only because its layer does. Fewer where a layer has no more.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn: list[Heads] = []
    for target in targets:
        heads = [[(layer, h) for h in range(size.heads) if (layer, h) not in others] for layer, _ in target]
        choices = {tuple(sorted(pair)) for pair in product(*heads) if len({*pair}) == len(pair)} - {*drawn}
        if choices:
            drawn.append(sorted(choices)[int(torch.randint(len(choices), (), generator=generator))])
    return drawn


# ---------------------------------------------------------------- what is computed inside


class Observer:
    """Cells of every head's attention, and the residual stream where the answer's first tokens are predicted.

    A forward hook takes the few cells that are wanted from each layer's probabilities, which are then dropped: never
    more than one layer's attention is in memory.

    Args:
        model: a causal language model that computes its attention eagerly.
        rows: query positions in the left-padded batch.
        columns: key positions.
        length: tokens of the padded prompts; a row below it is a prompt's, the others are generated tokens.
    """

    def __init__(
        self, model: Any, rows: Int[Tensor, "batch cell"], columns: Int[Tensor, "batch cell"], length: int
    ) -> None:
        self.model, self.rows, self.columns, self.length = model, rows, columns, length
        size = Size.of(model.config)
        batch, cells = rows.shape
        self.attention = torch.zeros(batch, size.layers, size.heads, cells)
        self.stream = torch.full((OUTPUTS, size.layers, 2, batch, size.width), float("nan"), dtype=model.dtype)

    @contextmanager
    def watching(self) -> Iterator["Observer"]:
        """Read whatever the model computes inside."""
        handles = []
        for layer, block in enumerate(blocks(self.model)):
            handles += [
                block.attention.register_forward_hook(partial(self._read_attention, layer)),
                block.norm.register_forward_pre_hook(partial(self._read_resid_mid, layer)),
                block.layer.register_forward_hook(partial(self._read_resid_post, layer)),
            ]
        try:
            yield self
        finally:
            for handle in handles:
                handle.remove()

    def _read_attention(self, layer: int, module: nn.Module, args: Any, output: tuple[Tensor, Tensor | None]) -> None:
        pattern = output[1]
        if pattern is None:
            raise BadInput("The model gives no attention probabilities: expected attn_implementation='eager'.")
        queries, keys = pattern.shape[-2:]
        start = keys - queries  # positions before it are in the cache
        self.step = keys - self.length
        computed = ((self.rows >= max(start, self.length if start else 0)) & (self.rows < keys)).all(0)
        if computed.any():
            rows, columns = self.rows[:, computed] - start, self.columns[:, computed]
            batch = torch.arange(len(rows)).unsqueeze(1)
            # advanced indices around a slice: [batch, cell, head]
            cells = pattern[batch.to(pattern.device), :, rows.to(pattern.device), columns.to(pattern.device)]
            self.attention[:, layer, :, computed] = cells.transpose(1, 2).float().cpu()

    def _read_resid_mid(self, layer: int, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        self._keep(layer, 0, args[0])

    def _read_resid_post(self, layer: int, module: nn.Module, args: Any, output: Tensor | tuple[Tensor, ...]) -> None:
        self._keep(layer, 1, output if isinstance(output, Tensor) else output[0])

    def _keep(self, layer: int, after: int, stream: Float[Tensor, "batch pos d_model"]) -> None:
        if self.step < OUTPUTS:
            self.stream[self.step, layer, after] = stream[:, -1].cpu()
