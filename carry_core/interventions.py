"""Interventions as data: parts of the model that are ablated, or patched from another sum.

    Ablation(heads={(1, 0)}, mlps={1})
        zero ablation, the paper's (Sec. 2, Methodology)
    MeanAblation(patterns={(1, 0)})
        the mean over a reference set, of outputs or of attention patterns
    Patch(heads={(1, 0)}, positions=(7,), source=(152, 261))
        activation patching from the sum 152 + 261

All three name their parts in the same way. `str` prints them, `to_json` stores them, `from_json`
reads them back, and `hook(model, source, read)` makes them a hook, which can be pickled:

    source   For a Patch: two numbers, or two tensors `[batch]` with a sum for each row of the
             batch, or cached activations `{name: tensor}`; its own `source` if None.
             For a MeanAblation: the reference set, or cached means.
             In a cache of some positions each name is a `hooks.Point`, as `measure.activations`
             returns it; under a plain name an activation has all.
    read     The positions that the model will be asked for, as in `model(tokens, hook, read)`;
             all if None. Where the hook has no values for others, they are a `BadInput`.

`|` combines them: two of one kind, with the same positions and source, give one of that kind. Any
other two give a `Combined`, whose hook does the first, then the second.

A new kind is a class with a `hook` of its own. It names its parts, and is measured, as these are:

    class Doubled(Intervention):
        verb = "doubled"

        def hook(self, model, source=None, read=None):
            points = frozenset(self.targets(model.config))  # here whole activations
            return HookAt(points, lambda name, x: 2 * x)

`accuracy(model, a, b, Doubled(mlps={0}))` measures it. Where it need only replace parts by other
values, it has `values` in place of `hook`.
"""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from carry_core import sums
from carry_core.errors import BadInput, whole
from carry_core.hooks import HookAt, Point, TensorHook, plain_name
from carry_core.model import ModelConfig, Read, Transformer, activations_at, checked_config
from carry_core.sums import Operand

Pair = tuple[int, int]
Sums = tuple[Operand, Operand]
Cache = Mapping[str, Float[Tensor, "..."]]
Source = Pair | Sums | Cache
Values = Mapping[str, float | Tensor]

REFERENCE_SUMS = 10_000  # random sums, the same for every mean ablation
BATCH = 256  # sums in a forward pass


class Part(NamedTuple):
    """A kind of part that an intervention can name."""

    label: str  # the word for one of them
    point: str  # the hook point at which it acts
    axis: int | None  # of the heads or neurons there; None if the part is the whole activation


PARTS = {
    "heads": Part("head", "attn.z", -2),
    "patterns": Part("pattern", "attn.pattern", -3),
    "mlps": Part("MLP", "mlp_out", None),
    "neurons": Part("neuron", "mlp.post", -1),
    "skips": Part("skip", "attn.skip", None),
    "resid": Part("stream", "resid_pre", None),
    "q": Part("q", "attn.q", -2),
    "k": Part("k", "attn.k", -2),
    "v": Part("v", "attn.v", -2),
}
PAIRS = ("heads", "patterns", "neurons", "q", "k", "v")  # parts that are a layer and a number
MOST_LISTED = 8  # parts of a kind that are printed one by one; more are only counted
# At these points the position axis is the third from the end, elsewhere the second.
POSITION_THIRD = ("attn.q", "attn.k", "attn.v", "attn.z")


