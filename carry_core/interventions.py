"""Interventions as data: parts of the model that are set to zero, to their mean, or to what they are for another sum.

    Ablation(heads={(1, 0)}, mlps={1})                        zero ablation, the paper's (Sec. 2, Methodology)
    MeanAblation(patterns={(1, 0)})                           the mean over a reference set, as output or as pattern
    Patch(heads={(1, 0)}, positions=(7,), source=(152, 261))  activation patching from the sum 152 + 261

All three name parts in the same way, print themselves, are stored by `to_json` and read by `from_json`, and become
a hook by `hook(model, source, read)`:

    source   Patch: two numbers, or two tensors `[batch]` with one sum for each row of the batch, or cached activations
             `{name: tensor}`; its own `source` if None. MeanAblation: the reference set, or cached means.
    read     the positions that the model is asked for, as in `model(tokens, hook, read)`; all if None.

`|` combines them: two of one kind (and the same positions and source) give one of that kind, others a `Combined`,
whose hook does the first, then the second.
"""

import json
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import index
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from carry_core import sums
from carry_core.errors import BadInput
from carry_core.model import Hook, ModelConfig, Transformer, cache_hook
from carry_core.sums import Numbers

Pair = tuple[int, int]
Sums = tuple[Numbers, Numbers]
Cache = Mapping[str, Float[Tensor, "..."]]
Source = Pair | Sums | Cache
Read = Sequence[int] | None
Values = Mapping[str, float | Tensor]

# What each kind of part is called, where it acts, and the axis that its heads or neurons have there.
PARTS = {
    "heads": ("head", "attn.z", -2),
    "patterns": ("pattern", "attn.pattern", -3),
    "mlps": ("MLP", "mlp_out", None),
    "neurons": ("neuron", "mlp.post", -1),
    "skips": ("skip", "attn.skip", None),
    "resid": ("stream", "resid_pre", None),
}
PAIRS = ("heads", "patterns", "neurons")
AT_ALL_POSITIONS = ("resid_pre", "attn.k", "attn.v")  # in the last layer too, when few positions are read
POSITION_THIRD = ("attn.q", "attn.k", "attn.v", "attn.z")  # axis of the positions from the end; else the second


