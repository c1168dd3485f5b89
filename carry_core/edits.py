"""Ablations as data: what to take out of a model, printable, hashable, and stored as JSON (Sec. 2, Methodology)."""

import json
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.model import ModelConfig, Site

Pair = tuple[int, int]


@dataclass(frozen=True)
class Ablation:
    """Parts of the model whose contribution is set to zero.

    Attributes:
        heads: (layer, head) pairs; the output projection's bias stays.
        mlps: layers whose MLP adds nothing, second bias included.
        neurons: (layer, neuron) pairs, silent at all positions; the second bias stays.
        skips: layers whose attention is not bypassed: the stream becomes attn(LN(x)) alone.
    """

    heads: Set[Pair] = frozenset()
    mlps: Set[int] = frozenset()
    neurons: Set[Pair] = frozenset()
    skips: Set[int] = frozenset()

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, _CHECKED[f.name](f.name, getattr(self, f.name)))

    def __str__(self) -> str:
        parts = [f"head {layer}:{head}" for layer, head in sorted(self.heads)]
        parts += [f"MLP {layer}" for layer in sorted(self.mlps)]
        parts += [f"{len(self.neurons)} neurons"] if len(self.neurons) > 8 else []
        parts += [f"neuron {layer}:{i}" for layer, i in sorted(self.neurons)] if len(self.neurons) <= 8 else []
        parts += [f"skip {layer}" for layer in sorted(self.skips)]
        return "without " + ", ".join(parts) if parts else "intact"

    def __or__(self, other: "Ablation") -> "Ablation":
        """Both ablations at once."""
        return Ablation(**{f.name: getattr(self, f.name) | getattr(other, f.name) for f in fields(self)})

    def to_json(self) -> str:
        """A stable text: fields in order, numbers sorted, empty fields left out."""
        values = {f.name: sorted(getattr(self, f.name)) for f in fields(self)}
        return json.dumps({name: value for name, value in values.items() if value})

    @classmethod
    def from_json(cls, text: str) -> "Ablation":
        """Read what `to_json` wrote.

        Raises:
            BadInput: not JSON, no text at all, an unknown field, or a value of the wrong shape.
        """
        try:
            values = json.loads(text)
        except (TypeError, ValueError) as error:
            raise BadInput(f"{text!r} is not an ablation: expected JSON such as '{{\"heads\": [[1, 0]]}}'.") from error
        known = [f.name for f in fields(cls)]
        if not isinstance(values, dict) or not set(values) <= set(known):
            raise BadInput(f"{text!r} is not an ablation: expected a JSON object with keys among {', '.join(known)}.")
        return cls(**{name: _CHECKED[name](name, value) for name, value in values.items()})

    def check(self, config: ModelConfig) -> None:
        """Make sure the model has every part that is named.

        Raises:
            BadInput: it does not.
        """
        layers = f"layers 0-{config.layers - 1}" if config.layers > 1 else "layer 0 only"
        limits = {"heads": config.heads, "neurons": config.d_ff}
        for name, limit in limits.items():
            for layer, i in getattr(self, name):
                if not (0 <= layer < config.layers and 0 <= i < limit):
                    raise BadInput(
                        f"{name} has {layer}:{i}, but this model has {layers}"
                        f" with {name} 0-{limit - 1}: choose one of these."
                    )
        for name in ("mlps", "skips"):
            for layer in getattr(self, name):
                if not 0 <= layer < config.layers:
                    raise BadInput(f"{name} has layer {layer}, but this model has {layers}.")

    def at(self, layer: int) -> "Ablation":
        """What it takes out of one layer."""
        heads, neurons = ({pair for pair in part if pair[0] == layer} for part in (self.heads, self.neurons))
        return Ablation(heads, self.mlps & {layer}, neurons, self.skips & {layer})

    def steps(self, config: ModelConfig) -> dict[int, tuple["Ablation", Site]]:
        """The layers that it changes, each with what it does there, as `forks.Forks` takes it.

        Raises:
            BadInput: the model has no such part.
        """
        self.check(config)
        parts = {layer: self.at(layer) for layer in range(config.layers)}
        return {layer: (part, part.site(config)) for layer, part in parts.items() if part != INTACT}

    def site(self, config: ModelConfig) -> Site:
        """The ablation as a site function for `config`'s model.

        Zeroing a head's `attn.z` is zeroing its probabilities in all rows; silencing a neuron's `mlp.post` is
        setting its pre-activation to zero.
        """
        self.check(config)
        changes: dict[str, Callable[[Tensor], Tensor]] = {}
        for layer in range(config.layers):
            if heads := [head for at, head in sorted(self.heads) if at == layer]:
                changes[f"blocks.{layer}.attn.z"] = _without(heads, -2)
            if neurons := [neuron for at, neuron in sorted(self.neurons) if at == layer]:
                changes[f"blocks.{layer}.mlp.post"] = _without(neurons, -1)
            if layer in self.mlps:
                changes[f"blocks.{layer}.mlp_out"] = torch.zeros_like
            if layer in self.skips:
                changes[f"blocks.{layer}.attn.skip"] = torch.zeros_like
        return lambda name, tensor: changes[name](tensor) if name in changes else tensor


def _without(parts: list[int], dim: int) -> Callable[[Tensor], Tensor]:
    index = torch.tensor(parts)
    return lambda x: x.index_fill(dim, index.to(x.device), 0.0)


def _pairs(name: str, values: Any) -> frozenset[Pair]:
    try:
        pairs = [(layer, i) for layer, i in values]
    except (TypeError, ValueError) as error:
        raise BadInput(f"{name}={values!r}: expected pairs of a layer and a number, such as [[1, 0]].") from error
    _whole(name, [i for pair in pairs for i in pair])
    return frozenset(pairs)


def _layers(name: str, values: Any) -> frozenset[int]:
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise BadInput(f"{name}={values!r}: expected layers, such as [1].")
    layers = list(values)
    _whole(name, layers)
    return frozenset(layers)


def _whole(name: str, values: list[Any]) -> None:
    if not all(type(value) is int for value in values):
        raise BadInput(f"{name} has {values!r}: expected whole numbers.")


def recorder(keep: dict[str, Tensor], *names: str) -> Site:
    """A site function that stores the named tensors (all if none are named) in `keep` and changes nothing."""

    def site(name: str, tensor: Tensor) -> Tensor:
        if not names or name in names:
            keep[name] = tensor
        return tensor

    return site


_CHECKED: dict[str, Callable[[str, Any], Any]] = {"heads": _pairs, "mlps": _layers, "neurons": _pairs, "skips": _layers}
INTACT = Ablation()
