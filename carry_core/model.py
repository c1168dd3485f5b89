"""The transformer of the paper (App. A), with a named hook point at every activation.

`model(tokens, hook)` calls `hook(name, tensor)` at every point and continues with what the hook
returns: a cache stores the activation, an intervention replaces it, dropout masks it. A hook that
returns None leaves the activation as it is. The points, for layer l:

    embed                     [batch, pos, d_model]   token embedding times sqrt(d_model)
    blocks.{l}.resid_pre      [batch, pos, d_model]   the stream that enters the block
    blocks.{l}.attn.q         [batch, query, head, d_head]   before the rotation
    blocks.{l}.attn.k         [batch, key, head, d_head]   before the rotation
    blocks.{l}.attn.v         [batch, key, head, d_head]   before the rotation
    blocks.{l}.attn.scores    [batch, head, query, key]   over sqrt(d_head), masked in a decoder
    blocks.{l}.attn.pattern   [batch, head, query, key]   attention probabilities
    blocks.{l}.attn.z         [batch, query, head, d_head]   before the output projection
    blocks.{l}.attn_out       [batch, query, d_model]
    blocks.{l}.attn.skip      [batch, query, d_model]   what skips the attention
    blocks.{l}.resid_mid      [batch, query, d_model]   attn.skip + attn_out
    blocks.{l}.mlp.pre        [batch, query, d_ff]   before the ReLU
    blocks.{l}.mlp.post       [batch, query, d_ff]   after the ReLU
    blocks.{l}.mlp_out        [batch, query, d_model]
    blocks.{l}.mlp.skip       [batch, query, d_model]   what skips the MLP
    blocks.{l}.resid_post     [batch, query, d_model]   mlp.skip + mlp_out
    logits                    [batch, query, 12]

TransformerLens's spelling, such as `blocks.1.attn.hook_z`, is understood wherever a name is given.
"""

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from operator import index
from typing import Any, NoReturn, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from carry_core.errors import BadInput, check_whole
from carry_core.sums import INTEGERS, VOCABULARY, Layout

# A hook is called with a point's name and the activation there. It returns the tensor with which
# the model continues, of the same shape, dtype and device, or None for the activation itself.
Hook = Callable[[str, Tensor], Tensor | None]
TensorHook = Callable[[str, Tensor], Tensor]  # a hook that never returns None
Positions = slice | list[int]
Read = Sequence[int] | None  # the positions whose logits are wanted; all if None
# Hook points by name, or a function that is true of their names; all if None.
Names = str | Iterable[str] | Callable[[str], bool] | None
HookFunction = Callable[..., Tensor | None]  # of an activation, and of its point if it has `hook`
Hooks = Mapping[str, HookFunction] | Iterable[tuple[str, HookFunction]]

# The hook points of a block, in the order of the forward pass.
POINTS = (
    "resid_pre",
    "attn.q",
    "attn.k",
    "attn.v",
    "attn.scores",
    "attn.pattern",
    "attn.z",
    "attn_out",
    "attn.skip",
    "resid_mid",
    "mlp.pre",
    "mlp.post",
    "mlp_out",
    "mlp.skip",
    "resid_post",
)
# These have all positions even in the last layer, whichever are read.
AT_ALL_POSITIONS = (".resid_pre", ".attn.k", ".attn.v")
# These are the same tensor as the activation at an earlier point.
SAME_STORAGE = (".resid_pre", ".attn.skip", ".mlp.skip")
MAX_SIZE = 2**20  # upper limit of each size in a `ModelConfig`
# The model computes in these types; PyTorch has no LayerNorm for others.
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def no_hook(name: str, tensor: Tensor) -> Tensor:
    """Return the activation unchanged: the hook that does nothing."""
    return tensor


def _refuse_tracer(_tracer: object = None) -> NoReturn:
    """Raise `BadInput`: torch.fx calls this where it would trace a model symbolically."""
    raise BadInput(
        "torch.fx.symbolic_trace has no tokens, whose shape and type the model checks: use "
        "`torch.export.export(model, (tokens,)).module()`, which is a torch.fx.GraphModule."
    )


