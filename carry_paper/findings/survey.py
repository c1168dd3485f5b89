"""A survey of one run: all that the ledger measures on its sums, from one pass over them.

The stream before the final MLP is kept, so that the dissection of this MLP needs no pass of its
own: choosing its carry neurons on all sums and ablating them, and doing so again on samples of the
paper's size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core import carries, measure, sums
from carry_core.errors import BadInput
from carry_core.hooks import HookAt
from carry_core.interventions import Ablation
from carry_core.measure import ClassAccuracies
from carry_core.model import Transformer
from carry_core.sums import Numbers
from carry_fast.plain import is_plain, is_precise
from carry_train import groups

DRAWN = 20_000  # sums per class in a sample of the paper's size
DRAWS = 10  # the number of such samples on which the final MLP is dissected again
RANDOM_DRAWS = 5  # of these, the samples on which as many random neurons are ablated instead
SAMPLE = 20_000  # random sums for a finding that does not need all of them
# The number of a run's sums on which an ablation before the last layer is measured. Such an
# ablation needs a pass of its own.
EARLY = 100_000
CHUNK = 2_048  # sums that pass through the final MLP at once
LARGEST_WHOLE = 3  # digits of the longest sums of which all are surveyed

Stream = Float[Tensor, "sums pos d_model"]  # after the last attention, where answers are predicted
Indices = Int[Tensor, " _"]  # of some sums; one may occur more than once

# ---- sums


@cache
def fixed_sums(group: str) -> tuple[Numbers, Numbers]:
    """Return the sums on which a group's runs are surveyed.

    Up to three digits these are all sums; above, they are a sample of the paper's size.
    """
    n_digits = groups.find(group).n_digits
    is_whole = n_digits <= LARGEST_WHOLE
    return sums.all_sums(n_digits) if is_whole else measure.sample(DRAWN, n_digits, seed=0)


def random_sums(
    n_digits: int = 3, count: int | None = None, seed: int = 0
) -> tuple[Numbers, Numbers]:
    """Return `count` random sums (`SAMPLE` if None); the same seed gives the same sums."""
    return sums.long_sums(count or SAMPLE, n_digits, torch.Generator().manual_seed(seed))


# ---- what is surveyed


@dataclass(frozen=True)
class Need:
    """Ablations and a dissection to survey on each run of a group, besides ablating the final MLP.

    Attributes:
        ablations: The ablations under which accuracies are measured.
        dissect: True if the final MLP is to be dissected (Sec. 5).
    """

    ablations: frozenset[Ablation] = frozenset()
    dissect: bool = False

    def __or__(self, other: "Need") -> "Need":
        return Need(self.ablations | other.ablations, self.dissect or other.dissect)


@dataclass(frozen=True)
class Dissected:
    """The final MLP without some of its neurons: its carry neurons (Sec. 5), or random ones."""

    neurons: int  # the number of these neurons
    cells: ClassAccuracies  # the accuracies while they are ablated


@dataclass(frozen=True)
class Survey:
    """The measurements on one run.

    Attributes:
        cells: The accuracies under each ablation. That of the final MLP is always among them,
            since it costs nothing.
        dissected: The dissection, with neurons chosen on all sums and ablated on all sums; None
            if it was not asked for.
        dissected_samples: `DRAWS` such dissections, with neurons chosen on one random sample and
            ablated on another.
        random_samples: The final MLP without as many random neurons as it has carry neurons, on
            the first `RANDOM_DRAWS` of the samples on which these are ablated.
        decision_head: The ablation of the head that `measure.decision_head` names; None unless
            each head of the last layer was ablated by itself.
    """

    cells: Mapping[Ablation, ClassAccuracies]
    dissected: Dissected | None = None
    dissected_samples: tuple[Dissected, ...] = ()
    random_samples: tuple[Dissected, ...] = ()
    decision_head: Ablation | None = None

    @property
    def heads(self) -> list[Ablation]:
        """Return each head that was ablated by itself, the decision head first.

        The others follow in order of the exact matches that they cost, the costliest first.

        Raises:
            BadInput: Some head of the last layer was not ablated by itself.
        """
        if self.decision_head is None:
            raise BadInput(
                "This survey names no decision head: expected one that covers each head of the "
                "last layer, with `Need(frozenset(measure.last_heads(model)))`."
            )
        single_heads = []
        for ablation in self.cells:
            if len(ablation.heads) == 1 and ablation == Ablation(heads=ablation.heads):
                single_heads.append(ablation)

        def others_by_cost(head: Ablation) -> tuple[bool, float]:
            return head != self.decision_head, self.cells[head].exact_match

        return sorted(single_heads, key=others_by_cost)

    @property
    def without_mlp(self) -> ClassAccuracies:
        """Return the accuracies without the final MLP."""
        return next(cells for ablation, cells in self.cells.items() if ablation.mlps)


# ---- the survey


@torch.inference_mode()
def survey(model: Transformer, a: Numbers, b: Numbers, need: Need) -> Survey:
    """Survey one run on the sums a + b, which should have all classes.

    An ablation that changes a layer before the last is measured on `EARLY` of the sums.

    Raises:
        BadInput: A model is to be dissected that is not plain (`plain.is_plain`), or computes in
            half precision.
    """
    if need.dissect and not (is_plain(model) and is_precise(model)):
        raise BadInput(
            "A dissection reads the model's weights: expected a Transformer without hooks of "
            "PyTorch and without wrapped or replaced parts, in float32 or float64, such as "
            "`load(...).model(0)`."
        )
    config = model.config
    last_layer = f"blocks.{config.layers - 1}."
    # It takes up memory only as it is filled: 0.8 GB for the sums of three digits.
    n_dissected = len(a) if need.dissect else 0
    resid_mid = model.embed.weight.new_empty(n_dissected, config.width, config.d_model)
    n_stored = 0

    def store(name: str, x: Tensor) -> Tensor:
        nonlocal n_stored
        resid_mid[n_stored : n_stored + len(x)] = x
        n_stored += len(x)
        return x

    # The final MLP comes first, since `Survey.without_mlp` takes the first ablation of an MLP.
    final_mlp = measure.final_mlp(model)
    late = [final_mlp]
    early: list[Ablation] = []
    for ablation in sorted(need.ablations - {final_mlp}, key=str):
        is_late = all(last_layer in name for name in ablation.targets(config))
        (late if is_late else early).append(ablation)
    watch = HookAt(frozenset({f"{last_layer}resid_mid"}), store) if need.dissect else None
    predictions = measure.predict(model, a, b, late, watch=watch)
    cells = {}
    for ablation, predicted in zip(late, predictions, strict=True):
        cells[ablation] = measure.score(predicted, a, b)
    if early:
        order = torch.randperm(len(a), generator=torch.Generator().manual_seed(0))
        # In their own order, sums that follow each other have much the same neurons at zero.
        sampled = order[:EARLY].sort().values
        tables = measure.class_accuracies(model, a[sampled], b[sampled], early)
        cells |= zip(early, tables, strict=True)
    last_heads = measure.last_heads(model)
    decision_head = None
    if need.ablations.issuperset(last_heads):
        decision_head = last_heads[measure.decision_head(model)]
    if not need.dissect:
        return Survey(cells, decision_head=decision_head)
    pairs = samples(a, b, config.width)
    dissected = dissect(model, resid_mid, a, b, pairs)
    on_samples, random = dissected[1 : len(pairs)], dissected[len(pairs) :]
    return Survey(cells, dissected[0], tuple(on_samples), tuple(random), decision_head)


# ---- the dissection of the final MLP (Sec. 5)


class Samples(NamedTuple):
    """The sums on which carry neurons are chosen, and those on which they are then ablated."""

    chosen_on: Indices
    ablated_on: Indices


def samples(a: Numbers, b: Numbers, width: int) -> list[Samples]:
    """Return all sums, then `DRAWS` pairs of random samples of `DRAWN` sums from each class."""
    carry_class = carries.classify(a, b, width)
    members = [(carry_class == i).nonzero().flatten() for i in range(len(carries.patterns(width)))]

    def sample(generator: torch.Generator) -> Indices:
        parts = []
        for indices in members:
            parts.append(indices[torch.randint(len(indices), (DRAWN,), generator=generator)])
        return torch.cat(parts).sort().values

    everything = torch.arange(len(a))
    pairs = [Samples(everything, everything)]
    for seed in range(DRAWS):
        generator = torch.Generator().manual_seed(seed)
        pairs.append(Samples(chosen_on=sample(generator), ablated_on=sample(generator)))
    return pairs


def dissect(
    model: Transformer, resid_mid: Stream, a: Numbers, b: Numbers, pairs: Sequence[Samples]
) -> list[Dissected]:
    """Choose the carry neurons on some of the sums a + b and ablate them on others (Sec. 5).

    The control comes last: as many random neurons as the first pair's carry neurons, others on
    each of the next `RANDOM_DRAWS` pairs' sums. It ablates as much, but without choosing.
    """
    carry_class = carries.classify(a, b, model.config.width)
    neurons = [carry_neurons(model, resid_mid, carry_class, pair.chosen_on) for pair in pairs]
    controls = pairs[1 : 1 + RANDOM_DRAWS]
    neurons += random_neurons(model.config.d_ff, int(neurons[0].sum()), len(controls))
    dissected = []
    for ablated, (_, rows) in zip(neurons, (*pairs, *controls), strict=True):
        answers = answers_without(model, resid_mid, ablated, rows)
        cells = measure.score(answers, a[rows], b[rows])
        dissected.append(Dissected(neurons=int(ablated.sum()), cells=cells))
    return dissected


def random_neurons(d_ff: int, count: int, n_sets: int) -> Bool[Tensor, "set neuron"]:
    """Return sets of `count` of the `d_ff` neurons, each drawn at random, as masks."""
    generator = torch.Generator().manual_seed(0)
    neurons = torch.zeros(n_sets, d_ff, dtype=torch.bool)
    for row in neurons:
        row[torch.randperm(d_ff, generator=generator)[:count]] = True
    return neurons


def carry_neurons(
    model: Transformer, resid_mid: Stream, carry_class: Int[Tensor, " sums"], chosen_on: Indices
) -> Bool[Tensor, " neuron"]:
    """Return a mask of the neurons that carry on some sums, as in `heads.carry_neurons`."""
    block = model.blocks[model.config.layers - 1]
    n_classes = len(carries.patterns(model.config.width))
    total = torch.zeros(n_classes, model.config.d_ff, dtype=torch.float64)
    for rows in chosen_on.split(CHUNK):
        post = block.up(block.norm(resid_mid[rows, 0])).relu()  # (sums, neuron)
        total.index_add_(0, carry_class[rows], post.double())
    means = total / carry_class[chosen_on].bincount(minlength=n_classes).unsqueeze(1)
    return (means[1:] > means[0]).any(0)  # NC is the first class


def answers_without(
    model: Transformer, resid_mid: Stream, neurons: Bool[Tensor, " neuron"], ablated_on: Indices
) -> Int[Tensor, "_ pos"]:
    """Return the model's answers to some sums with some neurons of its final MLP left out."""
    block = model.blocks[model.config.layers - 1]
    up, up_bias = block.up.weight[~neurons], block.up.bias[~neurons]
    down = block.down.weight[:, ~neurons]
    answers = []
    for rows in ablated_on.split(CHUNK):
        post = F.linear(block.norm(resid_mid[rows]), up, up_bias).relu()
        resid_post = resid_mid[rows] + F.linear(post, down, block.down.bias)
        answers.append(model.unembed(model.norm(resid_post)).argmax(-1))
    return torch.cat(answers)
