"""Findings by interchange: the parts that decide on a carry, and the neurons that add it.

All but `abstraction` is about the last layer, at the position of the answer digit that is read. The
threshold `DECIDES` was fitted to runs 0-5 of the main group alone, to the author's runs and to ours
after 300 epochs.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from carry_core import carries, measure, sums
from carry_core.errors import BadInput
from carry_core.hooks import Hook
from carry_core.interventions import Patch
from carry_core.measure import correct_pairs
from carry_core.model import Transformer
from carry_core.pairs import Contrast, Pairs
from carry_fast.swaps import swaps_between
from carry_paper.findings import heads, interchange, interchange_maps
from carry_paper.findings.bars import Bar, at_least
from carry_paper.findings.base import DECODER, MAIN, Fields, per_run
from carry_paper.findings.evidence import Evidence
from carry_paper.findings.survey import random_neurons

COUNT = 2_000  # pairs, where a page computes the swaps itself


# ---- who decides

# In the runs to which the rule was fitted, the values of a head, of the attention and of its skip
# path are 0.00-0.32, 0.68 and 0.93-1.00, where 1.00 is a component that moves the digit in every
# pair. The threshold is halfway between the last two.
DECIDES = Bar(0.8, perfect=1)

# Parts of the last layer besides its heads, by the names of their columns.
PARTS = {
    "heads together": "attn_out",
    "earlier": "attn.skip",
    "final MLP": "mlp_out",
    "past the MLP": "mlp.skip",
}


def who_decides(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the carry-in's interchange accuracy of the last layer's parts, by run.

    `cells` are one group's rows of `interchange.sweep`, with `run`. Accuracies are means over
    answer digits and directions: of the best `head` (`one head`), and of `PARTS`.
    """
    # In the last layer, a map has only the digit's own position.
    is_carry = (cells.variable == "carry_in") & (cells.direction != "both")
    means = cells[is_carry].pivot_table("accuracy", "run", "component")
    last_layer = max(int(name.split(".")[1]) for name in means)
    by_head = means.filter(like=f"blocks.{last_layer}.attn.z:")
    table = pd.DataFrame(
        {"head": by_head.to_numpy().argmax(1), "one head": by_head.max(axis=1)}, index=means.index
    )
    for name, part in PARTS.items():
        table[name] = means[f"blocks.{last_layer}.{part}"]
    return table


@torch.inference_mode()
def adds_the_carry_alone(model: Transformer) -> float:
    """Return the share of swaps of the final MLP's output that move the carry and nothing else.

    The two sums of a pair differ in the carry into a column and in its digit sum, such that base
    and source can make four digits. If the stream that bypasses the final MLP holds the digit sum
    and the MLP adds the carry (Sec. 4), then the MLP's output from the source leaves the base's
    digit sum and adds the source's carry. If the MLP writes the digit, it brings the source's.
    """
    generator = torch.Generator().manual_seed(0)
    component = f"blocks.{model.config.layers - 1}.mlp_out"
    n_hits = n_swaps = 0
    for column in range(model.config.width - 1):
        pairs = correct_pairs(model, Contrast("both", column), COUNT, generator).pairs
        swaps = swaps_between(model, pairs)
        # (side, pair), with the side without a carry-in first
        digit_sum = sums.digits(pairs, model.config.width)[..., column].sum(1)
        for base in (0, 1):
            carry_of_source = 1 - base
            expected = (digit_sum[base] + carry_of_source) % 10
            answer = swaps.swapped(component, model.config.layout.answer[column], base)
            n_hits += int((answer[:, column] == expected).sum())
            n_swaps += pairs.shape[-1]
    return n_hits / n_swaps if n_swaps else float("nan")


@torch.inference_mode()
def own_sum(model: Transformer) -> Fields:
    """Share of digits that stay when the decision head has the output of another sum (Sec. 4).

    The sums of a pair differ in the digit sum of a column alone, at 7 or 8. The decision head's
    output at the answer comes from the other sum. If the digit stays, the other heads and the skip
    connection have brought the digit sum: swapping all of them instead gives the same stream, with
    the sums exchanged. `moved` is the share of digits that become the other sum's.
    """
    generator = torch.Generator().manual_seed(0)
    last_layer = model.config.layers - 1
    component = f"blocks.{last_layer}.attn.z:{measure.decision_head(model)}"
    n_kept = n_moved = n_swaps = 0
    for column in range(model.config.width - 1):  # nothing is decided about the last one
        pairs = correct_pairs(model, Contrast("digit_sum", column), COUNT, generator).pairs
        swaps = swaps_between(model, pairs)
        for base in (0, 1):
            digit = swaps.swapped(component, model.config.layout.answer[column], base)[:, column]
            n_kept += int((digit == swaps.answers[base][:, column]).sum())
            n_moved += int((digit == swaps.answers[1 - base][:, column]).sum())
            n_swaps += pairs.shape[-1]
    if not n_swaps:
        return {"value": float("nan"), "moved": float("nan")}
    return {"value": n_kept / n_swaps, "moved": n_moved / n_swaps}


