"""Interventions as data: parts of the model that are ablated, or patched from another sum.

    Ablation(heads={(1, 0)}, mlps={1})
        zero ablation, the paper's (Sec. 2, Methodology)
    MeanAblation(patterns={(1, 0)})
        the mean over a reference set, of outputs or of attention patterns
    Patch(heads={(1, 0)}, positions=(7,), source=(152, 261))
        activation patching from the sum 152 + 261

All three name their parts in the same way. `str` prints them, `to_json` stores them, `from_json`
reads them back, and `hook(model, source, read)` makes them a hook. Interventions and their hooks
can be pickled and copied, so they can be sent to another process. The arguments of `hook` are:

    source   For a Patch: two numbers, or two tensors `[batch]` with a sum for each row of the
             batch, or cached activations `{name: tensor}`; its own `source` if None.
             For a MeanAblation: the reference set, or cached means.
    read     The positions that the model will be asked for, as in `model(tokens, hook, read)`;
             all if None. The hook also works at other positions, unless it has to replace
             activations for which it has no values: that is a `BadInput`.

`|` combines them: two of one kind, with the same positions and source, give one of that kind. Any
other two give a `Combined`, whose hook does the first, then the second.
"""

import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
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
# Activations by the names of their hook points, from tokens `[batch, pos]`.
ActivationsOf = Callable[[Int[Tensor, "batch pos"]], dict[str, Tensor]]

REFERENCE_SUMS = 10_000  # random sums, the same for every mean ablation
BATCH = 256  # sums in a forward pass


class Part(NamedTuple):
    """A kind of part that an intervention can name.

    Attributes:
        label: The word for one of them.
        point: The hook point at which it acts.
        axis: The axis of the heads or neurons there; None if the part is the whole activation.
    """

    label: str
    point: str
    axis: int | None


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
        """Return an intervention that does both.

        Raises:
            BadInput: `other` is not an intervention.
        """
        check_intervention(other)
        if isinstance(other, Combined):
            return Combined((self, *other.parts))
        fields_of_other = {name: getattr(other, name) for name in (*PARTS, "names")}
        differ_in_parts_only = replace(self, **fields_of_other) == other
        if not differ_in_parts_only:
            return Combined((self, other))
        both = {name: getattr(self, name) | value for name, value in fields_of_other.items()}
        return replace(self, **both)

    def to_json(self) -> str:
        """Return a stable text: the kind, then the fields that are not empty, numbers sorted."""
        return json.dumps(self._fields())

    def _fields(self) -> dict[str, Any]:
        content: dict[str, Any] = {"kind": type(self).__name__}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Set):
                value = sorted(value)
            if value not in (None, []):
                content[field.name] = value
        return content

    @classmethod
    def from_json(cls, text: str) -> "Intervention | Combined":
        """Return the intervention that `to_json` wrote; if no kind is named, it is of this class.

        Raises:
            BadInput: The text is not such JSON.
        """
        try:
            values = json.loads(text)
            if isinstance(values, list):
                return Combined(tuple(cls._from_fields(part) for part in values))
            return cls._from_fields(values)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            expected = f'{{"kind": "{cls.__name__}", "heads": [[1, 0]]}}'
            raise BadInput(
                f"{text!r} is not an intervention: expected JSON such as '{expected}'."
            ) from error

    @classmethod
    def _from_fields(cls, values: dict[str, Any]) -> "Intervention":
        kinds = {kind.__name__: kind for kind in (Ablation, MeanAblation, Patch)}
        kind = kinds[values.pop("kind", cls.__name__)]
        return kind(**{name: _parsed(name, value) for name, value in values.items()})

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
                if part.axis is None:
                    targets[name] = None
                else:
                    targets[name] = (*(targets.get(name) or ()), i)
        for name in sorted(self.names):
            targets[config.hook_name(name)] = None
        length = config.layout.length
        if not all(0 <= position < length for position in self.positions or ()):
            raise BadInput(
                f"positions={self.positions}: expected positions from 0 to {length - 1}."
            )
        return targets

    def hook(
        self, model: Transformer, source: Source | None = None, read: Read = None
    ) -> TensorHook:
        """Return the intervention as a hook for `model`; arguments as at the top of this module.

        Raises:
            BadInput: The model has no such part or position, or there is nothing to replace
                it with. The hook raises it when it runs on positions, or on a batch, for which
                it has no values.
        """
        config = checked_config(model)
        targets = self.targets(config)
        read = config.checked_read(read)
        values: Values = {}
        # TransformerLens's ActivationCache is no mapping, but has one.
        source = getattr(source, "cache_dict", source)
        if isinstance(source, Mapping):
            values = cached_values(source, list(targets), config, read)
        elif targets:
            values = self.values(model, list(targets), source, read)
        replacements: dict[str, Replacement] = {}
        for name, indices in targets.items():
            part = Target(name, indices, self.positions)
            replacements[name] = Replacement(part, values[name], model, read)
        return HookAt(frozenset(replacements), partial(_replaced, replacements))

    def values(
        self, model: Transformer, names: Sequence[str], source: Pair | Sums | None, read: Read
    ) -> Values:
        """Return the values that replace the named activations."""
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
        return means(model, *sums.some_sums(source, width), names, read)


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
        a, b = sums.some_sums(source, model.config.width)
        tokens = sums.input_tokens(a, b, model.config.layout).to(model.device)
        with torch.no_grad():
            return activations_at(model, tokens, names, read)


