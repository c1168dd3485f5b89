"""A model under many interventions at once: what they have in common is computed only once.

Interventions share a pass up to the first activation that they change differently. Where nothing
but zero ablations of heads, skips, MLPs and neurons changes a layer, it runs without hooks
(`blocks.PlainBlock`, or in C++ `compiled`), and these share its attention and what each head
writes. The logits equal those of `model.py` with one
intervention at a time up to rounding, and take a quarter of the time or less.

A worked example: a model of two layers under four interventions, its members:

    0  INTACT   1  Ablation(heads={(1, 0)})   2  Ablation(mlps={1})   3  Ablation(mlps={0})

A layer is cut in two at `attn.z`. Members that so far changed the same activations in the same way
are a `Branch`, and the stream of a branch is computed once:

    layer 0, up to attn.z      {0 1 2 3}         nobody changes anything: one attention
    layer 0, from attn.z on    {0 1 2} {3}       one `resid_mid`, since an MLP comes after it;
                                                 its MLP once, for {0 1 2}; {3} skips it
    layer 1, up to attn.z      {0 1 2} {3}       one attention for each of two streams
    layer 1, from attn.z on    {0} {1} {2} {3}   from the z of {0 1 2}: a `resid_mid` for {0}, {2},
                                                 and one without head 0; MLPs for {0}, {1}, {3}
    logits                     {0} {1} {2} {3}   four unembeddings

Four passes take eight attentions and eight MLPs; this tree takes three and four. In the code,
`_branches` makes the branches of one line from those of the line above, `_layer` computes two
lines, and `_follow` goes down the tree, branch by branch.

All this reads the model's weights, and takes two interventions for one where `changes_of` says that
they are alike. So `engine.passes` shares only for plain models (`plain.is_plain`) in float32 or
float64 and for interventions of the core's own kinds.
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from carry_core import engine
from carry_core.engine import Passes, Sources, hooks_of, only_seen_by
from carry_core.hooks import Hook, HookAt, TensorHook, checked_hook, no_hook
from carry_core.interventions import (
    INTACT,
    Ablation,
    AnyIntervention,
    Combined,
    MeanAblation,
    Patch,
)
from carry_core.model import POINTS, ModelConfig, Read, Transformer
from carry_core.sums import VOCABULARY
from carry_fast.blocks import Zeroed
from carry_fast.compiled import parts_of


def is_own_kind(intervention: AnyIntervention) -> bool:
    """Return True if `changes_of` says all that an intervention does: a subclass may do more."""
    if type(intervention) is Combined:
        return all(map(is_own_kind, intervention.parts))
    return type(intervention) in (Ablation, MeanAblation, Patch)


def changes_of(intervention: AnyIntervention, config: ModelConfig) -> dict[str, Hashable]:
    """Return a key for each hook point that is changed; equal keys mean equal changes."""
    parts = intervention.parts if isinstance(intervention, Combined) else (intervention,)
    changes: dict[str, Hashable] = {}
    for part in parts:
        method = (type(part), part.positions, getattr(part, "source", None))
        for name, indices in part.targets(config).items():
            changes[name] = (changes.get(name), method, indices)
    return changes


def zeroed_in(
    layer: int,
    changes: Mapping[str, Hashable],
    intervention: AnyIntervention,
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


class Branch(NamedTuple):
    """Interventions that do the same at some hook points."""

    members: list[int]  # their indices
    hook: TensorHook  # does it
    changes: dict[str, Hashable]  # by the hook points that it changes


AT_Z = POINTS.index("attn.z")
UP_TO_Z, FROM_Z_ON = POINTS[:AT_Z], POINTS[AT_Z:]


class SharedPrefix:
    """Logits under several interventions of a plain model; arguments as `carry_core.engine.passes`.

    A watcher is an extra member that changes nothing, so that it sees the intact model whatever
    the interventions are.
    """

    def __init__(
        self,
        model: Transformer,
        interventions: Sequence[AnyIntervention],
        read: Read = None,
        watch: Hook | None = None,
        sources: Sources = (),
    ) -> None:
        self.model, self.read = model, model.config.checked_read(read)
        self.arguments = model, interventions, self.read, watch, sources
        self.interventions = [*interventions]
        hook_name, positions_at = model.config.hook_name, model.config.positions_at
        self.hooks = [
            checked_hook(hook, hook_name, partial(positions_at, read=self.read), reads_all=True)
            for hook in hooks_of(model, interventions, read, sources)
        ]
        own_sources = sources or [None] * len(interventions)
        self.changes: list[dict[str, Hashable]] = []
        for intervention, source in zip(interventions, own_sources, strict=True):
            changes: dict[str, Hashable] = {}
            for name, change in changes_of(intervention, model.config).items():
                changes[name] = (change, id(source))  # equal changes from different sources differ
            self.changes.append(changes)
        self.watch: TensorHook = no_hook
        self.watcher = len(self.hooks)
        if watch is not None:
            self.watch = only_seen_by(watch)
            self.interventions.append(INTACT)
            self.changes.append({})
        self.first, self.blocks, self.unembed = parts_of(model, self.read)

    @torch.inference_mode()
    def __call__(self, tokens: Tensor) -> list[Float[Tensor, "batch query vocab"]]:
        """Return the logits under each intervention, from tokens `[batch, pos]`."""
        length = self.model.config.layout.length
        is_usual = tokens.dtype == torch.int64 and tokens.shape[1:] == (length,)
        if not (is_usual and ((tokens >= 0) & (tokens < VOCABULARY)).all()):
            # Such as the first tokens of sums. The model itself refuses what are no tokens.
            return self._plain_pass(tokens)
        logits: dict[int, Tensor] = {}
        self._follow(0, tokens, None, range(len(self.changes)), logits)
        return [logits[i] for i in range(len(self.hooks))]

    @cached_property
    def _plain_pass(self) -> Passes:
        return engine.passes(*self.arguments)

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
        if l == 0 and self.first is not None and not before.changes:
            mids = self.first.mids(tokens, query, conditions)
        else:
            resid, z = self._attention(l, self._entering(tokens, resid), before)
            mids = plain.mids(resid[:, query], z, conditions)
        afters = []
        for branch, parts in zip(branches, zeroed_parts, strict=True):
            if parts is None:
                if z is None:
                    resid, z = self._attention(l, self._entering(tokens, resid), before)
                assert resid is not None
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
        if resid is not None:
            return resid
        embedded: Tensor = self.model.embed(tokens) * math.sqrt(self.model.config.d_model)
        return embedded

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