@dataclass(frozen=True)
class Intervention:
    """Parts of the model, at all positions or some, whose activations are replaced.

    Attributes:
        heads: (layer, head) pairs whose output `attn.z` is replaced; the output projection's
            bias stays.
        mlps: Layers whose MLP output `mlp_out` is replaced, second bias included.
        neurons: (layer, neuron) pairs whose activation `mlp.post` is replaced.
        skips: Layers whose stream around the attention, `attn.skip`, is replaced.
        patterns: (layer, head) pairs whose attention probabilities `attn.pattern` are replaced.
        resid: Layers whose incoming stream `resid_pre` is replaced.
        names: Hook points whose whole activation is replaced, such as `blocks.0.resid_mid`.
        positions: Token positions (of the query, in a pattern) at which they are replaced;
            all if None.
        q: (layer, head) pairs whose queries `attn.q` are replaced, before the rotation.
        k: The same for the keys `attn.k`.
        v: The same for the values `attn.v`.
    """

    heads: Set[Pair] = frozenset()
    mlps: Set[int] = frozenset()
    neurons: Set[Pair] = frozenset()
    skips: Set[int] = frozenset()
    patterns: Set[Pair] = frozenset()
    resid: Set[int] = frozenset()
    names: Set[str] = frozenset()
    positions: tuple[int, ...] | None = None
    q: Set[Pair] = frozenset()
    k: Set[Pair] = frozenset()
    v: Set[Pair] = frozenset()

    verb: ClassVar[str] = "replaced"

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _parsed(field.name, getattr(self, field.name)))

    def __str__(self) -> str:
        words: list[str] = []
        for kind, part in PARTS.items():
            numbers = sorted(getattr(self, kind))
            if len(numbers) > MOST_LISTED:
                words.append(f"{len(numbers)} {kind}")
                continue
            for number in numbers:
                text = f"{number[0]}:{number[1]}" if kind in PAIRS else f"{number}"
                words.append(f"{part.label} {text}")
        words += sorted(self.names)
        if not words:
            return "intact"
        place = ""
        if self.positions is not None:
            place = f" at {', '.join(map(str, self.positions)) or 'no position'}"
        return f"{self.verb} {', '.join(words)}{place}"

    def __or__(self, other: "Intervention | Combined") -> "Intervention | Combined":
        """Return an intervention that does both."""
        if isinstance(other, Intervention):
            fields_of_other = {name: getattr(other, name) for name in (*PARTS, "names")}
            if replace(self, **fields_of_other) == other:  # they differ in their parts only
                both = {
                    name: getattr(self, name) | parts for name, parts in fields_of_other.items()
                }
                return replace(self, **both)
        return Combined((self, *_in_order(other)))

    def to_json(self) -> str:
        """Return a stable text: the kind, then the fields that are not empty, numbers sorted."""
        return json.dumps(self._fields())

    def _fields(self) -> dict[str, Any]:
        content: dict[str, Any] = {"kind": type(self).__name__}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value != frozenset():
                content[field.name] = sorted(value) if isinstance(value, Set) else value
        return content

    @classmethod
    def from_json(cls, text: str) -> "Intervention | Combined":
        """Return the intervention that `to_json` wrote; if no kind is named, it is of this class.

        Raises:
            BadInput: The text is not such JSON.
        """
        kinds = {kind.__name__: kind for kind in (Ablation, MeanAblation, Patch)}
        try:
            content = json.loads(text)
            members = content if isinstance(content, list) else [content]
            parts = []
            for part in members:
                kind = kinds[part.pop("kind", cls.__name__)]
                parts.append(
                    kind(**{field: _parsed(field, value) for field, value in part.items()})
                )
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            expected = f'{{"kind": "{cls.__name__}", "heads": [[1, 0]]}}'
            raise BadInput(
                f"{text!r} is not an intervention: expected JSON such as '{expected}'."
            ) from error
        return Combined(tuple(parts)) if isinstance(content, list) else parts[0]

    def targets(self, config: ModelConfig) -> dict[str, tuple[int, ...] | None]:
        """Return the names of the activations that are replaced, with the heads or neurons.

        These are None if the whole activation is replaced.

        Raises:
            BadInput: The model has no such part or position.
        """
        targets: dict[str, tuple[int, ...] | None] = {}
        for kind, part in PARTS.items():
            count = config.d_ff if kind == "neurons" else config.heads
            for number in sorted(getattr(self, kind)):
                layer, i = number if kind in PAIRS else (number, 0)
                if not (0 <= layer < config.layers and 0 <= i < count):
                    below = f", {part.label} below {count}" if kind in PAIRS else ""
                    raise BadInput(
                        f"{kind} has {number}: expected a layer below {config.layers}{below}."
                    )
                name = f"blocks.{layer}.{part.point}"
                targets[name] = None if part.axis is None else (*(targets.get(name) or ()), i)
        targets |= dict.fromkeys(map(config.hook_name, sorted(self.names)))
        last = config.layout.length - 1
        if not all(0 <= position <= last for position in self.positions or ()):
            raise BadInput(f"positions={self.positions}: expected positions from 0 to {last}.")
        return targets

    def hook(
        self, model: Transformer, source: Source | None = None, read: Read = None
    ) -> TensorHook:
        """Return the intervention as a hook for `model`; arguments as at the top of this module.

        Raises:
            BadInput: The model has no such part or position, or there is nothing to replace
                it with. The hook raises it where it has no values for positions, or for a batch.
        """
        config = checked_config(model)
        targets = self.targets(config)
        read = config.checked_read(read)
        values: Values = {}
        # TransformerLens's ActivationCache is no mapping, but has one.
        source = getattr(source, "cache_dict", source)
        if isinstance(source, Mapping):
            values = {plain_name(name): value for name, value in source.items()}
        elif targets:
            values = self.values(model, list(targets), source, read)
        missing = [name for name in targets if name not in values]
        if missing:
            raise BadInput(
                f"The source has no activation {missing[0]}: expected it under this name."
            )
        replacements: dict[str, Replacement] = {}
        for name, value in values.items():
            if name in targets:
                part = _mask_of_part(name, targets[name], config)
                new = Replacement(name, part, self.positions, value, model)
                replacements[new.name] = new
        return HookAt(frozenset(replacements), partial(_replaced, replacements))

    def values(
        self, model: Transformer, names: Sequence[str], source: Pair | Sums | None, read: Read
    ) -> Values:
        """Return the values that replace the named activations; names as in a cache."""
        raise NotImplementedError