@dataclass(frozen=True)
class Combined:
    """Interventions in order; where two replace the same part, the later one wins.

    Raises:
        BadInput: One of `parts` is no intervention.
    """

    parts: tuple[Intervention, ...]

    def __post_init__(self) -> None:
        parts: list[Intervention] = []
        for part in self.parts if isinstance(self.parts, Sequence) else [self.parts]:
            check_intervention(part)
            parts += part.parts if isinstance(part, Combined) else [part]
        object.__setattr__(self, "parts", tuple(parts))

    def __str__(self) -> str:
        return "; ".join(map(str, self.parts))

    def __or__(self, other: "Intervention | Combined") -> "Combined":
        check_intervention(other)
        later = other.parts if isinstance(other, Combined) else (other,)
        return Combined(self.parts + later)

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


class Target(NamedTuple):
    """The part of a hook point's activation that is replaced.

    Attributes:
        name: The hook point.
        indices: The heads or neurons; all if None.
        positions: The token positions; all if None.
    """

    name: str
    indices: tuple[int, ...] | None
    positions: tuple[int, ...] | None


class Replacement:
    """A value that takes the place of a hook point's activation, or of a part of it.

    It works at whatever positions the model is asked for, as long as it has values for them.
    """

    def __init__(
        self, target: Target, value: float | Tensor, model: Transformer, read: Read
    ) -> None:
        """Prepare what replaces the target when the model is asked for `read`.

        A tensor value has either the positions `read` (all if None) or all positions.
        """
        self.name = target.name
        self.positions = target.positions
        self.value = value
        self.device = model.device
        self.axis = -3 if self.name.endswith(POSITION_THIRD) else -2  # of the positions
        self.everywhere = model.config.positions_at(self.name, None)
        self.asked = model.config.positions_at(self.name, read)
        self.rows = self._rows_of_value()
        self.part = torch.tensor(True)
        if target.indices is not None:
            self.part = _mask_of_part(target.name, target.indices, model.config)
        self.prepared = self._mask_and_value(self.asked)

    def __call__(self, point: str, x: Tensor) -> Tensor:
        """Return the activation with the target replaced."""
        mask, value = self.prepared
        if self.positions is not None or self.rows is not None:
            positions = self._positions_of(point, x)
            if positions != self.asked:
                mask, value = self._mask_and_value(positions)
        if isinstance(value, Tensor):
            value = self._fitted(value, x)
        return torch.where(mask, value, x)

    def _positions_of(self, point: str, x: Tensor) -> tuple[int, ...]:
        """Return an activation's positions: those that the model names, else those of `read`."""
        positions = self.everywhere if torch.compiler.is_compiling() else self.asked
        if isinstance(point, Point):
            positions = point.positions
        if x.shape[self.axis] != len(positions):
            raise BadInput(
                f"An intervention at {self.name} for the positions {[*positions]} met an "
                f"activation of shape {[*x.shape]}: make its hook with the model's `read`."
            )
        return positions

    def _rows_of_value(self) -> tuple[int, ...] | None:
        """Return the positions that the value has; None if it is the same at all of them."""
        if not isinstance(self.value, Tensor):
            return None
        for positions in (self.asked, self.everywhere):
            if self.value.ndim >= -self.axis and self.value.shape[self.axis] == len(positions):
                return positions
        raise BadInput(
            f"A source has shape {[*self.value.shape]} at {self.name}: "
            f"expected the positions {[*self.asked]}, or all."
        )

    def _mask_and_value(
        self, positions: tuple[int, ...]
    ) -> tuple[Bool[Tensor, "..."], float | Tensor]:
        """Return a mask of what is replaced in an activation at these positions, and the values.

        Both broadcast over the batch.
        """
        replaced_positions = positions if self.positions is None else self.positions
        mask = self.part
        if self.positions is not None:
            rows = [row for row, position in enumerate(positions) if position in replaced_positions]
            mask = mask & _along(self.axis, len(positions), rows)
        mask = mask.to(self.device)
        if not isinstance(self.value, Tensor) or self.rows is None or self.rows == positions:
            return mask, self.value
        needed = set(positions) & set(replaced_positions)
        if not needed:
            return mask, 0.0
        if not needed <= set(self.rows):
            raise BadInput(
                f"An intervention has values for the positions {[*self.rows]} at {self.name}, "
                f"and the model is asked for {[*positions]}: make its hook with the same `read`."
            )
        rows = [self.rows.index(p) if p in needed else 0 for p in positions]
        index_of_rows = torch.tensor(rows, device=self.value.device)
        return mask, self.value.index_select(self.axis, index_of_rows)

    def _fitted(self, value: Tensor, x: Tensor) -> Tensor:
        """Return the value in the activation's dtype; raise `BadInput` if it does not fit."""
        has_batch = value.ndim == x.ndim
        if has_batch and len(value) not in (1, len(x)):
            raise BadInput(
                f"A patch from {len(value)} sums in a batch of {len(x)}: "
                "expected one, or one a row."
            )
        if value.shape[has_batch:] != x.shape[1:]:
            raise BadInput(
                f"A source has shape {[*value.shape]} at {self.name}: expected {[*x.shape]}."
            )
        return value.to(x)