others_bring_own_sum = at_least(DECIDES)

# ---- neurons of the final MLP (Sec. 5, Tab. 4)

RANDOM_SETS = 5  # sets of as many random neurons as there are carry neurons


def carry_pairs(model: Transformer, count: int = COUNT, seed: int = 0) -> dict[int, Pairs]:
    """Return pairs of sums that differ in the carry into a column, by column.

    The model gets both sums of a pair right. Nothing is carried into the last column.
    """
    generator = torch.Generator().manual_seed(seed)
    pairs = {}
    for column in range(model.config.width - 1):
        pairs[column] = correct_pairs(model, Contrast("carry_in", column), count, generator).pairs
    return pairs


def neuron_sets(model: Transformer) -> list[tuple[str, Bool[Tensor, " neuron"]]]:
    """Return the carry neurons (Sec. 5), all others, random sets of their size, and single ones.

    They are masks with their names: `carry`, `rest`, `random` or `single`.
    """
    d_ff = model.config.d_ff
    carry = heads.carry_neurons(model, *measure.sample(1_000, model.config.width, 0))
    sets = [("carry", carry), ("rest", ~carry)]
    sets += [("random", neurons) for neurons in random_neurons(d_ff, int(carry.sum()), RANDOM_SETS)]
    return [*sets, *(("single", neuron) for neuron in torch.eye(d_ff, dtype=torch.bool))]


@torch.inference_mode()
def neuron_swaps(model: Transformer, pairs: Mapping[int, Pairs]) -> pd.DataFrame:
    """Return the outcomes of swapping some neurons between sums that differ in a carry.

    (Sec. 5, Tab. 4.) There is a row for each of `neuron_sets`, with its name (`set`); its number of
    `neurons`; the `accuracy`, the share of swaps after which the digit changes by exactly one; and
    the share after which it `stays`.
    """
    sets = neuron_sets(model)
    hits = torch.zeros(len(sets), 2, dtype=torch.float64)  # (set, predicted or stays)
    n_swaps = 0
    for column, numbers in pairs.items():
        swaps = swaps_between(model, numbers)
        position = model.config.layout.answer[column]
        for base in (0, 1):
            n_swaps += numbers.shape[-1]
            predicted = swaps.answers[1 - base][:, column]
            intact = swaps.answers[base][:, column]
            for i, (_, neurons) in enumerate(sets):
                digit = swaps.swapped_neurons(neurons, position, base)[:, column]
                hits[i] += torch.stack([(digit == predicted).sum(), (digit == intact).sum()])
    shares = hits.numpy() / max(n_swaps, 1)
    return pd.DataFrame(
        {
            "set": [name for name, _ in sets],
            "neurons": [int(neurons.sum()) for _, neurons in sets],
            "accuracy": shares[:, 0],
            "stays": shares[:, 1],
        }
    )


# ---- the full adder as a causal model (App. I)


class Sources(NamedTuple):
    """Base sums, and for each variable of the full adder a sum from which it is taken.

    Attributes:
        base: The base sums' two numbers.
        digit_sums: The sources of each column's digit sum.
        carry_ins: The sources of each column's carry-in; the last column has none.
    """

    base: Int[Tensor, "number pair"]
    digit_sums: Int[Tensor, "number column pair"]
    carry_ins: Int[Tensor, "number carry_column pair"]


class Swapped(NamedTuple):
    """The variables that are taken from their sources, as a mask for each pair.

    Attributes:
        digit_sums: True where a column's digit sum is taken.
        carry_ins: True where a column's carry-in is taken; the last column has none.
    """

    digit_sums: Bool[Tensor, "column pair"]
    carry_ins: Bool[Tensor, "carry_column pair"]