# torch.fx calls this of a default argument that is no value of a graph, before anything runs.
setattr(no_hook, "__fx_create_arg__", _refuse_tracer)  # noqa: B010 (a function has no such field)


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


def checked_activation(point: str, changed: Any, x: Tensor) -> Tensor:
    """Return what a hook returned for the activation x, or x itself if that is None.

    Raises:
        BadInput: It cannot replace the activation: it is not a tensor, or has another shape,
            dtype or device.
    """
    if changed is None:
        return x
    if not isinstance(changed, Tensor):
        raise BadInput(
            f"A hook at {point} returned {type(changed).__name__}: expected a tensor, or None."
        )
    if (changed.shape, changed.dtype, changed.device) != (x.shape, x.dtype, x.device):
        raise BadInput(
            f"A hook at {point} returned {_described(changed)}: "
            f"expected {_described(x)}, as it was given."
        )
    return changed


def _described(x: Tensor) -> str:
    return f"{x.dtype} of shape {[*x.shape]} on {x.device}"


def check_callable(hook: Any) -> None:
    """Raise `BadInput` if a hook is not a function."""
    if not callable(hook):
        raise BadInput(
            f"The hook is of type {type(hook).__name__}: expected a function of a name and a "
            "tensor, such as `Ablation(mlps={1}).hook(model)`."
        )


def plain_name(name: Any) -> str:
    """Return a hook point's name in our spelling, given in ours or in TransformerLens's."""
    if not isinstance(name, str):
        return ""
    return name.replace("hook_", "").replace("attn.attn_scores", "attn.scores")


class PassEnd(Exception):
    """Ends a forward pass whose rest is not needed."""


