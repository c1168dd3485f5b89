"""Swaps between the two sums of a pair: one part's output at one position, from the other sum.

A swap is the core's `Patch` of one part at one position, and tests check that the two agree. Run as
hooks, the million swaps of a map would repeat most of their work: nearly all of them leave the
first layers unchanged, and after them all but one row of the residual stream. `RowSwaps` starts
from that row, on activations that all swaps of a batch share, and is five times as fast.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core.errors import BadInput, check_whole
from carry_core.hooks import TensorHook, no_hook
from carry_core.interventions import Patch
from carry_core.model import ModelConfig, Transformer, rotate
from carry_core.pairs import Pairs
from carry_core.sums import encode
from carry_fast.plain import is_plain, is_precise

PARTS_OF_A_LAYER = (
    *("resid_pre", "attn.z", "attn_out", "attn.skip", "resid_mid"),
    *("mlp_out", "mlp.skip", "resid_post"),
)

# Where both sums have the same token at a position, the stream that enters the first layer is the
# same. Then swapping one of these changes nothing (None), or only what attention adds.
SAME_WITH_SAME_TOKEN = {
    "blocks.0.resid_pre": None,
    "blocks.0.attn.skip": None,
    "blocks.0.resid_mid": "blocks.0.attn_out",
}


def components(config: ModelConfig) -> list[str]:
    """Return the names of all parts that can be swapped, in the order of the forward pass.

    Heads have names such as `blocks.1.attn.z:0`.
    """
    names = []
    for layer in range(config.layers):
        for part in PARTS_OF_A_LAYER:
            name = f"blocks.{layer}.{part}"
            if part == "attn.z":
                names += [f"{name}:{head}" for head in range(config.heads)]
            else:
                names.append(name)
    return names


def check_swap(config: ModelConfig, component: str, position: int, base: int) -> None:
    """Raise `BadInput` unless a model has this component and position, and a pair this side."""
    names = components(config)
    if component not in names:
        raise BadInput(
            f"component={component!r}: expected one of {len(names)} from {names[0]} to "
            f"{names[-1]}, as `components` lists them."
        )
    check_whole("position", position, 0, config.layout.length - 1)
    check_whole("base", base, 0, 1)


class Component(NamedTuple):
    """A part that can be swapped, parsed from its name."""

    layer: int
    point: str  # the hook point
    head: int | None  # None if the part is not a head

    @classmethod
    def parsed(cls, name: str) -> "Component":
        """Return the component with this name, such as `blocks.1.attn.z:0`."""
        point, _, head = name.partition(":")
        return cls(int(point.split(".")[1]), point, int(head) if head else None)

    def patch(self, position: int) -> Patch:
        """Return the `Patch` to which swapping the component at a position is equivalent."""
        if self.head is not None:
            heads = frozenset({(self.layer, self.head)})
            return Patch(heads=heads, positions=(position,))
        return Patch(names=frozenset({self.point}), positions=(position,))


def swaps_between(model: Transformer, pairs: Pairs) -> "RowSwaps | PatchedPasses":
    """Return the swaps between the sums of each pair, the faster way if it gives the same."""
    is_faster = is_plain(model) and is_precise(model)
    return RowSwaps(model, pairs) if is_faster else PatchedPasses(model, pairs)


class PatchedPasses:
    """Swaps as `Patch`es, with one pass of the model for each swap, for any model.

    Attributes:
        answers: The digits that the intact model answers, `[sums, column]`, for each side of
            the pairs.
    """

    def __init__(self, model: Transformer, pairs: Pairs) -> None:
        self.model, self.pairs = model, pairs
        self.tokens = [encode(a, b, model.config.layout).to(model.device) for a, b in pairs]
        self.answers = [self._answer(side, no_hook) for side in (0, 1)]

    def swapped(self, component: str, position: int, base: int) -> Int[Tensor, "sums column"]:
        """Return the answers of side `base` with a component's output from the other side.

        Raises:
            BadInput: There is no such component, position or side.
        """
        check_swap(self.model.config, component, position, base)
        return self._patched(Component.parsed(component).patch(position), base)

    def swapped_neurons(
        self, neurons: Bool[Tensor, " neuron"], position: int, base: int
    ) -> Int[Tensor, "sums column"]:
        """Return the answers of side `base` with neurons of the last MLP from the other side."""
        last = self.model.config.layers - 1
        layer_neurons = frozenset((last, neuron) for neuron in neurons.nonzero().flatten().tolist())
        return self._patched(Patch(neurons=layer_neurons, positions=(position,)), base)

    def _patched(self, patch: Patch, base: int) -> Int[Tensor, "sums column"]:
        source_a, source_b = self.pairs[1 - base]
        return self._answer(base, patch.hook(self.model, (source_a, source_b)))

    @torch.no_grad()
    def _answer(self, side: int, hook: TensorHook) -> Int[Tensor, "sums column"]:
        logits = self.model(self.tokens[side], hook)
        return torch.argmax(logits[:, list(self.model.config.layout.answer)], -1)


class Rotated(NamedTuple):
    """A layer's queries, keys and values after the rotation.

    Attributes:
        scores: Products of queries and keys, not yet divided by sqrt(d_head).
    """

    q: Float[Tensor, "sums head query d_head"]
    k: Float[Tensor, "sums head key d_head"]
    v: Float[Tensor, "sums head key d_head"]
    scores: Float[Tensor, "sums head query key"]


class IntactPass(NamedTuple):
    """Results of a pass of the intact model over one side's sums, as swaps need them."""

    cache: dict[str, Tensor]  # at every hook point
    rotated: list[Rotated]  # of each layer
    answer: Int[Tensor, "sums column"]  # the model's digits


