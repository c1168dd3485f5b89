"""The parts of a causal language model that this package looks at, by the names of `transformers`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from carry_core.errors import BadInput

ATTENTION = ("self_attn", "attn")
PROJECTION = ("o_proj", "out_proj", "c_proj", "dense")
BEFORE_MLP = ("pre_feedforward_layernorm", "post_attention_layernorm", "ln_2")  # Gemma 2 has the first two


@dataclass(frozen=True)
class Block:
    """One layer.

    Attributes:
        whole: takes and gives the residual stream.
        attention: gives its output and the attention probabilities `[batch, head, query, key]`.
        projection: takes the heads' outputs side by side, `[batch, pos, head * d_head]`.
        norm: what the residual stream goes through between attention and MLP.
    """

    whole: nn.Module
    attention: nn.Module
    projection: nn.Module
    norm: nn.Module


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


def blocks(model: Any) -> list[Block]:
    """The model's layers in order.

    Raises:
        BadInput: they are not laid out as in Llama, Mistral and their like, or GPT-2.
    """
    size = Size.of(model.config)
    stacks = [m for m in model.base_model.modules() if isinstance(m, nn.ModuleList) and len(m) == size.layers]
    found = [_block(layer) for layer in stacks[0]] if stacks else []
    whole = [block for block in found if block is not None]
    if not whole or len(whole) != size.layers:
        raise BadInput(
            f"{type(model).__name__} is laid out in another way: expected layers with an attention"
            f" ({', '.join(ATTENTION)}), its output projection ({', '.join(PROJECTION)}) and a norm before the MLP"
            f" ({', '.join(BEFORE_MLP)})."
        )
    return whole


def _block(layer: nn.Module) -> Block | None:
    attention = _child(layer, ATTENTION)
    projection, norm = attention and _child(attention, PROJECTION), _child(layer, BEFORE_MLP)
    if attention is None or projection is None or norm is None:
        return None
    return Block(layer, attention, projection, norm)


def _child(module: nn.Module, names: Sequence[str]) -> nn.Module | None:
    return next((child for name in names if isinstance(child := getattr(module, name, None), nn.Module)), None)
