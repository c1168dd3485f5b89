"""Measurements on a trained model: accuracy by carry class and position, attention, activations.

Sums are given as two tensors of equal length, the first and the second numbers. A carry
class (the paper's "task") says at which positions a sum carries; `carries.patterns`
lists all of them. Tables have a row for each class and a column for each answer
position, from the left.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from carry_core import carries
from carry_core.engine import Passes, engine
from carry_core.errors import BadInput, check_whole
from carry_core.hooks import Hook, HookAt, Names, Point, plain_name, requested_points
from carry_core.interventions import BATCH as BATCH
from carry_core.interventions import (
    INTACT,
    PAIRS,
    PARTS,
    Ablation,
    AnyIntervention,
    MeanAblation,
    Patch,
    Source,
    Sums,
    means,
)
from carry_core.model import (
    POINTS,
    ModelConfig,
    Read,
    Transformer,
    activations_at,
    checked_config,
)
from carry_core.pairs import Contrast, Pairs, sample_pairs
from carry_core.sums import (
    MAX_DIGITS,
    Layout,
    Numbers,
    Operand,
    digits,
    encode,
    long_sums,
    some_sums,
    whole_numbers,
)

Interventions = AnyIntervention | Sequence[AnyIntervention] | Mapping[str, AnyIntervention]


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
        BadInput: The model has no such sums or parts, or a sum has no class, since its last
            digits carry further to the left.
    """
    a, b = some_sums(a, b, checked_config(model).width)
    n_digits = _checked_digits(model.config, n_digits)
    positions = model.config.layout.answer[-n_digits:]

    mean_ablations = [i for i in interventions if isinstance(i, MeanAblation)]
    source: Source = (a, b)
    # A subclass may take other values than the means, and is given the sums themselves.
    if mean_ablations and all(type(i) is MeanAblation for i in mean_ablations):
        names = {name for i in mean_ablations for name in i.targets(model.config)}
        source = means(model, a, b, sorted(names), positions)

    sources = [source if isinstance(i, MeanAblation) else None for i in interventions]
    logits_of = engine().passes(model, interventions, positions, sources=sources)
    predictions = _predict_in_batches(logits_of, model, a, b)
    return [score(predicted, a, b) for predicted in predictions]


def accuracy(
    model: Transformer,
    a: Operand,
    b: Operand,
    interventions: Interventions = INTACT,
    n_digits: int | None = None,
) -> pd.DataFrame:
    """Return the accuracies on the sums a + b as a data frame (Tables 1, 3, 4 and 5).

    There is a row for each intervention, carry class and position. `n_digits` and mean ablations
    are as in `class_accuracies`. With no intervention it raises `BadInput`. The columns are::

        ablation      the intervention's key in the mapping, or else the intervention in words, with
                      a number if others read the same. It is categorical, in the given order
        carry_class   NC, C@1, C@2, C all or C all con.; for other lengths the carry pattern
        position      its name in the paper: pos7, pos8 or pos9 for three digits
        carry_in      True if the column to the right of the position carries
        accuracy, corrected, exact_match   as in `ClassAccuracies`, the last the same in all rows
    """
    n_digits = _checked_digits(checked_config(model), n_digits)
    by_label = _labelled(interventions)
    if not by_label:
        raise BadInput(f"interventions={interventions!r}: expected at least one, such as INTACT.")
    tables = class_accuracies(model, a, b, list(by_label.values()), n_digits)
    patterns = carries.patterns(n_digits)
    carry_in = carries.carry_in(n_digits)  # (carry_class, pos)
    position_names = model.config.layout.position_names[-n_digits:]

    rows = []
    for label, table in zip(by_label, tables, strict=True):
        for carry_class, pattern in enumerate(patterns):
            for pos, position_name in enumerate(position_names):
                row = {
                    "ablation": label,
                    "carry_class": carries.paper_name(pattern),
                    "position": position_name,
                    "carry_in": bool(carry_in[carry_class, pos]),
                    "accuracy": float(table.accuracy[carry_class, pos]),
                    "corrected": float(table.corrected[carry_class, pos]),
                    "exact_match": table.exact_match,
                }
                rows.append(row)
    frame = pd.DataFrame(rows)
    frame["ablation"] = pd.Categorical(frame["ablation"], categories=list(by_label), ordered=True)
    return frame


