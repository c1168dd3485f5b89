"""Passes of a model under interventions, and the one place where a faster way to them comes in.

`passes` below calls the model, once for each intervention. A package may bring another module with
this function, an engine, and name it under the entry point `carry_core.engines`: so does
`carry_fast`. It is found at the first measurement. What it gives must equal what is here up to
rounding, for every model and intervention; where it knows no faster way, it calls this one. The
environment variable CARRY_ENGINE names the engine to use, and `plain` is this module.
"""

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from carry_core.errors import BadInput
from carry_core.hooks import Hook, HookAt, TensorHook
from carry_core.interventions import AnyIntervention, Source
from carry_core.model import Block, Read, Transformer

# Logits `[batch, query, vocab]` under each of several interventions, from tokens `[batch, pos]`.
Passes = Callable[[Int[Tensor, "batch pos"]], list[Float[Tensor, "batch query vocab"]]]
Sources = Sequence[Source | None]  # one for each intervention
Engine = Any  # a module with `passes`


def passes(
    model: Transformer,
    interventions: Sequence[AnyIntervention],
    read: Read = None,
    watch: Hook | None = None,
    sources: Sources = (),
) -> Passes:
    """Return a function that gives the logits under each intervention, from one pass each.

    Args:
        model: The model. Its weights must not change while the function is used.
        interventions: The interventions, in the order of the result.
        read: The positions whose logits are wanted; all if None.
        watch: A hook that sees the model run without interventions, from `blocks.0.resid_mid` on,
            and changes nothing. One that is a `HookAt` costs less, since it needs few points.
        sources: Each intervention's source, as its `hook` takes it; none if empty.
    """
    hooks = hooks_of(model, interventions, read, sources)

    @torch.inference_mode()
    def logits_of(tokens: Tensor) -> list[Tensor]:
        if watch is not None:
            model(tokens, only_seen_by(watch), read)
        return [model(tokens, hook, read) for hook in hooks]

    return logits_of


def hooks_of(
    model: Transformer, interventions: Sequence[AnyIntervention], read: Read, sources: Sources = ()
) -> list[TensorHook]:
    """Return each intervention as a hook, with its own source."""
    own_sources = sources or [None] * len(interventions)
    pairs = zip(interventions, own_sources, strict=True)
    return [intervention.hook(model, source, read) for intervention, source in pairs]


def only_seen_by(watch: Hook) -> TensorHook:
    """Return a hook that shows activations to `watch`, which cannot change them."""

    def hook(name: str, x: Tensor) -> Tensor:
        watch(name, x.clone())
        return x

    return HookAt(watch.points, hook) if isinstance(watch, HookAt) else hook


MODULES = (Transformer, Block, nn.ModuleList, nn.Embedding, nn.LayerNorm, nn.Linear)
# What runs in a forward pass of every module. `torch.compile` and others replace some of the rest.
OF_EVERY_MODULE = ("__call__", "_wrapped_call_impl", "_call_impl", "__getattr__")


def methods() -> list[object]:
    """Return functions that a pass calls, as they are now: all of ours, most of PyTorch's."""
    current = [vars(nn.Module)[name] for name in OF_EVERY_MODULE]
    own = vars(sys.modules[Transformer.__module__])
    # What `torch.compile` adds begins with underscores.
    current += [f for name, f in own.items() if callable(f) and not name.startswith("__")]
    current += [torch.einsum, torch.view_as_complex, torch.view_as_real]
    current += [Tensor.masked_fill, Tensor.softmax, Tensor.relu, Tensor.flatten, Tensor.unflatten]
    current += [F.embedding, F.layer_norm, F.linear]
    for module in MODULES:
        current += [f for f in vars(module).values() if callable(f) or isinstance(f, property)]
    return current


# As they were written. An engine that reads weights serves a model only while they are the same. It
# is imported at the first measurement, when one may have been replaced: so they are recorded here.
METHODS = methods()


def engine() -> Engine:
    """Return the engine that CARRY_ENGINE names; if it is unset, one that is installed."""
    engines = _installed() | {"plain": sys.modules[__name__]}
    name = os.environ.get("CARRY_ENGINE") or next(iter(engines))
    if name not in engines:
        raise BadInput(f"CARRY_ENGINE={name}: expected one of {', '.join(engines)}.")
    return engines[name]


@cache
def _installed() -> dict[str, Engine]:
    """Return the engines that installed packages bring, by name."""
    return {point.name: point.load() for point in entry_points(group="carry_core.engines")}
