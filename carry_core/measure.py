"""Measurements on a trained model: accuracy by carry class and position, attention, activations.

Sums are given as two tensors of equal length, the first and the second numbers. A carry
class (the paper's "task") says at which positions a sum carries; `carries.patterns`
lists all of them. Tables have a row for each class and a column for each answer
position, from the left.
"""

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import product
from typing import Any, NamedTuple, TypeVar, cast

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core import carries
from carry_core.engine import AnyIntervention, Passes, engine, plain
from carry_core.errors import BadInput, check_some, check_whole
from carry_core.hooks import Hook, Names, plain_name, requested_points
from carry_core.interventions import BATCH as BATCH
from carry_core.interventions import (
    INTACT,
    PAIRS,
    PARTS,
    Ablation,
    ActivationsOf,
    MeanAblation,
    Patch,
    Source,
    Sums,
    check_intervention,
    means,
)
from carry_core.model import MAX_SIZE, POINTS, ModelConfig, Read, Transformer, checked_config
from carry_core.pairs import Contrast, Pairs, sample_pairs
from carry_core.sums import (
    MAX_DIGITS,
    Layout,
    Numbers,
    Operand,
    digits,
    input_tokens,
    long_sums,
    some_sums,
    whole_numbers,
)

Interventions = AnyIntervention | Sequence[AnyIntervention] | Mapping[str, AnyIntervention]


Function = TypeVar("Function", bound=Callable[..., Any])


# ---- accuracy


@dataclass(frozen=True)
class ClassAccuracies:
    """Accuracies by carry class and position under one intervention (Tables 1, 3, 4 and 5).

    All are shares from 0 to 1.

    Attributes:
        accuracy: Share of digits that are correct.
        corrected: Share of digits that are correct once one is added (with a carry-in) or
            subtracted (without): those that miss a carry, or have one too many.
        exact_match: Share of sums with no wrong digit, over all classes.
    """

    accuracy: Float[Tensor, "carry_class pos"]
    corrected: Float[Tensor, "carry_class pos"]
    exact_match: float


def class_accuracies(
    model: Transformer,
    a: Operand,
    b: Operand,
    interventions: Sequence[AnyIntervention] = (INTACT,),
    n_digits: int | None = None,
) -> list[ClassAccuracies]:
    """Return the accuracies on the sums a + b under each intervention (Tables 1, 3, 4 and 5).

    Only the last `n_digits` digits count (all if None), for a sum's class too. A mean
    ablation takes its mean over the sums a + b or, as part of a `Combined`, over its
    default set.

    Raises:
        BadInput: As `predict`; or the last digits of a sum carry further to the left, so
            that it has no class.
    """
    a, b = some_sums((a, b), checked_config(model).width)
    n_digits = _checked_digits(model, n_digits)
    carries.classify(a, b, n_digits)  # raises before anything is computed
    interventions = _listed(interventions)
    positions = model.config.layout.answer[-n_digits:]

    mean_ablations = [i for i in interventions if isinstance(i, MeanAblation)]
    source: Source = (a, b)
    # A subclass may take other values than the means, and is given the sums themselves.
    if mean_ablations and all(type(i) is MeanAblation for i in mean_ablations):
        names = {name for i in mean_ablations for name in i.targets(model.config)}
        activations_of = engine().reader(model, names, positions)
        source = means(model, a, b, sorted(names), positions, activations_of)

    sources = [source if isinstance(i, MeanAblation) else None for i in interventions]
    logits_of = engine().passes(model, interventions, positions, sources=sources)
    predictions = _predict_in_batches(logits_of, model, a, b)
    return [score(predicted, a, b) for predicted in predictions]


class AccuracyRow(NamedTuple):
    """A row of the data frame that `accuracy` returns; its fields are the columns.

    Attributes:
        ablation: The intervention's key in the mapping, or else the intervention in
            words. Where several read the same, all but the first get a number. The
            column is an ordered categorical.
        carry_class: NC, C@1, C@2, C all or C all con.; for other lengths the carry
            pattern.
        position: The paper's name of the position: pos7, pos8 or pos9 for three digits.
        carry_in: True if the column to the right of the position carries.
        accuracy: As in `ClassAccuracies`.
        corrected: As in `ClassAccuracies`.
        exact_match: As in `ClassAccuracies`: the same in all rows of an intervention.
    """

    ablation: str
    carry_class: str
    position: str
    carry_in: bool
    accuracy: float
    corrected: float
    exact_match: float


