"""A causal language model from a folder or the hub: refused early, looked into, its heads ablated (Sec. 6).

`transformers` is imported only when a model is looked at: it takes seconds, and is the extra
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
# Gemma 2 has the first two
BEFORE_MLP = ("pre_feedforward_layernorm", "post_attention_layernorm", "ln_2")
N_FREQUENT = 8  # the author's list of most frequent winners, from which he took pairs (App. A.3)
MOST_PAIRS = N_FREQUENT * (N_FREQUENT - 1) // 2

Head = tuple[int, int]  # layer, head
Heads = tuple[Head, ...]


def library() -> Any:
    """The package `transformers`, which is told to be quiet; BadInput where it is not installed."""
    try:
        # tqdm asks for a widget; pages show none
        warnings.filterwarnings("ignore", message="IProgress not found")
        import transformers
    except ImportError as error:
        raise BadInput(
            f"Language models need the package {error.name}, which is not installed: pip install 'carry-core[llm]'."
        ) from error
    # no chatter and no bars, nor of the hub's retries
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    return transformers


class Size(NamedTuple):
    """Layers, and heads of each."""

    layers: int
    heads: int


@dataclass(frozen=True)
class Source:
    """A model that can be loaded: what is known of it before its weights are read."""

    name: str  # a folder, or an id on the hub
    device: str
    dtype: str
    config: Any
    tokenizer: Any
    size: Size

    @property
    def title(self) -> str:
        return Path(self.name).resolve().name

    def load(self) -> Any:
        """The weights; BadInput where they are missing or damaged."""
        with _reading(self.name) as options:
            model: Any = library().AutoModelForCausalLM.from_pretrained(
                self.name, dtype=getattr(torch, self.dtype), attn_implementation="eager", **options
            )
        return model.to(self.device).eval()


def inspect_model(
    name: str, template: Template, device: str = "cpu", dtype: str | None = None
) -> Source:
    """Look at the config, tokenizer and size of a folder or hub id without reading weights; `dtype` of `DTYPES`.

    BadInput where there is no such model, it needs its own code, has another layout, or its
    tokenizer writes no sums.
    """
    name = str(Path(name).expanduser())
    with _reading(name) as options:
        config = library().AutoConfig.from_pretrained(name, **options)
        own = str(config.dtype).removeprefix("torch.")
        dtype = dtype or (own if own in DTYPES else "float32")
        size = Size(
            config.get_text_config().num_hidden_layers, config.get_text_config().num_attention_heads
        )
        with torch.device("meta"):
            empty = library().AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        tokenizer = library().AutoTokenizer.from_pretrained(name, **options)
    blocks(empty)
    check_tokenizer(tokenizer, template)
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return Source(name, device, dtype, config, tokenizer, size)


@contextmanager
def _reading(name: str) -> Iterator[dict[str, bool]]:
    """Options for reading a model's files: none of their code is run. Whatever is wrong with them is one line."""
    try:  # None in place of False asks on the terminal; a folder's files may refer to the hub
        yield {"trust_remote_code": False, "local_files_only": Path(name).is_dir()}
    except Exception as error:
        why = f"{type(error).__name__}: {shorten(str(error), 120, placeholder='…')}"
        expected = "expected a folder or hub id that `transformers` can load, tokenizer included, without its own code"
        raise BadInput(
            f"{name} holds no language model that can be read ({why}): {expected}."
        ) from error


class Block(NamedTuple):
    """One layer, by the names of `transformers`."""

    layer: nn.Module  # takes and gives the residual stream
    projection: nn.Module  # takes the heads' outputs side by side, [batch, pos, head * d_head]
    norm: nn.Module  # what the residual stream goes through between attention and MLP


def blocks(model: Any) -> list[Block]:
    """The model's layers in order; BadInput where they are not laid out as in Llama, Mistral, GPT-2 and their like."""
    n_layers = model.config.get_text_config().num_hidden_layers
    try:
        stack = next(
            m
            for m in model.base_model.modules()
            if isinstance(m, nn.ModuleList) and len(m) == n_layers
        )
        return [
            Block(layer, _part(_part(layer, ATTENTION), PROJECTION), _part(layer, BEFORE_MLP))
            for layer in stack
        ]
    except StopIteration as error:
        expected = "layers with attention, its output projection and a norm before the MLP, as in Llama or GPT-2"
        raise BadInput(
            f"{type(model).__name__} is laid out in another way: expected {expected}."
        ) from error


def _part(module: nn.Module, names: Sequence[str]) -> Any:
    """The child that has the first of these names; StopIteration where it has none."""
    return next(getattr(module, name) for name in names if hasattr(module, name))


def parse_heads(text: str, size: Size) -> Heads:
    """Read heads such as `13:23,15:15`, layer before head, both from 0; BadInput for no such head, or one twice."""
    heads = sorted(
        (int(layer), int(head)) for layer, head in re.findall(r"(\d+):(\d+)", text, re.ASCII)
    )
    if not re.fullmatch(r"\s*\d+:\d+\s*(,\s*\d+:\d+\s*)*", text, re.ASCII) or len(set(heads)) < len(
        heads
    ):
        raise BadInput(
            f"--ablate {text}: expected heads as layer:head, each once, such as 13:23,15:15."
        )
    expected = f"expected a layer from 0 to {size.layers - 1} and a head from 0 to {size.heads - 1}"
    for layer, head in heads:
        if layer >= size.layers or head >= size.heads:
            raise BadInput(f"No head {layer}:{head}: {expected}.")
    return tuple(heads)


def format_heads(heads: Heads) -> str:
    """Heads as the command line takes them."""
    return ",".join(f"{layer}:{head}" for layer, head in heads)


@contextmanager
def ablated(model: Any, heads: Heads) -> Iterator[None]:
    """Zero ablation of heads: what they give the output projection is zero; its bias stays."""
    n_heads, layers = model.config.get_text_config().num_attention_heads, blocks(model)

    def zero(head: int, module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        z = args[0].unflatten(-1, (n_heads, -1)).clone()
        z[..., head, :] = 0
        return (z.flatten(-2), *args[1:])

    with ExitStack() as hooks:
        for layer, head in heads:
            hooks.enter_context(
                layers[layer].projection.register_forward_pre_hook(partial(zero, head))
            )
        yield


@contextmanager
def cached_streams(model: Any) -> Iterator[list[Tensor]]:
    """A list that fills with the residual stream at the last position, `[batch, d_model]`, while the model generates.

    For each of the first tokens of the answer: after the attention and after the MLP of each layer.
    """
    layers, kept = blocks(model), list[Tensor]()

    def keep(stream: Any) -> None:
        if len(kept) < WIDTH * len(layers) * 2:
            kept.append(
                (stream if isinstance(stream, Tensor) else stream[0])[:, -1].to("cpu", copy=True)
            )

    with ExitStack() as hooks:
        for block in layers:
            # resid_mid
            hooks.enter_context(block.norm.register_forward_pre_hook(lambda _, args: keep(args)))
            # resid_post
            hooks.enter_context(
                block.layer.register_forward_hook(lambda _, args, output: keep(output))
            )
        yield kept
