"""Passes of a model under interventions, and the one place where a faster way to them comes in.

`passes` and `reader` below call the model, once for each intervention. A package may bring another
module with these two functions, an engine, and name it under the entry point `carry_core.engines`:
so does `carry_fast`. It is found at the first measurement. What it gives must equal what is here up
to rounding, for every model and intervention; where it knows no faster way, it calls these. The
environment variable CARRY_ENGINE names the engine to use, and `plain` is this module.
"""

import os
import sys
from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from importlib.metadata import entry_points
from typing import Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from carry_core.errors import BadInput
from carry_core.hooks import Hook, HookAt, TensorHook
from carry_core.interventions import (
    INTACT,
    ActivationsOf,
    Combined,
    Intervention,
    Source,
)
from carry_core.model import Block, Read, Transformer, activations_at

AnyIntervention = Intervention | Combined
# Logits `[batch, query, vocab]` under each of several interventions, from tokens `[batch, pos]`.
Passes = Callable[[Int[Tensor, "batch pos"]], list[Float[Tensor, "batch query vocab"]]]
Sources = Sequence[Source | None]  # one for each intervention

ENTRY_POINTS = "carry_core.engines"
VARIABLE = "CARRY_ENGINE"
PLAIN = "plain"


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


def reader(
    model: Transformer,
    names: Collection[str],
    read: Read = None,
    ablation: AnyIntervention = INTACT,
) -> ActivationsOf:
    """Return a function that gives activations of the ablated model for a batch of tokens.

    `names` are hook points in our spelling; the last layer has the positions `read` (all if None).
    """
    hook = ablation.hook(model, read=read)
    return partial(activations_at, model, names=names, read=read, hook=hook)


def hooks_of(
    model: Transformer, interventions: Sequence[AnyIntervention], read: Read, sources: Sources = ()
) -> list[TensorHook]:
    """Return each intervention as a hook, with its own source."""
    own_sources = sources or [None] * len(interventions)
    hooks = []
    for intervention, source in zip(interventions, own_sources, strict=True):
        hooks.append(intervention.hook(model, source, read))
    return hooks


def only_seen_by(watch: Hook) -> TensorHook:
    """Return a hook that shows activations to `watch`, which cannot change them."""

    def hook(name: str, x: Tensor) -> Tensor:
        watch(name, x.clone())
        return x

    return HookAt(watch.points, hook) if isinstance(watch, HookAt) else hook


@runtime_checkable
class Engine(Protocol):
    """The functions of an engine, which take and return what those of this module do."""

    def passes(
        self,
        model: Transformer,
        interventions: Sequence[AnyIntervention],
        read: Read = None,
        watch: Hook | None = None,
        sources: Sources = (),
    ) -> Passes:
        """Return a function that gives the logits under each intervention."""

    def reader(
        self,
        model: Transformer,
        names: Collection[str],
        read: Read = None,
        ablation: AnyIntervention = INTACT,
    ) -> ActivationsOf:
        """Return a function that gives activations of the ablated model."""


MODULES = (Transformer, Block, nn.ModuleList, nn.Embedding, nn.LayerNorm, nn.Linear)


# The methods of every module that run in a forward pass. `torch.compile` and other libraries
# replace some of its others, which changes no number.
OF_EVERY_MODULE = ("__call__", "_wrapped_call_impl", "_call_impl", "__getattr__")


def methods() -> dict[tuple[type, str], object]:
    """Return the methods of the classes of which a model is made, as they are now.

    Somebody may have replaced one, to try another block. `METHODS` has them as they were written.
    """
    current: dict[tuple[type, str], object] = {}
    for name in OF_EVERY_MODULE:
        current[nn.Module, name] = vars(nn.Module)[name]
    for module in MODULES:
        for name, value in vars(module).items():
            if callable(value) or isinstance(value, property):
                current[module, name] = value
    return current


METHODS = methods()


def plain() -> Engine:
    """Return this module, the engine that calls the model."""
    return cast(Engine, sys.modules[__name__])


def engine() -> Engine:
    """Return the engine that CARRY_ENGINE names; if it is unset, one that is installed.

    Raises:
        BadInput: There is none of that name.
    """
    engines = _installed()
    name = os.environ.get(VARIABLE) or next(iter(engines), PLAIN)
    if name == PLAIN:
        return plain()
    if name not in engines:
        expected = ", ".join([PLAIN, *engines])
        raise BadInput(f"{VARIABLE}={name}: expected one of {expected}.")
    return engines[name]


@cache
def _installed() -> dict[str, Engine]:
    """Return the engines that installed packages bring, by name."""
    return {point.name: point.load() for point in entry_points(group=ENTRY_POINTS)}