def _takes_a_pair(function: Function) -> Function:
    """Let a function of a model and the sums a + b still take these as a pair; until 1.0."""

    @wraps(function)
    def with_a_pair(model: Transformer, *arguments: Any, **options: Any) -> Any:
        if "sums" in options:
            arguments = (options.pop("sums"), *arguments)
        is_pair = bool(arguments) and isinstance(arguments[0], tuple)
        if is_pair and isinstance(arguments[0][0], Tensor):
            name = function.__name__
            line = f"{name}(model, (a, b), …) is {name}(model, a, b, …) since version 0.1.0."
            warnings.warn(line, FutureWarning, stacklevel=2)
            arguments = (*arguments[0], *arguments[1:])
        return function(model, *arguments, **options)

    return cast(Function, with_a_pair)


@_takes_a_pair
def accuracy(
    model: Transformer,
    a: Operand,
    b: Operand,
    interventions: Interventions = INTACT,
    n_digits: int | None = None,
) -> pd.DataFrame:
    """Return the accuracies on the sums a + b as a data frame of `AccuracyRow` (Tables 1, 3 to 5).

    There is a row for each intervention, carry class and position. Interventions keep the
    order in which they were given, even in a pivot table of the frame or after sorting.
    `n_digits` and mean ablations are as in `class_accuracies`.

    Raises:
        BadInput: As `class_accuracies`; or there are no interventions.
    """
    a, b = some_sums((a, b), checked_config(model).width)
    n_digits = _checked_digits(model, n_digits)
    by_label = _labelled(interventions)
    tables = class_accuracies(model, a, b, list(by_label.values()), n_digits)
    patterns = carries.patterns(n_digits)
    carry_in = carries.carry_in(n_digits)  # (carry_class, pos)
    position_names = model.config.layout.position_names[-n_digits:]

    rows = []
    for label, table in zip(by_label, tables, strict=True):
        for carry_class, pattern in enumerate(patterns):
            for pos, position_name in enumerate(position_names):
                row = AccuracyRow(
                    ablation=label,
                    carry_class=carries.paper_name(pattern),
                    position=position_name,
                    carry_in=bool(carry_in[carry_class, pos]),
                    accuracy=float(table.accuracy[carry_class, pos]),
                    corrected=float(table.corrected[carry_class, pos]),
                    exact_match=table.exact_match,
                )
                rows.append(row)
    frame = pd.DataFrame(rows, columns=AccuracyRow._fields)
    frame["ablation"] = pd.Categorical(frame["ablation"], categories=list(by_label), ordered=True)
    return frame


def _labelled(interventions: Interventions) -> dict[str, AnyIntervention]:
    """Return interventions by the labels of their rows in the frame of `accuracy`.

    Raises:
        BadInput: One of them is not an intervention, or there are none.
    """
    if isinstance(interventions, Mapping | Sequence):
        check_some("interventions", interventions)
    if isinstance(interventions, Mapping):
        _listed(list(interventions.values()))
        return dict(interventions)
    by_label: dict[str, AnyIntervention] = {}
    for intervention in _listed(interventions):
        label = str(intervention)
        number = 1
        while label in by_label:
            number += 1
            label = f"{intervention} ({number})"
        by_label[label] = intervention
    return by_label


def _listed(interventions: AnyIntervention | Sequence[AnyIntervention]) -> list[AnyIntervention]:
    """Return one or more interventions as a list; raise `BadInput` if one is anything else."""
    members = list(interventions) if isinstance(interventions, Sequence) else [interventions]
    for intervention in members:
        check_intervention(intervention)
    return members


