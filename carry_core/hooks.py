"""Hooks: what the model calls at its hook points, and the checks of what it is given.

The model calls a hook with a point's name and the activation there, and continues with what the
hook returns. `model.py` uses what is here; it has the hook points themselves.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from carry_core.errors import BadInput
from carry_core.sums import INTEGERS, VOCABULARY, Layout

# A hook is called with a point's name and the activation there. It returns the tensor with which
# the model continues, of the same shape, dtype and device, or None for the activation itself.
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


def cache_hook(cache: dict[str, Tensor], *names: str) -> TensorHook:
    """Return a hook that puts the named activations (all if none are named) into `cache`."""

    def hook(name: str, tensor: Tensor) -> Tensor:
        if not names or name in names:
            cache[str(name)] = tensor
        return tensor

    return hook


@dataclass(frozen=True)
class HookAt:
    """A hook that acts at some hook points only. The model does not call it at the others.

    Attributes:
        points: The names of these hook points, in our spelling or in TransformerLens's.
        function: The hook itself.

    Raises:
        BadInput: The hook is not a function.
    """

    points: frozenset[str]
    function: TensorHook

    def __post_init__(self) -> None:
        check_callable(self.function)
        object.__setattr__(self, "points", frozenset(map(plain_name, self.points)))

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        return self.function(name, tensor) if name in self.points else tensor


class Point(str):
    """A hook point's name, as the model passes it to a hook.

    Attributes:
        positions: The token positions of the activation, in the order of its rows (those of
            the queries, in a pattern).
    """

    positions: tuple[int, ...]

    def __new__(cls, name: str, positions: tuple[int, ...]) -> "Point":
        point = super().__new__(cls, name)
        point.positions = positions
        return point

    def __getnewargs__(self) -> tuple[str, tuple[int, ...]]:  # type: ignore[override]
        return str(self), self.positions

    @property
    def name(self) -> str:
        """The name, as a plain text; TransformerLens's hook functions read it."""
        return str(self)

    def layer(self) -> int:
        """Return the layer; TransformerLens's hook functions call this.

        Raises:
            BadInput: The point is in no layer.
        """
        if not self.startswith("blocks."):
            raise BadInput(f"The hook point {self} is in no layer: expected one of a block.")
        return int(self.split(".")[1])


class PassEnd(Exception):
    """Ends a forward pass whose rest is not needed."""


def plain_name(name: Any) -> str:
    """Return a hook point's name in our spelling, given in ours or in TransformerLens's."""
    if not isinstance(name, str):
        return ""
    return name.replace("hook_", "").replace("attn.attn_scores", "attn.scores")


# ---- checks of what the model is given


def changed_by(hook: Hook, point: str, x: Tensor) -> Tensor:
    """Return what a hook makes of the activation x: what it returns, or x itself if that is None.

    Raises:
        BadInput: It cannot replace the activation: it is not a tensor, or has another shape,
            dtype or device, even if that is x, which was changed in place.
    """
    given = (x.shape, x.dtype, x.device)
    returned = hook(point, x)
    changed = x if returned is None else returned
    if not isinstance(changed, Tensor) or (changed.shape, changed.dtype, changed.device) != given:
        raise BadInput(
            f"A hook at {point} returned {_described(changed)}: "
            f"expected {_words(*given)}, as it was given, or None."
        )
    return changed


def _described(value: object) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    return _words(value.shape, value.dtype, value.device)


