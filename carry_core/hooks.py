"""Hooks: what the model calls at its hook points, and the checks of what they return.

The model calls a hook with a point's name and the activation there, and continues with what the
hook returns. `model.py` uses what is here; it has the hook points themselves.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from carry_core.errors import BadInput

# A hook is called with a point's name and the activation there. It returns the tensor with which
# the model continues, of the same shape and dtype, or None for the activation itself.
Hook = Callable[[str, Tensor], Tensor | None]
TensorHook = Callable[[str, Tensor], Tensor]  # a hook that never returns None
# Hook points by name, or a function that is true of their names; all if None.
Names = str | Iterable[str] | Callable[[str], bool] | None
HookFunction = Callable[..., Tensor | None]  # of an activation, and of its point if it has `hook`
Hooks = Mapping[str, HookFunction] | Iterable[tuple[str, HookFunction]]

# These are the same tensor as the activation at an earlier point.
SAME_STORAGE = (".resid_pre", ".attn.skip", ".mlp.skip")


def no_hook(name: str, tensor: Tensor) -> Tensor:
    """Return the activation unchanged: the hook that does nothing."""
    return tensor


@dataclass(frozen=True)
class HookAt:
    """A hook that acts at some hook points only. The model does not call it at the others.

    Attributes:
        points: The names of these hook points, in our spelling or in TransformerLens's.
        function: The hook itself.
    """

    points: frozenset[str]
    function: TensorHook

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", frozenset(map(plain_name, self.points)))

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        return self.function(name, tensor) if name in self.points else tensor


class Point(str):
    """A hook point's name, with positions: as a hook gets it, and a cache of some positions has it.

    Attributes:
        positions: The token positions of the activation, in the order of its rows (those of
            the queries, in a pattern).
    """

    positions: tuple[int, ...]

    def __new__(cls, name: str, positions: tuple[int, ...] = ()) -> "Point":
        point = super().__new__(cls, name)
        point.positions = positions
        return point

    @property
    def name(self) -> str:
        """The name, as a plain text; TransformerLens's hook functions read it."""
        return str(self)

    def layer(self) -> int:
        """Return the layer of a point in a block; TransformerLens's hook functions call this."""
        return int(self.split(".")[1])


torch.serialization.add_safe_globals([Point])  # so that `torch.load` reads a cache with such names


class PassEnd(Exception):
    """Ends a forward pass whose rest is not needed."""


def plain_name(name: str) -> str:
    """Return a hook point's name in our spelling, given in ours or in TransformerLens's.

    A `Point` keeps its positions.
    """
    plain = name.replace("hook_", "").replace("attn.attn_scores", "attn.scores")
    return Point(plain, name.positions) if isinstance(name, Point) else plain


def requested_points(names: Names, hook_names: list[str]) -> list[str]:
    """Return the names of the hook points that are wanted, spelled as they were given."""
    if names is None:
        return hook_names
    if isinstance(names, str):
        return [names]
    return [name for name in hook_names if names(name)] if callable(names) else list(names)


def changed_by(hook: Hook, point: str, x: Tensor) -> Tensor:
    """Return what a hook makes of the activation x: what it returns, or x itself if that is None.

    Raises:
        BadInput: It is not a tensor of the activation's shape and dtype, even if it is x, which was
            changed in place.
    """
    shape, dtype = x.shape, x.dtype
    returned = hook(point, x)
    changed = x if returned is None else returned
    if not isinstance(changed, Tensor) or (changed.shape, changed.dtype) != (shape, dtype):
        what = type(changed).__name__
        if isinstance(changed, Tensor):
            what = f"{changed.dtype} of shape {[*changed.shape]}"
        raise BadInput(
            f"A hook at {point} returned {what}: "
            f"expected {dtype} of shape {[*shape]}, as it was given, or None."
        )
    return changed


def checked_hook(
    hook: Hook,
    hook_name: Callable[[str], str],
    positions_at: Callable[[str], tuple[int, ...]],
    *,
    reads_all: bool,
) -> TensorHook:
    """Return a hook that calls this one with a `Point`, and checks what it returns.

    The hook may change an activation in place, since it gets its own copy of one whose storage
    other points share. `hook_name` and `positions_at` are those of a `ModelConfig`.

    Raises:
        BadInput: The hook acts at a point that the model has not.
    """
    if hook is no_hook:
        return no_hook
    compiling = torch.compiler.is_compiling()  # in which case a name has to be a plain `str`
    if compiling and not reads_all:
        raise BadInput(
            "A compiled model with a hook computes all positions: leave out `read`, "
            "and choose them from the logits."
        )
    points = frozenset(map(hook_name, hook.points)) if isinstance(hook, HookAt) else None

    def at(name: str, x: Tensor) -> Tensor:
        if points is not None and name not in points:
            return x
        point = name if compiling else Point(name, positions_at(name))
        return changed_by(hook, point, x.clone() if name.endswith(SAME_STORAGE) else x)

    return at


def hook_of_functions(hooks: Hooks, hook_name: Callable[[str], str]) -> TensorHook:
    """Return a hook that calls the functions of each point in order; `hook_name` as above."""
    hooks_at: dict[str, list[Hook]] = {}
    pairs: Iterable[Any] = hooks.items() if isinstance(hooks, Mapping) else hooks
    for name, f in pairs:
        hooks_at.setdefault(hook_name(name), []).append(_hook_of(f))

    def hook(name: str, x: Tensor) -> Tensor:
        for own_hook in hooks_at.get(name, ()):
            x = changed_by(own_hook, name, x)
        return x

    return hook


def _hook_of(f: HookFunction) -> Hook:
    """Return a function of an activation, and of `hook` if it has this parameter, as a hook."""
    try:
        takes_name = "hook" in inspect.signature(f).parameters
    except ValueError:  # such as `torch.relu`, which has no signature
        takes_name = False
    return lambda name, x: f(x, hook=name) if takes_name else f(x)