def predict(
    model: Transformer,
    a: Operand,
    b: Operand,
    interventions: Sequence[AnyIntervention] = (INTACT,),
    n_digits: int | None = None,
    watch: Hook | None = None,
) -> list[Int[Tensor, "sums pos"]]:
    """Return the last `n_digits` answer tokens (all if None) under each intervention, as int8.

    Each token is the one with the largest logit (greedy search, App. A.1). A mean
    ablation takes its mean over its default set. `watch` is a hook that sees the model run
    without interventions, from `blocks.0.resid_mid` on, and changes nothing.

    Raises:
        BadInput: The model has no such sums, as in `sums.some_sums`, or an intervention
            does not fit it, or `watch` is no hook.
    """
    a, b = some_sums((a, b), checked_config(model).width)
    if watch is not None and not callable(watch):
        raise BadInput(f"watch={watch!r}: expected a function of a name and a tensor, or None.")
    n_digits = _checked_digits(model, n_digits)
    positions = model.config.layout.answer[-n_digits:]
    logits_of = engine().passes(model, _listed(interventions), positions, watch)
    return _predict_in_batches(logits_of, model, a, b)


@torch.no_grad()
def _predict_in_batches(
    logits_of: Passes, model: Transformer, a: Numbers, b: Numbers
) -> list[Int[Tensor, "sums pos"]]:
    """Return the tokens with the largest logits, for each set of logits from `logits_of`."""
    batches: list[list[Tensor]] = []
    for batch_a, batch_b in zip(a.split(BATCH), b.split(BATCH), strict=True):
        tokens = input_tokens(batch_a, batch_b, model.config.layout).to(model.device)
        predicted = [logits.argmax(-1).to("cpu", torch.int8) for logits in logits_of(tokens)]
        batches.append(predicted)
    return [torch.cat(predicted) for predicted in zip(*batches, strict=True)]


def _checked_digits(model: Transformer, n_digits: int | None) -> int:
    """Return the number of answer digits that count; raise `BadInput` if the model has fewer."""
    width = model.config.width
    if n_digits is None:
        return width
    check_whole("n_digits", n_digits, 1, width, "digits")
    return n_digits


def score(predicted: Operand, a: Operand, b: Operand) -> ClassAccuracies:
    """Return the accuracies of predicted answers `[sums, pos]` to the sums a + b.

    Only the digits that were predicted count, from the right, for a sum's class too.

    Raises:
        BadInput: There are no sums, or `predicted` has not a row of digits for each, or as
            `carries.classify`.
    """
    a, b = some_sums((a, b), MAX_DIGITS)
    predicted = whole_numbers("predicted", predicted).to(a.device)
    if predicted.ndim != 2 or len(predicted) != len(a):
        raise BadInput(
            f"predicted has shape {[*predicted.shape]} for {len(a)} sums: "
            "expected a row of digits for each."
        )
    n_digits = predicted.shape[1]
    answer = digits(a + b, n_digits)  # (sums, pos)
    carry_class = carries.classify(a, b, n_digits)  # (sums,)
    carry_in = carries.carry_in(n_digits)  # (carry_class, pos)

    correct = predicted == answer
    # Each position is corrected on its own: a 9 turns into a 0 and does not carry.
    correction = torch.where(carry_in[carry_class], 1, -1)
    correct_after_correction = (predicted + correction) % 10 == answer

    n_classes = len(carry_in)
    sums_in_class = torch.bincount(carry_class, minlength=n_classes)[:, None]  # (carry_class, 1)
    no_sums = torch.zeros(carry_in.shape, dtype=torch.int64)
    n_correct = no_sums.index_add(0, carry_class, correct.long())
    n_corrected = no_sums.index_add(0, carry_class, correct_after_correction.long())
    return ClassAccuracies(
        accuracy=n_correct / sums_in_class,
        corrected=n_corrected / sums_in_class,
        exact_match=correct.all(1).double().mean().item(),
    )


def correct_digits(model: Transformer, a: Numbers, b: Numbers) -> Bool[Tensor, "sums pos"]:
    """Return a mask of the correct digits in the model's answers to a + b."""
    (predicted,) = predict(model, a, b)
    return predicted == digits(a + b, model.config.width)


# ---- parts to ablate, sums to draw


