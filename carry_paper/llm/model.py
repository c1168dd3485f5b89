"""Causal language models: loading them, caching activations, ablating heads (Sec. 6).

A folder, a GGUF file, or an id on the Hugging Face hub, is refused before its weights are read.

`transformers` is imported only when it is needed: it takes seconds, and comes with the extra
`carry-core[llm]`.
"""

import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from carry_core.errors import BadInput
from carry_paper.llm.prompts import WIDTH, Template, check_tokenizer

DTYPES = ("float32", "bfloat16", "float16")
ATTENTION = ("self_attn", "attn")
PROJECTION = ("o_proj", "out_proj", "c_proj", "dense")
# Gemma 2 has the first two of these names; the first is the norm before the MLP.
BEFORE_MLP = ("pre_feedforward_layernorm", "post_attention_layernorm", "ln_2")
# The author took pairs from this number of most frequent winners (App. A.3).
N_FREQUENT = 8
MOST_PAIRS = N_FREQUENT * (N_FREQUENT - 1) // 2

Head = tuple[int, int]  # layer, head
Heads = tuple[Head, ...]


def library() -> Any:
    """Import and silence `transformers`; raise `BadInput` if it is not installed."""
    try:
        # tqdm asks for a widget, and pages show none.
        warnings.filterwarnings("ignore", message="IProgress not found")
        import transformers
    except ImportError as error:
        raise BadInput(
            f"Language models need the package {error.name}, which is not installed:"
            " pip install 'carry-core[llm]'."
        ) from error
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    return transformers


class Size(NamedTuple):
    """Numbers of layers, and of heads in each layer."""

    layers: int
    heads: int


@dataclass(frozen=True)
class Source:
    """A model whose config and tokenizer were read, and whose weights can be loaded.

    With an `init_seed`, it has random weights in place of its own.
    """

    name: str  # a folder, a GGUF file, or an id on the hub
    device: str
    dtype: str
    config: Any
    tokenizer: Any
    size: Size
    init_seed: int | None = None

    @property
    def title(self) -> str:
        path = Path(self.name).resolve()
        title = path.stem if path.is_file() else path.name
        return title if self.init_seed is None else f"{title}-random{self.init_seed}"

    def load(self) -> Any:
        """Load the model with its weights, or with random ones, as its config initialises them.

        Raises:
            BadInput: They are missing or damaged.
        """
        like: dict[str, Any] = {
            "dtype": getattr(torch, self.dtype),
            "attn_implementation": "eager",
        }
        model_class = library().AutoModelForCausalLM
        if self.init_seed is not None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.init_seed)
                model: Any = model_class.from_config(self.config, trust_remote_code=False, **like)
        else:
            with _reading(self.name) as (place, options):
                model = model_class.from_pretrained(place, **like, **options)
        return model.to(self.device).eval()


def inspect_model(
    name: str, template: Template, device: str = "cpu", dtype: str | None = None
) -> Source:
    """Read the config, tokenizer and size of a model, but not its weights.

    It is a folder, a GGUF file, or an id on the Hugging Face hub. `device` and `dtype` (the model's
    own if None) are those that the weights will be loaded with.

    Raises:
        BadInput: There is no such model, it needs its own code, its layers are not laid out as
            expected, or its tokenizer cannot write sums.
    """
    name = str(Path(name).expanduser())
    with _reading(name) as (place, options):
        config = library().AutoConfig.from_pretrained(place, **options)
        stored_dtype = str(config.dtype).removeprefix("torch.")
        dtype = dtype or (stored_dtype if stored_dtype in DTYPES else "float32")
        text_config = config.get_text_config()
        size = Size(text_config.num_hidden_layers, text_config.num_attention_heads)
        with torch.device("meta"):
            empty = library().AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        tokenizer = library().AutoTokenizer.from_pretrained(place, **options)
    blocks(empty)
    check_tokenizer(tokenizer, template)
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return Source(name, device, dtype, config, tokenizer, size)