def _labelled(interventions: Interventions) -> dict[str, AnyIntervention]:
    """Return interventions by the labels of their rows in the frame of `accuracy`."""
    if isinstance(interventions, Mapping):
        return dict(interventions)
    members = interventions if isinstance(interventions, Sequence) else [interventions]
    by_label: dict[str, AnyIntervention] = {}
    for intervention in members:
        label = str(intervention)
        number = 1
        while label in by_label:
            number += 1
            label = f"{intervention} ({number})"
        by_label[label] = intervention
    return by_label


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
        BadInput: The model has no such sums or parts.
    """
    a, b = some_sums(a, b, checked_config(model).width)
    positions = model.config.layout.answer[-_checked_digits(model.config, n_digits) :]
    logits_of = engine().passes(model, interventions, positions, watch)
    return _predict_in_batches(logits_of, model, a, b)


@torch.no_grad()
def _predict_in_batches(
    logits_of: Passes, model: Transformer, a: Numbers, b: Numbers
) -> list[Int[Tensor, "sums pos"]]:
    """Return the tokens with the largest logits, for each set of logits from `logits_of`."""
    batches: list[list[Tensor]] = []
    for batch_a, batch_b in zip(a.split(BATCH), b.split(BATCH), strict=True):
        tokens = encode(batch_a, batch_b, model.config.layout).to(model.device)
        predicted = [logits.argmax(-1).to("cpu", torch.int8) for logits in logits_of(tokens)]
        batches.append(predicted)
    return [torch.cat(predicted) for predicted in zip(*batches, strict=True)]


def _checked_digits(config: ModelConfig, n_digits: int | None) -> int:
    """Return the number of answer digits that count: all if None."""
    if n_digits is None:
        return config.width
    check_whole("n_digits", n_digits, 1, config.width, "digits")
    return n_digits


def score(predicted: Operand, a: Operand, b: Operand) -> ClassAccuracies:
    """Return the accuracies of predicted answers `[sums, pos]` to the sums a + b.

    Only the digits that were predicted count, from the right, for a sum's class too.

    Raises:
        BadInput: `predicted` has not a row of digits for each sum, or a sum has no class.
    """
    a, b = some_sums(a, b, MAX_DIGITS)
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


def correct_digits(model: Transformer, a: Operand, b: Operand) -> Bool[Tensor, "sums pos"]:
    """Return a mask of the correct digits in the model's answers to a + b."""
    a, b = some_sums(a, b, checked_config(model).width)
    (predicted,) = predict(model, a, b)
    return predicted == digits(a + b, model.config.width)


# ---- parts to ablate, sums to draw


def last_heads(model: Transformer | ModelConfig, layers: int = 1) -> list[Ablation]:
    """Return a zero ablation for each head of the last `layers` layers, the lowest layer first."""
    config = model if isinstance(model, ModelConfig) else checked_config(model)
    check_whole("layers", layers, 1, config.layers)
    heads = product(range(config.layers - layers, config.layers), range(config.heads))
    return [Ablation(heads=frozenset({head})) for head in heads]


def final_mlp(model: Transformer | ModelConfig) -> Ablation:
    """Return the zero ablation of the last block's MLP."""
    config = model if isinstance(model, ModelConfig) else checked_config(model)
    return Ablation(mlps=frozenset({config.layers - 1}))


MAX_SUMS_PER_CLASS = 10**7