def _words(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> str:
    return f"{dtype} of shape {[*shape]} on {device}"


def check_callable(hook: Any) -> None:
    """Raise `BadInput` if a hook is not a function."""
    if not callable(hook):
        raise BadInput(
            f"The hook is of type {type(hook).__name__}: expected a function of a name and a "
            "tensor, such as `Ablation(mlps={1}).hook(model)`."
        )


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
        BadInput: It is no function, or acts at a point that the model has not.
    """
    if hook is no_hook:
        return no_hook
    check_callable(hook)
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
        x = x.clone() if name.endswith(SAME_STORAGE) else x
        return changed_by(hook, point, x)

    return at


def checked_embedding(embed: nn.Module, tokens: Any, layout: Layout) -> Tensor:
    """Return the token embedding `[batch, pos, d_model]`, not yet scaled.

    Raises:
        BadInput: The tokens are not those of sums, or are on another device.
    """
    length = layout.length
    is_tensor = isinstance(tokens, Tensor)
    lengths = range(1 if layout.causal else length, length + 1)
    if (
        not is_tensor
        or tokens.dtype not in INTEGERS
        or tokens.ndim != 2
        or tokens.shape[1] not in lengths
    ):
        or_fewer = " or fewer" if layout.causal else ""
        raise BadInput(
            f"tokens are {_described(tokens)}: expected integers of shape "
            f"[batch, {length}{or_fewer}], as `encode` gives them."
        )
    weight = getattr(embed, "weight", None)
    if isinstance(weight, Tensor) and tokens.device != weight.device:
        raise BadInput(
            f"tokens are on {tokens.device}, the model is on {weight.device}: "
            "move them with `tokens.to(model.device)`."
        )
    tokens = tokens.long()
    try:
        embedded: Tensor = embed(tokens)
    except IndexError as error:
        low, high = int(tokens.min()), int(tokens.max())
        raise BadInput(
            f"tokens from {low} to {high}: expected numbers from 0 to {VOCABULARY - 1}."
        ) from error
    return embedded


def requested_points(names: Names, hook_names: list[str], argument: str = "names") -> list[str]:
    """Return the names of the hook points that are wanted, spelled as they were given.

    `argument` is what the caller calls `names`.

    Raises:
        BadInput: These are no names, or the function of a name fails.
    """
    if isinstance(names, str):
        return [names]
    if names is None:
        return hook_names
    try:
        return [name for name in hook_names if names(name)] if callable(names) else list(names)
    except Exception as error:
        raise BadInput(
            f"{argument}={names!r}: expected names such as {hook_names[0]}, or a function that is "
            f"true of some ({error})."
        ) from error


def hook_of_functions(hooks: Hooks, hook_name: Callable[[str], str]) -> TensorHook:
    """Return a hook that calls the functions of each point in order; `hook_name` as above.

    Raises:
        BadInput: `hooks` is neither `{name: f}` nor `[(name, f)]`.
    """
    hooks_at: dict[str, list[Hook]] = {}
    for name, f in _pairs_of(hooks):
        hooks_at.setdefault(hook_name(name), []).append(_hook_of(f))

    def hook(name: str, x: Tensor) -> Tensor:
        for own_hook in hooks_at.get(name, ()):
            x = changed_by(own_hook, name, x)
        return x

    return hook


def _hook_of(f: HookFunction) -> Hook:
    """Return a function of an activation, and of `hook` if it has this parameter, as a hook."""
    takes_name = _takes_name(f)
    return lambda name, x: f(x, hook=name) if takes_name else f(x)


def _pairs_of(hooks: object) -> list[tuple[str, HookFunction]]:
    """Return hook points with their functions; raise `BadInput` if these are no such pairs."""
    pairs: Iterable[Any] = hooks if isinstance(hooks, Iterable) else [hooks]
    pairs = list(hooks.items() if isinstance(hooks, Mapping) else pairs)
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and callable(pair[1])):
            raise BadInput(
                f"hooks has {pair!r}: expected pairs such as ('blocks.1.attn.z', function)."
            )
        if isinstance(pair[1], HookAt):
            raise BadInput(
                f"hooks has a whole hook at {pair[0]}: expected a function of the activation "
                "there; give the hook to the model, as in `model(tokens, hook)`."
            )
    return pairs


def _takes_name(f: Callable[..., Any]) -> bool:
    """Return True if a function has a parameter `hook`."""
    try:
        return not inspect.isbuiltin(f) and "hook" in inspect.signature(f).parameters
    except ValueError:  # no signature
        return False