def last_heads(model: Transformer | ModelConfig, layers: int = 1) -> list[Ablation]:
    """Return a zero ablation for each head of the last `layers` layers, from the lowest layer on.

    Raises:
        BadInput: The model has fewer layers.
    """
    config = model if isinstance(model, ModelConfig) else checked_config(model)
    check_whole("layers", layers, 1, MAX_SIZE)
    if layers > config.layers:
        raise BadInput(
            f"Expected a model with at least {layers} layers, this one has {config.layers}: "
            "choose another group."
        )
    ablations = []
    for layer in range(config.layers - layers, config.layers):
        for head in range(config.heads):
            ablations.append(Ablation(heads=frozenset({(layer, head)})))
    return ablations


def final_mlp(model: Transformer | ModelConfig) -> Ablation:
    """Return the zero ablation of the last block's MLP."""
    config = model if isinstance(model, ModelConfig) else checked_config(model)
    return Ablation(mlps=frozenset({config.layers - 1}))


MAX_SUMS_PER_CLASS = 10**7


def sample(n_examples: int, n_digits: int, seed: int) -> tuple[Numbers, Numbers]:
    """Return `n_examples` random sums of each carry class, one class after the other.

    Raises:
        BadInput: `n_examples` is not a whole number from 1 to `MAX_SUMS_PER_CLASS`,
            `n_digits` is not from 1 to `MAX_CLASS_DIGITS`, or `seed` is not a seed.
    """
    check_whole("n_examples", n_examples, 1, MAX_SUMS_PER_CLASS, "sums per class")
    generator = _seeded(seed)
    return carries.sample_classes(carries.patterns(n_digits), n_examples, generator)


def _seeded(seed: int) -> torch.Generator:
    """Return a random generator with this seed; raise `BadInput` if it is not a seed."""
    check_whole("seed", seed, 0, 2**63 - 1)
    return torch.Generator().manual_seed(seed)


# ---- pairs of sums that a model gets right

# Sampling stops after this many pairs for each that is asked for, if the model gets few right.
TRIES = 20


class CorrectPairs(NamedTuple):
    """Pairs of which a model gets both sums right, and their share of all sampled pairs."""

    pairs: Pairs
    share: float


def correct_pairs(
    model: Transformer,
    contrast: Contrast,
    count: int,
    generator: torch.Generator,
    n_digits: int | None = None,
) -> CorrectPairs:
    """Return `count` random pairs of which the model gets both sums right.

    There are fewer if the model gets hardly any sum right. The sums have `n_digits` digits (as many
    as the model if None), and the contrast's column is counted among these.
    """
    layout = Layout(n_digits or model.config.width, model.config.causal)
    pairs = torch.zeros(2, 2, 0, dtype=torch.int64)
    n_sampled = 0
    while pairs.shape[-1] < count and n_sampled < TRIES * count:
        sampled = sample_pairs(contrast, count, generator, layout)
        indices = correct_digits(model, *sampled[0]).all(1).nonzero().flatten()
        if len(indices):  # the second sums are looked at only where the first are right
            indices = indices[correct_digits(model, *sampled[1][:, indices]).all(1)]
        indices = indices[: count - pairs.shape[-1]]
        pairs = torch.cat([pairs, sampled[..., indices]], -1)
        # Pairs after the one that completes the count do not count as sampled.
        is_complete = pairs.shape[-1] == count
        n_sampled += int(indices[-1]) + 1 if is_complete else count
    return CorrectPairs(pairs, pairs.shape[-1] / n_sampled)


# ---- the decision head

DECISION_PAIRS = 250  # pairs in each column on which the head is chosen
DECISION_SUMS = 10_000  # random sums on which the costs of heads are compared, the same for all


def decision_head(model: Transformer) -> int:
    """Return the last-layer head that moves the carry: the decision head (Sec. 4).

    It is the head of `carries_moved_by_heads` that moves the carry in the most pairs. The paper
    takes the head that costs the most exact matches when it is ablated (`costliest_head`), which
    need not be the same: without a head that does something else, a model can err more. Of heads
    that move equally many carries, it is the costliest. So the costliest head is the decision head
    of a model of one layer, of one digit, or one that gets no pair right.
    """
    moved = carries_moved_by_heads(model)
    most = max(moved)
    if moved.count(most) == 1:
        return moved.index(most)
    exact_matches = exact_match_without_heads(model)
    tied = [head for head, count in enumerate(moved) if count == most]
    return min(tied, key=lambda head: exact_matches[head])