def sample(n_examples: int, n_digits: int, seed: int) -> tuple[Numbers, Numbers]:
    """Return `n_examples` random sums of each carry class, one class after the other."""
    check_whole("n_examples", n_examples, 1, MAX_SUMS_PER_CLASS, "sums per class")
    generator = _seeded(seed)
    return carries.sample_classes(carries.patterns(n_digits), n_examples, generator)


def _seeded(seed: int) -> torch.Generator:
    """Return a random generator with this seed."""
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
    check_whole("count", count, 1, MAX_SUMS_PER_CLASS, "pairs")
    layout = Layout(_checked_digits(checked_config(model), n_digits), model.config.causal)
    # An engine prepares a model once, for all draws.
    logits_of = engine().passes(model, [INTACT], model.config.layout.answer)

    def are_correct(sums: Int[Tensor, "2 sums"]) -> Bool[Tensor, " sums"]:
        (predicted,) = _predict_in_batches(logits_of, model, *sums)
        return (predicted == digits(sums.sum(0), model.config.width)).all(1)

    pairs = torch.zeros(2, 2, 0, dtype=torch.int64)
    n_sampled = 0
    while pairs.shape[-1] < count and n_sampled < TRIES * count:
        sampled = sample_pairs(contrast, count, generator, layout)
        indices = are_correct(sampled[0]).nonzero().flatten()
        if len(indices):  # the second sums are looked at only where the first are right
            indices = indices[are_correct(sampled[1][:, indices])]
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
    cache = activations(model, a, b, [name], read=[position])
    swapped = {point: torch.cat(z.chunk(2)[::-1]) for point, z in cache.items()}
    logits_of = engine().passes(model, patches, [position], sources=[swapped] * len(patches))
    tokens = encode(a, b, model.config.layout).to(model.device)
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


def attention(model: Transformer, a: Operand, b: Operand) -> Float[Tensor, "layer head query key"]:
    """Return the attention probabilities, averaged over the sums a + b (Fig. 3)."""
    a, b = some_sums(a, b, checked_config(model).width)
    names = [f"blocks.{layer}.attn.pattern" for layer in range(model.config.layers)]
    mean_patterns = means(model, a, b, names)
    return torch.stack([mean_patterns[name] for name in names])


