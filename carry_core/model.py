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

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from carry_core.errors import BadInput, check_whole, whole
from carry_core.hooks import (
    Hook,
    HookAt,
    Hooks,
    Names,
    PassEnd,
    TensorHook,
    changed_by,
    checked_hook,
    hook_of_functions,
    no_hook,
    plain_name,
    requested_points,
)
from carry_core.sums import INTEGERS, VOCABULARY, Layout

Positions = slice | list[int]
Read = Sequence[int] | None  # the positions whose logits are wanted; all if None
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
MAX_SIZE = 2**20  # upper limit of each size in a `ModelConfig`


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
                f"d_model={self.d_model}, heads={self.heads}: expected heads of an even size."
            )
        if not isinstance(self.causal, bool):
            raise BadInput(f"causal={self.causal!r}: expected True or False.")
        self.layout  # noqa: B018 (checks the width)

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
        """Return a hook point's name in our spelling, given in ours or in TransformerLens's."""
        plain = plain_name(name)
        if plain not in self.hook_names:
            raise BadInput(f"{name!r} is no hook point: expected one such as blocks.0.attn.z.")
        return plain

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
            positions = tuple(whole(position) for position in read)
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

    def forward(
        self, tokens: Tensor, hook: Hook = no_hook, read: Read = None
    ) -> Float[Tensor, "batch query vocab"]:
        """Return the logits for tokens `[batch, pos]` at the positions `read` (all if None).

        The last block computes its attention for those queries only. A decoder may be given just
        the first tokens of a sum, to continue them.

        Raises:
            BadInput: Tokens, positions, or what the hook returned do not fit the model.
        """
        config = self.config
        if [block.prefix for block in self.blocks] != [f"blocks.{l}" for l in range(config.layers)]:
            raise BadInput(
                f"The model's blocks are not the {config.layers} of its config, in order."
            )
        length = self._checked_length(tokens)
        read = config.checked_read(read, length)
        positions_at = partial(config.positions_at, read=read, length=length)
        at = checked_hook(hook, config.hook_name, positions_at, reads_all=read is None)

        embedded = self.embed(tokens.long()) * math.sqrt(config.d_model)
        resid = at("embed", embedded)  # (batch, pos, d_model)
        for l, block in enumerate(self.blocks):
            query = self.queries(l, read)
            resid = at(f"blocks.{l}.resid_pre", resid)
            z = block.attention(resid, at, query)  # (batch, query, head, d_head)
            mid = block.mix(resid[:, query], z, at)  # (batch, query, d_model)
            resid = block.mlp(mid, at)
        return at("logits", self.unembed(self.norm(resid)))  # (batch, query, vocab)

    def _checked_length(self, tokens: Tensor) -> int:
        """Return the number of tokens of a sum; raise `BadInput` if it is not the model's."""
        layout = self.config.layout
        lengths = range(1 if layout.causal else layout.length, layout.length + 1)
        if tokens.dtype not in INTEGERS or tokens.ndim != 2 or tokens.shape[1] not in lengths:
            raise BadInput(
                f"tokens are {tokens.dtype} of shape {[*tokens.shape]}: expected integers of shape "
                f"[batch, {layout.length}{' or fewer' if layout.causal else ''}]."
            )
        return int(tokens.shape[1])  # `torch.jit.trace` has a tensor in its place

    def queries(self, layer: int, read: Read) -> Positions:
        """Return the query positions that a layer computes: in the last layer those read."""
        is_last = layer == self.config.layers - 1
        return list(read) if is_last and read is not None else slice(None)

    def run_with_cache(
        self, tokens: Tensor, names: Names = None, hook: Hook = no_hook
    ) -> tuple[Float[Tensor, "batch pos vocab"], dict[str, Tensor]]:
        """Return the logits, and the named activations (all if None) under the names given.

        `names` is one name, several, or a function that is true of the names that are wanted, in
        our spelling. Activations are as they are after `hook`.
        """
        requested = requested_points(names, self.config.hook_names)
        points = {str(name): self.config.hook_name(name) for name in requested}
        cache: dict[str, Tensor] = {}

        def change_and_keep(name: str, x: Tensor) -> Tensor:
            x = changed_by(hook, name, x)
            if name in points.values():
                cache[name] = x
            return x

        logits = self.forward(tokens, change_and_keep)
        return logits, {name: cache[point] for name, point in points.items()}

    def run_with_hooks(self, tokens: Tensor, hooks: Hooks) -> Float[Tensor, "batch pos vocab"]:
        """Return the logits while functions change activations.

        `hooks` is `{name: f}` or `[(name, f)]`, with `f(tensor)` or `f(tensor, hook=point)`, which
        has a `name`. Functions at one point are called in this order.
        """
        return self.forward(tokens, hook_of_functions(hooks, self.config.hook_name))


def activations_at(
    model: "Transformer",
    tokens: Int[Tensor, "batch pos"],
    names: Collection[str],
    read: Read = None,
    hook: TensorHook = no_hook,
) -> dict[str, Tensor]:
    """Return activations as they are after `hook`, from a pass that ends at the last of them.

    `names` are hook points in our spelling; each name in the result is a `Point`, which knows the
    positions. A wrapper's pass, such as a compiled model's, does not end early.
    """
    cache: dict[str, Tensor] = {}
    order = model.config.hook_names
    last = max(names, key=order.index, default="")
    ends_early = type(model) is Transformer

    def change_and_keep(name: str, x: Tensor) -> Tensor:
        x = hook(name, x)
        if name in names:
            cache[name] = x
        if name == last and ends_early:
            raise PassEnd
        return x

    points = frozenset(names)
    if hook is not no_hook:
        points |= hook.points if isinstance(hook, HookAt) else frozenset(order)
    with suppress(PassEnd):
        model(tokens, HookAt(points, change_and_keep), read)
    return cache


@cache
def parameter_shapes(config: ModelConfig) -> dict[str, torch.Size]:
    """Return the shape of each parameter of a model, by name.

    To make one on the device `meta` would import PyTorch's compiler, which takes seconds.
    """
    d_model, d_ff = config.d_model, config.d_ff
    linear = dict.fromkeys(("q", "k", "v", "o"), (d_model, d_model))
    linear |= {"up": (d_ff, d_model), "down": (d_model, d_ff)}
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (VOCABULARY, d_model)}
    for prefix in (*(f"blocks.{l}." for l in range(config.layers)), ""):
        shapes |= {f"{prefix}norm.weight": (d_model,), f"{prefix}norm.bias": (d_model,)}
        for name, shape in (linear if prefix else {"unembed": (VOCABULARY, d_model)}).items():
            shapes |= {f"{prefix}{name}.weight": shape, f"{prefix}{name}.bias": shape[:1]}
    return {name: torch.Size(shape) for name, shape in shapes.items()}