@torch.inference_mode()
def abstraction(
    model: Transformer, head: int, place: str = "digits", count: int = COUNT, seed: int = 0
) -> pd.DataFrame:
    """Return how much of the behaviour the full adder explains (App. I).

    Its variables are taken to be where the paper says: digit sums in the stream after the first
    layer, at the column's `digits` or at its `digits and answer` (the `place`); carry-ins in the
    output of head `head` of the last layer, at the answer. Base and sources are random sums that
    the model gets right, with a source for each variable. An answer counts if the swap changes the
    causal model's answer, and is right if all its digits are. There is a row for the `variable`
    `digit_sum`, `carry_in` or `all`, each swapped with probability one half, with the number of
    `pairs` and the `accuracy`, the share of answers that are the full adder's.

    Raises:
        BadInput: The model has one layer only.
    """
    if model.config.layers < 2:
        raise BadInput(
            "The full adder needs a layer that adds and one that carries: "
            "expected 2 layers or more."
        )
    generator = torch.Generator().manual_seed(seed)
    sources = _sample_sources(model, count, generator)
    rows = []
    for variable in ("digit_sum", "carry_in", "all"):
        swapped = _sample_swapped(sources, variable, generator)
        expected, exists = _causal_answer(sources, swapped)
        intact = sums.digits(sources.base.sum(0), model.config.width)
        counts = exists & (expected != intact).any(1)
        if not counts.any():  # a model early in its training may get no sum right
            rows.append((variable, 0, float("nan")))
            continue
        counted = Sources(*(numbers[..., counts] for numbers in sources))
        is_swapped = torch.cat(swapped)[:, counts]  # (variable, pair)
        hook = _setting(model, counted, is_swapped, head, place)
        a, b = counted.base
        layout = model.config.layout
        logits = model(sums.encode(a, b, layout), hook)[:, list(layout.answer)]
        hits = (logits.argmax(-1) == expected[counts]).all(1)
        rows.append((variable, len(hits), hits.double().mean().item()))
    return pd.DataFrame(rows, columns=["variable", "pairs", "accuracy"])