class Ablation(Intervention):
    """Zero ablation: the parts contribute nothing (Sec. 2, Methodology).

    An ablated neuron is silent, and an ablated MLP adds nothing. Without a skip, the stream after
    the attention is attn(LN(x)) alone.
    """

    verb = "without"

    def values(
        self, model: Transformer, names: Sequence[str], source: Pair | Sums | None, read: Read
    ) -> Values:
        """Return zeros."""
        return dict.fromkeys(names, 0.0)


class MeanAblation(Intervention):
    """Mean ablation: parts are replaced by their means over a reference set (beyond the paper).

    The mean is taken at each position. `heads` fixes a head's output. `patterns` fixes only where
    the head looks; the values that it moves from there still vary. The reference set is
    `REFERENCE_SUMS` random sums if `hook` is given none.
    """

    verb = "mean of"

    def values(
        self, model: Transformer, names: Sequence[str], source: Pair | Sums | None, read: Read
    ) -> Values:
        """Return means over the reference set."""
        width = model.config.width
        if source is None:
            source = sums.long_sums(REFERENCE_SUMS, width, torch.Generator().manual_seed(0))
        return means(model, *source, names, read)


@dataclass(frozen=True)
class Patch(Intervention):
    """Activation patching: the parts get their activations from another sum.

    It is an interchange intervention if the two sums differ in one variable, as in `pairs`.

    Attributes:
        source: The other sum's two numbers; None if `hook` is given the sums, one for each
            row of the batch.
    """

    source: Pair | None = None
    verb: ClassVar[str] = "patched"

    def __str__(self) -> str:
        text = super().__str__()
        if self.source is None or text == "intact":
            return text
        return f"{text} from {self.source[0]}+{self.source[1]}"

    def values(
        self, model: Transformer, names: Sequence[str], source: Pair | Sums | None, read: Read
    ) -> Values:
        """Return the activations of the source's sums; a single sum broadcasts over the batch."""
        source = self.source if source is None else source
        if source is None:
            raise BadInput(
                "This patch has no source: expected two numbers, such as source=(152, 261)."
            )
        a, b = sums.some_sums(*source, model.config.width)
        tokens = sums.encode(a, b, model.config.layout).to(model.device)
        with torch.no_grad():
            return activations_at(model, tokens, names, read)