@contextmanager
def _reading(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place of a model's files and options for reading them, by which no code is run.

    Raises:
        BadInput: Something is wrong with the files.
    """
    path = Path(name)
    # With None instead of False, transformers would ask on the terminal. A folder's files may
    # refer to the hub, which is not asked either.
    options = {"trust_remote_code": False, "local_files_only": path.exists()}
    try:
        if path.is_file():
            yield str(path.parent), options | {"gguf_file": path.name}
        else:
            yield name, options
    except Exception as error:
        reason = f"{type(error).__name__}: {shorten(str(error), 120, placeholder='…')}"
        expected = (
            "expected a folder, GGUF file or hub id that `transformers` can load, tokenizer"
            " included, without its own code"
        )
        raise BadInput(
            f"{name} holds no language model that can be read ({reason}): {expected}."
        ) from error


class Block(NamedTuple):
    """One layer, by the names of `transformers`."""

    layer: nn.Module  # maps the residual stream to the residual stream
    projection: nn.Module  # takes the heads' outputs side by side, [batch, pos, head * d_head]
    norm: nn.Module  # is applied to the residual stream before the MLP


def blocks(model: Any) -> list[Block]:
    """Return the layers; raise `BadInput` unless they are laid out as in Llama, GPT-2 and such."""
    n_layers = model.config.get_text_config().num_hidden_layers
    try:
        stack = next(
            module
            for module in model.base_model.modules()
            if isinstance(module, nn.ModuleList) and len(module) == n_layers
        )
        layers = []
        for layer in stack:
            projection = _part(_part(layer, ATTENTION), PROJECTION)
            layers.append(Block(layer, projection, norm=_part(layer, BEFORE_MLP)))
        return layers
    except StopIteration as error:
        expected = (
            "layers with attention, its output projection and a norm before the MLP,"
            " as in Llama or GPT-2"
        )
        raise BadInput(
            f"{type(model).__name__} is laid out in another way: expected {expected}."
        ) from error


def _part(module: nn.Module, names: Sequence[str]) -> Any:
    """Return the child with the first of these names that exists; StopIteration if none does."""
    return next(getattr(module, name) for name in names if hasattr(module, name))


def parse_heads(text: str, size: Size) -> Heads:
    """Read heads such as `13:23,15:15`; raise `BadInput` for one that is not there, or twice."""
    matches = re.findall(r"(\d+):(\d+)", text, re.ASCII)
    heads = sorted((int(layer), int(head)) for layer, head in matches)
    is_list = re.fullmatch(r"\s*\d+:\d+\s*(,\s*\d+:\d+\s*)*", text, re.ASCII)
    if not is_list or len(set(heads)) < len(heads):
        raise BadInput(
            f"--ablate {text}: expected heads as layer:head, each once, such as 13:23,15:15."
        )
    expected = f"expected a layer from 0 to {size.layers - 1} and a head from 0 to {size.heads - 1}"
    for layer, head in heads:
        if layer >= size.layers or head >= size.heads:
            raise BadInput(f"No head {layer}:{head}: {expected}.")
    return tuple(heads)


def format_heads(heads: Heads) -> str:
    """Return heads as the command line takes them, such as `13:23,15:15`."""
    return ",".join(f"{layer}:{head}" for layer, head in heads)


@contextmanager
def ablated(model: Any, heads: Heads) -> Iterator[None]:
    """Ablate heads: their outputs are zero. The bias of the output projection stays."""
    n_heads = model.config.get_text_config().num_attention_heads
    layers = blocks(model)

    def zero(head: int, module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        z = args[0].unflatten(-1, (n_heads, -1)).clone()
        z[..., head, :] = 0
        return (z.flatten(-2), *args[1:])

    with ExitStack() as hooks:
        for layer, head in heads:
            projection = layers[layer].projection
            hooks.enter_context(projection.register_forward_pre_hook(partial(zero, head)))
        yield


@contextmanager
def cached_streams(model: Any) -> Iterator[list[Tensor]]:
    """Yield a list that fills with residual streams, `[batch, d_model]`, while the model generates.

    For each of the first `WIDTH` tokens of the answer it has the stream at the last position, after
    the attention and after the MLP of each layer.
    """
    layers = blocks(model)
    streams: list[Tensor] = []

    def store(value: Any) -> None:
        if len(streams) < WIDTH * len(layers) * 2:
            stream = value if isinstance(value, Tensor) else value[0]
            streams.append(stream[:, -1].to("cpu", copy=True))

    def store_resid_mid(module: nn.Module, args: Any) -> None:
        store(args)

    def store_resid_post(module: nn.Module, args: Any, output: Any) -> None:
        store(output)

    with ExitStack() as hooks:
        for block in layers:
            hooks.enter_context(block.norm.register_forward_pre_hook(store_resid_mid))
            hooks.enter_context(block.layer.register_forward_hook(store_resid_post))
        yield streams
