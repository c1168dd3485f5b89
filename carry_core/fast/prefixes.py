"""A model under many interventions at once: what they have in common is computed only once.

Interventions share a pass up to the first activation that they change differently. Layer 0's
attention comes from tables (`FirstLayer`). Where nothing but zero ablations of heads, skips, MLPs
and neurons changes a layer, it runs without hooks (`blocks.PlainBlock`, or in C++ `compiled`), and
these share its attention and what each head writes. The logits equal those of `model.py` with one
intervention at a time up to rounding, and take a quarter of the time or less.

All this reads the model's weights, and takes two interventions for one where `changes` says that
they are alike. So `passes` shares only for plain models (`plain.is_plain`) in float32 or float64
and for interventions of the core's own kinds, and runs one pass per intervention for all others.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from carry_core.fast.blocks import Zeroed
from carry_core.fast.compiled import parts_of
from carry_core.fast.plain import is_plain, is_precise
from carry_core.interventions import (
    INTACT,
    Ablation,
    Combined,
    Intervention,
    MeanAblation,
    Patch,
    Source,
)
from carry_core.model import (
    POINTS,
    Hook,
    HookAt,
    ModelConfig,
    Read,
    TensorHook,
    Transformer,
    no_hook,
)

# Logits `[batch, query, vocab]` under each of several interventions, from tokens `[batch, pos]`.
Passes = Callable[[Int[Tensor, "batch pos"]], list[Float[Tensor, "batch query vocab"]]]

AnyIntervention = Intervention | Combined


def passes(
    model: Transformer,
    interventions: Sequence[AnyIntervention],
    read: Read = None,
    watch: Hook | None = None,
    source: Source | None = None,
) -> Passes:
    """Return a function that gives the logits under each intervention.

    Args:
        model: The model; the weights of a plain one must not change while the function is used.
        interventions: The interventions, in the order of the result.
        read: The positions whose logits are wanted; all if None.
        watch: A hook that sees the model run without interventions, from `blocks.0.resid_mid` on,
            and changes nothing. One that is a `HookAt` costs less, since it needs few points.
        source: The reference set, or the means, of mean ablations.
    """
    shares = is_plain(model) and is_precise(model) and all(map(is_own_kind, interventions))
    strategy = SharedPrefix if shares else SeparatePasses
    return strategy(model, interventions, read, watch, source)


def is_own_kind(intervention: AnyIntervention) -> bool:
    """Return True if `changes` says all that an intervention does: a subclass may do more."""
    if type(intervention) is Combined:
        return all(map(is_own_kind, intervention.parts))
    return type(intervention) in (Ablation, MeanAblation, Patch)


def _hooks(
    model: Transformer, interventions: Sequence[AnyIntervention], read: Read, source: Source | None
) -> list[TensorHook]:
    """Return each intervention as a hook; `source` goes to mean ablations."""
    hooks = []
    for intervention in interventions:
        own_source = source if isinstance(intervention, MeanAblation) else None
        hooks.append(intervention.hook(model, own_source, read))
    return hooks


def only_seen_by(watch: Hook) -> TensorHook:
    """Return a hook that shows activations to `watch`, which cannot change them."""

    def hook(name: str, x: Tensor) -> Tensor:
        watch(name, x.clone())
        return x

    return HookAt(watch.points, hook) if isinstance(watch, HookAt) else hook


def zeroed_in(
    layer: int,
    changes: Mapping[str, Hashable],
    intervention: Intervention | Combined,
    config: ModelConfig,
) -> Zeroed | None:
    """Return what an intervention zeroes from a layer's `attn.z` on, or None if it does more.

    `changes` has the hook points that it changes among those from `attn.z` on.
    """
    if not changes:
        return Zeroed()
    points = ("attn.z", "attn.skip", "mlp_out", "mlp.post")
    z, skip, mlp, neurons = (f"blocks.{layer}.{point}" for point in points)
    if type(intervention) is not Ablation or intervention.positions is not None:
        return None
    if not changes.keys() <= {z, skip, mlp, neurons}:
        return None
    targets = intervention.targets(config)

    def named(name: str, count: int) -> frozenset[int]:
        """Return the heads or neurons that are ablated at a hook point: all if none is named."""
        if name not in changes:
            return frozenset()
        members = targets[name]
        return frozenset(range(count) if members is None else members)

    return Zeroed(
        heads=named(z, config.heads),
        skip=skip in changes,
        mlp=mlp in changes,
        neurons=named(neurons, config.d_ff),
    )


def zeroed_by_layer(intervention: AnyIntervention, config: ModelConfig) -> list[Zeroed] | None:
    """Return what an intervention zeroes in each layer, or None if it does more."""
    changes_by_layer: list[dict[str, Hashable]] = [{} for _ in range(config.layers)]
    for name, change in intervention.changes(config).items():
        if not name.startswith("blocks."):
            return None
        changes_by_layer[int(name.split(".")[1])][name] = change
    layers = []
    for layer, changes in enumerate(changes_by_layer):
        zeroed = zeroed_in(layer, changes, intervention, config)
        if zeroed is None:
            return None
        layers.append(zeroed)
    return layers


class SeparatePasses:
    """Logits under several interventions, one pass each, for any model; arguments as `passes`."""

    def __init__(
        self,
        model: Transformer,
        interventions: Sequence[AnyIntervention],
        read: Read = None,
        watch: Hook | None = None,
        source: Source | None = None,
    ) -> None:
        self.model, self.read, self.watch = model, read, watch
        self.hooks = _hooks(model, interventions, read, source)

    @torch.inference_mode()
    def __call__(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> list[Float[Tensor, "batch query vocab"]]:
        """Return the logits under each intervention."""
        if self.watch is not None:
            self.model(tokens, only_seen_by(self.watch), self.read)
        return [self.model(tokens, hook, self.read) for hook in self.hooks]


class Branch(NamedTuple):
    """Interventions that do the same at some hook points.

    Attributes:
        members: Their indices.
        hook: The hook that does it.
        changes: The hook points that it changes.
    """

    members: list[int]
    hook: TensorHook
    changes: dict[str, Hashable]


AT_Z = POINTS.index("attn.z")
UP_TO_Z, FROM_Z_ON = POINTS[:AT_Z], POINTS[AT_Z:]


class SharedPrefix:
    """Logits under several interventions of a plain model; arguments as `passes`.

    A watcher is an extra member that changes nothing, so that it sees the intact model whatever
    the interventions are.
    """

    def __init__(
        self,
        model: Transformer,
        interventions: Sequence[AnyIntervention],
        read: Read = None,
        watch: Hook | None = None,
        source: Source | None = None,
    ) -> None:
        self.model, self.read = model, read
        self.interventions = [*interventions]
        self.hooks = _hooks(model, interventions, read, source)
        self.changes: list[dict[str, Hashable]] = []
        for intervention in interventions:
            self.changes.append(intervention.changes(model.config))
        self.watch: TensorHook = no_hook
        self.watcher = len(self.hooks)
        if watch is not None:
            self.watch = only_seen_by(watch)
            self.interventions.append(INTACT)
            self.changes.append({})
        self.first, self.blocks, self.unembed = parts_of(model, read)

    @torch.inference_mode()
    def __call__(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> list[Float[Tensor, "batch query vocab"]]:
        """Return the logits under each intervention."""
        logits: dict[int, Tensor] = {}
        self._follow(0, tokens, None, range(len(self.changes)), logits)
        return [logits[i] for i in range(len(self.hooks))]

    def _follow(
        self,
        l: int,
        tokens: Tensor,
        resid: Tensor | None,
        members: Sequence[int],
        logits: dict[int, Tensor],
    ) -> None:
        """Compute the logits of some members from the stream that enters a layer.

        Up to that point, these members have changed the same activations in the same way. Into
        layer 0 the embedding enters; it is None until it is needed.
        """
        model = self.model
        is_last = l == model.config.layers - 1
        up_to_z = ["embed", *(f"blocks.{l}.{point}" for point in UP_TO_Z)]
        from_z_on = [*(f"blocks.{l}.{point}" for point in FROM_Z_ON), "logits"]
        for before in self._branches(members, up_to_z):
            branches = self._branches(before.members, from_z_on)
            afters = self._layer(l, tokens, resid, before, branches)
            for branch, after in zip(branches, afters, strict=True):
                if not is_last:
                    self._follow(l + 1, tokens, after, branch.members, logits)
                elif branch.members != [self.watcher]:  # the watcher's logits are not needed
                    unembedded = branch.hook("logits", self._unembedded(after))
                    logits |= dict.fromkeys(branch.members, unembedded)

    def _unembedded(self, resid: Tensor) -> Tensor:
        """Return the logits from the stream after the last layer."""
        if self.unembed is not None:
            return self.unembed(resid)
        logits: Tensor = self.model.unembed(self.model.norm(resid))
        return logits

    def _layer(
        self,
        l: int,
        tokens: Tensor,
        resid: Tensor | None,
        before: Branch,
        branches: Sequence[Branch],
    ) -> list[Tensor]:
        """Return the stream after a layer in each branch, from the one that enters the layer."""
        plain, query = self.blocks[l], self.model.queries(l, self.read)
        zeroed_parts = [self._zeroed(l, branch) for branch in branches]
        conditions = {parts.of_attention for parts in zeroed_parts if parts is not None}
        z: Tensor | None = None
        if l == 0 and not before.changes:
            mids = self.first.mids(tokens, query, conditions)
        else:
            resid, z = self._attention(l, self._entering(tokens, resid), before)
            mids = plain.mids(resid[:, query], z, conditions)
        afters = []
        for branch, parts in zip(branches, zeroed_parts, strict=True):
            if parts is None:
                if z is None:
                    z = self.first.z(tokens, query)
                resid = self._entering(tokens, resid)
                mid = plain.block.mix(resid[:, query], z, branch.hook)
                afters.append(plain.block.mlp(mid, branch.hook))
                continue
            mid = mids[parts.of_attention]
            if self.watcher in branch.members:
                self.watch(f"blocks.{l}.resid_mid", mid)
            afters.append(plain.after(mid, parts))
        return afters

    def _entering(self, tokens: Tensor, resid: Tensor | None) -> Tensor:
        """Return the stream that enters a layer: the embedding if it is not computed yet."""
        return F.embedding(tokens, self.first.embedding) if resid is None else resid

    def _attention(
        self, l: int, resid: Float[Tensor, "batch pos d_model"], before: Branch
    ) -> tuple[Float[Tensor, "batch pos d_model"], Float[Tensor, "batch query head d_head"]]:
        """Return the stream that enters a layer, as it is changed there, and `attn.z`."""
        if not before.changes and not self._is_watched(l, before, UP_TO_Z):
            return resid, self.blocks[l].z(resid)
        stream = before.hook("embed", resid) if l == 0 else resid
        stream = before.hook(f"blocks.{l}.resid_pre", stream)
        query = self.model.queries(l, self.read)
        return stream, self.model.blocks[l].attention(stream, before.hook, query)

    def _zeroed(self, l: int, branch: Branch) -> Zeroed | None:
        """Return the parts that a branch zeroes in a layer, or None if it needs its hook there."""
        if self._is_watched(l, branch, set(FROM_Z_ON) - {"resid_mid"}):
            return None
        config = self.model.config
        parts = zeroed_in(l, branch.changes, self.interventions[branch.members[0]], config)
        if l == config.layers - 1 and branch.members == [self.watcher]:
            return Zeroed(mlp=True)  # what the MLP adds is not needed
        return parts

    def _is_watched(self, l: int, branch: Branch, points: Collection[str]) -> bool:
        """Return True if the watcher sees this branch at some of a layer's points."""
        if self.watcher not in branch.members or self.watch is no_hook:
            return False
        if not isinstance(self.watch, HookAt):
            return True
        return not self.watch.points.isdisjoint(f"blocks.{l}.{point}" for point in points)

    def _branches(self, members: Sequence[int], names: Sequence[str]) -> list[Branch]:
        """Return the members grouped by what they change among the named activations."""
        members_by_change: dict[tuple[tuple[str, Hashable], ...], list[int]] = {}
        for i in members:
            change = tuple(
                (name, self.changes[i][name]) for name in names if name in self.changes[i]
            )
            members_by_change.setdefault(change, []).append(i)
        branches = []
        for change, branch_members in members_by_change.items():
            hook: TensorHook = no_hook
            if change:
                hook = self.hooks[branch_members[0]]
            elif self.watcher in branch_members:
                hook = self.watch
            branches.append(Branch(branch_members, hook, changes=dict(change)))
        return branches