def class_attention(
    model: Transformer, classes: str | Sequence[str], n_examples: int, seed: int
) -> Float[Tensor, "carry_class layer head query key"]:
    """Return the mean attention over `n_examples` random sums of each carry class (Fig. 3).

    `classes` are carry patterns such as `010`, which the paper calls C@1; one or more.

    Raises:
        BadInput: There is no class, or the model has no such sums.
    """
    check_whole("n_examples", n_examples, 1, MAX_SUMS_PER_CLASS, "sums per class")
    if not classes:
        raise BadInput(f"classes={classes!r}: expected at least one, such as 010.")
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
    computed only at the positions `read` (all if None): then each name is a `hooks.Point`,
    which knows them. A probe can be trained on activations, but no gradient flows back into the
    model.

    Raises:
        BadInput: The model has no such sums, hook point, part or position.
    """
    config = checked_config(model)
    a, b = some_sums(a, b, config.width)
    read = config.checked_read(read)
    requested = map(str, requested_points(names, config.hook_names))
    hook_names = {name: config.hook_name(name) for name in requested}
    if read is not None:
        hook_names = {
            Point(name, config.positions_at(hook_name, read)): hook_name
            for name, hook_name in hook_names.items()
        }
    points = frozenset(hook_names.values())
    cache: dict[str, Tensor] = {}

    def keep(point: str, x: Tensor) -> Tensor:
        cache[point] = x
        return x

    logits_of: Passes | None = None
    # An engine's watcher sees the intact model from here on, but not the logits.
    watched = {*config.hook_names[config.hook_names.index("blocks.0.resid_mid") : -1]}
    in_last_layer = {name for name in watched if name.startswith(f"blocks.{config.layers - 1}.")}
    if ablation == INTACT and points <= watched and points & in_last_layer:
        logits_of = engine().passes(model, [], read, HookAt(points, keep))
    hook = ablation.hook(model, read=read)
    batches: dict[str, list[Tensor]] = {name: [] for name in hook_names}
    for batch_a, batch_b in zip(a.split(BATCH), b.split(BATCH), strict=True):
        tokens = encode(batch_a, batch_b, model.config.layout).to(model.device)
        if logits_of is not None:
            logits_of(tokens)
        else:
            cache = activations_at(model, tokens, points, read, hook)
        for name, hook_name in hook_names.items():
            batches[name].append(cache[hook_name])
    return {name: torch.cat(parts) for name, parts in batches.items()}


# ---- activation patching

Metric = Callable[[Tensor], Tensor | float]  # one number from logits `[sums, pos, vocab]`


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

    It shows where the model holds what the sums of a pair differ in (Meng et al. 2022, ROME;
    TransformerLens's `patching`). The data frame has a row for each part, with the columns::

        part, layer, number   its kind as it was given, its layer, and the head or neuron (missing
                              for a whole activation)
        position              the token position that was patched; missing for all at once
        value                 the metric on the corrupted sums with this part from the clean ones
        clean, corrupted      the metric on either sums alone, the same in all rows

    Args:
        model: The model.
        clean: Sums from which activations are taken; or one sum for all.
        corrupted: As many sums into which they are put, row by row.
        parts: Kinds of parts, each in all layers: heads, patterns, neurons, q, k and v one by
            one; mlps, skips, resid and any other hook point of a block, such as resid_mid, whole.
            All kinds but these other points if None.
        metric: A function of the logits `[sums, pos, vocab]` that returns one number.
        positions: Token positions (of the query, in a pattern), each patched by itself; if None,
            all positions at once.

    Raises:
        BadInput: The model has no such parts, positions or sums.
    """
    config = checked_config(model)
    read = config.checked_read(positions)
    places: Sequence[int | None] = (None,) if read is None else read
    a, b = some_sums(*clean, config.width)
    clean_tokens = encode(a, b, config.layout).to(model.device)
    a, b = some_sums(*corrupted, config.width)
    tokens = encode(a, b, config.layout).to(model.device)
    alone = {"clean": float(metric(model(clean_tokens))), "corrupted": float(metric(model(tokens)))}

    rows = []
    for part in requested_points(parts, list(PARTS)):
        for layer in range(config.layers):
            point = PARTS[part].point if part in PARTS else plain_name(part)
            if point not in POINTS:
                raise BadInput(
                    f"parts has {part!r}: expected some of {', '.join(PARTS)}, "
                    "or hook points such as resid_mid."
                )
            _, cache = model.run_with_cache(clean_tokens, f"blocks.{layer}.{point}")
            for (number, named), place in product(_parts_at(part, layer, config), places):
                patch = Patch(**named, positions=None if place is None else (place,))
                value = float(metric(model(tokens, patch.hook(model, cache))))
                about = {"part": part, "layer": layer, "number": number, "position": place}
                rows.append(about | {"value": value} | alone)
    columns = ["part", "layer", "number", "position", "value", *alone]
    return pd.DataFrame(rows, columns=columns).astype({"number": "Int64", "position": "Int64"})


def _parts_at(
    part: str, layer: int, config: ModelConfig
) -> list[tuple[int | None, dict[str, set[Any]]]]:
    """Return the parts of a kind in a layer: head or neuron, and the part as a `Patch` names it."""
    if part not in PARTS:
        return [(None, {"names": {f"blocks.{layer}.{part}"}})]
    if part not in PAIRS:
        return [(None, {part: {layer}})]
    count = config.d_ff if part == "neurons" else config.heads
    return [(number, {part: {(layer, number)}}) for number in range(count)]