@dataclass(frozen=True)
class Intervention:
    """Parts of the model, at all positions or some, whose activations are replaced.

    Attributes:
        heads: (layer, head) pairs, by their output `attn.z`; the output projection's bias stays.
        mlps: layers, by what their MLP adds, `mlp_out`, second bias included.
        neurons: (layer, neuron) pairs, by their activation `mlp.post`.
        skips: layers, by what bypasses their attention, `attn.skip`.
        patterns: (layer, head) pairs, by their attention probabilities `attn.pattern`.
        resid: layers, by the stream that enters them, `resid_pre`.
        names: any other activations, whole, by their names: `blocks.0.resid_mid`.
        positions: token positions (of the query, in a pattern) at which they are replaced; all if None.
    """

    heads: Set[Pair] = frozenset()
    mlps: Set[int] = frozenset()
    neurons: Set[Pair] = frozenset()
    skips: Set[int] = frozenset()
    patterns: Set[Pair] = frozenset()
    resid: Set[int] = frozenset()
    names: Set[str] = frozenset()
    positions: tuple[int, ...] | None = None

    verb: ClassVar[str] = "replaced"

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _parsed(field.name, getattr(self, field.name)))

    def __str__(self) -> str:
        parts: list[str] = []
        for kind, (label, *_) in PARTS.items():
            chosen = [":".join(map(str, p)) if kind in PAIRS else p for p in sorted(getattr(self, kind))]
            parts += [f"{label} {part}" for part in chosen] if len(chosen) <= 8 else [f"{len(chosen)} {kind}"]
        parts += sorted(self.names)
        where = "" if self.positions is None else f" at {', '.join(map(str, self.positions))}"
        return f"{self.verb} {', '.join(parts)}{where}" if parts else "intact"

    def __or__(self, other: "Intervention | Combined") -> "Intervention | Combined":
        """Both at once."""
        parts = (*PARTS, "names")
        if isinstance(other, Combined) or replace(self, **{name: getattr(other, name) for name in parts}) != other:
            return Combined((self,)) | other
        return replace(self, **{name: getattr(self, name) | getattr(other, name) for name in parts})

    def to_json(self) -> str:
        """A stable text: the kind, then fields in order, numbers sorted, empty fields left out."""
        return json.dumps(self._fields())

    def _fields(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values = {name: sorted(value) if isinstance(value, Set) else value for name, value in values.items()}
        return {"kind": type(self).__name__} | {k: value for k, value in values.items() if value not in (None, [])}

    @classmethod
    def from_json(cls, text: str) -> "Intervention | Combined":
        """Read what `to_json` wrote, else `BadInput`; one that names no kind is of this class."""
        kinds = {each.__name__: each for each in (Ablation, MeanAblation, Patch)}
        try:
            values = json.loads(text)
            if isinstance(values, list):
                return Combined(tuple(cast(Intervention, cls.from_json(json.dumps(part))) for part in values))
            kind = kinds[values.pop("kind", cls.__name__)]
            return kind(**{name: _parsed(name, value) for name, value in values.items()})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            expected = f'{{"kind": "{cls.__name__}", "heads": [[1, 0]]}}'
            raise BadInput(f"{text!r} is not an intervention: expected JSON such as '{expected}'.") from error

    def targets(self, config: ModelConfig) -> dict[str, tuple[int, ...] | None]:
        """The names of the activations that are replaced, each with its heads or neurons (None: all of it).

        `BadInput` if the model has no such part or position.
        """
        targets: dict[str, tuple[int, ...] | None] = {}
        for kind, (label, point, axis) in PARTS.items():
            count = config.d_ff if kind == "neurons" else config.heads
            for part in sorted(getattr(self, kind)):
                layer, i = part if kind in PAIRS else (part, 0)
                if not (0 <= layer < config.layers and 0 <= i < count):
                    below = f", {label} below {count}" if kind in PAIRS else ""
                    raise BadInput(f"{kind} has {part}: expected a layer below {config.layers}{below}.")
                name = f"blocks.{layer}.{point}"
                targets[name] = None if axis is None else (*(targets.get(name) or ()), i)
        targets |= dict.fromkeys(map(config.hook_name, sorted(self.names)))
        if not all(0 <= position < config.layout.length for position in self.positions or ()):
            raise BadInput(f"positions={self.positions}: expected positions from 0 to {config.layout.length - 1}.")
        return targets

    def changes(self, config: ModelConfig) -> dict[str, Hashable]:
        """By name, what is done there: two interventions do the same where this is equal."""
        how = (type(self), self.positions, getattr(self, "source", None))
        return {name: (how, indices) for name, indices in self.targets(config).items()}

    def hook(self, model: Transformer, source: Source | None = None, read: Read = None) -> Hook:
        """The intervention as a hook for `model`; arguments as at the top of this module.

        `BadInput` if the model has no such part or position, or there is nothing to replace it with.
        """
        targets = self.targets(model.config)
        values = self.values(model, list(targets), source, read) if targets else {}
        device = model.embed.weight.device
        masks = {name: self._mask(name, i, model.config, read).to(device) for name, i in targets.items()}

        def replaced(name: str, x: Tensor) -> Tensor:
            if name not in masks:
                return x
            value = values[name]
            if isinstance(value, Tensor) and value.dim() == x.dim() and len(value) not in (1, len(x)):
                raise BadInput(f"A patch from {len(value)} sums in a batch of {len(x)}: expected one, or one a row.")
            return torch.where(masks[name], value, x)

        return replaced

    def _mask(self, name: str, indices: Sequence[int] | None, config: ModelConfig, read: Read) -> Bool[Tensor, "..."]:
        """Where in the named tensor values are replaced; it broadcasts over the batch."""
        mask = torch.tensor(True)
        if indices is not None:
            axis = next(axis for _, point, axis in PARTS.values() if axis is not None and name.endswith(point))
            mask = mask & _along(axis, config.d_ff if axis == -1 else config.heads, indices)
        if self.positions is not None:
            last = name.startswith((f"blocks.{config.layers - 1}.", "logits")) and not name.endswith(AT_ALL_POSITIONS)
            rows = read if last and read is not None else range(config.layout.length)
            chosen = [row for row, position in enumerate(rows) if position in self.positions]
            mask = mask & _along(-3 if name.endswith(POSITION_THIRD) else -2, len(rows), chosen)
        return mask

    def values(self, model: Transformer, names: Sequence[str], source: Source | None, read: Read) -> Values:
        """What stands in place of the named activations."""
        raise NotImplementedError


class Ablation(Intervention):
    """Zero ablation: the parts contribute nothing (Sec. 2, Methodology).

    A neuron is silent, an MLP adds nothing, and without a skip the stream after the attention is attn(LN(x)) alone.
    """

    verb = "without"

    def values(self, model: Transformer, names: Sequence[str], source: Source | None, read: Read) -> Values:
        """Zeros."""
        return dict.fromkeys(names, 0.0)


class MeanAblation(Intervention):
    """Mean ablation: the parts are, position by position, their mean over a reference set (beyond the paper).

    A head's output is held by `heads`; by `patterns` only where it looks, and what it brings from there still varies.
    The reference set is 10,000 random sums if `hook` is given none.
    """

    verb = "mean of"

    def values(self, model: Transformer, names: Sequence[str], source: Source | None, read: Read) -> Values:
        """Means over the reference set."""
        if isinstance(source, Mapping):
            return source
        a, b = source or sums.long_sums(10_000, model.config.width, torch.Generator().manual_seed(0))
        return means(model, torch.as_tensor(a).reshape(-1), torch.as_tensor(b).reshape(-1), names, read)


@dataclass(frozen=True)
class Patch(Intervention):
    """Activation patching: the parts are what they are for another sum (interchange, if it is chosen with care)."""

    source: Pair | None = None  # the other sum's two numbers; None if `hook` is given them, for each row of the batch
    verb: ClassVar[str] = "patched"

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.source is None or text == "intact" else f"{text} from {self.source[0]}+{self.source[1]}"

    def values(self, model: Transformer, names: Sequence[str], source: Source | None, read: Read) -> Values:
        """The activations of the source's sums, or of one that broadcasts over the batch."""
        source = self.source if source is None else source
        if source is None:
            raise BadInput("This patch has no source: expected two numbers, such as source=(152, 261).")
        if isinstance(source, Mapping):
            return source
        a, b = (torch.as_tensor(x, device=model.embed.weight.device).reshape(-1) for x in source)
        cache: dict[str, Tensor] = {}
        with torch.no_grad():
            model(sums.encode(a, b, model.config.layout), cache_hook(cache, *names), read)
        return cache


@dataclass(frozen=True)
class Combined:
    """Interventions one after the other; where they replace the same, the later one counts."""

    parts: tuple[Intervention, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.parts))

    def __or__(self, other: "Intervention | Combined") -> "Combined":
        return Combined(self.parts + (other.parts if isinstance(other, Combined) else (other,)))

    def to_json(self) -> str:
        """A list of what `Intervention.to_json` writes."""
        return json.dumps([part._fields() for part in self.parts])

    def changes(self, config: ModelConfig) -> dict[str, Hashable]:
        """As `Intervention.changes`."""
        changes: dict[str, Hashable] = {}
        for part in self.parts:
            changes |= {name: (changes.get(name), change) for name, change in part.changes(config).items()}
        return changes

    def hook(self, model: Transformer, source: Source | None = None, read: Read = None) -> Hook:
        """All parts' hooks; a `source` is for patches that have none of their own."""
        given = [source if isinstance(part, Patch) and part.source is None else None for part in self.parts]
        hooks = [part.hook(model, x, read) for part, x in zip(self.parts, given, strict=True)]
        return lambda name, x: reduce(lambda changed, hook: hook(name, changed), hooks, x)