def carries_moved_by_heads(model: Transformer) -> list[int]:
    """Return the number of swaps in which each last-layer head alone moves the carry.

    Its output at an answer position is swapped, in both directions, between sums that differ in
    the carry into that column alone (`pairs.Contrast`). The carry is moved if the digit becomes the
    other sum's. The model gets both sums of each pair right. With a single layer, no head can
    receive a carry that was decided elsewhere, so none is swapped, and all counts are 0.
    """
    config = checked_config(model)
    moved = [0] * config.heads
    if config.layers == 1:
        return moved
    generator = torch.Generator().manual_seed(0)
    for column in range(config.width - 1):  # nothing is carried into the last one
        contrast = Contrast("carry_in", column)
        numbers = correct_pairs(model, contrast, DECISION_PAIRS, generator).pairs
        if not numbers.shape[-1]:
            continue
        digit = _digits_with_swapped_heads(model, numbers, config.layout.answer[column])
        answers = digits(numbers.sum(1), config.width)[..., column]  # (side, pair)
        is_moved = digit == answers.flip(0).unsqueeze(1)  # (base, head, pair)
        moved = [count + int(n) for count, n in zip(moved, is_moved.sum((0, 2)), strict=True)]
    return moved


@torch.no_grad()
def _digits_with_swapped_heads(
    model: Transformer, pairs: Pairs, position: int
) -> Int[Tensor, "base head pair"]:
    """Return the digit at an answer position when one last-layer head's output is swapped there.

    Side `base` of each pair gets it from the other side.
    """
    last = model.config.layers - 1
    name = f"blocks.{last}.attn.z"
    patches = [
        Patch(heads=frozenset({(last, head)}), positions=(position,))
        for head in range(model.config.heads)
    ]
    a, b = pairs.transpose(0, 1).flatten(1)  # both sides, one after the other
    z = activations(model, a, b, [name], read=[position])[name]
    cache = {name: torch.cat(z.chunk(2)[::-1])}  # of the other side
    logits_of = engine().passes(model, patches, [position], sources=[cache] * len(patches))
    tokens = input_tokens(a, b, model.config.layout).to(model.device)
    digit_by_head = [logits[:, 0].argmax(-1) for logits in logits_of(tokens)]
    digits_of_sides: Tensor = torch.stack(digit_by_head).unflatten(1, (2, -1))
    return digits_of_sides.transpose(0, 1).cpu()


def costliest_head(model: Transformer) -> int:
    """Return the last-layer head whose zero ablation costs the most exact matches (Sec. 4)."""
    exact_matches = exact_match_without_heads(model)
    return exact_matches.index(min(exact_matches))


def exact_match_without_heads(model: Transformer) -> list[float]:
    """Return the exact match with each last-layer head ablated, as shares from 0 to 1."""
    a, b = long_sums(DECISION_SUMS, checked_config(model).width, torch.Generator().manual_seed(0))
    tables = class_accuracies(model, a, b, last_heads(model))
    return [table.exact_match for table in tables]


# ---- attention and activations

FEW = 100  # sums for which a plain pass takes no longer than to prepare a faster one


def attention(model: Transformer, a: Operand, b: Operand) -> Float[Tensor, "layer head query key"]:
    """Return the attention probabilities, averaged over the sums a + b (Fig. 3).

    Raises:
        BadInput: As `sums.some_sums`.
    """
    a, b = some_sums((a, b), checked_config(model).width)
    names = [f"blocks.{layer}.attn.pattern" for layer in range(model.config.layers)]
    activations_of = _reader(model, names, INTACT, None, len(a))
    mean_patterns = means(model, a, b, names, activations_of=activations_of)
    return torch.stack([mean_patterns[name] for name in names])


