"""Checks that a model is plain, so that its weights alone determine what it computes.

Everything in `carry_fast` reads weights instead of calling the model. That gives the model's own
numbers only for a plain and precise `Transformer`. For any other model, it calls the model,
or refuses.
"""

from types import FunctionType

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from carry_core.model import Block, Transformer, parameter_shapes

EPS = 1e-5  # of a LayerNorm, as `native/norm.h` has it
MODULES = {Transformer, Block, nn.ModuleList, nn.Embedding, nn.LayerNorm, nn.Linear}


def is_plain(model: nn.Module) -> bool:
    """Return True if the model's weights alone determine what it computes.

    A subclass, a wrapped or replaced part, a PyTorch hook or a parametrization may change that.
    """
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        return False
    if not all(type(parameter) is nn.Parameter for parameter in model.parameters()):
        return False
    for part in model.modules():
        if type(part) not in MODULES or part._forward_hooks or part._forward_pre_hooks:
            return False
        if _has_replaced_method(part):
            return False
    return (
        type(model) is Transformer
        and len(model.blocks) == model.config.layers
        and all(type(block) is Block for block in model.blocks)
        and type(model.embed) is nn.Embedding
        and model.embed.max_norm is None
        and _has_usual_parameters(model)
    )


def _has_usual_parameters(model: Transformer) -> bool:
    """Return True if all parameters have the config's shapes, and each LayerNorm has `EPS`."""
    if any(part.eps != EPS for part in model.modules() if isinstance(part, nn.LayerNorm)):
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