@dataclass(frozen=True)
class Combined:
    """Interventions in order; where two replace the same part, the later one wins."""

    parts: tuple[Intervention, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.parts))

    def __or__(self, other: "Intervention | Combined") -> "Combined":
        return Combined((*self.parts, *_in_order(other)))

    def to_json(self) -> str:
        """Return the interventions as a JSON list of what `Intervention.to_json` writes."""
        return json.dumps([part._fields() for part in self.parts])

    def hook(
        self, model: Transformer, source: Source | None = None, read: Read = None
    ) -> TensorHook:
        """Return all hooks as one; `source` goes to the patches that have none of their own."""
        config = checked_config(model)
        hooks = []
        points: set[str] = set()
        for part in self.parts:
            needs_source = isinstance(part, Patch) and part.source is None
            hooks.append(part.hook(model, source if needs_source else None, read))
            points |= part.targets(config).keys()
        return HookAt(frozenset(points), partial(_in_turn, hooks))


AnyIntervention = Intervention | Combined


def _in_order(intervention: AnyIntervention) -> tuple[Intervention, ...]:
    return intervention.parts if isinstance(intervention, Combined) else (intervention,)


# Hooks are partials of these two, since a function inside a function could be neither pickled nor
# sent to another process.
def _replaced(by_point: Mapping[str, "Replacement"], name: str, x: Tensor) -> Tensor:
    """Return the activation as a hook point's own replacement changes it."""
    return by_point[name](name, x)


def _in_turn(hooks: Sequence[TensorHook], name: str, x: Tensor) -> Tensor:
    """Return what the last hook makes of the activation, after those before it."""
    for hook in hooks:
        x = hook(name, x)
    return x


class Replacement:
    """A value that takes the place of a hook point's activation, or of a part of it.

    Attributes:
        everywhere: All positions of the point's activation.
        rows: The positions that the value has; None if it is the same at all of them.
    """

    def __init__(
        self,
        name: str,
        part: Bool[Tensor, "..."],
        positions: tuple[int, ...] | None,
        value: float | Tensor,
        model: Transformer,
    ) -> None:
        self.name, self.positions, self.value = str(name), positions, value
        self.part = part.to(model.device)
        self.axis = -3 if name.endswith(POSITION_THIRD) else -2  # of the positions
        self.everywhere = model.config.positions_at(name, None)
        self.rows: tuple[int, ...] | None = None
        if isinstance(value, Tensor):
            n_rows = value.shape[self.axis] if value.ndim >= -self.axis else 0
            self.rows = name.positions if isinstance(name, Point) else self.everywhere
            if n_rows != len(self.rows):
                raise BadInput(
                    f"A source has shape {[*value.shape]} at {name}: expected the positions "
                    f"{[*self.rows]}, or its name as `activations` returns it."
                )

    def __call__(self, point: str, x: Tensor) -> Tensor:
        """Return the activation with the target replaced."""
        mask, value = self.part, self.value
        if self.positions is not None:
            places = self.positions
            rows = [row for row, p in enumerate(self._positions_of(point, x)) if p in places]
            mask = mask & _along(self.axis, x.shape[self.axis], rows).to(mask.device)
        if isinstance(value, Tensor):
            value = self._value_at(self._positions_of(point, x), value)
            has_batch = value.ndim == x.ndim
            fits_batch = not has_batch or len(value) in (1, len(x))
            if not fits_batch or value.shape[has_batch:] != x.shape[1:]:
                raise BadInput(
                    f"A source has shape {[*value.shape]} at {self.name}: expected {[*x.shape]}, "
                    "with one sum or one a row."
                )
            value = value.to(x)
        return torch.where(mask, value, x)

    def _positions_of(self, point: str, x: Tensor) -> tuple[int, ...]:
        """Return an activation's positions: those of a `Point`; under a plain name, all."""
        positions = point.positions if isinstance(point, Point) else self.everywhere
        if x.shape[self.axis] != len(positions):
            raise BadInput(
                f"An intervention at {self.name} for the positions {[*positions]} met an "
                f"activation of shape {[*x.shape]}: expected a `Point`, with its positions."
            )
        return positions

    def _value_at(self, positions: tuple[int, ...], value: Tensor) -> Tensor:
        """Return the rows of the value at these positions."""
        if self.rows is None or self.rows == positions:
            return value
        if not {*positions} <= {*self.rows}:
            raise BadInput(
                f"An intervention has values for the positions {[*self.rows]} at {self.name}, "
                f"and the model is asked for {[*positions]}: make its hook with the same `read`, "
                "and its cache."
            )
        rows = [self.rows.index(position) for position in positions]
        return value.index_select(self.axis, torch.tensor(rows, device=value.device))