def class_attention(
    model: Transformer, classes: str | Sequence[str], n_examples: int, seed: int
) -> Float[Tensor, "carry_class layer head query key"]:
    """Return the mean attention over `n_examples` random sums of each carry class (Fig. 3).

    `classes` are carry patterns such as `010`, which the paper calls C@1; one or more.

    Raises:
        BadInput: No sum of the model has such a pattern; or as `sample`.
    """
    check_whole("n_examples", n_examples, 1, MAX_SUMS_PER_CLASS, "sums per class")
    check_some("classes", classes)
    generator = _seeded(seed)
    attention_by_class = []
    for carry_class in [classes] if isinstance(classes, str) else classes:
        a, b = carries.sample_class(carry_class, n_examples, generator)
        attention_by_class.append(attention(model, a, b))
    return torch.stack(attention_by_class)


@torch.no_grad()
def activations(
    model: Transformer,
    a: Operand,
    b: Operand,
    names: Names,
    ablation: AnyIntervention = INTACT,
    read: Read = None,
) -> dict[str, Float[Tensor, "sums pos ..."]]:
    """Return activations for every sum a + b, under the names by which they were asked for.

    `names` is one name, several, a function that is true of those that are wanted, or None for all.
    They are those of the ablated model, in which an ablated part is zero. The last layer is
    computed only at the positions `read` (all if None). A probe can be trained on them, but
    no gradient flows back into the model.

    Raises:
        BadInput: The model has no such hook point, part or position; or as `sums.some_sums`.
    """
    a, b = some_sums((a, b), checked_config(model).width)
    check_intervention(ablation)
    requested = requested_points(names, model.config.hook_names)
    hook_names = {name: model.config.hook_name(name) for name in requested}
    activations_of = _reader(model, set(hook_names.values()), ablation, read, len(a))
    batches: dict[str, list[Tensor]] = {name: [] for name in requested}
    for batch_a, batch_b in zip(a.split(BATCH), b.split(BATCH), strict=True):
        tokens = input_tokens(batch_a, batch_b, model.config.layout).to(model.device)
        cache = activations_of(tokens)
        for name, hook_name in hook_names.items():
            batches[name].append(cache[hook_name])
    return {name: torch.cat(parts) for name, parts in batches.items()}


def _reader(
    model: Transformer, names: Collection[str], ablation: AnyIntervention, read: Read, n_sums: int
) -> ActivationsOf:
    """Return a function that gives the named activations of the ablated model."""
    return (plain() if n_sums < FEW else engine()).reader(model, names, read, ablation)


# ---- activation patching

Metric = Callable[[Tensor], Tensor | float]  # one number from logits `[sums, pos, vocab]`


class PatchRow(NamedTuple):
    """A row of the data frame that `activation_patch` returns; its fields are the columns.

    Attributes:
        part: The kind of part, as it was given.
        layer: The part's layer.
        number: The head or neuron; missing for a whole activation.
        position: The token position that was patched; missing for all at once.
        value: The metric on the corrupted sums with this part from the clean ones.
        clean: The metric on the clean sums, the same in all rows.
        corrupted: The metric on the corrupted sums, the same in all rows.
    """

    part: str
    layer: int
    number: int | None
    position: int | None
    value: float
    clean: float
    corrupted: float