def cached_values(
    source: Cache, names: Sequence[str], config: ModelConfig, read: Read
) -> dict[str, Tensor]:
    """Return the activations of a cache under our names; its keys may be TransformerLens's.

    Raises:
        BadInput: A named activation is missing or is not a tensor of floats; or `read` lists
            all positions in another order, so that the cache's order is unclear.
    """
    if read is not None and len(read) == config.layout.length and [*read] != sorted(read):
        raise BadInput(
            f"read={[*read]} with cached activations: expected positions in ascending order."
        )
    values = {plain_name(name): value for name, value in source.items()}
    for name in names:
        if not (isinstance(values.get(name), Tensor) and values[name].is_floating_point()):
            raise BadInput(
                f"The source has no activation {name}: expected a tensor under this name, as "
                "`run_with_cache` returns them."
            )
    return values


@torch.no_grad()
def means(
    model: Transformer,
    a: Operand,
    b: Operand,
    names: Sequence[str],
    read: Read = None,
    activations_of: ActivationsOf | None = None,
) -> dict[str, Float[Tensor, "..."]]:
    """Return the named activations averaged over the sums a + b.

    Those of the last layer have only the positions `read` (all if None). `activations_of` gives the
    activations of a batch of tokens; by default it is a pass of the model.

    Raises:
        BadInput: As `sums.some_sums`.
    """
    a, b = sums.some_sums((a, b), checked_config(model).width)
    if activations_of is None:
        activations_of = partial(activations_at, model, names=names, read=read)
    total: dict[str, Tensor] = {}
    for batch_a, batch_b in zip(a.split(BATCH), b.split(BATCH), strict=True):
        tokens = sums.input_tokens(batch_a, batch_b, model.config.layout).to(model.device)
        for name, x in activations_of(tokens).items():
            total[name] = total.get(name, 0.0) + x.double().sum(0)
    dtype = model.embed.weight.dtype
    return {name: (x / len(a)).to(dtype) for name, x in total.items()}


def check_intervention(value: object) -> None:
    """Raise `BadInput` unless this is an intervention."""
    if not isinstance(value, Intervention | Combined):
        raise BadInput(
            f"{value!r} is no intervention: expected one such as Ablation(heads={{(1, 0)}})."
        )


def _mask_of_part(name: str, indices: Sequence[int], config: ModelConfig) -> Bool[Tensor, "..."]:
    """Return a mask of some heads or neurons in the activation at a hook point."""
    for part in PARTS.values():
        if part.axis is not None and name.endswith(part.point):
            count = config.d_ff if part.point == "mlp.post" else config.heads
            return _along(part.axis, count, indices)
    raise AssertionError(f"{name} has no heads or neurons")


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
        if field == "names":
            if isinstance(value, str):
                raise TypeError("its letters are no names")
            return frozenset(name.replace("hook_", "") for name in value)
        if field in PAIRS:
            return frozenset((whole(layer), whole(i)) for layer, i in value)
        numbers = tuple(map(whole, value))
        if field == "source":
            a, b = numbers
            return a, b
        if field == "positions":
            return tuple(sorted(set(numbers)))
        return frozenset(numbers)
    except (AttributeError, TypeError, ValueError) as error:
        example = "{(1, 0)}" if field in PAIRS else "{1}"
        if field == "names":
            example = '{"blocks.0.resid_mid"}'
        raise BadInput(f"{field}={value!r}: expected values such as {example}.") from error


INTACT = Ablation()
