"""The last layer after its attention, for many sums and for many sets of neurons at once.

Ablating neurons of the final MLP changes nothing before that MLP. So the residual stream after the
last attention is computed once for all sums, and what many ablations share is computed once for
each sum. A dozen ablations then cost about as much as one or two passes of the model.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core.errors import BadInput
from carry_core.model import Transformer
from carry_fast.compiled import CompiledBlock, CompiledUnembedding, bits, is_compiled
from carry_fast.layers import product
from carry_fast.plain import is_plain, is_precise

# Some of the sums, as indices in ascending order; a sum may occur more than once.
Indices = Int[Tensor, " _"]

# The stream after the MLP, `[sums, pos, d_model]`, of some sums of a chunk with the i-th set of
# neurons; and a function that prepares a chunk for this.
Posts = Callable[[int, Indices], Float[Tensor, "sums pos d_model"]]
PostsOf = Callable[[Float[Tensor, "chunk pos d_model"]], Posts]

CHUNK = 2_048  # sums that pass through the MLP at once; some hundred of them are in each set


def _shared(
    neurons: Bool[Tensor, "set neuron"],
) -> tuple[Bool[Tensor, " set"], Bool[Tensor, " neuron"], Bool[Tensor, "set neuron"]]:
    """Return what sets of neurons share; what those write is computed once for all near sets.

    Returns:
        Masks of the sets that have most of their neurons in common with the first (*near* ones), of
        the neurons that all of these have, and of those that each set has besides: of a set that is
        not near, all.
    """
    is_near = (neurons ^ neurons[:1]).sum(1) < neurons.sum(1)
    in_near = neurons[is_near].all(0)
    return is_near, in_near, neurons & ~(is_near.unsqueeze(1) & in_near)


class LastLayer:
    """A plain model after its last attention, at the answer positions of many sums.

    Its results equal those of `model.py` under an `Ablation` of neurons up to rounding, since
    terms are added in another order.

    Attributes:
        resid_mid: The residual stream after the last attention, `[sums, pos, d_model]`; 0.8 GB
            for the 500,500 sums of three digits.
    """

    def __init__(self, model: Transformer, n_sums: int) -> None:
        """Prepare for `n_sums` sums, whose streams are added by `append`.

        Raises:
            BadInput: The model is not plain (`plain.is_plain`), or computes in half precision.
        """
        if not (is_plain(model) and is_precise(model)):
            raise BadInput(
                "A survey reads the model's weights: expected a Transformer without hooks of "
                "PyTorch and without wrapped or replaced parts, in float32 or float64, such as "
                "`load(...).model(0)`."
            )
        config = model.config
        self.model = model
        self.block = model.blocks[config.layers - 1]
        dtype = model.embed.weight.dtype
        # This takes up memory only as it is filled.
        self.resid_mid = torch.empty(n_sums, config.width, config.d_model, dtype=dtype)
        self.n_filled = 0
        self.compiled: CompiledBlock | None = None
        self.unembed: CompiledUnembedding | None = None
        if is_compiled(model):
            self.compiled = CompiledBlock(self.block, config.layout.answer)
            self.unembed = CompiledUnembedding(model)

    def append(self, resid_mid: Float[Tensor, "batch pos d_model"]) -> None:
        """Store the streams of the next sums."""
        end = self.n_filled + len(resid_mid)
        self.resid_mid[self.n_filled : end] = resid_mid
        self.n_filled = end

    def answers_without_mlp(
        self, resid_mid: Float[Tensor, "batch pos d_model"]
    ) -> Int[Tensor, "batch pos"]:
        """Return the model's answers from these streams with its final MLP ablated."""
        return self._answers(resid_mid)

    def class_means(
        self, carry_class: Int[Tensor, " sums"], n_classes: int, sets: Sequence[Indices]
    ) -> Float[Tensor, "set carry_class neuron"]:
        """Return the neurons' mean activations at the first answer digit, by set and class of sums.

        They are NaN where a set has no sum of the class. One pass serves all sets, since they
        overlap.
        """
        counts = torch.stack([torch.bincount(sums, minlength=len(carry_class)) for sums in sets])
        is_in_class = torch.stack(
            [carry_class == i for i in range(n_classes)]
        )  # (carry_class, sums)
        shape = len(sets), n_classes
        total = torch.zeros(*shape, self.model.config.d_ff, dtype=torch.float64)
        size = torch.zeros(*shape, 1, dtype=torch.float64)
        for chunk in self._chunks():
            normed = self.block.norm(self.resid_mid[chunk, 0])
            post = self.block.up(normed).relu()  # (sums, neuron)
            # The number of times that a sum is in a set, by class: (set, carry_class, sums)
            weight = (counts[:, None, chunk] * is_in_class[:, chunk]).to(post)
            total += product(weight.flatten(0, 1), post.mT).view(total.shape)
            size += weight.sum(-1, keepdim=True)
        return total / size

    def answers(
        self, neurons: Bool[Tensor, "set neuron"], sets: Sequence[Indices]
    ) -> list[Int[Tensor, "_ pos"]]:
        """Return the model's answers, as int8, with only some neurons of its final MLP.

        Row i of `neurons` marks the neurons that stay for the i-th set of sums. All others are
        ablated.
        """
        n_positions = self.resid_mid.shape[1]
        answers = [torch.empty(len(sums), n_positions, dtype=torch.int8) for sums in sets]
        posts_of = self._posts(neurons)
        if self.compiled is not None:
            posts_of = self._compiled_posts(self.compiled, neurons)
        for chunk in self._chunks():
            posts = posts_of(self.resid_mid[chunk])
            for i, sums in enumerate(sets):
                # The set's sums that are in this chunk.
                bounds = torch.tensor([chunk.start, chunk.stop])
                first, end = torch.searchsorted(sums, bounds).tolist()
                answers[i][first:end] = self._answers(posts(i, sums[first:end] - chunk.start))
        return answers

    def _posts(self, neurons: Bool[Tensor, "set neuron"]) -> PostsOf:
        """Return a function of a chunk's `resid_mid` whose result is a `Posts` of these sets."""
        up, down = self.block.up, self.block.down
        is_near, in_near, others = _shared(neurons)
        down_of_near = down.weight[:, in_near].contiguous()
        down_of_others = [down.weight[:, row].contiguous() for row in others]

        def posts_of(resid_mid: Tensor) -> Posts:
            post = product(self.block.norm(resid_mid), up.weight, up.bias).relu()
            without = resid_mid + down.bias
            with_near = without + product(post[..., in_near], down_of_near)

            def posts(i: int, sums: Tensor) -> Tensor:
                stream = with_near if is_near[i] else without
                return stream[sums] + product(post[sums][..., others[i]], down_of_others[i])

            return posts

        return posts_of

    def _compiled_posts(self, block: CompiledBlock, neurons: Bool[Tensor, "set neuron"]) -> PostsOf:
        """Return the same as `_posts`, computed in C++."""
        is_near, in_near, others = _shared(neurons)
        bits_of_near, bits_of_others = bits(in_near.unsqueeze(0))[0], bits(others)
        position = torch.arange(self.resid_mid.shape[1]).unsqueeze(1)

        def posts_of(resid_mid: Tensor) -> Posts:
            # Rows of one position follow each other, since much the same neurons are active.
            mid = resid_mid.transpose(0, 1).flatten(0, 1)
            fired = block.fire(mid)
            without = mid + self.block.down.bias
            with_near = block.with_neurons(without, fired, bits_of_near, torch.arange(len(mid)))

            def posts(i: int, sums: Tensor) -> Tensor:
                stream = with_near if is_near[i] else without
                rows = (position * len(resid_mid) + sums).flatten()
                post = block.with_neurons(stream, fired, bits_of_others[i], rows)
                return post.view(len(position), len(sums), post.shape[1]).transpose(0, 1)

            return posts

        return posts_of

    def _chunks(self) -> Iterator[slice]:
        for start in range(0, len(self.resid_mid), CHUNK):
            yield slice(start, start + CHUNK)

    def _answers(self, resid: Float[Tensor, "batch pos d_model"]) -> Int[Tensor, "batch pos"]:
        """Return the digits that the model reads off the stream after its last layer."""
        if self.unembed is not None:
            return torch.argmax(self.unembed(resid), -1)
        return torch.argmax(self.model.unembed(self.model.norm(resid)), -1)