def _sample_sources(model: Transformer, count: int, generator: torch.Generator) -> Sources:
    """Return `count` bases with their sources, or fewer if the model gets few sums right."""
    width = model.config.width
    n_sums = 2 * width  # of a pair: the base, and sources of `width` digit sums and the carry-ins
    a, b = sums.long_sums(n_sums * count * 3 // 2, width, generator)
    correct = measure.correct_digits(model, a, b).all(1).nonzero().flatten()
    n_pairs = min(len(correct) // n_sums, count)
    indices = correct[: n_pairs * n_sums]
    numbers = torch.stack([a[indices], b[indices]]).view(2, n_sums, n_pairs)
    return Sources(numbers[:, 0], numbers[:, 1 : width + 1], numbers[:, width + 1 :])


def _sample_swapped(sources: Sources, variable: str, generator: torch.Generator) -> Swapped:
    """Return a mask of swapped variables: each of those asked for, with probability one half."""
    _, width, n_pairs = sources.digit_sums.shape
    is_swapped = torch.rand(2 * width, n_pairs, generator=generator) < 0.5  # the base takes a row
    swapped = Swapped(is_swapped[1 : width + 1], is_swapped[width + 1 :])
    if variable == "digit_sum":
        swapped.carry_ins.fill_(value=False)
    if variable == "carry_in":
        swapped.digit_sums.fill_(value=False)
    return swapped


def _causal_answer(
    sources: Sources, swapped: Swapped
) -> tuple[Int[Tensor, "pair column"], Bool[Tensor, " pair"]]:
    """Return the full adder's answer to the bases, with variables set from their sources.

    The mask is True for pairs that have one: their digits form a sum.
    """
    width = len(swapped.digit_sums)
    # (number, pair, column): a column's own digits, in the base and in its digit sum's source.
    digits = sums.digits(sources.base, width)
    source_digits = sums.digits(sources.digit_sums, width).diagonal(dim1=1, dim2=3)
    digits = torch.where(swapped.digit_sums.T, source_digits, digits)
    powers = 10 ** torch.arange(width - 1, -1, -1)
    a, b = (digits * powers).sum(-1)

    carry_in_of_class = carries.carry_in(width)
    carry_in = carry_in_of_class[carries.class_index(a, b, width)]  # (pair, column)
    source_a, source_b = sources.carry_ins
    source_classes = carries.classify(source_a, source_b, width)  # (carry_column, pair)
    source_carry_in = carry_in_of_class[source_classes].diagonal(dim1=0, dim2=2)
    carry_in[:, :-1] = torch.where(swapped.carry_ins.T, source_carry_in, carry_in[:, :-1])
    return (digits.sum(0) + carry_in) % 10, a + b < 10**width


def _setting(
    model: Transformer,
    sources: Sources,
    is_swapped: Bool[Tensor, "variable pair"],
    head: int,
    place: str,
) -> Hook:
    """Return a hook that sets the swapped variables in the model where the paper locates them."""
    width, answer = model.config.width, model.config.layout.answer
    patches = []
    for column in range(width):
        positions = [column, width + 1 + column]
        if place == "digits and answer":
            positions.append(answer[column])
        patches.append(Patch(names={"blocks.0.resid_post"}, positions=tuple(positions)))
    for position in answer[:-1]:
        heads_of_last = frozenset({(model.config.layers - 1, head)})
        patches.append(Patch(heads=heads_of_last, positions=(position,)))
    hooks = []
    of_variables = torch.cat([sources.digit_sums, sources.carry_ins], 1)  # (number, variable, pair)
    for patch, (a, b) in zip(patches, of_variables.unbind(1), strict=True):
        hooks.append(patch.hook(model, (a, b)))

    def hook(name: str, x: Tensor) -> Tensor:
        for patch_hook, mask in zip(hooks, is_swapped, strict=True):
            patched = patch_hook(name, x)
            if patched is not x:
                x = torch.where(mask.view(-1, *[1] * (x.dim() - 1)), patched, x)
        return x

    return hook


# ---- the statements `beyond/…`


@lru_cache(maxsize=2)
def maps_of(evidence: Evidence, group: str) -> pd.DataFrame:
    """Return swaps of the carry in a group's runs.

    They are those of the stored interchange maps. Of runs that were chosen by their recipe or their
    numbers no maps need be stored, so as many pairs are swapped now.
    """
    if not evidence.selection.get(group):
        return interchange_maps.load(evidence.source, group)
    count = interchange_maps.default_pairs(group)
    swaps = evidence.each(
        group, lambda run, model: interchange.carry_swaps(model, count).assign(run=run)
    )
    return pd.concat(swaps.values())


def statements(evidence: Evidence) -> pd.DataFrame:
    """Return the value of each statement `beyond/…` in each run of the main group.

    Some are taken from the stored maps, others are computed. `costliest_moves_most` is 1 in a run
    in which the head whose zero ablation costs the most exact matches is also the one that moves
    the carry in the most pairs, and 0 in others.
    """
    maps = maps_of(evidence, MAIN)
    deciding = who_decides(maps[maps.run.isin(evidence.group(MAIN).numbers)])

    def row(run: int, model: Transformer) -> Fields:
        head, stored = measure.decision_head(model), deciding.loc[run]
        swaps = neuron_swaps(model, carry_pairs(model, COUNT)).groupby("set").accuracy.mean()
        adder = abstraction(model, head, "digits and answer", COUNT).set_index("variable").accuracy
        at_digits = abstraction(model, head, "digits", COUNT).set_index("variable").accuracy
        return {
            "final_mlp": stored["final MLP"],
            "mlp_adds_only": adds_the_carry_alone(model),
            "costliest_moves_most": float(measure.costliest_head(model) == stored["head"]),
            "carry_neurons": swaps["carry"],
            "adder_digit_sum_at_digits": at_digits["digit_sum"],
            **adder.add_prefix("adder_"),
        }

    return per_run(evidence.each(MAIN, row))


# A part that moves the digit by itself decides.
decides = at_least(DECIDES)


def is_the_same_head(measured: Fields) -> bool:
    """Return True if the head that costs most is the one that moves the carry most."""
    return bool(measured["value"] == 1)


def decoder_algorithm(evidence: Evidence) -> pd.DataFrame:
    """Interchange accuracy of the last attention or the final MLP, the lower one (App. D).

    It is that of a carry, from the stored maps.

    Raises:
        BadInput: There are no maps of decoders.
    """
    numbers = evidence.group(DECODER).numbers
    maps = maps_of(evidence, DECODER)
    deciding = who_decides(maps[maps.run.isin(numbers)])
    return pd.DataFrame(
        {
            "value": deciding[["heads together", "final MLP"]].min(axis=1),
            "last_attention": deciding["heads together"],
            "final_MLP": deciding["final MLP"],
        }
    )