@torch.no_grad()
def means(
    model: Transformer,
    a: Operand,
    b: Operand,
    names: Sequence[str],
    read: Read = None,
) -> dict[str, Float[Tensor, "..."]]:
    """Return the named activations averaged over the sums a + b.

    Those of the last layer have only the positions `read` (all if None).
    """
    a, b = sums.some_sums(a, b, checked_config(model).width)
    total: dict[str, Tensor] = {}
    for batch_a, batch_b in zip(a.split(BATCH), b.split(BATCH), strict=True):
        tokens = sums.encode(batch_a, batch_b, model.config.layout).to(model.device)
        for name, x in activations_at(model, tokens, names, read).items():
            total[name] = total.get(name, 0.0) + x.double().sum(0)
    dtype = model.embed.weight.dtype
    return {name: (x / len(a)).to(dtype) for name, x in total.items()}


def _mask_of_part(
    name: str, indices: Sequence[int] | None, config: ModelConfig
) -> Bool[Tensor, "..."]:
    """Return a mask of some heads or neurons (all if None) in the activation at a hook point."""
    if indices is None:
        return torch.tensor(True)
    axes = {part.point: part.axis for part in PARTS.values()}
    axis = axes[name.split(".", 2)[2]]
    assert axis is not None
    return _along(axis, config.d_ff if name.endswith("mlp.post") else config.heads, indices)


def _along(axis: int, size: int, indices: Sequence[int]) -> Bool[Tensor, "..."]:
    """Return a mask over one axis, counted from the end, that broadcasts over the others."""
    mask = torch.zeros(size, dtype=torch.bool)
    mask[list(indices)] = True
    return mask.view(-1, *[1] * (-axis - 1))


def _parsed(field: str, value: Any) -> Any:
    """Return a field's value as frozen data: a set of parts, or a tuple of positions or numbers."""
    if value is None and field in ("positions", "source"):
        return None
    try:
        if field == "names" and not isinstance(value, str):
            return frozenset(map(plain_name, value))
        if field in PAIRS:
            return frozenset((whole(layer), whole(i)) for layer, i in value)
        numbers = tuple(map(whole, value))
        if field == "source":
            a, b = numbers
            return a, b
        return tuple(sorted({*numbers})) if field == "positions" else frozenset(numbers)
    except (AttributeError, TypeError, ValueError) as error:
        example = "{(1, 0)}" if field in PAIRS else "{1}"
        if field == "names":
            example = '{"blocks.0.resid_mid"}'
        raise BadInput(f"{field}={value!r}: expected values such as {example}.") from error


INTACT = Ablation()
