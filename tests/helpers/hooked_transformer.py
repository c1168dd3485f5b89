"""TransformerLens's own model with the weights of one of ours, to compare the two."""

import re
from functools import partial
from importlib.metadata import version
from typing import Any

from torch import Tensor

from carry_core.errors import BadInput
from carry_core.model import Transformer


def hooked_transformer(model: Transformer) -> Any:
    """Return TransformerLens's `HookedTransformer` with copies of a model's weights.

    Its forward pass is TransformerLens's, and shares no code with ours. None of its options rotates
    values, as the released code of the paper does, so its attention is changed to do so.

    Raises:
        BadInput: TransformerLens is 4 or newer, which has no such model.
    """
    if int(re.findall(r"\d+", version("transformer-lens"))[0]) >= 4:
        raise BadInput("TransformerLens 4 has no model of its own: expected 3.9.")
    # They are imported here, since most users do without.
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    config = model.config
    hooked_config = HookedTransformerConfig(
        n_layers=config.layers,
        d_model=config.d_model,
        n_heads=config.heads,
        d_head=config.d_head,
        d_mlp=config.d_ff,
        n_ctx=config.layout.length,
        d_vocab=model.embed.num_embeddings,
        act_fn="relu",
        normalization_type="LN",
        attention_dir="causal" if config.causal else "bidirectional",
        positional_embedding_type="rotary",
        rotary_dim=config.d_head,
        rotary_adjacent_pairs=True,
        default_prepend_bos=False,
        init_weights=False,
        device=str(model.device),
        dtype=model.embed.weight.dtype,
    )
    hooked = HookedTransformer(hooked_config)
    hooked.load_state_dict(_weights(model), strict=False)
    for block in hooked.blocks:
        attention = block.attn
        attention.calculate_z_scores = partial(
            _z_of_rotated_values, attention, attention.calculate_z_scores
        )
    return hooked.requires_grad_(False).eval()


def _z_of_rotated_values(attention: Any, z_scores: Any, v: Tensor, pattern: Tensor) -> Tensor:
    """Return what heads read from values that are rotated as keys are."""
    z: Tensor = z_scores(attention.apply_rotary(v), pattern)
    return z


def _weights(model: Transformer) -> dict[str, Tensor]:
    """Return a model's weights under TransformerLens's names, in its shapes."""
    config = model.config
    weights = {
        "embed.W_E": model.embed.weight * config.d_model**0.5,
        "ln_final.w": model.norm.weight,
        "ln_final.b": model.norm.bias,
        "unembed.W_U": model.unembed.weight.T,
        "unembed.b_U": model.unembed.bias,
    }
    for layer, block in enumerate(model.blocks):
        name = f"blocks.{layer}"
        for norm in ("ln1", "ln2"):  # one LayerNorm serves both
            weights[f"{name}.{norm}.w"] = block.norm.weight
            weights[f"{name}.{norm}.b"] = block.norm.bias
        for letter, linear in (("Q", block.q), ("K", block.k), ("V", block.v)):
            by_head = linear.weight.unflatten(0, (config.heads, config.d_head))
            weights[f"{name}.attn.W_{letter}"] = by_head.mT  # (head, d_model, d_head)
            bias = linear.bias.unflatten(0, (config.heads, config.d_head))
            weights[f"{name}.attn.b_{letter}"] = bias
        by_head = block.o.weight.T.unflatten(0, (config.heads, config.d_head))
        weights[f"{name}.attn.W_O"] = by_head  # (head, d_head, d_model)
        weights[f"{name}.attn.b_O"] = block.o.bias
        weights[f"{name}.mlp.W_in"] = block.up.weight.T
        weights[f"{name}.mlp.b_in"] = block.up.bias
        weights[f"{name}.mlp.W_out"] = block.down.weight.T
        weights[f"{name}.mlp.b_out"] = block.down.bias
    return {name: weight.detach().clone() for name, weight in weights.items()}