class RowSwaps:
    """Swaps that compute only what changes, starting from one row of the residual stream.

    They give the same answers as `PatchedPasses`, for a plain model (`plain.is_plain`).

    Attributes:
        answers: As in `PatchedPasses`.
    """

    @torch.inference_mode()
    def __init__(self, model: Transformer, pairs: Pairs) -> None:
        self.model = model
        self.passes = [self._intact_pass(*numbers) for numbers in pairs]
        self.answers = [intact.answer for intact in self.passes]
        self._swapped: dict[tuple[str, int, int], Tensor] = {}

    def _intact_pass(self, a: Int[Tensor, " sums"], b: Int[Tensor, " sums"]) -> IntactPass:
        model, layout = self.model, self.model.config.layout
        logits, cache = model.run_with_cache(encode(a, b, layout).to(model.device))
        rotated = []
        for layer, block in enumerate(model.blocks):
            query = model.queries(layer, layout.answer)
            qkv = block.qkv(cache[f"blocks.{layer}.resid_pre"], query=query)
            q, k, v = (x.transpose(1, 2).contiguous() for x in qkv)
            rotated.append(Rotated(q, k, v, scores=q @ k.mT))
        return IntactPass(cache, rotated, logits[:, list(layout.answer)].argmax(-1))

    @torch.inference_mode()
    def swapped(self, component: str, position: int, base: int) -> Int[Tensor, "sums column"]:
        """Return the answers of side `base` with a component's output from the other side.

        Raises:
            BadInput: There is no such component, position or side.
        """
        check_swap(self.model.config, component, position, base)
        smaller: str | None = component
        if component in SAME_WITH_SAME_TOKEN and self._same_token(position):
            smaller = SAME_WITH_SAME_TOKEN[component]
        if smaller is None:
            return self.answers[base]
        key = (smaller, position, base)
        if key not in self._swapped:
            self._swapped[key] = self._answer_with(Component.parsed(smaller), position, base)
        return self._swapped[key]

    @torch.inference_mode()
    def swapped_neurons(
        self, neurons: Bool[Tensor, " neuron"], position: int, base: int
    ) -> Int[Tensor, "sums column"]:
        """Return the answers of side `base` with neurons of the last MLP from the other side."""
        last = self.model.config.layers - 1
        cache, source = self.passes[base].cache, self.passes[1 - base].cache
        name = f"blocks.{last}.mlp.post"
        step = source[name][:, position] - cache[name][:, position]  # (sums, neuron)
        written = step[:, neurons] @ self.model.blocks[last].down.weight[:, neurons].T
        resid_post = cache[f"blocks.{last}.resid_post"][:, position] + written
        return self._with_digit(base, position, resid_post)

    def _same_token(self, position: int) -> bool:
        first, second = (intact.cache["blocks.0.resid_pre"][:, position] for intact in self.passes)
        return torch.equal(first, second)

    def _answer_with(
        self, component: Component, position: int, base: int
    ) -> Int[Tensor, "sums column"]:
        """Return the answers of side `base` with a component's output from the other side."""
        source_row = _row(self.passes[1 - base].cache[component.point], position)
        if component.point.endswith("resid_pre"):
            return self._answer_from(component.layer, position, source_row, base)
        row = self._resid_post_with(component, position, source_row, base)
        next_layer = component.layer + 1
        if next_layer == self.model.config.layers:
            return self._with_digit(base, position, row[:, 0])
        return self._answer_from(next_layer, position, row, base)

    def _resid_post_with(
        self, component: Component, position: int, source_row: Tensor, base: int
    ) -> Float[Tensor, "sums 1 d_model"]:
        """Return the row of the stream after the layer, with the component's output swapped."""

        def patch(point: str, x: Tensor) -> Tensor:
            if point != component.point:
                return x
            if component.head is None:
                return source_row
            is_head = torch.arange(x.shape[2], device=x.device)[:, None] == component.head
            return torch.where(is_head, source_row, x)

        block, cache = self.model.blocks[component.layer], self.passes[base].cache
        resid_pre = _row(cache[f"blocks.{component.layer}.resid_pre"], position)
        z = _row(cache[f"blocks.{component.layer}.attn.z"], position)
        return block.mlp(block.mix(resid_pre, z, patch), patch)

    def _with_digit(
        self, base: int, position: int, resid_post: Float[Tensor, "sums d_model"]
    ) -> Int[Tensor, "sums column"]:
        """Return the answers of side `base` with a new row in the stream after the last layer."""
        answer = self.answers[base]
        positions = self.model.config.layout.answer
        if position not in positions:
            return answer
        answer = answer.clone()
        answer[:, positions.index(position)] = self._digits(resid_post)
        return answer

    def _answer_from(
        self, layer: int, position: int, row: Float[Tensor, "sums 1 d_model"], base: int
    ) -> Int[Tensor, "sums column"]:
        """Return the answers of side `base` with a new row in the stream that enters a layer."""
        model, read = self.model, self.model.config.layout.answer
        resid = self.passes[base].cache[f"blocks.{layer}.resid_pre"].clone()
        _row(resid, position).copy_(row)
        z = self._attention_with(layer, position, row, base)
        for l in range(layer, model.config.layers):
            block, query = model.blocks[l], model.queries(l, read)
            if l > layer:
                z = block.attention(resid, no_hook, query)
            resid = block.mlp(block.mix(resid[:, query], z, no_hook), no_hook)
        return self._digits(resid)

    def _attention_with(
        self, layer: int, position: int, row: Float[Tensor, "sums 1 d_model"], base: int
    ) -> Float[Tensor, "sums query head d_head"]:
        """Return `attn.z` with a new row in the stream that enters the layer.

        Queries, keys and values are recomputed for this row only.
        """
        block, config = self.model.blocks[layer], self.model.config
        q, k, v, scores = self.passes[base].rotated[layer]

        normed = block.norm(row)
        new_q, new_k, new_v = (
            rotate(
                projection(normed).unflatten(-1, (config.heads, config.d_head)),
                block.rotation[[position]],
            ).transpose(1, 2)
            for projection in (block.q, block.k, block.v)
        )  # (sums, head, 1, d_head)

        all_positions = torch.arange(config.layout.length, device=row.device)
        queries = all_positions[self.model.queries(layer, config.layout.answer)]
        is_own_query = queries == position
        scores = scores.clone()
        scores[:, :, is_own_query] = new_q @ k.mT
        own_q = torch.where(is_own_query[:, None], new_q, q)
        scores[..., position] = (own_q * new_k).sum(-1)
        scores /= math.sqrt(config.d_head)
        if config.causal:
            scores = scores.masked_fill(all_positions > queries[:, None], -torch.inf)

        # Over ten keys, PyTorch's own softmax takes longer.
        pattern = (scores - scores.amax(-1, keepdim=True)).exp()
        pattern /= pattern.sum(-1, keepdim=True)
        z = pattern @ v
        # Adding the change of one value is cheaper than copying all values.
        z += pattern[..., [position]] * (new_v - v[:, :, [position]])
        return z.transpose(1, 2)

    def _digits(self, resid: Float[Tensor, "*batch d_model"]) -> Int[Tensor, "*batch"]:
        """Return the digits that the model reads off the stream after its last layer."""
        return torch.argmax(self.model.unembed(self.model.norm(resid)), -1)


def _row(x: Float[Tensor, "sums pos *rest"], position: int) -> Float[Tensor, "sums 1 *rest"]:
    """Return a view of the row at one position."""
    return x[:, position : position + 1]
