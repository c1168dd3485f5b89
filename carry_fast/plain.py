"""The one place that decides whether a model is plain: its weights alone say what it computes.

Everything in `carry_fast` reads weights instead of calling the model. That gives the model's own
numbers only for a plain and precise `Transformer`. For any other model, it calls the model,
or refuses.
"""

from types import FunctionType

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from carry_core import engine
from carry_core.model import Block, Transformer, parameter_shapes

EPS = 1e-5  # of a LayerNorm, as `native/norm.h` has it


def is_plain(model: nn.Module) -> bool:
    """Return True if the model's weights alone determine what it computes.

    A subclass, a wrapped or replaced part, a method that was replaced, a block of another shape, a
    PyTorch hook, a parametrization, or a mode for PyTorch's own functions may change that.
    """
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        return False
    if engine.methods() != engine.METHODS:
        return False
    if _functions_may_change():
        return False
    if not all(type(parameter) is nn.Parameter for parameter in model.parameters()):
        return False
    for part in model.modules():
        if type(part) not in engine.MODULES or part._forward_hooks or part._forward_pre_hooks:
            return False
        if _has_replaced_method(part):
            return False
    return (
        type(model) is Transformer
        and len(model.blocks) == model.config.layers
        and all(_is_usual_block(model, l) for l in range(model.config.layers))
        and type(model.embed) is nn.Embedding
        and model.embed.max_norm is None
        and _has_usual_parameters(model)
    )


def _functions_may_change() -> bool:
    """Return True if a mode may change PyTorch's functions, or if this PyTorch cannot say."""
    try:
        from torch.overrides import _get_current_function_mode_stack
        from torch.utils._device import DeviceContext
        from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
    except ImportError:
        return True
    modes = [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]
    return not all(isinstance(mode, DeviceContext) for mode in modes)


def _is_usual_block(model: Transformer, l: int) -> bool:
    """Return True if a block is one of the model's config, for sums of its length."""
    block, config = model.blocks[l], model.config
    return (
        type(block) is Block
        and (block.config, block.prefix) == (config, f"blocks.{l}")
        and block.rotation.shape == (config.layout.length, config.d_head // 2, 2)
    )


def _has_usual_parameters(model: Transformer) -> bool:
    """Return True if parameters have the config's shapes and one type, and LayerNorms are usual."""
    norms = [part for part in model.modules() if isinstance(part, nn.LayerNorm)]
    if any((norm.eps, norm.normalized_shape) != (EPS, (model.config.d_model,)) for norm in norms):
        return False
    if len({parameter.dtype for parameter in model.parameters()}) > 1:
        return False
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    return shapes == parameter_shapes(model.config)


def is_precise(model: Transformer) -> bool:
    """Return True if the model computes in float32 or float64.

    In half precision, as under `torch.autocast`, adding in another order rounds differently enough
    to change digits.
    """
    weight = model.embed.weight
    device = weight.device.type
    is_autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return weight.dtype in (torch.float32, torch.float64) and not is_autocast


def _has_replaced_method(part: nn.Module) -> bool:
    """Return True if an attribute of the object hides a method of its class."""
    return any(isinstance(getattr(type(part), name, None), FunctionType) for name in vars(part))