@torch.no_grad()
def activation_patch(
    model: Transformer,
    clean: Sums,
    corrupted: Sums,
    parts: Names,
    metric: Metric,
    positions: Read = None,
) -> pd.DataFrame:
    """Return the effect of each part, patched from clean into corrupted sums, one at a time.

    The result is a data frame of `PatchRow`. It shows where the model holds what the sums of a
    pair differ in (Meng et al. 2022, ROME; TransformerLens's `patching`).

    Args:
        model: The model.
        clean: Sums from which activations are taken.
        corrupted: As many sums into which they are put, row by row.
        parts: Kinds of parts, each in all layers: heads, patterns, neurons, q, k and v one by
            one; mlps, skips, resid and any other hook point of a block, such as resid_mid, whole.
            All kinds but these other points if None.
        metric: A function of the logits `[sums, pos, vocab]` that returns one number.
        positions: Token positions (of the query, in a pattern), each patched by itself; if None,
            all positions at once.

    Raises:
        BadInput: The model has no such parts or positions, the sums are not as many or as in
            `sums.some_sums`, or the metric gives no number.
    """
    config = checked_config(model)
    read = config.checked_read(positions)
    places: Sequence[int | None] = (None,) if read is None else read
    patches = []
    for part in requested_points(parts, list(PARTS), "parts"):
        patches += _patches_of(part, places, config)
    check_some("parts and positions", patches)
    clean_tokens, corrupted_tokens = _paired_tokens(model, clean, corrupted)

    value_of_clean = _number(metric, [model(tokens) for tokens in clean_tokens])
    value_of_corrupted = _number(metric, [model(tokens) for tokens in corrupted_tokens])
    rows = []
    cached_name, caches = "", list[dict[str, Tensor]]()
    for part, layer, number, patch in patches:
        (name,) = patch.targets(config)
        if name != cached_name:  # patches at one point follow each other
            cached_name = name
            caches = [model.run_with_cache(tokens, name)[1] for tokens in clean_tokens]
        logits = []
        for tokens, cache in zip(corrupted_tokens, caches, strict=True):
            logits.append(model(tokens, patch.hook(model, cache)))
        row = PatchRow(
            part=part,
            layer=layer,
            number=number,
            position=patch.positions[0] if patch.positions else None,
            value=_number(metric, logits),
            clean=value_of_clean,
            corrupted=value_of_corrupted,
        )
        rows.append(row)
    frame = pd.DataFrame(rows, columns=list(PatchRow._fields))
    return frame.astype({"number": "Int64", "position": "Int64"})


class _NumberedPatch(NamedTuple):
    """A patch of one part, with what its row in the frame says of it."""

    part: str
    layer: int
    number: int | None
    patch: Patch


def _patches_of(
    part: str, places: Sequence[int | None], config: ModelConfig
) -> list[_NumberedPatch]:
    """Return a patch of each part of a kind at each of these places; None is all positions."""
    point = plain_name(part)
    if part not in PARTS and point not in POINTS:
        raise BadInput(
            f"parts has {part!r}: expected some of {', '.join(PARTS)}, "
            "or hook points such as resid_mid."
        )
    numbers: Sequence[int | None] = (None,)
    if part in PAIRS:
        numbers = range(config.d_ff if part == "neurons" else config.heads)
    patches = []
    for layer, number, place in product(range(config.layers), numbers, places):
        named: dict[str, Any] = {"positions": None if place is None else (place,)}
        if part in PARTS:
            named[part] = {layer if number is None else (layer, number)}
        else:
            named["names"] = {f"blocks.{layer}.{point}"}
        patches.append(_NumberedPatch(part, layer, number, Patch(**named)))
    return patches


def _paired_tokens(
    model: Transformer, clean: Sums, corrupted: Sums
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the tokens of two equally long sets of sums, in batches."""
    batches = []
    for sums in (clean, corrupted):
        a, b = some_sums(sums, model.config.width)
        tokens = input_tokens(a, b, model.config.layout).to(model.device)
        batches.append(tokens.split(BATCH))
    n_clean, n_corrupted = (sum(map(len, tokens)) for tokens in batches)
    if n_clean != n_corrupted:
        raise BadInput(
            f"There are {n_clean} clean and {n_corrupted} corrupted sums: expected as many."
        )
    return list(batches[0]), list(batches[1])


def _number(metric: Metric, logits: Sequence[Tensor]) -> float:
    """Return the metric of batches of logits; raise `BadInput` if it is not one number."""
    value = metric(torch.cat([*logits])) if callable(metric) else metric
    try:
        (number,) = torch.as_tensor(value).reshape(-1).tolist()
        if isinstance(number, bool):
            raise TypeError("True is no number")
        return float(number)  # a complex one raises an error
    except (TypeError, ValueError, RuntimeError) as error:
        described = repr(value)
        if isinstance(value, Tensor):
            described = f"a tensor of shape {[*value.shape]}"
        raise BadInput(
            f"The metric returned {described}: expected one number, such as a mean."
        ) from error