@torch.no_grad()
def means(
    model: Transformer, a: Numbers, b: Numbers, names: Sequence[str], read: Read = None
) -> dict[str, Float[Tensor, "..."]]:
    """The named activations averaged over sums; of the last layer at the positions `read` only (all if None)."""
    total: dict[str, Tensor] = {}
    for part_a, part_b in zip(a.split(256), b.split(256), strict=True):
        cache: dict[str, Tensor] = {}
        model(sums.encode(part_a, part_b, model.config.layout), cache_hook(cache, *names), read)
        for name in names:
            total[name] = total.get(name, torch.zeros(())) + cache[name].double().sum(0)
    return {name: (x / len(a)).to(model.embed.weight.dtype) for name, x in total.items()}


def _along(axis: int, size: int, indices: Sequence[int]) -> Bool[Tensor, "..."]:
    """A mask over one axis, counted from the end, that broadcasts over the others."""
    mask = torch.zeros(size, dtype=torch.bool)
    mask[list(indices)] = True
    return mask.view(-1, *[1] * (-axis - 1))


def _parsed(field: str, value: Any) -> Any:
    """A field's value as frozen data: pairs, layers and names as a set, positions in order, the source as a pair."""
    if value is None and field in ("positions", "source"):
        return None
    try:
        if field == "names":
            return frozenset(name.replace("hook_", "") for name in value)
        if field in PAIRS:
            return frozenset((index(layer), index(i)) for layer, i in value)
        numbers = tuple(map(index, value))
        if field == "source":
            a, b = numbers
            return a, b
        return tuple(sorted(set(numbers))) if field == "positions" else frozenset(numbers)
    except (AttributeError, TypeError, ValueError) as error:
        example = '["blocks.0.resid_mid"]' if field == "names" else "[[1, 0]]" if field in PAIRS else "[1]"
        raise BadInput(f"{field}={value!r}: expected values such as {example}.") from error


INTACT = Ablation()