def activations_at(
    model: "Transformer",
    tokens: Int[Tensor, "batch pos"],
    names: Collection[str],
    read: Read = None,
    hook: TensorHook = no_hook,
) -> dict[str, Tensor]:
    """Return activations as they are after `hook`, from a pass that ends at the last of them.

    `names` are hook points in our spelling. A wrapper's pass, such as a compiled model's, does not
    end early.

    Raises:
        BadInput: As `Transformer.forward`, up to there.
    """
    cache: dict[str, Tensor] = {}
    order = model.config.hook_names
    last = max(names, key=order.index, default="")
    ends_early = type(model) is Transformer

    def change_and_keep(name: str, x: Tensor) -> Tensor:
        x = hook(name, x)
        if name in names:
            cache[str(name)] = x
        if name == last and ends_early:
            raise PassEnd
        return x

    points = frozenset(names)
    if hook is not no_hook:
        points |= hook.points if isinstance(hook, HookAt) else frozenset(order)
    with suppress(PassEnd):
        model(tokens, HookAt(points, change_and_keep), read)
    return cache


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a model. `width` counts the digits of each number, padding included."""

    layers: int = 2
    width: int = 3
    causal: bool = False
    d_model: int = 128
    heads: int = 2
    d_ff: int = 128

    def __post_init__(self) -> None:
        for name in ("layers", "d_model", "heads", "d_ff"):
            check_whole(name, getattr(self, name), 1, MAX_SIZE)
        if self.d_model % (2 * self.heads):
            raise BadInput(
                f"d_model={self.d_model}, heads={self.heads}: expected heads of an even size, "
                "so that d_model is a multiple of 2 heads."
            )
        self.layout  # noqa: B018 (checks the width, and `causal`)

    @property
    def layout(self) -> Layout:
        return Layout(self.width, self.causal)

    @property
    def d_head(self) -> int:
        return self.d_model // self.heads

    @property
    def hook_names(self) -> list[str]:
        """All hook points, in the order of the forward pass."""
        names = ["embed"]
        for l in range(self.layers):
            names += [f"blocks.{l}.{point}" for point in POINTS]
        return [*names, "logits"]

    def hook_name(self, name: str) -> str:
        """Return a hook point's name in our spelling, given in ours or in TransformerLens's.

        Raises:
            BadInput: The model has no such hook point.
        """
        plain = plain_name(name)
        if plain in self.hook_names:
            return plain
        example = f"blocks.{self.layers - 1}.attn.z"
        raise BadInput(
            f"{name!r} is no hook point of this model: expected one such as embed or {example}."
        )

    def positions_at(self, name: str, read: Read, length: int | None = None) -> tuple[int, ...]:
        """Return the positions of a point's activation when the model reads out `read`.

        `length` is the number of tokens that a decoder is given; all if None.
        """
        in_last_layer = name == "logits" or name.startswith(f"blocks.{self.layers - 1}.")
        if read is None or not in_last_layer or name.endswith(AT_ALL_POSITIONS):
            return tuple(range(self.layout.length if length is None else length))
        return tuple(read)

    def checked_read(self, read: Read, length: int | None = None) -> tuple[int, ...] | None:
        """Return the positions `read` as a tuple, counted from 0; None for all of them.

        Raises:
            BadInput: There are no such positions among the first `length` (all if None).
        """
        if read is None:
            return None
        length = self.layout.length if length is None else length
        try:
            positions = tuple(map(index, read))
        except TypeError as error:
            raise BadInput(f"read={read!r}: expected positions such as [7, 8, 9].") from error
        if not all(-length <= position < length for position in positions):
            raise BadInput(f"read={read!r}: expected positions from 0 to {length - 1}.")
        return tuple(position % length for position in positions)


def checked_config(model: object) -> ModelConfig:
    """Return a model's config; every function that measures a model checks it here.

    The model may be wrapped, as by `torch.compile`, if the wrapper passes attributes on.

    Raises:
        BadInput: It is no model, such as the runs that `load` returns.
    """
    config = getattr(model, "config", None)
    if not (isinstance(model, nn.Module) and isinstance(config, ModelConfig)):
        raise BadInput(
            f"The model is of type {type(model).__name__}: "
            "expected a Transformer, such as `load(...).model(0)`."
        )
    return config


def rotary(length: int, d_head: int) -> Float[Tensor, "pos half 2"]:
    """Return the cosines and sines by which the rotary embedding rotates pairs (RoFormer).

    They are computed on the CPU, since some devices lack float64.
    """
    coordinate = torch.arange(0, d_head, 2, dtype=torch.float64, device="cpu")
    position = torch.arange(length, dtype=torch.float64, device="cpu")
    angle = position[:, None] * 10_000.0 ** (-coordinate / d_head)
    return torch.stack([angle.cos(), angle.sin()], -1)


def rotate(
    x: Float[Tensor, "*batch #pos head d_head"], rotation: Float[Tensor, "#pos half 2"]
) -> Float[Tensor, "*batch pos head d_head"]:
    """Rotate each adjacent pair of coordinates by its position's angle, as complex numbers.

    Real arithmetic takes ten times as long, but compilers have no code for complex numbers. No
    buffer is complex, since `.to(dtype)` would drop its imaginary part.
    """
    exact = x if x.dtype in (torch.float32, torch.float64) else x.float()
    pairs = exact.unflatten(-1, (-1, 2))
    rotation = rotation.to(exact.dtype).unsqueeze(1)
    if torch.compiler.is_compiling():
        first, second = pairs.unbind(-1)
        cosine, sine = rotation.unbind(-1)
        real = first * cosine - second * sine
        imaginary = first * sine + second * cosine
        turned = torch.stack([real, imaginary], -1)
    else:
        product = torch.view_as_complex(pairs.contiguous()) * torch.view_as_complex(rotation)
        turned = torch.view_as_real(product)
    return turned.flatten(-2).to(x.dtype)


class Block(nn.Module):
    """Attention and MLP around one residual stream.

    One LayerNorm serves both, as in the released code.
    """

    rotation: Tensor

    def __init__(self, config: ModelConfig, prefix: str) -> None:
        super().__init__()
        d_model = config.d_model
        self.config = config
        self.prefix = prefix
        self.norm = nn.LayerNorm(d_model)
        self.q = nn.Linear(d_model, d_model)
        self.k = nn.Linear(d_model, d_model)
        self.v = nn.Linear(d_model, d_model)
        self.o = nn.Linear(d_model, d_model)
        self.up = nn.Linear(d_model, config.d_ff)
        self.down = nn.Linear(config.d_ff, d_model)
        self.register_buffer("rotation", self._rotation(), persistent=False)

    def _rotation(self) -> Float[Tensor, "pos half 2"]:
        """Return the rotary embedding on the weights' device, in float32 (float64 if they are)."""
        weight = next(self.parameters())
        dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
        device = "cpu" if weight.is_meta else weight.device
        return rotary(self.config.layout.length, self.config.d_head).to(device, dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Block":
        """Move the weights, as `.to` does, and recompute the rotary embedding.

        If it were rounded along with the weights, it would stay rounded after they move back.
        """
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.rotation = self._rotation()
        return self

    def attention(
        self,
        resid: Float[Tensor, "batch pos d_model"],
        hook: TensorHook,
        query: Positions = slice(None),
    ) -> Float[Tensor, "batch query head d_head"]:
        """Return the heads' outputs at the positions `query`: `attn.z` before its hook."""
        q, k, v = self.qkv(resid, hook, query)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(self.config.d_head)
        if self.config.causal:
            position = torch.arange(k.shape[1], device=k.device)
            is_future = position > position[query, None]  # (query, key)
            scores = scores.masked_fill(is_future, -torch.inf)
        scores = hook(f"{self.prefix}.attn.scores", scores)  # (batch, head, query, key)
        pattern = hook(f"{self.prefix}.attn.pattern", scores.softmax(-1))
        return torch.einsum("bhqk,bkhd->bqhd", pattern, v)

    def qkv(
        self,
        resid: Float[Tensor, "batch pos d_model"],
        hook: TensorHook = no_hook,
        query: Positions = slice(None),
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return rotated queries `[batch, query, head, d_head]`, and keys and values.

        Keys and values are `[batch, key, head, d_head]`. Values are rotated too, as in the
        released code.
        """
        x = self.norm(resid)
        rotation = self.rotation[: x.shape[1]]  # a decoder may be given the first tokens only
        by_head = (self.config.heads, self.config.d_head)
        q = self.q(x[:, query]).unflatten(-1, by_head)  # (batch, query, head, d_head)
        k = self.k(x).unflatten(-1, by_head)  # (batch, key, head, d_head)
        v = self.v(x).unflatten(-1, by_head)  # (batch, key, head, d_head)
        q = hook(f"{self.prefix}.attn.q", q)
        k = hook(f"{self.prefix}.attn.k", k)
        v = hook(f"{self.prefix}.attn.v", v)
        return rotate(q, rotation[query]), rotate(k, rotation), rotate(v, rotation)

    def mix(
        self,
        resid: Float[Tensor, "batch query d_model"],
        z: Float[Tensor, "batch query head d_head"],
        hook: TensorHook,
    ) -> Float[Tensor, "batch query d_model"]:
        """Add what the heads write to the stream: from `attn.z` to `resid_mid`."""
        z = hook(f"{self.prefix}.attn.z", z)
        out = hook(f"{self.prefix}.attn_out", self.o(z.flatten(-2)))  # (batch, query, d_model)
        skip = hook(f"{self.prefix}.attn.skip", resid)
        return hook(f"{self.prefix}.resid_mid", skip + out)

    def mlp(
        self, mid: Float[Tensor, "batch query d_model"], hook: TensorHook
    ) -> Float[Tensor, "batch query d_model"]:
        """Add what the MLP writes to the stream: from `resid_mid` to `resid_post`."""
        pre = hook(f"{self.prefix}.mlp.pre", self.up(self.norm(mid)))  # (batch, query, d_ff)
        post = hook(f"{self.prefix}.mlp.post", pre.relu())
        out = hook(f"{self.prefix}.mlp_out", self.down(post))  # (batch, query, d_model)
        skip = hook(f"{self.prefix}.mlp.skip", mid)
        return hook(f"{self.prefix}.resid_post", skip + out)


class Transformer(nn.Module):
    """An encoder, or a causal decoder, from tokens to logits. It has no dropout: a hook adds it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(VOCABULARY, config.d_model)
        blocks = nn.ModuleList(Block(config, f"blocks.{l}") for l in range(config.layers))
        self.blocks = cast("Sequence[Block]", blocks)
        self.norm = nn.LayerNorm(config.d_model)
        self.unembed = nn.Linear(config.d_model, VOCABULARY)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Transformer":
        """Move the weights, as `.to` does.

        Raises:
            BadInput: They would be of a type in which the model cannot compute.
        """
        weight = next(self.parameters())
        dtype = fn(torch.empty(0, dtype=weight.dtype, device=weight.device)).dtype
        if dtype not in DTYPES:
            types = ", ".join(map(str, DTYPES))
            raise BadInput(f"The model cannot compute in {dtype}: expected one of {types}.")
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, no-any-return]

    def forward(
        self, tokens: Tensor, hook: Hook = no_hook, read: Read = None
    ) -> Float[Tensor, "batch query vocab"]:
        """Return the logits for tokens `[batch, pos]` at the positions `read` (all if None).

        The last block computes its attention for those queries only. A decoder may be given just
        the first tokens of a sum, to continue them.

        Raises:
            BadInput: Tokens, positions, or what the hook returned do not fit the model.
        """
        embedded = self._embedded(tokens)
        length = int(tokens.shape[1])  # `torch.jit.trace` has a tensor in its place
        read = self.config.checked_read(read, length)
        if len(self.blocks) != self.config.layers:
            raise BadInput(
                f"The model has {len(self.blocks)} blocks: "
                f"expected {self.config.layers}, as its config says."
            )
        checked_hook = self._checked(hook, read, length)
        resid = embedded * math.sqrt(self.config.d_model)  # (batch, pos, d_model)
        resid = checked_hook("embed", resid)
        for l, block in enumerate(self.blocks):
            query = self.queries(l, read)
            resid = checked_hook(f"blocks.{l}.resid_pre", resid)
            z = block.attention(resid, checked_hook, query)  # (batch, query, head, d_head)
            mid = block.mix(resid[:, query], z, checked_hook)  # (batch, query, d_model)
            resid = block.mlp(mid, checked_hook)
        return checked_hook("logits", self.unembed(self.norm(resid)))  # (batch, query, vocab)

    def queries(self, layer: int, read: Read) -> Positions:
        """Return the query positions that a layer computes: in the last layer those read."""
        is_last = layer == self.config.layers - 1
        return list(read) if is_last and read is not None else slice(None)

    def _embedded(self, tokens: Tensor) -> Float[Tensor, "batch pos d_model"]:
        """Return the token embedding, not yet scaled; raise `BadInput` for bad tokens."""
        length = self.config.layout.length
        if isinstance(cast(object, tokens), torch.fx.Proxy):
            _refuse_tracer()
        is_tensor = isinstance(tokens, Tensor)
        lengths = range(1 if self.config.causal else length, length + 1)
        if (
            not is_tensor
            or tokens.dtype not in INTEGERS
            or tokens.ndim != 2
            or tokens.shape[1] not in lengths
        ):
            described = _described(tokens) if is_tensor else type(tokens).__name__
            or_fewer = " or fewer" if self.config.causal else ""
            raise BadInput(
                f"tokens are {described}: expected integers of shape "
                f"[batch, {length}{or_fewer}], as `encode` gives them."
            )
        weight = getattr(self.embed, "weight", None)
        if isinstance(weight, Tensor) and tokens.device != weight.device:
            raise BadInput(
                f"tokens are on {tokens.device}, the model is on {weight.device}: "
                "move them with `tokens.to(model.device)`."
            )
        tokens = tokens.long()
        try:
            embedded: Tensor = self.embed(tokens)
        except IndexError as error:
            low, high = int(tokens.min()), int(tokens.max())
            raise BadInput(
                f"tokens from {low} to {high}: expected numbers from 0 to {VOCABULARY - 1}."
            ) from error
        return embedded

    def _checked(self, hook: Hook, read: tuple[int, ...] | None, length: int) -> TensorHook:
        """Return a hook that calls this one with a `Point`, and checks what it returns.

        The hook may change an activation in place, since it gets its own copy of one whose
        storage other points share.
        """
        if hook is no_hook:
            return no_hook
        check_callable(hook)
        compiling = torch.compiler.is_compiling()  # in which case a name has to be a plain `str`
        if compiling and read is not None:
            raise BadInput(
                "A compiled model with a hook computes all positions: leave out `read`, "
                "and choose them from the logits."
            )
        points = None
        if isinstance(hook, HookAt):
            points = frozenset(map(self.config.hook_name, hook.points))

        def at(name: str, x: Tensor) -> Tensor:
            if points is not None and name not in points:
                return x
            point = name
            if not compiling:
                point = Point(name, self.config.positions_at(name, read, length))
            x = x.clone() if name.endswith(SAME_STORAGE) else x
            return checked_activation(point, hook(point, x), x)

        return at

    def run_with_cache(
        self, tokens: Tensor, names: Names = None, hook: Hook = no_hook
    ) -> tuple[Float[Tensor, "batch pos vocab"], dict[str, Tensor]]:
        """Return the logits, and the named activations (all if None) under the names given.

        `names` is one name, several, or a function that is true of the names that are wanted, in
        our spelling. Activations are as they are after `hook`.

        Raises:
            BadInput: The model has no such hook point; or as `forward`.
        """
        check_callable(hook)
        requested = self._requested(names)
        cache: dict[str, Tensor] = {}
        keep = cache_hook(cache, *map(self.config.hook_name, requested))

        def change_and_keep(name: str, x: Tensor) -> Tensor:
            return keep(name, checked_activation(name, hook(name, x), x))

        logits = self.forward(tokens, change_and_keep)
        return logits, {name: cache[self.config.hook_name(name)] for name in requested}

    def _requested(self, names: Names) -> list[str]:
        """Return the names of the hook points that are to be cached, spelled as they were given."""
        if isinstance(names, str):
            return [names]
        if names is None:
            return self.config.hook_names
        if not callable(names):
            return list(names)
        requested = [name for name in self.config.hook_names if names(name)]
        if not requested:
            raise BadInput(
                "The filter of names is true of no hook point: "
                "expected it to be of one such as blocks.0.attn.z."
            )
        return requested

    def run_with_hooks(self, tokens: Tensor, hooks: Hooks) -> Float[Tensor, "batch pos vocab"]:
        """Return the logits while functions change activations.

        `hooks` is `{name: f}` or `[(name, f)]`, with `f(tensor)` or `f(tensor, hook=point)`, which
        has a `name`. Functions at one point are called in this order.

        Raises:
            BadInput: The model has no such hook point, or `hooks` is something else; or as
                `forward`.
        """
        functions: dict[str, list[tuple[HookFunction, bool]]] = {}
        for name, f in _pairs_of(hooks):
            functions.setdefault(self.config.hook_name(name), []).append((f, _takes_name(f)))

        def hook(name: str, x: Tensor) -> Tensor:
            for f, takes_name in functions.get(name, ()):
                x = checked_activation(name, f(x, hook=name) if takes_name else f(x), x)
            return x

        return self.forward(tokens, hook)


def _pairs_of(hooks: object) -> list[tuple[str, HookFunction]]:
    """Return hook points with their functions; raise `BadInput` if these are no such pairs."""
    if not isinstance(hooks, Iterable):
        raise BadInput(
            f"hooks of type {type(hooks).__name__}: expected {{name: function}}, or pairs of these."
        )
    pairs: list[Any] = list(hooks.items() if isinstance(hooks, Mapping) else hooks)
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


class _WithoutValues(TorchFunctionMode):
    """A context in which `nn.Embedding` draws no initial weights.

    To draw one on the device "meta", PyTorch imports its compiler, which takes a second or more.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is nn.init.normal_:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@cache
def parameter_shapes(config: ModelConfig) -> dict[str, torch.Size]:
    """Return the shape of each parameter of a model, by name."""
    with torch.device("meta"), _WithoutValues():
        return {name: p.shape for name, p in Transformer(config).named_parameters()}
