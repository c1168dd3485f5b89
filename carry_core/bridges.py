"""The model in other libraries, imported only where it is asked for: TransformerLens.

`to_transformer_lens` makes each hook point of a model one of TransformerLens's `HookPoint`s. These
are modules, so that libraries that look into modules, such as nnsight and pyvene, reach every point
as well.
"""

from typing import Any

from torch import Tensor, nn

from carry_core.errors import BadInput
from carry_core.model import Transformer, checked_config

# TransformerLens's names of the points of a block that it calls otherwise than by `hook_`.
NAMES_THERE = {
    "attn.scores": "attn.hook_attn_scores",
    "attn.skip": "attn.skip",
    "mlp.skip": "mlp.skip",
}


def lens_name(name: str) -> str:
    """Return a hook point's name in TransformerLens's spelling, given in ours."""
    if name == "embed":
        return "hook_embed"
    if not name.startswith("blocks."):
        return name
    _, layer, point = name.split(".", 2)
    head, _, last = point.rpartition(".")
    point_name = NAMES_THERE.get(point, f"{head}.hook_{last}" if head else f"hook_{last}")
    return f"blocks.{layer}.{point_name}"


def to_transformer_lens(model: Transformer) -> Any:
    """Return the model as a `HookedRootModule` of TransformerLens 3.9 or 4, on the same weights.

    Its hook points have TransformerLens's names, and it runs the model's own forward pass: with
    `run_with_cache`, which returns an `ActivationCache`, `run_with_hooks` and the helpers of
    `transformer_lens.patching`. No weight is copied: training one trains the other. It is on the
    model's device, and in its mode; `.eval()` is needed by the helpers of version 4.

    Raises:
        BadInput: This is no model, or there is no such TransformerLens.
    """
    config = checked_config(model)
    try:
        # They are imported here, since most users do without. Before 3.9 they had other names.
        from transformer_lens import ActivationCache, HookedRootModule
        from transformer_lens.config import TransformerLensConfig
        from transformer_lens.hook_points import HookPoint
    except ImportError as error:
        raise BadInput(
            f"There is no TransformerLens 3.9 or newer ({error}): "
            "pip install 'carry-core[lens]' --upgrade."
        ) from error

    lens_config = TransformerLensConfig(
        d_model=config.d_model,
        d_head=config.d_head,
        n_layers=config.layers,
        n_ctx=config.layout.length,
        n_heads=config.heads,
        d_mlp=config.d_ff,
        d_vocab=model.embed.num_embeddings,
        device=str(model.device),
        default_prepend_bos=False,
        positional_embedding_type="rotary",
        dtype=model.embed.weight.dtype,
    )

    class LensTransformer(HookedRootModule):  # type: ignore[misc]
        """A `Transformer` whose activations go through TransformerLens's hook points."""

        def __init__(self) -> None:
            super().__init__()
            self.cfg = lens_config
            self.config = self.cfg  # pyvene expects it by this name
            self.transformer = model
            self.blocks = nn.ModuleList(nn.Module() for _ in range(config.layers))
            for name in config.hook_names:
                _add_module(self, lens_name(name), HookPoint())
            self.train(model.training)
            self.setup()

        def forward(self, tokens: Tensor) -> Tensor:
            logits: Tensor = self.transformer(tokens, self._through_hook_point)
            return logits

        def _through_hook_point(self, name: str, x: Tensor) -> Tensor:
            changed: Tensor = self.hook_dict[lens_name(name)](x)
            return changed

        def run_with_cache(
            self, *arguments: Any, return_cache_object: bool = True, **options: Any
        ) -> tuple[Tensor, Any]:
            """Return the logits and an `ActivationCache`, as TransformerLens's own models do."""
            logits, cache = super().run_with_cache(*arguments, **options)
            if return_cache_object:
                has_batch = not options.get("remove_batch_dim", False)
                cache = ActivationCache(cache, self, has_batch_dim=has_batch)
            return logits, cache

    return LensTransformer()


def _add_module(root: nn.Module, name: str, module: nn.Module) -> None:
    """Add a module under a name with dots, with the modules in between."""
    *parents, last = name.split(".")
    for parent in parents:
        if parent not in root._modules:
            root.add_module(parent, nn.Module())
        root = root.get_submodule(parent)
    root.add_module(last, module)
